// Accounts: the memory that each user has on each device. An object's share follows from its state alone. update()
// replaces the share that was counted before, and remove() subtracts it. Accounts change nowhere else.
#pragma once

#include <cstdint>
#include <memory>
#include <sys/types.h>
#include <unordered_map>
#include <vector>

namespace gshm::core {

struct Object;

struct Account {
    uint64_t object_bytes = 0;    // of all objects, with or without a name, and of their former memory
    uint64_t unlinked_bytes = 0;  // of these: without a name
    uint64_t objects = 0;
    uint64_t unlinked_objects = 0;

    bool operator==(const Account&) const = default;
};

// The part of an account that comes from one object. Kept in the object, so that exactly the same is subtracted.
struct AccountShare {
    uint32_t device = 0;
    uid_t uid = 0;
    uint64_t bytes = 0;
    bool is_object = false;  // else former memory of one
    bool unlinked = false;

    bool operator==(const AccountShare&) const = default;
};

// The counted shares of one object.
class AccountedShares {
private:
    friend class Accounts;
    AccountShare own_;                                    // counted if is_object
    std::unique_ptr<std::vector<AccountShare>> retired_;  // null: none
};

class Accounts {
public:
    using Users = std::unordered_map<uid_t, Account>;

    explicit Accounts(size_t devices) : totals_(devices), users_(devices) {}

    // Of all users.
    const Account& of(uint32_t device) const { return totals_[device]; }
    // All zeros for a user without objects there.
    Account of(uint32_t device, uid_t uid) const;
    const Users& users(uint32_t device) const { return users_[device]; }

    // Called after a change of the object's size, place, owner or device, and when it has got its first name or lost
    // its last.
    void update(Object& object);
    // Called before the object is destroyed.
    void remove(Object& object);

private:
    void add(const AccountShare& share, bool taken_away);

    std::vector<Account> totals_;
    std::vector<Users> users_;
};

}  // namespace gshm::core
