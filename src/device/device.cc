#include "device/device.h"

#include <algorithm>

namespace gshm::core {

bool Budget::take(uint64_t bytes) {
    const uint64_t capacity = this->capacity();
    uint64_t used = used_.load(std::memory_order_relaxed);
    do {
        if (bytes > capacity || used > capacity - bytes) return false;
    } while (!used_.compare_exchange_weak(used, used + bytes));
    return true;
}

Extent::~Extent() {
    kept_.reset();  // an open descriptor would keep the memory alive
    for (auto& hook : release_hooks_) hook();
}

Status Extent::check_range(uint64_t offset, uint64_t bytes) const {
    if (offset > size() || bytes > size() - offset) {
        return fail(EINVAL, "range {}+{} is outside of the extent's {} bytes", offset, bytes, size());
    }
    return {};
}

Result<int> Extent::kept_descriptor() const {
    if (kept_) return kept_.get();
    return fail(EOPNOTSUPP, "imported memory cannot be exported again without the descriptor it came from");
}

Status Extent::copy_from(uint64_t offset, const Extent& source, uint64_t source_offset, uint64_t bytes) {
    std::vector<std::byte> bounce(std::min<uint64_t>(bytes, 1 << 20));
    for (uint64_t done = 0; done < bytes;) {
        std::span<std::byte> piece(bounce.data(), std::min<uint64_t>(bounce.size(), bytes - done));
        TRY(source.copy_out(source_offset + done, piece));
        TRY(copy_in(offset + done, piece));
        done += piece.size();
    }
    return {};
}

Status Extent::begin_copy_in(uint64_t offset, std::span<const std::byte> source, void*) {
    return copy_in(offset, source);
}

Status Extent::begin_copy_out(uint64_t offset, std::span<std::byte> destination, void*) const {
    return copy_out(offset, destination);
}

Status Extent::finish(void*) const {
    return {};
}

Result<FabricHandle> Extent::export_fabric() const {
    return fail(EOPNOTSUPP, "this device has no fabric handles");
}

Result<UniqueFd> Extent::export_dmabuf() const {
    return fail(EOPNOTSUPP, "this device has no dma-buf export");
}

Result<IpcExport> Extent::export_ipc() const {
    return fail(EOPNOTSUPP, "only memory from cudaMalloc has CUDA IPC handles");
}

Result<std::unique_ptr<Extent>> Device::restore(UniqueFd, uint64_t, const AllocateOptions&, const FabricHandle*) {
    return fail(EOPNOTSUPP, "memory of {} cannot be restored", info().name);
}

Result<std::unique_ptr<Extent>> Device::restore_file(uint64_t key) {
    return fail(ENOENT, "{} has no file {}", info().name, key);
}

Status Extent::map_peer(Device& peer) {
    return fail(EOPNOTSUPP, "memory of this kind cannot be mapped for {}", peer.info().name);
}

}  // namespace gshm::core
