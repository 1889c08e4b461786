// The reserve of the tiers: a part of each device, and of the tier `host`, is kept free in the background. What the tiers have.
#include <algorithm>
#include <chrono>
#include <thread>

#include "memory/freed_extents.h"
#include "memory/tiers.h"

namespace gshm::core {

void Tiers::reserve_changed() {
    bool watches = settings_.free_percent > 0;
    for (DeviceIndex i = 0; i < of_.size(); ++i) watches |= devices_.reserve_bytes(i) > 0;
    watches_ = watches && has_tier();
    if (!watches_) return;
    store_.evictables().set_on_release([this](DeviceIndex device) { allocated(device); });
    // At the start the loop does not run yet.
    scheduler_.post([this] {
        store_lock.assert_held();
        for (OfDevice& of : of_) of.pause = 0;
        look();
    });
}

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

void Tiers::begin_looking() {
    if (timer_ || is_ending() || !watches_) return;
    constexpr std::chrono::seconds kEvery{1};
    timer_ = scheduler_.after(kEvery, [this] {
        store_lock.assert_held();
        timer_.reset();
        look();
    });
}

void Tiers::look() {
    if (is_ending()) return;
    bool any = false;
    for (DeviceIndex device = 0; device < of_.size(); ++device) {
        if (store_.use(device).evictable_bytes == 0 || !devices_.check(device)) continue;
        any = true;
        if (!pauses(of_[device])) allocated(device);
    }
    if (any) return begin_looking();
    store_.evictables().set_on_add([this] {
        scheduler_.post([this] {
            store_lock.assert_held();
            begin_looking();
        });
    });
}

bool Tiers::pauses(OfDevice& of) {
    const uint64_t failures = of.rooms[0].failures;
    constexpr unsigned kLongest = 64;
    if (std::exchange(of.seen_failures, failures) != failures) {
        of.pause = std::clamp(2 * of.pause, 1U, kLongest);
        of.paused = 0;
        return true;
    }
    return of.pause > 0 && ++of.paused % of.pause != 0;
}

uint64_t Tiers::free_for_objects(DeviceIndex device) {
    Device& memory = devices_.device(device);
    if (!memory.info().knows_free_bytes) return UINT64_MAX;
    uint64_t free = memory.free_bytes();
    if (free < devices_.reserve_bytes(device) && devices_.freed().bytes(device) > 0) {
        // Other programs cannot use it. An object does not leave in its place.
        devices_.freed().drop(device).clear();
        devices_.wait_for_reclaimed(device);
        free = memory.free_bytes();
    }
    const uint64_t kept = devices_.freed().bytes(device);
    return free > UINT64_MAX - kept ? UINT64_MAX : free + kept;
}

void Tiers::keep_free(DeviceIndex device) {
    const uint64_t free = free_for_objects(device);
    bool full_tier = false;
    {
        StoreLock lock(scheduler_.store_mutex());
        if (!has_tier() || is_ending()) return;
        const uint64_t wanted = devices_.device(device).info().capacity_bytes / 100 * settings_.free_percent;
        const uint64_t for_others = devices_.reserve_bytes(device);
        const uint64_t coming = allocator_.departures().coming_bytes(device);
        auto missing = [&](uint64_t bytes, uint64_t from) {
            const uint64_t expected = from > UINT64_MAX - coming ? UINT64_MAX : from + coming;
            return bytes - std::min(bytes, expected);
        };
        const uint64_t short_by =
            std::max(missing(wanted, devices_.free_bytes(device)), missing(for_others + wanted, free));
        store_.evictables().set_short(device, short_by > 0);
        if (store_.use(device).evictable_bytes > 0 && short_by > 0) evict(device, short_by, false, true);
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

std::vector<Tiers::State> Tiers::states() const {
    std::vector<State> states;
    if (settings_.host) {
        const Account& account = store_.use(*settings_.host);
        states.push_back({store_.devices()[*settings_.host].name,
                          settings_.host_bytes,
                          account.tier_bytes,
                          account.tier_objects,
                          false,
                          {}});
    }
    if (const TierFolder* folder = settings_.folder.get()) {
        states.push_back({folder->path(), folder->capacity_bytes(), folder->used_bytes(), folder->objects(),
                          folder->keeps(), folder->failure()});
    }
    return states;
}

}  // namespace gshm::core
