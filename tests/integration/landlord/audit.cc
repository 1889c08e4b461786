#include "integration/landlord/audit.h"

#include <cerrno>
#include <set>
#include <string_view>
#include <unistd.h>

namespace gshm::core::landlord {
namespace {

struct Books {
    uint64_t object_bytes = 0;
    uint64_t unlinked_bytes = 0;
    uint64_t evicted_objects = 0;
    std::map<std::string, uint64_t> capacity;

    bool operator==(const Books&) const = default;
};

std::string read_df(gshm_client* client, Books* ret_books) {
    gshm_device_info devices[8] = {};
    devices[0].struct_size = sizeof devices[0];
    size_t count = 0;
    if (const int code = gshm_devices(client, devices, 8, &count); code != 0) return failed("devices", code);
    Books books;
    for (size_t i = 0; i < count; ++i) {
        books.object_bytes += devices[i].object_bytes;
        books.unlinked_bytes += devices[i].unlinked_bytes;
        books.evicted_objects += devices[i].evicted_objects;
        books.capacity[devices[i].name] = devices[i].capacity_bytes;
    }
    *ret_books = books;
    return {};
}

struct Recount {
    uint64_t object_bytes = 0;  // in memory
    uint64_t unlinked_bytes = 0;
    uint64_t evicted_objects = 0;
    std::map<std::pair<std::string, uid_t>, uint64_t> pinned;
};

std::string count_all(gshm_client* client, Recount* ret_counted) {
    Recount counted;
    gshm_listing* made = nullptr;
    if (const int code = gshm_list(client, "", GSHM_LIST_RECURSIVE, &made); code != 0) return failed("list", code);
    const ListingOwner named(made);
    std::set<uint64_t> seen;  // an object with several names counts once
    gshm_stat_info info = GSHM_STAT_INFO_INIT;
    for (size_t i = 0; i < gshm_listing_count(named.get()); ++i) {
        gshm_listing_stat(named.get(), i, &info);
        if (info.kind != GSHM_KIND_OBJECT || !seen.insert(info.id).second) continue;
        const std::string_view tier = info.tier;
        if (tier != "disk") counted.object_bytes += info.size_bytes;
        if (!tier.empty()) ++counted.evicted_objects;
        if ((info.flags & GSHM_STAT_PINNED) != 0) counted.pinned[{info.device, info.uid}] += info.size_bytes;
    }
    if (const int code = gshm_list_unlinked(client, &made); code != 0) return failed("list_unlinked", code);
    const ListingOwner unlinked(made);
    for (size_t i = 0; i < gshm_listing_count(unlinked.get()); ++i) {
        gshm_listing_stat(unlinked.get(), i, &info);
        counted.object_bytes += info.size_bytes;
        counted.unlinked_bytes += info.size_bytes;
    }
    *ret_counted = counted;
    return {};
}

}  // namespace

std::string check_limits(gshm_client* client, const Rules& rules) {
    if (rules.most_bytes.empty()) return {};
    gshm_limit_list* made = nullptr;
    const int code = gshm_limits(client, nullptr, 0, &made);
    if (code == -ECONNRESET) return {};
    if (code != 0) return failed("limits", code);
    const LimitsOwner list(made);
    for (size_t i = 0; i < gshm_limit_list_count(list.get()); ++i) {
        const gshm_limit* limit = gshm_limit_list_item(list.get(), i);
        const auto most = limit->kind == GSHM_LIMIT_USER ? rules.most_bytes.find(limit->id) : rules.most_bytes.end();
        if (most == rules.most_bytes.end() || limit->used_bytes <= most->second) continue;
        return "user " + std::to_string(limit->id) + " has " + std::to_string(limit->used_bytes) +
               " bytes, and the limit is " + std::to_string(most->second);
    }
    return {};
}

std::string audit(gshm_client* client, const Rules& rules) {
    constexpr int kTries = 6000;
    std::string wrong;
    for (int i = 0; i < kTries; ++i, usleep(10'000)) {
        Books before, after;
        Recount counted;
        if (wrong = read_df(client, &before); !wrong.empty()) return wrong;
        if (wrong = count_all(client, &counted); !wrong.empty()) return wrong;
        if (wrong = read_df(client, &after); !wrong.empty()) return wrong;
        auto differ = [&](const char* what, uint64_t shown, uint64_t found) {
            if (shown != found) {
                wrong = std::string("df shows ") + std::to_string(shown) + what + ", and there are " +
                        std::to_string(found);
            }
        };
        if (before != after) {
            wrong = "df changes while the tenants wait";
            continue;
        }
        differ(" bytes of objects", after.object_bytes, counted.object_bytes);
        differ(" bytes without a name", after.unlinked_bytes, counted.unlinked_bytes);
        differ(" evicted objects", after.evicted_objects, counted.evicted_objects);
        if (!wrong.empty()) continue;
        for (const auto& [account, bytes] : counted.pinned) {
            const auto& [device, uid] = account;
            const bool is_admin = uid == 0 || uid == geteuid();
            if (!is_admin && bytes > after.capacity[device] / 100 * rules.pin_share + rules.pin_share) {
                return "user " + std::to_string(uid) + " has pinned " + std::to_string(bytes) + " bytes on " + device;
            }
        }
        return check_limits(client, rules);
    }
    return wrong;
}

}  // namespace gshm::core::landlord
