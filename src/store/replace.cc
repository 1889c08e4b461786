// One object in the place of another, and what then has no name any more.
#include <map>
#include <utility>

#include "store/store.h"

namespace gshm {

Status Store::give_name(SessionId session, NodeId id, std::string_view name, bool replace) {
    Session& by = at(session);
    auto lease = by.leases.find(id);
    if (lease == by.leases.end() || lease->second.writers == 0) {
        return fail(EACCES, "object {} is not open for writing", id);
    }
    Object* object = lease->second.object;
    TRY(check_sealable(by, *object));
    // Who hears of the name hears of a sealed object. If it has the name already, nobody hears but of the seal.
    const ObjectState before = std::exchange(object->state, ObjectState::sealed);
    const Link* link = object->any_link();
    const std::pair place{link == nullptr ? nullptr : link->parent, link == nullptr ? 0 : link->cookie};
    auto given = tree_.give_name(by.who, object, name, replace);
    if (!given) {
        object->state = before;
        return std::unexpected(given.error());
    }
    Node* replaced = *given;
    if (before != ObjectState::sealed) {
        note_sealed(object);
        link = object->any_link();
        if (std::pair{link->parent, link->cookie} == place) tree_.report_sealed(*object);
    }
    accounts_.update(*object);
    object->replaced = false;
    unnamed_.erase(id);
    rights_changed(*object);
    if (replaced != nullptr) unlinked(replaced, true);
    return {};
}

std::vector<Unlinked> Store::unlinked(SessionId session, bool all, NodeId after, size_t most) const {
    const Credentials& by = at(session).who;
    struct Found {
        const Object* object = nullptr;
        std::vector<Holder> sessions;
        std::vector<Holder> files;
    };
    // Found by those who hold it: there is no list of such objects to be kept up to date with every name and lease.
    std::map<NodeId, Found> found;
    auto look_at = [&](const Object& object, const Credentials& who) -> Found* {
        if (object.id <= after || (object.links > 0 && !object.retired)) return nullptr;
        if (!all && by.uid != object.uid && by.uid != who.uid) return nullptr;
        if (found.size() == most && object.id > found.rbegin()->first) return nullptr;
        Found& entry = found[object.id];
        entry.object = &object;
        if (found.size() > most) found.erase(std::prev(found.end()));
        return &entry;
    };
    for (const auto& [id, other] : sessions_) {
        for (const auto& [node, lease] : other.leases) {
            if (Found* entry = look_at(*lease.object, other.who)) {
                entry->sessions.push_back({other.who, lease.count, lease.writers > 0});
            }
        }
    }
    for (const auto& [id, file] : files_) {
        if (Found* entry = look_at(*file.object, file.who)) {
            entry->files.push_back({file.who, 1, file.access == Access::write});
        }
    }
    std::vector<Unlinked> unlinked;
    for (auto& [id, entry] : found) {
        const Object& object = *entry.object;
        bool may_know_name = all || by.uid == object.uid;
        if (object.retired && !entry.sessions.empty()) {
            uint64_t bytes = 0;
            for (const auto& retired : *object.retired) bytes += retired.size_bytes;
            std::string name = object.links > 0 ? Tree::path_of(object) : object.first_link.name;
            unlinked.push_back({&object, true, bytes, may_know_name ? name : "", entry.sessions});
        }
        if (object.links > 0) continue;
        auto holders = std::move(entry.sessions);
        holders.insert(holders.end(), entry.files.begin(), entry.files.end());
        unlinked.push_back({&object, false, object.extent == nullptr ? 0 : object.size_bytes,
                            may_know_name ? object.first_link.name : "", std::move(holders)});
    }
    return unlinked;
}

}  // namespace gshm
