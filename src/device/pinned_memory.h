// Ordinary memory for copies to and from GPUs, pinned if possible.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>

#include "device/device.h"

namespace gshm::core {

class PinnedMemory {
public:
    struct Options {
        size_t alignment = 4096;  // a power of two, at least a page
        int numa_node = -1;       // preferred node; -1: any
        bool populate = false;    // allocates all pages at once, and locks them if permitted
    };
    // Zeroed memory, in huge pages if the kernel has them. Not mapped in a forked child. bytes: a multiple of the page
    // size.
    static Result<PinnedMemory> map(size_t bytes, const Options& options);
    PinnedMemory() = default;
    PinnedMemory(PinnedMemory&& other) noexcept;
    PinnedMemory& operator=(PinnedMemory&& other) noexcept;
    ~PinnedMemory();

    std::byte* data() const { return memory_.data(); }
    size_t size() const { return memory_.size(); }
    std::span<std::byte> bytes() const { return memory_; }

    // Pins for all GPUs of this process. The device must outlive the memory. May be repeated after a failure, in one
    // thread at a time, while the memory is in use.
    Status pin(Device& device);
    bool is_pinned() const { return pinned_by_ != nullptr; }

private:
    explicit PinnedMemory(std::span<std::byte> memory) : memory_(memory) {}

    std::span<std::byte> memory_;
    std::atomic<Device*> pinned_by_ = nullptr;
};

}  // namespace gshm::core
