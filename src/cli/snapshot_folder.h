// The folder of a snapshot and the chunks in it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "block_file.h"
#include "chunk.h"
#include "compress.h"

namespace gshm::cli {

class SnapshotFolder {
public:
    // Locked against others while this lives. Made if it is to be written and is not there. Throws a Failure.
    enum class Use { read, write };
    SnapshotFolder(const std::string& path, Use use);

    const std::string& path() const { return path_; }
    std::string path_of(const std::string& file) const { return path_ + "/" + file; }
    // Names of data files, in the order of their runs.
    std::vector<std::string> data_files() const;
    static std::string data_file(unsigned run, unsigned thread);
    // The first run that has no files yet.
    unsigned next_run() const;
    void remove(const std::string& file) const;

private:
    std::string path_;
    FileDescriptor lock_;
};

// The data files, opened for reading. May be used by several threads at once.
class ChunkFiles {
public:
    ChunkFiles(const SnapshotFolder& folder, std::vector<std::string> names);

    const std::vector<std::string>& names() const { return names_; }
    // Null: it is not there.
    const BlockFile* file(uint32_t index) const { return files_[index] ? &*files_[index] : nullptr; }
    std::string path(uint32_t index) const { return folder_ + "/" + names_[index]; }

private:
    std::string folder_;
    std::vector<std::string> names_;
    std::vector<std::optional<BlockFile>> files_;
};

// Reads chunks and checks them; one thread's.
class ChunkReader {
public:
    explicit ChunkReader(const ChunkFiles& files);

    // The raw bytes of the chunk, once they are known to be right; they live until the next call. Throws a Failure that
    // names the place and the object if they are not.
    std::span<const std::byte> read(const ChunkPlace& place, uint32_t raw_bytes, const std::string& object,
                                    uint64_t offset);

private:
    std::string check_header(std::span<const std::byte> bytes, const ChunkPlace& place, uint32_t raw_bytes,
                             uint64_t offset) const;

    const ChunkFiles& files_;
    BlockBuffer stored_;
    BlockBuffer raw_;
    Decompressor decompressor_;
};

// Writes chunks one after the other to a new file; one thread's.
class ChunkWriter {
public:
    ChunkWriter(std::string path, uint32_t file_index, int level);

    // Where the next chunk's raw bytes are to be put.
    std::span<std::byte> room(size_t raw_bytes);
    // Takes over what was put there. header says all but how it is stored.
    ChunkPlace append(ChunkHeader header);
    // All of it is on the disk when this returns. Does nothing if there was no chunk.
    void finish();
    uint64_t written_bytes() const { return written_; }

private:
    void flush(bool all);

    std::string path_;
    uint32_t file_index_;
    std::optional<BlockFile> file_;  // none: nothing was written yet
    Compressor compressor_;
    BlockBuffer buffer_;
    size_t filled_ = 0;     // of the buffer
    uint64_t written_ = 0;  // of the file, whole blocks
};

// What an interrupted or an earlier run has left, by object and offset.
class ChunkIndex {
public:
    struct Found {
        Identity object;
        uint32_t raw_bytes = 0;
        ChunkPlace place;
    };
    // Goes through the headers of all files. What is in the chunks is for the reader to check.
    explicit ChunkIndex(const ChunkFiles& files);
    const Found* find(uint64_t instance, uint64_t id, uint64_t offset) const;

private:
    void scan(const ChunkFiles& files, uint32_t index);

    std::map<std::tuple<uint64_t, uint64_t, uint64_t>, Found> found_;
};

}  // namespace gshm::cli
