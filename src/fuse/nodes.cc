// Requests on nodes: lookup, forget, attributes, statfs.
#include <algorithm>
#include <sys/stat.h>

#include "base/limits.h"
#include "base/size.h"
#include "fuse/work.h"
#include "store/acl.h"

namespace gshm::core::fuse {
namespace {

// The kernel is notified of changes that the mount did not make, so it may cache for long.
constexpr uint64_t kRememberedS = 24 * 3600;
constexpr int64_t kNsPerS = 1'000'000'000;
constexpr uint32_t kBlockBytes = 4096;

uint32_t type_of(const Node& node) {
    switch (node.kind) {
        case NodeKind::object: return S_IFREG;
        case NodeKind::directory: return S_IFDIR;
        case NodeKind::symlink: return S_IFLNK;
        case NodeKind::special: return static_cast<const Special&>(node).type;
    }
    return 0;
}

void set_time(uint64_t* ret_s, uint32_t* ret_ns, int64_t ns) {
    int64_t part = ns % kNsPerS;
    if (part < 0) part += kNsPerS;
    *ret_ns = static_cast<uint32_t>(part);
    *ret_s = static_cast<uint64_t>((ns - part) / kNsPerS);
}

// The nearest time that fits 64 bits of nanoseconds (1677 to 2262): the kernel accepts any second.
int64_t time_of(uint64_t s, uint32_t ns) {
    constexpr int64_t kMostS = INT64_MAX / kNsPerS - 1;
    return std::clamp(static_cast<int64_t>(s), -kMostS, kMostS) * kNsPerS + std::min<int64_t>(ns, kNsPerS - 1);
}

uint64_t allocated_bytes(const Object& object, const std::optional<FileStatus>& file) {
    if (file) return file->allocated_bytes;
    if (object.extent == nullptr) return object.stored != 0 ? round_up(object.size_bytes, kBlockBytes) : 0;
    return object.extent->slab_group != nullptr ? Slab::rounded(object.size_bytes) : object.extent->size_bytes;
}

}  // namespace

uint32_t FileSystem::without_set_id(const Node& node, const fuse_in_header* by) {
    const uint32_t mode = Operations::mode_for_new_owner(node);
    const bool foreign = by != nullptr && by->uid != 0 && by->gid != node.gid && node.kind != NodeKind::directory;
    return foreign ? mode & ~static_cast<uint32_t>(S_ISGID) : mode;
}

// Called after to_attr(), which refreshes the object.
uint64_t FileSystem::remembered_s(Node& node) {
    // The times of a file that the kernel writes itself change at any moment, and through a mapping without its notice.
    // An empty file cannot be written through a mapping, and the kernel knows when it grows.
    if (node.kind != NodeKind::object) return kRememberedS;
    auto& object = static_cast<Object&>(node);
    bool written = object.write_leases > 0 && object.size_bytes > 0 && object.extent != nullptr &&
                   object.extent->memory->file() != nullptr;
    known(object).remembered = !written;
    return written ? 0 : kRememberedS;
}

uint32_t FileSystem::shown_mode(const Node& node) const {
    return node.acl && !features_.acls ? mode_without_acl(node.acl->entries(), node.mode) : uint32_t{node.mode};
}

fuse_attr FileSystem::to_attr(Node& node) {
    fuse_attr attr = {};
    attr.blksize = kBlockBytes;
    attr.nlink = node.links;
    if (auto* object = as_object(&node)) {
        auto file = backend_.files().refresh(*object);
        attr.size = object->size_bytes;
        attr.blocks = allocated_bytes(*object, file) / 512;
        // For memory of a GPU, programs should read and write as much as a request carries.
        if (!backend_.device(object->home()).info().files) attr.blksize = kMostBytes;
    } else if (auto* directory = as_directory(&node)) {
        attr.size = 20 * (2 + directory->children.size());  // as tmpfs
        attr.nlink = node.links == 0 ? 0 : 2 + directory->subdirectories;
    } else if (node.kind == NodeKind::symlink) {
        attr.size = static_cast<const Symlink&>(node).target.size();
    } else {
        attr.rdev = static_cast<const Special&>(node).number;
    }
    attr.ino = node.id;
    attr.mode = type_of(node) | shown_mode(node);
    attr.uid = node.uid;
    attr.gid = node.gid;
    set_time(&attr.atime, &attr.atimensec, node.accessed_ns);
    set_time(&attr.mtime, &attr.mtimensec, node.modified_ns);
    set_time(&attr.ctime, &attr.ctimensec, node.changed_ns);
    return attr;
}

fuse_entry_out FileSystem::to_entry(Node& node) {
    fuse_entry_out out = {};
    out.nodeid = node.id;
    out.generation = backend_.generation();
    out.entry_valid = kRememberedS;
    out.attr = to_attr(node);
    out.attr_valid = remembered_s(node);
    return out;
}

void FileSystem::reply_entry(Call& call, Node& node) {
    KnownNodes::hold(node);
    call.reply(to_entry(node));
}

void FileSystem::lookup(Call& call) {
    auto name = call.text();
    if (!name) return call.fail(EINVAL);
    if (name->size() > limits::kNamePartBytes) return call.fail(ENAMETOOLONG);
    if (*name == "." || *name == "..") return lookup_by_id(call, *name == "..");
    if (is_iov_folder(call.node(), *name)) return call.reply(IovFolder::entry());
    StoreLock lock(backend_.store_mutex());
    auto parent = find_directory(call.node());
    if (!parent) return call.fail(parent.error());
    Node* node = Files::child(**parent, *name);
    if (node == nullptr) return call.fail(ENOENT);
    reply_entry(call, *node);
}

void FileSystem::lookup_by_id(Call& call, bool parent) {
    StoreLock lock(backend_.store_mutex());
    Node* node = backend_.files().find(call.node());
    // Without a name it can be opened only while the kernel knows it, and then the kernel does not ask.
    if (node == nullptr || node->links == 0) return call.fail(ENOENT);
    if (parent && node->any_link() != nullptr) node = node->any_link()->parent;
    reply_entry(call, *node);
}

void FileSystem::forget(Call& call) {
    call.no_answer();
    auto in = call.part<fuse_forget_in>();
    if (!in) return;
    StoreLock lock(backend_.store_mutex());
    if (known_nodes().forget(call.node(), (*in)->nlookup)) drop_backing_if_unknown(call.node());
    else ask_about({call.node()});
}

void FileSystem::forget_many(Call& call) {
    call.no_answer();
    auto in = call.part<fuse_batch_forget_in>();
    if (!in) return;
    StoreLock lock(backend_.store_mutex());
    std::vector<NodeId> doubtful;
    for (uint32_t i = 0; i < (*in)->count; ++i) {
        auto one = call.part<fuse_forget_one>();
        if (!one) break;
        const NodeId id = (*one)->nodeid;
        if (known_nodes().forget(id, (*one)->nlookup)) drop_backing_if_unknown(id);
        else doubtful.push_back(id);
    }
    if (!doubtful.empty()) ask_about(doubtful);
}

void FileSystem::get_attributes(Call& call) {
    auto in = call.part<fuse_getattr_in>();
    if (!in) return call.fail(EINVAL);
    StoreLock lock(backend_.store_mutex());
    auto node = find(call.node());
    if (!node) return call.fail(node.error());
    const bool by_file = ((*in)->getattr_flags & FUSE_GETATTR_FH) != 0;
    if (by_file && backend_.files().opened(call.node(), (*in)->fh) == nullptr) return call.fail(EBADF);
    fuse_attr_out out = {};
    out.attr = to_attr(**node);
    out.attr_valid = remembered_s(**node);
    // The process that the reply wakes may run at once, on this core, and ask again. The kernel does not cache attributes
    // of a reply that arrives after their invalidation.
    lock.unlock();
    call.reply(out);
}

Status FileSystem::check_new_owner(Node& node, const fuse_setattr_in& wanted) {
    std::optional<uid_t> uid;
    std::optional<gid_t> gid;
    if ((wanted.valid & FATTR_UID) != 0) uid = wanted.uid;
    if ((wanted.valid & FATTR_GID) != 0) gid = wanted.gid;
    if (!uid && !gid) return {};
    Store& store = backend_.files().store();
    store.look_again(node);
    return store.limits().check_owner(node, uid, gid);
}

void FileSystem::set_attributes(Call& call) {
    auto in = call.part<fuse_setattr_in>();
    if (!in) return call.fail(EINVAL);
    const fuse_setattr_in& wanted = **in;
    const bool size = (wanted.valid & FATTR_SIZE) != 0;
    StoreLock lock(backend_.store_mutex());
    auto found = find(call.node());
    if (!found) return call.fail(found.error());
    Node* node = *found;
    const bool by_file = (wanted.valid & FATTR_FH) != 0;
    if (by_file && backend_.files().opened(call.node(), wanted.fh) == nullptr) return call.fail(EBADF);
    auto* object = as_object(node);
    if (size && object == nullptr) return call.fail(node->kind == NodeKind::directory ? EISDIR : EINVAL);
    if (size && object->is_evicted()) {
        if (auto returned = bring_back(lock, object); !returned) return call.fail(returned.error());
        found = find(call.node());
        if (!found) return call.fail(found.error());
        node = *found;
        object = as_object(node);
    }
    const bool rights = (wanted.valid & (FATTR_MODE | FATTR_UID | FATTR_GID)) != 0;
    // A slab has only objects of the same rights. An object that a process maps stays: the slab is closed instead.
    bool moves = object != nullptr && rights && object->extent != nullptr && object->extent->slab_group != nullptr &&
                 !object->extent->unmapped && Files::is_unshared(*object) && !object->extent->handle_given;
    if (size || moves) {
        if (auto usable = backend_.check(object->device); !usable) return call.fail(usable.error());
        {
            Work work(backend_, object, size ? Work::kPinForWriting : Work::kPin);
            lock.unlock();
            Status status = with_room(work, [&]() -> Status {
                if (moves) TRY(make_dedicated(work));
                return size ? resize(work, wanted.size) : Status{};
            });
            if (!status) return finish(call, work, status);
        }
        lock.lock();
    }
    found = find(call.node());
    if (!found) return call.fail(found.error());
    node = *found;
    if (auto allowed = check_new_owner(*node, wanted); !allowed) return call.fail(allowed.error());
    NodeChanges changes;
    if ((wanted.valid & FATTR_MODE) != 0) changes.mode = wanted.mode & 07777;
    if ((wanted.valid & FATTR_UID) != 0) changes.uid = wanted.uid;
    if ((wanted.valid & FATTR_GID) != 0) changes.gid = wanted.gid;
    // A request without changes is a chown() without changes, or precedes a write by the kernel itself.
    const bool nothing = (wanted.valid & ~static_cast<uint32_t>(FATTR_FH | FATTR_LOCKOWNER)) == 0;
    if ((wanted.valid & (FATTR_UID | FATTR_GID)) != 0 || nothing) changes.mode = without_set_id(*node, nullptr);
    if ((wanted.valid & FATTR_KILL_SUIDGID) != 0) changes.mode = without_set_id(*node, &call.header());
    int64_t now = SystemClock().now_ns();
    if ((wanted.valid & FATTR_ATIME) != 0) {
        changes.accessed_ns = (wanted.valid & FATTR_ATIME_NOW) != 0 ? now : time_of(wanted.atime, wanted.atimensec);
    }
    if ((wanted.valid & FATTR_MTIME) != 0) {
        changes.modified_ns = (wanted.valid & FATTR_MTIME_NOW) != 0 ? now : time_of(wanted.mtime, wanted.mtimensec);
    }
    backend_.files().change(*node, changes);
    fuse_attr_out out = {};
    out.attr = to_attr(*node);
    out.attr_valid = remembered_s(*node);
    call.reply(out);
}

void FileSystem::stat_device(Call& call) {
    DeviceIndex device = 0;
    uint64_t nodes = 0;
    {
        StoreLock lock(backend_.store_mutex());
        auto node = find(IovFolder::has(call.node()) ? Files::kRoot : call.node());
        if (!node) return call.fail(node.error());
        if (auto* object = as_object(*node)) device = object->home();
        else if (auto* directory = as_directory(*node)) device = directory->device.value_or(0);
        nodes = backend_.files().node_count();
    }
    const uint64_t capacity = backend_.device(device).info().capacity_bytes;
    const uint64_t used = std::min(backend_.used_bytes(device), capacity);
    fuse_statfs_out out = {};
    out.st.bsize = out.st.frsize = kBlockBytes;
    out.st.blocks = capacity / kBlockBytes;
    out.st.bfree = (capacity - used) / kBlockBytes;
    // Less than what is free by the limit, if other processes use the device.
    out.st.bavail = std::min(capacity - used, backend_.available_bytes(device)) / kBlockBytes;
    out.st.files = nodes + (1 << 20);
    out.st.ffree = 1 << 20;
    out.st.namelen = limits::kNamePartBytes;
    call.reply(out);
}

}  // namespace gshm::core::fuse
