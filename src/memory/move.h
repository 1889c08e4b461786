// Gives an object other memory: larger or smaller, out of a slab, with its own handle, or on another device. The bytes
// are copied while the object's gate is held, shared if they cannot be written. Sessions that map the old memory keep
// it, or the move is refused.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/worker.h"
#include "memory/allocate.h"
#include "store/gate.h"

namespace gshm::core {

class Mover {
public:
    Mover(Scheduler& scheduler, Devices& devices, Allocator& allocator, Store& store)
        : scheduler_(scheduler), devices_(devices), allocator_(allocator), store_(store) {}

    // ---- dedicated memory on the same device; sessions keep their mappings ----
    struct Resize {
        uint64_t capacity_bytes = 0;  // minimum capacity of the memory; in a slab exactly the size
        uint64_t kept_bytes = 0;      // copied from the beginning
        uint64_t size_bytes = 0;      // of the object after the resize
        bool for_tidiness = false;    // cancelled (ECANCELED) when the object loses its last name
        bool unless_opened =
            false;               // cancelled (ECANCELED) when a client opens it meanwhile: it would keep the old memory
        bool may_share = false;  // a place in a slab is enough, see Store::may_share()
        bool fixed = false;      // no file, which a holder could make larger
    };
    // From a thread that has pinned the object and holds its gate exclusively. Does not wait for
    // memory of other objects: see Allocator::retry().
    Status resize(Object& object, Gate& gate, const Resize& wanted) EXCLUDES(store_lock);
    // Objects in slabs that no process maps get memory of their own, before a process maps them. Those in closed slabs
    // move to a slab of objects with the same rights, or get memory of their own, before a process maps them that may
    // not map the closed one. Files that a process could make larger than a limit allows
    // (AccountLimits::may_outgrow()) get memory of their own if none has them open. Calls `done` in the loop, with the
    // errors of the objects that stay.
    using OwnDone = std::move_only_function<void(std::unordered_map<NodeId, Error> failed)>;
    void give_own_memory(std::vector<Object*> objects, OwnDone done) REQUIRES(store_lock);
    // At most 1 MiB, on a device with host memory, for an object without work in progress.
    Status leave_slab(Object& object) REQUIRES(store_lock);

    // ---- to another device ----
    // The behaviour if sessions map the object.
    enum class Holders { refuse, keep };
    using Done = std::move_only_function<void(Status)>;
    // Calls `done` in the loop, or at once, when the catalog is to be written. The object keeps its id, names,
    // state, attributes and times, except the time of its last change.
    void move(Object& object, DeviceIndex to, Holders holders, Done done) REQUIRES(store_lock);
    // Returns when no move is under way. Moves that have not begun fail.
    void stop() EXCLUDES(store_lock);

private:
    struct Job {
        Object* object = nullptr;
        std::shared_ptr<Gate> gate;
        DeviceIndex to = 0;
        bool keep = false;
    };
    // The destination of the bytes. Freed unless the object takes it.
    struct Target {
        Place place;                     // in a slab; without an extent: dedicated
        std::shared_ptr<Extent> memory;  // in both cases
        uint64_t bytes = 0;
        ExtentNeed need;
    };
    Status run(const Job& job) EXCLUDES(store_lock);
    Status resize_in_slab(Object& object, Gate& gate, const Resize& wanted) EXCLUDES(store_lock);
    Result<Place> place_in_slab(Object& object, DeviceIndex device, uint64_t size_bytes) EXCLUDES(store_lock);
    Status give_own_memory(Object& object, Gate& gate) EXCLUDES(store_lock);
    Status leave_closed_slab(Object& object, std::shared_ptr<Gate> gate) EXCLUDES(store_lock);
    Result<Target> allocate(const Job& job) EXCLUDES(store_lock);
    void give_back(const Job& job, Target& target) EXCLUDES(store_lock);
    Status copy(const Job& job, const Target& target, Extent& source, uint64_t offset) EXCLUDES(store_lock);
    AllocateOptions options(const Device& device, bool compressible) const;

    Scheduler& scheduler_;
    Devices& devices_;
    Allocator& allocator_;
    Store& store_ GUARDED_BY(store_lock);
    std::unique_ptr<Worker> worker_ = std::make_unique<Worker>();
};

}  // namespace gshm::core
