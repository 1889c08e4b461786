// The queues in which objects leave their devices: the least recently used first, and of those that were used last at
// about the same time the one that is cheapest to bring back. Opening and closing an object costs nothing here: its time
// of use is compared with that in the queue when it comes to the front. Not thread-safe, as all of the store.
#pragma once

#include <atomic>
#include <functional>
#include <unordered_map>
#include <vector>

#include "store/node.h"

namespace gshm::core {

class Store;

class Evictables {
public:
    Evictables(Store& store, size_t devices) : store_(store), queues_(devices), short_(devices) {}

    // Queues the object if it may be evicted from its place. Called after each change of the place.
    void add(Object& object);

    // Objects that free memory together: a dedicated one, or all of a slab.
    struct Victims {
        std::vector<Object*> objects;
        uint64_t bytes = 0;  // that they free; 0: there are none
        bool more = false;   // none was found, but not all were looked at: ask again
    };
    using Filter = std::function<bool(const Object&)>;
    // wanted_bytes: a smaller object frees less than what is needed, a larger one costs more than necessary.
    Victims next(DeviceIndex device, uint64_t wanted_bytes, const Filter& filter = {});

    // In the queue of the device, with entries that are no longer true.
    size_t entries(DeviceIndex device) const { return queues_[device].heap.size(); }

    // ---- for who keeps a part of each device free ----
    // Called once, after the next object that was queued.
    void set_on_add(std::function<void()> on_add) { on_add_ = std::move(on_add); }
    // Called when the use of an object ends on a device that is short, in any thread.
    void set_on_release(std::function<void(DeviceIndex)> on_release) { on_release_ = std::move(on_release); }
    // Less is free there than should be.
    void set_short(DeviceIndex device, bool is_short) { short_[device].store(is_short, std::memory_order_relaxed); }
    bool is_short(DeviceIndex device) const { return short_[device].load(std::memory_order_relaxed); }
    // A use of the object has ended, or is about to end. Works under the shared lock.
    void released(const Object& object) const;

private:
    struct Entry {
        int64_t used_ns;
        NodeId id;
        // For a heap with the oldest in front.
        bool operator<(const Entry& other) const {
            return used_ns != other.used_ns ? used_ns > other.used_ns : id > other.id;
        }
    };
    struct Queue {
        std::vector<Entry> heap;
        std::unordered_map<ExtentId, std::vector<NodeId>> slabs;  // objects that may be evicted, and some that left
        size_t slabs_swept = 0;
    };
    static void push(Queue& queue, Entry entry);
    // All objects of the slab, if all of them may leave; else none.
    std::vector<Object*> whole_slab(Queue& queue, const Object& object);
    // Entries of removed objects stay until there are many.
    void compact(Queue& queue, DeviceIndex device);
    void tidy(std::vector<NodeId>& members, const StoredExtent* slab) const;

    Store& store_;
    std::vector<Queue> queues_;
    std::vector<std::atomic<bool>> short_;
    std::function<void()> on_add_;
    std::function<void(DeviceIndex)> on_release_;
};

}  // namespace gshm::core
