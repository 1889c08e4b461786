// The registered files of the process, by descriptor number.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "result.h"

namespace gshm::usrbio {

// An open file, kept open here independently of the program's descriptor.
class RegisteredFile {
public:
    // EBADF unless it is a regular file or a block device. Kept open under a number that is at least this.
    static Result<std::shared_ptr<RegisteredFile>> create(int fd, int least);

    int fd() const { return fd_.get(); }
    int number() const { return number_; }  // the program's
    bool is_readable() const;
    bool is_writable() const;
    // Whether a part of the range, which is before the end of the file, is a hole.
    bool has_hole(uint64_t offset, uint64_t bytes);

private:
    RegisteredFile(UniqueFd fd, int number, int flags) : fd_(std::move(fd)), number_(number), flags_(flags) {}

    UniqueFd fd_;
    int number_;
    int flags_;
    std::once_flag once_;
    UniqueFd probe_;  // a separate description with its own file position
};

// Safe from any thread.
class FileTable {
public:
    static FileTable& instance();

    // Under the program's number and the one that it is kept open with, which is returned. EINVAL if that is in use.
    Result<int> add(int fd);
    // By either number.
    void remove(int fd);
    std::shared_ptr<RegisteredFile> find(int fd) const;
    // Changes when a file is removed: earlier results may be invalid.
    uint64_t version() const { return version_.load(std::memory_order_acquire); }

private:
    FileTable();
    struct State;
    State* state_;  // never destroyed: threads may use it during exit
    std::atomic<uint64_t> version_{0};
};

}  // namespace gshm::usrbio
