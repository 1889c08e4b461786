// An adaptor that limits and counts the bytes allocated from the device below it.
#pragma once

#include <memory>
#include <vector>

#include "base/mutex.h"
#include "device/device.h"

namespace gshm::core {

class LimitDevice final : public Device {
public:
    // limit_bytes 0: the upstream's capacity.
    LimitDevice(std::unique_ptr<Device> upstream, uint64_t limit_bytes);

    const DeviceInfo& info() const override { return *shown_.load(std::memory_order_acquire); }
    // Changes the limit. What is in use stays, even beyond it. For one thread at a time.
    void set_limit(uint64_t limit_bytes);
    Status start() override { return upstream_->start(); }
    Result<std::unique_ptr<Extent>> allocate(uint64_t size_bytes, const AllocateOptions& options) override;
    Result<std::unique_ptr<Extent>> import_fd(int fd, uint64_t size_bytes, Access access) override {
        return upstream_->import_fd(fd, size_bytes, access);
    }
    Result<std::unique_ptr<Extent>> import_dmabuf(int fd, uint64_t size_bytes, Access access) override {
        return upstream_->import_dmabuf(fd, size_bytes, access);
    }
    Result<std::unique_ptr<Extent>> import_fabric(const FabricHandle& handle, uint64_t size_bytes,
                                                  Access access) override {
        return upstream_->import_fabric(handle, size_bytes, access);
    }
    // Counted even beyond the limit: the memory exists.
    Result<std::unique_ptr<Extent>> restore(UniqueFd fd, uint64_t size_bytes, const AllocateOptions& options,
                                            const FabricHandle* handle) override;
    Result<std::unique_ptr<Extent>> restore_file(uint64_t key) override;

    Status register_host_memory(std::span<std::byte> memory) override {
        return upstream_->register_host_memory(memory);
    }
    void unregister_host_memory(std::span<std::byte> memory) override { upstream_->unregister_host_memory(memory); }

    Result<std::unique_ptr<Streams>> make_streams() override { return upstream_->make_streams(); }
    void use_maker(std::shared_ptr<FabricMaker> maker) override { upstream_->use_maker(std::move(maker)); }

    uint64_t unaccounted_bytes() override { return upstream_->unaccounted_bytes(); }
    uint64_t free_bytes() override { return upstream_->free_bytes(); }

    uint64_t used_bytes() const { return budget_->used(); }

    // Bytes of the upstream that stay free for others; an allocation that would use them gives ENOSPC. 0: none. From any
    // thread. No effect if the upstream does not know its free bytes.
    void set_reserve(uint64_t bytes) { reserve_bytes_.store(bytes, std::memory_order_relaxed); }
    uint64_t reserve_bytes() const { return reserve_bytes_.load(std::memory_order_relaxed); }
    Device& upstream() { return *upstream_; }

private:
    void charge(Extent& extent, uint64_t size_bytes);
    Result<std::unique_ptr<Extent>> allocate_upstream(uint64_t size_bytes, const AllocateOptions& options)
        EXCLUDES(reserve_mutex_);
    // ENOSPC with the reason.
    Error full(uint64_t size_bytes, const std::string& reason) const;

    std::unique_ptr<Device> upstream_;
    DeviceInfo info_;  // at the start
    std::atomic<const DeviceInfo*> shown_ = &info_;
    // With other limits. They stay, since other threads may read them.
    std::vector<std::unique_ptr<const DeviceInfo>> changed_infos_;
    std::atomic<uint64_t> reserve_bytes_ = 0;
    Mutex reserve_mutex_;  // held from the check of the reserve until the memory is allocated; no other is taken
    // Shared with the extents, which may outlive the device.
    std::shared_ptr<Budget> budget_;
};

}  // namespace gshm::core
