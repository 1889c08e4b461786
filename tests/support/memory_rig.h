// src/memory over two small devices, with a loop and a clock that the test controls.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>

#include <gtest/gtest.h>

#include "base/mutex.h"
#include "device/limit.h"
#include "memory/freed_extents.h"
#include "memory/move.h"
#include "memory/reclaim.h"
#include "support/memory_device.h"

namespace gshm::core::test {

class ManualScheduler final : public Scheduler {
public:
    void post(Task task, std::source_location = std::source_location::current()) override {
        {
            MutexLock lock(mutex_);
            tasks_.push_back(std::move(task));
        }
        posted_.notify_one();
    }
    TimerId after(std::chrono::milliseconds delay, Task task, std::source_location) override {
        TimerId id{now_ + delay, next_timer_++};
        timers_.emplace(id, std::move(task));
        return id;
    }
    void cancel(const TimerId& timer) override { timers_.erase(timer); }
    Time now() const override { return now_; }
    StoreMutex& store_mutex() override { return store_mutex_; }

    // Runs all posted tasks, and the tasks that these post.
    void run() {
        while (Task task = take(false)) run(std::move(task));
    }
    // Runs tasks posted by threads until done() returns true.
    void run_until(const std::function<bool()>& done) {
        while (!done()) run(take(true));
    }
    // Advances the time and runs the timers that are due.
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
        StoreLock lock(store_mutex());
        task();
    }

    StoreMutex store_mutex_;
    Time now_{};
    uint64_t next_timer_ = 1;
    std::map<TimerId, Task> timers_;
    Mutex mutex_;
    std::condition_variable posted_;
    std::deque<Task> tasks_;
};

struct MemoryRig {
    static constexpr uint64_t kPage = uint64_t{64} << 10;  // granularity of the devices

    explicit MemoryRig(uint64_t first_device_bytes = 16 * kPage) : devices(scheduler, first_device_bytes) {
        reclaim.use(store, departures);
    }

    class RigDevices final : public Devices {
    public:
        RigDevices(Scheduler& scheduler, uint64_t first_bytes)
            : first(std::make_unique<MemoryDevice>("memory:0", first_bytes), 0), scheduler_(scheduler) {}
        Device& device(DeviceIndex index) override { return index == 0 ? first : second; }
        Status check(DeviceIndex) const override { return {}; }
        void report(DeviceIndex, const Error&) override {}
        // Runs the work at once. `done` is posted, as from another thread.
        void submit(DeviceIndex index, Work work, Done done) override {
            scheduler_.post(
                [status = work(device(index)), done = std::move(done)]() mutable { done(std::move(status)); });
        }
        // Queues the work for reclaim(), which the test calls.
        void submit_reclaim(DeviceIndex index, Work work, Done done) override {
            reclaims_.emplace_back([this, index, work = std::move(work), done = std::move(done)]() mutable {
                auto status = work(device(index));
                work = nullptr;
                scheduler_.post(
                    [status = std::move(status), done = std::move(done)]() mutable { done(std::move(status)); });
            });
        }
        void wait_for_reclaimed(DeviceIndex) override {}
        FreedExtents& freed() override { return freed_; }
        void reclaim(size_t most = SIZE_MAX) {
            for (; most > 0 && !reclaims_.empty(); --most) {
                auto work = std::move(reclaims_.front());
                reclaims_.pop_front();
                work();
            }
        }

        // Called after each copy to the second device.
        void set_on_copy(std::function<void()> on_copy) {
            static_cast<MemoryDevice&>(second.upstream()).set_on_copy(std::move(on_copy));
        }

        LimitDevice first;
        LimitDevice second{std::make_unique<MemoryDevice>("memory:1", 16 * kPage), 0};

    private:
        Scheduler& scheduler_;
        std::deque<Scheduler::Task> reclaims_;
        FreedExtents freed_{{first.info().capacity_bytes, second.info().capacity_bytes}};
    };

    // Creates an object as the daemon does, in the loop. `object` is null until it is created.
    struct Creation {
        SessionId session = 0;
        CreateSpec spec;
        Object* object = nullptr;
        int error = 0;
    };
    std::shared_ptr<Creation> create(SessionId session, std::string_view name, uint64_t bytes, bool map = true) {
        auto creation = std::make_shared<Creation>(Creation{session, {}});
        creation->spec.name = name;
        creation->spec.size_bytes = bytes;
        creation->spec.flags = kCreateDedicated | kCreateKeep;
        creation->spec.map = map;
        {
            StoreLock lock(scheduler.store_mutex());
            go_on(creation);
        }
        scheduler.run();
        return creation;
    }
    void remove(const Creation& creation) {
        StoreLock lock(scheduler.store_mutex());
        EXPECT_TRUE(store.unlink(creation.session, creation.spec.name));
        EXPECT_TRUE(store.release(creation.session, creation.object->id, Access::write));
    }

    ManualClock clock;
    ManualScheduler scheduler;
    RigDevices devices;
    Reclaim reclaim{scheduler, devices};
    Store store{clock, reclaim, {0, 0, 1, {}}, {devices.first.info(), devices.second.info()}};
    Departures departures{scheduler, store};
    Allocator allocator{scheduler, devices, departures};
    Mover mover{scheduler, devices, allocator, store};

private:
    void go_on(const std::shared_ptr<Creation>& creation) REQUIRES(store_lock) {
        auto made = store.create(creation->session, creation->spec);
        if (!made) {
            creation->error = made.error().code;
        } else if (auto* object = std::get_if<Object*>(&*made)) {
            creation->object = *object;
            if (creation->spec.map) Extents::reach((*object)->extent, creation->session);
        } else {
            const auto need = std::get<ExtentNeed>(*made);
            AllocationRequest request{need.device,
                                      need.size_bytes,
                                      need.min_bytes,
                                      {need.compressible},
                                      0,
                                      need.uid,
                                      creation->spec.map ? creation->session : 0};
            allocator.allocate(request, [this, creation, need](Result<std::shared_ptr<Extent>> memory) {
                store_lock.assert_held();
                if (memory) creation->spec.extent = store.extents().add(need, std::move(*memory));
                else creation->error = memory.error().code;
                if (memory) go_on(creation);
            });
        }
    }
};

}  // namespace gshm::core::test
