// Requests for limits on accounts. Root and the daemon's own user set them and see all; others see what concerns them.
#include <algorithm>

#include "base/size.h"
#include "daemon/server.h"
#include "daemon/users_text.h"
#include "store/account_limits.h"

namespace gshm::core {
namespace {

constexpr size_t kMostRecords = 512;  // in a reply, roughly
constexpr size_t kMostCounted = 512;  // in one hold of the store lock

// An account, in the order of the list. The id of a directory is that of its node, of a reserve that of the device.
struct Key {
    LimitKind kind;
    uint64_t id;
    auto operator<=>(const Key&) const = default;
};

struct Row {
    std::string device;  // "": all
    LimitValues values;
    LimitUse use;
    int64_t bytes_until_ns = 0;
    int64_t objects_until_ns = 0;
};

const Limits* limits_of(const AccountLimits::Accounted& accounts, uint64_t id) {
    auto found = accounts.find(static_cast<uint32_t>(id));
    return found == accounts.end() ? nullptr : &found->second;
}

std::string_view path_in(const flatbuffers::String* path) {
    const auto text = path == nullptr ? std::string_view() : wire::view(path);
    return text == "/" ? std::string_view() : text;
}

// What a user asks for, and may see.
class Query {
public:
    Query(const Store& store, const Reserves& reserves, const DeviceSet& devices, const Credentials& who, bool all)
        : store_(store), reserves_(reserves), devices_(devices), who_(who), all_(all) {}

    // Other users' directories are as absent ones.
    bool may_see(const Node& directory) const {
        return all_ || directory.id == Files::kRoot ||
               (is_permitted(directory, who_, kRightRead | kRightExecute) && Tree::has_way_to(who_, directory));
    }
    bool may_see(LimitKind kind, uint32_t id) const {
        return all_ || (kind == LimitKind::user ? id == who_.uid : who_.in_group(id));
    }

    // The accounts with limits; `used`: also users and groups that have something. kind 0: of all kinds.
    std::vector<Key> keys(uint8_t kind, bool used) const {
        std::vector<Key> keys;
        const AccountLimits& limits = store_.limits();
        const Accounts& accounts = store_.accounts();
        auto wanted = [&](LimitKind one) { return kind == 0 || kind == static_cast<uint8_t>(one); };
        auto add_accounts = [&](LimitKind one, const AccountLimits::Accounted& limited, const auto& users) {
            if (!wanted(one)) return;
            const DeviceIndex devices = used ? static_cast<DeviceIndex>(store_.devices().size()) : 0;
            if (!all_) {
                for (uint32_t id : own_ids(one)) {
                    bool has_it = limited.contains(id);
                    for (DeviceIndex i = 0; i < devices; ++i) has_it |= users(i).contains(id);
                    if (has_it) keys.push_back({one, id});
                }
                return;
            }
            for (const auto& [id, found] : limited) keys.push_back({one, id});
            for (DeviceIndex i = 0; i < devices; ++i) {
                for (const auto& [id, account] : users(i)) keys.push_back({one, id});
            }
        };
        add_accounts(LimitKind::user, limits.of_users(), [&](DeviceIndex i) -> auto& { return accounts.users(i); });
        add_accounts(LimitKind::group, limits.of_groups(), [&](DeviceIndex i) -> auto& { return accounts.groups(i); });
        for (const auto& [id, account] : limits.of_directories()) {
            if (wanted(LimitKind::directory) && may_see(*account->directory))
                keys.push_back({LimitKind::directory, id});
        }
        for (DeviceIndex i = 0; wanted(LimitKind::reserve) && i < devices_.size(); ++i) {
            keys.push_back({LimitKind::reserve, i});
        }
        std::ranges::sort(keys);
        const auto rest = std::ranges::unique(keys);
        keys.erase(rest.begin(), rest.end());
        return keys;
    }

    // used: also devices without a limit on which the account has something.
    std::vector<Row> rows(const Key& key, bool used) const {
        const AccountLimits& limits = store_.limits();
        const auto id = static_cast<uint32_t>(key.id);
        switch (key.kind) {
            case LimitKind::user:
                return rows(limits_of(limits.of_users(), id), used,
                            [&](DeviceIndex on) { return limits.user_use(id, on); });
            case LimitKind::group:
                return rows(limits_of(limits.of_groups(), id), used,
                            [&](DeviceIndex on) { return limits.group_use(id, on); });
            case LimitKind::directory: {
                auto found = limits.of_directories().find(key.id);
                if (found == limits.of_directories().end()) return {};
                const TreeAccount& account = *found->second;
                return rows(&account.set, used, [&](DeviceIndex on) { return AccountLimits::tree_use(account, on); });
            }
            case LimitKind::reserve: break;
        }
        if (devices_.reserve_bytes(id) == 0) return {};
        return {{devices_.info(id).name, {.bytes = devices_.reserve_bytes(id)}, {}}};
    }
    uint32_t percent(const Key& key) const {
        return key.kind == LimitKind::reserve ? reserves_.of(static_cast<DeviceIndex>(key.id)).percent : 0;
    }

private:
    std::vector<uint32_t> own_ids(LimitKind kind) const {
        if (kind == LimitKind::user) return {who_.uid};
        std::vector<uint32_t> ids(who_.groups.begin(), who_.groups.end());
        ids.push_back(who_.gid);
        return ids;
    }

    template <typename Use>
    std::vector<Row> rows(const Limits* limits, bool used, const Use& use) const {
        const AccountLimits& all = store_.limits();
        std::vector<Row> rows;
        if (limits != nullptr) {
            for (const Limit& limit : *limits) {
                rows.push_back({limit.device, limit.values, limit.on == Limit::kUnknown ? LimitUse{} : use(limit.on),
                                all.time_of_day(limit.bytes_until_ns), all.time_of_day(limit.objects_until_ns)});
            }
        }
        for (DeviceIndex i = 0; used && i < store_.devices().size(); ++i) {
            const std::string& name = store_.devices()[i].name;
            if (std::ranges::find(rows, name, &Row::device) != rows.end()) continue;
            if (const LimitUse found = use(i); found != LimitUse{}) rows.push_back({name, {}, found});
        }
        std::ranges::stable_sort(rows, {}, &Row::device);
        return rows;
    }

    const Store& store_;
    const Reserves& reserves_;
    const DeviceSet& devices_;
    const Credentials& who_;
    bool all_;
};

// A soft limit above the hard one would never apply. EINVAL for values that a request changes so.
Status check_soft(const Limits* limits, const std::string& device, uint32_t fields, const LimitValues& wanted) {
    LimitValues values;
    if (limits != nullptr) {
        auto found = std::ranges::find(*limits, device, &Limit::device);
        if (found != limits->end()) values = found->values;
    }
    if ((fields & kLimitBytes) != 0) values.bytes = wanted.bytes;
    if ((fields & kLimitSoftBytes) != 0) values.soft_bytes = wanted.soft_bytes;
    if ((fields & kLimitObjects) != 0) values.objects = wanted.objects;
    if ((fields & kLimitSoftObjects) != 0) values.soft_objects = wanted.soft_objects;
    const bool changes_bytes = (fields & (kLimitBytes | kLimitSoftBytes)) != 0;
    const bool changes_objects = (fields & (kLimitObjects | kLimitSoftObjects)) != 0;
    constexpr const char* kText = "the soft limit of {} would be above the hard one of {}, and never apply";
    if (changes_bytes && values.bytes != 0 && values.soft_bytes > values.bytes)
        return fail(EINVAL, kText, size_text(values.soft_bytes), size_text(values.bytes));
    if (changes_objects && values.objects != 0 && values.soft_objects > values.objects)
        return fail(EINVAL, kText, fmt::format("{} objects", values.soft_objects), values.objects);
    return {};
}

// Counts the objects below directories with new limits, in parts.
void count_directories(Server& server, std::function<void()> done) {
    store_lock.assert_held();
    if (!server.store().limits().count_some(kMostCounted)) return done();
    server.loop().post([&server, done = std::move(done)]() mutable { count_directories(server, std::move(done)); });
}

}  // namespace

bool Session::is_admin() const {
    const Credentials& who = server_.store().credentials(id_);
    return who.is_root() || who.uid == server_.owner().uid;
}

Error Session::explained(Error error) const {
    const Store& store = server_.store();
    if (const TreeAccount* account = store.limits().refused_by(error.message)) {
        const std::string users = users_text(*account, store.credentials(id_));
        if (!users.empty()) error.message += "; " + users;
    }
    return error;
}

Result<Directory*> Session::find_limited(std::string_view path) {
    const Node* node = TRY(server_.store().stat(id_, path, nullptr, Tree::Last::follow));
    if (node->kind != NodeKind::directory) return fail(ENOTDIR, "\"{}\" is not a directory", path);
    return static_cast<Directory*>(Files(server_.store()).find(node->id));
}

void Session::set_limit(uint64_t request, const wire::SetLimit& set) {
    if (!is_admin()) return reply_error(request, {EPERM, "only root and the user who runs gshmd may set limits"});
    const wire::LimitRecord& limit = *set.limit();
    constexpr uint32_t kKnown = kLimitBytes | kLimitSoftBytes | kLimitObjects | kLimitSoftObjects | kLimitGrace;
    if ((set.fields() & ~kKnown) != 0 || set.fields() == 0) {
        return reply_error(request, {EINVAL, fmt::format("unknown fields of a limit {:#x}", set.fields())});
    }
    DeviceIndex device = Limit::kAll;
    if (limit.device() != nullptr && limit.device()->size() > 0) {
        auto found = server_.devices().find(wire::view(limit.device()));
        if (!found) return reply_error(request, found.error());
        device = *found;
    }
    const LimitValues values{limit.bytes(), limit.soft_bytes(), limit.objects(), limit.soft_objects(), limit.grace_s()};
    const std::string device_name = device == Limit::kAll ? "" : server_.devices().info(device).name;
    AccountLimits& limits = server_.store().limits();
    const auto kind = static_cast<LimitKind>(limit.kind());
    switch (kind) {
        case LimitKind::user:
        case LimitKind::group:
            if (limit.id() == UINT32_MAX) return reply_error(request, {EINVAL, "there is no such uid or gid"});
            if (auto checked =
                    check_soft(limits_of(kind == LimitKind::user ? limits.of_users() : limits.of_groups(), limit.id()),
                               device_name, set.fields(), values);
                !checked) {
                return reply_error(request, checked.error());
            }
            limits.set(kind, limit.id(), device, set.fields(), values);
            return reply_ok(request);
        case LimitKind::directory: {
            auto directory = find_limited(path_in(limit.path()));
            if (!directory) return reply_error(request, directory.error());
            const TreeAccount* account = (*directory)->account.get();
            if (auto checked =
                    check_soft(account == nullptr ? nullptr : &account->set, device_name, set.fields(), values);
                !checked) {
                return reply_error(request, checked.error());
            }
            limits.set(**directory, device, set.fields(), values);
            job_started();
            return count_directories(server_, [request, self = weak_from_this()] {
                store_lock.assert_held();
                auto session = self.lock();
                if (!session) return;
                session->reply_ok(request);
                session->job_ended();
            });
        }
        case LimitKind::reserve:
            if (device == Limit::kAll) return reply_error(request, {EINVAL, "a reserve is of a device: name it"});
            if (set.fields() != kLimitBytes) return reply_error(request, {EINVAL, "a reserve has bytes only"});
            if (auto good = server_.reserves().set(device, {limit.bytes(), limit.percent()}); !good) {
                return reply_error(request, good.error());
            }
            server_.tiers().reserve_changed();
            return reply_ok(request);
    }
    reply_error(request, {EINVAL, fmt::format("unknown kind of limit {}", limit.kind())});
}

void Session::list_limits(uint64_t request, const wire::Limits& which) {
    Store& store = server_.store();
    const Query query(store, server_.reserves(), server_.devices(), store.credentials(id_),
                      is_admin() && (which.flags() & kLimitsOwn) == 0);
    const bool one = (which.flags() & kLimitsId) != 0;
    const bool used = one || (which.flags() & kLimitsUsed) != 0;
    const auto kind = static_cast<LimitKind>(which.kind());
    if ((which.flags() & ~(kLimitsUsed | kLimitsId | kLimitsOwn)) != 0 ||
        which.kind() > static_cast<uint8_t>(LimitKind::reserve)) {
        return reply_error(request, {EINVAL, "unknown flags or kind of limits"});
    }
    std::vector<Key> keys;
    if (!one) {
        keys = query.keys(which.kind(), used);
        const Key after{static_cast<LimitKind>(which.after_kind()), which.after_id()};
        std::erase_if(keys, [&](const Key& key) { return key <= after; });
    } else if (kind == LimitKind::user || kind == LimitKind::group) {
        if (!query.may_see(kind, which.id())) {
            return reply_error(request, {EPERM, "only root and the user who runs gshmd may see the limits of others"});
        }
        keys.push_back({kind, which.id()});
    } else if (kind == LimitKind::directory) {
        auto directory = find_limited(path_in(which.path()));
        if (!directory) return reply_error(request, directory.error());
        if (!query.may_see(**directory)) {
            return reply_error(request, {EACCES, fmt::format("permission denied: list \"{}\"", path_in(which.path()))});
        }
        keys.push_back({kind, (*directory)->id});
    } else {
        return reply_error(request, {EINVAL, "one account is that of a user, a group or a directory"});
    }
    auto& out = builder();
    std::vector<flatbuffers::Offset<wire::LimitRecord>> records;
    const auto device = which.device() == nullptr ? std::string_view() : wire::view(which.device());
    size_t answered = 0;
    size_t text_bytes = 0;
    for (const Key& key : keys) {
        if (records.size() >= kMostRecords || text_bytes > limits::kMessageBytes / 4) break;
        ++answered;
        const bool has_id = key.kind == LimitKind::user || key.kind == LimitKind::group;
        auto rows = query.rows(key, used);
        if (rows.empty() && one) rows.push_back({});
        const std::string path = key.kind != LimitKind::directory ? "" : Tree::path_of(*Files(store).find(key.id));
        for (const Row& row : rows) {
            if (!device.empty() && row.device != device) continue;
            text_bytes += path.size() + row.device.size();
            const auto path_text = path.empty() ? 0 : out.CreateString(path);
            const auto device_text = row.device.empty() ? 0 : out.CreateString(row.device);
            records.push_back(wire::CreateLimitRecord(
                out, static_cast<uint8_t>(key.kind), has_id ? static_cast<uint32_t>(key.id) : 0, path_text, device_text,
                row.values.bytes, row.values.soft_bytes, row.values.objects, row.values.soft_objects,
                row.values.grace_s, query.percent(key), row.use.bytes, row.use.objects, row.use.unlinked_bytes,
                row.bytes_until_ns, row.objects_until_ns));
        }
    }
    const Key last = answered == keys.size() ? Key{} : keys[answered - 1];
    auto body = wire::CreateLimitList(out, out.CreateVector(records), static_cast<uint8_t>(last.kind), last.id);
    reply(request, wire::ReplyBody::LimitList, body.Union());
}

}  // namespace gshm::core
