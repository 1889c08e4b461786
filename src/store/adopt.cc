// Objects of an earlier catalog, of which only a tier has the bytes and the facts.
#include "base/name.h"
#include "store/acl.h"
#include "store/evictables.h"
#include "store/lifetimes.h"
#include "store/restore.h"

namespace gshm::core {
namespace {

AclPointer acl_of(AclTable& table, const std::string& bytes) {
    return bytes.empty() ? AclPointer()
                         : table.intern(decode_acl(bytes).value());  // decode_kept_facts() has checked it
}

// Nobody more may reach what is below.
bool has_rights(const Directory& directory, KeptFacts::Directory wanted) {
    wanted.implicit = directory.implicit;
    return kept_directory(directory) == wanted;
}

}  // namespace

Directory* Restorer::adopt_way(const KeptFacts::Name& name, std::string_view* ret_last) {
    Directory* at = &store_.tree_.root();
    std::string_view rest = name.path;
    size_t depth = 0;
    // The directories that exist.
    for (; depth < name.directories.size(); ++depth) {
        std::string_view after = rest;
        const Link* there = at->children.find(next_part(after));
        if (there == nullptr) break;
        auto* directory = as_directory(there->node);
        if (directory == nullptr || !has_rights(*directory, name.directories[depth])) return nullptr;
        at = directory;
        rest = after;
    }
    if (depth == name.directories.size() && at->children.find(rest) != nullptr) return nullptr;
    for (; depth < name.directories.size(); ++depth) {
        const auto& wanted = name.directories[depth];
        auto* made = store_.nodes_.make<Directory>();
        made->mode = wanted.mode;
        made->uid = wanted.uid;
        made->gid = wanted.gid;
        made->implicit = wanted.implicit;
        made->acl = acl_of(store_.nodes_.acls(), wanted.acl);
        made->device = at->device;
        made->created_ns = made->accessed_ns = made->modified_ns = made->changed_ns = store_.clock_.now_ns();
        store_.tree_.insert(at, next_part(rest), made);
        store_.nodes_.changed(made);
        at = made;
    }
    *ret_last = rest;
    return at;
}

Object* Restorer::adopt(const KeptFacts& facts, DeviceIndex home, uint64_t file, std::string* ret_lost) {
    auto* object = store_.nodes_.make<Object>();
    object->mode = facts.mode;
    object->uid = facts.uid;
    object->gid = facts.gid;
    object->state = facts.state;
    // A pin is in the budget of its owner, which is gone.
    object->flags = facts.flags & ~(kPinned | kPinnedByAdmin);
    object->size_bytes = facts.size_bytes;
    object->device = home;
    object->evicted_from = home + 1;
    object->stored = file;
    object->file_modified_ns = facts.modified_ns;
    object->file_accessed_ns = facts.accessed_ns;
    object->used_ns = std::max({facts.created_ns, facts.accessed_ns, facts.modified_ns, facts.changed_ns});
    object->acl = acl_of(store_.nodes_.acls(), facts.acl);
    if (!facts.attributes.empty()) {
        object->attributes = std::make_unique<Attributes>(facts.attributes);
        object->attribute_bytes = static_cast<uint32_t>(bytes_of(facts.attributes));
    }
    if (facts.ttl_ns > 0) {
        // By the time of day, also while the machine was off. A clock that was set back does not make it longer.
        const int64_t past = std::max<int64_t>(store_.clock_.now_ns() - facts.ttl_from_ns, 0);
        object->lifetime.reset(new Lifetime(*object));
        object->lifetime->ttl_ns = facts.ttl_ns;
        object->lifetime->from_ns = store_.clock_.steady_ns() - past;
        store_.lifetimes_->restored(*object);
    }
    for (const auto& name : facts.names) {
        std::string_view last;
        Directory* directory = adopt_way(name, &last);
        if (directory != nullptr) store_.tree_.insert(directory, last, object);
        else *ret_lost = name.path;
    }
    if (object->links == 0) {
        const std::string& path = facts.names.front().path;
        put_in_lost_and_found(object, path.substr(path.rfind('/') + 1));
    }
    // A new name has changed them.
    object->created_ns = facts.created_ns;
    object->accessed_ns = facts.accessed_ns;
    object->modified_ns = facts.modified_ns;
    object->changed_ns = facts.changed_ns;
    store_.accounts_.update(*object);
    store_.evictables_->add(*object);
    store_.nodes_.changed(object);
    return object;
}

}  // namespace gshm::core
