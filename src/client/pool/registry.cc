#include "client/pool/registry.h"

#include <atomic>
#include <cstring>

#include "client/core.h"

namespace gshm::core::client {

PoolRegistry::PoolRegistry() : generation_(fork_count()) {}

// Never destroyed: pools may outlive main(). In a forked child the lock may be held forever.
PoolRegistry& PoolRegistry::instance() {
    static std::atomic<PoolRegistry*> current = nullptr;
    PoolRegistry* registry = current.load(std::memory_order_acquire);
    if (registry != nullptr && registry->generation_ == fork_count()) return *registry;
    auto* made = new PoolRegistry;
    if (current.compare_exchange_strong(registry, made, std::memory_order_acq_rel)) return *made;
    delete made;
    return *registry;
}

void PoolRegistry::add(uint64_t address, Slab slab) {
    MutexLock lock(mutex_);
    slabs_.emplace(address, std::move(slab));
}

void PoolRegistry::remove(uint64_t address) {
    Slab gone;  // its core may end with it, after the lock is released
    MutexLock lock(mutex_);
    auto found = slabs_.find(address);
    if (found == slabs_.end()) return;
    gone = std::move(found->second);
    slabs_.erase(found);
}

Result<gshm_location> PoolRegistry::locate(const void* memory, std::string* ret_dir) {
    const auto address = reinterpret_cast<uint64_t>(memory);
    MutexLock lock(mutex_);
    auto next = slabs_.upper_bound(address);
    const bool inside = next != slabs_.begin() && address - std::prev(next)->first < std::prev(next)->second.bytes;
    if (!inside) return fail(EINVAL, "{} is not in memory of a pool", memory);
    const auto& [base, slab] = *std::prev(next);
    const auto place = slab.pool->find(memory);
    if (!place) return fail(EINVAL, "{} is in memory of a pool, but not allocated", memory);
    if (!slab.core->connection().is_current(slab.epoch)) {
        return fail(ESTALE, "the gshmd that knew the memory at {} is gone; it stays usable in this process alone",
                    memory);
    }
    gshm_location location = {};
    location.id = slab.id;
    location.offset = place->offset;
    location.size_bytes = place->bytes;
    strncpy(location.device, slab.device.c_str(), sizeof location.device - 1);
    if (ret_dir != nullptr) *ret_dir = slab.core->connection().dir();
    return location;
}

}  // namespace gshm::core::client
