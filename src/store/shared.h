// The store for threads that share its lock. They change nothing but the leases of their own sessions, the objects' atomic
// counts of them, and the ledger. Each session is used by one thread.
#pragma once

#include "store/store.h"

namespace gshm::core {

class SharedStore {
public:
    explicit SharedStore(Store& store) : store_(store) {}

    void fetch(std::string_view name, bool node) const { store_.fetch(name, node); }
    // Opens for reading; null: not by this way, since something would have to be changed, or said.
    Object* open(SessionId session, std::string_view name, bool sealed_only) const;
    Object* open_id(SessionId session, NodeId id, bool sealed_only) const;
    // Ends one lease, if there is one and can_release().
    bool can_release(SessionId session, NodeId id) const;
    void release(SessionId session, NodeId id, Access access) const;
    // As Store::stat(); null: not by this way.
    const Node* stat(SessionId session, std::string_view name) const;
    // A session that may map some of an extent's bytes may map all of them.
    bool may_map(SessionId session, const Object& object) const;

private:
    Object* lease(SessionId id, Store::Session& session, Object* object, bool sealed_only) const;

    Store& store_;
};

}  // namespace gshm::core
