// Accounts: the memory that each user and each group has on each device. An object's share follows from its state alone. update()
// replaces the share that was counted before, and remove() subtracts it. Accounts change nowhere else.
#pragma once

#include <cstdint>
#include <memory>
#include <sys/types.h>
#include <unordered_map>
#include <vector>

namespace gshm::core {

struct Object;
struct TreeSet;  // account_limits.h: directories with limits
class AccountLimits;
class Lifetimes;

struct Account {
    uint64_t object_bytes = 0;    // of all objects, with or without a name, and of their former memory
    uint64_t unlinked_bytes = 0;  // of these: without a name
    uint64_t objects = 0;
    uint64_t unlinked_objects = 0;
    uint64_t sealed_objects = 0;   // of objects
    uint64_t evictable_bytes = 0;  // of object_bytes: may leave for a tier
    uint64_t evicted_bytes = 0;    // in tiers; not of object_bytes
    uint64_t evicted_objects = 0;
    uint64_t tier_bytes = 0;  // of object_bytes: belongs to other devices, for which this one is a tier
    uint64_t tier_objects = 0;

    bool operator==(const Account&) const = default;
};

// The part of an account that comes from one object. Kept in the object, so that exactly the same is subtracted.
struct AccountShare {
    uint64_t bytes = 0;
    uint32_t device = 0;
    uid_t uid = 0;
    gid_t gid = 0;
    bool is_object = false;  // else former memory of one
    bool unlinked = false;
    bool sealed = false;
    bool evictable = false;
    bool stored = false;        // the bytes are in a file of a tier
    uint32_t evicted_from = 0;  // see Object

    bool operator==(const AccountShare&) const = default;
};

// The counted shares of one object.
class AccountedShares {
public:
    // The directories with limits that the shares count in; null: none.
    const TreeSet* trees() const { return trees_; }
    const AccountShare& own() const { return own_; }
    // Of its former memory; null: none.
    const std::vector<AccountShare>* retired() const { return retired_.get(); }

private:
    friend class Accounts;
    AccountShare own_;                                    // counted if is_object
    std::unique_ptr<std::vector<AccountShare>> retired_;  // null: none
    const TreeSet* trees_ = nullptr;
};

class Accounts {
public:
    using Users = std::unordered_map<uid_t, Account>;

    explicit Accounts(size_t devices) : totals_(devices), users_(devices), groups_(devices) {}
    // Told of every change. Called before all others.
    void set_limits(AccountLimits* limits) { limits_ = limits; }
    void set_lifetimes(Lifetimes* lifetimes) { lifetimes_ = lifetimes; }

    // Of all users.
    const Account& of(uint32_t device) const { return totals_[device]; }
    // All zeros for a user without objects there.
    Account of(uint32_t device, uid_t uid) const;
    const Users& users(uint32_t device) const { return users_[device]; }
    // The same for groups: the objects with that group.
    Account of_group(uint32_t device, gid_t gid) const;
    const Users& groups(uint32_t device) const { return groups_[device]; }

    // Called after a change of the object's size, place, owner, group or device, and when it has got its first name or
    // lost its last.
    void update(Object& object);
    // The shares of the object count in these directories from now on; null: none.
    void set_trees(Object& object, const TreeSet* trees);
    // Called before the object is destroyed.
    void remove(Object& object);

private:
    void update_shares(Object& object);
    void add(const AccountShare& share, const TreeSet* trees, bool taken_away);
    // The share has changed.
    void settle(const AccountShare& share, const TreeSet* trees);

    std::vector<Account> totals_;
    std::vector<Users> users_;
    std::vector<Users> groups_;
    AccountLimits* limits_ = nullptr;
    Lifetimes* lifetimes_ = nullptr;
};

}  // namespace gshm::core
