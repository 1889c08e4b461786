// Requests that several threads serve at the same time, under the shared lock.
#include "daemon/batch.h"
#include "daemon/records.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "wire/records.h"

namespace gshm::core {

bool Session::open_shared(uint64_t request, const wire::OpenObjects& open) {
    if (open.write()) return false;
    const SharedStore store = server_.shared_store();
    static thread_local std::vector<wire::OpenRecord> records;
    records.clear();
    bool shared = true;
    // A descriptor that the client does not have yet must be sent under the exclusive lock; see reply().
    auto has_descriptor = [&](const Object& object) {
        const bool mapped = open.map() && object.extent != nullptr && object.size_bytes > 0;
        return !mapped || has_.contains(object.extent->id << 1);
    };
    // The objects of a batch often share extents with their neighbours: the last one tells whether to begin.
    if (const auto* names = open.names(); names != nullptr && names->size() > 1) {
        const Node* last = store.stat(id_, wire::view(names->Get(names->size() - 1)));
        const auto* object =
            last != nullptr && last->kind == NodeKind::object ? static_cast<const Object*>(last) : nullptr;
        if (object != nullptr && !has_descriptor(*object)) return false;
    }
    auto add = [&](Object* object) {
        store_lock.assert_shared();
        if (object == nullptr) return shared = false;
        records.push_back(to_open_record(*object, -1));
        return shared = server_.devices().check(object->device) && (!open.map() || store.may_map(id_, *object)) &&
                        has_descriptor(*object);
    };
    auto done = for_each_item(
        store, open, [&](std::string_view name) { return add(store.open(id_, name, open.sealed_only())); },
        [&](uint64_t id) { return add(store.open_id(id_, id, open.sealed_only())); });
    if (!done || !shared) {
        for (const auto& record : records) store.release(id_, record.id(), Access::read);
        return false;
    }
    auto& out = builder();
    const auto fields = wire::add_records<wire::OpenRecord>(out, protocol_, records);
    auto body = wire::CreateOpenReply(out, fields.first, fields.sized);
    reply(request, wire::ReplyBody::OpenReply, body.Union());
    return true;
}

bool Session::release_shared(const wire::Release& release) {
    const SharedStore store = server_.shared_store();
    // All or none: if one needs the exclusive lock, the whole request is served again under it.
    for (const auto* ids : {release.read(), release.write()}) {
        if (ids == nullptr) continue;
        for (uint64_t id : *ids) {
            if (!store.can_release(id_, id)) return false;
        }
    }
    for (auto [ids, access] : {std::pair(release.read(), Access::read), std::pair(release.write(), Access::write)}) {
        if (ids == nullptr) continue;
        for (uint64_t id : *ids) store.release(id_, id, access);
    }
    if (release.unmapped() != nullptr) {
        for (uint64_t extent : *release.unmapped()) has_.erase(extent);
    }
    return true;
}

bool Session::stat_shared(uint64_t request, const wire::Stat& stat) {
    const SharedStore store = server_.shared_store();
    if (wire::count(stat.ids()) > 0) return false;
    static thread_local std::vector<wire::NodeRecord> records;
    records.clear();
    bool shared = true;
    auto done = for_each_item(
        store, stat,
        [&](std::string_view name) {
            const Node* node = store.stat(id_, name);
            shared = node != nullptr;
            if (shared) records.push_back(to_record(*node, server_.clock()));
            return shared;
        },
        [](uint64_t) {});
    if (!done || !shared) return false;
    auto& out = builder();
    const auto fields = wire::add_records<wire::NodeRecord>(out, protocol_, records);
    auto body = wire::CreateStatReply(out, fields.first, fields.sized);
    reply(request, wire::ReplyBody::StatReply, body.Union());
    return true;
}

}  // namespace gshm::core
