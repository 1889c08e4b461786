// Files that are read and written past the page cache where the file system allows it: what is written once and read
// once would only push other things out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/fd.h"

namespace gshm::core {

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
    // A new file.
    static Result<BlockFile> create(const std::string& path);
    static Result<BlockFile> open(const std::string& path);

    const std::string& path() const { return path_; }
    // Whole blocks, aligned in memory and in the file.
    Status write(uint64_t offset, std::span<const std::byte> blocks);
    // Reads the blocks that [offset, offset + bytes) lies in. The result is that range in the buffer, cut off at the end
    // of the file.
    Result<std::span<std::byte>> read(uint64_t offset, size_t bytes, const BlockBuffer& buffer) const;
    // Gives back room beyond the end, and waits until all is on the disk.
    Status finish(uint64_t size_bytes);

private:
    BlockFile(std::string path, UniqueFd file) : path_(std::move(path)), file_(std::move(file)) {}
    void make_room(uint64_t end);

    std::string path_;
    UniqueFd file_;
    uint64_t room_end_ = 0;
    bool reserves_ = true;
};

// fsync of a folder: names that were made, renamed or removed in it are on the disk.
Status sync_folder(const std::string& path);

}  // namespace gshm::core
