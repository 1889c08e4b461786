// Sessions that wait for a name to appear, to be sealed or to lead elsewhere.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>

#include "daemon/loop.h"
#include "store/watches.h"

namespace gshm {

class Waiters {
public:
    // Called once per wait: with the node, or with ETIMEDOUT or whatever forbids the waiter to look.
    using Done = std::move_only_function<void(Result<const Node*>)>;
    using Gone = std::move_only_function<void(Status)>;

    Waiters(EventLoop& loop, Store& store, Watches& watches) : loop_(loop), store_(store), watches_(watches) {}

    void add(SessionId session, std::string name, bool sealed, int timeout_ms, Done done);
    // Until the name does not lead to that node, whoever has it then.
    void add_gone(SessionId session, std::string name, NodeId id, int timeout_ms, Gone done);
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
    struct GoneWaiter {
        SessionId session;
        std::string name;
        NodeId id;
        std::optional<EventLoop::TimerId> timer;
        Gone done;
    };
    // Nothing: it still leads there.
    std::optional<Status> is_gone(const GoneWaiter& waiter) const;
    // Names have changed: looks at all, since a name may also be lost by a directory or a symbolic link on its way.
    void look_for_gone();
    void listen_if_needed();

    // What to tell the waiter now; nothing: it waits on.
    std::optional<Result<const Node*>> outcome(const std::string& name, const Waiter& waiter) const;

    EventLoop& loop_;
    Store& store_;
    Watches& watches_;
    Waiting waiting_;
    std::list<GoneWaiter> gone_;
};

}  // namespace gshm
