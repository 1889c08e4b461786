// fakecuda, a test double of NVIDIA's driver: makes, marks, poisons and recognises the memfds.
#include "allocation.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"

namespace fakecuda {
namespace {

constexpr char kName[] = "fakecuda";
constexpr char kLink[] = "/memfd:fakecuda ";  // followed by "(deleted)"
constexpr char kMagic[16] = "fakecuda memory";
constexpr unsigned char kPoison = 0xa5;
constexpr size_t kPoisonAll = size_t{64} << 20;  // beyond that only the edges
constexpr size_t kChunk = size_t{1} << 20;

// The page behind the data.
struct Label {
    char magic[16];
    uint64_t size;
    CUuuid device;
    int32_t types;
    uint8_t compressed;
    uint8_t rdma;
    uint8_t unused[2];
};
static_assert(sizeof(Label) == 48);

bool poison(int fd, size_t from, size_t to) {
    static const auto* chunk = new std::string(kChunk, static_cast<char>(kPoison));
    while (from < to) {
        ssize_t wrote = pwrite(fd, chunk->data(), std::min(kChunk, to - from), static_cast<off_t>(from));
        if (wrote <= 0) return false;
        from += static_cast<size_t>(wrote);
    }
    return true;
}

bool poison(int fd, size_t size) {
    if (size <= kPoisonAll) return poison(fd, 0, size);
    return poison(fd, 0, kGranularity) && poison(fd, size - kGranularity, size);
}

std::shared_ptr<Allocation> adopt(int fd, ino_t inode, Device& device, const Label& label) {
    auto made = std::make_shared<Allocation>(fd, inode, label.size, device, label.types, label.compressed != 0,
                                             label.rdma != 0);
    state().allocations[inode] = made;
    return made;
}

bool is_ours(const char* path) {
    char link[sizeof kLink - 1];
    return readlink(path, link, sizeof link) == sizeof link && memcmp(link, kLink, sizeof link) == 0;
}

}  // namespace

Allocation::Allocation(int fd, ino_t inode, size_t size, Device& device, int types, bool compressed, bool rdma)
    : fd(fd), inode(inode), size(size), device(device), types(types), compressed(compressed), rdma(rdma) {
    device.used_bytes += size;
}

Allocation::~Allocation() {
    device.used_bytes -= size;
    state().allocations.erase(inode);
    close(fd);
}

std::shared_ptr<Allocation> create_allocation(Device& device, const CUmemAllocationProp& properties, size_t size) {
    Label label = {};
    memcpy(label.magic, kMagic, sizeof kMagic);
    label.size = size;
    label.device = device.uuid;
    label.types = properties.requestedHandleTypes;
    label.rdma = properties.allocFlags.gpuDirectRDMACapable != 0;
    // Compression is a wish: it is not granted together with RDMA, and the caller has to look at the properties.
    label.compressed = properties.allocFlags.compressionType != 0 && config().compression && label.rdma == 0;

    int fd = memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct stat status = {};
    if (fd < 0) return nullptr;
    if (ftruncate(fd, static_cast<off_t>(size + kPage)) != 0 || !poison(fd, size) ||
        pwrite(fd, &label, sizeof label, static_cast<off_t>(size)) != sizeof label ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 || fstat(fd, &status) != 0) {
        close(fd);
        return nullptr;
    }
    return adopt(fd, status.st_ino, device, label);
}

Opened open_allocation(const char* path, ino_t inode) {
    if (!is_ours(path)) return {};
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return {};
    struct stat status = {};
    Label label = {};
    const bool known = fstat(fd, &status) == 0 && status.st_size > static_cast<off_t>(kPage) &&
                       (inode == 0 || inode == status.st_ino) &&
                       pread(fd, &label, sizeof label, status.st_size - static_cast<off_t>(kPage)) == sizeof label &&
                       memcmp(label.magic, kMagic, sizeof kMagic) == 0 &&
                       label.size == static_cast<size_t>(status.st_size) - kPage;
    Device* device = known ? state().device_of(label.device) : nullptr;
    if (device == nullptr) {
        close(fd);
        return {known ? kErrorInvalidDevice : kErrorUnknown, nullptr};
    }
    if (auto found = state().allocations.find(status.st_ino); found != state().allocations.end()) {
        close(fd);
        return {kSuccess, found->second.lock()};
    }
    return {kSuccess, adopt(fd, status.st_ino, *device, label)};
}

int reopen(const Allocation& memory, int flags) {
    std::string path = "/proc/self/fd/" + std::to_string(memory.fd);
    return open(path.c_str(), flags | O_CLOEXEC);
}

}  // namespace fakecuda
