// An extent that exists but cannot be accessed: its device is lost, or does not import it. Every use fails with the
// reason; its descriptor is kept, so that the memory is not lost.
#pragma once

#include "device/device.h"
#include "device/refusing_copier.h"

namespace gshm::core {

class UnavailableExtent final : public Extent {
public:
    UnavailableExtent(UniqueFd fd, uint64_t size_bytes, Error why)
        : Extent(0, size_bytes), why_(std::move(why)), copier_(why_) {
        keep_descriptor(std::move(fd));
    }
    Status copy_in(uint64_t, std::span<const std::byte>) override { return std::unexpected(why_); }
    Status copy_out(uint64_t, std::span<std::byte>) const override { return std::unexpected(why_); }
    Status fill(uint64_t, uint64_t, uint8_t) override { return std::unexpected(why_); }
    Copier* copier() override { return &copier_; }
    bool is_host_memory() const override { return false; }
    Result<int> descriptor(Access) override { return kept_descriptor(); }
    Result<FabricHandle> export_fabric() const override { return std::unexpected(why_); }
    Result<UniqueFd> export_dmabuf() const override { return std::unexpected(why_); }

private:
    Error why_;
    RefusingCopier copier_;
};

}  // namespace gshm::core
