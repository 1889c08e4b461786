// UniqueFd owns a descriptor. adopt() takes one over, clone() makes a second, take() gives it away.
#pragma once

#include <utility>

#include "base/result.h"

namespace gshm::core {

class UniqueFd {
public:
    UniqueFd() = default;
    UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    UniqueFd& operator=(UniqueFd&& other) noexcept {
        if (this != &other) {
            reset();
            fd_ = std::exchange(other.fd_, -1);
        }
        return *this;
    }
    UniqueFd(const UniqueFd&) = delete;
    UniqueFd& operator=(const UniqueFd&) = delete;
    ~UniqueFd() { reset(); }

    static UniqueFd adopt(int fd) { return UniqueFd(fd); }
    // A second, close-on-exec descriptor of the same file.
    static Result<UniqueFd> clone(int fd);

    int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }
    [[nodiscard]] int take() { return std::exchange(fd_, -1); }
    void reset();

private:
    explicit UniqueFd(int fd) : fd_(fd) {}
    int fd_ = -1;
};

}  // namespace gshm::core
