// src/memory over two small devices, in a loop that the test runs by hand, with a clock that the test sets.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>

#include "base/mutex.h"
#include "device/limit.h"
#include "memory/allocate.h"
#include "support/memory_device.h"

namespace gshm::test {

class ManualScheduler final : public Scheduler {
public:
    void post(Task task) override {
        {
            MutexLock lock(mutex_);
            tasks_.push_back(std::move(task));
        }
        posted_.notify_one();
    }
    TimerId after(std::chrono::milliseconds delay, Task task) override {
        TimerId id{now_ + delay, next_timer_++};
        timers_.emplace(id, std::move(task));
        return id;
    }
    void cancel(const TimerId& timer) override { timers_.erase(timer); }
    Time now() const override { return now_; }
    Turn enter() override { return Turn(turn_); }

    // Runs what is posted, and what that posts.
    void run() {
        while (Task task = take(false)) run(std::move(task));
    }
    // Runs what threads post until `done` says so.
    void run_until(const std::function<bool()>& done) {
        while (!done()) run(take(true));
    }
    // Lets the time pass, with the timers that are due.
    void advance(std::chrono::milliseconds by) {
        now_ += by;
        while (!timers_.empty() && timers_.begin()->first.first <= now_) {
            run(std::move(timers_.extract(timers_.begin()).mapped()));
            run();
        }
    }

private:
    Task take(bool wait) {
        MutexLock lock(mutex_);
        while (wait && tasks_.empty()) lock.wait(posted_);
        if (tasks_.empty()) return nullptr;
        Task task = std::move(tasks_.front());
        tasks_.pop_front();
        return task;
    }
    void run(Task task) {
        auto turn = enter();
        task();
    }

    TurnMutex turn_;
    Time now_{};
    uint64_t next_timer_ = 1;
    std::map<TimerId, Task> timers_;
    Mutex mutex_;
    std::condition_variable posted_;
    std::deque<Task> tasks_;
};

struct MemoryRig {
    static constexpr uint64_t kPage = uint64_t{64} << 10;  // the devices' granularity
    static constexpr uint64_t kDeviceBytes = 16 * kPage;

    class RigDevices final : public Devices {
    public:
        explicit RigDevices(Scheduler& scheduler) : scheduler_(scheduler) {}
        Device& device(DeviceIndex index) override { return index == 0 ? first : second; }
        Status check(DeviceIndex) const override { return {}; }
        void report(DeviceIndex, const Error&) override {}
        // At once, and as if by another thread: `done` comes later.
        void submit(DeviceIndex index, Work work, Done done) override {
            scheduler_.post([status = work(device(index)), done = std::move(done)]() mutable { done(std::move(status)); });
        }
        void wait_for_reclaimed(DeviceIndex) override {}

        LimitDevice first{std::make_unique<MemoryDevice>("memory:0", kDeviceBytes), 0};
        LimitDevice second{std::make_unique<MemoryDevice>("memory:1", kDeviceBytes), 0};

    private:
        Scheduler& scheduler_;
    };

    MemoryRig() { reclaimer.extents = &store.extents(); }

    ManualClock clock;
    ImmediateReclaimer reclaimer;
    ManualScheduler scheduler;
    RigDevices devices{scheduler};
    Store store{clock, reclaimer, {0, 0, 1, {}}, {devices.first.info(), devices.second.info()}};
    Departures departures{scheduler, store};
    Allocator allocator{scheduler, devices, departures};
};

}  // namespace gshm::test
