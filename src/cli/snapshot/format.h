// The snapshot format for the commands: its errors become Failures.
#pragma once

#include <cerrno>
#include <utility>

#include "cli/support/context.h"
#include "cli/support/failure.h"
#include "snapshot/chunk_files.h"
#include "snapshot/folder.h"
#include "snapshot/manifest.h"

namespace gshm::cli {

using core::checksum_of;
using core::chunk_count;
using core::ChunkFiles;
using core::ChunkIndex;
using core::ChunkPlace;
using core::ChunkReader;
using core::ChunkWriter;
using core::Codec;
using core::Identity;
using core::kSnapshotChunkBytes;
using core::LeftOut;
using core::Manifest;
using core::raw_bytes_of;
using core::SavedAttribute;
using core::SavedDirectory;
using core::SavedObject;
using core::SavedSymlink;
using core::SnapshotFolder;
using core::to_hex;

// The value, or the error thrown as a failure of a file, with the exit code for it.
template <typename T>
T take(core::Result<T> result, std::string hint = {}) {
    if (!result) throw Failure::of_file(result.error().code, result.error().message, std::move(hint));
    return std::move(result).value();
}

// With a hint for a folder that cannot be used.
inline SnapshotFolder open_folder(const std::string& path, SnapshotFolder::Use use) {
    auto folder = SnapshotFolder::open(without_trailing_slashes(path), use);
    const int code = folder ? 0 : folder.error().code;
    return take(std::move(folder), code == EBUSY       ? "wait until that has ended"
                                   : code == ENOTEMPTY ? "choose a folder for the snapshot alone"
                                                       : "");
}

}  // namespace gshm::cli
