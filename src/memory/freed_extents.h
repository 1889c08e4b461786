// Freed memory of devices with driver allocations, zeroed and kept for a while for the next object of the same size.
// Only memory that no other process can reach is kept: docs/adr/0015. Thread-safe.
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
    // Memory that is unused for this time is freed.
    static constexpr std::chrono::seconds kIdle{2};
    // At most one part in kShare of a device's capacity is kept.
    static constexpr uint64_t kShare = 8;

    using Memory = std::vector<std::shared_ptr<Extent>>;

    // capacities: of each device.
    explicit FreedExtents(std::vector<uint64_t> capacities)
        : devices_(capacities.size()), capacities_(std::move(capacities)) {}

    // Whether memory with this former use may be kept.
    bool takes(DeviceIndex device, const Extent& memory, const FormerUse& former) const;
    // The memory is zeroed. Returns the memory that exceeds the bound, for the caller to free.
    [[nodiscard]] Memory add(DeviceIndex device, std::shared_ptr<Extent> memory, const FormerUse& former,
                             Scheduler::Time now) EXCLUDES(mutex_);
    // Null: there is none. maps: the session that will get a writable descriptor; 0: none, or several sessions.
    std::shared_ptr<Extent> take(DeviceIndex device, uint64_t bytes, bool compressible, SessionId maps)
        EXCLUDES(mutex_);
    // The same, but if there is none, all memory of the device is removed, into ret_dropped. No memory that fits is
    // removed, even if it is added at the same time.
    std::shared_ptr<Extent> take_or_drop(DeviceIndex device, uint64_t bytes, bool compressible, SessionId maps,
                                         Memory* ret_dropped) EXCLUDES(mutex_);
    // These bytes count as free.
    uint64_t bytes(DeviceIndex device) const EXCLUDES(mutex_);

    // ---- removed memory, for the caller to free outside of the loop ----
    [[nodiscard]] Memory drop(DeviceIndex device) EXCLUDES(mutex_);
    // Added before that time.
    [[nodiscard]] Memory drop_before(DeviceIndex device, Scheduler::Time time) EXCLUDES(mutex_);
    // Reserved for this session.
    [[nodiscard]] Memory drop_of(DeviceIndex device, SessionId session) EXCLUDES(mutex_);

private:
    struct Entry {
        std::shared_ptr<Extent> memory;
        bool compressible = false;
        SessionId only_for = 0;  // 0: for any session
        Scheduler::Time since;
    };
    struct OfDevice {
        std::deque<Entry> entries;  // oldest first
        uint64_t bytes = 0;
    };
    std::shared_ptr<Extent> take_locked(DeviceIndex device, uint64_t bytes, bool compressible, SessionId maps)
        REQUIRES(mutex_);
    static std::shared_ptr<Extent> remove(OfDevice& device, std::deque<Entry>::iterator entry);
    Memory drop_if(DeviceIndex device, auto condition) EXCLUDES(mutex_);

    mutable Mutex mutex_;
    std::vector<OfDevice> devices_ GUARDED_BY(mutex_);
    const std::vector<uint64_t> capacities_;
};

}  // namespace gshm::core
