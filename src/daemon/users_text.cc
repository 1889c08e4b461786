#include "daemon/users_text.h"

#include <algorithm>
#include <vector>

#include <fmt/core.h>

#include "base/size.h"

namespace gshm::core {

namespace {

using Users = std::vector<std::pair<uint64_t, uid_t>>;  // with their bytes

std::string text_of(uint64_t all_bytes, uint64_t own_bytes, Users users, const Credentials& who) {
    constexpr size_t kShown = 5;
    const auto all = fmt::format("objects have {}", size_text(all_bytes));
    if (!who.is_root()) return fmt::format("{}, yours {}", all, size_text(own_bytes));
    const size_t shown = std::min(kShown, users.size());
    // By size; users with the same size by their number.
    std::ranges::partial_sort(users, users.begin() + static_cast<ptrdiff_t>(shown), [](const auto& a, const auto& b) {
        return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    std::string text = all;
    for (size_t i = 0; i < shown; ++i)
        text += fmt::format("{} uid {} {}", i == 0 ? ":" : ",", users[i].second, size_text(users[i].first));
    uint64_t rest = 0;
    for (size_t i = shown; i < users.size(); ++i) rest += users[i].first;
    if (users.size() > shown) text += fmt::format(", and {} further users {}", users.size() - shown, size_text(rest));
    return text;
}

}  // namespace

std::string users_text(const Accounts& accounts, DeviceIndex device, const Credentials& who) {
    Users users;
    if (who.is_root()) {
        for (const auto& [uid, account] : accounts.users(device)) users.emplace_back(account.object_bytes, uid);
    }
    return text_of(accounts.of(device).object_bytes, accounts.of(device, who.uid).object_bytes, std::move(users), who);
}

std::string users_text(const TreeAccount& account, const Credentials& who) {
    Users users;
    uint64_t own = 0;
    for (const auto& [uid, bytes] : account.user_bytes) {
        users.emplace_back(bytes, uid);
        if (uid == who.uid) own = bytes;
    }
    return text_of(account.all.bytes, own, std::move(users), who);
}

}  // namespace gshm::core
