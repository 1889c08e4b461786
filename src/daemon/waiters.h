// Sessions that wait for a name to appear or to be sealed.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "daemon/loop.h"
#include "store/store.h"

namespace gshm {

class Waiters {
public:
    // Called once per wait: with the node, or with ETIMEDOUT or whatever forbids the waiter to look.
    using Done = std::move_only_function<void(Result<const Node*>)>;

    Waiters(EventLoop& loop, Store& store) : loop_(loop), store_(store) {}

    void add(SessionId session, std::string name, bool sealed, int timeout_ms, Done done);
    void forget(SessionId session);
    // Something has happened to this name (and, if it is a directory, to all below it).
    void notify(const std::string& name);
    bool empty() const { return waiting_.empty(); }

private:
    struct Waiter {
        SessionId session;
        bool sealed;
        std::optional<EventLoop::TimerId> timer;
        Done done;
    };
    using Waiting = std::multimap<std::string, Waiter>;

    // What to tell the waiter now; nothing: it waits on.
    std::optional<Result<const Node*>> outcome(const std::string& name, const Waiter& waiter) const;

    EventLoop& loop_;
    Store& store_;
    Waiting waiting_;
};

}  // namespace gshm
