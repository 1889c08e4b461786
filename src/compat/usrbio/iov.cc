#include "iov.h"

#include <cstring>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "wraps.h"

namespace gshm::usrbio {
namespace {

char wrapped;  // its address is the handle of all wrapped memory

hf3fs_iov describe(const Iov& made, const char* mount_point, size_t block_size, int numa) {
    hf3fs_iov filled = {};
    filled.base = made.object.data_as<uint8_t>();
    memcpy(filled.id, made.id.data(), made.id.size());
    strncpy(filled.mount_point, mount_point, sizeof filled.mount_point - 1);
    filled.size = made.size;
    filled.block_size = block_size;
    filled.numa = numa;
    return filled;
}

}  // namespace

std::shared_ptr<Iov> Iov::of(const hf3fs_iov* iov) {
    if (iov == nullptr || iov->iovh == nullptr) return nullptr;
    if (iov->iovh == &wrapped) {
        std::shared_ptr<Iov> found;
        (void)guarded("find", [&]() -> Result<void> {
            found = Wraps::instance().find(iov->base, iov->size);
            return {};
        });
        return found;
    }
    auto* found = static_cast<Iov*>(iov->iovh);
    if (found->magic_ != kMagic) return nullptr;
    return {std::shared_ptr<void>(), found};  // owned by the caller's struct
}

void Iov::hand_over(std::unique_ptr<Iov> made, hf3fs_iov* iov, const char* mount_point, size_t block_size, int numa) {
    *iov = describe(*made, mount_point, block_size, numa);
    iov->iovh = made.release();
}

void Iov::hand_over_wrap(std::unique_ptr<Iov> made, hf3fs_iov* iov, const char* mount_point, size_t block_size,
                         int numa) {
    hf3fs_iov filled = describe(*made, mount_point, block_size, numa);
    filled.iovh = &wrapped;
    Wraps::instance().put(std::move(made));
    *iov = filled;
}

void Iov::destroy(hf3fs_iov* iov) {
    if (iov == nullptr || iov->iovh == nullptr) return;
    if (iov->iovh == &wrapped) {
        Wraps::instance().forget(iov->base, iov->size);
    } else {
        const auto found = of(iov);
        if (!found) return;
        delete found.get();
    }
    iov->base = nullptr;
    iov->iovh = nullptr;
    iov->size = 0;
}

void Iov::unlink() {
    constexpr std::string_view kHidden = ".unlinked";
    // Exported handles stay valid, which needs a name: one without an id.
    const bool has_handles = gpu >= 0 && object.id() != 0;
    if (!has_handles) return remove_name();
    if (name.empty() || name.ends_with(kHidden)) return;
    std::string hidden = name + std::string(kHidden);
    if (auto done = daemon->client().rename(name, hidden); !done) {
        log_warning("cannot unlink {}: {}", name, done.error().message);
        return;
    }
    name = std::move(hidden);
}

void Iov::remove_name() {
    if (name.empty()) return;
    // It may already be removed, for example in the mount.
    if (auto done = daemon->client().unlink(name); !done && done.error().code != ENOENT) {
        log_warning("cannot unlink {}: {}", name, done.error().message);
    }
    name.clear();
}

Iov::~Iov() {
    remove_name();
    magic_ = 0;
}

Result<void> check_iov_arguments(const hf3fs_iov* iov, const char* mount_point, size_t size) {
    TRY(check_argument(iov != nullptr && mount_point != nullptr && *mount_point != '\0', "iov or mount point is NULL"));
    TRY(check_argument(size > 0, "the size is 0"));
    return check_argument(strlen(mount_point) < sizeof iov->mount_point, "the mount point is too long");
}

Id to_id(const uint8_t id[16]) {
    Id copy = {};
    memcpy(copy.data(), id, copy.size());
    return copy;
}

Id make_id() {
    Id id = {};
    while (getrandom(id.data(), id.size(), 0) != static_cast<ssize_t>(id.size())) continue;
    id[6] = static_cast<uint8_t>((id[6] & 0x0f) | 0x40);  // marks a random UUID
    id[8] = static_cast<uint8_t>((id[8] & 0x3f) | 0x80);
    return id;
}

std::string name_of(const Id& id) {
    std::string name = fmt::format(".usrbio-{}/", geteuid());
    for (uint8_t byte : id) name += fmt::format("{:02x}", byte);
    return name;
}

Result<std::unique_ptr<Iov>> create_iov(std::shared_ptr<Daemon> daemon, size_t size, const std::string& device) {
    auto made = std::make_unique<Iov>();
    made->id = make_id();
    std::string name = name_of(made->id);
    // An extent of its own on host, since programs expect whole pages.
    made->object = TRY(daemon->create(name, [&] {
        return daemon->client().create(
            {.name = name, .size_bytes = size, .device = device, .dedicated = device == "host"});
    }));
    made->name = std::move(name);
    made->daemon = std::move(daemon);
    made->size = size;
    return made;
}

void prefer_node(void* memory, size_t size, int node) {
    constexpr int kPreferred = 1;  // MPOL_PREFERRED of numaif.h
    unsigned long nodes[16] = {};
    constexpr int kBits = 8 * sizeof(unsigned long);
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t begin = (reinterpret_cast<uintptr_t>(memory) + page - 1) / page * page;
    const uintptr_t end = (reinterpret_cast<uintptr_t>(memory) + size) / page * page;
    if (node < 0 || node >= 16 * kBits || begin >= end) return;
    nodes[node / kBits] = 1ul << node % kBits;
    if (syscall(SYS_mbind, begin, end - begin, kPreferred, nodes, sizeof nodes * 8 + 1, 0) != 0) {
        log_info("memory is not bound to NUMA node {}: {}", node, strerror(errno));
    }
}

}  // namespace gshm::usrbio
