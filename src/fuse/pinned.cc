#include "fuse/pinned.h"

#include <sys/mman.h>

#include "base/log.h"

namespace gshm::fuse {

Pinned::Pinned(Backend& backend, size_t bytes) {
    // All of it is there from the start, and stays where that is allowed. A daemon that is killed gets no page any more:
    // a request that is on its way into one would be answered by the kernel itself, with EIO.
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) return;
    (void)mlock(memory, bytes);
    memory_ = {static_cast<std::byte*>(memory), bytes};
    // Once for all GPUs.
    auto count = static_cast<DeviceIndex>(backend.device_count());
    for (DeviceIndex i = 0; i < count && pinned_by_ == nullptr; ++i) {
        if (!backend.device(i).info().pins) continue;
        if (auto pinned = backend.device(i).register_host_memory(memory_))
            pinned_by_ = &backend.device(i);
        else
            log_warning("copies are slower: {}", pinned.error().message);
    }
}

Pinned::~Pinned() {
    if (pinned_by_ != nullptr) pinned_by_->unregister_host_memory(memory_);
    if (!memory_.empty()) munmap(memory_.data(), memory_.size());
}

}  // namespace gshm::fuse
