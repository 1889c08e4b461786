// Mapping owns one shared mmap of a descriptor.
#pragma once

#include <cstddef>
#include <utility>

#include "base/result.h"

namespace gshm::core {

class Mapping {
public:
    Mapping() = default;
    Mapping(Mapping&& other) noexcept
        : address_(std::exchange(other.address_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    Mapping& operator=(Mapping&& other) noexcept {
        std::swap(address_, other.address_);
        std::swap(size_, other.size_);
        return *this;
    }
    ~Mapping();

    // Maps the first size_bytes of fd, MAP_SHARED.
    static Result<Mapping> create(int fd, size_t size_bytes, bool writable);

    std::byte* data() const { return static_cast<std::byte*>(address_); }
    size_t size() const { return size_; }

private:
    Mapping(void* address, size_t size) : address_(address), size_(size) {}
    void* address_ = nullptr;
    size_t size_ = 0;
};

}  // namespace gshm::core
