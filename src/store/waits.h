// Sessions that wait for a name: until it exists, is sealed, or leads elsewhere. A wait keeps the entries that its name
// was resolved by: that of the object, of the directories above it, of symbolic links. It is checked again after each
// change of one of them, by the library or the mount. Pure logic, as the store; the daemon has the timeouts.
#pragma once

#include <deque>
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
    // the waits of the session (limits::kSessionWaitSteps) or of its user depend on too many entries.
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

    // Of the waits that one change may end, each user has this many checked at once. The others are checked by
    // check_due(), so that a change does not wait for all waits of other users for the same entry.
    static constexpr size_t kAtOnce = 256;
    // `wake` is called during a change when check_due() has work, and once until check_due() is called.
    void set_wake(std::function<void()> wake) { wake_ = std::move(wake); }
    // Checks some of the waits that are due. It wakes again if there are more.
    void check_due();

private:
    using Key = Tree::Step;  // an entry; or, with an empty name, the sealing of an object
    struct Wait {
        SessionId session;
        Wanted wanted;
        Done done;
        std::vector<Key> keys;
        uid_t uid;
        bool is_due = false;
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
    // The waits that are to be checked at once. The others are due.
    template <typename Concerns>
    std::vector<Id> waiting_at(const Key& key, Concerns concerns);
    void changed(const Key& key);
    void check(Id id);
    // False: the session or its user has too many keys.
    bool enlist(Id id, std::vector<Key> keys);
    void delist(Id id);
    void settle(Id id, Outcome outcome);
    void erase(Id id);

    Store& store_;
    Id next_id_ = 1;
    std::unordered_map<Id, Wait> waits_;
    std::map<Key, std::unordered_set<Id>> by_key_;
    std::unordered_map<SessionId, Budgets::Charge> steps_;  // number of keys of all its waits
    Key moving_from_;                                       // from moving() to moved()
    std::deque<Id> due_;                                    // some may have ended
    std::function<void()> wake_;
};

}  // namespace gshm::core
