// The bytes of a file. On a device whose resizable extents are files (host) a file of the mount is one, and is resized
// in place. Elsewhere it is an extent, which is replaced by another when the file outgrows it; docs/mount.md has the
// effect on its holders. A small file is in a slab until a process needs its memory, or until it grows by a write; the
// close after that puts it into a slab again.
#include <algorithm>
#include <linux/falloc.h>
#include <mutex>
#include <optional>
#include <sys/mman.h>
#include <unistd.h>

#include "base/guarded_copy.h"
#include "base/limits.h"
#include "base/size.h"
#include "fuse/work.h"
#include "store/gate.h"

namespace gshm::core::fuse {
namespace {

// The capacity of the object's memory, and the object's size, for a thread that holds the gate but not the store lock.
// In a slab the next object begins at the end of this one.
uint64_t capacity_of(const Gate& gate) {
    if (!gate.memory) return 0;
    return gate.in_slab ? gate.size_bytes.load(std::memory_order_relaxed) : gate.memory->size();
}
uint64_t size_of(const Gate& gate) {
    return gate.memory ? gate.size_bytes.load(std::memory_order_relaxed) : 0;
}

ExtentFile* file_of(const Gate& gate) {
    return gate.memory ? gate.memory->file() : nullptr;
}

bool populate(const Mapping& mapping, uint64_t offset, uint64_t bytes, int how) {
    constexpr uint64_t kPage = 4096;
    uint64_t begin = offset / kPage * kPage;
    return madvise(mapping.data() + begin, offset + bytes - begin, how) == 0;
}

// Writes through a mapping, without the kernel's lock on the file, so that writers do not wait for each other. False:
// it was truncated meanwhile, or cannot be mapped.
bool overwrite(ExtentFile& file, uint64_t offset, std::span<const std::byte> from) {
    auto mapping = file.mapping();
    if (!mapping || (*mapping)->size() < offset + from.size()) return false;
    // Faster at once than page by page. If it fails, the caller writes to the file.
    if (!populate(**mapping, offset, from.size(), MADV_POPULATE_WRITE)) return false;
    return guarded_copy((*mapping)->data() + offset, from.data(), from.size());
}

}  // namespace

std::shared_ptr<Mapping> FileSystem::mapped_bytes(Work& work, uint64_t offset, uint64_t bytes,
                                                  std::span<const std::byte>* ret_bytes) {
    auto* file = file_of(*work.gate);
    auto status = file == nullptr ? Result<FileStatus>(gshm::core::fail(EINVAL, "no file")) : file->status();
    // A read of a hole through a mapping would allocate its pages.
    if (!status || offset >= status->size_bytes || status->allocated_bytes < status->size_bytes) return nullptr;
    auto mapping = file->mapping();
    if (!mapping || (*mapping)->size() < status->size_bytes) return nullptr;
    *ret_bytes = {(*mapping)->data() + offset, std::min(bytes, status->size_bytes - offset)};
    if (!populate(**mapping, offset, ret_bytes->size(), MADV_POPULATE_READ)) return nullptr;
    return *mapping;
}

Result<size_t> FileSystem::read_bytes(Work& work, uint64_t offset, std::span<std::byte> into) {
    std::shared_lock gate_lock(work.gate->mutex);
    if (auto* file = file_of(*work.gate)) {
        auto fd = TRY(file->open());
        ssize_t got = 0;
        do {
            got = pread(fd->get(), into.data(), into.size(), static_cast<off_t>(offset));
        } while (got < 0 && errno == EINTR);
        if (got < 0) return fail_errno("pread");
        return static_cast<size_t>(got);
    }
    const uint64_t size = size_of(*work.gate);
    into = into.first(offset >= size ? 0 : std::min<uint64_t>(into.size(), size - offset));
    if (into.empty()) return 0;
    TRY(work.gate->memory->copy_out(work.gate->offset + offset, into));
    return into.size();
}

Status FileSystem::write_file(Work& work, ExtentFile& file, uint64_t offset, std::span<const std::byte> from) {
    Gate& gate = *work.gate;
    const bool alone = gate.writers.fetch_add(1, std::memory_order_relaxed) == 0;
    Status written;
    bool overwritten = false;
    auto status = file.status();
    bool sparse = status && status->allocated_bytes < status->size_bytes;
    if (offset + from.size() > gate.memory->size() || sparse) {
        // Space is allocated first, so that a full device fails before a byte is written.
        written = file.allocate(FALLOC_FL_KEEP_SIZE, offset, from.size());
    } else if (!alone) {
        overwritten = overwrite(file, offset, from);
    }
    if (written && !overwritten) written = gate.memory->copy_in(offset, from);
    gate.writers.fetch_sub(1, std::memory_order_relaxed);
    TRY(std::move(written));
    StoreLock lock(backend_.store_mutex());
    if (overwritten) backend_.files().modified(*work.object);
    else backend_.files().refresh(*work.object);
    return {};
}

Status FileSystem::write_bytes(Work& work, uint64_t offset, std::span<const std::byte> from) {
    const uint64_t end = offset + from.size();
    if (end < offset || end > limits::kObjectBytes) return fail(EFBIG, "too large");
    if (from.empty()) return {};  // there may be no memory to write to
    Growth growth(backend_);
    TRY(growth.begin(work, end));
    return write_at(work, offset, from);
}

Status FileSystem::write_at(Work& work, uint64_t offset, std::span<const std::byte> from) {
    const uint64_t end = offset + from.size();
    auto written = [&] {
        StoreLock lock(backend_.store_mutex());
        if (end > work.object->size_bytes) backend_.files().set_size(*work.object, end);
        backend_.files().modified(*work.object);
    };
    {
        std::shared_lock gate_lock(work.gate->mutex);
        if (auto* file = file_of(*work.gate)) {
            return write_file(work, *file, offset, from);
        }
        if (end <= capacity_of(*work.gate) && offset <= size_of(*work.gate)) {
            TRY(work.gate->memory->copy_in(work.gate->offset + offset, from));
            written();
            return {};
        }
    }
    std::unique_lock gate_lock(work.gate->mutex);
    if (!work.gate->memory && backend_.device(work.device()).info().files) TRY(move_to(work, 0, 0, 0));
    if (file_of(*work.gate) != nullptr) {
        gate_lock.unlock();
        return write_at(work, offset, from);
    }
    const uint64_t size = size_of(*work.gate);
    const uint64_t capacity = capacity_of(*work.gate);
    // Most small files are written at once, and more follows a full request. The bytes before the offset are zero.
    if (!work.gate->memory && from.size() < kMostBytes && may_share(work, end)) {
        TRY(move_to(work, end, 0, end));
        auto copied = work.gate->memory->copy_in(work.gate->offset + offset, from);
        if (copied) {
            written();
            return {};
        }
        StoreLock lock(backend_.store_mutex());
        backend_.files().replace_memory(*work.object, nullptr, 0);
        return copied;
    }
    if (end > capacity) {
        // Twice the capacity, so that a byte of a file written in pieces is copied a constant number of times on
        // average. The excess is freed when the file is closed. If the device does not have that much left, less may be
        // enough.
        auto moved = move_to(work, std::max(end, 2 * capacity), size, size);
        if (!moved && moved.error().code == ENOSPC) moved = move_to(work, end, size, size);
        TRY(std::move(moved));
    }
    if (offset > size) TRY(work.gate->memory->fill(work.gate->offset + size, offset - size, 0));
    TRY(work.gate->memory->copy_in(work.gate->offset + offset, from));
    written();
    return {};
}

Status FileSystem::move_to(Work& work, uint64_t capacity_bytes, uint64_t kept_bytes, uint64_t size_bytes, Move reason) {
    return backend_.mover().resize(*work.object, *work.gate,
                                   {.capacity_bytes = capacity_bytes,
                                    .kept_bytes = kept_bytes,
                                    .size_bytes = size_bytes,
                                    .for_tidiness = reason == Move::tidy,
                                    .unless_opened = reason == Move::tidy || reason == Move::unless_opened,
                                    .may_share = reason == Move::needed || reason == Move::tidy});
}

bool FileSystem::may_share(const Work& work, uint64_t size_bytes) {
    StoreLock lock(backend_.store_mutex());
    return backend_.files().store().may_share(*work.object, work.device(), size_bytes);
}

uint64_t FileSystem::free_bytes(DeviceIndex device) {
    const uint64_t capacity = backend_.device(device).info().capacity_bytes;
    return capacity - std::min(capacity, backend_.used_bytes(device));
}

Status FileSystem::bring_back(StoreLock& lock, Object* object) {
    if (!object->is_evicted() || backend_.tiers() == nullptr) return {};
    Status returned;
    {
        Work work(backend_, object, Work::kPin);
        lock.unlock();
        // Without a further thread, others wait.
        const bool waits = waiting_(true);
        returned = backend_.tiers()->bring_back_blocking(*object);
        if (waits) waiting_(false);
        lock.lock();
        // An open that comes next takes a lease before this pin ends.
        backend_.files().pin(*object, Access::read);
        lock.unlock();
    }
    lock.lock();
    backend_.files().unpin(*object, Access::read);
    return returned;
}

Status FileSystem::with_room(const Work& work, const std::function<Status()>& operation) {
    std::optional<Error> over;
    auto attempt = [&]() -> Status {
        over.reset();
        Status status = operation();
        if (status || status.error().code != EDQUOT || !gets_room_soon(work)) return status;
        over = status.error();
        return std::unexpected(Error{ENOSPC, over->message});  // waits as for a device
    };
    // A file grows to twice its size.
    const uint64_t bytes = 2 * work.gate->size_bytes.load(std::memory_order_relaxed);
    Status status = backend_.allocator().retry(work.device(), work.id, attempt, waiting_, bytes);
    if (!status && over) return std::unexpected(*over);
    return status;
}

bool FileSystem::gets_room_soon(const Work& work) {
    StoreLock lock(backend_.store_mutex());
    const Object& object = *work.object;
    return std::ranges::any_of(backend_.files().store().nameless(work.device()), [&](const Object* other) {
        if (other == &object) return false;
        return other->uid == object.uid || other->gid == object.gid ||
               (other->accounted.trees() != nullptr && other->accounted.trees() == object.accounted.trees());
    });
}

void FileSystem::wait_for_departures(const Work& work, uid_t uid) {
    if (!waiting_(true)) return;
    backend_.allocator().wait_for_departures(work.device(), work.id, uid, [&] { return free_bytes(work.device()); });
    waiting_(false);
}

Status FileSystem::make_dedicated(Work& work) {
    std::unique_lock gate_lock(work.gate->mutex);
    uint64_t size = 0;
    bool unmapped = false;
    {
        StoreLock lock(backend_.store_mutex());
        if (work.object->extent == nullptr || work.object->extent->slab_group == nullptr) return {};
        size = work.object->size_bytes;
        unmapped = work.object->extent->unmapped;
    }
    auto moved = move_to(work, size, size, size, unmapped ? Move::own : Move::unless_opened);
    if (!moved && moved.error().code == ECANCELED) return {};  // it stays in the slab
    return moved;
}

Status FileSystem::make_exportable(Work& work) {
    std::unique_lock gate_lock(work.gate->mutex);
    if (!work.gate->memory) return {};
    const bool has_handle = work.gate->memory->has_fabric_handle();
    if (has_handle && work.gate->memory->lasting_handle() != nullptr) return {};
    uint64_t size = 0;
    {
        StoreLock lock(backend_.store_mutex());
        // Processes that have imported it would continue with the old memory without notice.
        if (!Files::is_unshared(*work.object) || work.object->extent->handle_given) return {};
        size = work.object->size_bytes;
    }
    auto moved = move_to(work, size, size, size, Move::unless_opened);
    if (!moved && moved.error().code == ECANCELED) moved = fail(EBUSY, "a client has opened it");
    // A handle that ends with gshmd is better than none.
    if (!moved && has_handle) return {};
    return moved;
}

Status FileSystem::resize(Work& work, uint64_t size_bytes) {
    if (size_bytes > limits::kFileBytes) return fail(EFBIG, "too large");
    Growth growth(backend_);
    TRY(growth.begin(work, size_bytes));
    std::unique_lock gate_lock(work.gate->mutex);
    uint64_t old = 0;
    bool in_slab = false;
    bool unshared = false;
    {
        StoreLock lock(backend_.store_mutex());
        if (work.object->state == ObjectState::sealed) return fail(EPERM, "sealed");
        old = work.gate->memory ? work.object->size_bytes : 0;
        in_slab = work.gate->memory && work.object->extent->slab_group != nullptr;
        // Memory whose handle was given out stays: processes that have imported it would not notice a replacement.
        const bool given = work.object->extent != nullptr && work.object->extent->handle_given;
        unshared = Files::is_unshared(*work.object) && !given;
    }
    auto resized = [&] {
        StoreLock lock(backend_.store_mutex());
        if (file_of(*work.gate) != nullptr) backend_.files().refresh(*work.object);
        else backend_.files().set_size(*work.object, size_bytes);
        backend_.files().modified(*work.object);
    };
    if (auto* file = file_of(*work.gate)) {
        TRY(file->resize(size_bytes));
        resized();
        return {};
    }
    const DeviceInfo& info = backend_.device(work.device()).info();
    if (size_bytes == 0) {
        StoreLock lock(backend_.store_mutex());
        if (work.gate->memory) backend_.files().replace_memory(*work.object, nullptr, 0);
        backend_.files().modified(*work.object);
        return {};
    }
    uint64_t needed = round_up(size_bytes, info.granularity_bytes);
    bool fits = work.gate->memory && !in_slab && size_bytes <= work.gate->memory->size();
    bool too_large = fits && unshared && (needed < work.gate->memory->size() || may_share(work, size_bytes));
    if (fits && size_bytes > old) TRY(work.gate->memory->fill(old, size_bytes - old, 0));
    if (!fits || too_large) {
        auto moved = move_to(work, size_bytes, std::min(old, size_bytes), size_bytes);
        // Without room for a second, smaller extent, the first one stays.
        if (!moved && !(fits && moved.error().code == ENOSPC)) return moved;
        if (moved) {
            StoreLock lock(backend_.store_mutex());
            backend_.files().modified(*work.object);
            return {};
        }
    }
    if (size_bytes < old) TRY(work.gate->memory->fill(size_bytes, old - size_bytes, 0));
    resized();
    return {};
}

Status FileSystem::allocate_bytes(Work& work, int mode, uint64_t offset, uint64_t bytes) {
    const uint64_t end = offset + bytes;
    const bool punch = mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
    if (!punch && mode != 0 && mode != FALLOC_FL_KEEP_SIZE) return fail(EOPNOTSUPP, "as tmpfs");
    if (end > limits::kObjectBytes) return fail(EFBIG, "too large");
    Growth growth(backend_);
    if (mode == 0) TRY(growth.begin(work, end));
    else if (!punch && work.is_limited) TRY(check_keeps_size(work, end));
    uint64_t size = 0;
    {
        std::unique_lock gate_lock(work.gate->mutex);
        if (!work.gate->memory && backend_.device(work.device()).info().files) TRY(move_to(work, 0, 0, 0));
        if (auto* file = file_of(*work.gate)) {
            TRY(file->allocate(mode, offset, bytes));
            StoreLock lock(backend_.store_mutex());
            backend_.files().refresh(*work.object);
            backend_.files().modified(*work.object);
            return {};
        }
        size = size_of(*work.gate);
        const uint64_t capacity = capacity_of(*work.gate);
        if (punch) {
            if (offset < size)
                TRY(work.gate->memory->fill(work.gate->offset + offset, std::min(end, size) - offset, 0));
        } else if (end > capacity && (mode != 0 || !may_share(work, end))) {
            TRY(move_to(work, end, size, size));  // otherwise resize() finds a place
        }
        StoreLock lock(backend_.store_mutex());
        backend_.files().modified(*work.object);
    }
    if (mode == 0 && end > size) return resize(work, end);
    return {};
}

// Memory beyond the end of a file counts for nobody.
Status FileSystem::check_keeps_size(const Work& work, uint64_t end) {
    StoreLock lock(backend_.store_mutex());
    backend_.files().refresh(*work.object);
    if (end <= work.object->size_bytes || !backend_.files().store().limits().limits_bytes(*work.object)) return {};
    return fail(EOPNOTSUPP, "memory beyond the end of a file, whose owner has a limit");
}

Status FileSystem::drop_empty(Work& work) {
    std::unique_lock gate_lock(work.gate->mutex);
    if (!work.gate->memory) return {};
    StoreLock lock(backend_.store_mutex());
    backend_.files().refresh(*work.object);
    // One lease is that of `work`.
    if (work.object->size_bytes > 0 || work.object->leases > 1 || work.object->links == 0) return {};
    backend_.files().drop_backing(work.object->id);
    backend_.files().replace_memory(*work.object, nullptr, 0);
    return {};
}

Status FileSystem::settle(Work& work) {
    std::unique_lock gate_lock(work.gate->mutex);
    if (!work.gate->memory) return {};
    const DeviceInfo& info = backend_.device(work.device()).info();
    uint64_t size = 0;
    bool shares = false;
    {
        StoreLock lock(backend_.store_mutex());
        if (work.object->extent == nullptr || work.object->extent->slab_group != nullptr) return {};
        // It is in use, or about to be freed.
        if (work.object->write_leases > 0 || work.object->session_leases > 0 || work.object->links == 0) return {};
        // Processes that have imported it would continue with the old memory without notice.
        if (work.object->extent->handle_given) return {};
        backend_.files().refresh(*work.object);
        size = work.object->size_bytes;
        shares = backend_.files().store().may_share(*work.object, work.device(), size);
    }
    if (file_of(*work.gate) != nullptr || size == 0) return {};
    if (!shares && round_up(size, info.granularity_bytes) == work.gate->memory->size()) return {};
    // The excess was reserved with fallocate() or by growth in advance. Without room for a move it stays.
    (void)move_to(work, size, size, size, Move::tidy);
    return {};
}

Status FileSystem::copy_bytes(Work& from, uint64_t from_offset, Work& to, uint64_t to_offset, uint64_t bytes,
                              std::span<std::byte> scratch, uint64_t* ret_copied) {
    *ret_copied = 0;
    if (from.object != to.object && from.device() == to.device()) {
        // A copy inside the device, if both objects are in its memory and the target has room.
        std::shared_lock source(from.gate->mutex);
        std::shared_lock target(to.gate->mutex);
        uint64_t copied = 0;
        Growth growth(backend_);
        {
            StoreLock lock(backend_.store_mutex());
            bool plain = from.gate->memory && to.gate->memory && !file_of(*from.gate) && !file_of(*to.gate);
            if (plain && from_offset < from.object->size_bytes && to_offset <= to.object->size_bytes) {
                copied = std::min(bytes, from.object->size_bytes - from_offset);
                if (to_offset + copied > capacity_of(*to.gate)) copied = 0;
            }
            if (copied > 0) TRY(growth.begin_locked(to, to_offset + copied));
        }
        if (copied > 0) {
            TRY(to.gate->memory->copy_from(to.gate->offset + to_offset, *from.gate->memory,
                                           from.gate->offset + from_offset, copied));
            StoreLock lock(backend_.store_mutex());
            uint64_t end = to_offset + copied;
            if (end > to.object->size_bytes) backend_.files().set_size(*to.object, end);
            backend_.files().modified(*to.object);
            backend_.files().accessed(*from.object);
            *ret_copied = copied;
            return {};
        }
    }
    while (*ret_copied < bytes) {
        auto piece = scratch.first(std::min<uint64_t>(scratch.size(), bytes - *ret_copied));
        size_t got = TRY(read_bytes(from, from_offset + *ret_copied, piece));
        if (got == 0) break;
        auto put = write_bytes(to, to_offset + *ret_copied, piece.first(got));
        if (!put && *ret_copied > 0) break;  // a partial copy is a success; the next call returns the error
        TRY(std::move(put));
        *ret_copied += got;
    }
    return {};
}

}  // namespace gshm::core::fuse
