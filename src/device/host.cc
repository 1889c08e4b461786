#include "device/host.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <linux/falloc.h>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
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

int64_t to_ns(const timespec& time) {
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

timespec to_timespec(int64_t ns) {
    constexpr int64_t kNsPerS = 1'000'000'000;
    int64_t part = (ns % kNsPerS + kNsPerS) % kNsPerS;
    return {static_cast<time_t>((ns - part) / kNsPerS), static_cast<long>(part)};
}

// A file of the private tmpfs, opened when it is used. Without that folder a memfd, which has no name and stays open.
class HostFile final : public Extent, public ExtentFile {
public:
    // `name` is removed with this object, unless keep() was called or keeps is true.
    HostFile(std::shared_ptr<HostFolder> folder, std::string name, bool keeps, std::shared_ptr<Budget> all_files)
        : Extent(0, 0),
          folder_(std::move(folder)),
          name_(std::move(name)),
          keeps_name_(keeps),
          all_files_(std::move(all_files)) {}
    // A file without a name.
    HostFile(std::shared_ptr<HostFolder> folder, UniqueFd fd, std::shared_ptr<Budget> all_files)
        : Extent(0, 0),
          folder_(std::move(folder)),
          held_(std::make_shared<OpenHostFile>(std::move(fd))),
          all_files_(std::move(all_files)) {}
    ~HostFile() override {
        if (folder_) folder_->forget(slot_);
        if (!name_.empty() && !keeps_name_) folder_->unlink(name_);
        held_.reset();
        all_files_->give(allocated_);
        if (budget_) budget_->give(charged_);
    }
    // It was just made, and is open.
    void add_opened(UniqueFd fd) { folder_->add(slot_, std::make_shared<OpenHostFile>(std::move(fd))); }

    Status copy_in(uint64_t offset, std::span<const std::byte> source) override {
        auto file = TRY(use());
        while (!source.empty()) {
            ssize_t put = pwrite(file->fd.get(), source.data(), source.size(), static_cast<off_t>(offset));
            if (put < 0 && errno == EINTR) continue;
            if (put < 0) return fail_errno("cannot write host memory");
            source = source.subspan(static_cast<size_t>(put));
            offset += static_cast<size_t>(put);
        }
        return {};
    }
    // Bytes beyond the end read as zeros: another process may just have shortened the file.
    Status copy_out(uint64_t offset, std::span<std::byte> destination) const override {
        auto file = TRY(use());
        while (!destination.empty()) {
            ssize_t got = pread(file->fd.get(), destination.data(), destination.size(), static_cast<off_t>(offset));
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
    Result<int> descriptor(Access) override {
        return fail(EOPNOTSUPP, "a file has no descriptor of its own: export_fd() opens one");
    }
    // A new file description: a shared one would share its flags, and O_APPEND would redirect the writes of gshmd.
    Result<UniqueFd> export_fd(Access access) override {
        const int flags = access == Access::write ? O_RDWR : O_RDONLY;
        if (!held_) return folder_->open(name_, flags);
        return reopen(held_->fd.get(), flags);
    }
    ExtentFile* file() override { return this; }
    bool is_host_memory() const override { return false; }

    Result<SharedFd> open() override {
        auto file = TRY(use());
        return SharedFd(file, &file->fd);
    }
    Result<bool> keep(uint64_t key) override {
        if (!folder_) return false;
        if (keeps_name_) return true;
        std::string name = HostFolder::name_of(key);
        if (held_) {
            // Made by an earlier version, which kept the descriptor.
            if (!TRY(folder_->link(held_->fd.get(), name))) return false;
            folder_->add(slot_, std::exchange(held_, nullptr));
        } else if (auto renamed = folder_->rename(name_, name); !renamed) {
            held_ = TRY(use());  // its descriptor must be kept
            return false;
        }
        name_ = std::move(name);
        keeps_name_ = true;
        return true;
    }
    int held_fd() const override { return held_ ? held_->fd.get() : -1; }
    void discard() override { keeps_name_ = false; }

    Result<FileStatus> status() override {
        const struct stat now = TRY(stat_now());
        auto allocated = static_cast<uint64_t>(now.st_blocks) * 512;
        set_size(static_cast<uint64_t>(now.st_size));
        charge(allocated);
        return FileStatus{static_cast<uint64_t>(now.st_size), allocated, to_ns(now.st_atim), to_ns(now.st_mtim)};
    }
    Status resize(uint64_t size_bytes) override {
        auto file = TRY(use());
        auto old = static_cast<uint64_t>(TRY(stat_now()).st_size);
        if (size_bytes > old) {
            TRY(allocate(0, old, size_bytes - old));
        } else if (ftruncate(file->fd.get(), static_cast<off_t>(size_bytes)) != 0) {
            return fail_errno("cannot size host memory");
        }
        TRY(status());
        return {};
    }
    Result<std::shared_ptr<Mapping>> mapping() override {
        auto file = TRY(use());
        MutexLock lock(file->mutex);
        uint64_t needed = size();
        if (!file->mapping || file->mapping->size() < needed) {
            // Maps twice the size, so that a growing file is not remapped every time.
            auto bytes = std::max<uint64_t>(2 * needed, 1 << 20);
            file->mapping = std::make_shared<Mapping>(TRY(Mapping::create(file->fd.get(), bytes, true)));
        }
        return file->mapping;
    }
    Status set_times(int64_t accessed_ns, int64_t modified_ns) override {
        const timespec times[2] = {to_timespec(accessed_ns), to_timespec(modified_ns)};
        if (!held_) return folder_->set_times(name_, times);
        if (futimens(held_->fd.get(), times) != 0) return fail_errno("futimens");
        return {};
    }
    Status allocate(int mode, uint64_t offset, uint64_t bytes) override {
        auto file = TRY(use());
        bool grows = (mode & FALLOC_FL_PUNCH_HOLE) == 0;
        // Reserved in advance, so that a request that does not fit fails without using the remaining bytes.
        if (grows && budget_ && !has_room_for(offset, bytes)) return fail(ENOSPC, "host is full");
        while (fallocate(file->fd.get(), mode, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0) {
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
    Result<std::shared_ptr<OpenHostFile>> use() const {
        if (held_) return held_;
        return folder_->use(slot_, name_);
    }
    Result<struct stat> stat_now() const {
        if (!held_) return folder_->stat(name_);
        struct stat now = {};
        if (fstat(held_->fd.get(), &now) != 0) return fail_errno("fstat of host memory");
        return now;
    }
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

    const std::shared_ptr<HostFolder> folder_;  // null: a memfd
    // These change before the extent is shared between threads, and when it is freed.
    std::string name_;                    // in the folder; empty: none
    bool keeps_name_ = false;             // the name outlives this object
    std::shared_ptr<OpenHostFile> held_;  // of a file that only its descriptor keeps alive; null: its name does
    mutable HostFolder::Slot slot_;
    const std::shared_ptr<Budget> all_files_;  // the bytes of all files of the device
    std::mutex mutex_;                         // guards all below
    uint64_t allocated_ = 0;                   // in all_files_
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

namespace {

// 0: unknown.
uint64_t half_of_memory() {
    struct sysinfo machine = {};
    if (sysinfo(&machine) != 0) return 0;
    return uint64_t{machine.totalram} * machine.mem_unit / 2;
}

}  // namespace

Result<std::unique_ptr<HostDevice>> HostDevice::create(uint64_t capacity_bytes) {
    std::unique_ptr<HostDevice> device(new HostDevice);
    if (capacity_bytes == 0) {
        capacity_bytes = half_of_memory();
        if (capacity_bytes == 0) return fail_errno("sysinfo");
    }
    device->set_bound(capacity_bytes);
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
        auto file = TRY(make_file());
        if (size_bytes > 0) TRY(file->file()->resize(size_bytes));
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
        auto file = std::make_unique<HostFile>(folder_now(), std::move(fd), files_);
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

Result<std::unique_ptr<Extent>> HostDevice::restore_file(uint64_t key) {
    auto folder = folder_now();
    if (!folder) return fail(ENOENT, "there is no folder of host files");
    auto file = std::make_unique<HostFile>(std::move(folder), HostFolder::name_of(key), true, files_);
    TRY(file->status());
    return file;
}

std::shared_ptr<HostFolder> HostDevice::folder_now() {
    MutexLock lock(mutex_);
    return folder_;
}

std::optional<int> HostDevice::folder() {
    auto folder = folder_now();
    if (!folder) return std::nullopt;
    return folder->fd();
}

Status HostDevice::adopt_folder(UniqueFd folder) {
    auto adopted = TRY(HostFolder::adopt(std::move(folder)));
    MutexLock lock(mutex_);
    folder_tried_ = true;
    adopted->set_size(bound_bytes_);  // the bound of the earlier process may differ
    folder_ = std::move(adopted);
    return {};
}

uint64_t HostDevice::set_bound(uint64_t limit_bytes) {
    if (limit_bytes == 0) limit_bytes = half_of_memory();
    MutexLock lock(mutex_);
    bound_bytes_ = limit_bytes;
    if (folder_) folder_->set_size(limit_bytes);
    return limit_bytes;
}

void HostDevice::remove_files(const std::function<bool(uint64_t key)>& is_used) {
    if (auto folder = folder_now()) folder->clean(is_used);
}

uint64_t HostDevice::unaccounted_bytes() {
    auto folder = folder_now();
    const uint64_t used = folder ? folder->used_bytes() : 0;
    return used - std::min(used, files_->used());
}

Result<std::unique_ptr<Extent>> HostDevice::make_file() {
    std::shared_ptr<HostFolder> folder;
    {
        MutexLock lock(mutex_);
        if (!folder_tried_) {
            folder_tried_ = true;
            if (auto made = HostFolder::create(bound_bytes_)) folder_ = std::move(*made);
        }
        folder = folder_;
    }
    if (folder) {
        auto made = TRY(folder->make());
        auto file = std::make_unique<HostFile>(std::move(folder), std::move(made.name), false, files_);
        file->add_opened(std::move(made.fd));
        return file;
    }
    auto fd = UniqueFd::adopt(memfd_create("gshm", MFD_CLOEXEC));
    if (!fd || fchmod(fd.get(), 0600) != 0) return fail_errno("cannot make a shared-memory file");
    return std::make_unique<HostFile>(nullptr, std::move(fd), files_);
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
