#include "device/limit.h"

#include <algorithm>

#include "base/size.h"

namespace gshm::core {

LimitDevice::LimitDevice(std::unique_ptr<Device> upstream, uint64_t limit_bytes)
    : upstream_(std::move(upstream)), info_(upstream_->info()) {
    if (limit_bytes != 0) info_.capacity_bytes = std::min(info_.capacity_bytes, limit_bytes);
    budget_ = std::make_shared<Budget>(info_.capacity_bytes);
}

void LimitDevice::set_limit(uint64_t limit_bytes) {
    const uint64_t capacity = upstream_->set_bound(limit_bytes);
    budget_->set_capacity(capacity);
    if (capacity == info().capacity_bytes) return;
    for (const auto& known : changed_infos_) {
        if (known->capacity_bytes == capacity) return shown_.store(known.get(), std::memory_order_release);
    }
    auto changed = std::make_unique<DeviceInfo>(info());
    changed->capacity_bytes = capacity;
    shown_.store(changed.get(), std::memory_order_release);
    changed_infos_.push_back(std::move(changed));
}

Result<std::unique_ptr<Extent>> LimitDevice::allocate(uint64_t size_bytes, const AllocateOptions& options) {
    if (!budget_->take(size_bytes)) return std::unexpected(full(size_bytes, {}));
    auto extent = allocate_upstream(size_bytes, options);
    if (extent) {
        charge(**extent, size_bytes);
        return extent;
    }
    budget_->give(size_bytes);
    if (extent.error().code != ENOSPC) return extent;
    const uint64_t free = upstream_->free_bytes();
    if (free == UINT64_MAX) return std::unexpected(full(size_bytes, extent.error().message));
    const uint64_t reserve = reserve_bytes();
    const std::string kept =
        reserve == 0 ? "" : fmt::format(", {} of it reserved for other programs", size_text(reserve));
    // What gshm's own allocations do not explain.
    const uint64_t known = free + budget_->used();
    const uint64_t capacity = upstream_->info().capacity_bytes;
    const std::string others =
        capacity <= known ? "" : fmt::format(", and other processes have {}", size_text(capacity - known));
    return std::unexpected(full(size_bytes, fmt::format("the device has {} free{}{}", size_text(free), kept, others)));
}

Result<std::unique_ptr<Extent>> LimitDevice::allocate_upstream(uint64_t size_bytes, const AllocateOptions& options) {
    const uint64_t reserve = info_.knows_free_bytes ? reserve_bytes() : 0;
    if (reserve == 0) return upstream_->allocate(size_bytes, options);
    // One at a time: two allocations must not both use the bytes that are free before them.
    MutexLock lock(reserve_mutex_);
    const uint64_t free = upstream_->free_bytes();
    const uint64_t bytes = round_up(size_bytes, info_.granularity_bytes);
    if (free != UINT64_MAX && (free < reserve || free - reserve < bytes)) {
        return fail(ENOSPC, "{} would be left free, and {} are reserved", size_text(free - std::min(free, bytes)),
                    size_text(reserve));
    }
    return upstream_->allocate(size_bytes, options);
}

Error LimitDevice::full(uint64_t size_bytes, const std::string& reason) const {
    return {ENOSPC, fmt::format("{} is full: {} requested, gshm has {} of {} in use{}{}", info_.name,
                                size_text(size_bytes), size_text(budget_->used()), size_text(budget_->capacity()),
                                reason.empty() ? "" : "; ", reason)};
}

Result<std::unique_ptr<Extent>> LimitDevice::restore(UniqueFd fd, uint64_t size_bytes, const AllocateOptions& options,
                                                     const FabricHandle* handle) {
    auto extent = TRY(upstream_->restore(std::move(fd), size_bytes, options, handle));
    if (extent->file() != nullptr) size_bytes = extent->size();
    budget_->note(size_bytes);
    charge(*extent, size_bytes);
    return extent;
}

Result<std::unique_ptr<Extent>> LimitDevice::restore_file(uint64_t key) {
    auto extent = TRY(upstream_->restore_file(key));
    charge(*extent, 0);
    TRY(extent->file()->status());  // counts its bytes
    return extent;
}

void LimitDevice::charge(Extent& extent, uint64_t size_bytes) {
    if (auto* file = extent.file()) file->charge_to(budget_, size_bytes);
    else extent.on_release([budget = budget_, size_bytes] { budget->give(size_bytes); });
}

}  // namespace gshm::core
