// Checks for data that no daemon can have written: values out of range, places outside of their extents, overlapping
// places, names without a directory, directories that contain themselves.
#include <algorithm>
#include <sys/stat.h>
#include <unordered_set>

#include "base/limits.h"
#include "base/log.h"
#include "store/acl.h"
#include "store/lifetimes.h"
#include "store/restore.h"

namespace gshm::core {
namespace {

bool is_name(std::string_view name) {
    return !name.empty() && name.size() <= limits::kNamePartBytes && name != "." && name != ".." &&
           name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

bool is_special(uint32_t type) {
    return type == S_IFIFO || type == S_IFSOCK || type == S_IFCHR || type == S_IFBLK;
}

}  // namespace

Status Restorer::note_damage(Error error) {
    if (mode_ == Mode::strict) return std::unexpected(std::move(error));
    if (salvaged_.left_out++ == 0) salvaged_.first = error.message;
    log_warning("left out: {}", error.message);
    return {};
}

Status Restorer::check(const SavedExtent& extent) {
    if (extent.key == 0 || extent.id == 0) return fail(EUCLEAN, "an extent has no number");
    if (extent.memory == nullptr) return fail(EUCLEAN, "extent {} has no memory", extent.key);
    // refresh() would set the size of each object in it from the file.
    if (extent.slab && extent.memory->file() != nullptr) return fail(EUCLEAN, "slab {} is a file", extent.key);
    return {};
}

Status Restorer::check(const SavedNode& node) const {
    auto wrong = [&](std::string_view what) { return fail(EUCLEAN, "node {}: {}", node.id, what); };
    const NodeId root = store_.tree_.root().id;
    if (node.id == 0) return wrong("has no number");
    if (node.id == root && (node.kind != NodeKind::directory || !node.links.empty())) return wrong("is not the root");
    for (const auto& link : node.links) {
        if (!is_name(link.name) || link.cookie == 0) return wrong("has a name that cannot be");
    }
    for (const auto& [name, value] : node.attributes) {
        constexpr size_t kNameBytes = 255;  // the limit of earlier versions
        if (name.empty() || name.size() > kNameBytes || value.size() > limits::kAttributesBytes) {
            return wrong("has an attribute that cannot be");
        }
    }
    switch (node.kind) {
        case NodeKind::directory:
            if (node.links.size() > 1) return wrong("a directory has several names");
            return {};
        case NodeKind::symlink:
            if (node.target.empty() || node.target.size() > limits::kNameBytes) return wrong("leads nowhere");
            return {};
        case NodeKind::special:
            if (!is_special(node.type)) return wrong("is a file of no kind");
            return {};
        case NodeKind::object: break;
        default: return wrong("is of no kind");
    }
    if (node.state != ObjectState::open && node.state != ObjectState::sealed) return wrong("is in no state");
    if (!node.device) return wrong("is on no device");
    if (node.ttl_ns < 0 || node.ttl_from_ns < 0 || !Lifetimes::check_ttl(node.ttl_ns)) {
        return wrong("has a ttl that cannot be");
    }
    if (node.stored != 0 && (node.extent != 0 || node.evicted_from != node.device)) return wrong("is in two places");
    if (node.extent != 0) TRY(check_place(node, node.extent, node.offset, node.size_bytes));
    for (const auto& retired : node.retired) {
        TRY(check_place(node, retired.extent, retired.offset, retired.size_bytes));
    }
    return {};
}

Status Restorer::read_acls(const SavedNode& node, std::vector<AclEntry>& ret_acl,
                           std::vector<AclEntry>& ret_default_acl) {
    auto wrong = [&](std::string_view what) { return fail(EUCLEAN, "node {}: {}", node.id, what); };
    auto read = [&](const std::string& bytes, std::vector<AclEntry>& ret_entries) -> Status {
        if (bytes.empty()) return {};
        auto entries = decode_acl(bytes);
        if (!entries) return wrong(entries.error().message);
        if (entries->empty()) return wrong("has an ACL without entries");
        ret_entries = std::move(*entries);
        return {};
    };
    TRY(read(node.acl, ret_acl));
    TRY(read(node.default_acl, ret_default_acl));
    if (!ret_acl.empty() && node.kind == NodeKind::symlink) return wrong("a symbolic link has an ACL");
    if (!ret_default_acl.empty() && node.kind != NodeKind::directory)
        return wrong("it is no directory with a default ACL");
    // Otherwise it would grant other rights in listings than it does.
    if (!ret_acl.empty() && (is_mode_only(ret_acl) || mode_for_acl(ret_acl, node.mode) != node.mode)) {
        return wrong("its ACL does not match its mode");
    }
    return {};
}

Status Restorer::check_place(const SavedNode& node, uint64_t key, uint64_t offset, uint64_t bytes) const {
    auto found = extents_.find(key);
    if (found == extents_.end()) return {};  // its memory is lost, which Survival has logged
    const StoredExtent& extent = *found->second;
    if (extent.device != *node.device) return fail(EUCLEAN, "node {} is on another device than its memory", node.id);
    if (extent.slab_group == nullptr) {
        if (offset != 0 || extent.objects > 0) return fail(EUCLEAN, "node {} is in the memory of another", node.id);
        // The size of a file comes from the kernel.
        if (extent.memory->file() == nullptr && bytes > extent.size_bytes) {
            return fail(EUCLEAN, "node {} has more bytes than its memory", node.id);
        }
        return {};
    }
    const bool fits = offset % limits::kObjectAlignment == 0 && offset <= extent.size_bytes &&
                      bytes <= extent.size_bytes && Slab::rounded(bytes) <= extent.size_bytes - offset;
    if (!fits) return fail(EUCLEAN, "node {} is not inside of its slab", node.id);
    return {};
}

Status Restorer::check_slabs() {
    for (auto& [extent, ranges] : taken_) {
        std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.offset < b.offset; });
        uint64_t end = 0;
        std::vector<Range> apart;
        for (const Range& range : ranges) {
            if (range.offset >= end) {
                end = range.offset + range.bytes;
                apart.push_back(range);
                continue;
            }
            TRY(note_damage({EUCLEAN, fmt::format("node {} is in the place of another in extent {}", range.object->id,
                                                  extent->key)}));
            drop_place(range.object, extent, range.offset);
        }
        ranges = std::move(apart);
    }
    return {};
}

// Takes the place from an object, in a salvage. The bytes remain in the other object of the place, or in lost+found.
void Restorer::drop_place(Object* object, StoredExtent* extent, uint64_t offset) {
    --extent->objects;
    if (object->extent == extent && object->offset == offset) {
        object->extent = nullptr;
        object->size_bytes = object->offset = 0;
        return;
    }
    std::erase_if(*object->retired, [&](const Object::Retired& retired) {
        return retired.place.extent == extent && retired.place.offset == offset;
    });
}

// The parents of every directory with a name must lead to the root.
Status Restorer::check_tree() const {
    std::unordered_set<const Directory*> good{&store_.tree_.root()};
    std::vector<const Directory*> way;
    for (const Directory* directory : directories_) {
        const Directory* at = directory;
        if (at->links == 0) continue;
        way.clear();
        while (at != nullptr && !good.contains(at) && way.size() <= directories_.size()) {
            way.push_back(at);
            at = at->parent();
        }
        if (at == nullptr || !good.contains(at)) {
            return fail(EUCLEAN, "directory {} does not lead to the root", directory->id);
        }
        good.insert(way.begin(), way.end());
    }
    return {};
}

}  // namespace gshm::core
