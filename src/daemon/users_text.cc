#include "daemon/users_text.h"

#include <algorithm>
#include <vector>

#include <fmt/core.h>

#include "base/size.h"

namespace gshm::core {

namespace {

using Users = std::vector<std::pair<uint64_t, uid_t>>;  // with their bytes

// "uid 1000 200 MiB, uid 0 100 MiB", the largest first.
std::string list_of(Users users) {
    constexpr size_t kShown = 5;
    const size_t shown = std::min(kShown, users.size());
    // By size; users with the same size by their number.
    std::ranges::partial_sort(users, users.begin() + static_cast<ptrdiff_t>(shown), [](const auto& a, const auto& b) {
        return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    std::string text;
    for (size_t i = 0; i < shown; ++i)
        text += fmt::format("{}uid {} {}", i == 0 ? "" : ", ", users[i].second, size_text(users[i].first));
    uint64_t rest = 0;
    for (size_t i = shown; i < users.size(); ++i) rest += users[i].first;
    if (users.size() > shown) text += fmt::format(", and {} further users {}", users.size() - shown, size_text(rest));
    return text;
}

}  // namespace

std::string users_text(const Accounts& accounts, DeviceIndex device, const Credentials& who) {
    const auto all = fmt::format("objects have {}", size_text(accounts.of(device).object_bytes));
    if (!who.is_root()) return fmt::format("{}, yours {}", all, size_text(accounts.of(device, who.uid).object_bytes));
    Users users;
    for (const auto& [uid, account] : accounts.users(device)) users.emplace_back(account.object_bytes, uid);
    return users.empty() ? all : fmt::format("{}: {}", all, list_of(std::move(users)));
}

std::string users_text(const TreeAccount& account, const Credentials& who) {
    Users users;
    uint64_t own = 0;
    for (const auto& [uid, bytes] : account.user_bytes) {
        users.emplace_back(bytes, uid);
        if (uid == who.uid) own = bytes;
    }
    if (!who.is_root()) return fmt::format("your objects below it have {}", size_text(own));
    return users.empty() ? "" : "below it: " + list_of(std::move(users));
}

}  // namespace gshm::core
