// The store for threads that hold the store lock shared. They change only the leases of their own sessions, the atomic
// lease counts of objects, and the ledger. Each session is used by one thread.
#pragma once

#include "store/store.h"

namespace gshm::core {

class SharedStore {
public:
    explicit SharedStore(Store& store) : store_(store) {}

    void fetch(std::string_view name, bool node) const { store_.fetch(name, node); }
    // Opens for reading. Null: not possible under the shared lock, because of an error or a further change to the
    // store.
    Object* open(SessionId session, std::string_view name, bool sealed_only) const;
    Object* open_id(SessionId session, NodeId id, bool sealed_only) const;
    // release() ends one lease, if there is one. It requires can_release().
    bool can_release(SessionId session, NodeId id) const;
    void release(SessionId session, NodeId id, Access access) const;
    // As Store::stat(). Null: not possible under the shared lock.
    const Node* stat(SessionId session, std::string_view name) const;
    // False: the object is in a closed slab, which only its owner and root map.
    bool may_map(SessionId session, const Object& object) const;

private:
    Object* lease(SessionId id, Store::Session& session, Object* object, bool sealed_only) const;

    Store& store_;
};

}  // namespace gshm::core
