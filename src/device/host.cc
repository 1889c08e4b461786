#include "device/host.h"

#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/mapping.h"

namespace gshm {
namespace {

class HostExtent final : public Extent {
public:
    HostExtent(Mapping mapping, UniqueFd fd, Access access)
        : Extent(reinterpret_cast<uint64_t>(mapping.data()), mapping.size()),
          mapping_(std::move(mapping)),
          fd_(std::move(fd)),
          access_(access) {}

    Status copy_in(uint64_t offset, std::span<const std::byte> source) override {
        TRY(check_range(offset, source.size()));
        TRY(check_writable());
        if (!source.empty()) memcpy(mapping_.data() + offset, source.data(), source.size());
        return {};
    }
    Status copy_out(uint64_t offset, std::span<std::byte> destination) const override {
        TRY(check_range(offset, destination.size()));
        if (!destination.empty()) memcpy(destination.data(), mapping_.data() + offset, destination.size());
        return {};
    }
    Status fill(uint64_t offset, uint64_t bytes, uint8_t value) override {
        TRY(check_range(offset, bytes));
        TRY(check_writable());
        memset(mapping_.data() + offset, value, bytes);
        return {};
    }
    Result<int> descriptor(Access access) override {
        if (access == Access::write) {
            TRY(check_writable());
            return fd_ ? fd_.get() : kept_descriptor();
        }
        if (!fd_) return kept_descriptor();
        if (!read_only_fd_) {
            // A new open file description, read-only from birth. The file is its maker's and 0600, so nobody else can
            // open it again for writing through /proc/self/fd.
            int fd = ::open(fmt::format("/proc/self/fd/{}", fd_.get()).c_str(), O_RDONLY | O_CLOEXEC);
            if (fd < 0) return fail_errno("cannot export host memory");
            read_only_fd_ = UniqueFd::adopt(fd);
        }
        return read_only_fd_.get();
    }

private:
    Status check_writable() const {
        if (access_ == Access::read) return fail(EACCES, "this memory was opened for reading only");
        return {};
    }

    Mapping mapping_;
    UniqueFd fd_;  // empty if imported
    UniqueFd read_only_fd_;
    Access access_;
};

}  // namespace

Result<std::unique_ptr<HostDevice>> HostDevice::create(uint64_t capacity_bytes) {
    std::unique_ptr<HostDevice> device(new HostDevice);
    if (capacity_bytes == 0) {
        struct sysinfo machine = {};
        if (sysinfo(&machine) != 0) return fail_errno("sysinfo");
        capacity_bytes = uint64_t{machine.totalram} * machine.mem_unit / 2;
    }
    device->info_ = DeviceInfo{
        .name = "host",
        .uuid = "",
        .model = "host memory",
        .capacity_bytes = capacity_bytes,
        .granularity_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE)),
        .handle_kinds = kHandlePosixFd,
        .compressible = false,
    };
    return device;
}

Result<std::unique_ptr<Extent>> HostDevice::allocate(uint64_t size_bytes, const AllocateOptions& options) {
    if (options.compressible) return fail(EOPNOTSUPP, "host has no compressible memory");
    auto file = UniqueFd::adopt(memfd_create("gshm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file) return fail_errno("cannot make a shared-memory file");
    if (fchmod(file.get(), 0600) != 0) return fail_errno("fchmod of a memfd");
    if (ftruncate(file.get(), static_cast<off_t>(size_bytes)) != 0) {
        return fail(ENOSPC, "cannot size a shared-memory file to {} bytes: {}", size_bytes, strerror(errno));
    }
    // Whoever may write to it gets the descriptor. Without the seals they could shrink the file under everyone else's
    // mappings, or grow it beyond what the device may have.
    if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return fail_errno("cannot seal a shared-memory file");
    }
    auto mapping = TRY(Mapping::create(file.get(), size_bytes, true));
    return std::make_unique<HostExtent>(std::move(mapping), std::move(file), Access::write);
}

Result<std::unique_ptr<Extent>> HostDevice::import_fd(int fd, uint64_t size_bytes, Access access) {
    struct stat status = {};
    if (fstat(fd, &status) != 0) return fail_errno("cannot import host memory");
    if (!S_ISREG(status.st_mode)) return fail(EINVAL, "the descriptor is not shared host memory");
    if (static_cast<uint64_t>(status.st_size) < size_bytes || size_bytes == 0) {
        return fail(EINVAL, "the descriptor holds {} bytes, not {}", status.st_size, size_bytes);
    }
    auto mapping = TRY(Mapping::create(fd, size_bytes, access == Access::write));
    return std::make_unique<HostExtent>(std::move(mapping), UniqueFd(), access);
}

Result<std::unique_ptr<Extent>> HostDevice::import_dmabuf(int fd, uint64_t size_bytes, Access access) {
    auto length = lseek(fd, 0, SEEK_END);  // how a dma-buf tells its size
    if (length < 0) return fail(EINVAL, "the descriptor is not a dma-buf");
    if (size_bytes == 0 || static_cast<uint64_t>(length) < size_bytes) {
        return fail(EINVAL, "the dma-buf holds {} bytes, not {}", length, size_bytes);
    }
    auto mapping = TRY(Mapping::create(fd, size_bytes, access == Access::write));
    return std::make_unique<HostExtent>(std::move(mapping), UniqueFd(), access);
}

Result<std::unique_ptr<Extent>> HostDevice::import_fabric(const FabricHandle&, uint64_t, Access) {
    return fail(EOPNOTSUPP, "host has no fabric handles");
}

}  // namespace gshm
