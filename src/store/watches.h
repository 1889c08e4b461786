// Watches: events for changes of the names that begin with a prefix. A watch belongs to a session and has a bounded
// queue of events. Pure logic, as the store. docs/watch.md has the guarantees.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "store/store.h"

namespace gshm::core {

// Values as in gshm.h (see node.h).
enum class EventKind : uint8_t {
    created = 1,
    sealed = 2,
    deleted = 3,
    renamed = 4,
    replaced = 5,
    existing = 6,
    ready = 7,
    overflow = 8,
    expired = 9,
};

struct WatchEvent {
    EventKind event = EventKind::overflow;
    NodeKind kind{};
    ObjectState state{};  // of objects
    DeviceIndex device = 0;
    NodeId id = 0;
    NodeId replaced = 0;  // the node that had the name before
    uint64_t size_bytes = 0;
    int64_t time_ns = 0;
    std::string name;
    std::string old_name;  // the name that it has lost by the change

    // Bytes in a queue, more than in a message.
    size_t cost() const { return sizeof *this + name.size() + old_name.size(); }
};

class Watches final : private NameListener {
public:
    explicit Watches(Store& store) : store_(store) {}
    ~Watches() override { store_.remove_listener(this); }
    Watches(const Watches&) = delete;
    Watches& operator=(const Watches&) = delete;

    // `wake` is called during a change when deliver() has work, and once until deliver() is called.
    void set_wake(std::function<void()> wake) { wake_ = std::move(wake); }

    // Watches from now on; `existing`: reports the existing names as well. One watch for each session, else EBUSY.
    // ENOSPC: the session's user has too many.
    // deliver() calls on_ready if there are events after take() has returned none.
    Status add(SessionId session, std::string_view prefix, bool existing, std::function<void()> on_ready);
    bool has(SessionId session) const { return watches_.contains(session); }
    // The next events, up to that cost in total, but at least one. None: on_ready will be called.
    std::vector<WatchEvent> take(SessionId session, size_t most_bytes);
    void forget(SessionId session);
    void deliver();
    size_t queued_bytes(SessionId session) const { return watches_.at(session).queued_bytes.amount(); }

private:
    struct Watch {
        std::string prefix;
        size_t known_parts = 0;  // whole parts of the prefix, whose names the watcher knows
        std::function<void()> on_ready;
        std::deque<WatchEvent> queue;
        Budgets::Charge watch;
        Budgets::Charge queued_bytes;
        bool overflowed = false;  // the last event of the queue is an overflow
        bool hungry = false;      // the last take() returned none
        // The walk over existing names: the cookies of the entries that lead to the last reported name. Further names
        // are reported when the walk reaches them; their events before that are not. Nothing: no walk.
        std::optional<std::vector<uint64_t>> walked;
    };
    // A name, and whether each watch sees it, in the order of watches_.
    struct Seen {
        const Link* link = nullptr;
        std::string path;
        std::vector<bool> by;
    };

    void removing(const Link& link) override { tell_of_loss(EventKind::deleted, link); }
    void expiring(const Link& link) override { tell_of_loss(EventKind::expired, link); }
    void replacing(const Link& link) override;
    void added(const Link& link) override;
    void moving(const Link& link, const Directory& parent, std::string_view name) override;
    void moved(const Link& link) override;
    void exchanging(const Link& a, const Link& b) override;
    void exchanged(const Link& a, const Link& b) override;
    void sealed(const Object& object) override;

    // Whether the watch may see the entries of a directory, at the end of a path of `depth` parts.
    bool may_look_into(SessionId session, const Watch& watch, const Directory& directory, size_t depth) const;
    bool sees(SessionId session, const Watch& watch, const Link& link, std::string_view path) const;
    Seen look_at(const Link& link, std::string path) const;
    // The link and all links below it, in an order that does not depend on its location.
    std::vector<Seen> look_below(const Link& link) const;
    // Whether a name at or below the path can match the prefix of a watch.
    bool concerns(std::string_view path) const;
    WatchEvent event_of(EventKind event, const Node& node, std::string_view name) const;
    void tell(Watch& watch, WatchEvent event);
    void tell_of_loss(EventKind event, const Link& link);
    // A link has the name `now`. `old`, if set, is its former name. `lost`, if set, had the name `now` before.
    void tell_of_name(const Seen* old, const Seen& now, const std::optional<std::pair<Seen, WatchEvent>>& lost);
    void wake();

    // The next name of the walk; null: the walk has ended.
    const Link* walk(SessionId session, Watch& watch, std::string* ret_path) const;
    bool report_existing(SessionId session, Watch& watch, std::vector<WatchEvent>& events, size_t most_bytes);

    Store& store_;
    std::function<void()> wake_;
    bool awake_ = false;
    std::map<SessionId, Watch> watches_;
    // From the first to the second call for a change.
    std::optional<std::pair<Seen, WatchEvent>> replaced_;
    std::vector<Seen> moving_;
    std::vector<Seen> exchanging_[2];
};

}  // namespace gshm::core
