// Open files: open, read, write, close.
#include <chrono>
#include <fcntl.h>
#include <shared_mutex>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "fuse/work.h"
#include "memory/transfer_counters.h"
#include "store/gate.h"

namespace gshm::core::fuse {
namespace {

// Bytes per copy request. The kernel sends another one for the rest, and can be interrupted in between.
constexpr uint64_t kCopyBytes = uint64_t{64} << 20;

std::unexpected<Error> refuse(int code) {
    return std::unexpected(Error{code, {}});
}

Access access_of(uint32_t flags) {
    return (flags & O_ACCMODE) == O_RDONLY ? Access::read : Access::write;
}

}  // namespace

Result<Object*> FileSystem::opened(NodeId node, FileId file) const {
    Object* object = backend_.files().opened(node, file);
    if (object == nullptr) return refuse(EBADF);
    TRY(backend_.check(object->device));
    return object;
}

void FileSystem::drop_set_id(Node& node, const fuse_in_header& by) {
    uint32_t mode = without_set_id(node, &by);
    if (mode == node.mode) return;
    NodeChanges changes;
    changes.mode = mode;
    backend_.files().change(node, changes);
    kernel_.forget_attributes(node.id);
}

Result<OpenOut> FileSystem::open_object(StoreLock& lock, Object* object, uint32_t flags, const fuse_in_header& who) {
    Access access = access_of(flags);
    const bool truncate = (flags & O_TRUNC) != 0;
    if (object->is_evicted()) {
        // The kernel refers to the node meanwhile.
        TRY(bring_back(lock, object));
        if (object->links == 0 && object->leases == 0) return refuse(ESTALE);
    }
    TRY(backend_.check(object->device));
    if ((access == Access::write || truncate) && object->state == ObjectState::sealed) return refuse(EPERM);
    Files& files = backend_.files();
    FileId file =
        TRY(files.open(*object, access, {who.uid, who.gid, static_cast<pid_t>(who.pid), {}}, who.unique & ~kResent));
    const bool in_files = backend_.device(object->device).info().files;
    files.refresh(*object);
    const bool empties = truncate && object->extent != nullptr && object->size_bytes > 0;
    // For passthrough, a small object of the library becomes a file of its own, if no session maps it and it is not
    // open already. Further opens during the move wait for it: the kernel does not mix passthrough with other opens of
    // a file.
    const bool in_slab = in_files && object->extent != nullptr && object->extent->slab_group != nullptr;
    KnownNode& known_object = known(*object);
    const bool leaves_slab = in_slab && (object->leases == 1 || known_object.leaving_slab);
    known_object.leaving_slab = leaves_slab;
    const bool wants_file = features_.passthrough && in_files && object->extent == nullptr;
    // With passthrough the kernel itself reports a full device to a writer, so the open waits for memory.
    const bool waits =
        features_.passthrough && in_files && access == Access::write &&
        backend_.allocator().departures().is_worth_waiting(object->device, free_bytes(object->device), object->uid);
    if (empties || leaves_slab || wants_file || waits) {
        Status status;
        {
            Work work(backend_, object, Work::kKept);
            const uid_t uid = object->uid;
            lock.unlock();
            if (waits) wait_for_departures(work, uid);
            if (empties) status = resize(work, 0);
            if (status && leaves_slab) status = with_room(work, [&] { return make_dedicated(work); });
            if (status && features_.passthrough && in_files) {
                std::unique_lock gate_lock(work.gate->mutex);
                if (!work.gate->memory) status = move_to(work, 0, 0, 0);
            }
            if (!status) backend_.report(work.device(), status.error());
        }
        lock.lock();
        known_object.leaving_slab = false;
        if (!status) {
            files.close(file);
            return std::unexpected(status.error());
        }
    } else if (truncate) {
        files.modified(*object);
    }
    // From now on the kernel may change size and times itself, so its cached attributes are invalid.
    if (access == Access::write && object->size_bytes > 0 && std::exchange(known_object.remembered, false)) {
        kernel_.forget_attributes(object->id);
    }
    OpenOut out = {};
    out.file = file;
    // A close must not wait for gshmd, least of all in a process that has inherited the file and starts the next gshmd.
    out.open_flags |= FOPEN_NOFLUSH;
    out.backing_id = backing_of(*object);
    if (out.backing_id != 0) out.open_flags |= kOpenPassthrough;
    // A write clears these bits, so gshmd must see it. Likewise if the file must not grow beyond a limit. Mappings and
    // readers use the backing file all the same.
    const bool may_grow = access == Access::write && files.store().limits().limits_bytes(*object);
    if (out.backing_id == 0 || (object->mode & (S_ISUID | S_ISGID)) != 0 || may_grow) {
        out.open_flags |= FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES;
    }
    return out;
}

void FileSystem::open(Call& call) {
    auto in = call.part<fuse_open_in>();
    if (!in) return call.fail(EINVAL);
    StoreLock lock(backend_.store_mutex());
    auto object = find_object(call.node());
    if (!object) return call.fail(object.error());
    // The object was removed after the kernel's lookup: on ESTALE the kernel looks up the name again. A replaced object
    // is kept for this case, if the kernel had looked it up.
    const bool kept = (*object)->replaced && ((*object)->extent != nullptr || (*object)->stored != 0);
    if ((*object)->links == 0 && (*object)->leases == 0 && !kept) return call.fail(ESTALE);
    auto out = open_object(lock, *object, (*in)->flags, call.header());
    if (out && ((*in)->open_flags & FUSE_OPEN_KILL_SUIDGID) != 0) {
        if (Object* opened = backend_.files().opened(call.node(), out->file)) drop_set_id(*opened, call.header());
    }
    lock.unlock();
    if (!out) return call.fail(out.error());
    call.reply(*out);
}

void FileSystem::reply_created(Call& call, StoreLock& lock, Object* object, uint32_t flags, bool is_new) {
    struct {
        fuse_entry_out entry;
        OpenOut open;
    } out;
    // Counts the kernel's first lookup, so that the object stays even if its name is removed meanwhile.
    KnownNodes::hold(*object);
    auto opened = open_object(lock, object, flags, call.header());
    if (!opened) {
        // The creation is undone.
        const Link* name = is_new && object->links == 1 ? object->any_link() : nullptr;
        if (name != nullptr) (void)backend_.files().unlink(*name->parent, std::string(name->name));
        known_nodes().unhold(object->id);
        return call.fail(opened.error());
    }
    out.open = *opened;
    out.entry = to_entry(*object);
    call.reply(out);
}

Result<Object*> FileSystem::make_counted(StoreLock& lock, uid_t uid, const std::function<Result<Object*>()>& make) {
    auto made = make();
    auto may_soon = [&]() REQUIRES(store_lock) {
        if (made || made.error().code != EDQUOT) return false;
        const Store& store = backend_.files().store();
        for (DeviceIndex device = 0; device < backend_.device_count(); ++device) {
            if (store.accounts().of(device, uid).unlinked_objects > 0) return true;
        }
        return false;
    };
    if (!may_soon()) return made;
    lock.unlock();
    // The thread that waits may be the one that reads the kernel's requests.
    const bool waits = waiting_(true);
    const auto deadline = std::chrono::steady_clock::now() + Departures::kNamelessPatience;
    bool again = waits;
    while (again) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        lock.lock();
        made = make();
        again = may_soon() && std::chrono::steady_clock::now() < deadline;
        lock.unlock();
    }
    if (waits) waiting_(false);
    lock.lock();
    return made;
}

void FileSystem::create(Call& call) {
    auto in = call.part<fuse_create_in>();
    auto name = call.text();
    if (!in || !name) return call.fail(EINVAL);
    StoreLock lock(backend_.store_mutex());
    const Maker maker{call.header().uid, call.header().gid, (*in)->mode, false, (*in)->umask};
    auto made_object = make_counted(lock, maker.uid, [&]() -> Result<Object*> {
        store_lock.assert_held();
        return backend_.files().make_object(*TRY(find_directory(call.node())), *name, maker);
    });
    if (!made_object) {
        // Another client has created the name. The kernel checks no rights on a new file, so it must look up the name
        // again.
        bool again = made_object.error().code == EEXIST && ((*in)->flags & O_EXCL) == 0;
        return again ? call.fail(ESTALE) : call.fail(made_object.error());
    }
    mark(call.header(), (*made_object)->id);
    reply_created(call, lock, *made_object, (*in)->flags, true);
}

void FileSystem::make_unnamed(Call& call) {
    auto in = call.part<fuse_create_in>();
    if (!in) return call.fail(EINVAL);
    StoreLock lock(backend_.store_mutex());
    const Maker maker{call.header().uid, call.header().gid, (*in)->mode, false, (*in)->umask};
    auto object = make_counted(lock, maker.uid, [&]() -> Result<Object*> {
        store_lock.assert_held();
        return backend_.files().make_unnamed(*TRY(find_directory(call.node())), maker);
    });
    if (!object) return call.fail(object.error());
    mark(call.header(), (*object)->id);
    reply_created(call, lock, *object, (*in)->flags);
}

void FileSystem::close(Call& call) {
    auto in = call.part<fuse_release_in>();
    if (!in) return call.fail(EINVAL);
    StoreLock lock(backend_.store_mutex());
    Files& files = backend_.files();
    Object* object = files.opened(call.node(), (*in)->fh);
    if (object == nullptr) return call.succeed();  // an earlier daemon has closed it
    bool wrote = files.access_of((*in)->fh) == Access::write;
    const NodeId id = object->id;
    const bool forgotten = object->open_files == 1 && std::exchange(known(*object).forgotten_open, false);
    files.refresh(*object);
    bool empty = object->extent != nullptr && object->size_bytes == 0 && object->links > 0;
    // An object without a name is about to be freed, so its memory is not reduced.
    if ((!wrote && !empty) || object->links == 0) {
        files.close((*in)->fh);
        if (forgotten) ask_about({id});
        return call.succeed();
    }
    Work work(backend_, object, Work::kPin);
    files.close((*in)->fh);
    if (forgotten) ask_about({id});
    Object* oldest = nullptr;
    if (empty && !std::exchange(known(*object).kept_empty, true)) {
        empty_files_.push_back(object->id);
        if (empty_files_.size() > kEmptyFiles) {
            Node* node = files.find(empty_files_.front());
            if (node != nullptr) oldest = as_object(node);
            if (oldest != nullptr) known(*oldest).kept_empty = false;
            empty_files_.pop_front();
        }
    }
    if (oldest != nullptr) {
        Work other(backend_, oldest, Work::kPin);
        lock.unlock();
        (void)drop_empty(other);
    } else {
        lock.unlock();
    }
    finish(call, work, settle(work));
}

void FileSystem::read(Call& call) {
    auto in = call.part<fuse_read_in>();
    if (!in || (*in)->size > call.scratch().size()) return call.fail(EINVAL);
    StoreLock lock(backend_.store_mutex());
    auto object = opened(call.node(), (*in)->fh);
    if (!object) return call.fail(object.error().code == EBADF ? EBADF : EIO);
    Work work(backend_, *object, Work::kKept);
    if (((*in)->flags & O_NOATIME) == 0) backend_.files().accessed(**object);
    lock.unlock();
    {
        // Held until the kernel has the bytes: if they are truncated meanwhile, it reports an error.
        std::shared_lock gate_lock(work.gate->mutex);
        std::span<const std::byte> bytes;
        if (auto mapping = mapped_bytes(work, (*in)->offset, (*in)->size, &bytes)) {
            TransferCounters::note_bytes(work.device(), TransferDirection::out, TransferPath::mount, bytes.size());
            return call.reply_bytes(bytes);
        }
    }
    auto got = read_bytes(work, (*in)->offset, call.scratch().first((*in)->size));
    if (!got) return finish(call, work, std::unexpected(got.error()));
    TransferCounters::note_bytes(work.device(), TransferDirection::out, TransferPath::mount, *got);
    call.reply_bytes(call.scratch().first(*got));
}

void FileSystem::write(Call& call) {
    auto in = call.part<fuse_write_in>();
    if (!in || call.rest().size() < (*in)->size) return call.fail(EINVAL);
    StoreLock lock(backend_.store_mutex());
    auto object = opened(call.node(), (*in)->fh);
    if (!object) return call.fail(object.error().code == EBADF ? EBADF : EIO);
    if (((*in)->write_flags & FUSE_WRITE_KILL_SUIDGID) != 0) drop_set_id(**object, call.header());
    Work work(backend_, *object, Work::kKept);
    lock.unlock();
    auto written = with_room(work, [&] { return write_bytes(work, (*in)->offset, call.rest().first((*in)->size)); });
    if (!written) return finish(call, work, written);
    TransferCounters::note_bytes(work.device(), TransferDirection::in, TransferPath::mount, (*in)->size);
    fuse_write_out out = {};
    out.size = (*in)->size;
    call.reply(out);
}

void FileSystem::allocate(Call& call) {
    auto in = call.part<fuse_fallocate_in>();
    if (!in) return call.fail(EINVAL);
    StoreLock lock(backend_.store_mutex());
    auto object = opened(call.node(), (*in)->fh);
    if (!object) return call.fail(object.error());
    // The request does not say whether the caller may keep these bits.
    if (call.header().uid != 0) drop_set_id(**object, call.header());
    Work work(backend_, *object, Work::kKept);
    lock.unlock();
    finish(call, work, with_room(work, [&] {
               return allocate_bytes(work, static_cast<int>((*in)->mode), (*in)->offset, (*in)->length);
           }));
}

void FileSystem::seek(Call& call) {
    auto in = call.part<fuse_lseek_in>();
    if (!in) return call.fail(EINVAL);
    StoreLock lock(backend_.store_mutex());
    auto object = opened(call.node(), (*in)->fh);
    if (!object) return call.fail(object.error());
    backend_.files().refresh(**object);
    uint64_t size = (*object)->extent == nullptr ? 0 : (*object)->size_bytes;
    if ((*in)->offset >= size) return call.fail(ENXIO);
    fuse_lseek_out out = {};
    if (auto* file = (*object)->extent->memory->file()) {
        auto fd = file->open();
        if (!fd) return call.fail(fd.error());
        off_t found = lseek((*fd)->get(), static_cast<off_t>((*in)->offset), static_cast<int>((*in)->whence));
        if (found < 0) return call.fail(errno);
        out.offset = static_cast<uint64_t>(found);
    } else {
        // Memory of a GPU has no holes.
        out.offset = (*in)->whence == SEEK_HOLE ? size : (*in)->offset;
    }
    call.reply(out);
}

void FileSystem::copy_range(Call& call) {
    auto in = call.part<fuse_copy_file_range_in>();
    if (!in) return call.fail(EINVAL);
    StoreLock lock(backend_.store_mutex());
    auto from = opened(call.node(), (*in)->fh_in);
    auto to = opened((*in)->nodeid_out, (*in)->fh_out);
    if (!from || !to) return call.fail(EBADF);
    Work source(backend_, *from, Work::kKept);
    Work target(backend_, *to, Work::kKept);
    lock.unlock();
    uint64_t copied = 0;
    auto status = with_room(target, [&] {
        return copy_bytes(source, (*in)->off_in, target, (*in)->off_out, std::min((*in)->len, kCopyBytes),
                          call.scratch(), &copied);
    });
    if (!status) return finish(call, target, status);
    fuse_write_out out = {};
    out.size = static_cast<uint32_t>(copied);
    call.reply(out);
}

}  // namespace gshm::core::fuse
