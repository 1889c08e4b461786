// Memory that is on its way out of a device. A device that says it is full has room soon while there is some: extents
// that the reclaimer has not freed yet, files of which two copies exist while their bytes move, and files without a name
// whose last close or forget the kernel has queued. All calls in the loop's turn, unless it is said otherwise.
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
    // The longest wait for a file without a name: a process may have it open for as long as it likes. Each such file is
    // waited for once.
    static constexpr std::chrono::seconds kNamelessPatience{1};

    Departures(Scheduler& scheduler, Store& store) : scheduler_(scheduler), store_(store), devices_(store.devices().size()) {}

    // Memory of so many bytes is about to be freed, until end(). What a move frees may be on its way for a further while
    // then.
    enum class Kind { reclaim, move };
    using Ticket = uint64_t;
    Ticket begin(DeviceIndex device, Kind kind, uint64_t bytes, uid_t uid);
    void end(DeviceIndex device, Ticket ticket, bool freed = true);
    // Memory was freed at once.
    void freed(DeviceIndex device);
    // Compared with the free bytes of the device, there are many on their way out (of these some are counted as free
    // already); or the user's are piling up.
    bool is_worth_waiting(DeviceIndex device, uint64_t free_bytes, uid_t uid) const;

    // Memory that a user has freed piles up where the reclaiming thread gets less time than the user. A pile is too high
    // for a new object if it has more than kPileBytes, and more than the user's objects on the device and the new one
    // together.
    static constexpr uint64_t kPileBytes = uint64_t{64} << 20;
    uint64_t pile_bytes(DeviceIndex device, uid_t uid) const;
    bool is_piled(DeviceIndex device, uid_t uid, uint64_t new_bytes) const;
    // `done` is called in the loop when the pile is not too high any more, or after kPatience.
    void wait_for_pile(DeviceIndex device, uid_t uid, uint64_t new_bytes, Scheduler::Task done);

    // The wait of one request that a full device has refused. It waits for what is on its way when it begins, and for
    // what that brings about; not for what others free later.
    class Wait;
    // Frees the empty slabs of the device. waiting: the object that needs the memory; 0: a new one.
    std::shared_ptr<Wait> wait(DeviceIndex device, NodeId waiting);
    // `done` is called in the loop: true when memory was freed since the last call, false when there is
    // nothing left to wait for.
    using Done = std::move_only_function<void(bool freed)>;
    void next(std::shared_ptr<Wait> wait, Done done);
    // The same wait in a thread, which is not the loop's and holds neither its turn nor a gate: the memory may have to
    // pass that.
    class Blocking;
    // How many requests wait now.
    size_t waiting() const { return waits_.size() + pile_waits_.size(); }
    // Ends all waits, and those that are begun until it is called with false.
    void set_given_up(bool given_up);
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
        std::unordered_map<uid_t, uint64_t> piles;  // bytes of reclaims
        uint64_t freed = 0;  // how often memory was
    };
    struct PileWait {
        DeviceIndex device;
        uid_t uid;
        uint64_t new_bytes;
        Scheduler::Time deadline;
        Scheduler::Task done;
    };
    bool is_over(Wait& wait);
    void look();
    void look_at_piles();
    void look_later();

    Scheduler& scheduler_;
    Store& store_;
    std::vector<OfDevice> devices_;
    Ticket next_ticket_ = 1;
    std::list<std::shared_ptr<Wait>> waits_;  // with a `done`
    std::list<PileWait> pile_waits_;
    std::atomic<bool> given_up_ = false;
};

class Departures::Blocking {
public:
    Blocking(Scheduler& scheduler, Departures& departures, DeviceIndex device, NodeId waiting)
        : scheduler_(scheduler), departures_(departures), device_(device), waiting_(waiting) {}
    // False: nothing is left to wait for.
    bool next();

private:
    Scheduler& scheduler_;
    Departures& departures_;
    DeviceIndex device_;
    NodeId waiting_;
    std::shared_ptr<std::shared_ptr<Wait>> wait_ = std::make_shared<std::shared_ptr<Wait>>();
};

}  // namespace gshm::core
