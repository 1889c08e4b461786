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

std::optional<Status> Waiters::is_gone(const GoneWaiter& waiter) const {
    auto node = store_.stat(waiter.session, waiter.name);
    if (node) return (*node)->id == waiter.id ? std::nullopt : std::optional<Status>(Status{});
    if (node.error().code == ENOENT || node.error().code == ENOTDIR) return Status{};
    return std::unexpected(node.error());
}

void Waiters::add_gone(SessionId session, std::string name, NodeId id, int timeout_ms, Gone done) {
    GoneWaiter waiter{session, std::move(name), id, std::nullopt, std::move(done)};
    if (auto now = is_gone(waiter)) return waiter.done(std::move(*now));
    if (timeout_ms == 0) return waiter.done(fail(ETIMEDOUT, "\"{}\" is still there", waiter.name));
    auto added = gone_.insert(gone_.end(), std::move(waiter));
    listen_if_needed();
    if (timeout_ms < 0) return;
    added->timer = loop_.after(std::chrono::milliseconds(timeout_ms), [this, added] {
        auto expired = std::move(*added);
        gone_.erase(added);
        listen_if_needed();
        expired.done(fail(ETIMEDOUT, "\"{}\" is still there", expired.name));
    });
}

void Waiters::look_for_gone() {
    for (auto at = gone_.begin(); at != gone_.end();) {
        auto now = is_gone(*at);
        if (!now) {
            ++at;
            continue;
        }
        if (at->timer) loop_.cancel(*at->timer);
        auto done = std::move(at->done);
        at = gone_.erase(at);
        done(std::move(*now));
    }
    listen_if_needed();
}

void Waiters::listen_if_needed() {
    if (gone_.empty()) watches_.set_on_loss({});
    else watches_.set_on_loss([this] { look_for_gone(); });
}

void Waiters::forget(SessionId session) {
    const size_t ended = std::erase_if(gone_, [&](const auto& waiter) {
        if (waiter.session != session) return false;
        if (waiter.timer) loop_.cancel(*waiter.timer);
        return true;
    });
    if (ended > 0) listen_if_needed();
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
