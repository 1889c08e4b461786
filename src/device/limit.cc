#include "device/limit.h"

#include <algorithm>

namespace gshm {

LimitDevice::LimitDevice(std::unique_ptr<Device> upstream, uint64_t limit_bytes)
    : upstream_(std::move(upstream)), info_(upstream_->info()) {
    if (limit_bytes != 0) info_.capacity_bytes = std::min(info_.capacity_bytes, limit_bytes);
}

Result<std::unique_ptr<Extent>> LimitDevice::allocate(uint64_t size_bytes, const AllocateOptions& options) {
    uint64_t used = used_->load(std::memory_order_relaxed);
    do {
        if (size_bytes > info_.capacity_bytes || used > info_.capacity_bytes - size_bytes) {
            return fail(ENOSPC, "{} is full: {} bytes asked for, {} of {} in use", info_.name, size_bytes, used,
                        info_.capacity_bytes);
        }
    } while (!used_->compare_exchange_weak(used, used + size_bytes));
    auto extent = upstream_->allocate(size_bytes, options);
    if (!extent) {
        used_->fetch_sub(size_bytes);
        return extent;
    }
    (*extent)->on_release([counter = used_, size_bytes] { counter->fetch_sub(size_bytes); });
    return extent;
}

}  // namespace gshm
