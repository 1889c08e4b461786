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
    using Uses = std::map<std::pair<uint64_t, DeviceIndex>, LimitUse>;  // by node, uid or gid; only what is not empty
    Uses trees;
    Uses user_uses;
    Uses group_uses;
    std::vector<Account> totals(store.devices().size());
    // As limits count it: on the device that it belongs to.
    auto limited = [&](const Object& object, DeviceIndex device, uint64_t bytes, bool whole, bool unlinked) {
        auto add = [&](Uses& uses, uint64_t id) {
            for (DeviceIndex on : {device, Limit::kAll}) {
                LimitUse& use = uses[{id, on}];
                use.bytes += bytes;
                use.objects += whole ? 1 : 0;
                use.unlinked_bytes += unlinked ? bytes : 0;
            }
        };
        add(user_uses, object.uid);
        add(group_uses, object.gid);
        for (const auto& [id, account] : store.limits().of_directories()) {
            if (counts_in(object, *account)) add(trees, id);
        }
    };
    auto count = [&](const Object& object, DeviceIndex device, uint64_t bytes, bool whole, bool unlinked) {
        for (Account* account : {&users[{device, object.uid}], &groups[{device, object.gid}], &totals[device]}) {
            account->object_bytes += bytes;
            account->objects += whole ? 1 : 0;
            account->unlinked_bytes += unlinked ? bytes : 0;
            account->unlinked_objects += whole && unlinked ? 1 : 0;
            account->sealed_objects += whole && object.state == ObjectState::sealed ? 1 : 0;
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
        const bool has_bytes = object->extent != nullptr || object->stored != 0;
        limited(*object, object->home(), has_bytes ? object->size_bytes : 0, true, object->links == 0);
        if (object->stored != 0) continue;  // on no device
        count(*object, object->device, object->extent == nullptr ? 0 : object->size_bytes, true, object->links == 0);
        if (!object->retired) continue;
        for (const auto& retired : *object->retired) {
            count(*object, retired.place.extent->device, retired.size_bytes, false, true);
            limited(*object, retired.place.extent->device, retired.size_bytes, false, true);
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
    const AccountLimits& limits = store.limits();
    for (const auto& [id, account] : limits.of_directories()) {
        for (DeviceIndex device = 0; device < totals.size(); ++device) {
            const LimitUse use = AccountLimits::tree_use(*account, device);
            ASSERT_EQ(use, (trees[{id, device}])) << "of directory " << id << " on device " << device;
        }
        ASSERT_EQ(AccountLimits::tree_use(*account, Limit::kAll), (trees[{id, Limit::kAll}])) << "of directory " << id;
    }
    // Bytes without a name are those of the device where they are, and not compared.
    auto same = [](const LimitUse& a, const LimitUse& b) { return a.bytes == b.bytes && a.objects == b.objects; };
    for (const auto& [key, use] : user_uses) {
        ASSERT_TRUE(same(limits.user_use(static_cast<uid_t>(key.first), key.second), use)) << "of uid " << key.first;
    }
    for (const auto& [key, use] : group_uses) {
        ASSERT_TRUE(same(limits.group_use(static_cast<gid_t>(key.first), key.second), use)) << "of gid " << key.first;
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
