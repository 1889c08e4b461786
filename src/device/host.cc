#include "device/host.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <linux/falloc.h>
#include <mutex>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/mapping.h"

namespace gshm::core {
namespace {

// A new open file description. A read-only one stays read-only: the file belongs to its creator with mode 0600, so
// other users cannot reopen it for writing through /proc/self/fd.
Result<UniqueFd> reopen(int fd, int access) {
    auto reopened = UniqueFd::adopt(open(fmt::format("/proc/self/fd/{}", fd).c_str(), access | O_CLOEXEC));
    if (!reopened) return fail_errno("cannot export host memory");
    return reopened;
}

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
        if (!read_only_fd_) read_only_fd_ = TRY(reopen(fd_.get(), O_RDONLY));
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

// A detached mount: its files have no path and end with their last descriptor. within_size: huge pages for files that
// fill them, without cost for small files.
Result<UniqueFd> make_private_tmpfs(uint64_t capacity_bytes) {
    for (const char* huge : {"within_size", "never"}) {
        auto context = UniqueFd::adopt(fsopen("tmpfs", FSOPEN_CLOEXEC));
        if (!context) return fail_errno("fsopen");
        std::string size = std::to_string(capacity_bytes);
        bool ready = fsconfig(context.get(), FSCONFIG_SET_STRING, "size", size.c_str(), 0) == 0 &&
                     fsconfig(context.get(), FSCONFIG_SET_STRING, "nr_inodes", "0", 0) == 0 &&
                     fsconfig(context.get(), FSCONFIG_SET_STRING, "mode", "0700", 0) == 0 &&
                     fsconfig(context.get(), FSCONFIG_SET_STRING, "huge", huge, 0) == 0 &&
                     fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) == 0;
        if (!ready) continue;
        auto mount = UniqueFd::adopt(fsmount(context.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID));
        if (mount) return mount;
    }
    return fail_errno("cannot make a private tmpfs");
}

int64_t to_ns(const timespec& time) {
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

timespec to_timespec(int64_t ns) {
    constexpr int64_t kNsPerS = 1'000'000'000;
    int64_t part = (ns % kNsPerS + kNsPerS) % kNsPerS;
    return {static_cast<time_t>((ns - part) / kNsPerS), static_cast<long>(part)};
}

class HostFile final : public Extent, public ExtentFile {
public:
    HostFile(UniqueFd fd, std::shared_ptr<Budget> all_files)
        : Extent(0, 0), fd_(std::move(fd)), all_files_(std::move(all_files)) {}
    ~HostFile() override {
        all_files_->give(allocated_);
        if (budget_) budget_->give(charged_);
    }

    Status copy_in(uint64_t offset, std::span<const std::byte> source) override {
        while (!source.empty()) {
            ssize_t put = pwrite(fd_.get(), source.data(), source.size(), static_cast<off_t>(offset));
            if (put < 0 && errno == EINTR) continue;
            if (put < 0) return fail_errno("cannot write host memory");
            source = source.subspan(static_cast<size_t>(put));
            offset += static_cast<size_t>(put);
        }
        return {};
    }
    // Bytes beyond the end read as zeros: another process may just have shortened the file.
    Status copy_out(uint64_t offset, std::span<std::byte> destination) const override {
        while (!destination.empty()) {
            ssize_t got = pread(fd_.get(), destination.data(), destination.size(), static_cast<off_t>(offset));
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) return fail_errno("cannot read host memory");
            if (got == 0) {
                memset(destination.data(), 0, destination.size());
                return {};
            }
            destination = destination.subspan(static_cast<size_t>(got));
            offset += static_cast<size_t>(got);
        }
        return {};
    }
    Status fill(uint64_t offset, uint64_t bytes, uint8_t value) override {
        std::vector<std::byte> pattern(std::min<uint64_t>(bytes, 1 << 20), std::byte{value});
        for (uint64_t done = 0; done < bytes; done += pattern.size()) {
            TRY(copy_in(offset + done, {pattern.data(), std::min<uint64_t>(pattern.size(), bytes - done)}));
        }
        return {};
    }
    Result<int> descriptor(Access access) override {
        // A new file description: a shared one would share its flags, and O_APPEND would redirect these writes.
        if (access == Access::write) {
            if (!handed_out_) handed_out_ = TRY(reopen(fd_.get(), O_RDWR));
            return handed_out_.get();
        }
        if (!read_only_fd_) read_only_fd_ = TRY(reopen(fd_.get(), O_RDONLY));
        return read_only_fd_.get();
    }
    ExtentFile* file() override { return this; }
    bool is_host_memory() const override { return false; }

    int fd() const override { return fd_.get(); }
    Result<FileStatus> status() override {
        struct stat now = {};
        if (fstat(fd_.get(), &now) != 0) return fail_errno("fstat of host memory");
        auto allocated = static_cast<uint64_t>(now.st_blocks) * 512;
        set_size(static_cast<uint64_t>(now.st_size));
        charge(allocated);
        return FileStatus{static_cast<uint64_t>(now.st_size), allocated, to_ns(now.st_atim), to_ns(now.st_mtim)};
    }
    Status resize(uint64_t size_bytes) override {
        struct stat now = {};
        if (fstat(fd_.get(), &now) != 0) return fail_errno("fstat of host memory");
        auto old = static_cast<uint64_t>(now.st_size);
        if (size_bytes > old) {
            TRY(allocate(0, old, size_bytes - old));
        } else if (ftruncate(fd_.get(), static_cast<off_t>(size_bytes)) != 0) {
            return fail_errno("cannot size host memory");
        }
        TRY(status());
        return {};
    }
    Result<std::shared_ptr<Mapping>> mapping() override {
        std::lock_guard lock(mutex_);
        uint64_t needed = size();
        if (!mapping_ || mapping_->size() < needed) {
            // Maps twice the size, so that a growing file is not remapped every time.
            auto bytes = std::max<uint64_t>(2 * needed, 1 << 20);
            mapping_ = std::make_shared<Mapping>(TRY(Mapping::create(fd_.get(), bytes, true)));
        }
        return mapping_;
    }
    Status set_times(int64_t accessed_ns, int64_t modified_ns) override {
        const timespec times[2] = {to_timespec(accessed_ns), to_timespec(modified_ns)};
        if (futimens(fd_.get(), times) != 0) return fail_errno("futimens");
        return {};
    }
    Status allocate(int mode, uint64_t offset, uint64_t bytes) override {
        bool grows = (mode & FALLOC_FL_PUNCH_HOLE) == 0;
        // Reserved in advance, so that a request that does not fit fails without using the remaining bytes.
        if (grows && budget_ && !has_room_for(offset, bytes)) return fail(ENOSPC, "host is full");
        while (fallocate(fd_.get(), mode, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0) {
            if (errno == EINTR) continue;
            auto failed = fail_errno("cannot allocate host memory");
            (void)status();  // returns the excess of the reservation
            return failed;
        }
        TRY(status());
        return {};
    }
    void charge_to(std::shared_ptr<Budget> budget, uint64_t charged_bytes) override {
        std::lock_guard lock(mutex_);
        budget_ = std::move(budget);
        charged_ = charged_bytes;
    }

private:
    bool has_room_for(uint64_t offset, uint64_t bytes) {
        std::lock_guard lock(mutex_);
        uint64_t needed = std::min(bytes, offset + bytes - std::min(charged_, offset + bytes));
        if (!budget_->take(needed)) return false;
        charged_ += needed;  // corrected by status()
        return true;
    }
    void charge(uint64_t bytes) {
        std::lock_guard lock(mutex_);
        set_share(*all_files_, allocated_, bytes);
        if (budget_) set_share(*budget_, charged_, bytes);
    }
    static void set_share(Budget& budget, uint64_t& share, uint64_t bytes) {
        if (bytes > share) budget.note(bytes - share);
        else budget.give(share - bytes);
        share = bytes;
    }

    UniqueFd fd_;
    UniqueFd handed_out_;
    UniqueFd read_only_fd_;
    const std::shared_ptr<Budget> all_files_;  // the bytes of all files of the device
    std::mutex mutex_;                         // guards all below
    uint64_t allocated_ = 0;                   // in all_files_
    std::shared_ptr<Mapping> mapping_;         // null: not mapped yet
    std::shared_ptr<Budget> budget_;
    uint64_t charged_ = 0;
};

}  // namespace

const DeviceKind kHostKind = {
    .name = "host",
    .examples = "host, host:4G",
    .unasked = DeviceKind::Unasked::everything,
    // A given limit may exceed half of the memory.
    .open = [](std::string_view, uint64_t limit_bytes) -> Result<OpenedDevices> {
        OpenedDevices opened;
        opened.devices.push_back(TRY(HostDevice::create(limit_bytes)));
        return opened;
    },
};

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
        .files = true,
        .read_only_exports = true,
    };
    return device;
}

Result<std::unique_ptr<Extent>> HostDevice::allocate(uint64_t size_bytes, const AllocateOptions& options) {
    if (options.compressible) return fail(EOPNOTSUPP, "host has no compressible memory");
    if (options.resizable) {
        auto file = std::make_unique<HostFile>(TRY(make_file()), files_);
        if (size_bytes > 0) TRY(file->resize(size_bytes));
        return file;
    }
    auto file = UniqueFd::adopt(memfd_create("gshm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file) return fail_errno("cannot make a shared-memory file");
    if (fchmod(file.get(), 0600) != 0) return fail_errno("fchmod of a memfd");
    if (ftruncate(file.get(), static_cast<off_t>(size_bytes)) != 0) {
        return fail(ENOSPC, "cannot size a shared-memory file to {} bytes: {}", size_bytes, strerror(errno));
    }
    // Writers get the descriptor. Without the seals they could shrink the file under other mappings, or grow it beyond
    // the limit of the device.
    if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return fail_errno("cannot seal a shared-memory file");
    }
    auto mapping = TRY(Mapping::create(file.get(), size_bytes, true));
    return std::make_unique<HostExtent>(std::move(mapping), std::move(file), Access::write);
}

Result<std::unique_ptr<Extent>> HostDevice::restore(UniqueFd fd, uint64_t size_bytes, const AllocateOptions& options,
                                                    const FabricHandle*) {
    if (options.resizable) {
        auto file = std::make_unique<HostFile>(std::move(fd), files_);
        TRY(file->status());
        return file;
    }
    // An access beyond the end of the file would be fatal.
    struct stat status = {};
    // ENOMEM, since this is no damage: the next start may take up the memory.
    if (fstat(fd.get(), &status) != 0) return fail(ENOMEM, "cannot inspect kept memory: {}", strerror(errno));
    if (!S_ISREG(status.st_mode) || static_cast<uint64_t>(status.st_size) < size_bytes) {
        return fail(EUCLEAN, "the kept descriptor is not host memory of {} bytes", size_bytes);
    }
    auto mapping = TRY(Mapping::create(fd.get(), size_bytes, true));
    return std::make_unique<HostExtent>(std::move(mapping), std::move(fd), Access::write);
}

std::optional<int> HostDevice::folder() {
    MutexLock lock(mutex_);
    if (!folder_) return std::nullopt;
    return folder_.get();
}

void HostDevice::adopt_folder(UniqueFd folder) {
    MutexLock lock(mutex_);
    folder_tried_ = static_cast<bool>(folder);
    folder_ = std::move(folder);
}

uint64_t HostDevice::unaccounted_bytes() {
    struct statfs all = {};
    MutexLock lock(mutex_);
    if (!folder_ || fstatfs(folder_.get(), &all) != 0) return 0;
    const uint64_t used = (all.f_blocks - all.f_bfree) * static_cast<uint64_t>(all.f_bsize);
    return used - std::min(used, files_->used());
}

Result<UniqueFd> HostDevice::make_file() {
    MutexLock lock(mutex_);
    if (!folder_tried_) {
        folder_tried_ = true;
        if (auto folder = make_private_tmpfs(info_.capacity_bytes)) folder_ = std::move(*folder);
    }
    auto file = folder_ ? UniqueFd::adopt(openat(folder_.get(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600))
                        : UniqueFd::adopt(memfd_create("gshm", MFD_CLOEXEC));
    if (!file || fchmod(file.get(), 0600) != 0) return fail_errno("cannot make a shared-memory file");
    return file;
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
    auto length = lseek(fd, 0, SEEK_END);  // a dma-buf reports its size this way
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

}  // namespace gshm::core
