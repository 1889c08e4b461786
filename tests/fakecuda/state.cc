// fakecuda, a test double of NVIDIA's driver: look-ups in its state.
#include "state.h"

#include <cstdlib>
#include <cstring>
#include <pthread.h>

#include "stream.h"

namespace fakecuda {

State& state() {
    static auto* made = new State;
    return *made;
}

// A pthread key and no thread_local: the leak sanitizer of g++ 12 trips over those of a library that is loaded late.
std::vector<CUcontext>& context_stack() {
    using Stack = std::vector<CUcontext>;
    static const pthread_key_t key = [] {
        pthread_key_t made = 0;
        if (pthread_key_create(&made, [](void* stack) { delete static_cast<Stack*>(stack); }) != 0) abort();
        return made;
    }();
    auto* stack = static_cast<Stack*>(pthread_getspecific(key));
    if (stack == nullptr) {
        stack = new Stack;
        pthread_setspecific(key, stack);
    }
    return *stack;
}

Device* State::device(CUdevice ordinal) {
    return ordinal >= 0 && static_cast<size_t>(ordinal) < visible.size() ? visible[ordinal] : nullptr;
}

Device* State::device_of(CUcontext context) {
    for (Device* device : visible) {
        if (&device->context == context) return device;
    }
    return nullptr;
}

Device* State::device_of(const CUuuid& uuid) {
    for (Device* device : visible) {
        if (memcmp(&device->uuid, &uuid, sizeof uuid) == 0) return device;
    }
    return nullptr;
}

Reservation* State::reservation_at(CUdeviceptr pointer, size_t size) {
    auto after = reservations.upper_bound(pointer);
    if (after == reservations.begin()) return nullptr;
    auto& [start, found] = *std::prev(after);
    size_t skipped = pointer - start;
    return skipped < found.size && size <= found.size - skipped ? &found : nullptr;
}

Mapping* State::mapping_at(CUdeviceptr pointer, CUdeviceptr* start) {
    Reservation* reservation = reservation_at(pointer, 1);
    if (reservation == nullptr) return nullptr;
    auto after = reservation->mappings.upper_bound(pointer);
    if (after == reservation->mappings.begin()) return nullptr;
    auto& [at, found] = *std::prev(after);
    if (pointer - at >= found.size) return nullptr;
    if (start != nullptr) *start = at;
    return &found;
}

bool State::is_stream(CUstream stream) const {
    constexpr uintptr_t kPerThreadDefault = 2;  // 0 and 1 are the legacy default stream
    return reinterpret_cast<uintptr_t>(stream) <= kPerThreadDefault || streams.contains(stream);
}

bool State::is_registered(const void* memory) const {
    auto* address = static_cast<const char*>(memory);
    auto after = registered.upper_bound(address);
    return after != registered.begin() && address < std::prev(after)->second;
}

void State::drop_context(Device& device) {
    for (auto at = streams.begin(); at != streams.end();) {
        if ((*at)->context != &device.context) {
            ++at;
            continue;
        }
        (*at)->lane->end();
        delete *at;
        at = streams.erase(at);
    }
    std::erase_if(events, [&](CUevent event) {
        if (event->context != &device.context) return false;
        delete event;
        return true;
    });
    std::erase_if(modules, [&](const auto& entry) { return entry.second->context == &device.context; });
}

}  // namespace fakecuda
