// Moves evictable objects from full devices into tiers, and back when they are used: docs/tiers.md, ADR 25. The tiers are
// host memory and a folder on disk, either or both.
//
// An eviction and a return copy the bytes with the object's gate held, shared if they cannot change. When the copy is
// complete, the object is checked again under the store lock: an object that was used meanwhile stays where it was. The
// old memory, or the old file, is freed after the catalog has recorded the new place, so that a kill at any moment
// leaves the bytes in the place that the catalog names.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/worker.h"
#include "memory/allocate.h"
#include "memory/bulk_copy.h"
#include "memory/tier_folder.h"
#include "store/evictables.h"
#include "store/gate.h"

namespace gshm::core {

class Tiers final : public RoomMaker {
public:
    struct Settings {
        std::optional<DeviceIndex> host;  // the device `host`
        uint64_t host_bytes = 0;          // that objects of other devices may have there
        std::unique_ptr<TierFolder> folder;
        unsigned free_percent = 0;  // of each device that has evictable objects, and of the tier `host`, kept free
    };
    // As TierRecord.
    struct State {
        std::string name;
        uint64_t capacity_bytes = 0;
        uint64_t used_bytes = 0;
        uint64_t objects = 0;
        bool keep = false;
        std::string failure;
    };
    // Writes the changes of the store to the catalog.
    using Commit = std::function<Status()>;

    // gpu: for copies, see BulkCopy.
    Tiers(Scheduler& scheduler, Devices& devices, Allocator& allocator, Store& store, Device* gpu, Commit commit);
    ~Tiers() override;

    // Once, before objects are served. Without it, objects return from host memory, and none is evicted.
    void use(Settings settings) REQUIRES(store_lock);
    // Takes effect at once.
    void set_free_percent(unsigned percent) REQUIRES(store_lock);
    // The reserve of a device has changed: objects may have to leave.
    void reserve_changed() REQUIRES(store_lock);
    bool has_tier() const REQUIRES_SHARED(store_lock) { return settings_.host || settings_.folder; }
    // Whether objects can leave the device: those of the host have the folder alone.
    bool takes_from(DeviceIndex device) const REQUIRES_SHARED(store_lock) {
        return settings_.folder || (settings_.host && *settings_.host != device);
    }
    TierFolder* folder() const REQUIRES_SHARED(store_lock) { return settings_.folder.get(); }
    std::vector<State> states() const REQUIRES(store_lock);

    using Done = std::move_only_function<void(Status)>;
    // Brings an evicted object back to its device; others leave for it if needed. Several callers share one return. Calls
    // `done` in the loop.
    void bring_back(Object& object, Done done) REQUIRES(store_lock);
    // The same in a thread that has pinned the object and holds no gate.
    Status bring_back_blocking(Object& object) EXCLUDES(store_lock);
    // Moves an object into the first tier with room, whether it is evictable or not. EBUSY: it is used. Calls `done` in
    // the loop.
    void demote(Object& object, Done done) REQUIRES(store_lock);
    // Waits until no eviction and no return is under way. Those that have not begun fail.
    void stop() EXCLUDES(store_lock);

    // ---- RoomMaker ----
    bool make_room(Claim& claim) override REQUIRES(store_lock);
    bool is_making_room(const Claim& claim) const override REQUIRES(store_lock) {
        return of_[claim.device].leaving > 0;
    }
    std::string why_full(const Claim& claim) const override REQUIRES(store_lock);
    void end(Claim& claim) override REQUIRES(store_lock);
    void allocated(DeviceIndex device) override;

private:
    // The objects of one job, pinned, with a ticket of the Departures.
    struct Leaving {
        DeviceIndex device = 0;
        uint64_t bytes = 0;
        std::vector<Object*> objects;
        bool is_slab = false;
        bool for_return = false;
        Departures::Ticket ticket = 0;
    };
    // For new objects, or for those that return. The tiers have more room for what leaves for the latter.
    struct Room {
        uint64_t wanted_bytes = 0;   // by requests that were refused
        uint64_t leaving_bytes = 0;  // by jobs
        uint64_t failures = 0;       // jobs that ended for lack of a tier with room
    };
    struct OfDevice {
        Room rooms[2];               // [1]: for objects that return
        size_t leaving = 0;          // jobs
        std::string why;             // the last one failed
        uint64_t seen_failures = 0;  // by the looks of each second
        unsigned pause = 0;          // seconds between them while tiers fail
        unsigned paused = 0;         // of which have passed
    };
    // What must be the same before and after a copy.
    struct Seen {
        StoredExtent* extent = nullptr;
        uint64_t stored = 0;
        uint64_t size_bytes = 0;
        uint32_t write_opens = 0;
        int64_t used_ns = 0;
    };
    enum class Reason { eviction, request };

    // Starts jobs for at least that many bytes, if so many can leave. briefly: looks at a part of a long queue only.
    void evict(DeviceIndex device, uint64_t bytes, bool for_return, bool briefly = false) REQUIRES(store_lock);
    std::optional<Leaving> choose(DeviceIndex device, uint64_t bytes, bool from_tier, bool for_return,
                                  bool briefly = false) REQUIRES(store_lock);
    void run(Leaving leaving) EXCLUDES(store_lock);
    // Ends the job: the pins, the ticket.
    void finish(const Leaving& leaving, const Status& failed) REQUIRES(store_lock);
    void warn_of_full(DeviceIndex device, const Error& error) REQUIRES(store_lock);
    // for_return: for an object that returns. The tiers then have room for as much as such objects have in them.
    Status leave(Object& object, Reason reason, bool for_return) EXCLUDES(store_lock);
    Status to_host(Object& object, Gate& gate, Reason reason, bool for_return) EXCLUDES(store_lock);
    Status to_folder(Object& object, Gate& gate, Reason reason, bool for_return) EXCLUDES(store_lock);
    Status check_leaving(const Object& object, const Seen& seen, Reason reason) const REQUIRES(store_lock);
    // Reserves room in the tier `host`; older objects there go on to the folder for it.
    Status reserve_host(uint64_t bytes, bool for_return) EXCLUDES(store_lock);
    Status return_object(Object& object) EXCLUDES(store_lock);
    void keep_free(DeviceIndex device) EXCLUDES(store_lock);
    // Really free, and kept for the next objects.
    uint64_t free_for_objects(DeviceIndex device) EXCLUDES(store_lock);
    // Every second while objects may be evicted, since other programs take memory without a word.
    void begin_looking() REQUIRES(store_lock);
    void look() REQUIRES(store_lock);
    bool pauses(OfDevice& of) REQUIRES(store_lock);
    uint64_t host_used() const REQUIRES(store_lock);

    class Returning;
    // A destination: a reserved place in a slab, or memory of its own.
    struct Target {
        Place place;
        std::shared_ptr<Extent> memory;
        ExtentNeed need;
        uint64_t bytes = 0;  // the size of the object
    };
    Result<Target> allocate(Object& object, DeviceIndex device, bool waits) EXCLUDES(store_lock);
    // What leaves for the object may find the tiers full because of what leaves for others that return. It is tried
    // again when one of them has returned.
    Result<Target> allocate_for_return(Object& object, DeviceIndex home) EXCLUDES(store_lock);
    // Waits until more than `ended` returns have ended. False: all that are under way wait here.
    bool another_returns(uint64_t ended) EXCLUDES(store_lock);
    void give_back(Object& object, Target& target) EXCLUDES(store_lock);
    Seen see(const Object& object) const REQUIRES(store_lock);
    bool is_ending() const { return stopped_.load(std::memory_order_relaxed); }
    // An error of a copy may mean that the GPU is lost.
    void report(DeviceIndex gpu, const Status& copied);

    Scheduler& scheduler_;
    Devices& devices_;
    Allocator& allocator_;
    Store& store_ GUARDED_BY(store_lock);
    BulkCopy bulk_;
    const Commit commit_;
    Settings settings_ GUARDED_BY(store_lock);
    std::vector<OfDevice> of_ GUARDED_BY(store_lock);
    uint64_t host_reserved_ GUARDED_BY(store_lock) = 0;  // by evictions under way
    // Of objects that are returning now, in the tier `host` and in the folder.
    uint64_t returning_from_host_ GUARDED_BY(store_lock) = 0;
    uint64_t returning_from_folder_ GUARDED_BY(store_lock) = 0;
    // Returns under way, those of them that wait for another, and those that have ended.
    size_t returns_ GUARDED_BY(store_lock) = 0;
    size_t waiting_returns_ GUARDED_BY(store_lock) = 0;
    uint64_t ended_returns_ GUARDED_BY(store_lock) = 0;
    Scheduler::Time warned_ GUARDED_BY(store_lock);  // of full tiers
    std::unordered_map<NodeId, std::vector<Done>> returning_ GUARDED_BY(store_lock);
    // Devices whose free memory is being looked at.
    std::vector<std::atomic<bool>> looking_;
    std::atomic<bool> watches_ = false;
    std::optional<Scheduler::TimerId> timer_ GUARDED_BY(store_lock);
    std::atomic<bool> stopped_ = false;
    // Made when they are needed.
    std::unique_ptr<Worker> evictors_;
    std::unique_ptr<Worker> returners_;
    Mutex watcher_mutex_;
    std::unique_ptr<Worker> watcher_ GUARDED_BY(watcher_mutex_);  // null after stop()
};

}  // namespace gshm::core
