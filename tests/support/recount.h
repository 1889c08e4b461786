// The accounts, recomputed from all objects.
#pragma once

#include <map>

#include <gtest/gtest.h>

#include "store/files.h"

namespace gshm::core::test {

inline void expect_true_accounts(Store& store) {
    using Key = std::pair<DeviceIndex, uid_t>;
    std::map<Key, Account> users;
    std::vector<Account> totals(store.devices().size());
    auto count = [&](const Object& object, DeviceIndex device, uint64_t bytes, bool whole, bool unlinked) {
        for (Account* account : {&users[{device, object.uid}], &totals[device]}) {
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
            for (Account* account : {&users[{object->home(), object->uid}], &totals[object->home()]}) {
                account->evicted_bytes += object->size_bytes;
                ++account->evicted_objects;
            }
        }
        if (object->stored != 0) continue;  // on no device
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
}

}  // namespace gshm::core::test
