#include "device/device.h"

namespace gshm {

Extent::~Extent() {
    for (auto& hook : release_hooks_) hook();
}

Status Extent::check_range(uint64_t offset, uint64_t bytes) const {
    if (offset > size_ || bytes > size_ - offset) {
        return fail(EINVAL, "range {}+{} is outside of the extent's {} bytes", offset, bytes, size_);
    }
    return {};
}

Result<int> Extent::kept_descriptor() const {
    if (kept_) return kept_.get();
    return fail(EOPNOTSUPP, "imported memory cannot be exported again without the descriptor it came from");
}

Result<FabricHandle> Extent::export_fabric() const {
    return fail(EOPNOTSUPP, "this device has no fabric handles");
}

Result<UniqueFd> Extent::export_dmabuf() const {
    return fail(EOPNOTSUPP, "this device has no dma-buf export");
}

Status Extent::map_peer(Device& peer) {
    return fail(EOPNOTSUPP, "memory of this kind cannot be mapped for {}", peer.info().name);
}

}  // namespace gshm
