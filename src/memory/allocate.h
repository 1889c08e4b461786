// Memory of a device. Memory of the same size that was freed before comes first. A user whose freed memory piles up
// waits for that. On a full device empty slabs and kept memory are freed, memory on its way out is waited for, and at last
// the least that would do is asked for. The same steps are driven in the loop, which never waits, and in threads,
// which do.
#pragma once

#include <functional>
#include <memory>

#include "memory/departures.h"
#include "memory/devices.h"

namespace gshm::core {

struct AllocationRequest {
    DeviceIndex device = 0;
    uint64_t size_bytes = 0;   // as Device::allocate() takes them
    uint64_t min_bytes = 0;  // what would do, where the device has not that much left
    AllocateOptions options;
    NodeId waiting = 0;   // the object that needs the memory; 0: a new one
    uid_t uid = 0;        // of the object
    SessionId maps = 0;   // the one session that is to get a descriptor of it, at once; 0: none, or others may as well
};

// What comes next in an allocation. Pure logic, for one thread at a time.
class AllocationSteps {
public:
    enum class Next { attempt, wait, end };

    AllocationSteps(uint64_t size_bytes, uint64_t min_bytes) : bytes_(size_bytes), least_bytes_(min_bytes) {}
    // To be asked for in the next attempt.
    uint64_t bytes() const { return bytes_; }
    // An attempt has ended so: `wait` if the device is full, else `end`.
    static Next attempted(const Status& status);
    // A wait has ended so: `attempt`, or `end` with the error of the last attempt.
    Next waited(bool freed);

private:
    uint64_t bytes_;
    const uint64_t least_bytes_;
};

class Allocator {
public:
    Allocator(Scheduler& scheduler, Devices& devices, Departures& departures)
        : scheduler_(scheduler), devices_(devices), departures_(departures) {}

    using Done = std::move_only_function<void(Result<std::shared_ptr<Extent>>)>;
    // In the loop; `done` is called there.
    void allocate(const AllocationRequest& request, Done done);
    // The same in a thread that holds no gate.
    Result<std::shared_ptr<Extent>> allocate_blocking(const AllocationRequest& request);
    // Without a wait for anything but the reclaimer. In any thread but the loop's and the reclaimer's, also with a gate.
    Result<std::shared_ptr<Extent>> attempt(DeviceIndex device, uint64_t bytes, const AllocateOptions& options,
                                            SessionId maps = 0);
    // Without any wait, for the loop: little memory, of a device whose memory is the processor's.
    Result<std::shared_ptr<Extent>> attempt_at_once(DeviceIndex device, uint64_t bytes, const AllocateOptions& options);

    // Repeats an operation that fails with ENOSPC, as an allocation is. In a thread that holds no gate. on_wait(true)
    // is called before the first wait, and forbids it with false; on_wait(false) after the last.
    using OnWait = std::function<bool(bool)>;
    Status retry(DeviceIndex device, NodeId waiting, const std::function<Status()>& operation, const OnWait& on_wait);
    // In a thread that holds no gate: waits until, compared with the free bytes, not much memory is on its way out.
    void wait_for_departures(DeviceIndex device, NodeId waiting, uid_t uid, const std::function<uint64_t()>& free_bytes);

    Departures& departures() { return departures_; }

private:
    class InLoop;
    std::shared_ptr<Extent> take_freed(DeviceIndex device, uint64_t bytes, const AllocateOptions& options, SessionId maps);
    void wait_for_pile(const AllocationRequest& request);
    Status run(DeviceIndex device, NodeId waiting, AllocationSteps steps,
               const std::function<Status(uint64_t bytes)>& attempt, const OnWait& on_wait);
    void report(DeviceIndex device, const Error& error);

    Scheduler& scheduler_;
    Devices& devices_;
    Departures& departures_;
};

}  // namespace gshm::core
