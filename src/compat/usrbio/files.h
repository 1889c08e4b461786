// The files that a program has registered: one table for the process, by descriptor number.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "result.h"

namespace gshm::usrbio {

// An open file, kept open here whatever the program does with its own descriptor.
class RegisteredFile {
public:
    // EBADF unless it is a regular file or a block device. It is kept open under a number that is at least this.
    static Result<std::shared_ptr<RegisteredFile>> create(int fd, int least);

    int fd() const { return fd_.get(); }
    int number() const { return number_; }  // the program's
    bool is_readable() const;
    bool is_writable() const;
    // Is some of the range, which lies before the file's end, a hole?
    bool has_hole(uint64_t offset, uint64_t bytes);

private:
    RegisteredFile(UniqueFd fd, int number, int flags) : fd_(std::move(fd)), number_(number), flags_(flags) {}

    UniqueFd fd_;
    int number_;
    int flags_;
    std::once_flag once_;
    UniqueFd probe_;  // an open file of its own, whose position nobody else has
};

// Safe from any thread.
class FileTable {
public:
    static FileTable& instance();

    // Under both the number it has and the one that it is kept open with, which is returned. EINVAL if that is taken.
    Result<int> add(int fd);
    // Either of the two numbers.
    void remove(int fd);
    std::shared_ptr<RegisteredFile> find(int fd) const;
    // Changes when a file is removed: what was found before may not be there any more.
    uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

private:
    FileTable();
    struct State;
    State* state_;  // never destroyed: threads may still use it when the process ends
    std::atomic<uint64_t> generation_{0};
};

}  // namespace gshm::usrbio
