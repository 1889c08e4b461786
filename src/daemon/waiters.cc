#include "daemon/waiters.h"

namespace gshm {

std::optional<Result<const Node*>> Waiters::outcome(const std::string& name, const Waiter& waiter) const {
    auto node = store_.stat(waiter.session, name);
    if (!node && (node.error().code == ENOENT || node.error().code == ENOTDIR)) return std::nullopt;
    if (!node || !waiter.sealed) return node;
    if ((*node)->kind == NodeKind::directory) return fail(EISDIR, "\"{}\" is a directory, which is never sealed", name);
    if ((*node)->kind != NodeKind::object) return fail(EINVAL, "\"{}\" is no object and is never sealed", name);
    if (static_cast<const Object*>(*node)->state != ObjectState::sealed) return std::nullopt;
    return node;
}

void Waiters::add(SessionId session, std::string name, bool sealed, int timeout_ms, Done done) {
    Waiter waiter{session, sealed, std::nullopt, std::move(done)};
    if (auto now = outcome(name, waiter)) return waiter.done(std::move(*now));
    if (timeout_ms == 0) return waiter.done(fail(ETIMEDOUT, "\"{}\" is not there yet", name));
    auto added = waiting_.emplace(std::move(name), std::move(waiter));
    if (timeout_ms < 0) return;
    added->second.timer = loop_.after(std::chrono::milliseconds(timeout_ms), [this, added] {
        auto expired = waiting_.extract(added);
        expired.mapped().done(fail(ETIMEDOUT, "\"{}\" has not come in time", expired.key()));
    });
}

void Waiters::forget(SessionId session) {
    std::erase_if(waiting_, [&](const auto& entry) {
        if (entry.second.session != session) return false;
        if (entry.second.timer) loop_.cancel(*entry.second.timer);
        return true;
    });
}

void Waiters::notify(const std::string& name) {
    // Names are sorted: this one and those that begin with it stand together.
    for (auto at = waiting_.lower_bound(name); at != waiting_.end() && at->first.starts_with(name);) {
        bool concerned = at->first.size() == name.size() || at->first[name.size()] == '/';
        auto now = concerned ? outcome(at->first, at->second) : std::nullopt;
        if (!now) {
            ++at;
            continue;
        }
        auto done = waiting_.extract(at++);
        if (done.mapped().timer) loop_.cancel(*done.mapped().timer);
        done.mapped().done(std::move(*now));
    }
}

}  // namespace gshm
