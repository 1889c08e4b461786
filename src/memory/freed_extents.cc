#include "memory/freed_extents.h"

#include <algorithm>

namespace gshm::core {

bool FreedExtents::takes(DeviceIndex device, const Extent& memory, const FormerUse& former) const {
    if (!former.dedicated || former.reached_by_others) return false;
    // Kernel files are cheap to create, and processes may map them through the mount. gshm-maker knows its memory by
    // the handle.
    if (const_cast<Extent&>(memory).file() != nullptr || memory.lasting_handle() != nullptr) return false;
    return memory.size() <= capacities_[device] / kShare;
}

std::shared_ptr<Extent> FreedExtents::remove(OfDevice& device, std::deque<Entry>::iterator entry) {
    auto memory = std::move(entry->memory);
    device.bytes -= memory->size();
    device.entries.erase(entry);
    return memory;
}

FreedExtents::Memory FreedExtents::add(DeviceIndex device, std::shared_ptr<Extent> memory, const FormerUse& former,
                                       Scheduler::Time now) {
    MutexLock lock(mutex_);
    OfDevice& of = devices_[device];
    of.bytes += memory->size();
    of.entries.push_back({std::move(memory), former.compressible, former.reached_by, now});
    Memory dropped;
    while (of.bytes > capacities_[device] / kShare) dropped.push_back(remove(of, of.entries.begin()));
    return dropped;
}

std::shared_ptr<Extent> FreedExtents::take(DeviceIndex device, uint64_t bytes, bool compressible, SessionId maps) {
    MutexLock lock(mutex_);
    return take_locked(device, bytes, compressible, maps);
}

std::shared_ptr<Extent> FreedExtents::take_or_drop(DeviceIndex device, uint64_t bytes, bool compressible,
                                                   SessionId maps, Memory* ret_dropped) {
    MutexLock lock(mutex_);
    auto taken = take_locked(device, bytes, compressible, maps);
    OfDevice& of = devices_[device];
    while (!taken && !of.entries.empty()) ret_dropped->push_back(remove(of, of.entries.begin()));
    return taken;
}

std::shared_ptr<Extent> FreedExtents::take_locked(DeviceIndex device, uint64_t bytes, bool compressible,
                                                  SessionId maps) {
    OfDevice& of = devices_[device];
    auto fits = [&](const Entry& entry, SessionId only_for) {
        return entry.memory->size() == bytes && entry.compressible == compressible && entry.only_for == only_for;
    };
    // Memory that only this session may get comes first.
    for (SessionId only_for : {maps, SessionId{0}}) {
        auto found = std::ranges::find_if(of.entries, [&](const Entry& entry) { return fits(entry, only_for); });
        if (found != of.entries.end()) return remove(of, found);
    }
    return nullptr;
}

uint64_t FreedExtents::bytes(DeviceIndex device) const {
    MutexLock lock(mutex_);
    return devices_[device].bytes;
}

FreedExtents::Memory FreedExtents::drop_if(DeviceIndex device, auto condition) {
    MutexLock lock(mutex_);
    OfDevice& of = devices_[device];
    Memory dropped;
    for (auto entry = of.entries.begin(); entry != of.entries.end();) {
        if (!condition(*entry)) {
            ++entry;
            continue;
        }
        of.bytes -= entry->memory->size();
        dropped.push_back(std::move(entry->memory));
        entry = of.entries.erase(entry);
    }
    return dropped;
}

FreedExtents::Memory FreedExtents::drop(DeviceIndex device) {
    return drop_if(device, [](const Entry&) { return true; });
}

FreedExtents::Memory FreedExtents::drop_before(DeviceIndex device, Scheduler::Time time) {
    return drop_if(device, [&](const Entry& entry) { return entry.since <= time; });
}

FreedExtents::Memory FreedExtents::drop_of(DeviceIndex device, SessionId session) {
    return drop_if(device, [&](const Entry& entry) { return session != 0 && entry.only_for == session; });
}

}  // namespace gshm::core
