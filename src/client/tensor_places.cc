#include "client/tensor_places.h"

#include <atomic>
#include <cstring>

namespace gshm::core::client {
namespace {

uint64_t address_of(const gshm_object& object) {
    return reinterpret_cast<uint64_t>(gshm_data(&object));
}

}  // namespace

// Never destroyed: tensors may outlive main(). In a forked child the lock may be held forever.
TensorPlaces& TensorPlaces::instance() {
    static std::atomic<TensorPlaces*> current = nullptr;
    TensorPlaces* places = current.load(std::memory_order_acquire);
    if (places != nullptr && places->generation_ == fork_count()) return *places;
    auto* made = new TensorPlaces;
    if (current.compare_exchange_strong(places, made, std::memory_order_acq_rel)) return *made;
    delete made;
    return *places;
}

void TensorPlaces::add(const gshm_object& object) {
    MutexLock lock(mutex_);
    objects_.emplace(address_of(object), &object);
}

void TensorPlaces::remove(const gshm_object& object) {
    MutexLock lock(mutex_);
    auto [begin, end] = objects_.equal_range(address_of(object));
    auto found = std::find_if(begin, end, [&](const auto& entry) { return entry.second == &object; });
    if (found != end) objects_.erase(found);
}

Result<gshm_location> TensorPlaces::locate(const void* memory, std::string* ret_dir) {
    const auto address = reinterpret_cast<uint64_t>(memory);
    MutexLock lock(mutex_);
    auto next = objects_.upper_bound(address);
    if (next == objects_.begin()) return fail(EINVAL, "{} is not in memory of gshm", memory);
    const auto& [base, object] = *std::prev(next);
    if (address - base >= object->size_bytes) return fail(EINVAL, "{} is not in memory of gshm", memory);
    if (!object->core->connection().is_current(object->key.epoch)) {
        return fail(ESTALE, "the gshmd that knew the memory at {} is gone; it stays usable in this process alone",
                    memory);
    }
    gshm_location location = {};
    location.id = object->id;
    location.offset = address - base;
    location.size_bytes = object->size_bytes - location.offset;
    strncpy(location.device, object->device.c_str(), sizeof location.device - 1);
    *ret_dir = object->core->connection().dir();
    return location;
}

}  // namespace gshm::core::client
