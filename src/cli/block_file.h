// Files that are read and written past the page cache where the file system allows it: what is written once and read
// once would only push other things out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "streams.h"

namespace gshm::cli {

inline constexpr size_t kBlockBytes = 4096;

// Aligned to a block; all zeros.
class BlockBuffer {
public:
    explicit BlockBuffer(size_t bytes);  // a multiple of a block
    std::byte* data() const { return data_.get(); }
    size_t size() const { return size_; }

private:
    struct Free {
        void operator()(std::byte* bytes) const;
    };
    size_t size_;
    std::unique_ptr<std::byte, Free> data_;
};

class BlockFile {
public:
    // A new file. Throws a Failure, as all here.
    static BlockFile create(const std::string& path);
    static BlockFile open(const std::string& path);

    const std::string& path() const { return path_; }
    // Whole blocks, aligned in memory and in the file.
    void write(uint64_t offset, std::span<const std::byte> blocks);
    // The blocks that [offset, offset + bytes) lies in; where that range begins in the buffer. Beyond the file's end
    // there is nothing: *ret_bytes is how much of the range there was.
    std::byte* read(uint64_t offset, size_t bytes, const BlockBuffer& buffer, size_t* ret_bytes) const;
    // Gives back room beyond the end, and waits until all is on the disk.
    void finish(uint64_t size_bytes);

private:
    BlockFile(std::string path, int fd) : path_(std::move(path)), file_(fd) {}
    void make_room(uint64_t end);

    std::string path_;
    FileDescriptor file_;
    uint64_t room_end_ = 0;
    bool reserves_ = true;
};

// fsync of a folder: names that were made, renamed or removed in it are on the disk.
void sync_folder(const std::string& path);

}  // namespace gshm::cli
