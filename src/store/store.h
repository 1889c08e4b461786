// The store: objects, who made them and who holds them. Pure logic: no sockets, no threads, no driver calls of its own.
// Every call that acts for somebody names the session, whose credentials decide. Not thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "store/extents.h"
#include "store/tree.h"

namespace gshm {

// Values as in gshm.h.
enum CreateFlag : uint32_t { kCreateKeep = 1, kCreateCompressible = 2, kCreateDedicated = 4 };

struct CreateSpec {
    std::string_view name;
    uint64_t size_bytes = 0;
    DeviceIndex device = 0;
    uint16_t mode = 0600;
    uint32_t flags = 0;
    const Attributes* attributes = nullptr;
    StoredExtent* extent = nullptr;  // for a dedicated object: what its ExtentNeed brought
};

struct Holder {
    Credentials who;
    uint32_t leases = 0;
    bool writable = false;
};

struct DeviceUse {
    uint64_t object_bytes = 0;
    uint64_t unlinked_bytes = 0;
};

class Store {
public:
    Store(const Clock& clock, Reclaimer& reclaimer, const Credentials& owner, std::vector<DeviceInfo> devices);
    ~Store();

    SessionId begin_session(const Credentials& who);
    // Its leases end and the objects it made and did not seal are reclaimed, unless made with kCreateKeep.
    void end_session(SessionId session);

    // An object, opened for writing; or the extent that must be allocated first, handed to extents().add() and named
    // in the spec (if dedicated) when this is called again.
    Result<std::variant<Object*, ExtentNeed>> create(SessionId session, const CreateSpec& spec);
    Result<Object*> open(SessionId session, std::string_view name, Access access, bool sealed_only);
    Result<Object*> open_id(SessionId session, NodeId id, Access access, bool sealed_only);
    // A hint that the name is going to be opened or asked about: its place in the tables first, itself in a second call.
    void fetch(std::string_view name, bool node) const { tree_.fetch(name, node); }
    // Ends one lease.
    Status release(SessionId session, NodeId id, Access access);
    // The object, if the session has a lease that allows the access.
    Result<Object*> leased(SessionId session, NodeId id, Access access) const;

    // Keeps an object's bytes in place while a thread works on them, whoever lets go of it meanwhile.
    void pin(Object* object, Access access);
    void unpin(Object* object, Access access);

    Status seal(SessionId session, std::string_view name);
    Status seal_id(SessionId session, NodeId id);
    Status unlink(SessionId session, std::string_view name);
    Status rename(SessionId session, std::string_view from, std::string_view to, bool replace);
    Result<const Node*> stat(SessionId session, std::string_view name) const;
    // Entries after `cookie` (0: from the start); ret_cookie is where to go on, 0 at the end.
    Result<std::vector<const Node*>> list(SessionId session, std::string_view path, uint64_t cookie, size_t most,
                                          uint64_t* ret_cookie) const;
    Result<std::vector<Holder>> holders(SessionId session, std::string_view name) const;

    Status set_attribute(SessionId session, std::string_view name, std::string_view attribute, std::string_view value);
    Result<std::string_view> get_attribute(SessionId session, std::string_view name, std::string_view attribute) const;
    Status remove_attribute(SessionId session, std::string_view name, std::string_view attribute);
    Result<const Attributes*> attributes(SessionId session, std::string_view name) const;

    Extents& extents() { return extents_; }
    const Extents& extents() const { return extents_; }
    const DeviceUse& use(DeviceIndex device) const { return use_[device]; }
    size_t object_count() const { return objects_.size(); }
    size_t session_count() const { return sessions_.size(); }
    const Credentials& credentials(SessionId session) const;

private:
    struct Lease {
        Object* object = nullptr;
        uint32_t count = 0;
        uint32_t writers = 0;
    };
    struct Session {
        Credentials who;
        std::unordered_map<NodeId, Lease> leases;
        Object* unsealed = nullptr;  // first of those made by it and not sealed yet
    };

    Session& at(SessionId session);
    const Session& at(SessionId session) const;
    Result<Object*> find_object(const Session& session, std::string_view name) const;
    Status check_create(const Session& session, const CreateSpec& spec, std::string* ret_reach) const;
    Result<Object*> open_object(Session& session, Object* object, Access access, bool sealed_only);
    Status seal_object(Session& session, Object* object);
    Object* add_lease(Session& session, Object* object, Access access);
    void drop_lease(Session& session, Lease& lease, Access access);
    void forget_creator(Object* object);
    void unlinked(Object* object);
    void free_if_unused(Object* object);

    const Clock& clock_;
    std::vector<DeviceInfo> devices_;
    std::vector<DeviceUse> use_;
    NodeId next_node_id_ = 1;
    SessionId next_session_id_ = 1;
    Extents extents_;
    Tree tree_;
    std::unordered_map<NodeId, std::unique_ptr<Object>> objects_;
    std::unordered_map<SessionId, Session> sessions_;
};

}  // namespace gshm
