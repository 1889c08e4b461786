#include "store/account_limits.h"

#include <algorithm>

#include "base/size.h"

namespace gshm::core {
namespace {

constexpr int64_t kNsPerS = 1'000'000'000;

uint64_t difference(uint64_t a, uint64_t b) {
    return a - std::min(a, b);
}

int64_t grace_ns(const LimitValues& values) {
    // So that the sum with a time is one.
    constexpr uint64_t kMost = INT64_MAX / kNsPerS / 4;
    return static_cast<int64_t>(std::min(values.grace_s == 0 ? kGraceS : values.grace_s, kMost)) * kNsPerS;
}

std::string span_text(uint64_t seconds) {
    constexpr uint64_t kDay = 24 * 3600;
    if (seconds % kDay == 0) return fmt::format("{} day{}", seconds / kDay, seconds == kDay ? "" : "s");
    return fmt::format("{} s", seconds);
}

bool has_bytes(const Limits& limits) {
    return std::ranges::any_of(limits, [](const Limit& limit) {
        return limit.on != Limit::kUnknown && (limit.values.bytes != 0 || limit.values.soft_bytes != 0);
    });
}

const Limits* find(const AccountLimits::Accounted& accounts, uint32_t id) {
    auto found = accounts.find(id);
    return found == accounts.end() ? nullptr : &found->second;
}

// The device that the share counts on: not its tier.
DeviceIndex home_of(const AccountShare& share) {
    return share.evicted_from != 0 ? share.evicted_from - 1 : share.device;
}

}  // namespace

void TreeAccountDeleter::operator()(TreeAccount* account) const {
    account->limits.forget(account);
}

// What an object counts with.
struct AccountLimits::Charge {
    uid_t uid = 0;
    gid_t gid = 0;
    DeviceIndex device = 0;  // it belongs to
    uint64_t bytes = 0;
    uint64_t objects = 1;
    std::span<TreeAccount* const> trees = {};
    // Former memory.
    const std::vector<AccountShare>* retired = nullptr;
    DeviceIndex former_device = 0;
    uint64_t former_bytes = 0;

    static Charge of(const Object& object) {
        const AccountShare& own = object.accounted.own();
        Charge charge{own.uid, own.gid, home_of(own), own.bytes};
        charge.retired = object.accounted.retired();
        if (object.accounted.trees() != nullptr) charge.trees = object.accounted.trees()->accounts;
        return charge;
    }
    LimitUse on(DeviceIndex limit) const {
        LimitUse found;
        auto counts = [&](DeviceIndex where) { return limit == Limit::kAll || limit == where; };
        if (counts(device)) found = {bytes, objects, 0};
        if (counts(former_device)) found.bytes += former_bytes;
        if (retired == nullptr) return found;
        for (const AccountShare& share : *retired) {
            if (counts(share.device)) found.bytes += share.bytes;
        }
        return found;
    }
    bool is_in(const TreeAccount* account) const { return std::ranges::find(trees, account) != trees.end(); }
};

AccountLimits::~AccountLimits() {
    for (TreeAccount* account : former_) delete account;
}

// ---- use ----

// Memory in a tier counts on the device that the object belongs to: it may always return.
LimitUse AccountLimits::use_of(const Account& account) {
    const uint64_t bytes = difference(account.object_bytes, account.tier_bytes) + account.evicted_bytes;
    const uint64_t objects = difference(account.objects, account.tier_objects) + account.evicted_objects;
    return {bytes, objects, std::min(account.unlinked_bytes, bytes)};
}

LimitUse AccountLimits::user_use(uid_t uid, DeviceIndex device) const {
    const Accounts& accounts = store_.accounts();
    if (device != Limit::kAll) return use_of(accounts.of(device, uid));
    LimitUse all;
    for (DeviceIndex i = 0; i < store_.devices().size(); ++i) {
        const LimitUse use = use_of(accounts.of(i, uid));
        all = {all.bytes + use.bytes, all.objects + use.objects, all.unlinked_bytes + use.unlinked_bytes};
    }
    return all;
}

LimitUse AccountLimits::group_use(gid_t gid, DeviceIndex device) const {
    const Accounts& accounts = store_.accounts();
    if (device != Limit::kAll) return use_of(accounts.of_group(device, gid));
    LimitUse all;
    for (DeviceIndex i = 0; i < store_.devices().size(); ++i) {
        const LimitUse use = use_of(accounts.of_group(i, gid));
        all = {all.bytes + use.bytes, all.objects + use.objects, all.unlinked_bytes + use.unlinked_bytes};
    }
    return all;
}

LimitUse AccountLimits::tree_use(const TreeAccount& account, DeviceIndex device) {
    return device == Limit::kAll ? account.all : account.use[device];
}

void AccountLimits::count(const TreeSet& trees, const AccountShare& share, bool taken_away) {
    auto add = [&](uint64_t& counter, uint64_t amount) { counter = taken_away ? counter - amount : counter + amount; };
    for (TreeAccount* account : trees.accounts) {
        auto change = [&](LimitUse& use) {
            add(use.bytes, share.bytes);
            add(use.objects, share.is_object ? 1 : 0);
            if (share.unlinked) add(use.unlinked_bytes, share.bytes);
        };
        change(account->all);
        change(account->use[home_of(share)]);
        uint64_t& of_user = account->user_bytes[share.uid];
        add(of_user, share.bytes);
        if (of_user == 0) account->user_bytes.erase(share.uid);
    }
}

bool AccountLimits::limits_bytes(const Object& object) const {
    if (!any()) return false;
    const Limits* user = find(users_, object.uid);
    const Limits* group = find(groups_, object.gid);
    if ((user != nullptr && has_bytes(*user)) || (group != nullptr && has_bytes(*group))) return true;
    const TreeSet* trees = object.accounted.trees();
    return trees != nullptr && std::ranges::any_of(trees->accounts, [](const TreeAccount* account) {
               return account->directory != nullptr && has_bytes(account->set);
           });
}

bool AccountLimits::limits_bytes(uid_t uid, gid_t gid, const Directory& parent) const {
    if (!any()) return false;
    const Limits* user = find(users_, uid);
    const Limits* group = find(groups_, gid);
    if ((user != nullptr && has_bytes(*user)) || (group != nullptr && has_bytes(*group))) return true;
    return has_trees() &&
           std::ranges::any_of(trees_of(parent), [](const TreeAccount* account) { return has_bytes(account->set); });
}

// ---- checks ----

template <typename Who>
Status AccountLimits::check_one(const Limit& limit, bool is_bytes, const LimitUse& use, uint64_t more, const Who& who) {
    const uint64_t used = is_bytes ? use.bytes : use.objects;
    const uint64_t hard = is_bytes ? limit.values.bytes : limit.values.objects;
    const uint64_t soft = is_bytes ? limit.values.soft_bytes : limit.values.soft_objects;
    const int64_t until = is_bytes ? limit.bytes_until_ns : limit.objects_until_ns;
    auto exceeds = [&](uint64_t allowed) { return allowed != 0 && (used > allowed || more > allowed - used); };
    const bool is_over = exceeds(hard);
    if (!is_over && (until == 0 || !exceeds(soft) || store_.clock().steady_ns() < until)) return {};
    auto text = [&](uint64_t amount) {
        return is_bytes ? size_text(amount) : fmt::format("{} object{}", amount, amount == 1 ? "" : "s");
    };
    constexpr const char* kHelp = "(`gshm quota` shows what counts)";
    const std::string where = limit.on == Limit::kAll ? "on all devices together" : "on " + limit.device;
    const std::string held =
        !is_bytes || use.unlinked_bytes == 0
            ? ""
            : fmt::format(" ({} of it has no name, and is still held)", size_text(use.unlinked_bytes));
    if (is_over) {
        return fail(EDQUOT, "the limit of {} {} is {}: {} used{}, and {} more needed {}", who(), where, text(hard),
                    text(used), held, text(more), kHelp);
    }
    return fail(EDQUOT,
                "the soft limit of {} {} is {}, and was exceeded for longer than its grace of {}: {} used{}, and {} "
                "more needed {}",
                who(), where, text(soft), span_text(limit.values.grace_s == 0 ? kGraceS : limit.values.grace_s),
                text(used), held, text(more), kHelp);
}

template <typename Use, typename More, typename Who>
Status AccountLimits::check_limits(const Limits& limits, const Use& use, const More& more, const Who& who) {
    for (const Limit& limit : limits) {
        if (limit.on == Limit::kUnknown) continue;
        const LimitUse added = more(limit.on);
        if (added.bytes == 0 && added.objects == 0) continue;
        const LimitUse used = use(limit.on);
        if (added.bytes != 0) TRY(check_one(limit, true, used, added.bytes, who));
        if (added.objects != 0) TRY(check_one(limit, false, used, added.objects, who));
    }
    return {};
}

Status AccountLimits::note_refusal(const TreeAccount* account, Status checked) {
    if (checked) return checked;
    refused_by_ = account;
    refusal_ = checked.error().message;
    return checked;
}

// Null: a new object. Only what an account has more of is checked, so that an account beyond its limit may shrink.
Status AccountLimits::check(const Charge* before, const Charge& after) {
    refused_by_ = nullptr;
    auto more = [&](bool was_in) {
        return [&, was_in](DeviceIndex device) {
            const LimitUse now = after.on(device);
            const LimitUse then = was_in ? before->on(device) : LimitUse{};
            return LimitUse{difference(now.bytes, then.bytes), difference(now.objects, then.objects), 0};
        };
    };
    if (const Limits* limits = find(users_, after.uid)) {
        TRY(check_limits(
            *limits, [&](DeviceIndex device) { return user_use(after.uid, device); },
            more(before != nullptr && before->uid == after.uid), [&] { return fmt::format("user {}", after.uid); }));
    }
    if (const Limits* limits = find(groups_, after.gid)) {
        TRY(check_limits(
            *limits, [&](DeviceIndex device) { return group_use(after.gid, device); },
            more(before != nullptr && before->gid == after.gid), [&] { return fmt::format("group {}", after.gid); }));
    }
    for (const TreeAccount* account : after.trees) {
        if (account->directory == nullptr) continue;
        auto checked = check_limits(
            account->set, [&](DeviceIndex device) { return tree_use(*account, device); },
            more(before != nullptr && before->is_in(account)),
            [&] { return fmt::format("directory \"{}\"", Tree::path_of(*account->directory)); });
        TRY(note_refusal(account, std::move(checked)));
    }
    return {};
}

Status AccountLimits::check_new_object(uid_t uid, gid_t gid, const Directory& parent, DeviceIndex device,
                                       uint64_t bytes) {
    const Counted trees = has_trees() ? trees_of(parent) : Counted();
    Charge charge{uid, gid, device, bytes};
    charge.trees = trees;
    return check(nullptr, charge);
}

Status AccountLimits::check_new_owner(const Node& node, std::optional<uid_t> uid, std::optional<gid_t> gid) {
    if (node.kind != NodeKind::object) return {};
    const Charge before = Charge::of(static_cast<const Object&>(node));
    Charge after = before;
    after.uid = uid.value_or(after.uid);
    after.gid = gid.value_or(after.gid);
    return check(&before, after);
}

Status AccountLimits::check_new_device(const Object& object, DeviceIndex to, bool keeps_old) {
    const Charge before = Charge::of(object);
    Charge after = before;
    after.device = to;
    if (keeps_old) {
        after.former_device = object.device;
        after.former_bytes = object.extent == nullptr ? 0 : object.size_bytes;  // without a growth
    }
    return check(&before, after);
}

// What gets into directories with limits.
struct AccountLimits::Arrivals {
    Counted into;
    std::map<TreeAccount*, std::map<DeviceIndex, LimitUse>> sums;

    void add(const Object& object) {
        const Charge charge = Charge::of(object);
        for (TreeAccount* account : into) {
            if (charge.is_in(account)) continue;
            for (const Limit& limit : account->set) {
                const LimitUse more = charge.on(limit.on);
                LimitUse& sum = sums[account][limit.on];
                sum.bytes += more.bytes;
                sum.objects += more.objects;
            }
        }
    }
};

Status AccountLimits::check_new_name(const Node& node, const Directory& to) {
    refused_by_ = nullptr;
    Arrivals arrivals{trees_of(to), {}};
    if (arrivals.into.empty()) return {};
    std::vector<const Node*> pending{&node};
    std::set<const Node*> linked;  // objects with several names are met several times
    while (!pending.empty()) {
        const Node* at = pending.back();
        pending.pop_back();
        if (at->kind == NodeKind::directory) {
            uint64_t end = 0;
            const auto& order = static_cast<const Directory*>(at)->order;
            for (const Link* link : order.after(0, SIZE_MAX, &end)) pending.push_back(link->node);
        } else if (at->kind == NodeKind::object && (at->links <= 1 || linked.insert(at).second)) {
            arrivals.add(static_cast<const Object&>(*at));
        }
    }
    for (auto& [account, sums] : arrivals.sums) {
        auto checked = check_limits(
            account->set, [&](DeviceIndex device) { return tree_use(*account, device); },
            [&](DeviceIndex device) { return sums[device]; },
            [&] { return fmt::format("directory \"{}\"", Tree::path_of(*account->directory)); });
        TRY(note_refusal(account, std::move(checked)));
    }
    return {};
}

// ---- growth ----

uint64_t AccountLimits::counted_bytes(const Object& object, uint64_t bytes) const {
    auto found = growth_.find(&object);
    return found == growth_.end() ? bytes : std::max(bytes, found->second.end);
}

Result<bool> AccountLimits::begin_growth(Object& object, uint64_t end) {
    if (!any() || end <= (object.extent == nullptr ? 0 : object.size_bytes)) return false;
    const Charge before = Charge::of(object);
    Charge after = before;
    after.bytes = std::max(before.bytes, end);
    TRY(check(&before, after));
    Growth& growth = growth_[&object];
    ++growth.threads;
    growth.end = std::max(growth.end, end);
    store_.accounts_.update(object);
    return true;
}

void AccountLimits::end_growth(Object& object) {
    auto found = growth_.find(&object);
    if (--found->second.threads > 0) return;
    growth_.erase(found);
    store_.accounts_.update(object);
}

// ---- directories ----

AccountLimits::Counted AccountLimits::trees_of(const Directory& directory) {
    Counted found;
    for (const Directory* at = &directory; at != nullptr; at = at->parent()) {
        if (at->account) found.push_back(at->account.get());
    }
    std::ranges::sort(found);
    return found;
}

AccountLimits::Counted AccountLimits::trees_of(const Object& object) {
    Counted found;
    auto add = [&](const Link& link) {
        if (link.parent == nullptr) return;
        const Counted above = trees_of(*link.parent);
        found.insert(found.end(), above.begin(), above.end());
    };
    add(object.first_link);
    for (const auto& link : object.further_links) add(*link);
    std::ranges::sort(found);
    const auto rest = std::ranges::unique(found);
    found.erase(rest.begin(), rest.end());
    return found;
}

const TreeSet* AccountLimits::intern(Counted accounts) {
    if (accounts.empty()) return nullptr;
    auto& found = sets_[accounts];
    if (!found) {
        for (TreeAccount* account : accounts) ++account->sets;
        found = std::make_unique<TreeSet>(TreeSet{std::move(accounts)});
    }
    return found.get();
}

void AccountLimits::retain(const TreeSet* trees) {
    if (trees != nullptr) ++trees->objects;
}

void AccountLimits::release(const TreeSet* trees) {
    if (trees == nullptr || --trees->objects > 0) return;
    const Counted accounts = trees->accounts;
    sets_.erase(accounts);
    for (TreeAccount* account : accounts) {
        if (--account->sets == 0 && former_.erase(account) > 0) delete account;
    }
}

void AccountLimits::forget(TreeAccount* account) {
    std::erase_if(trees_, [&](const auto& entry) { return entry.second == account; });
    std::erase_if(walks_, [&](const Walk& walk) { return walk.account == account; });
    if (refused_by_ == account) refused_by_ = nullptr;
    account->directory = nullptr;
    for (const Limit& limit : account->set) {
        if (limit.values.soft_bytes != 0 || limit.values.soft_objects != 0) soft_ -= std::min<size_t>(soft_, 1);
    }
    account->set.clear();
    if (account->sets == 0) delete account;
    else former_.insert(account);
    look_again();
}

void AccountLimits::count_in(Object& object, const Directory& parent) {
    if (has_trees()) store_.accounts_.set_trees(object, intern(trees_of(parent)));
}

void AccountLimits::count_again(Node& node) {
    std::vector<Node*> pending{&node};
    while (!pending.empty()) {
        Node* at = pending.back();
        pending.pop_back();
        if (auto* directory = as_directory(at)) {
            uint64_t end = 0;
            for (const Link* link : directory->order.after(0, SIZE_MAX, &end)) pending.push_back(link->node);
        } else if (auto* object = as_object(at); object != nullptr && object->links > 0) {
            store_.accounts_.set_trees(*object, intern(trees_of(*object)));
        }
    }
}

bool AccountLimits::count_some(size_t most) {
    while (!walks_.empty()) {
        Walk& walk = walks_.back();
        while (!walk.left.empty()) {
            if (most == 0) return true;
            auto [id, cookie] = walk.left.back();
            walk.left.pop_back();
            Node* node = store_.nodes_.find(id);
            auto* directory = node == nullptr ? nullptr : as_directory(node);
            if (directory == nullptr) continue;
            uint64_t next = 0;
            const auto links = directory->order.after(cookie, most, &next);
            if (next != 0) walk.left.emplace_back(id, next);
            most -= std::min(most, links.size() + 1);
            for (const Link* link : links) {
                if (link->node->kind == NodeKind::directory) walk.left.emplace_back(link->node->id, 0);
                else count_again(*link->node);
            }
        }
        walks_.pop_back();
    }
    return false;
}

// ---- soft limits ----

bool AccountLimits::settle(Limits& limits, const std::function<LimitUse(DeviceIndex)>& use) {
    bool changed = false;
    for (Limit& limit : limits) {
        if (limit.on == Limit::kUnknown) continue;
        // A time without a soft limit ends.
        const bool has_time = limit.bytes_until_ns != 0 || limit.objects_until_ns != 0;
        if (limit.values.soft_bytes == 0 && limit.values.soft_objects == 0 && !has_time) continue;
        const LimitUse used = use(limit.on);
        auto one = [&](uint64_t soft, uint64_t amount, int64_t& until) {
            const bool exceeded = soft != 0 && amount > soft;
            if (exceeded == (until != 0)) return;
            until = exceeded ? store_.clock().steady_ns() + grace_ns(limit.values) : 0;
            changed = true;
        };
        one(limit.values.soft_bytes, used.bytes, limit.bytes_until_ns);
        one(limit.values.soft_objects, used.objects, limit.objects_until_ns);
    }
    return changed;
}

void AccountLimits::settle(const AccountShare& share, const TreeSet* trees) {
    if (auto user = users_.find(share.uid); user != users_.end()) {
        if (settle(user->second, [&](DeviceIndex device) { return user_use(share.uid, device); })) {
            record(LimitKind::user, share.uid);
        }
    }
    if (auto group = groups_.find(share.gid); group != groups_.end()) {
        if (settle(group->second, [&](DeviceIndex device) { return group_use(share.gid, device); })) {
            record(LimitKind::group, share.gid);
        }
    }
    if (trees == nullptr) return;
    for (TreeAccount* account : trees->accounts) {
        if (account->directory == nullptr) continue;
        if (settle(account->set, [&](DeviceIndex device) { return tree_use(*account, device); })) {
            store_.nodes_.changed(account->directory);
        }
    }
}

int64_t AccountLimits::time_of_day(int64_t until_ns) const {
    return until_ns == 0 ? 0 : store_.clock().now_ns() + (until_ns - store_.clock().steady_ns());
}

}  // namespace gshm::core
