#include "store/waits.h"

#include <utility>

#include "base/limits.h"

namespace gshm::core {
namespace {

Tree::Step step_of(const Link& link) {
    return {link.parent->id, link.name};
}

std::unexpected<Error> too_many(std::string_view name) {
    return fail(EAGAIN,
                "the waits of the session, or of its user, have too many directories on their ways to wait for "
                "\"{}\" as well",
                name);
}

}  // namespace

std::optional<Waits::Outcome> Waits::look(SessionId session, const Wanted& wanted, std::vector<Key>* ret_keys) const {
    // A symbolic link exists or goes itself. Its target is sealed.
    const auto last = wanted.until == Until::sealed ? Tree::Last::follow : Tree::Last::keep;
    auto node = store_.stat(session, wanted.name, ret_keys, last);
    const bool absent = !node && (node.error().code == ENOENT || node.error().code == ENOTDIR);
    if (wanted.until == Until::gone) {
        if (absent || (node && (*node)->id != wanted.node)) return nullptr;
        return node ? std::nullopt : std::optional<Outcome>(std::move(node));
    }
    if (absent) return std::nullopt;
    if (!node || wanted.until == Until::exists) return node;
    if ((*node)->kind == NodeKind::directory) {
        return fail(EISDIR, "\"{}\" is a directory, which is never sealed", wanted.name);
    }
    if ((*node)->kind != NodeKind::object)
        return fail(EINVAL, "\"{}\" is a special file, which is never sealed", wanted.name);
    if (static_cast<const Object*>(*node)->state == ObjectState::sealed) return node;
    ret_keys->push_back({(*node)->id, {}});
    return std::nullopt;
}

std::optional<Waits::Outcome> Waits::add(SessionId session, Wanted wanted, Done done, Id* ret_id) {
    std::vector<Key> keys;
    if (auto outcome = look(session, wanted, &keys)) return outcome;
    if (waits_.empty()) store_.add_listener(this);
    const Id id = next_id_++;
    waits_.emplace(id, Wait{session, std::move(wanted), std::move(done), {}, store_.credentials(session).uid});
    *ret_id = id;
    if (enlist(id, std::move(keys))) return std::nullopt;
    Outcome refused = too_many(waits_.at(id).wanted.name);
    erase(id);
    return refused;
}

void Waits::cancel(Id id) {
    if (waits_.contains(id)) erase(id);
}

bool Waits::enlist(Id id, std::vector<Key> keys) {
    Wait& wait = waits_.at(id);
    auto [steps, first] = steps_.try_emplace(wait.session);
    if (first) steps->second = {store_.budgets().user(wait.uid), Resource::wait_steps};
    if (steps->second.amount() + keys.size() > limits::kSessionWaitSteps || !steps->second.take(keys.size())) {
        if (steps->second.amount() == 0) steps_.erase(steps);
        return false;
    }
    for (const Key& key : keys) by_key_[key].insert(id);
    wait.keys = std::move(keys);
    return true;
}

void Waits::delist(Id id) {
    const Wait& wait = waits_.at(id);
    if (auto steps = steps_.find(wait.session); steps != steps_.end()) {
        steps->second.give(wait.keys.size());
        if (steps->second.amount() == 0) steps_.erase(steps);
    }
    for (const Key& key : std::exchange(waits_.at(id).keys, {})) {
        auto found = by_key_.find(key);
        if (found == by_key_.end()) continue;  // the wait has the key twice
        found->second.erase(id);
        if (found->second.empty()) by_key_.erase(found);
    }
}

void Waits::erase(Id id) {
    delist(id);
    waits_.erase(id);
    if (waits_.empty()) store_.remove_listener(this);
}

void Waits::settle(Id id, Outcome outcome) {
    Done done = std::move(waits_.at(id).done);
    erase(id);
    done(std::move(outcome));
}

template <typename Concerns>
std::vector<Waits::Id> Waits::waiting_at(const Key& key, Concerns concerns) {
    auto found = by_key_.find(key);
    if (found == by_key_.end()) return {};
    std::vector<Id> now;
    std::map<uid_t, size_t> users;
    const bool was_idle = due_.empty();
    for (Id id : found->second) {
        Wait& wait = waits_.at(id);
        if (!concerns(wait)) continue;
        if (users[wait.uid]++ < kAtOnce) now.push_back(id);
        else if (!std::exchange(wait.is_due, true)) due_.push_back(id);
    }
    if (was_idle && !due_.empty() && wake_) wake_();
    return now;
}

void Waits::check(Id id) {
    const Wait& wait = waits_.at(id);
    std::vector<Key> keys;
    auto outcome = look(wait.session, wait.wanted, &keys);
    if (outcome) return settle(id, std::move(*outcome));
    delist(id);
    if (!enlist(id, std::move(keys))) settle(id, too_many(waits_.at(id).wanted.name));
}

void Waits::changed(const Key& key) {
    for (Id id : waiting_at(key, [](const Wait&) { return true; })) check(id);
}

void Waits::check_due() {
    constexpr size_t kPart = 256;
    for (size_t i = 0; i < kPart && !due_.empty(); ++i) {
        const Id id = due_.front();
        due_.pop_front();
        auto found = waits_.find(id);
        if (found == waits_.end()) continue;
        found->second.is_due = false;
        check(id);
    }
    if (!due_.empty() && wake_) wake_();
}

void Waits::removing(const Link& link) {
    // The other waits continue until the entry exists again.
    for (Id id : waiting_at(step_of(link), [](const Wait& wait) { return wait.wanted.until == Until::gone; })) {
        settle(id, nullptr);
    }
}

void Waits::added(const Link& link) {
    changed(step_of(link));
}

void Waits::moving(const Link& link, const Directory&, std::string_view) {
    moving_from_ = step_of(link);
}

void Waits::moved(const Link& link) {
    changed(std::exchange(moving_from_, {}));
    changed(step_of(link));
}

void Waits::exchanged(const Link& a, const Link& b) {
    changed(step_of(a));
    changed(step_of(b));
}

void Waits::sealed(const Object& object) {
    changed({object.id, {}});
}

}  // namespace gshm::core
