// Memory that is being freed on a device. While there is some, a full device will have room soon: extents that the
// reclaimer has not freed yet, files with two copies while their bytes move, and files without a name whose last close
// or forget the kernel has queued.
#pragma once

#include <atomic>
#include <chrono>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "memory/scheduler.h"
#include "store/store.h"

namespace gshm::core {

class Departures {
public:
    // The longest wait of a request.
    static constexpr std::chrono::seconds kPatience{3};
    // The longest wait for a file without a name, since a process may keep it open indefinitely. Each such file is
    // waited for once.
    static constexpr std::chrono::seconds kNamelessPatience{1};

    Departures(Scheduler& scheduler, Store& store)
        : scheduler_(scheduler), store_(store), devices_(store.devices().size()) {}

    // Announces that memory will be freed, until end(). The memory of a move may then go to the reclaimer.
    enum class Kind { reclaim, move };
    using Ticket = uint64_t;
    Ticket begin(DeviceIndex device, Kind kind, uint64_t bytes, uid_t uid) REQUIRES(store_lock);
    void end(DeviceIndex device, Ticket ticket, bool freed = true) REQUIRES(store_lock);
    // Records that memory was freed at once.
    void freed(DeviceIndex device) REQUIRES(store_lock);
    // Whether much memory is being freed, compared with the free bytes of the device (which may already include some of
    // it), or the user's freed memory piles up.
    bool is_worth_waiting(DeviceIndex device, uint64_t free_bytes, uid_t uid) const REQUIRES(store_lock);

    // That will be freed, as far as it was announced.
    uint64_t coming_bytes(DeviceIndex device) const REQUIRES(store_lock);

    // The memory that a user has freed piles up if the reclaiming thread gets less CPU time than the user. A pile is
    // too high for a new object if it exceeds both kPileBytes and the sum of the user's objects on the device and the
    // new one.
    static constexpr uint64_t kPileBytes = uint64_t{64} << 20;
    uint64_t pile_bytes(DeviceIndex device, uid_t uid) const REQUIRES(store_lock);
    bool is_piled(DeviceIndex device, uid_t uid, uint64_t new_bytes) const REQUIRES(store_lock);
    // Calls `done` in the loop when the pile is no longer too high, or after kPatience.
    void wait_for_pile(DeviceIndex device, uid_t uid, uint64_t new_bytes, Scheduler::Task done) REQUIRES(store_lock);

    // The wait of a request that a full device has refused. It covers memory that is being freed when the wait begins,
    // and the memory that follows from it. It does not cover memory that others free later.
    class Wait;
    // Frees the empty slabs of the device. waiting: the object that needs the memory; 0: a new one.
    std::shared_ptr<Wait> wait(DeviceIndex device, NodeId waiting) REQUIRES(store_lock);
    // Calls `done` in the loop: with true after memory was freed since the last call, with false when nothing is left
    // to wait for.
    using Done = std::move_only_function<void(bool freed)>;
    void next(std::shared_ptr<Wait> wait, Done done) REQUIRES(store_lock);
    // The same wait in a thread other than the loop's. The thread holds no gate, which the freeing may need.
    class Blocking;
    // The number of waiting requests.
    size_t waiting() const REQUIRES(store_lock) { return waits_.size() + pile_waits_.size(); }
    // Ends all waits. New waits end at once until it is called with false.
    void set_given_up(bool given_up) REQUIRES(store_lock);
    // From any thread.
    bool has_given_up() const { return given_up_.load(std::memory_order_relaxed); }

private:
    struct Departure {
        Kind kind;
        uint64_t bytes;
        uid_t uid;
    };
    struct OfDevice {
        std::map<Ticket, Departure> departures;
        std::unordered_map<uid_t, uint64_t> piles;  // bytes being reclaimed, by user
        uint64_t freed = 0;                         // how often memory was freed
    };
    struct PileWait {
        DeviceIndex device;
        uid_t uid;
        uint64_t new_bytes;
        Scheduler::Time deadline;
        Scheduler::Task done;
    };
    bool is_over(Wait& wait) REQUIRES(store_lock);
    void look() REQUIRES(store_lock);
    void look_at_piles() REQUIRES(store_lock);
    void look_later() REQUIRES(store_lock);

    Scheduler& scheduler_;
    Store& store_ GUARDED_BY(store_lock);
    std::vector<OfDevice> devices_ GUARDED_BY(store_lock);
    Ticket next_ticket_ GUARDED_BY(store_lock) = 1;
    std::list<std::shared_ptr<Wait>> waits_ GUARDED_BY(store_lock);  // those with a `done`
    std::list<PileWait> pile_waits_ GUARDED_BY(store_lock);
    std::atomic<bool> given_up_ = false;
};

class Departures::Blocking {
public:
    Blocking(Scheduler& scheduler, Departures& departures, DeviceIndex device, NodeId waiting)
        : scheduler_(scheduler), departures_(departures), device_(device), waiting_(waiting) {}
    // False: nothing is left to wait for.
    bool next() EXCLUDES(store_lock);

private:
    Scheduler& scheduler_;
    Departures& departures_;
    DeviceIndex device_;
    NodeId waiting_;
    std::shared_ptr<std::shared_ptr<Wait>> wait_ = std::make_shared<std::shared_ptr<Wait>>();
};

}  // namespace gshm::core
