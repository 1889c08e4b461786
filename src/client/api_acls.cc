// gshm.h: sharing with single users and groups.
#include "client/api.h"
#include "client/requests.h"

using namespace gshm::core;
using namespace gshm::core::client;

namespace {

enum class AclChange : uint8_t { replace = 1, add = 2, remove = 3 };

Result<std::vector<gshm_acl_entry>> get_acl(Core& core, const std::string& name, bool inherited) {
    auto answer = TRY(core.connection().call(
        wire::RequestBody::GetAcl,
        [&](auto& builder) { return wire::CreateGetAcl(builder, builder.CreateString(name), inherited).Union(); },
        Lost::retry));
    std::vector<gshm_acl_entry> entries;
    const auto* records = GSHM_BODY(answer, AclReply)->entries();
    if (records == nullptr) return entries;
    for (const auto* record : *records) entries.push_back({record->tag(), record->rights(), record->id()});
    return entries;
}

Status change_acl(Core& core, const std::string& name, bool inherited, AclChange change,
                  std::span<const gshm_acl_entry> entries) {
    return call_for_status(core, wire::RequestBody::ChangeAcl, [&](auto& builder) {
        std::vector<wire::AclRecord> records;
        for (const auto& entry : entries) records.emplace_back(entry.tag, entry.rights, entry.id);
        auto object = builder.CreateString(name);
        auto list = builder.CreateVectorOfStructs(records);
        return wire::CreateChangeAcl(builder, object, inherited, static_cast<uint8_t>(change), list).Union();
    });
}

Status check_entries(const gshm_acl_entry* entries, size_t count) {
    TRY(check_argument(entries != nullptr || count == 0, "the entries are NULL"));
    if (count <= limits::kAclEntries) return {};
    return fail(E2BIG, "an ACL has at most {} entries", limits::kAclEntries);
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
    return with_client(client, [&](Core&) -> Status {
        TRY(check_names({name}));
        TRY(check_flags(flags, GSHM_SHARE_PARENTS | GSHM_SHARE_WRITE | GSHM_SHARE_RECURSIVE, "share"));
        TRY(check_entries(with, count));
        TRY(check_output(ret_info));
        return fail(EOPNOTSUPP, "sharing is not there yet");
    });
}

int gshm_unshare(gshm_client* client, const char* name, const gshm_acl_entry* with, size_t count, uint32_t flags,
                 gshm_share_info* ret_info) noexcept {
    return with_client(client, [&](Core&) -> Status {
        TRY(check_names({name}));
        TRY(check_flags(flags, GSHM_SHARE_RECURSIVE, "unshare"));
        TRY(check_entries(with, count));
        TRY(check_output(ret_info));
        return fail(EOPNOTSUPP, "sharing is not there yet");
    });
}

}  // extern "C"
