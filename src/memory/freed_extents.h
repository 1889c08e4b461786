// Freed memory of devices whose allocations go through a driver, zeroed and kept for a while for the next object of the
// same size. Only memory that nobody else can reach is kept: docs/adr/0015. Safe from any thread.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "memory/scheduler.h"
#include "store/extents.h"

namespace gshm::core {

class FreedExtents {
public:
    // Memory that is not used again until then is given back to the device.
    static constexpr std::chrono::seconds kIdle{2};
    // Of a device's capacity, one part in so many is kept at most.
    static constexpr uint64_t kShare = 8;

    using Memory = std::vector<std::shared_ptr<Extent>>;

    // With the capacity of each device.
    explicit FreedExtents(std::vector<uint64_t> capacities) : devices_(capacities.size()), capacities_(std::move(capacities)) {}

    // Whether memory that was used so may be kept.
    bool takes(DeviceIndex device, const Extent& memory, const FormerUse& former) const;
    // It is zeros. Returns the memory that there is no room for any more, for the caller to free.
    [[nodiscard]] Memory add(DeviceIndex device, std::shared_ptr<Extent> memory, const FormerUse& former,
                             Scheduler::Time now) EXCLUDES(mutex_);
    // Null: there is none. maps: the session that is to get a writable descriptor of it; 0: none, or others as well.
    std::shared_ptr<Extent> take(DeviceIndex device, uint64_t bytes, bool compressible, SessionId maps) EXCLUDES(mutex_);
    // Counted as free.
    uint64_t bytes(DeviceIndex device) const EXCLUDES(mutex_);

    // ---- what is given back; for the caller to free, not in the loop ----
    [[nodiscard]] Memory drop(DeviceIndex device) EXCLUDES(mutex_);
    // Added before then.
    [[nodiscard]] Memory drop_before(DeviceIndex device, Scheduler::Time time) EXCLUDES(mutex_);
    // That only this session may get.
    [[nodiscard]] Memory drop_of(DeviceIndex device, SessionId session) EXCLUDES(mutex_);

private:
    struct Entry {
        std::shared_ptr<Extent> memory;
        bool compressible = false;
        SessionId only_for = 0;  // 0: for anybody
        Scheduler::Time since;
    };
    struct OfDevice {
        std::deque<Entry> entries;  // oldest first
        uint64_t bytes = 0;
    };
    static std::shared_ptr<Extent> remove(OfDevice& device, std::deque<Entry>::iterator entry);
    Memory drop_if(DeviceIndex device, auto condition) EXCLUDES(mutex_);

    mutable Mutex mutex_;
    std::vector<OfDevice> devices_ GUARDED_BY(mutex_);
    const std::vector<uint64_t> capacities_;
};

}  // namespace gshm::core
