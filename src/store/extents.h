// Where objects are placed: small ones in slabs, which only objects of the same owner, rights and device share,
// since whoever can import an extent can reach all of it; larger ones in extents of their own.
#pragma once

#include <compare>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "device/device.h"
#include "store/node.h"
#include "store/slab.h"

namespace gshm::core {

// Objects with equal keys may be in one slab.
struct SlabKey {
    DeviceIndex device = 0;
    uid_t uid = 0;
    gid_t gid = 0;
    uint16_t mode = 0;
    bool compressible = false;
    std::string reach;  // the directories that keep people out on the way to it; see Tree::reach()

    auto operator<=>(const SlabKey&) const = default;
};

struct SlabGroup;

struct StoredExtent {
    ExtentId id = 0;   // as clients know it; another one when it has grown, and none that was used before
    uint64_t key = 0;  // as it is kept, for as long as it is there; never used again
    DeviceIndex device = 0;
    uint64_t size_bytes = 0;   // of a file: when it was last looked at
    uint64_t shown_bytes = 0;  // the size that clients know it by
    bool compressible = false;
    std::shared_ptr<Extent> memory;
    uint32_t objects = 0;
    SlabGroup* pool = nullptr;  // null: dedicated
    bool closed = false;       // a slab that is for its owner alone, and takes in no further objects
    bool protects = false;     // a slab whose sealed objects no further session gets a writable descriptor of
    uint32_t sealed = 0;       // of its objects
    std::vector<SessionId> writers;  // sessions that were given a writable descriptor, if it protects
    bool spoilt = false;       // a slab with a range that could not be zeroed
    bool unrecorded = false;   // changed since it was last written down
    bool kept = false;         // the keeper was given its descriptor
    bool lost_at_end = false;  // it could not be given to anybody, and ends with the process
    // Clients that got a descriptor or a handle. They may keep it, and it cannot be revoked.
    SessionId reached_by = 0;        // the first session; 0: none
    bool reached_by_others = false;  // by a second session, a handle, an exported descriptor, or before a restart
    uid_t uid = 0;                   // of the last object in it
    bool handle_given = false;  // processes that gshmd does not know of may have imported its fabric handle
    uint64_t row_sum = 0;      // the checksum of what is written down of it; 0: nothing is
    std::optional<Slab> slab;

    bool is_read_only() const { return protects && sealed > 0; }
};

// The slabs of one key that are not closed. By free space, so that the fullest one that has room is used.
struct SlabGroup {
    using ByRoom = std::set<std::pair<uint64_t, StoredExtent*>>;

    SlabKey key;
    ByRoom by_room;    // for everybody
    ByRoom read_only;  // with sealed objects: for objects that nobody maps, and for its writers
    std::unordered_map<SessionId, ByRoom> by_writer;  // those of `read_only`
    size_t slabs = 0;
    uint64_t next_size_bytes = 0;
};

// What the store must be given before an object can be placed.
struct ExtentNeed {
    DeviceIndex device = 0;
    uint64_t size_bytes = 0;   // of a file (DeviceInfo::files) any, else a multiple of the granularity
    uint64_t min_bytes = 0;  // what would do, where the device has not that much left
    bool compressible = false;
    std::optional<SlabKey> slab;
    bool protects = false;  // see StoredExtent
    uid_t uid = 0;          // of the object that it is for
};

// How memory that has been freed was used.
struct FormerUse {
    uid_t uid = 0;  // of its last object
    bool dedicated = false;
    bool compressible = false;
    SessionId reached_by = 0;  // see StoredExtent
    bool reached_by_others = false;
};

// Does what takes time, and need not happen at once. The daemon hands it to a thread; tests do it on the spot.
class Reclaimer {
public:
    virtual ~Reclaimer() = default;
    // Fill the range with zeros, then call Extents::zeroed(id, offset, bytes).
    virtual void zero(DeviceIndex device, ExtentId id, std::shared_ptr<Extent> memory, uint64_t offset,
                      uint64_t bytes, uid_t uid) = 0;
    virtual void release(DeviceIndex device, std::shared_ptr<Extent> memory, const FormerUse& former) = 0;
};

// Not thread-safe, as all of the store.
class Extents {
public:
    explicit Extents(Reclaimer& reclaimer) : reclaimer_(reclaimer) {}

    // The session that is to map a new object, and the bytes of the small objects that it asks for together with it.
    struct Writer {
        SessionId session = 0;
        uint64_t batch_bytes = 0;
    };
    // A place for a small object, or what is missing. Without a writer nobody is to map it.
    std::variant<Place, ExtentNeed> place_small(const SlabKey& key, uint64_t bytes, const DeviceInfo& device,
                                                const std::optional<Writer>& writer);
    // The session gets a writable descriptor of the slab.
    void add_writer(StoredExtent* extent, SessionId session);
    void remove_writer(ExtentId id, SessionId session);
    // An object of it was sealed.
    void note_sealed(StoredExtent* extent);
    // Takes in memory that was allocated for a need.
    StoredExtent* add(const ExtentNeed& need, std::shared_ptr<Extent> memory);
    StoredExtent* find(ExtentId id);
    void renew_id(StoredExtent* extent);
    // Before a descriptor of it is given to a session.
    static void reach(StoredExtent* extent, SessionId session);
    // Before one is given to a process that may hand it on: it is not known any more where the memory can be reached.
    static void reach_anywhere(StoredExtent* extent) { extent->reached_by_others = true; }
    // Before a fabric handle of it is given out.
    void give_handle(StoredExtent* extent);
    // Its owner says that no process has imported it by a handle.
    void forget_handle(StoredExtent* extent);
    // The size that clients are told from now on.
    void show(StoredExtent* extent);
    void close_slab(StoredExtent* extent);
    void attach(const Place& place) { ++place.extent->objects; }
    // A place that bytes are being copied to stays as if an object had it, until attach() or detach().
    static void reserve(const Place& place) { ++place.extent->objects; }
    static void unreserve(const Place& place) { --place.extent->objects; }
    // The object is gone: its bytes go back, zeroed before anyone gets them.
    void detach(const Place& place, uint64_t bytes, bool sealed, uid_t uid);
    // An extent that was added for an object that then was not made, or was made elsewhere.
    void drop_if_unused(ExtentId id);
    void zeroed(ExtentId id, uint64_t offset, uint64_t bytes);
    // A range could not be zeroed: it is never handed out again, and the slab goes with its last object.
    void not_zeroed(ExtentId id);
    // Frees the empty slabs that are kept for the next object.
    void trim(DeviceIndex device);

    size_t count() const { return extents_.size(); }
    std::vector<StoredExtent*> all() const;
    void set_recorder(Recorder* recorder) { recorder_ = recorder; }
    void set_ledger(Ledger* ledger) {
        ids_.use(ledger, Numbered::extent);
        keys_.use(ledger, Numbered::extent_key);
    }

private:
    friend class Restorer;
    void changed(StoredExtent* extent);
    void erase(StoredExtent* extent);
    // Changes what decides who may use a slab, while its pool's sets are kept true.
    void change_slab(StoredExtent* extent, auto change);
    static void enlist(StoredExtent* extent, bool listed);
    static uint64_t exclusive_bytes(const SlabGroup::ByRoom* own, const Writer& writer);

    Reclaimer& reclaimer_;
    Recorder* recorder_ = nullptr;
    Numbers ids_;
    Numbers keys_;
    std::unordered_map<ExtentId, std::unique_ptr<StoredExtent>> extents_;
    std::map<SlabKey, SlabGroup> pools_;
};

}  // namespace gshm::core
