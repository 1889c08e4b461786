// Names in directories: create, list, rename, remove.
#include <dirent.h>
#include <sys/stat.h>

#include "base/limits.h"
#include "fuse/entry_buffer.h"
#include "fuse/work.h"

namespace gshm::core::fuse {
namespace {

unsigned char entry_type(const Node& node) {
    switch (node.kind) {
        case NodeKind::object: return DT_REG;
        case NodeKind::directory: return DT_DIR;
        case NodeKind::symlink: return DT_LNK;
        case NodeKind::special: return static_cast<unsigned char>(IFTODT(static_cast<const Special&>(node).type));
    }
    return DT_UNKNOWN;
}

}  // namespace

void FileSystem::make_directory(Call& call) {
    auto in = call.part<fuse_mkdir_in>();
    auto name = call.text();
    if (!in || !name) return call.fail(EINVAL);
    StoreLock lock(backend_.store_mutex());
    auto parent = find_directory(call.node());
    if (!parent) return call.fail(parent.error());
    const Maker maker{call.header().uid, call.header().gid, (*in)->mode, false, (*in)->umask};
    auto node = backend_.files().make_directory(**parent, *name, maker);
    if (!node) return call.fail(node.error());
    reply_entry(call, **node);
}

void FileSystem::make_node(Call& call) {
    auto in = call.part<fuse_mknod_in>();
    auto name = call.text();
    if (!in || !name) return call.fail(EINVAL);
    StoreLock lock(backend_.store_mutex());
    auto parent = find_directory(call.node());
    if (!parent) return call.fail(parent.error());
    const Maker maker{call.header().uid, call.header().gid, (*in)->mode, false, (*in)->umask};
    Result<Node*> node = nullptr;
    if (S_ISREG((*in)->mode)) {
        auto object = make_counted(lock, maker.uid, [&]() -> Result<Object*> {
            store_lock.assert_held();
            return backend_.files().make_object(*TRY(find_directory(call.node())), *name, maker);
        });
        node = object ? Result<Node*>(*object) : std::unexpected(object.error());
    } else if (!S_ISFIFO((*in)->mode) && !S_ISSOCK((*in)->mode) && !S_ISCHR((*in)->mode) && !S_ISBLK((*in)->mode)) {
        return call.fail(EINVAL);
    } else {
        node = backend_.files().make_special(**parent, *name, maker, (*in)->mode & S_IFMT, (*in)->rdev);
    }
    if (!node) return call.fail(node.error());
    reply_entry(call, **node);
}

void FileSystem::make_symlink(Call& call) {
    auto name = call.text();
    auto target = call.text();
    if (!name || !target || target->empty()) return call.fail(EINVAL);
    if (target->size() > limits::kNameBytes) return call.fail(ENAMETOOLONG);
    StoreLock lock(backend_.store_mutex());
    auto parent = find_directory(call.node());
    if (!parent) return call.fail(parent.error());
    auto node = backend_.files().make_symlink(**parent, *name, {call.header().uid, call.header().gid, 0777}, *target);
    if (!node) return call.fail(node.error());
    reply_entry(call, **node);
}

void FileSystem::read_symlink(Call& call) {
    StoreLock lock(backend_.store_mutex());
    auto node = find(call.node());
    if (!node) return call.fail(node.error());
    if ((*node)->kind != NodeKind::symlink) return call.fail(EINVAL);
    backend_.files().accessed(**node);
    call.reply_text(static_cast<const Symlink*>(*node)->target);
}

void FileSystem::link(Call& call) {
    auto in = call.part<fuse_link_in>();
    auto name = call.text();
    if (!in || !name) return call.fail(EINVAL);
    if (IovFolder::has((*in)->oldnodeid)) return call.fail(EPERM);
    StoreLock lock(backend_.store_mutex());
    auto parent = find_directory(call.node());
    if (!parent) return call.fail(parent.error());
    auto node = find((*in)->oldnodeid);
    if (!node) return call.fail(node.error());
    if (auto linked = backend_.files().link(**node, **parent, *name); !linked) return call.fail(linked.error());
    reply_entry(call, **node);
}

void FileSystem::unlink(Call& call) {
    auto name = call.text();
    if (!name) return call.fail(EINVAL);
    StoreLock lock(backend_.store_mutex());
    auto parent = find_directory(call.node());
    if (!parent) return call.fail(parent.error());
    call.finish(backend_.files().unlink(**parent, *name));
}

void FileSystem::remove_directory(Call& call) {
    auto name = call.text();
    if (!name) return call.fail(EINVAL);
    if (is_iov_folder(call.node(), *name)) return call.fail(EBUSY);
    StoreLock lock(backend_.store_mutex());
    auto parent = find_directory(call.node());
    if (!parent) return call.fail(parent.error());
    call.finish(backend_.files().remove_directory(**parent, *name));
}

void FileSystem::rename(Call& call, bool with_flags) {
    uint64_t new_parent = 0;
    unsigned flags = 0;
    if (with_flags) {
        auto in = call.part<fuse_rename2_in>();
        if (!in) return call.fail(EINVAL);
        new_parent = (*in)->newdir;
        flags = (*in)->flags;
    } else {
        auto in = call.part<fuse_rename_in>();
        if (!in) return call.fail(EINVAL);
        new_parent = (*in)->newdir;
    }
    auto name = call.text();
    auto new_name = call.text();
    if (!name || !new_name) return call.fail(EINVAL);
    if (is_iov_folder(call.node(), *name) || is_iov_folder(new_parent, *new_name)) return call.fail(EBUSY);
    if (IovFolder::has(new_parent)) return call.fail(EPERM);
    StoreLock lock(backend_.store_mutex());
    auto from = find_directory(call.node());
    auto to = find_directory(new_parent);
    if (!from || !to) return call.fail(from ? to.error().code : from.error().code);
    call.finish(backend_.files().rename(**from, *name, **to, *new_name, flags));
}

void FileSystem::read_directory(Call& call, bool with_attributes) {
    auto in = call.part<fuse_read_in>();
    if (!in) return call.fail(EINVAL);
    StoreLock lock(backend_.store_mutex());
    auto found = find_directory(call.node());
    if (!found) return call.fail(found.error());
    Directory& directory = **found;
    backend_.files().accessed(directory);
    auto space = call.scratch().first(std::min<size_t>((*in)->size, call.scratch().size()));
    EntryBuffer buffer(space, with_attributes);
    const uint64_t offset = (*in)->offset;
    const fuse_entry_out unknown = {};
    const Directory* up = directory.parent() == nullptr ? &directory : directory.parent();
    if (add_dots(buffer, offset, directory.id, up->id)) {
        size_t most = space.size() / (FUSE_NAME_OFFSET + 8) + 1;
        for (const Link* link : directory.order.before(listed_position(offset), most)) {
            if (is_iov_folder(directory.id, link->name)) continue;  // made by the library
            fuse_entry_out entry = with_attributes ? to_entry(*link->node) : unknown;
            if (!buffer.add(link->name, link->node->id, link->cookie + kDots, entry_type(*link->node), entry)) break;
            if (with_attributes) KnownNodes::hold(*link->node);
        }
    }
    call.reply_bytes(buffer.bytes());
}

}  // namespace gshm::core::fuse
