// hf3fs_usrbio.h: rings and their files.
#include <climits>
#include <cstring>

#include "ior.h"

using namespace gshm;
using namespace gshm::usrbio;

namespace {

Ior* ior_of(const hf3fs_ior* ior) {
    return ior != nullptr ? static_cast<Ior*>(ior->iorh) : nullptr;
}

int create_ior(const char* call, hf3fs_ior* ior, const char* mount_point, const Ior::Options& options, int priority,
               int timeout, int numa) {
    return guarded(call, [&]() -> Result<void> {
        TRY(check_argument(ior != nullptr && mount_point != nullptr, "ior or mount point is NULL"));
        TRY(check_argument(timeout >= 0, "the timeout is negative"));
        hf3fs_ior made = {};
        TRY(check_argument(strlen(mount_point) < sizeof made.mount_point, "the mount point is too long"));
        auto ring = TRY(Ior::create(TRY(Daemon::find(mount_point)), options));
        strcpy(made.mount_point, mount_point);
        strcpy(made.iov.mount_point, mount_point);
        const Id id = make_id();
        memcpy(made.iov.id, id.data(), id.size());
        made.iov.size = hf3fs_ior_size(options.entries);
        made.iov.numa = numa;
        made.for_read = options.for_read;
        made.io_depth = options.io_depth;
        made.priority = priority;
        made.timeout = timeout;
        made.flags = options.flags;
        made.iorh = ring.release();
        *ior = made;
        return {};
    });
}

}  // namespace

extern "C" {

// Programs use this to compute memory needs: the size of the entries in a ring (docs/ring.md).
size_t hf3fs_ior_size(int entries) {
    constexpr size_t kHead = 4096;
    constexpr size_t kEntry = 80;
    return entries > 0 ? kHead + static_cast<size_t>(entries) * kEntry : 0;
}

int hf3fs_iorcreate(struct hf3fs_ior* ior, const char* hf3fs_mount_point, int entries, bool for_read, int io_depth,
                    int numa) {
    return create_ior("hf3fs_iorcreate", ior, hf3fs_mount_point, {entries, for_read, io_depth, 0}, 0, 0, numa);
}

int hf3fs_iorcreate2(struct hf3fs_ior* ior, const char* hf3fs_mount_point, int entries, bool for_read, int io_depth,
                     int priority, int numa) {
    return create_ior("hf3fs_iorcreate2", ior, hf3fs_mount_point, {entries, for_read, io_depth, 0}, priority, 0, numa);
}

int hf3fs_iorcreate3(struct hf3fs_ior* ior, const char* hf3fs_mount_point, int entries, bool for_read, int io_depth,
                     int priority, int timeout, int numa) {
    return create_ior("hf3fs_iorcreate3", ior, hf3fs_mount_point, {entries, for_read, io_depth, 0}, priority, timeout,
                      numa);
}

int hf3fs_iorcreate4(struct hf3fs_ior* ior, const char* hf3fs_mount_point, int entries, bool for_read, int io_depth,
                     int timeout, int numa, uint64_t flags) {
    return create_ior("hf3fs_iorcreate4", ior, hf3fs_mount_point, {entries, for_read, io_depth, flags}, 0, timeout,
                      numa);
}

void hf3fs_iordestroy(struct hf3fs_ior* ior) {
    (void)guarded("hf3fs_iordestroy", [&]() -> Result<void> {
        std::unique_ptr<Ior> gone(ior_of(ior));
        if (ior != nullptr) ior->iorh = nullptr;
        return {};
    });
}

int hf3fs_io_entries(const struct hf3fs_ior* ior) {
    const Ior* ring = ior_of(ior);
    return ring != nullptr ? ring->entries() : 0;
}

int hf3fs_reg_fd(int fd, uint64_t) {
    int kept = 0;
    const int code = guarded("hf3fs_reg_fd", [&]() -> Result<void> {
        kept = TRY(FileTable::instance().add(fd));
        return {};
    });
    return code != 0 ? -code : -kept;
}

void hf3fs_dereg_fd(int fd) {
    (void)guarded("hf3fs_dereg_fd", [&]() -> Result<void> {
        FileTable::instance().remove(fd == INT_MIN ? 0 : abs(fd));
        return {};
    });
}

int hf3fs_prep_io(const struct hf3fs_ior* ior, const struct hf3fs_iov* iov, bool read, void* ptr, int fd, size_t off,
                  uint64_t len, const void* userdata) {
    Ior* ring = ior_of(ior);
    const auto memory = Iov::of(iov);
    if (ring == nullptr || memory == nullptr || read != ior->for_read || len == 0 || fd == INT_MIN) return -EINVAL;
    const auto base = reinterpret_cast<uintptr_t>(iov->base);
    const auto address = reinterpret_cast<uintptr_t>(ptr);
    if (address < base || address - base > memory->size || len > memory->size - (address - base)) return -EINVAL;
    int index = 0;
    const int code = guarded("hf3fs_prep_io", [&]() -> Result<void> {
        index = ring->prepare(*memory, address - base, len, abs(fd), off, userdata);
        return {};
    });
    return code != 0 ? code : index;
}

int hf3fs_submit_ios(const struct hf3fs_ior* ior) {
    Ior* ring = ior_of(ior);
    return ring != nullptr ? ring->submit() : -EINVAL;
}

int hf3fs_wait_for_ios(const struct hf3fs_ior* ior, struct hf3fs_cqe* cqes, int cqec, int min_results,
                       const struct timespec* abs_timeout) {
    Ior* ring = ior_of(ior);
    if (ring == nullptr || cqes == nullptr || cqec <= 0) return -EINVAL;
    return ring->wait({cqes, static_cast<size_t>(cqec)}, static_cast<size_t>(std::clamp(min_results, 0, cqec)),
                      abs_timeout);
}

}  // extern "C"
