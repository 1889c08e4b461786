// The daemon's devices, each with its limit, its thread and its health.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/worker.h"
#include "daemon/loop.h"
#include "device/host.h"
#include "device/kinds.h"
#include "device/limit.h"
#include "memory/devices.h"
#include "memory/freed_extents.h"
#include "store/extents.h"

namespace gshm::core {

class DeviceSet final : public Devices {
public:
    // specs: "host", "host:4G", "cuda", "cuda:0", "cuda:0:40G", as in device/kinds.h; empty: all GPUs, then host.
    // limit_bytes bounds each device whose spec has no limit (0: its capacity). A device that cannot be started is in
    // the set, marked as failed.
    // host_folder: the private tmpfs with the host memory of an earlier daemon; empty: none.
    static Result<std::unique_ptr<DeviceSet>> create(EventLoop& loop, const std::vector<std::string>& specs,
                                                     uint64_t limit_bytes, UniqueFd host_folder);

    // EINVAL: not a device. Does not look for it.
    static Status check_spec(std::string_view spec);
    // Whether the specs name the same devices, in the same order.
    static bool differ_in_limits_only(const std::vector<std::string>& one, const std::vector<std::string>& other);
    // Changes the limits. The specs differ from those of create() in their limits only.
    void set_limits(const std::vector<std::string>& specs, uint64_t limit_bytes) REQUIRES(store_lock);

    size_t size() const { return slots_.size(); }
    const DeviceInfo& info(DeviceIndex index) const { return slots_[index].device->info(); }
    Device& device(DeviceIndex index) override { return *slots_[index].device; }
    // Without freed memory that is kept for reuse.
    uint64_t used_bytes(DeviceIndex index) const;
    struct Space {
        uint64_t used_bytes = 0;
        uint64_t available_bytes = 0;  // to allocations
    };
    // By the limit alone.
    Space space(DeviceIndex index) const { return space(index, UINT64_MAX); }
    // Also by the free memory of the device itself, which other processes use too. Asks the driver.
    Space real_space(DeviceIndex index) EXCLUDES(store_lock);
    FreedExtents& freed() override { return *freed_; }
    uint64_t free_bytes(DeviceIndex index) const override { return space(index).available_bytes; }
    // See LimitDevice.
    void set_reserve(DeviceIndex index, uint64_t bytes) { slots_[index].device->set_reserve(bytes); }
    uint64_t reserve_bytes(DeviceIndex index) const override { return slots_[index].device->reserve_bytes(); }
    // Of the device itself; gshmd may use a part of it only.
    uint64_t memory_bytes(DeviceIndex index) const { return slots_[index].device->upstream().info().capacity_bytes; }
    std::vector<DeviceInfo> infos() const;
    // "" is the first device.
    Result<DeviceIndex> find(std::string_view name) const;
    Status check(DeviceIndex index) const override REQUIRES_SHARED(store_lock);
    const std::string& failure(DeviceIndex index) const REQUIRES_SHARED(store_lock) { return slots_[index].failure; }

    void submit(DeviceIndex index, Work work, Done done) override;
    void submit_reclaim(DeviceIndex index, Work work, Done done) override;
    void wait_for_reclaimed(DeviceIndex index) override EXCLUDES(store_lock);
    // Called by wait_for_reclaimed(), to wait until the keeper has closed its descriptors of freed memory too.
    void set_also_wait(std::function<void()> wait) { also_wait_ = std::move(wait); }
    // The private tmpfs of the device `host`, if it has one.
    std::optional<int> host_folder();
    // Removes the files in it that have no key, or one that is not in use.
    void remove_host_files(const std::function<bool(uint64_t key)>& is_used);
    void report(DeviceIndex index, const Error& error) override REQUIRES(store_lock);

private:
    struct Slot {
        std::unique_ptr<LimitDevice> device;
        std::unique_ptr<Worker> worker;
        std::unique_ptr<Worker> reclaimer;
        std::string failure GUARDED_BY(store_lock);
        std::optional<size_t> spec;  // its number; none: the device was not named
    };

    explicit DeviceSet(EventLoop& loop) : loop_(loop) {}
    Status add_unasked(uint64_t limit_bytes);
    Status add(const std::string& spec, uint64_t limit_bytes);
    Status add(const DeviceKind& kind, std::string_view which, uint64_t limit_bytes);
    Status add_slot(std::unique_ptr<Device> device, uint64_t limit_bytes);
    Space space(DeviceIndex index, uint64_t free_bytes) const;
    void submit_to(Worker& worker, DeviceIndex index, Work work, Done done);

    EventLoop& loop_;
    UniqueFd old_host_folder_;
    HostDevice* host_ = nullptr;
    std::function<void()> also_wait_;
    std::vector<Slot> slots_;
    std::unique_ptr<FreedExtents> freed_;  // destroyed before the devices
};

}  // namespace gshm::core
