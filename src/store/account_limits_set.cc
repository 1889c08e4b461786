// Limits on accounts: their changes, and their restart.
#include <algorithm>
#include <charconv>

#include "store/account_limits.h"

namespace gshm::core {
namespace {

constexpr size_t kNumbers = 7;

bool is_soft(const LimitValues& values) {
    return values.soft_bytes != 0 || values.soft_objects != 0;
}

std::optional<uint64_t> take_number(std::string_view& rest) {
    uint64_t value = 0;
    auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error != std::errc()) return std::nullopt;
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    return value;
}

}  // namespace

// "bytes soft_bytes objects soft_objects grace bytes_until objects_until DEVICE\n"
std::string encode_limits(const Limits& limits) {
    std::string text;
    for (const Limit& limit : limits) {
        const LimitValues& values = limit.values;
        text += fmt::format("{} {} {} {} {} {} {} {}\n", values.bytes, values.soft_bytes, values.objects,
                            values.soft_objects, values.grace_s, limit.bytes_until_ns, limit.objects_until_ns,
                            limit.device);
    }
    return text;
}

Result<Limits> decode_limits(std::string_view text) {
    Limits limits;
    auto bad = [] { return fail(EUCLEAN, "limits that cannot be read"); };
    while (!text.empty()) {
        const size_t end = text.find('\n');
        if (end == text.npos) return bad();
        std::string_view line = text.substr(0, end);
        text.remove_prefix(end + 1);
        uint64_t numbers[kNumbers] = {};
        for (uint64_t& number : numbers) {
            auto value = take_number(line);
            if (!value || !line.starts_with(' ')) return bad();
            number = *value;
            line.remove_prefix(1);
        }
        Limit limit;
        limit.device = line;
        limit.values = {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
        limit.bytes_until_ns = static_cast<int64_t>(numbers[5]);
        limit.objects_until_ns = static_cast<int64_t>(numbers[6]);
        if (limit.bytes_until_ns < 0 || limit.objects_until_ns < 0) return bad();
        limits.push_back(std::move(limit));
    }
    return limits;
}

void AccountLimits::find_devices(Limits& limits) const {
    const auto& devices = store_.devices();
    for (Limit& limit : limits) {
        limit.on = limit.device.empty() ? Limit::kAll : Limit::kUnknown;
        for (DeviceIndex i = 0; i < devices.size(); ++i) {
            if (devices[i].name == limit.device) limit.on = i;
        }
    }
}

void AccountLimits::change(Limits& limits, DeviceIndex device, uint32_t fields, const LimitValues& values) {
    const std::string name = device == Limit::kAll ? "" : store_.devices()[device].name;
    auto found = std::ranges::find(limits, name, &Limit::device);
    if (found == limits.end()) {
        found = std::ranges::find_if(limits, [&](const Limit& limit) { return limit.device > name; });
        found = limits.insert(found, Limit{name, device, {}});
    }
    LimitValues& to = found->values;
    soft_ -= is_soft(to) ? 1 : 0;
    if ((fields & kLimitBytes) != 0) to.bytes = values.bytes;
    if ((fields & kLimitSoftBytes) != 0) to.soft_bytes = values.soft_bytes;
    if ((fields & kLimitObjects) != 0) to.objects = values.objects;
    if ((fields & kLimitSoftObjects) != 0) to.soft_objects = values.soft_objects;
    if ((fields & kLimitGrace) != 0) {
        to.grace_s = values.grace_s;
        found->bytes_until_ns = found->objects_until_ns = 0;  // a new grace begins now
    }
    soft_ += is_soft(to) ? 1 : 0;
    if (to == LimitValues{0, 0, 0, 0, to.grace_s}) limits.erase(found);
}

void AccountLimits::set(LimitKind kind, uint32_t id, DeviceIndex device, uint32_t fields, const LimitValues& values) {
    auto& accounts = kind == LimitKind::user ? users_ : groups_;
    Limits& limits = accounts[id];
    change(limits, device, fields, values);
    if (kind == LimitKind::user) settle(limits, [&](DeviceIndex on) { return user_use(id, on); });
    else settle(limits, [&](DeviceIndex on) { return group_use(id, on); });
    record(kind, id);
    if (limits.empty()) accounts.erase(id);
    look_again();
}

void AccountLimits::set(Directory& directory, DeviceIndex device, uint32_t fields, const LimitValues& values) {
    const bool first = !directory.account;
    if (first) directory.account.reset(new TreeAccount(*this, directory, store_.devices().size()));
    TreeAccount* account = directory.account.get();
    change(account->set, device, fields, values);
    store_.nodes_.changed(&directory);
    if (account->set.empty()) {
        directory.account.reset();
        return;
    }
    trees_[directory.id] = account;
    directory.implicit = false;  // it is not removed with its last entry
    if (first) walks_.push_back({account, {{directory.id, 0}}});
    settle(account->set, [&](DeviceIndex on) { return tree_use(*account, on); });
    look_again();
}

void AccountLimits::look_again() {
    any_.store(!users_.empty() || !groups_.empty() || !trees_.empty(), std::memory_order_relaxed);
}

// ---- restart ----

void AccountLimits::record(LimitKind kind, uint32_t id) {
    if (recorder_ == nullptr) return;
    const auto& accounts = kind == LimitKind::user ? users_ : groups_;
    auto found = accounts.find(id);
    recorder_->set(fmt::format("{}{} {}", kValues, kind == LimitKind::user ? "user" : "group", id),
                   found == accounts.end() ? "" : encode_limits(found->second));
}

void AccountLimits::record_all() {
    for (const auto& [id, limits] : users_) record(LimitKind::user, id);
    for (const auto& [id, limits] : groups_) record(LimitKind::group, id);
}

Status AccountLimits::restore(std::string_view name, std::string_view value) {
    const bool user = name.starts_with("user ");
    std::string_view rest = name;
    rest.remove_prefix(std::min(rest.size(), user ? strlen("user ") : strlen("group ")));
    const auto id = take_number(rest);
    if ((!user && !name.starts_with("group ")) || !id || !rest.empty() || *id > UINT32_MAX) {
        return fail(EUCLEAN, "limits of \"{}\" cannot be read", name);
    }
    Limits limits = TRY(decode_limits(value));
    find_devices(limits);
    auto& accounts = user ? users_ : groups_;
    if (limits.empty()) accounts.erase(static_cast<uint32_t>(*id));
    else accounts[static_cast<uint32_t>(*id)] = std::move(limits);
    return {};
}

Status AccountLimits::restore(Directory& directory, std::string_view text) {
    Limits limits = TRY(decode_limits(text));
    if (limits.empty()) return {};
    find_devices(limits);
    directory.account.reset(new TreeAccount(*this, directory, store_.devices().size()));
    directory.account->set = std::move(limits);
    trees_[directory.id] = directory.account.get();
    return {};
}

void AccountLimits::restore_trees(Object& object, std::span<const NodeId> directories) {
    if (object.links > 0) return names_changed(object);
    Counted accounts;
    for (NodeId id : directories) {
        if (auto found = trees_.find(id); found != trees_.end()) accounts.push_back(found->second);
    }
    std::ranges::sort(accounts);
    const auto rest = std::ranges::unique(accounts);
    accounts.erase(rest.begin(), rest.end());
    store_.accounts_.set_trees(object, intern(std::move(accounts)));
}

void AccountLimits::restored() {
    const int64_t now = store_.clock().steady_ns();
    auto adapt = [&](Limits& limits, const auto& use) {
        for (Limit& limit : limits) {
            // A clock that was set back must not make a grace longer.
            const uint64_t grace_s = limit.values.grace_s == 0 ? kGraceS : limit.values.grace_s;
            const auto most =
                static_cast<int64_t>(std::min<uint64_t>(grace_s, INT64_MAX / 4'000'000'000)) * 1'000'000'000;
            limit.bytes_until_ns = std::min(limit.bytes_until_ns, now + most);
            limit.objects_until_ns = std::min(limit.objects_until_ns, now + most);
        }
        settle(limits, use);
        soft_ += static_cast<size_t>(
            std::ranges::count_if(limits, [](const Limit& limit) { return is_soft(limit.values); }));
    };
    soft_ = 0;
    for (auto& [id, limits] : users_) adapt(limits, [&](DeviceIndex on) { return user_use(id, on); });
    for (auto& [id, limits] : groups_) adapt(limits, [&](DeviceIndex on) { return group_use(id, on); });
    for (auto& [id, account] : trees_) {
        adapt(account->set, [&](DeviceIndex on) { return tree_use(*account, on); });
    }
    look_again();
}

}  // namespace gshm::core
