// The store: objects, who made them and who holds them. Pure logic: no sockets, no threads, no driver calls of its own.
// Every call that acts for somebody names the session, whose credentials decide. Not thread-safe;
// see shared.h for what threads may do beside each other.
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

// Values as in gshm.h (see node.h).
enum CreateFlag : uint32_t {
    kCreateKeep = 1,
    kCreateCompressible = 2,
    kCreateDedicated = 4,
    kCreateUnnamed = 16,
    kCreateOwner = 32,
    kCreateEmpty = 64,
};

struct CreateSpec {
    std::string_view name;
    uint64_t size_bytes = 0;
    DeviceIndex device = 0;
    uint16_t mode = 0600;
    uint32_t flags = 0;
    const Attributes* attributes = nullptr;
    StoredExtent* extent = nullptr;  // for a dedicated object: what its ExtentNeed brought
    uid_t uid = 0;                   // with kCreateOwner
    gid_t gid = 0;
    bool map = true;  // the session gets a writable descriptor of its memory
    uint64_t batch_bytes = 0;  // of all small objects that are asked for at once; a hint
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

struct ChangeSpec {
    uint32_t what = 0;  // ChangeFlag
    uint32_t mode = 0;
    uid_t uid = 0;
    gid_t gid = 0;
};

struct Holder {
    Credentials who;
    uint32_t leases = 0;
    bool writable = false;
};

// Memory of an object that no name leads to and that somebody still holds.
struct Unlinked {
    const Object* object = nullptr;
    bool former = false;  // not the object's bytes, but memory that it had before its size changed
    uint64_t size_bytes = 0;
    std::string name;  // the last one, if there was one that the asker may know
    std::vector<Holder> holders;
};

class Store {
public:
    Store(const Clock& clock, Reclaimer& reclaimer, const Credentials& owner, std::vector<DeviceInfo> devices);
    ~Store();

    // Without these nothing outlives the process. Before anything else is done with the store.
    void set_recorder(Recorder* recorder);
    // Null again: from now on nothing that happens is noted, as if the process had ended.
    Status set_ledger(Ledger* ledger);

    SessionId begin_session(const Credentials& who);
    // From now on the session outlives this process, if its own does: whoever knows the secret can take it up again.
    struct SessionSecret {
        uint64_t words[2] = {};
        bool operator==(const SessionSecret&) const = default;
    };
    Status keep_session(SessionId session, uint64_t process_started, const SessionSecret& secret);
    // A session from before, found by its secret; with the credentials that its process has now. Nothing: there is none.
    std::optional<SessionId> resume_session(const SessionSecret& secret, const Credentials& who);
    // What a session that was taken up again still holds of an object; the rest was let go of unheard.
    struct Claim {
        uint32_t readers = 0;
        uint32_t writers = 0;
    };
    void reconcile(SessionId session, const std::unordered_map<NodeId, Claim>& claims);
    // Its leases end and the objects it made and did not seal are reclaimed, unless made with kCreateKeep.
    void end_session(SessionId session);

    // Where an object of that name is made if nobody says where: as its directory says, else on the first device.
    DeviceIndex inherited_device(std::string_view path) const;
    // An object, opened for writing; or the extent that must be allocated first, handed to extents().add() and named
    // in the spec (if dedicated) when this is called again. With kCreateUnnamed the name is only where it is meant to
    // get by give_name(), and may be taken.
    Result<std::variant<Object*, ExtentNeed>> create(SessionId session, const CreateSpec& spec);
    Result<Object*> open(SessionId session, std::string_view name, Access access, bool sealed_only);
    Result<Object*> open_id(SessionId session, NodeId id, Access access, bool sealed_only);
    // A hint that the name is going to be opened or asked about: its place in the tables first, itself in a second call.
    void fetch(std::string_view name, bool node) const { tree_.fetch(name, node); }
    // Ends one lease.
    Status release(SessionId session, NodeId id, Access access);
    // The object, if the session has a lease that allows the access.
    Result<Object*> leased(SessionId session, NodeId id, Access access) const;

    // Keeps an object while a thread works on its bytes, whoever lets go of it meanwhile. The thread holds the gate.
    void pin(Object* object, Access access);
    void unpin(Object* object, Access access);
    static std::shared_ptr<Gate> gate(Object* object);
    // The same for who does not hold the gate: memory that was the object's stays as well, as it does for sessions.
    void pin_memory(Object* object, Access access);
    void unpin_memory(Object* object, Access access);
    // A thread has written to it.
    void modified(Object* object);
    // To be called before the session gets a descriptor of the memory of an object that it has open. EACCES where that
    // would let it reach others in its slab that it may not open: its rights, or those on the way to it, were changed since
    // it was placed there. EBUSY where it would let it write to sealed ones: see leave_slab().
    Status begin_mapping(SessionId session, Object* object, Access access);
    // An object that the session alone has open leaves its slab.
    bool can_leave_slab(SessionId session, const Object& object) const;

    // ---- other memory for an object; see memory/move.h, which is the one to call these ----
    // The object of that name, which the session's user may move: its owner and root.
    Result<Object*> find_movable(SessionId session, std::string_view name) const;
    // EBUSY if processes would go on with the memory that it has now; keep_holders: only if they could write to it, or if
    // the kernel has it.
    Status check_move(const Object& object, DeviceIndex to, bool keep_holders) const;
    // A place on that device, reserved if it is in a slab; or the extent that is needed first: a slab, to be given to
    // extents().add(), or a dedicated one.
    std::variant<Place, ExtentNeed> place_elsewhere(const Object& object, DeviceIndex device);
    // Its bytes are there now. The gate is held alone.
    void move(Object* object, DeviceIndex device, const Place& place, bool keep_old);
    // The same in memory of its own, on its device; null: it has none.
    void replace_memory(Object* object, std::shared_ptr<Extent> memory, uint64_t size_bytes, bool keep_old);
    // Of an object without memory.
    void set_device(Object* object, DeviceIndex device);

    Status seal(SessionId session, std::string_view name);
    Status seal_id(SessionId session, NodeId id);
    Status unlink(SessionId session, std::string_view name);
    Status rename(SessionId session, std::string_view from, std::string_view to, bool replace);
    // Seals what the session has open for writing and gives it the name, over what has it (EEXIST if that is not to be):
    // both or neither.
    Status give_name(SessionId session, NodeId id, std::string_view name, bool replace);
    // make.cc: besides objects
    Status make(SessionId session, const MakeSpec& spec);
    Result<std::string_view> read_link(SessionId session, std::string_view name) const;
    Status add_name(SessionId session, std::string_view name, std::string_view new_name);
    Status change(SessionId session, std::string_view name, const ChangeSpec& changes);
    // A symbolic link is itself, not what it leads to. ret_steps as of Tree::find().
    Result<const Node*> stat(SessionId session, std::string_view name, std::vector<Tree::Step>* ret_steps = nullptr);
    // Entries after `cookie` (0: from the start); ret_cookie is where to go on, 0 at the end.
    Result<std::vector<const Link*>> list(SessionId session, std::string_view path, uint64_t cookie, size_t most,
                                          uint64_t* ret_cookie);
    Result<std::vector<Holder>> holders(SessionId session, std::string_view name) const;
    // What is unlinked but held, of the `most` next objects after that id: all of it, or that of the session's user's
    // own objects and, with that user's leases alone, of others' objects.
    std::vector<Unlinked> unlinked(SessionId session, bool all, NodeId after, size_t most) const;

    Status set_attribute(SessionId session, std::string_view name, std::string_view attribute, std::string_view value);
    Result<std::string_view> get_attribute(SessionId session, std::string_view name, std::string_view attribute) const;
    Status remove_attribute(SessionId session, std::string_view name, std::string_view attribute);
    Result<const Attributes*> attributes(SessionId session, std::string_view name) const;

    Extents& extents() { return extents_; }
    const Extents& extents() const { return extents_; }
    const Accounts& accounts() const { return accounts_; }
    const Account& use(DeviceIndex device) const { return accounts_.of(device); }
    // An object without a name that only the mount holds, if anybody does: its memory is freed as soon as the kernel has
    // closed or forgotten it.
    static bool is_nameless(const Object& object) {
        return object.links == 0 && object.extent != nullptr && object.session_leases == 0 && !object.awaited;
    }
    std::vector<Object*> nameless(DeviceIndex device) const;
    size_t object_count() const { return nodes_.object_count(); }
    // Null: there is none.
    Object* object(NodeId id) const;
    size_t session_count() const { return sessions_.size(); }
    const Credentials& credentials(SessionId session) const;
    bool has_session(SessionId session) const { return sessions_.contains(session); }
    const std::vector<DeviceInfo>& devices() const { return devices_; }
    const Clock& clock() const { return clock_; }

    // For who tells others what happens to names.
    const Directory& root() const { return tree_.root(); }
    void add_listener(NameListener* listener) { tree_.add_listener(listener); }
    void remove_listener(NameListener* listener) { tree_.remove_listener(listener); }
    bool has_listener() const { return tree_.has_listener(); }
    // Takes over what the kernel knows of its size, if it is a file.
    void look_again(Node& node) {
        if (auto* object = as_object(&node)) refresh(object);
    }

private:
    friend class Files;
    friend class Operations;
    friend class Restorer;
    friend class SharedStore;
    struct Lease {
        Object* object = nullptr;
        uint32_t count = 0;
        uint32_t writers = 0;
        bool maps = false;  // for writing
        Ledger::Slot slot = Ledger::kNone;

        // Counts of 31 bits each, and in the highest bit whether it maps.
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
        Object* unsealed = nullptr;  // first of those made by it and not sealed yet
        // Slabs that it was given a writable descriptor of, and may have kept; some may be gone.
        std::unordered_set<ExtentId> writes;
        Ledger::Slot slot = Ledger::kNone;
        SessionSecret secret;
        uint64_t process_started = 0;
        bool detached = false;  // from before, and not taken up again yet
    };

    Session& at(SessionId session);
    const Session& at(SessionId session) const;
    Result<Object*> find_object(const Session& session, std::string_view name) const;
    static Status check_attribute_name(std::string_view name);
    // The node of that name, if the session has the right to its attributes.
    Result<Node*> find_attributed(const Session& session, std::string_view name, unsigned right) const;
    Result<Tree::Spot> check_create(const Session& session, const CreateSpec& spec) const;
    Result<Object*> open_object(SessionId session, Object* object, Access access, bool sealed_only);
    // Its leases for writing on the object.
    static uint32_t writers_of(const Session& session, NodeId object);
    // Of its places in slabs.
    void count_sealed(Object* object);
    void add_writer(SessionId id, Session& session, StoredExtent* extent);
    void leave_place(Object* object, bool keep_old);
    static Status check_may_open(const Credentials& who, const Object& object, Access access);
    Status reserve_note() { return ledger_ == nullptr ? Status{} : ledger_->reserve(1); }
    void erase_note(Ledger::Slot slot) {
        if (slot != Ledger::kNone && ledger_ != nullptr) ledger_->remove(slot);
    }
    // All that is known of it is so without a look at its file.
    static bool is_settled(const Object& object);
    // No memory is freed with its last lease.
    static bool outlives_lease(const Object& object);
    Object* add_lease(SessionId id, Session& session, Object* object, Access access);
    void drop_lease(Session& session, Lease& lease, Access access);
    void forget_creator(Object* object);
    // To be called when a name of it has gone; replaced: another node has that name now.
    void unlinked(Node* node, bool replaced = false);
    void free_if_unused(Node* node);
    void free_memory(Object* object);
    // The kernel has no use for its file any more.
    void drop_backing(NodeId node);
    void free_retired(Object* object);
    // Takes over what the kernel knows of a file, and returns it; nothing: its memory is no file.
    std::optional<FileStatus> refresh(Object* object);
    void set_size(Object* object, uint64_t size_bytes);
    // Slabs in which it or what is below it lies are for their owners alone from now on, if it does not fit them any
    // more: whoever maps a slab reaches all of it.
    void rights_changed(Node& node);
    static bool fits_slab(const Object& object, const SlabKey& key);
    void place(Object* object, const Place& where, uint64_t size_bytes);

    const Clock& clock_;
    Ledger* ledger_ = nullptr;
    std::vector<DeviceInfo> devices_;
    Accounts accounts_;
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
        uint64_t request = 0;  // that it was opened by
        Ledger::Slot slot = Ledger::kNone;
    };
    Numbers file_ids_;
    std::unordered_map<uint64_t, OpenFile> files_;
    std::unordered_map<uint64_t, uint64_t> resumed_files_;  // of an earlier daemon: by the request that opened it
    struct Backing {
        int32_t id = 0;
        Ledger::Slot slot = Ledger::kNone;
    };
    std::unordered_map<NodeId, Backing> backing_;
    std::vector<Backing> former_backing_;  // of an earlier daemon, to be closed
    static constexpr uint64_t kClosingBacking = 0;  // in place of the key of the extent whose backing file it is
    std::function<void(int32_t)> close_backing_;  // null: no mount
    std::unordered_set<NodeId> unnamed_;          // objects that have had no name since they were put here
};

}  // namespace gshm::core
