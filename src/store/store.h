// The store: objects, their owners and their leases. Pure logic: no sockets, no threads, no driver calls of its own. A
// call for a client names its session, whose credentials decide. Not thread-safe; for calls under the shared store lock
// see shared.h.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "store/extents.h"
#include "store/ledger.h"
#include "store/operations.h"
#include "store/tree.h"

namespace gshm::core {

class AccountLimits;

// Values as in gshm.h (see node.h).
enum CreateFlag : uint32_t {
    kCreateKeep = 1,
    kCreateCompressible = 2,
    kCreateDedicated = 4,
    kCreateUnnamed = 16,
    kCreateOwner = 32,
    kCreateEmpty = 64,
    kCreateEvictable = 1 << 15,
    kCreateEphemeral = 1 << 18,
    kCreateTtlUnused = 1 << 19,
};
// Of the flags of an object, and reported: never expires, and is never evicted.
inline constexpr uint32_t kPinned = uint32_t{1} << 20;
// Of the flags of an object, not of the interface: a file of the mount, which may be in a slab that no process maps.
inline constexpr uint32_t kMountFile = uint32_t{1} << 16;
// Likewise: by root or the user who runs gshmd, so that it does not count in the owner's pin budget.
inline constexpr uint32_t kPinnedByAdmin = uint32_t{1} << 21;
// An attribute: of a directory for all new objects below it, of an object for itself. See is_set().
inline constexpr std::string_view kEvictableAttribute = "evictable";
inline bool is_set(std::string_view value) {
    return value != "0" && value != "no" && value != "false";
}
inline constexpr uint32_t kUnreportedFlags = kMountFile | kPinnedByAdmin;

struct CreateSpec {
    std::string_view name;
    uint64_t size_bytes = 0;
    DeviceIndex device = 0;
    uint16_t mode = 0600;
    uint32_t flags = 0;
    const Attributes* attributes = nullptr;
    StoredExtent* extent = nullptr;  // of a dedicated object: the extent that was added for its ExtentNeed
    uid_t uid = 0;                   // with kCreateOwner
    gid_t gid = 0;
    bool map = true;            // the session gets a writable descriptor of its memory
    uint64_t batch_bytes = 0;   // of all small objects of the same request; a hint
    int64_t ttl_ns = 0;         // 0: none
    bool default_mode = false;  // instead of `mode`: 0600, or what the directory's default ACL gives
};

// A directory or a symbolic link.
struct MakeSpec {
    std::string_view name;
    NodeKind kind = NodeKind::directory;
    std::string_view target;
    std::optional<DeviceIndex> device;
    uint32_t mode = 0;
    uint32_t flags = 0;  // kCreateKeep, kCreateOwner
    uid_t uid = 0;
    gid_t gid = 0;
};

// Values as in gshm.h (see node.h).
enum ChangeFlag : uint32_t { kChangeMode = 1, kChangeOwner = 2, kChangeKeep = 4 };
// Further changes, which have calls of their own in gshm.h.
inline constexpr uint32_t kChangeTtl = 8;
inline constexpr uint32_t kChangePin = 16;
inline constexpr uint32_t kChangeUnpin = 32;

struct ChangeSpec {
    uint32_t what = 0;  // ChangeFlag
    uint32_t mode = 0;
    uid_t uid = 0;
    gid_t gid = 0;
    int64_t ttl_ns = 0;  // 0: none
    bool ttl_unused = false;
};

struct Holder {
    Credentials who;
    uint32_t leases = 0;
    bool writable = false;
};

// Memory without a name that is still held: that of an unlinked object, or former memory of an object.
struct Unlinked {
    const Object* object = nullptr;
    bool former = false;  // not the object's bytes, but its former memory
    uint64_t size_bytes = 0;
    std::string name;  // the last one, if the session may know it
    std::vector<Holder> holders;
};

class Evictables;
class Lifetimes;

class Store {
public:
    Store(const Clock& clock, Reclaimer& reclaimer, const Credentials& owner, std::vector<DeviceInfo> devices);
    ~Store();

    // Called before all others. Without recorder and ledger nothing outlives the process.
    void set_recorder(Recorder* recorder);
    // Null: the ledger is no longer updated, as if the process had ended.
    Status set_ledger(Ledger* ledger);

    SessionId begin_session(const Credentials& who);
    // From now on the session outlives this process, if its own process does. The secret is needed to resume it.
    struct SessionSecret {
        uint64_t words[2] = {};
        bool operator==(const SessionSecret&) const = default;
    };
    Status keep_session(SessionId session, uint64_t process_started, const SessionSecret& secret);
    // Resumes a session of an earlier daemon, with the present credentials of its process. Nothing: no such session.
    std::optional<SessionId> resume_session(const SessionSecret& secret, const Credentials& who);
    // The leases on an object that a resumed session still has. Leases dropped while the daemon was down are released.
    struct Claim {
        uint32_t readers = 0;
        uint32_t writers = 0;
    };
    void reconcile(SessionId session, const std::unordered_map<NodeId, Claim>& claims);
    // Ends its leases, and reclaims the objects that it created and did not seal, unless created with kCreateKeep, and its
    // ephemeral ones. If these are very many, Lifetimes::expire() reclaims the rest.
    void end_session(SessionId session);

    // The device of a new object of that name if none is given: that of its directory, else the first device.
    DeviceIndex inherited_device(SessionId session, std::string_view path) const;
    // Returns an object, opened for writing, or the extent that must be allocated first. The caller passes that to
    // extents().add(), sets it in the spec if it is dedicated, and calls again. With kCreateUnnamed the name is the one
    // that give_name() will give, and may be taken.
    Result<std::variant<Object*, ExtentNeed>> create(SessionId session, const CreateSpec& spec);
    Result<Object*> open(SessionId session, std::string_view name, Access access, bool sealed_only);
    // Needs the rights of an open by one of its names. ENOENT, with the same message, for an id that does not exist and
    // one that the session's user may not open: ids are easy to guess.
    Result<Object*> open_id(SessionId session, NodeId id, Access access, bool sealed_only);
    // Prefetches for a later lookup: first the slot of the name, in a second call the node.
    void fetch(std::string_view name, bool node) const { tree_.fetch(name, node); }
    // Ends one lease.
    Status release(SessionId session, NodeId id, Access access);
    // The object, if the session has a lease that allows the access.
    Result<Object*> leased(SessionId session, NodeId id, Access access) const;

    // Keeps an object alive while a thread that holds its gate works on its bytes.
    void pin(Object* object, Access access);
    void unpin(Object* object, Access access);
    static std::shared_ptr<Gate> gate(Object* object);
    // The same without the gate: former memory of the object is kept as well, as for sessions.
    void pin_memory(Object* object, Access access);
    void unpin_memory(Object* object, Access access);
    // Called after a thread has written to it.
    void modified(Object* object);
    // Called before the session gets a descriptor of the memory of an object that it has open. EACCES if the session
    // would reach objects in the slab that it may not open, since rights of the object or of a directory above it have
    // changed. EBUSY if it could write to sealed objects: see Mover::leave_slab().
    Status begin_mapping(SessionId session, Object* object, Access access);
    // True: only this session has the object open, and the object may leave its slab.
    bool can_leave_slab(SessionId session, const Object& object) const;

    // True: the session may not map the object, whose slab is closed, and the object can move to another place instead:
    // no other session uses it, or its bytes do not change any more.
    bool leaves_closed_slab(SessionId session, const Object& object) const;

    // ---- other memory for an object; called by memory/move.h ----
    // The object of that name, if the session's user may move it: its owner and root.
    Result<Object*> find_movable(SessionId session, std::string_view name) const;
    // EBUSY if processes would continue to use the present memory. keep_holders: only if they could write to it, or if
    // the kernel has it.
    Status check_move(const Object& object, DeviceIndex to, bool keep_holders) const;
    // A place on that device, reserved if it is in a slab. Or the extent that is needed first: a slab, for
    // extents().add(), or a dedicated one.
    std::variant<Place, ExtentNeed> place_elsewhere(const Object& object, DeviceIndex device);
    // The bytes are in that place now. The gate is held exclusively. evicted_from: see Object.
    void move(Object* object, DeviceIndex device, const Place& place, bool keep_old, uint32_t evicted_from = 0);
    // Whether the object may be in a slab that no process maps: a small file of the mount that no session has open.
    // (A session's ring would use its memory without the gate.)
    bool may_share(const Object& object, DeviceIndex device, uint64_t size_bytes) const;
    // A reserved place in such a slab, or the slab that is needed first.
    std::variant<Place, ExtentNeed> place_unmapped(const Object& object, uint64_t size_bytes);
    // The bytes are in that reserved place now. The gate is held exclusively.
    void replace_memory(Object* object, const Place& place, uint64_t size_bytes);
    // The same for dedicated memory on its device; null: no memory.
    void replace_memory(Object* object, std::shared_ptr<Extent> memory, uint64_t size_bytes, bool keep_old);
    // Only for an object without memory.
    void set_device(Object* object, DeviceIndex device);

    // ---- tiers; called by memory/tiers.h ----
    Evictables& evictables() { return *evictables_; }
    // EBUSY, with the reason: the object is used or pinned, and stays where it is. own: pins of the caller.
    Status check_eviction(const Object& object, uint32_t own = 0) const;
    // A file of a tier's folder has the bytes now. The gate is held exclusively.
    void set_stored(Object* object, uint64_t file);
    // EBUSY: processes would continue to use the memory that the tier has. own: pins of the caller.
    Status check_return(const Object& object) const;
    // Its bytes may leave its device for a tier, or its tier for the next one.
    static bool may_be_evicted(const Object& object) {
        const bool wanted = object.is_evicted() || (object.flags & kCreateEvictable) != 0;
        return wanted && object.extent != nullptr && (object.flags & kPinned) == 0;
    }
    // The flag of the object, and the place in the queue that goes with it.
    void set_evictable(Object& object, bool evictable);
    // kCreateEvictable, if the nearest directory with the attribute `evictable` says so; else 0.
    static uint32_t inherited_flags(const Directory& parent);
    // The objects whose bytes are in files of a tier's folder, by file.
    std::vector<Object*> stored_objects() const;

    Status seal(SessionId session, std::string_view name);
    Status seal_id(SessionId session, NodeId id);
    Status unlink(SessionId session, std::string_view name);
    Status rename(SessionId session, std::string_view from, std::string_view to, bool replace);
    // Seals an object that the session has open for writing and gives it the name, both or neither. With `replace` the
    // name may be taken; else EEXIST.
    Status give_name(SessionId session, NodeId id, std::string_view name, bool replace);
    // make.cc: directories, links, rights
    Status make(SessionId session, const MakeSpec& spec);
    Result<std::string_view> read_link(SessionId session, std::string_view name) const;
    Status add_name(SessionId session, std::string_view name, std::string_view new_name);
    // A change of the ttl or of a pin comes alone. Symbolic links are followed for it.
    Status change(SessionId session, std::string_view name, const ChangeSpec& changes);
    // acls.cc. Symbolic links are followed. A node without an access ACL has that of its mode.
    Result<std::vector<AclEntry>> acl(SessionId session, std::string_view name, AclKind kind) const;
    // Permitted to the owner and root. add: entries take the place of those of the same user or group. remove: those of
    // the users and groups are removed, whatever rights are given. Both adapt the mask as setfacl(1) does.
    enum class AclChange : uint8_t { replace = 1, add = 2, remove = 3 };
    Status change_acl(SessionId session, std::string_view name, AclKind kind, AclChange change,
                      std::vector<AclEntry> entries);
    // A symbolic link at the end of the name is not followed, unless by `last`. ret_steps as of Tree::find().
    Result<const Node*> stat(SessionId session, std::string_view name, std::vector<Tree::Step>* ret_steps = nullptr,
                             Tree::Last last = Tree::Last::keep);
    // Entries after `cookie` (0: from the start). ret_cookie is the cookie to continue at, 0 at the end. EACCES unless
    // the directory may be both read and searched.
    Result<std::vector<const Link*>> list(SessionId session, std::string_view path, uint64_t cookie, size_t most,
                                          uint64_t* ret_cookie);
    Result<std::vector<Holder>> holders(SessionId session, std::string_view name) const;
    // Unlinked memory that is held, of at most `most` objects after that id. Without `all`: that of the objects of the
    // session's user, and that of other objects which this user holds, with this user's leases only.
    std::vector<Unlinked> unlinked(SessionId session, bool all, NodeId after, size_t most) const;

    Status set_attribute(SessionId session, std::string_view name, std::string_view attribute, std::string_view value);
    Result<std::string_view> get_attribute(SessionId session, std::string_view name, std::string_view attribute) const;
    Status remove_attribute(SessionId session, std::string_view name, std::string_view attribute);
    Result<const Attributes*> attributes(SessionId session, std::string_view name) const;

    Budgets& budgets() { return budgets_; }
    Lifetimes& lifetimes() { return *lifetimes_; }
    const Lifetimes& lifetimes() const { return *lifetimes_; }
    Extents& extents() { return extents_; }
    const Extents& extents() const { return extents_; }
    const Accounts& accounts() const { return accounts_; }
    AccountLimits& limits() { return *limits_; }
    const AccountLimits& limits() const { return *limits_; }
    const Account& use(DeviceIndex device) const { return accounts_.of(device); }
    const StoreCounts& counts() const { return counts_; }
    // An object without a name that no session holds: its memory is freed as soon as the kernel has closed or forgotten
    // it.
    static bool is_nameless(const Object& object) {
        return object.links == 0 && object.extent != nullptr && object.session_leases == 0 && !object.awaited;
    }
    std::vector<Object*> nameless(DeviceIndex device) const;
    size_t object_count() const { return nodes_.object_count(); }
    // Null: no such object.
    Object* object(NodeId id) const;
    size_t session_count() const { return sessions_.size(); }
    size_t open_file_count() const { return files_.size(); }
    // For walks in parts, between which the lock is released: `bucket` is 0 at first, and where the walk goes on; at the
    // end it is UINT64_MAX. A change meanwhile may hide an entry, or show it twice.
    std::vector<std::pair<SessionId, pid_t>> sessions(size_t most, uint64_t* bucket) const;
    // Adds the bytes of the objects that the session has open, by device. Needs the exclusive lock.
    void add_held_bytes(SessionId session, size_t most, uint64_t* bucket, std::vector<uint64_t>* bytes) const;
    const Credentials& credentials(SessionId session) const;
    bool has_session(SessionId session) const { return sessions_.contains(session); }
    const std::vector<DeviceInfo>& devices() const { return devices_; }
    void set_capacity(DeviceIndex device, uint64_t bytes) { devices_[device].capacity_bytes = bytes; }
    const Clock& clock() const { return clock_; }

    // For waits and watches.
    const Directory& root() const { return tree_.root(); }
    void add_listener(NameListener* listener) { tree_.add_listener(listener); }
    void remove_listener(NameListener* listener) { tree_.remove_listener(listener); }
    bool has_listener() const { return tree_.has_listener(); }
    // Updates size and times from the kernel, if its memory is a file.
    void look_again(Node& node) {
        if (auto* object = as_object(&node)) refresh(object);
    }

private:
    friend class AccountLimits;
    friend class Files;
    friend class Lifetimes;
    friend class Operations;
    friend class Restorer;
    friend class SharedStore;
    struct Lease {
        Object* object = nullptr;
        uint32_t count = 0;
        uint32_t writers = 0;
        bool maps = false;  // for writing
        Ledger::Slot slot = Ledger::kNone;

        // `maps` in bit 63, `count` in bits 32 to 62, `writers` below.
        uint64_t ledger_value() const { return uint64_t{maps} << 63 | uint64_t{count} << 32 | writers; }
        void take_ledger_value(uint64_t value) {
            maps = value >> 63 != 0;
            count = static_cast<uint32_t>(value >> 32) & INT32_MAX;
            writers = static_cast<uint32_t>(value);
        }
    };
    struct Session {
        Credentials who;
        std::unordered_map<NodeId, Lease> leases;
        Object* unsealed = nullptr;  // the first of the objects that are reclaimed with it: unsealed or ephemeral ones
        // Slabs of which it has got a writable descriptor, which it may have kept. Some may be freed.
        std::unordered_set<ExtentId> writes;
        Ledger::Slot slot = Ledger::kNone;
        SessionSecret secret;
        uint64_t process_started = 0;
        bool detached = false;  // of an earlier daemon, and not resumed yet
        Budgets::Charge lease_charge;
    };

    Session& at(SessionId session);
    const Session& at(SessionId session) const;
    Result<Object*> find_object(const Session& session, std::string_view name) const;
    Status change_lifetime(SessionId session, std::string_view name, const ChangeSpec& changes);
    static Status check_attribute_name(std::string_view name);
    // The node of that name, if the session has the right to its attributes.
    Result<Node*> find_attributed(const Session& session, std::string_view name, unsigned right) const;
    Result<Node*> find_with_acl(const Session& session, std::string_view name) const;
    Result<Tree::Spot> check_create(const Session& session, const CreateSpec& spec) const;
    // The object, if `who` may open it for reading by one of its names; else null.
    Object* find_id(const Credentials& who, NodeId id) const;
    // `name` is that of the request, for messages: other names may be hidden from the user. Empty: opened by its id.
    Result<Object*> open_object(SessionId session, Object* object, std::string_view name, Access access,
                                bool sealed_only);
    // The sessions' leases on the object count on that device from now on.
    void move_leases(const Object& object, DeviceIndex from, DeviceIndex to);
    // The number of its write leases on the object.
    static uint32_t writers_of(const Session& session, NodeId object);
    // Counts the object as sealed in its slabs.
    void count_sealed(Object* object);
    void add_writer(SessionId id, Session& session, StoredExtent* extent);
    void leave_place(Object* object, bool keep_old);
    static Status check_may_open(const Credentials& who, const Object& object, std::string_view name, Access access);
    Status reserve_note() { return ledger_ == nullptr ? Status{} : ledger_->reserve(1); }
    // Room for a further lease in the ledger and in the budget of the session's user. Leases are counted in steps, so that
    // threads that open objects at the same time seldom write the same counter.
    Status reserve_lease(Session& session);
    static bool charge_lease(Session& session);
    static void uncharge_leases(Session& session);
    void erase_note(Ledger::Slot slot) {
        if (slot != Ledger::kNone && ledger_ != nullptr) ledger_->remove(slot);
    }
    // Its size and extent id are current without refresh().
    static bool is_settled(const Object& object);
    // The end of its last lease frees no memory.
    static bool outlives_lease(const Object& object);
    // Called at an open, and after the end of a lease. Works under the shared lock.
    void note_use(Object& object) const {
        object.used_ns.store(clock_.coarse_ns(), std::memory_order_relaxed);
        if (object.lifetime != nullptr) note_use(*object.lifetime);
    }
    void note_use(Lifetime& lifetime) const;
    Object* add_lease(SessionId id, Session& session, Object* object, Access access);
    void drop_lease(SessionId id, Session& session, Lease& lease, Access access);
    void forget_creator(Object* object);
    // Called after a name of it was removed. replaced: another node has that name now.
    void unlinked(Node* node, bool replaced = false);
    void free_if_unused(Node* node);
    void free_memory(Object* object);
    // Closes its backing file in the kernel.
    void drop_backing(NodeId node);
    void free_retired(Object* object);
    // Updates size and times from the kernel, and returns them. Nothing: its memory is no file.
    std::optional<FileStatus> refresh(Object* object);
    void set_size(Object* object, uint64_t size_bytes);
    // Closes the slabs of the object, or of the objects below the directory, if the objects no longer match the slab's
    // key: a process that maps a slab reaches all of it.
    void rights_changed(Node& node);
    static bool fits_slab(const Object& object, const SlabKey& key);
    // SlabKey::reach of an object of that mode and ACL, in a directory with that reach.
    static std::string key_reach(uint32_t mode, const AclPointer& acl, std::string reach);
    void place(Object* object, const Place& where, uint64_t size_bytes);

    const Clock& clock_;
    Budgets budgets_;
    Ledger* ledger_ = nullptr;
    std::vector<DeviceInfo> devices_;
    Accounts accounts_;
    StoreCounts counts_;
    std::unique_ptr<AccountLimits> limits_;  // destroyed after the nodes
    std::unique_ptr<Evictables> evictables_;
    Numbers session_ids_;
    Extents extents_;
    Nodes nodes_;
    Tree tree_;
    Operations operations_{*this};
    std::unordered_map<SessionId, Session> sessions_;
    // Files that are open in the mount.
    struct OpenFile {
        Object* object = nullptr;
        Access access = Access::read;
        Credentials who;
        uint64_t request = 0;  // the kernel's id of the request that opened it
        Ledger::Slot slot = Ledger::kNone;
        Budgets::Charge charge = {};  // as a lease
    };
    Numbers file_ids_;
    std::unordered_map<uint64_t, OpenFile> files_;
    std::unordered_map<uint64_t, uint64_t> resumed_files_;  // of an earlier daemon, by request
    struct Backing {
        int32_t id = 0;
        Ledger::Slot slot = Ledger::kNone;
    };
    std::unordered_map<NodeId, Backing> backing_;
    std::vector<Backing> former_backing_;           // of an earlier daemon, to be closed
    static constexpr uint64_t kClosingBacking = 0;  // ledger value in place of the extent's key
    std::function<void(int32_t)> close_backing_;    // null: no mount
    std::unordered_set<NodeId> unnamed_;  // objects that lost their name, or were made in the mount without one
    std::unique_ptr<Lifetimes> lifetimes_;
};

}  // namespace gshm::core
