// Who is told what happens to names: a watch belongs to a session, has the names that begin with a prefix, and a bounded
// queue of events. Pure logic, as the store; docs/watch.md says what a watcher can rely on.
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
};

struct WatchEvent {
    EventKind event = EventKind::overflow;
    NodeKind kind{};
    ObjectState state{};  // of objects
    DeviceIndex device = 0;
    NodeId id = 0;
    NodeId replaced = 0;  // what had the name before
    uint64_t size_bytes = 0;
    int64_t time_ns = 0;
    std::string name;
    std::string old_name;  // that it had until now and has lost

    // In a queue, and more than in a message.
    size_t cost() const { return sizeof *this + name.size() + old_name.size(); }
};

class Watches final : private NameListener {
public:
    explicit Watches(Store& store) : store_(store) {}
    ~Watches() override { store_.remove_listener(this); }
    Watches(const Watches&) = delete;
    Watches& operator=(const Watches&) = delete;

    // Called, in the midst of a change, when deliver() has something to do; once until it is called.
    void set_wake(std::function<void()> wake) { wake_ = std::move(wake); }

    // From now on, or with what is there already (`existing`). One for each session: else EBUSY. on_ready is called by
    // deliver() if there are events after take() has found none.
    Status add(SessionId session, std::string_view prefix, bool existing, std::function<void()> on_ready);
    bool has(SessionId session) const { return watches_.contains(session); }
    // The next events, of that cost together or one. None: on_ready will be called.
    std::vector<WatchEvent> take(SessionId session, size_t most_bytes);
    void forget(SessionId session);
    void deliver();
    size_t queued_bytes(SessionId session) const { return watches_.at(session).queued_bytes; }

private:
    struct Watch {
        std::string prefix;
        size_t known_parts = 0;  // whole parts of the prefix: who has asked knows these names
        std::function<void()> on_ready;
        std::deque<WatchEvent> queue;
        size_t queued_bytes = 0;
        bool overflowed = false;  // the queue's last event says so
        bool hungry = false;      // take() has found nothing
        // The way, by the entries' cookies, to the last of the names that were there already and have been reported. All
        // further ones are reported when the walk comes to them, and what happens to them before is not.
        std::optional<std::vector<uint64_t>> walked;
    };
    // A name, and which of the watches see it, in their order.
    struct Seen {
        const Link* link = nullptr;
        std::string path;
        std::vector<bool> by;
    };

    void removing(const Link& link) override;
    void replacing(const Link& link) override;
    void added(const Link& link) override;
    void moving(const Link& link, const Directory& parent, std::string_view name) override;
    void moved(const Link& link) override;
    void exchanging(const Link& a, const Link& b) override;
    void exchanged(const Link& a, const Link& b) override;
    void sealed(const Object& object) override;

    // The directory's entries are for the watch to know, if `depth` parts lead to it.
    bool may_look_into(SessionId session, const Watch& watch, const Directory& directory, size_t depth) const;
    bool sees(SessionId session, const Watch& watch, const Link& link, std::string_view path) const;
    Seen look_at(const Link& link, std::string path) const;
    // With all that is below it, in an order that does not depend on where it is.
    std::vector<Seen> look_below(const Link& link) const;
    // Whether a watch may see a name at or below the path.
    bool concerns(std::string_view path) const;
    WatchEvent event_of(EventKind event, const Node& node, std::string_view name) const;
    void tell(Watch& watch, WatchEvent event);
    // The link, which was called `old` if that is set, now has the name `now`, and `lost` has lost it.
    void tell_of_name(const Seen* old, const Seen& now, const std::optional<std::pair<Seen, WatchEvent>>& lost);
    void wake();

    // The next name of the walk; null: that was all.
    const Link* walk(SessionId session, Watch& watch, std::string* ret_path) const;
    bool report_existing(SessionId session, Watch& watch, std::vector<WatchEvent>& events, size_t most_bytes);

    Store& store_;
    std::function<void()> wake_;
    bool awake_ = false;
    std::map<SessionId, Watch> watches_;
    // Between the two calls for one change.
    std::optional<std::pair<Seen, WatchEvent>> replaced_;
    std::vector<Seen> moving_;
    std::vector<Seen> exchanging_[2];
};

}  // namespace gshm::core
