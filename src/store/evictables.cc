#include "store/evictables.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "store/store.h"

namespace gshm::core {
namespace {

// Candidates of about the same age, of which the cheapest leaves.
constexpr size_t kWindow = 16;
// Bounds the time under the store lock.
constexpr size_t kMostScanned = 4096;
constexpr size_t kMostOfSlab = 4096;

// To bring an object back: a fixed effort, and about 32 GB/s.
constexpr double kReturnNs = 1'000'000;
constexpr double kReturnNsPerByte = 1.0 / 32;

// How much an object deserves to leave: the longer it is unused, and the cheaper its return is for each byte of the
// wanted ones.
double worth(int64_t idle_ns, uint64_t bytes, uint64_t wanted_bytes) {
    const auto useful = static_cast<double>(std::max<uint64_t>(1, std::min(bytes, wanted_bytes)));
    const double cost = (kReturnNs + kReturnNsPerByte * static_cast<double>(bytes)) / useful;
    return static_cast<double>(std::max<int64_t>(idle_ns, 1)) / cost;
}

// Pinned objects are in the queue, too.
bool is_queued_kind(const Object& object) {
    return (object.is_evicted() || (object.flags & kCreateEvictable) != 0) && object.extent != nullptr;
}

bool is_in_slab(const Object& object) {
    return object.extent->slab_group != nullptr;
}

}  // namespace

void Evictables::push(Queue& queue, Entry entry) {
    queue.heap.push_back(entry);
    std::push_heap(queue.heap.begin(), queue.heap.end());
}

void Evictables::add(Object& object) {
    if (!is_queued_kind(object)) return;
    if (on_add_) std::exchange(on_add_, nullptr)();
    Queue& queue = queues_[object.device];
    if (is_in_slab(object)) {
        constexpr size_t kFew = 64;
        auto& members = queue.slabs[object.extent->id];
        members.push_back(object.id);
        if (members.size() > kFew + 2 * object.extent->objects) tidy(members, object.extent);
    }
    if (object.queued_on == object.device + 1) return;
    object.queued_on = static_cast<uint16_t>(object.device + 1);
    push(queue, {object.used_ns.load(std::memory_order_relaxed), object.id});
    compact(queue, object.device);
}

void Evictables::released(const Object& object) const {
    if (!is_short(object.device) || !is_queued_kind(object)) return;
    if (on_release_) on_release_(object.device);
}

void Evictables::tidy(std::vector<NodeId>& members, const StoredExtent* slab) const {
    std::ranges::sort(members);
    members.erase(std::ranges::unique(members).begin(), members.end());
    std::erase_if(members, [&](NodeId id) {
        const Object* member = store_.object(id);
        return member == nullptr || member->extent != slab || !is_queued_kind(*member);
    });
}

std::vector<Object*> Evictables::whole_slab(Queue& queue, const Object& object) {
    auto found = queue.slabs.find(object.extent->id);
    if (found == queue.slabs.end() || found->second.size() < object.extent->objects) return {};
    tidy(found->second, object.extent);
    if (found->second.size() < object.extent->objects) return {};
    std::vector<Object*> members;
    for (NodeId id : found->second) {
        Object* member = store_.object(id);
        if (!store_.check_eviction(*member)) return {};
        members.push_back(member);
        if (members.size() == kMostOfSlab) break;
    }
    return members;
}

void Evictables::compact(Queue& queue, DeviceIndex device) {
    constexpr size_t kFew = 1024;
    if (queue.heap.size() > kFew + 4 * store_.object_count()) {
        std::erase_if(queue.heap, [&](const Entry& entry) {
            const Object* object = store_.object(entry.id);
            return object == nullptr || object->queued_on != device + 1;
        });
        std::make_heap(queue.heap.begin(), queue.heap.end());
    }
    if (queue.slabs.size() > kFew + 2 * queue.slabs_swept) {
        std::erase_if(queue.slabs, [&](const auto& slab) { return store_.extents().find(slab.first) == nullptr; });
        queue.slabs_swept = queue.slabs.size();
    }
}

Evictables::Victims Evictables::next(DeviceIndex device, uint64_t wanted_bytes, const Filter& filter) {
    Queue& queue = queues_[device];
    const int64_t now = store_.clock().coarse_ns();
    struct Candidate {
        Entry entry;
        std::vector<Object*> objects;
        uint64_t bytes;
        double worth;
    };
    std::vector<Candidate> window;
    std::vector<Entry> others;  // they go back into the queue
    std::vector<StoredExtent*> slabs;
    Victims victims;
    size_t scanned = 0;
    while (!queue.heap.empty() && window.size() < kWindow && scanned < kMostScanned) {
        std::pop_heap(queue.heap.begin(), queue.heap.end());
        Entry entry = queue.heap.back();
        queue.heap.pop_back();
        ++scanned;
        Object* object = store_.object(entry.id);
        if (object == nullptr || object->queued_on != device + 1) continue;
        if (!is_queued_kind(*object) || object->device != device) {
            object->queued_on = 0;
            continue;
        }
        const int64_t used = object->used_ns.load(std::memory_order_relaxed);
        if (used > entry.used_ns) {
            push(queue, {used, entry.id});
            continue;
        }
        // An object that is in use will get a later time of use at the end of it.
        if ((filter && !filter(*object)) || !store_.check_eviction(*object)) {
            others.push_back({std::max(now, used), entry.id});
            continue;
        }
        if (!is_in_slab(*object)) {
            const uint64_t bytes = object->extent->size_bytes;
            window.push_back({entry, {object}, bytes, worth(now - used, bytes, wanted_bytes)});
            continue;
        }
        if (std::ranges::find(slabs, object->extent) != slabs.end()) {
            others.push_back(entry);
            continue;
        }
        auto members = whole_slab(queue, *object);
        if (members.empty()) {
            others.push_back({std::max(now, used), entry.id});
            continue;
        }
        slabs.push_back(object->extent);
        const uint64_t bytes = object->extent->size_bytes;
        window.push_back({entry, std::move(members), bytes, worth(now - used, bytes, wanted_bytes)});
    }
    auto best = std::ranges::max_element(window, {}, &Candidate::worth);
    if (best != window.end()) {
        victims.objects = std::move(best->objects);
        victims.bytes = best->bytes;
        best->entry.used_ns = std::max(now, best->entry.used_ns);  // if it stays after all
    } else {
        victims.more = scanned >= kMostScanned;
    }
    for (const auto& candidate : window) push(queue, candidate.entry);
    for (const Entry& entry : others) push(queue, entry);
    return victims;
}

}  // namespace gshm::core
