#include "device/limit.h"

#include <algorithm>

namespace gshm::core {

LimitDevice::LimitDevice(std::unique_ptr<Device> upstream, uint64_t limit_bytes)
    : upstream_(std::move(upstream)), info_(upstream_->info()) {
    if (limit_bytes != 0) info_.capacity_bytes = std::min(info_.capacity_bytes, limit_bytes);
    budget_ = std::make_shared<Budget>(info_.capacity_bytes);
}

Result<std::unique_ptr<Extent>> LimitDevice::allocate(uint64_t size_bytes, const AllocateOptions& options) {
    if (!budget_->take(size_bytes)) {
        return fail(ENOSPC, "{} is full: {} bytes requested, {} of {} in use", info_.name, size_bytes, budget_->used(),
                    info_.capacity_bytes);
    }
    auto extent = upstream_->allocate(size_bytes, options);
    if (extent) charge(**extent, size_bytes);
    else budget_->give(size_bytes);
    return extent;
}

Result<std::unique_ptr<Extent>> LimitDevice::restore(UniqueFd fd, uint64_t size_bytes, const AllocateOptions& options,
                                                     const FabricHandle* handle) {
    auto extent = TRY(upstream_->restore(std::move(fd), size_bytes, options, handle));
    if (extent->file() != nullptr) size_bytes = extent->size();
    budget_->note(size_bytes);
    charge(*extent, size_bytes);
    return extent;
}

void LimitDevice::charge(Extent& extent, uint64_t size_bytes) {
    if (auto* file = extent.file()) file->charge_to(budget_, size_bytes);
    else extent.on_release([budget = budget_, size_bytes] { budget->give(size_bytes); });
}

}  // namespace gshm::core
