// The system calls on the files of a tier's folder, so that a test can make each of them fail. Results and errno as those
// of the kernel; none is interrupted. All names are in the folder, whose descriptor stays open: what another process
// does to the path of the folder changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"

namespace gshm::core {

class TierDisk {
public:
    virtual ~TierDisk() = default;
    // Never follows a symbolic link, nor waits for a FIFO.
    virtual int open(int folder, const char* name, int flags);
    virtual ssize_t read(int file, std::span<std::byte> into, uint64_t at);
    virtual ssize_t write(int file, std::span<const std::byte> from, uint64_t at);
    // Gives the file that size, with space for all of it. EOPNOTSUPP: the file system reserves no space.
    virtual int allocate(int file, uint64_t bytes);
    virtual int resize(int file, uint64_t bytes);
    // Frees the space of a range, which then reads as zeros.
    virtual int punch(int file, uint64_t at, uint64_t bytes);
    virtual int sync(int file);
    virtual int rename(int folder, const char* from, const char* to);
    virtual int remove(int folder, const char* name);

    static TierDisk& kernel();

    // ---- with errors in words; `what` names the file ----
    // Past the page cache if `direct` and the file system can. ENOTSUP: not a regular file.
    Result<UniqueFd> open_file(int folder, const std::string& name, int flags, bool direct, const std::string& what);
    // As many bytes as there are before the end of the file.
    Result<size_t> read_all(int file, std::span<std::byte> into, uint64_t at, const std::string& what);
    Status write_all(int file, std::span<const std::byte> from, uint64_t at, const std::string& what);
};

// Names without "." and "..".
Result<std::vector<std::string>> names_in(int folder, const std::string& what);

}  // namespace gshm::core
