// Places objects in extents: small ones in slabs, larger ones in extents of their own. A process that imports an extent
// reaches all of it, so a slab is shared only by objects of the same owner, rights and device.
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
    std::string reach;  // the directories above it that restrict access; see Tree::reach()

    auto operator<=>(const SlabKey&) const = default;

    // Slabs of small files of the mount. No process gets a descriptor or a handle of them, so the files may have any
    // owner and rights. A file gets memory of its own before a process maps it.
    static SlabKey unmapped(DeviceIndex device, bool compressible) {
        return {device, 0, 0, 0, compressible, "unmapped"};
    }
    bool is_unmapped() const { return reach == "unmapped"; }
};

struct SlabGroup;

struct StoredExtent {
    ExtentId id = 0;   // for clients; a new one after it has grown; never reused
    uint64_t key = 0;  // for the keeper and the catalog; does not change; never reused
    DeviceIndex device = 0;
    uint64_t size_bytes = 0;   // of a file: as of the last refresh
    uint64_t shown_bytes = 0;  // the size that clients have been told
    bool compressible = false;
    std::shared_ptr<Extent> memory;
    uint32_t objects = 0;
    SlabGroup* slab_group = nullptr;  // null: dedicated
    bool unmapped = false;            // a slab that no process maps; see SlabKey::unmapped()
    bool closed = false;              // a slab that only its owner and root map, and that gets no further objects
    bool protects = false;  // a slab: while it has sealed objects, no further session gets a writable descriptor
    uint32_t sealed = 0;    // number of sealed objects
    std::vector<SessionId> writers;  // sessions that have got a writable descriptor, if it protects
    bool spoilt = false;             // a slab with a range that could not be zeroed
    bool unrecorded = false;         // changed since it was last recorded
    bool kept = false;               // the keeper has been given its descriptor, unless lost_at_end
    bool lost_at_end = false;        // it has no descriptor for the keeper, and ends with the process
    // Clients that have got a descriptor or a handle. Neither can be revoked.
    SessionId reached_by = 0;        // the first session; 0: none
    bool reached_by_others = false;  // by a second session, a handle, an exported descriptor, or before a restart
    uid_t uid = 0;                   // of the last object in it
    bool handle_given = false;       // processes that are unknown to gshmd may have imported its fabric handle
    uint64_t row_sum = 0;            // the checksum of its row in the catalog; 0: no row
    std::optional<Slab> slab;
    Budgets::Charge descriptors;  // of its user, for its memory

    bool is_read_only() const { return protects && sealed > 0; }
};

// The slabs of one key. Those that are not closed are in sets by their largest free range, so that the fullest slab
// with room is used.
struct SlabGroup {
    using ByRoom = std::set<std::pair<uint64_t, StoredExtent*>>;

    SlabKey key;
    ByRoom by_room;    // for all sessions
    ByRoom read_only;  // with sealed objects: for objects that no session maps, and for their writers
    std::unordered_map<SessionId, ByRoom> by_writer;  // the slabs of `read_only`, by writer
    size_t slabs = 0;
    uint64_t next_size_bytes = 0;
};

// The extent that must be allocated before an object can be placed.
struct ExtentNeed {
    DeviceIndex device = 0;
    uint64_t size_bytes = 0;  // any size for a file (DeviceInfo::files), else a multiple of the granularity
    uint64_t min_bytes = 0;   // enough if the device has less than size_bytes free
    bool compressible = false;
    std::optional<SlabKey> slab;
    bool protects = false;  // see StoredExtent
    uid_t uid = 0;          // of the object
    bool fixed = false;     // no file, which its holder could make larger
};

// The last use of freed memory.
struct FormerUse {
    uid_t uid = 0;  // of its last object
    bool dedicated = false;
    bool compressible = false;
    SessionId reached_by = 0;  // see StoredExtent
    bool reached_by_others = false;
};

// Zeroes and frees memory, which takes time. The daemon does it in threads, tests at once.
class Reclaimer {
public:
    virtual ~Reclaimer() = default;
    // Zeroes the range, then calls Extents::zeroed(id, offset, bytes).
    virtual void zero(DeviceIndex device, ExtentId id, std::shared_ptr<Extent> memory, uint64_t offset, uint64_t bytes,
                      uid_t uid) = 0;
    virtual void release(DeviceIndex device, std::shared_ptr<Extent> memory, const FormerUse& former) = 0;
    // Removes a file of a tier's folder.
    virtual void remove_stored(uint64_t /*file*/) {}
};

// Not thread-safe, as all of the store.
class Extents {
public:
    Extents(Reclaimer& reclaimer, Budgets& budgets) : reclaimer_(reclaimer), budgets_(budgets) {}

    // The session that maps a new object, and the bytes of all small objects of the same request.
    struct Writer {
        SessionId session = 0;
        uint64_t batch_bytes = 0;
    };
    // A place for a small object, or the slab that must be added first. Without a writer no session maps the object.
    std::variant<Place, ExtentNeed> place_small(const SlabKey& key, uint64_t bytes, const DeviceInfo& device,
                                                const std::optional<Writer>& writer);
    // Called before the session gets a writable descriptor of the slab.
    void add_writer(StoredExtent* extent, SessionId session);
    void remove_writer(ExtentId id, SessionId session);
    // Called after an object in it was sealed.
    void note_sealed(StoredExtent* extent);
    // Adds memory that was allocated for a need.
    StoredExtent* add(const ExtentNeed& need, std::shared_ptr<Extent> memory);
    // EMFILE: the user has too many descriptors for a further extent whose memory is no file.
    Status check_descriptors(uid_t uid) const;
    // Counts its descriptors for the user, once. Called by add().
    void count(StoredExtent& extent, uid_t uid);
    StoredExtent* find(ExtentId id);
    void renew_id(StoredExtent* extent);
    // Called before a session gets a descriptor of it.
    static void reach(StoredExtent* extent, SessionId session);
    // Called before a process gets a descriptor that it may pass on: the processes that reach the memory are then
    // unknown.
    static void reach_anywhere(StoredExtent* extent) { extent->reached_by_others = true; }
    // Called before its fabric handle is given out.
    void give_handle(StoredExtent* extent);
    // Called when the owner has stated that no process has imported its fabric handle.
    void forget_handle(StoredExtent* extent);
    // From now on clients are told its present size.
    void show(StoredExtent* extent);
    void close_slab(StoredExtent* extent);
    void attach(const Place& place) { ++place.extent->objects; }
    // A place that bytes are copied to counts as that of an object, until unreserve() or detach().
    static void reserve(const Place& place) { ++place.extent->objects; }
    static void unreserve(const Place& place) { --place.extent->objects; }
    // Frees the place of an object. The bytes are zeroed before they are used again.
    void detach(const Place& place, uint64_t bytes, bool sealed, uid_t uid);
    // Frees an extent whose object was then not created, or placed elsewhere.
    void drop_if_unused(ExtentId id);
    void zeroed(ExtentId id, uint64_t offset, uint64_t bytes);
    // Called when a range could not be zeroed: it is never used again, and the slab is freed with its last object.
    void not_zeroed(ExtentId id);
    // Frees the empty slabs that are kept for further objects.
    void trim(DeviceIndex device);

    size_t count() const { return extents_.size(); }
    std::vector<StoredExtent*> all() const;
    Reclaimer& reclaimer() { return reclaimer_; }
    void set_recorder(Recorder* recorder) { recorder_ = recorder; }
    void set_ledger(Ledger* ledger) {
        ids_.use(ledger, Numbered::extent);
        keys_.use(ledger, Numbered::extent_key);
    }

private:
    friend class Restorer;
    void changed(StoredExtent* extent);
    void erase(StoredExtent* extent);
    // Changes the free ranges, sealed objects or writers of a slab, and keeps the sets of its group up to date.
    void change_slab(StoredExtent* extent, auto change);
    static void enlist(StoredExtent* extent, bool listed);
    static uint64_t exclusive_bytes(const SlabGroup::ByRoom* own, const Writer& writer);

    // Keeps an empty slab, and frees an older one of its user if that has too many.
    void keep_empty(StoredExtent* extent);

    Reclaimer& reclaimer_;
    Budgets& budgets_;
    Recorder* recorder_ = nullptr;
    Numbers ids_;
    Numbers keys_;
    std::unordered_map<ExtentId, std::unique_ptr<StoredExtent>> extents_;
    std::map<SlabKey, SlabGroup> slab_groups_;
    std::unordered_map<uid_t, std::vector<ExtentId>> kept_empty_;  // the oldest first; some have objects again
};

}  // namespace gshm::core
