#include "base/budgets.h"

#include <algorithm>
#include <cerrno>

#include "base/limits.h"

namespace gshm::core {
namespace {

struct Kind {
    const char* name;
    limits::UserBudget budget;
    int error;
    const char* what;  // "user 7 has 8 <what>"
    const char* remedy;
};

constexpr Kind kinds[] = {
    {"connections", limits::kUserConnections, EUSERS, "connections", "end some of the processes that use gshmd"},
    {"greetings", limits::kUserGreetings, EUSERS, "connections that have not said Hello",
     "end the processes that opened them"},
    {"descriptors", limits::kUserDescriptors, EMFILE, "descriptors in gshmd",
     "close connections, rings and their files, or remove objects"},
    {"jobs", limits::kUserJobs, EAGAIN, "requests under way", "wait for their replies"},
    {"reply-bytes", limits::kUserReplyBytes, ENOBUFS, "bytes of unread replies", "read them"},
    {"waits", limits::kUserWaits, EAGAIN, "waits for names", "end some of them"},
    {"wait-steps", limits::kUserWaitSteps, EAGAIN, "directory entries that its waits depend on",
     "end some of the waits"},
    {"watches", limits::kUserWatches, ENOSPC, "watches", "end some of them"},
    {"event-bytes", limits::kUserEventBytes, ENOBUFS, "bytes of unread events", "read them"},
    {"leases", limits::kUserLeases, EMFILE, "leases", "close some of the objects"},
    {"fences", limits::kUserFences, EMFILE, "fences", "remove some of the objects that have one"},
    {"rings", limits::kUserRings, EMFILE, "rings", "destroy some of them"},
    {"name-bytes", limits::kUserNameBytes, EDQUOT, "bytes of names and attributes", "remove some of them"},
};
static_assert(std::size(kinds) == Budgets::kKinds);

constexpr uint64_t kUnlimited = UINT64_MAX;

}  // namespace

Budgets::Budgets(uid_t owner) : owner_(owner), shared_(std::make_shared<Shared>()) {
    for (auto& total : shared_->totals) total = kUnlimited;
}

void Budgets::set_limits(const Machine& machine, unsigned share_percent, const Totals& totals) {
    shared_->share_percent = std::clamp(share_percent, 1u, 99u);
    const uint64_t descriptors = machine.descriptors - machine.descriptors / limits::kDescriptorReserve;
    for (size_t i = 0; i < kKinds; ++i) {
        const auto& budget = kinds[i].budget;
        uint64_t total = budget.most;
        if (budget.descriptors_for_one != 0) total = std::min(total, descriptors / budget.descriptors_for_one);
        if (budget.memory_bytes_for_one != 0) {
            total = std::min(total, machine.memory_bytes / budget.memory_bytes_for_one);
        }
        if (static_cast<Resource>(i) == Resource::name_bytes) total = std::min(total, machine.folder_bytes / 2);
        shared_->totals[i] = std::min(total, totals[i]);
    }
}

std::optional<Resource> Budgets::find(std::string_view name) {
    const auto found = std::ranges::find(kinds, name, &Kind::name);
    if (found == std::end(kinds)) return std::nullopt;
    return static_cast<Resource>(found - kinds);
}

std::string_view Budgets::name_of(Resource kind) {
    return kinds[static_cast<size_t>(kind)].name;
}

std::shared_ptr<Budgets::User> Budgets::user(uid_t uid) {
    MutexLock lock(mutex_);
    auto& record = users_[uid];
    if (auto found = record.lock()) return found;
    auto made = std::make_shared<User>(uid, uid == 0 || uid == owner_, shared_);
    record = made;
    if (users_.size() >= clean_at_) {
        std::erase_if(users_, [](const auto& entry) { return entry.second.expired(); });
        clean_at_ = 2 * users_.size() + 64;
    }
    return made;
}

uint64_t Budgets::User::allowed(Resource kind) const {
    const size_t i = index(kind);
    const uint64_t total = shared_->totals[i];
    if (total == kUnlimited) return kUnlimited;
    const uint64_t used = shared_->used[i].load(std::memory_order_relaxed);
    // A user alone, with share_percent of the total, then holds exactly this multiple of what is free.
    const uint64_t free = total > used ? total - used : 0;
    const uint64_t share = shared_->share_percent;
    const uint64_t rest = 100 - share;
    return std::max(free / rest * share + free % rest * share / rest, kinds[i].budget.least);
}

Error Budgets::User::refusal(Resource kind) const {
    const Kind& of = kinds[index(kind)];
    return {of.error, fmt::format("user {} has {} {}, and one user may not have more now: {}", uid_, held(kind),
                                  of.what, of.remedy)};
}

bool Budgets::User::take(Resource kind, uint64_t amount) {
    add(kind, amount);
    if (exempt_ || held(kind) <= allowed(kind)) return true;
    give(kind, amount);
    return false;
}

void Budgets::User::add(Resource kind, uint64_t amount) {
    held_[index(kind)].fetch_add(amount, std::memory_order_relaxed);
    shared_->used[index(kind)].fetch_add(amount, std::memory_order_relaxed);
}

void Budgets::User::give(Resource kind, uint64_t amount) {
    held_[index(kind)].fetch_sub(amount, std::memory_order_relaxed);
    shared_->used[index(kind)].fetch_sub(amount, std::memory_order_relaxed);
}

}  // namespace gshm::core
