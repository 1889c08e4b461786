// gshm.h: sharing with single users and groups.
#include <algorithm>

#include "client/api.h"
#include "client/requests.h"
#include "client/share.h"

using namespace gshm::core;
using namespace gshm::core::client;

namespace {

Status check_entries(const gshm_acl_entry* entries, size_t count) {
    TRY(check_argument(entries != nullptr || count == 0, "the entries are NULL"));
    if (count <= limits::kAclEntries) return {};
    return fail(E2BIG, "an ACL has at most {} entries", limits::kAclEntries);
}

// The users and groups of a share, each once.
Result<std::vector<gshm_acl_entry>> read_with(const gshm_acl_entry* with, size_t count) {
    TRY(check_entries(with, count));
    std::vector<gshm_acl_entry> chosen;
    for (size_t i = 0; i < count; ++i) {
        const auto& entry = with[i];
        TRY(check_argument(entry.tag == GSHM_ACL_USER || entry.tag == GSHM_ACL_GROUP,
                           "an entry is neither a user nor a group"));
        TRY(check_argument(entry.rights == 0, "an entry of a share has rights: those follow from the flags"));
        const bool twice = std::ranges::any_of(
            chosen, [&](const auto& other) { return other.tag == entry.tag && other.id == entry.id; });
        if (!twice) chosen.push_back(entry);
    }
    return chosen;
}

}  // namespace

extern "C" {

int gshm_acl_get(gshm_client* client, const char* name, uint32_t flags, gshm_acl_entry* ret_entries, size_t capacity,
                 size_t* ret_count) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name}));
        TRY(check_flags(flags, GSHM_ACL_DEFAULT, "ACL"));
        TRY(check_argument(ret_count != nullptr, "ret_count is NULL"));
        TRY(check_argument(ret_entries != nullptr || capacity == 0, "ret_entries is NULL"));
        const auto entries = TRY(get_acl(core, name, flags != 0));
        std::copy_n(entries.begin(), std::min(capacity, entries.size()), ret_entries);
        *ret_count = entries.size();
        return {};
    });
}

int gshm_acl_set(gshm_client* client, const char* name, uint32_t flags, const gshm_acl_entry* entries,
                 size_t count) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name}));
        TRY(check_flags(flags, GSHM_ACL_DEFAULT, "ACL"));
        TRY(check_entries(entries, count));
        return change_acl(core, name, flags != 0, AclChange::replace, {entries, count});
    });
}

int gshm_share(gshm_client* client, const char* name, const gshm_acl_entry* with, size_t count, uint32_t flags,
               gshm_share_info* ret_info) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name}));
        TRY(check_flags(flags, GSHM_SHARE_PARENTS | GSHM_SHARE_WRITE | GSHM_SHARE_RECURSIVE, "share"));
        auto chosen = TRY(read_with(with, count));
        TRY(check_argument(count > 0, "a share needs at least one user or group"));
        TRY(check_output(ret_info));
        Sharing sharing(client, core, std::move(chosen));
        TRY(sharing.share(name, flags));
        return write_struct(ret_info, sharing.info());
    });
}

int gshm_unshare(gshm_client* client, const char* name, const gshm_acl_entry* with, size_t count, uint32_t flags,
                 gshm_share_info* ret_info) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name}));
        TRY(check_flags(flags, GSHM_SHARE_RECURSIVE, "unshare"));
        auto chosen = TRY(read_with(with, count));
        TRY(check_output(ret_info));
        Sharing sharing(client, core, std::move(chosen));
        TRY(sharing.unshare(name, flags != 0));
        return write_struct(ret_info, sharing.info());
    });
}

}  // extern "C"
