// Sessions that wait for a name: until it exists, is sealed, or leads elsewhere. A wait keeps the entries that its name
// was resolved by: that of the object, of the directories above it, of symbolic links. It is checked again after each
// change of one of them, by the library or the mount. Pure logic, as the store; the daemon has the timeouts.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "store/store.h"

namespace gshm::core {

class Waits final : private NameListener {
public:
    enum class Until { exists, sealed, gone };
    using Id = uint64_t;
    struct Wanted {
        std::string name;
        Until until = Until::exists;
        NodeId node = 0;  // with Until::gone: the present node of the name
    };
    // Null with Until::gone. An error if the session may not look up the name, or if its node is never sealed. EAGAIN:
    // the waits of the session depend on too many entries (limits::kSessionWaitSteps).
    using Outcome = Result<const Node*>;
    // Called once, during a change: it may read the node, and changes nothing.
    using Done = std::move_only_function<void(Outcome)>;

    explicit Waits(Store& store) : store_(store) {}
    ~Waits() override { store_.remove_listener(this); }
    Waits(const Waits&) = delete;
    Waits& operator=(const Waits&) = delete;

    // Returns the outcome if there is one already. Otherwise sets ret_id, and `done` is called when there is one.
    std::optional<Outcome> add(SessionId session, Wanted wanted, Done done, Id* ret_id);
    // `done` is not called any more. No effect if it was called.
    void cancel(Id id);
    size_t count() const { return waits_.size(); }

private:
    using Key = Tree::Step;  // an entry; or, with an empty name, the sealing of an object
    struct Wait {
        SessionId session;
        Wanted wanted;
        Done done;
        std::vector<Key> keys;
    };

    void removing(const Link& link) override;
    void replacing(const Link&) override {}  // checked when the other link has the name
    void added(const Link& link) override;
    void moving(const Link& link, const Directory& parent, std::string_view name) override;
    void moved(const Link& link) override;
    void exchanging(const Link&, const Link&) override {}
    void exchanged(const Link& a, const Link& b) override;
    void sealed(const Object& object) override;

    // The present outcome; nothing: the wait continues. ret_keys: the keys that the outcome depends on.
    std::optional<Outcome> look(SessionId session, const Wanted& wanted, std::vector<Key>* ret_keys) const;
    std::vector<Id> waiting_at(const Key& key) const;
    void changed(const Key& key);
    // False: the session has too many keys.
    bool enlist(Id id, std::vector<Key> keys);
    void delist(Id id);
    void settle(Id id, Outcome outcome);
    void erase(Id id);

    Store& store_;
    Id next_id_ = 1;
    std::unordered_map<Id, Wait> waits_;
    std::map<Key, std::unordered_set<Id>> by_key_;
    std::unordered_map<SessionId, size_t> steps_;  // number of keys of all its waits
    Key moving_from_;                              // from moving() to moved()
};

}  // namespace gshm::core
