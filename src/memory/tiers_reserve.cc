// The reserve of the tiers: a part of each device, and of the tier `host`, is kept free in the background.
#include <algorithm>
#include <chrono>
#include <thread>

#include "memory/freed_extents.h"
#include "memory/tiers.h"

namespace gshm::core {

void Tiers::allocated(DeviceIndex device) {
    if (!watches_.load(std::memory_order_relaxed) || looking_[device].exchange(true)) return;
    MutexLock lock(watcher_mutex_);
    if (!watcher_) return;
    watcher_->submit([this, device] {
        // Evictions would compete with the other allocations of a burst for the driver.
        constexpr std::chrono::milliseconds kBurst{10};
        std::this_thread::sleep_for(kBurst);
        looking_[device] = false;
        keep_free(device);
    });
}

void Tiers::keep_free(DeviceIndex device) {
    Device& memory = devices_.device(device);
    const uint64_t really_free = memory.info().knows_free_bytes ? memory.free_bytes() : UINT64_MAX;
    const uint64_t kept = devices_.freed().bytes(device);
    bool full_tier = false;
    {
        StoreLock lock(scheduler_.store_mutex());
        if (!has_tier()) return;
        const uint64_t reserve = memory.info().capacity_bytes / 100 * settings_.free_percent;
        const uint64_t really = really_free > UINT64_MAX - kept ? really_free : really_free + kept;
        const uint64_t expected =
            std::min(devices_.free_bytes(device), really) + allocator_.departures().coming_bytes(device);
        if (store_.use(device).evictable_bytes > 0 && expected < reserve) evict(device, reserve - expected, false);
        const uint64_t tier_reserve = settings_.host_bytes / 100 * settings_.free_percent;
        full_tier = settings_.host && settings_.folder && host_used() + tier_reserve > settings_.host_bytes;
    }
    if (!full_tier) return;
    StoreLock lock(scheduler_.store_mutex());
    const uint64_t tier_reserve = settings_.host_bytes / 100 * settings_.free_percent;
    auto older = choose(*settings_.host, tier_reserve, true, false);
    if (!older) return;
    evictors_->submit([this, older = std::move(*older)]() mutable { run(std::move(older)); });
}

}  // namespace gshm::core
