// Replacement of an object by another, and the list of unlinked objects.
#include <map>
#include <utility>

#include "store/account_limits.h"
#include "store/store.h"

namespace gshm::core {

Status Store::give_name(SessionId session, NodeId id, std::string_view name, bool replace) {
    Session& by = at(session);
    const uint32_t writers = writers_of(by, id);
    if (writers == 0) return fail(EACCES, "object {} is not open for writing", id);
    Object* object = by.leases.at(id).object;
    TRY(Operations::check_sealable(*object, writers));
    if (object->links > 1) {
        return fail(EMLINK, "the object has {} names, and which of them is to become \"{}\" is not clear",
                    object->links, name);
    }
    auto* link = const_cast<Link*>(object->any_link());
    const Tree::Spot spot = TRY(tree_.find_target(by.who, object, link, name, replace));
    if (link != nullptr && Tree::entry_at(spot) == link) return operations_.seal(*object, writers);
    TRY(limits_->check_way(*object, spot));
    refresh(object);
    // Sealed first, so that listeners to the name see a sealed object.
    const ObjectState before = std::exchange(object->state, ObjectState::sealed);
    std::string_view last;
    Directory* parent = tree_.make_way(by.who, spot, &last);
    auto given = operations_.put(*object, link, *parent, last, replace);
    if (!given) object->state = before;
    else if (before != ObjectState::sealed) operations_.note_sealed(*object);
    return given;
}

std::vector<Unlinked> Store::unlinked(SessionId session, bool all, NodeId after, size_t most) const {
    const Credentials& by = at(session).who;
    struct Found {
        const Object* object = nullptr;
        std::vector<Holder> sessions;
        std::vector<Holder> files;
    };
    // Found through leases and open files. A list of unlinked objects would cost an update with every name and lease.
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

}  // namespace gshm::core
