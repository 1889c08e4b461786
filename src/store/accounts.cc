#include "store/accounts.h"

#include <cassert>
#include <utility>

#include "store/account_limits.h"
#include "store/extents.h"
#include "store/lifetimes.h"
#include "store/store.h"

namespace gshm::core {
namespace {

void change(Account& account, const AccountShare& share, bool taken_away) {
    auto count = [&](uint64_t& counter, uint64_t amount) {
        assert(!taken_away || counter >= amount);
        counter = taken_away ? counter - amount : counter + amount;
    };
    if (share.stored) return;  // it counts as evicted alone
    count(account.object_bytes, share.bytes);
    count(account.objects, share.is_object ? 1 : 0);
    count(account.sealed_objects, share.sealed ? 1 : 0);
    if (share.evictable) count(account.evictable_bytes, share.bytes);
    if (share.evicted_from != 0) {
        count(account.tier_bytes, share.bytes);
        count(account.tier_objects, 1);
    }
    if (!share.unlinked) return;
    count(account.unlinked_bytes, share.bytes);
    count(account.unlinked_objects, share.is_object ? 1 : 0);
}

// In the account of the device that the object belongs to.
void change_evicted(Account& account, const AccountShare& share, bool taken_away) {
    auto count = [&](uint64_t& counter, uint64_t amount) {
        assert(!taken_away || counter >= amount);
        counter = taken_away ? counter - amount : counter + amount;
    };
    count(account.evicted_bytes, share.bytes);
    count(account.evicted_objects, 1);
}

}  // namespace

Account Accounts::of(uint32_t device, uid_t uid) const {
    auto found = users_[device].find(uid);
    return found == users_[device].end() ? Account{} : found->second;
}

Account Accounts::of_group(uint32_t device, gid_t gid) const {
    auto found = groups_[device].find(gid);
    return found == groups_[device].end() ? Account{} : found->second;
}

void Accounts::add(const AccountShare& share, const TreeSet* trees, bool taken_away) {
    change(totals_[share.device], share, taken_away);
    auto count = [&](Users& accounts, uint32_t id, auto change_account) {
        Account& account = accounts[id];
        change_account(account, share, taken_away);
        if (account == Account{}) accounts.erase(id);
    };
    count(users_[share.device], share.uid, change);
    count(groups_[share.device], share.gid, change);
    if (trees != nullptr) limits_->count(*trees, share, taken_away);
    if (share.evicted_from == 0) return;
    const uint32_t home = share.evicted_from - 1;
    change_evicted(totals_[home], share, taken_away);
    count(users_[home], share.uid, change_evicted);
    count(groups_[home], share.gid, change_evicted);
}

void Accounts::settle(const AccountShare& share, const TreeSet* trees) {
    if (limits_ != nullptr && limits_->has_soft()) limits_->settle(share, trees);
}

void Accounts::set_trees(Object& object, const TreeSet* trees) {
    AccountedShares& counted = object.accounted;
    if (trees == counted.trees_) return;
    auto count = [&](const TreeSet* in, bool taken_away) {
        if (in == nullptr) return;
        if (counted.own_.is_object) limits_->count(*in, counted.own_, taken_away);
        if (!counted.retired_) return;
        for (const auto& share : *counted.retired_) limits_->count(*in, share, taken_away);
    };
    limits_->retain(trees);
    count(trees, false);
    count(counted.trees_, true);
    const TreeSet* old = std::exchange(counted.trees_, trees);
    settle(counted.own_, old);
    settle(counted.own_, trees);
    limits_->release(old);
}

void Accounts::update(Object& object) {
    update_shares(object);
    // Pinned bytes are in a budget.
    if (object.lifetime != nullptr && lifetimes_ != nullptr) lifetimes_->account(object);
}

void Accounts::update_shares(Object& object) {
    AccountedShares& counted = object.accounted;
    const bool is_stored = object.stored != 0;
    uint64_t bytes = object.extent == nullptr && !is_stored ? 0 : object.size_bytes;
    if (limits_ != nullptr && limits_->has_growth()) bytes = limits_->counted_bytes(object, bytes);
    const AccountShare own{bytes,
                           object.device,
                           object.uid,
                           object.gid,
                           true,
                           object.links == 0,
                           object.state == ObjectState::sealed,
                           !object.is_evicted() && Store::may_be_evicted(object),
                           is_stored,
                           object.evicted_from};
    if (own != counted.own_) {
        // The new share is added first, so that the account is not erased in between.
        add(own, counted.trees_, false);
        if (counted.own_.is_object) add(counted.own_, counted.trees_, true);
        const AccountShare former = std::exchange(counted.own_, own);
        if (former.is_object && (former.uid != own.uid || former.gid != own.gid)) settle(former, nullptr);
        settle(own, counted.trees_);
    }
    if (!object.retired && !counted.retired_) return;
    auto retired = std::make_unique<std::vector<AccountShare>>();
    if (object.retired) {
        for (const auto& [place, bytes] : *object.retired) {
            retired->push_back({bytes, place.extent->device, object.uid, object.gid, false, true, false});
        }
    }
    for (const auto& share : *retired) add(share, counted.trees_, false);
    if (counted.retired_) {
        for (const auto& share : *counted.retired_) add(share, counted.trees_, true);
    }
    counted.retired_ = retired->empty() ? nullptr : std::move(retired);
    settle(own, counted.trees_);
}

void Accounts::remove(Object& object) {
    if (object.accounted.own_.is_object) add(object.accounted.own_, object.accounted.trees_, true);
    if (object.accounted.retired_) {
        for (const auto& share : *object.accounted.retired_) add(share, object.accounted.trees_, true);
    }
    const AccountedShares former = std::move(object.accounted);
    object.accounted = {};
    settle(former.own_, former.trees_);
    if (former.trees_ != nullptr) limits_->release(former.trees_);
}

}  // namespace gshm::core
