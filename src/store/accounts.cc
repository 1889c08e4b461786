#include "store/accounts.h"

#include <cassert>

#include "store/lifetimes.h"

namespace gshm::core {
namespace {

void change(Account& account, const AccountShare& share, bool taken_away) {
    auto count = [&](uint64_t& counter, uint64_t amount) {
        assert(!taken_away || counter >= amount);
        counter = taken_away ? counter - amount : counter + amount;
    };
    count(account.object_bytes, share.bytes);
    count(account.objects, share.is_object ? 1 : 0);
    if (!share.unlinked) return;
    count(account.unlinked_bytes, share.bytes);
    count(account.unlinked_objects, share.is_object ? 1 : 0);
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

void Accounts::add(const AccountShare& share, const TreeSet*, bool taken_away) {
    change(totals_[share.device], share, taken_away);
    auto count = [&](Users& accounts, uint32_t id) {
        Account& account = accounts[id];
        change(account, share, taken_away);
        if (account == Account{}) accounts.erase(id);
    };
    count(users_[share.device], share.uid);
    count(groups_[share.device], share.gid);
}

void Accounts::update(Object& object) {
    update_shares(object);
    // Pinned bytes are in a budget.
    if (object.lifetime != nullptr && lifetimes_ != nullptr) lifetimes_->account(object);
}

void Accounts::update_shares(Object& object) {
    AccountedShares& counted = object.accounted;
    const AccountShare own{object.extent == nullptr ? 0 : object.size_bytes,
                           object.device,
                           object.uid,
                           object.gid,
                           true,
                           object.links == 0};
    if (own != counted.own_) {
        // The new share is added first, so that the account is not erased in between.
        add(own, counted.trees_, false);
        if (counted.own_.is_object) add(counted.own_, counted.trees_, true);
        counted.own_ = own;
    }
    if (!object.retired && !counted.retired_) return;
    auto retired = std::make_unique<std::vector<AccountShare>>();
    if (object.retired) {
        for (const auto& [place, bytes] : *object.retired) {
            retired->push_back({bytes, place.extent->device, object.uid, object.gid, false, true});
        }
    }
    for (const auto& share : *retired) add(share, counted.trees_, false);
    if (counted.retired_) {
        for (const auto& share : *counted.retired_) add(share, counted.trees_, true);
    }
    counted.retired_ = retired->empty() ? nullptr : std::move(retired);
}

void Accounts::remove(Object& object) {
    if (object.accounted.own_.is_object) add(object.accounted.own_, object.accounted.trees_, true);
    if (object.accounted.retired_) {
        for (const auto& share : *object.accounted.retired_) add(share, object.accounted.trees_, true);
    }
    object.accounted = {};
}

}  // namespace gshm::core
