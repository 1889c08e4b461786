// Other memory for an object that stays the same: more of it or less, out of a slab, with a handle of its own, or on
// another device. The bytes are copied while the object's gate is held, shared where nobody can write to them. Sessions
// that map the old memory keep it, or the move is refused.
#pragma once

#include <functional>
#include <memory>

#include "base/worker.h"
#include "memory/allocate.h"
#include "store/gate.h"

namespace gshm::core {

class Mover {
public:
    Mover(Scheduler& scheduler, Devices& devices, Allocator& allocator, Store& store)
        : scheduler_(scheduler), devices_(devices), allocator_(allocator), store_(store) {}

    // ---- memory of its own, on the device where it is; sessions keep what they map ----
    struct Resize {
        uint64_t capacity_bytes = 0;  // of the memory, at least
        uint64_t kept_bytes = 0;      // from the beginning
        uint64_t size_bytes = 0;      // of the object afterwards
        bool for_tidiness = false;    // given up (ECANCELED) when the object loses its last name
    };
    // In a thread that has pinned the object and holds its gate alone, and not in its turn. Does not wait for memory of
    // others: see Allocator::retry().
    Status resize(Object& object, Gate& gate, const Resize& wanted);
    // In the loop: at most 1 MiB, of a device whose memory is the processor's, of an object that nobody works on.
    Status leave_slab(Object& object);

    // ---- to another device ----
    // What becomes of a move if sessions map the object.
    enum class Holders { refuse, keep };
    using Done = std::move_only_function<void(Status)>;
    // In the loop, and `done` is called there; the catalog is to be written then. The object keeps its id, names, state,
    // attributes and times, but for the time of its last change.
    void move(Object& object, DeviceIndex to, Holders holders, Done done);
    // Returns when no move is under way; those that were not begun fail. Not in one's turn.
    void stop();

private:
    struct Job {
        Object* object = nullptr;
        std::shared_ptr<Gate> gate;
        DeviceIndex to = 0;
        bool keep = false;
    };
    // Where the bytes go to. Freed unless the object has taken it.
    struct Target {
        Place place;                     // in a slab; without an extent: dedicated
        std::shared_ptr<Extent> memory;  // of either
        uint64_t bytes = 0;
        ExtentNeed need;
    };
    Status run(const Job& job);
    Result<Target> allocate(const Job& job);
    void give_back(const Job& job, Target& target);
    Status copy(const Job& job, const Target& target, Extent& source, uint64_t offset);
    AllocateOptions options(const Device& device, bool compressible) const;

    Scheduler& scheduler_;
    Devices& devices_;
    Allocator& allocator_;
    Store& store_;
    std::unique_ptr<Worker> worker_ = std::make_unique<Worker>();
};

}  // namespace gshm::core
