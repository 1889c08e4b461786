#include "device/pinned_memory.h"

#include <sys/mman.h>
#include <utility>

#include "base/numa.h"
#include "base/size.h"

namespace gshm::core {
namespace {

constexpr size_t kPageBytes = 4096;

}  // namespace

Result<PinnedMemory> PinnedMemory::map(size_t bytes, const Options& options) {
    // Maps more than needed and unmaps the excess, so that the rest is aligned.
    const size_t slack = options.alignment > kPageBytes ? options.alignment : 0;
    void* mapped = mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return fail(ENOMEM, "no memory for {} bytes", bytes);
    auto* first = static_cast<std::byte*>(mapped);
    auto* begin = first;
    if (slack > 0) {
        begin = reinterpret_cast<std::byte*>(align_up(reinterpret_cast<uint64_t>(first), options.alignment));
        if (begin > first) munmap(first, static_cast<size_t>(begin - first));
        if (begin < first + slack) munmap(begin + bytes, static_cast<size_t>(first + slack - begin));
    }
    PinnedMemory memory({begin, bytes});
    madvise(begin, bytes, MADV_HUGEPAGE);
    madvise(begin, bytes, MADV_DONTFORK);
    place_near(memory.bytes(), options.numa_node);
    if (options.populate) {
        // mlock() fails above the limit of an ordinary user, and AddressSanitizer's does nothing.
        madvise(begin, bytes, MADV_POPULATE_WRITE);
        mlock(begin, bytes);
    }
    return memory;
}

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept
    : memory_(std::exchange(other.memory_, {})), pinned_by_(other.pinned_by_.exchange(nullptr)) {}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
    std::swap(memory_, other.memory_);
    pinned_by_ = other.pinned_by_.exchange(pinned_by_);
    return *this;
}

PinnedMemory::~PinnedMemory() {
    if (Device* device = pinned_by_) device->unregister_host_memory(memory_);
    if (!memory_.empty()) munmap(memory_.data(), memory_.size());
}

Status PinnedMemory::pin(Device& device) {
    if (is_pinned()) return {};
    TRY(device.register_host_memory(memory_));
    pinned_by_ = &device;
    return {};
}

}  // namespace gshm::core
