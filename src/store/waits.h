// Sessions that wait for a name: until it exists, is sealed, or leads elsewhere. A wait keeps the entries that its name was
// resolved by, and is checked again after each change of one of them, through the library or the mount: the object's own, one
// of a directory above it, a symbolic link's on the way. Pure logic, as the store; the daemon has the timeouts.
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
        NodeId node = 0;  // with Until::gone: that the name leads to now
    };
    // Null with Until::gone. An error is what forbids the session to look; EAGAIN: its waits have too many directories on
    // their ways (limits::kSessionWaitSteps).
    using Outcome = Result<const Node*>;
    // Called once, in the midst of a change: it may look at the node, and changes nothing.
    using Done = std::move_only_function<void(Outcome)>;

    explicit Waits(Store& store) : store_(store) {}
    ~Waits() override { store_.remove_listener(this); }
    Waits(const Waits&) = delete;
    Waits& operator=(const Waits&) = delete;

    // The outcome, if there is one already; else sets ret_id, and `done` is called when there is.
    std::optional<Outcome> add(SessionId session, Wanted wanted, Done done, Id* ret_id);
    // `done` is not called any more. Nothing happens if it was.
    void cancel(Id id);
    size_t count() const { return waits_.size(); }

private:
    using Key = Tree::Step;  // an entry, or an object's seal: that has no name
    struct Wait {
        SessionId session;
        Wanted wanted;
        Done done;
        std::vector<Key> keys;
    };

    void removing(const Link& link) override;
    void replacing(const Link&) override {}  // looked at when another has the name
    void added(const Link& link) override;
    void moving(const Link& link, const Directory& parent, std::string_view name) override;
    void moved(const Link& link) override;
    void exchanging(const Link&, const Link&) override {}
    void exchanged(const Link& a, const Link& b) override;
    void sealed(const Object& object) override;

    // What to tell the session now; nothing: it waits on. ret_keys: whatever changes that.
    std::optional<Outcome> look(SessionId session, const Wanted& wanted, std::vector<Key>* ret_keys) const;
    std::vector<Id> waiting_at(const Key& key) const;
    void changed(const Key& key);
    // False: the session has too many.
    bool enlist(Id id, std::vector<Key> keys);
    void delist(Id id);
    void settle(Id id, Outcome outcome);
    void erase(Id id);

    Store& store_;
    Id next_id_ = 1;
    std::unordered_map<Id, Wait> waits_;
    std::map<Key, std::unordered_set<Id>> by_key_;
    std::unordered_map<SessionId, size_t> steps_;  // keys of all its waits
    Key moving_from_;  // between the two calls for one change
};

}  // namespace gshm::core
