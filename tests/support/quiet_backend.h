// A backend for the mount in which no device is lost, no memory is being freed and no request waits.
#pragma once

#include "fuse/backend.h"
#include "memory/freed_extents.h"

namespace gshm::core::test {

class QuietBackend : public fuse::Backend {
public:
    Allocator& allocator() override { return memory().allocator; }
    Mover& mover() override { return memory().mover; }
    uint64_t used_bytes(DeviceIndex) override { return 0; }
    Status check(DeviceIndex) override { return {}; }
    void report(DeviceIndex, const Error&) override {}
    bool can_record() const override { return true; }
    bool may_use_io_uring() const override { return false; }

private:
    // All waits are given up, so that nothing is ever posted.
    struct Memory final : Scheduler, Devices {
        explicit Memory(QuietBackend& of) : backend(of) { departures.set_given_up(true); }

        void post(Task, std::source_location) override {}
        TimerId after(std::chrono::milliseconds, Task, std::source_location) override { return {}; }
        void cancel(const TimerId&) override {}
        StoreMutex& store_mutex() override { return backend.store_mutex(); }
        Device& device(DeviceIndex index) override { return backend.device(index); }
        Status check(DeviceIndex) const override { return {}; }
        void report(DeviceIndex, const Error&) override {}
        void submit(DeviceIndex index, Work work, Done done) override { done(work(device(index))); }
        void submit_reclaim(DeviceIndex index, Work work, Done done) override {
            submit(index, std::move(work), std::move(done));
        }
        void wait_for_reclaimed(DeviceIndex) override {}
        FreedExtents& freed() override { return freed_extents; }

        QuietBackend& backend;
        FreedExtents freed_extents{std::vector<uint64_t>(backend.device_count())};  // nothing is kept
        Departures departures{*this, backend.files().store()};
        Allocator allocator{*this, *this, departures};
        Mover mover{*this, *this, allocator, backend.files().store()};
    };
    Memory& memory() {
        if (!memory_) memory_ = std::make_unique<Memory>(*this);
        return *memory_;
    }
    std::unique_ptr<Memory> memory_;
};

}  // namespace gshm::core::test
