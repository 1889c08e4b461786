#include "fuse/file_system.h"

#include <algorithm>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "fuse/work.h"

namespace gshm::core::fuse {

FileSystem::~FileSystem() {
    end();
}

Status FileSystem::start(Call& call, const std::function<bool()>& make_uring) {
    if (call.header().opcode != FUSE_INIT) return gshm::core::fail(EPROTO, "the kernel did not begin with INIT");
    // The members that all kernels send. Newer kernels append others.
    struct InitIn {
        uint32_t major;
        uint32_t minor;
        uint32_t max_readahead;
        uint32_t flags;
    };
    const auto* in = TRY(call.part<InitIn>());
    // 7.31 (Linux 5.4) has all required features.
    if (in->major != FUSE_KERNEL_VERSION || in->minor < 31) {
        call.fail(EPROTO);
        return gshm::core::fail(EPROTO, "the kernel's FUSE {}.{} is too old (7.31 is needed)", in->major, in->minor);
    }
    uint64_t offered = in->flags;
    if ((in->flags & FUSE_INIT_EXT) != 0) offered |= uint64_t{*TRY(call.part<uint32_t>())} << 32;
    constexpr uint64_t kWanted =
        FUSE_ASYNC_READ | FUSE_ATOMIC_O_TRUNC | FUSE_BIG_WRITES | FUSE_DO_READDIRPLUS | FUSE_READDIRPLUS_AUTO |
        FUSE_ASYNC_DIO | FUSE_PARALLEL_DIROPS | FUSE_HANDLE_KILLPRIV_V2 | FUSE_MAX_PAGES | FUSE_CACHE_SYMLINKS |
        FUSE_NO_OPENDIR_SUPPORT | FUSE_EXPORT_SUPPORT | FUSE_INIT_EXT | kDirectIoAllowMmap | kPassthrough | kHasResend;
    // All or none (Linux 5.12). In a directory with a default ACL the umask has no effect, so that the kernel must not
    // apply it. The longer form of SETXATTR tells when a new ACL clears S_ISGID.
    constexpr uint64_t kForAcls = FUSE_POSIX_ACL | FUSE_DONT_MASK | FUSE_SETXATTR_EXT;
    uint64_t taken = offered & kWanted;
    features_.acls = (offered & kForAcls) == kForAcls;
    if (features_.acls) taken |= kForAcls;
    // Only root may register backing files.
    if (geteuid() != 0 || !backend_.may_pass_through()) taken &= ~kPassthrough;
    features_.passthrough = (taken & kPassthrough) != 0;
    // io_uring is twice as fast for small requests, but copies the bytes of a host file once more if they pass through
    // gshmd. Its queues belong to this process, so a mount that uses it cannot outlive gshmd.
    bool gains = features_.passthrough || has_gpu();
    bool wanted = backend_.may_use_io_uring() || !backend_.can_record() || (taken & kHasResend) == 0;
    bool ring = (offered & kOverIoUring) != 0 && gains && wanted && make_uring();
    if (ring) taken |= kOverIoUring;
    resumable_ = (taken & kHasResend) != 0 && !ring && backend_.can_record();
    InitOut out = {};
    out.major = FUSE_KERNEL_VERSION;
    out.minor = std::min<uint32_t>(in->minor, 42);
    out.max_readahead = in->max_readahead;
    out.flags = static_cast<uint32_t>(taken);
    out.flags2 = static_cast<uint32_t>(taken >> 32);
    out.max_background = 64;
    out.congestion_threshold = 48;
    out.max_write = kMostBytes;
    out.max_pages = static_cast<uint16_t>(kMostBytes / static_cast<size_t>(sysconf(_SC_PAGESIZE)));
    out.time_gran = 1;
    out.max_stack_depth = features_.passthrough ? 1 : 0;
    {
        StoreLock lock(backend_.store_mutex());
        begin();
    }
    call.reply(out);
    return {};
}

bool FileSystem::has_gpu() const {
    for (size_t i = 0; i < backend_.device_count(); ++i) {
        if (!backend_.device(static_cast<DeviceIndex>(i)).info().files) return true;
    }
    return false;
}

void FileSystem::end() {
    StoreLock lock(backend_.store_mutex());
    if (std::exchange(ended_, true)) return;
    backend_.files().set_observer(nullptr);
    backend_.files().set_close_backing({});  // the kernel has closed them with the mount
    backend_.files().close_all();
    known_nodes().forget_all();
    backend_.files().forget_all_backing();
}

void FileSystem::resume(Features features, std::unordered_map<uint64_t, NodeId> done) {
    features_ = features;
    resumable_ = true;
    StoreLock lock(backend_.store_mutex());
    done_ = std::move(done);
    begin();
    if (!features_.passthrough) return;
    backend_.files().drop_former_backing();
    close_unnoted_backing();
}

void FileSystem::begin() {
    iovs_.load();
    backend_.files().set_observer(this);
    backend_.files().set_close_backing([this](int32_t id) { kernel_.close_backing(id); });
}

// The kernel issues the ids of backing files in ascending order. If the earlier daemon was killed before it noted an
// id, that id is among the last, and its file would keep its memory until the mount ends.
void FileSystem::close_unnoted_backing() {
    auto file = UniqueFd::adopt(memfd_create("gshm-next-backing", MFD_CLOEXEC));
    auto next = file ? kernel_.open_backing(file.get()) : Result<int32_t>(fail_errno("memfd_create"));
    if (!next) return log_warning("{}; memory of a file may stay until the mount ends", next.error().message);
    constexpr int32_t kLast = 16;
    for (int32_t id = std::max(1, *next - kLast); id <= *next; ++id) {
        if (!backend_.files().has_backing(id)) kernel_.close_backing(id);
    }
}

void FileSystem::forget_all_remembered() {
    StoreLock lock(backend_.store_mutex());
    const bool names = kernel_.forget_names();
    std::vector<uint64_t> ids;
    for (Node* node : backend_.files().all()) {
        ids.push_back(node->id);
        if (names) continue;
        if (const Link* link = node->any_link()) kernel_.forget_entry(link->parent->id, link->name);
    }
    // The kernel sends no FORGET for a node that it does not know, so it is asked about all nodes. In batches, so that
    // the handling of a reply holds the store lock only briefly.
    constexpr size_t kAtOnce = 512;
    for (size_t begin = 0; begin < ids.size(); begin += kAtOnce) {
        const size_t end = std::min(ids.size(), begin + kAtOnce);
        ask_about({ids.begin() + static_cast<ptrdiff_t>(begin), ids.begin() + static_cast<ptrdiff_t>(end)});
    }
}

void FileSystem::ask_about(const std::vector<NodeId>& nodes) {
    std::unordered_map<NodeId, uint64_t> told;
    for (NodeId id : nodes) {
        if (backend_.files().find(id) != nullptr) told.emplace(id, known_nodes().lookups(id));
    }
    kernel_.survey(nodes, [this, told = std::move(told)](const std::vector<uint64_t>& unknown) {
        StoreLock lock(backend_.store_mutex());
        for (NodeId id : unknown) {
            if (auto found = told.find(id); found != told.end()) known_nodes().is_unknown(id, found->second);
            drop_backing_if_unknown(id);
        }
    });
}

void FileSystem::dispatch(Call& call) {
    switch (call.header().opcode) {
        case FUSE_LOOKUP: return lookup(call);
        case FUSE_FORGET: return forget(call);
        case FUSE_BATCH_FORGET: return forget_many(call);
        case FUSE_GETATTR: return get_attributes(call);
        case FUSE_SETATTR: return set_attributes(call);
        case FUSE_STATFS: return stat_device(call);
        case FUSE_READLINK: return read_symlink(call);
        case FUSE_SYMLINK: return make_symlink(call);
        case FUSE_MKNOD: return make_node(call);
        case FUSE_MKDIR: return make_directory(call);
        case FUSE_UNLINK: return unlink(call);
        case FUSE_RMDIR: return remove_directory(call);
        case FUSE_RENAME: return rename(call, false);
        case FUSE_RENAME2: return rename(call, true);
        case FUSE_LINK: return link(call);
        case FUSE_READDIR: return read_directory(call, false);
        case FUSE_READDIRPLUS: return read_directory(call, true);
        case FUSE_SETXATTR: return set_attribute(call);
        case FUSE_GETXATTR: return get_attribute(call);
        case FUSE_LISTXATTR: return list_attributes(call);
        case FUSE_REMOVEXATTR: return remove_attribute(call);
        case FUSE_OPEN: return open(call);
        case FUSE_CREATE: return create(call);
        case FUSE_TMPFILE: return make_unnamed(call);
        case FUSE_RELEASE: return close(call);
        case FUSE_READ: return read(call);
        case FUSE_WRITE: return write(call);
        case FUSE_FALLOCATE: return allocate(call);
        case FUSE_LSEEK: return seek(call);
        case FUSE_COPY_FILE_RANGE: return copy_range(call);
        case FUSE_INTERRUPT: return call.no_answer();  // no request waits for longer than a few seconds
        case FUSE_DESTROY: return call.succeed();
        // The kernel handles all others itself after the first ENOSYS.
        default: return call.fail(ENOSYS);
    }
}

Result<Node*> FileSystem::find(NodeId id) const {
    Node* node = backend_.files().find(id);
    if (node == nullptr) return std::unexpected(Error{ESTALE, {}});
    return node;
}

Result<Directory*> FileSystem::find_directory(NodeId id) const {
    auto* directory = as_directory(TRY(find(id)));
    if (directory == nullptr) return std::unexpected(Error{ENOTDIR, {}});
    return directory;
}

Result<Object*> FileSystem::find_object(NodeId id) const {
    Node* node = TRY(find(id));
    auto* object = as_object(node);
    if (object == nullptr) return std::unexpected(Error{node->kind == NodeKind::directory ? EISDIR : EINVAL, {}});
    return object;
}

int32_t FileSystem::backing_of(Object& object) {
    auto* file = object.extent == nullptr ? nullptr : object.extent->memory->file();
    if (!features_.passthrough || file == nullptr) return 0;
    if (int32_t known = backend_.files().backing_of(object.id)) return known;
    auto fd = file->open();
    auto opened = fd ? kernel_.open_backing((*fd)->get()) : std::unexpected(fd.error());
    if (opened) {
        auto noted = backend_.files().note_backing(object, *opened);
        if (noted) return *opened;
        kernel_.close_backing(*opened);
        opened = std::unexpected(noted.error());
    }
    log_warning("{}; its bytes go through gshmd", opened.error().message);
    return 0;
}

void FileSystem::drop_backing_if_unknown(NodeId id) {
    Node* node = backend_.files().find(id);
    if (node != nullptr && is_known(*node)) return;
    // An open object may have been looked up only now, and opened with the backing file. The kernel is asked again when
    // it is closed.
    auto* object = node == nullptr ? nullptr : as_object(node);
    if (object != nullptr && object->open_files > 0) known(*object).forgotten_open = true;
    else backend_.files().drop_backing(id);
}

// The kernel does not cache absent names, so only the attributes of the directory are invalid.
void FileSystem::entry_added(const Directory& parent, std::string_view) {
    if (parent.id == Files::kRoot || may_be_known(parent)) kernel_.forget_attributes(parent.id);
}

void FileSystem::entry_removed(const Directory& parent, std::string_view name, const Node& node) {
    if (parent.id != Files::kRoot && !may_be_known(parent)) return;
    if (may_be_known(node)) {
        // forget_names() invalidates all names and does not block, so that a client sees its own change in the mount.
        // forget_entry() makes the kernel release the node.
        kernel_.forget_names();
        kernel_.forget_entry(parent.id, name);
    }
    kernel_.forget_attributes(parent.id);
}

void FileSystem::node_changed(const Node& node) {
    if (may_be_known(node)) kernel_.forget_attributes(node.id);
}

void FileSystem::finish(Call& call, const Work& work, const Status& status) {
    if (!status) backend_.report(work.device(), status.error());
    call.finish(status);
}

}  // namespace gshm::core::fuse
