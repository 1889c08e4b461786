// Budgets: how much each user holds of what gshmd has for all users, and how much one user may hold. A user may hold at
// most a fixed multiple of what is left free, so that several users together leave something for the others too. Root
// and the user who runs gshmd are counted, and never refused.
//
// Pure counting, for any thread. A user's record is looked up once and counted with relaxed atomics.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>

#include "base/mutex.h"
#include "base/result.h"

namespace gshm::core {

// See limits.h.
enum class Resource : uint8_t {
    connections,
    greetings,
    descriptors,
    jobs,
    reply_bytes,
    waits,
    wait_steps,
    watches,
    event_bytes,
    leases,
    fences,
    rings,
    name_bytes,
};

class Budgets {
public:
    static constexpr size_t kKinds = static_cast<size_t>(Resource::name_bytes) + 1;

    // The machine's resources.
    struct Machine {
        uint64_t descriptors = 0;  // gshmd's limit
        uint64_t memory_bytes = 0;
        uint64_t folder_bytes = 0;  // for the catalog in the runtime folder
    };

    class User;
    class Charge;

    // owner: the user who runs gshmd. Without limits until set_limits().
    explicit Budgets(uid_t owner);
    // The most of each resource for all users together, in the order of Resource; UINT64_MAX: what the machine allows.
    using Totals = std::array<uint64_t, kKinds>;
    static constexpr Totals kOfMachine = [] {
        Totals totals{};
        totals.fill(UINT64_MAX);
        return totals;
    }();
    // A single user may hold share_percent (1 to 99) of each. May be called again at any time.
    void set_limits(const Machine& machine, unsigned share_percent, const Totals& totals = kOfMachine);
    // "leases", "reply-bytes", and so on; none: there is no such resource.
    static std::optional<Resource> find(std::string_view name);
    static std::string_view name_of(Resource kind);
    std::shared_ptr<User> user(uid_t uid) EXCLUDES(mutex_);
    // While the runtime folder is full, no user has room for names and attributes, root included.
    void set_folder_full(bool full) { folder_full_.store(full, std::memory_order_relaxed); }
    bool is_folder_full() const { return folder_full_.load(std::memory_order_relaxed); }

private:
    struct Shared;
    const uid_t owner_;
    const std::shared_ptr<Shared> shared_;
    std::atomic<bool> folder_full_ = false;
    Mutex mutex_;
    std::map<uid_t, std::weak_ptr<User>> users_ GUARDED_BY(mutex_);
    size_t clean_at_ GUARDED_BY(mutex_) = 64;  // number of records at which unused ones are erased
};

struct Budgets::Shared {
    std::array<std::atomic<uint64_t>, kKinds> totals = {};
    std::atomic<unsigned> share_percent = 50;
    std::array<std::atomic<uint64_t>, kKinds> used = {};  // by all users
};

class Budgets::User {
public:
    User(uid_t uid, bool exempt, std::shared_ptr<Shared> shared)
        : uid_(uid), exempt_(exempt), shared_(std::move(shared)) {}
    User(const User&) = delete;
    User& operator=(const User&) = delete;

    uid_t uid() const { return uid_; }
    bool is_exempt() const { return exempt_; }
    uint64_t held(Resource kind) const { return held_[index(kind)].load(std::memory_order_relaxed); }
    // The most that the user may hold now.
    uint64_t allowed(Resource kind) const;
    // The user holds as much as it may. A further take() is refused.
    bool is_full(Resource kind) const { return !exempt_ && held(kind) >= allowed(kind); }
    // The user holds more than half of that.
    bool is_half_full(Resource kind) const { return !exempt_ && held(kind) > allowed(kind) / 2; }
    // The sentence for a refusal.
    Error refusal(Resource kind) const;

    // False: refused, and nothing is counted.
    bool take(Resource kind, uint64_t amount);
    // Never refused.
    void add(Resource kind, uint64_t amount);
    void give(Resource kind, uint64_t amount);

private:
    static size_t index(Resource kind) { return static_cast<size_t>(kind); }
    const uid_t uid_;
    const bool exempt_;
    const std::shared_ptr<Shared> shared_;
    std::array<std::atomic<uint64_t>, kKinds> held_ = {};
};

// What one part of gshmd holds for a user; given back by the destructor. For one thread at a time.
class Budgets::Charge {
public:
    Charge() = default;  // counts nothing
    Charge(std::shared_ptr<User> user, Resource kind) : user_(std::move(user)), kind_(kind) {}
    Charge(Charge&& other) noexcept
        : user_(std::move(other.user_)), kind_(other.kind_), amount_(std::exchange(other.amount_, 0)) {}
    Charge& operator=(Charge&& other) noexcept {
        if (this == &other) return *this;
        clear();
        user_ = std::move(other.user_);
        kind_ = other.kind_;
        amount_ = std::exchange(other.amount_, 0);
        return *this;
    }
    ~Charge() { clear(); }

    uint64_t amount() const { return amount_; }
    User* user() const { return user_.get(); }
    // As of User.
    [[nodiscard]] bool take(uint64_t amount) {
        if (user_ && !user_->take(kind_, amount)) return false;
        amount_ += amount;
        return true;
    }
    void add(uint64_t amount) {
        if (user_) user_->add(kind_, amount);
        amount_ += amount;
    }
    void give(uint64_t amount) {
        if (user_) user_->give(kind_, amount);
        amount_ -= amount;
    }
    void clear() { give(amount_); }
    Error refusal() const { return user_->refusal(kind_); }

private:
    std::shared_ptr<User> user_;
    Resource kind_{};
    uint64_t amount_ = 0;
};

}  // namespace gshm::core
