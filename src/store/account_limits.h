// Limits on accounts: what a user, a group, or the objects below a directory may have, on one device or on all. An
// object counts for its owner, for its group, and for every directory with limits below which it has a name; without a
// name for those of its last one. A change is checked and counted under one hold of the store lock, so no limit is
// exceeded by a byte. Without limits every check is one branch.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "store/store.h"

namespace gshm::core {

// Values as in gshm.h.
enum class LimitKind : uint8_t { user = 1, group = 2, directory = 3, reserve = 4 };
enum LimitField : uint32_t {
    kLimitBytes = 1,
    kLimitSoftBytes = 2,
    kLimitObjects = 4,
    kLimitSoftObjects = 8,
    kLimitGrace = 16,
};

// Of a list of limits. Values as in gshm.h.
enum LimitsFlag : uint32_t { kLimitsUsed = 1, kLimitsId = 2, kLimitsOwn = 4 };

// 0: no limit.
struct LimitValues {
    uint64_t bytes = 0;
    uint64_t soft_bytes = 0;
    uint64_t objects = 0;
    uint64_t soft_objects = 0;
    uint64_t grace_s = 0;  // 0: kGraceS

    bool operator==(const LimitValues&) const = default;
};
inline constexpr uint64_t kGraceS = 7 * 24 * 3600;

// One limit of an account.
struct Limit {
    static constexpr DeviceIndex kAll = UINT32_MAX;          // all devices together
    static constexpr DeviceIndex kUnknown = UINT32_MAX - 1;  // a device that this daemon does not have: no effect

    std::string device;  // "": all
    DeviceIndex on = kAll;
    LimitValues values;
    // The soft limit is exceeded, and a hard one from this time on (Clock::steady_ns()); 0: it is not exceeded.
    int64_t bytes_until_ns = 0;
    int64_t objects_until_ns = 0;
};
using Limits = std::vector<Limit>;  // by device

// As text, for the catalog: a line for each limit. EUCLEAN: no such text.
std::string encode_limits(const Limits& limits);
Result<Limits> decode_limits(std::string_view text);

// What an account has, as limits count it: memory in a tier counts on the device that its object belongs to.
struct LimitUse {
    uint64_t bytes = 0;
    uint64_t objects = 0;
    uint64_t unlinked_bytes = 0;

    bool operator==(const LimitUse&) const = default;
};

// The account of a directory with limits. Lives until the directory has no limits, and no object counts in it.
struct TreeAccount {
    TreeAccount(AccountLimits& owner, Directory& of, size_t devices) : limits(owner), directory(&of), use(devices) {}

    AccountLimits& limits;
    Directory* directory;  // null: the limits or the directory are gone; it counts on, without effect
    Limits set;
    std::vector<LimitUse> use;  // by device
    LimitUse all;
    std::unordered_map<uid_t, uint64_t> user_bytes;  // on all devices together
    uint64_t sets = 0;                               // TreeSets that have it
};

// Directories with limits that an object counts in. Equal sets are one.
struct TreeSet {
    std::vector<TreeAccount*> accounts;  // sorted, not empty
    mutable uint64_t objects = 0;        // that refer to it
};

class AccountLimits {
public:
    explicit AccountLimits(Store& store) : store_(store) {}
    ~AccountLimits();
    AccountLimits(const AccountLimits&) = delete;
    AccountLimits& operator=(const AccountLimits&) = delete;

    // False: there are no limits. From any thread.
    bool any() const { return any_.load(std::memory_order_relaxed); }
    // There are directories with limits.
    bool has_trees() const { return !trees_.empty(); }
    // An account of the object has a limit of bytes, on any device.
    bool limits_bytes(const Object& object) const;
    // Its memory may become larger without a request, by a process that has its descriptor, and must not.
    bool may_outgrow(const Object& object) const {
        return any() && object.extent != nullptr && object.size_bytes > 0 && object.state == ObjectState::open &&
               object.extent->memory->file() != nullptr && limits_bytes(object);
    }
    // The same as limits_bytes() for a new object of the directory.
    bool limits_bytes(uid_t uid, gid_t gid, const Directory& parent) const;

    // ---- changes; the caller has checked the rights ----
    // Changes the fields (LimitField). `device`: Limit::kAll, or one that exists.
    void set(LimitKind kind, uint32_t id, DeviceIndex device, uint32_t fields, const LimitValues& values);
    // The objects below the directory are counted by count_some().
    void set(Directory& directory, DeviceIndex device, uint32_t fields, const LimitValues& values);
    // Counts up to `most` entries below directories that have got their first limit. False: all are counted. Until then
    // the limits of these directories apply to what is counted already.
    bool count_some(size_t most);
    bool is_counting() const { return !walks_.empty(); }

    // ---- checks, before a change: EDQUOT with the figures ----
    // A new object in the directory.
    Status check_new(uid_t uid, gid_t gid, const Directory& parent, DeviceIndex device, uint64_t bytes) {
        return any() ? check_new_object(uid, gid, parent, device, bytes) : Status{};
    }
    Status check_owner(const Node& node, std::optional<uid_t> uid, std::optional<gid_t> gid) {
        return any() ? check_new_owner(node, uid, gid) : Status{};
    }
    // The object's bytes move to another device. keeps_old: sessions keep the former memory.
    Status check_device(const Object& object, DeviceIndex to, bool keeps_old) {
        return any() ? check_new_device(object, to, keeps_old) : Status{};
    }
    // Its present memory stays, as former memory, beside the new one.
    Status check_former(const Object& object) { return check_device(object, object.home(), true); }
    // The node gets a name in that directory.
    Status check_name(const Node& node, const Directory& to) {
        return has_trees() ? check_new_name(node, to) : Status{};
    }
    // Before directories are made for the path, which would be left behind.
    Status check_way(const Node& node, const Tree::Spot& spot) {
        return spot.rest.find('/') == spot.rest.npos ? Status{} : check_name(node, *spot.parent);
    }
    // The directory whose limit has refused the last check, with that message; null: it was no directory's.
    const TreeAccount* refused_by(std::string_view message) const {
        return refused_by_ != nullptr && message == refusal_ ? refused_by_ : nullptr;
    }

    // ---- growth of a file, by a thread that writes to it without the store lock ----
    // The object counts with at least `end` bytes until end_growth(). False: it has that many, or there are no limits.
    Result<bool> begin_growth(Object& object, uint64_t end);
    void end_growth(Object& object);
    bool has_growth() const { return !growth_.empty(); }
    // The bytes that the object counts with.
    uint64_t counted_bytes(const Object& object, uint64_t bytes) const;

    // ---- called by Accounts, Operations and Store ----
    // The object, or those below the directory, have got or lost names.
    void names_changed(Node& node) {
        if (has_trees()) count_again(node);
    }
    // A new object counts in the directories above its directory.
    void count_in(Object& object, const Directory& parent);
    void count(const TreeSet& trees, const AccountShare& share, bool taken_away);
    // Starts and ends the times of soft limits that the object's accounts have.
    bool has_soft() const { return soft_ > 0; }
    void settle(const AccountShare& share, const TreeSet* trees);
    void retain(const TreeSet* trees);
    void release(const TreeSet* trees);
    void forget(TreeAccount* account);

    // ---- restart ----
    void set_recorder(Recorder* recorder) { recorder_ = recorder; }
    // The prefix of the names of values that it records; restore() gets the names without it.
    static constexpr std::string_view kValues = "limits of ";
    Status restore(std::string_view name, std::string_view value);
    Status restore(Directory& directory, std::string_view text);
    // Of an object without a name.
    void restore_trees(Object& object, std::span<const NodeId> directories);
    // All objects are counted: limits apply from now on.
    void restored();
    // Records all limits of users and groups.
    void record_all();

    // ---- reports ----
    using Accounted = std::map<uint32_t, Limits>;  // by uid or gid
    const Accounted& of_users() const { return users_; }
    const Accounted& of_groups() const { return groups_; }
    const std::map<NodeId, TreeAccount*>& of_directories() const { return trees_; }
    LimitUse user_use(uid_t uid, DeviceIndex device) const;
    LimitUse group_use(gid_t gid, DeviceIndex device) const;
    static LimitUse tree_use(const TreeAccount& account, DeviceIndex device);
    // As time of day; 0: 0.
    int64_t time_of_day(int64_t until_ns) const;

private:
    struct Charge;
    struct Arrivals;
    using Counted = std::vector<TreeAccount*>;

    Status check_new_object(uid_t uid, gid_t gid, const Directory& parent, DeviceIndex device, uint64_t bytes);
    Status check_new_owner(const Node& node, std::optional<uid_t> uid, std::optional<gid_t> gid);
    Status check_new_device(const Object& object, DeviceIndex to, bool keeps_old);
    Status check_new_name(const Node& node, const Directory& to);
    Status check(const Charge* before, const Charge& after);
    // `use` and `more` are called with a device.
    // `who` names the account for a message.
    template <typename Use, typename More, typename Who>
    Status check_limits(const Limits& limits, const Use& use, const More& more, const Who& who);
    template <typename Who>
    Status check_one(const Limit& limit, bool is_bytes, const LimitUse& use, uint64_t more, const Who& who);
    Status note_refusal(const TreeAccount* account, Status checked);
    static Counted trees_of(const Directory& directory);
    static Counted trees_of(const Object& object);
    const TreeSet* intern(Counted accounts);
    void count_again(Node& node);
    // `use` is called with a device. True: a time has begun or ended.
    bool settle(Limits& limits, const std::function<LimitUse(DeviceIndex)>& use);
    void change(Limits& limits, DeviceIndex device, uint32_t fields, const LimitValues& values);
    void record(LimitKind kind, uint32_t id);
    void look_again();  // for any_
    void find_devices(Limits& limits) const;
    static LimitUse use_of(const Account& account);

    Store& store_;
    Recorder* recorder_ = nullptr;  // null: none
    std::atomic<bool> any_ = false;
    size_t soft_ = 0;  // number of limits with soft ones; none counts before restored()
    Accounted users_;
    Accounted groups_;
    std::map<NodeId, TreeAccount*> trees_;  // by directory; owned by the directories
    std::set<TreeAccount*> former_;         // without a directory, until no object counts in them
    std::map<Counted, std::unique_ptr<TreeSet>> sets_;
    const TreeAccount* refused_by_ = nullptr;
    std::string refusal_;
    struct Growth {
        uint64_t end = 0;
        uint32_t threads = 0;
    };
    std::unordered_map<const Object*, Growth> growth_;
    // The walk through a directory that has got its first limit: directories that are left, and the place in the last.
    struct Walk {
        TreeAccount* account;
        std::vector<std::pair<NodeId, uint64_t>> left;
    };
    std::vector<Walk> walks_;
};

}  // namespace gshm::core
