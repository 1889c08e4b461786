// The accounts, recomputed from all objects.
#pragma once

#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "store/account_limits.h"
#include "store/files.h"

namespace gshm::core::test {

// By its names; without one by what was noted.
inline bool counts_in(const Object& object, const TreeAccount& account) {
    auto is_below = [&](const Link& link) {
        return link.parent != nullptr && Tree::is_inside(*link.parent, *account.directory);
    };
    if (object.links > 0) {
        return is_below(object.first_link) ||
               std::ranges::any_of(object.further_links, [&](const auto& link) { return is_below(*link); });
    }
    const TreeSet* trees = object.accounted.trees();
    return trees != nullptr && std::ranges::count(trees->accounts, &account) > 0;
}

inline void expect_true_accounts(Store& store) {
    using Key = std::pair<DeviceIndex, uid_t>;
    std::map<Key, Account> users;
    std::map<Key, Account> groups;
    std::map<NodeId, LimitUse> trees;
    for (const auto& [id, account] : store.limits().of_directories()) trees[id];
    std::vector<Account> totals(store.devices().size());
    auto count_in_trees = [&](const Object& object, uint64_t bytes, bool whole, bool unlinked) {
        for (const auto& [id, account] : store.limits().of_directories()) {
            if (!counts_in(object, *account)) continue;
            trees[id].bytes += bytes;
            trees[id].objects += whole ? 1 : 0;
            trees[id].unlinked_bytes += unlinked ? bytes : 0;
        }
    };
    auto count = [&](const Object& object, DeviceIndex device, uint64_t bytes, bool whole, bool unlinked) {
        count_in_trees(object, bytes, whole, unlinked);
        for (Account* account : {&users[{device, object.uid}], &groups[{device, object.gid}], &totals[device]}) {
            account->object_bytes += bytes;
            account->objects += whole ? 1 : 0;
            account->unlinked_bytes += unlinked ? bytes : 0;
            account->unlinked_objects += whole && unlinked ? 1 : 0;
            if (!whole) continue;
            account->evictable_bytes += !object.is_evicted() && Store::may_be_evicted(object) ? bytes : 0;
            account->tier_bytes += object.is_evicted() ? bytes : 0;
            account->tier_objects += object.is_evicted() ? 1 : 0;
        }
    };
    for (Node* node : Files(store).all()) {
        const auto* object = as_object(node);
        if (object == nullptr) continue;
        if (object->is_evicted()) {
            for (Account* account : {&users[{object->home(), object->uid}], &groups[{object->home(), object->gid}],
                                     &totals[object->home()]}) {
                account->evicted_bytes += object->size_bytes;
                ++account->evicted_objects;
            }
        }
        if (object->stored != 0) {  // on no device
            count_in_trees(*object, object->size_bytes, true, object->links == 0);
            continue;
        }
        count(*object, object->device, object->extent == nullptr ? 0 : object->size_bytes, true, object->links == 0);
        if (!object->retired) continue;
        for (const auto& retired : *object->retired) {
            count(*object, retired.place.extent->device, retired.size_bytes, false, true);
        }
    }
    std::map<Key, Account> counted;
    for (DeviceIndex device = 0; device < totals.size(); ++device) {
        ASSERT_EQ(store.accounts().of(device), totals[device]) << "of device " << device;
        for (const auto& [uid, account] : store.accounts().users(device)) counted[{device, uid}] = account;
    }
    ASSERT_EQ(counted, users);
    counted.clear();
    for (DeviceIndex device = 0; device < totals.size(); ++device) {
        for (const auto& [gid, account] : store.accounts().groups(device)) counted[{device, gid}] = account;
    }
    ASSERT_EQ(counted, groups);
    for (const auto& [id, account] : store.limits().of_directories()) {
        ASSERT_EQ(AccountLimits::tree_use(*account, Limit::kAll), trees[id]) << "of directory " << id;
    }
}

// No account has more than its hard limits, unless it had when they were set.
inline void expect_no_limit_exceeded(Store& store) {
    auto check = [&](const Limits& set, auto use, const std::string& whose) {
        for (const Limit& limit : set) {
            const LimitUse used = use(limit.on);
            if (limit.values.bytes != 0) {
                ASSERT_LE(used.bytes, limit.values.bytes) << whose;
            }
            if (limit.values.objects != 0) {
                ASSERT_LE(used.objects, limit.values.objects) << whose;
            }
        }
    };
    const AccountLimits& limits = store.limits();
    for (const auto& [id, set] : limits.of_users()) {
        check(set, [&](DeviceIndex on) { return limits.user_use(id, on); }, "uid " + std::to_string(id));
    }
    for (const auto& [id, set] : limits.of_groups()) {
        check(set, [&](DeviceIndex on) { return limits.group_use(id, on); }, "gid " + std::to_string(id));
    }
    for (const auto& [id, account] : limits.of_directories()) {
        check(
            account->set, [&](DeviceIndex on) { return AccountLimits::tree_use(*account, on); },
            "directory " + std::to_string(id));
    }
}

}  // namespace gshm::core::test
