// Files that are read and written without the page cache if the file system allows it. Their contents are written once
// and read once, and would only displace other pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/fd.h"

namespace gshm::core {

inline constexpr size_t kBlockBytes = 4096;

// Aligned to a block, and zeroed.
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
    // Creates a new file.
    static Result<BlockFile> create(const std::string& path);
    static Result<BlockFile> open(const std::string& path);

    const std::string& path() const { return path_; }
    // Whole blocks, aligned in memory and in the file.
    Status write(uint64_t offset, std::span<const std::byte> blocks);
    // Reads the blocks that contain [offset, offset + bytes). Returns that range in the buffer, cut at the end of the
    // file.
    Result<std::span<std::byte>> read(uint64_t offset, size_t bytes, const BlockBuffer& buffer) const;
    // Frees reserved space beyond the end, and waits until everything is on the disk.
    Status finish(uint64_t size_bytes);

private:
    BlockFile(std::string path, UniqueFd file) : path_(std::move(path)), file_(std::move(file)) {}
    void make_room(uint64_t end);

    std::string path_;
    UniqueFd file_;
    uint64_t room_end_ = 0;
    bool reserves_ = true;
};

// The size is not written on failure. ENOTSUP: a FIFO, a device or a folder, which is not waited for.
Result<UniqueFd> open_regular_file(const std::string& path, int flags, uint64_t* ret_size_bytes = nullptr);

// fsync of a folder: entries created, renamed or removed in it are on the disk.
Status sync_folder(const std::string& path);

}  // namespace gshm::core
