// A device over plain process memory, and a synchronous reclaimer: the basis of the store's tests.
#pragma once

#include <atomic>
#include <cstring>
#include <functional>
#include <sys/mman.h>
#include <vector>

#include "base/clock.h"
#include "device/device.h"
#include "store/extents.h"

namespace gshm::core::test {

class MemoryExtent final : public Extent {
public:
    // The counter is shared, since an extent may outlive its device.
    MemoryExtent(std::unique_ptr<std::vector<std::byte>> bytes, std::shared_ptr<std::atomic<size_t>> live,
                 std::shared_ptr<std::function<void()>> on_copy)
        : Extent(reinterpret_cast<uint64_t>(bytes->data()), bytes->size()),
          bytes_(std::move(bytes)),
          live_(std::move(live)),
          on_copy_(std::move(on_copy)) {
        ++*live_;
    }
    ~MemoryExtent() override { --*live_; }

    Status copy_in(uint64_t offset, std::span<const std::byte> source) override {
        TRY(check_range(offset, source.size()));
        memcpy(bytes_->data() + offset, source.data(), source.size());
        if (*on_copy_) (*on_copy_)();
        return {};
    }
    Status copy_out(uint64_t offset, std::span<std::byte> destination) const override {
        TRY(check_range(offset, destination.size()));
        memcpy(destination.data(), bytes_->data() + offset, destination.size());
        return {};
    }
    Status fill(uint64_t offset, uint64_t bytes, uint8_t value) override {
        TRY(check_range(offset, bytes));
        memset(bytes_->data() + offset, value, bytes);
        return {};
    }
    // The store passes it on and never maps it, so it need not refer to these bytes.
    Result<int> descriptor(Access) override {
        if (!descriptor_) descriptor_ = UniqueFd::adopt(memfd_create("memory", MFD_CLOEXEC));
        if (!descriptor_) return fail_errno("memfd_create");
        return descriptor_.get();
    }

private:
    UniqueFd descriptor_;
    std::unique_ptr<std::vector<std::byte>> bytes_;
    std::shared_ptr<std::atomic<size_t>> live_;
    std::shared_ptr<std::function<void()>> on_copy_;
};

class MemoryDevice final : public Device {
public:
    explicit MemoryDevice(std::string name, uint64_t capacity_bytes, bool compressible = false) {
        info_.name = std::move(name);
        info_.capacity_bytes = capacity_bytes;
        info_.granularity_bytes = uint64_t{64} << 10;
        info_.compressible = compressible;
    }
    const DeviceInfo& info() const override { return info_; }
    Result<std::unique_ptr<Extent>> allocate(uint64_t size_bytes, const AllocateOptions&) override {
        if (size_bytes > info_.capacity_bytes) return fail(ENOSPC, "{} is full", info_.name);
        return std::make_unique<MemoryExtent>(std::make_unique<std::vector<std::byte>>(size_bytes), live_, on_copy_);
    }
    Result<std::unique_ptr<Extent>> import_fd(int, uint64_t, Access) override { return fail(EOPNOTSUPP, "no"); }
    Result<std::unique_ptr<Extent>> import_dmabuf(int, uint64_t, Access) override { return fail(EOPNOTSUPP, "no"); }
    Result<std::unique_ptr<Extent>> import_fabric(const FabricHandle&, uint64_t, Access) override {
        return fail(EOPNOTSUPP, "no");
    }
    size_t live() const { return *live_; }
    uint64_t unaccounted_bytes() override { return unaccounted_bytes_; }
    void set_unaccounted_bytes(uint64_t bytes) { unaccounted_bytes_ = bytes; }
    // Called after each copy into its memory.
    void set_on_copy(std::function<void()> on_copy) { *on_copy_ = std::move(on_copy); }

private:
    DeviceInfo info_;
    std::atomic<uint64_t> unaccounted_bytes_ = 0;
    std::shared_ptr<std::atomic<size_t>> live_ = std::make_shared<std::atomic<size_t>>(0);
    std::shared_ptr<std::function<void()>> on_copy_ = std::make_shared<std::function<void()>>();
};

class ImmediateReclaimer final : public Reclaimer {
public:
    void zero(DeviceIndex, ExtentId id, std::shared_ptr<Extent> memory, uint64_t offset, uint64_t bytes,
              uid_t) override {
        require(memory->fill(offset, bytes, 0));
        extents->zeroed(id, offset, bytes);
    }
    void release(DeviceIndex, std::shared_ptr<Extent> memory, const FormerUse&) override { memory.reset(); }

    Extents* extents = nullptr;  // set once the store exists

private:
    static void require(const Status& status) {
        if (!status) std::abort();
    }
};

class ManualClock final : public Clock {
public:
    int64_t now_ns() const override { return ++now_; }
    int64_t coarse_ns() const override { return now_; }
    int64_t steady_ns() const override { return steady_; }
    void advance(int64_t ns) {
        now_ += ns;
        steady_ += ns;
    }
    // The time of day is set; no time passes.
    void jump(int64_t ns) { now_ += ns; }

private:
    mutable int64_t now_ = 0;
    int64_t steady_ = 1'000'000'000;
};

}  // namespace gshm::core::test
