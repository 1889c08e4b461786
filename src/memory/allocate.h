// Allocates memory of a device. Kept memory of the same size is used first. A user whose freed memory piles up waits
// for it to be freed. On a full device, empty slabs and kept memory are freed, then the request waits for memory that
// is being freed, and at last asks for the minimum. The same steps run in the loop, which never blocks, and in threads,
// which do.
#pragma once

#include <functional>
#include <memory>

#include "memory/departures.h"
#include "memory/devices.h"

namespace gshm::core {

struct AllocationRequest {
    DeviceIndex device = 0;
    uint64_t size_bytes = 0;  // as for Device::allocate()
    uint64_t min_bytes = 0;   // accepted if the device has not that much left
    AllocateOptions options;
    NodeId waiting = 0;    // the object that needs the memory; 0: a new one
    uid_t uid = 0;         // of the object
    SessionId maps = 0;    // the only session that gets a descriptor, at once; 0: none, or several
    bool returns = false;  // from a tier, see RoomMaker::Claim
};

// The steps of an allocation. Pure logic, for one thread at a time.
class AllocationSteps {
public:
    enum class Next { attempt, wait, end };

    AllocationSteps(uint64_t size_bytes, uint64_t min_bytes) : bytes_(size_bytes), least_bytes_(min_bytes) {}
    // The size of the next attempt.
    uint64_t bytes() const { return bytes_; }
    // The result of an attempt: `wait` if the device is full, else `end`.
    static Next attempted(const Status& status);
    // The result of a wait: `attempt`, or `end` with the error of the last attempt.
    Next waited(bool freed);

private:
    uint64_t bytes_;
    const uint64_t least_bytes_;
};

// Makes room on a full device by moving objects elsewhere.
class RoomMaker {
public:
    // A request that a full device has refused.
    struct Claim {
        DeviceIndex device = 0;
        uint64_t bytes = 0;    // 0: not known
        bool returns = false;  // an object from a tier, which has room for as much as the object has there
        bool counted = false;  // of the implementation, as all below
        uint64_t failures = 0;
    };
    virtual ~RoomMaker() = default;
    // Called after each refusal. True: memory is being freed, as the Departures will tell; to be called again if the
    // request is then refused once more. False: nothing can be moved.
    virtual bool make_room(Claim& claim) REQUIRES(store_lock) = 0;
    virtual bool is_making_room(const Claim& claim) const REQUIRES(store_lock) = 0;
    // What to add to the error of a claim that has failed: why objects that may leave could not; "": there are none.
    virtual std::string why_full(const Claim& claim) const REQUIRES(store_lock) = 0;
    // The request has got its memory, or has given up.
    virtual void end(Claim& claim) REQUIRES(store_lock) = 0;
    // Memory was allocated. Keeps a reserve free. From any thread.
    virtual void allocated(DeviceIndex device) = 0;
};

class Allocator {
public:
    Allocator(Scheduler& scheduler, Devices& devices, Departures& departures)
        : scheduler_(scheduler), devices_(devices), departures_(departures) {}

    using Done = std::move_only_function<void(Result<std::shared_ptr<Extent>>)>;
    // `done` is called in the loop.
    void allocate(const AllocationRequest& request, Done done) REQUIRES(store_lock);
    // The same in a thread that holds no gate.
    Result<std::shared_ptr<Extent>> allocate_blocking(const AllocationRequest& request) EXCLUDES(store_lock);
    // Waits for nothing but the reclaimer. From any thread but the loop's and the reclaimer's, also with a gate held.
    Result<std::shared_ptr<Extent>> attempt(DeviceIndex device, uint64_t bytes, const AllocateOptions& options,
                                            SessionId maps = 0) EXCLUDES(store_lock);
    // Never waits, for use in the loop: small sizes, on a device with host memory.
    Result<std::shared_ptr<Extent>> attempt_at_once(DeviceIndex device, uint64_t bytes, const AllocateOptions& options);

    // Repeats an operation that fails with ENOSPC, like an allocation. From a thread that holds no gate. on_wait(true)
    // is called before the first wait, and prevents it by returning false. on_wait(false) is called after the last
    // wait.
    using OnWait = std::function<bool(bool)>;
    // bytes: that the operation needs, roughly; 0: not known.
    Status retry(DeviceIndex device, NodeId waiting, const std::function<Status()>& operation, const OnWait& on_wait,
                 uint64_t bytes = 0) EXCLUDES(store_lock);
    // Waits while much memory, compared with the free bytes, is being freed. From a thread that holds no gate.
    void wait_for_departures(DeviceIndex device, NodeId waiting, uid_t uid, const std::function<uint64_t()>& free_bytes)
        EXCLUDES(store_lock);

    Departures& departures() { return departures_; }
    // Before the first allocation.
    void set_room_maker(RoomMaker* maker) { room_maker_ = maker; }

private:
    class InLoop;
    Result<std::shared_ptr<Extent>> attempt_anyhow(DeviceIndex device, uint64_t bytes, const AllocateOptions& options,
                                                   SessionId maps) EXCLUDES(store_lock);
    bool may_reuse(DeviceIndex device, const AllocateOptions& options);
    void wait_for_pile(const AllocationRequest& request) EXCLUDES(store_lock);
    Status run(RoomMaker::Claim claim, NodeId waiting, AllocationSteps steps,
               const std::function<Status(uint64_t bytes)>& attempt, const OnWait& on_wait) EXCLUDES(store_lock);
    bool make_room(RoomMaker::Claim& claim) REQUIRES(store_lock);
    bool is_making_room(const RoomMaker::Claim& claim) const REQUIRES(store_lock);
    // Ends the claim, and completes the error of a request that was refused.
    void end_claim(RoomMaker::Claim& claim, Status& status) REQUIRES(store_lock);
    void report(DeviceIndex device, const Error& error);

    Scheduler& scheduler_;
    Devices& devices_;
    Departures& departures_;
    RoomMaker* room_maker_ = nullptr;  // null: no object may leave a device for lack of memory
};

}  // namespace gshm::core
