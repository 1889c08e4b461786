// The data files of a snapshot. Chunks are appended, found by object and offset, and verified by their checksums.
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

// The data files, opened for reading. Thread-safe.
class ChunkFiles {
public:
    // A missing file is an error only when it is read.
    static Result<ChunkFiles> open(const SnapshotFolder& folder, std::vector<std::string> names);

    const std::vector<std::string>& names() const { return names_; }
    // Null: the file is missing.
    const BlockFile* file(uint32_t index) const { return files_[index] ? &*files_[index] : nullptr; }
    std::string path(uint32_t index) const { return folder_ + "/" + names_[index]; }

private:
    ChunkFiles(std::string folder, std::vector<std::string> names)
        : folder_(std::move(folder)), names_(std::move(names)) {}

    std::string folder_;
    std::vector<std::string> names_;
    std::vector<std::optional<BlockFile>> files_;
};

// Reads and verifies chunks, in one thread.
class ChunkReader {
public:
    explicit ChunkReader(const ChunkFiles& files);

    // The verified raw bytes of the chunk, valid until the next call. The message of EIO has the place and the object.
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

// Appends chunks to a new file, in one thread.
class ChunkWriter {
public:
    ChunkWriter(std::string path, uint32_t file_index, int level);

    // The buffer for the raw bytes of the next chunk.
    std::span<std::byte> room(size_t raw_bytes);
    // Appends the bytes in that buffer. The caller fills in the header except the storage fields.
    Result<ChunkPlace> append(ChunkHeader header);
    // Returns when all chunks are on the disk. Does nothing if there are none.
    Status finish();
    uint64_t written_bytes() const { return written_; }

private:
    Status flush(bool all);

    std::string path_;
    uint32_t file_index_;
    std::optional<BlockFile> file_;  // created by the first write
    Compressor compressor_;
    BlockBuffer buffer_;
    size_t filled_ = 0;     // bytes in the buffer
    uint64_t written_ = 0;  // bytes in the file, whole blocks
};

// The chunks of an earlier or interrupted run, by object and offset.
class ChunkIndex {
public:
    struct Found {
        Identity object;
        uint32_t raw_bytes = 0;
        ChunkPlace place;
    };
    // Reads the headers of all files. The chunk bytes are verified when they are read.
    static Result<ChunkIndex> scan(const ChunkFiles& files);
    const Found* find(uint64_t instance, uint64_t id, uint64_t offset) const;

private:
    ChunkIndex() = default;
    Status scan(const ChunkFiles& files, uint32_t index);

    std::map<std::tuple<uint64_t, uint64_t, uint64_t>, Found> found_;
};

}  // namespace gshm::core
