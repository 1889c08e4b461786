// The data files of a snapshot: chunks are appended, found by what they are of, and read with their checksums.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "snapshot/block_file.h"
#include "snapshot/chunk.h"
#include "snapshot/compress.h"
#include "snapshot/folder.h"

namespace gshm::core {

// The data files, opened for reading. May be used by several threads at once.
class ChunkFiles {
public:
    // A file that is missing is noticed when it is read.
    static Result<ChunkFiles> open(const SnapshotFolder& folder, std::vector<std::string> names);

    const std::vector<std::string>& names() const { return names_; }
    // Null: it is missing.
    const BlockFile* file(uint32_t index) const { return files_[index] ? &*files_[index] : nullptr; }
    std::string path(uint32_t index) const { return folder_ + "/" + names_[index]; }

private:
    ChunkFiles(std::string folder, std::vector<std::string> names)
        : folder_(std::move(folder)), names_(std::move(names)) {}

    std::string folder_;
    std::vector<std::string> names_;
    std::vector<std::optional<BlockFile>> files_;
};

// Reads chunks and checks them; for one thread.
class ChunkReader {
public:
    explicit ChunkReader(const ChunkFiles& files);

    // The raw bytes of the chunk, checked; they live until the next call. EIO names the place and the object.
    Result<std::span<const std::byte>> read(const ChunkPlace& place, uint32_t raw_bytes, const std::string& object,
                                            uint64_t offset);

private:
    std::string check_header(std::span<const std::byte> bytes, const ChunkPlace& place, uint32_t raw_bytes,
                             uint64_t offset) const;

    const ChunkFiles& files_;
    BlockBuffer stored_;
    BlockBuffer raw_;
    Decompressor decompressor_;
};

// Appends chunks to a new file; for one thread.
class ChunkWriter {
public:
    ChunkWriter(std::string path, uint32_t file_index, int level);

    // The place for the raw bytes of the next chunk.
    std::span<std::byte> room(size_t raw_bytes);
    // Appends the bytes in that place. header says all but how they are stored.
    Result<ChunkPlace> append(ChunkHeader header);
    // All chunks are on the disk when this returns. Does nothing if there was none.
    Status finish();
    uint64_t written_bytes() const { return written_; }

private:
    Status flush(bool all);

    std::string path_;
    uint32_t file_index_;
    std::optional<BlockFile> file_;  // none: nothing was written yet
    Compressor compressor_;
    BlockBuffer buffer_;
    size_t filled_ = 0;     // of the buffer
    uint64_t written_ = 0;  // of the file, whole blocks
};

// The chunks that an interrupted or an earlier run has left, by object and offset.
class ChunkIndex {
public:
    struct Found {
        Identity object;
        uint32_t raw_bytes = 0;
        ChunkPlace place;
    };
    // Goes through the headers of all files. The reader checks the bytes.
    static Result<ChunkIndex> scan(const ChunkFiles& files);
    const Found* find(uint64_t instance, uint64_t id, uint64_t offset) const;

private:
    ChunkIndex() = default;
    Status scan(const ChunkFiles& files, uint32_t index);

    std::map<std::tuple<uint64_t, uint64_t, uint64_t>, Found> found_;
};

}  // namespace gshm::core
