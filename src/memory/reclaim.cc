#include "memory/reclaim.h"

#include <utility>

#include "memory/freed_extents.h"

namespace gshm::core {

void Reclaim::zero(DeviceIndex device, ExtentId id, std::shared_ptr<Extent> memory, uint64_t offset, uint64_t bytes,
                   uid_t uid) {
    store_lock.assert_held();
    if (stopped_) return;
    zeroing_.push_back({device, id, std::move(memory), offset, bytes, {.uid = uid}});
    if (!awaits_commit_) zero_now(std::exchange(zeroing_, {}));
}

void Reclaim::release(DeviceIndex device, std::shared_ptr<Extent> memory, const FormerUse& former) {
    store_lock.assert_held();
    if (!stopped_ && devices_.freed().takes(device, *memory, former)) {
        const uint64_t bytes = memory->size();
        zeroing_.push_back({device, 0, std::move(memory), 0, bytes, former});
        if (!awaits_commit_) zero_now(std::exchange(zeroing_, {}));
        return;
    }
    if (memory->file() != nullptr) return release_file(device, std::move(memory), former.uid);
    free(device, std::move(memory), former.uid);
}

void Reclaim::release_file(DeviceIndex device, std::shared_ptr<Extent> memory, uid_t uid) {
    if (stopped_) return;
    const auto ticket = departures_->begin(device, Departures::Kind::reclaim, memory->size(), uid);
    files_.push_back({device, std::move(memory), uid, ticket});
    if (!awaits_commit_) remove_now(std::exchange(files_, {}));
}

void Reclaim::remove_now(std::vector<FreedFile> freed) {
    // Removing a small file takes less time than waking a thread.
    constexpr uint64_t kSmallBytes = 1 << 20;
    for (auto& [device, memory, uid, ticket] : freed) {
        memory->file()->discard();
        const bool small = memory->size() <= kSmallBytes;
        if (small) memory.reset();
        else free(device, std::move(memory), uid);
        departures_->end(device, ticket, small);
    }
}

void Reclaim::remove_stored(uint64_t file) {
    store_lock.assert_held();
    if (stopped_) return;
    stored_.push_back(file);
    if (!awaits_commit_) committed();
}

void Reclaim::committed() {
    if (stopped_) return;
    for (uint64_t file : std::exchange(stored_, {})) {
        if (remove_stored_) remove_stored_(file);
    }
    if (!zeroing_.empty()) zero_now(std::exchange(zeroing_, {}));
    if (!files_.empty()) remove_now(std::exchange(files_, {}));
}

void Reclaim::zero_now(std::vector<Zeroing> freed) {
    for (auto& zeroing : freed) {
        if (zeroing.id == 0) {
            zero_whole(std::move(zeroing));
            continue;
        }
        auto& [device, id, memory, offset, bytes, former] = zeroing;
        const auto ticket = departures_->begin(device, Departures::Kind::reclaim, bytes, former.uid);
        devices_.submit_reclaim(
            device, [memory = std::move(memory), offset, bytes](Device&) { return memory->fill(offset, bytes, 0); },
            [this, device, ticket, id, offset, bytes](Status status) {
                store_lock.assert_held();
                if (status) store_->extents().zeroed(id, offset, bytes);
                else store_->extents().not_zeroed(id);
                departures_->end(device, ticket);
            });
    }
}

void Reclaim::zero_whole(Zeroing whole) {
    const auto ticket = departures_->begin(whole.device, Departures::Kind::reclaim, whole.bytes, whole.former.uid);
    auto fill = [memory = whole.memory, bytes = whole.bytes](Device&) { return memory->fill(0, bytes, 0); };
    devices_.submit_reclaim(
        whole.device, std::move(fill), [this, ticket, whole = std::move(whole)](Status status) mutable {
            store_lock.assert_held();
            const DeviceIndex device = whole.device;
            if (status && !stopped_) {
                free_all(device, devices_.freed().add(device, std::move(whole.memory), whole.former, scheduler_.now()));
                drop_idle_later();
            } else {
                free(device, std::move(whole.memory), whole.former.uid);
            }
            departures_->end(device, ticket);
        });
}

void Reclaim::free(DeviceIndex device, std::shared_ptr<Extent> memory, uid_t uid) {
    // Other processes of gshm also hold the memory until they process its drop. For small memory the wait is not
    // worthwhile.
    constexpr uint64_t kLargeBytes = 16 << 20;
    const bool large = memory->size() >= kLargeBytes;
    const auto ticket = departures_->begin(device, Departures::Kind::reclaim, memory->size(), uid);
    devices_.submit_reclaim(
        device,
        [memory = std::move(memory)](Device&) mutable {
            memory.reset();
            return Status{};
        },
        [this, large, device, ticket](Status) {
            auto done = [this, device, ticket] {
                store_lock.assert_held();
                departures_->end(device, ticket);
            };
            if (large && after_free_) after_free_(std::move(done));
            else done();
        });
}

void Reclaim::free_all(DeviceIndex device, std::vector<std::shared_ptr<Extent>> memory) {
    // Not counted for any user: gshmd kept the memory for its own purposes.
    constexpr uid_t kNobody = static_cast<uid_t>(-1);
    for (auto& extent : memory) free(device, std::move(extent), kNobody);
}

void Reclaim::drop_idle_later() {
    if (std::exchange(drops_idle_, true)) return;
    scheduler_.after(FreedExtents::kIdle, [this] {
        store_lock.assert_held();
        drops_idle_ = false;
        bool any = false;
        for (DeviceIndex device = 0; device < store_->devices().size(); ++device) {
            free_all(device, devices_.freed().drop_before(device, scheduler_.now() - FreedExtents::kIdle));
            any |= devices_.freed().bytes(device) > 0;
        }
        if (any) drop_idle_later();
    });
}

void Reclaim::end_session(SessionId session) {
    for (DeviceIndex device = 0; device < store_->devices().size(); ++device) {
        free_all(device, devices_.freed().drop_of(device, session));
    }
}

}  // namespace gshm::core
