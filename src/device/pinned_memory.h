// Pages of this process that bytes pass through on their way to and from GPUs, pinned where that works.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>

#include "device/device.h"

namespace gshm::core {

class PinnedMemory {
public:
    struct Options {
        size_t alignment = 4096;  // a power of two, of a page at least
        int numa_node = -1;       // the memory is near it; -1: anywhere
        bool populate = false;    // all pages are there from the start, and stay where that is allowed
    };
    // Zeros, in huge pages where the kernel has them; a forked child does not have it. bytes: whole pages.
    static Result<PinnedMemory> map(size_t bytes, const Options& options);
    PinnedMemory() = default;
    PinnedMemory(PinnedMemory&& other) noexcept;
    PinnedMemory& operator=(PinnedMemory&& other) noexcept;
    ~PinnedMemory();

    std::byte* data() const { return memory_.data(); }
    size_t size() const { return memory_.size(); }
    std::span<std::byte> bytes() const { return memory_; }

    // For all GPUs of this process; the device must outlive it. May be tried again after a failure, in one thread at a time,
    // while the memory is used.
    Status pin(Device& device);
    bool is_pinned() const { return pinned_by_ != nullptr; }

private:
    explicit PinnedMemory(std::span<std::byte> memory) : memory_(memory) {}

    std::span<std::byte> memory_;
    std::atomic<Device*> pinned_by_ = nullptr;
};

}  // namespace gshm::core
