// Requests for ACLs.
#include "daemon/server.h"
#include "store/acl.h"

namespace gshm::core {
namespace {

AclKind kind_of(bool inherited) {
    return inherited ? AclKind::inherited : AclKind::access;
}

Result<AclEntries> read_entries(const wire::ChangeAcl& change) {
    AclEntries entries;
    if (change.entries() == nullptr) return entries;
    if (change.entries()->size() > limits::kAclEntries) {
        return fail(E2BIG, "an ACL has at most {} entries", limits::kAclEntries);
    }
    for (const auto* record : *change.entries()) {
        entries.push_back({static_cast<AclTag>(record->tag()), record->rights(), record->id()});
    }
    return entries;
}

}  // namespace

void Session::get_acl(uint64_t request, const wire::GetAcl& get) {
    auto entries = server_.store().acl(id_, wire::view(get.name()), kind_of(get.inherited()));
    if (!entries) return reply_error(request, entries.error());
    std::vector<wire::AclRecord> records;
    for (const AclEntry& entry : *entries) {
        records.emplace_back(static_cast<uint16_t>(entry.tag), entry.rights, entry.id);
    }
    auto& out = builder();
    auto body = wire::CreateAclReply(out, out.CreateVectorOfStructs(records));
    reply(request, wire::ReplyBody::AclReply, body.Union());
}

void Session::change_acl(uint64_t request, const wire::ChangeAcl& change) {
    auto entries = read_entries(change);
    if (!entries) return reply_error(request, entries.error());
    const auto how = static_cast<Store::AclChange>(change.change());
    if (how != Store::AclChange::replace && how != Store::AclChange::add && how != Store::AclChange::remove) {
        return reply_error(request, {EINVAL, "unknown change of an ACL"});
    }
    reply_change(request, server_.store().change_acl(id_, wire::view(change.name()), kind_of(change.inherited()), how,
                                                     std::move(*entries)));
}

}  // namespace gshm::core
