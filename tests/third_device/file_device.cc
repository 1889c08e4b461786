#include "third_device/file_device.h"

#include <fcntl.h>
#include <filesystem>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "device/copier.h"

namespace gshm::core::test {
namespace {

// ---- addresses: reserved, so that nothing else has them, and of no use to the CPU ----

class Addresses {
public:
    static Result<Addresses> reserve(uint64_t bytes) {
        void* begin = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (begin == MAP_FAILED) return fail_errno("cannot reserve addresses");
        return Addresses(begin, bytes);
    }
    Addresses(Addresses&& other) noexcept : begin_(std::exchange(other.begin_, nullptr)), bytes_(other.bytes_) {}
    Addresses& operator=(Addresses&&) = delete;
    ~Addresses() {
        if (begin_ != nullptr) munmap(begin_, bytes_);
    }
    uint64_t begin() const { return reinterpret_cast<uint64_t>(begin_); }

private:
    Addresses(void* begin, uint64_t bytes) : begin_(begin), bytes_(bytes) {}
    void* begin_;
    uint64_t bytes_;
};

// ---- memory ----

// The copier is for the file engines, which know addresses. A device with queues would return at once and call `done`
// from a thread of its own; for this one the kernel's page cache is quick enough.
class FileExtent final : public Extent, private Copier {
public:
    FileExtent(UniqueFd fd, Addresses addresses, uint64_t size, Access access, bool imported)
        : Extent(addresses.begin(), size),
          addresses_(std::move(addresses)),
          fd_(std::move(fd)),
          access_(access),
          imported_(imported) {}

    Status copy_in(uint64_t offset, std::span<const std::byte> source) override {
        TRY(check_range(offset, source.size()));
        TRY(check_writable());
        return for_all(source, offset,
                       [this](auto piece, off_t at) { return pwrite(fd_.get(), piece.data(), piece.size(), at); });
    }
    Status copy_out(uint64_t offset, std::span<std::byte> destination) const override {
        TRY(check_range(offset, destination.size()));
        return for_all(destination, offset,
                       [this](auto piece, off_t at) { return pread(fd_.get(), piece.data(), piece.size(), at); });
    }
    Status fill(uint64_t offset, uint64_t bytes, uint8_t value) override {
        TRY(check_range(offset, bytes));
        TRY(check_writable());
        const std::vector<std::byte> pattern(std::min<uint64_t>(bytes, 1 << 20), std::byte{value});
        for (uint64_t done = 0; done < bytes; done += pattern.size()) {
            TRY(copy_in(offset + done, std::span(pattern).first(std::min<uint64_t>(pattern.size(), bytes - done))));
        }
        return {};
    }
    bool is_host_memory() const override { return false; }
    gshm::core::Copier* copier() override { return this; }
    Result<int> descriptor(Access access) override {
        if (imported_) return kept_descriptor();
        if (access == Access::write) return fd_.get();
        if (!read_only_) {
            // The file belongs to its creator with mode 0600: a process with only this descriptor cannot open it for
            // writing.
            read_only_ =
                UniqueFd::adopt(open(fmt::format("/proc/self/fd/{}", fd_.get()).c_str(), O_RDONLY | O_CLOEXEC));
            if (!read_only_) return fail_errno("cannot open the file again");
        }
        return read_only_.get();
    }

private:
    void copy_in(uint64_t address, const std::byte* source, size_t bytes, Done done) override {
        done(copy_in(address - this->address(), {source, bytes}));
    }
    void copy_out(std::byte* destination, uint64_t address, size_t bytes, Done done) override {
        done(copy_out(address - this->address(), {destination, bytes}));
    }
    void fill(uint64_t address, size_t bytes, uint8_t value, Done done) override {
        done(fill(address - this->address(), bytes, value));
    }
    Status check_writable() const {
        if (access_ == Access::read) return fail(EACCES, "this memory was opened for reading only");
        return {};
    }
    template <typename Span, typename Move>
    static Status for_all(Span bytes, uint64_t offset, Move&& move) {
        while (!bytes.empty()) {
            ssize_t moved = move(bytes, static_cast<off_t>(offset));
            if (moved < 0 && errno == EINTR) continue;
            if (moved < 0) return fail_errno("cannot reach the file");
            if (moved == 0) return fail(EIO, "the file was made shorter");
            bytes = bytes.subspan(static_cast<size_t>(moved));
            offset += static_cast<uint64_t>(moved);
        }
        return {};
    }

    Addresses addresses_;
    UniqueFd fd_;
    UniqueFd read_only_;
    Access access_;
    bool imported_;
};

// ---- the kind: how it is named and found ----

Result<OpenedDevices> open_folder(std::string_view which, uint64_t limit_bytes) {
    if (which.empty()) return fail(EINVAL, "a folder must be named");
    OpenedDevices opened;
    // A new gshmd knows the name of a device before it knows its options.
    if (which.find('/') == which.npos) {
        opened.devices.push_back(
            FileDevice::create_foreign(fmt::format("file:{}", which), fmt::format("FILE-{}", which)));
    } else {
        opened.devices.push_back(TRY(FileDevice::create(std::string(which), limit_bytes)));
    }
    return opened;
}

const DeviceKind kFileKind = {
    .name = "file",
    .examples = "file:/mnt/nvme, file:/mnt/nvme:40G",
    .selects = true,
    .open = open_folder,
    .open_foreign = [](std::string_view name, std::string_view uuid) -> Result<std::unique_ptr<Device>> {
        return FileDevice::create_foreign(name, uuid);
    },
};

[[maybe_unused]] const bool registered = (add_device_kind(kFileKind), true);

}  // namespace

// ---- the device ----

Result<std::unique_ptr<FileDevice>> FileDevice::create(const std::string& folder, uint64_t capacity_bytes) {
    const auto path = std::filesystem::path(folder);
    std::string name = "file:" + (path.has_filename() ? path : path.parent_path()).filename().string();
    constexpr size_t kNameBytes = 15;  // the capacity of gshm_device_info
    if (!path.is_absolute()) return fail(EINVAL, "{} is not an absolute path", folder);
    if (name.size() > kNameBytes) return fail(ENAMETOOLONG, "the last part of {} has more than 10 bytes", folder);
    std::unique_ptr<FileDevice> made(new FileDevice);
    made->folder_ = UniqueFd::adopt(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!made->folder_) return fail_errno(folder.c_str());
    struct stat status = {};
    struct statvfs space = {};
    if (fstat(made->folder_.get(), &status) != 0 || statvfs(folder.c_str(), &space) != 0)
        return fail_errno(folder.c_str());
    made->info_ = DeviceInfo{
        .name = name,
        .uuid = fmt::format("FILE-{:x}-{:x}", status.st_dev, status.st_ino),
        .model = "files in a folder",
        .capacity_bytes = capacity_bytes != 0 ? capacity_bytes : uint64_t{space.f_bavail} * space.f_frsize,
        .granularity_bytes = 64 << 10,
        .handle_kinds = kHandlePosixFd,
    };
    return made;
}

std::unique_ptr<FileDevice> FileDevice::create_foreign(std::string_view name, std::string_view uuid) {
    std::unique_ptr<FileDevice> made(new FileDevice);
    made->info_ = DeviceInfo{
        .name = std::string(name),
        .uuid = std::string(uuid),
        .model = "files of another process",
        .granularity_bytes = 64 << 10,
        .handle_kinds = kHandlePosixFd,
    };
    return made;
}

Status FileDevice::start() {
    if (folder_) return {};
    return fail(ENODEV, "{} has no folder: name it, as in --device file:/mnt/nvme", info_.name);
}

Result<std::unique_ptr<Extent>> FileDevice::allocate(uint64_t size_bytes, const AllocateOptions& options) {
    if (options.compressible) return fail(EOPNOTSUPP, "{} has no compressible memory", info_.name);
    TRY(start());
    auto fd = UniqueFd::adopt(openat(folder_.get(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (!fd) return fail_errno("cannot make a file for memory");
    // Now, not when the bytes are written, when the space may be gone. New blocks of a file are zero.
    if (int error = posix_fallocate(fd.get(), 0, static_cast<off_t>(size_bytes)); error != 0) {
        return fail_errno("no room for memory", error);
    }
    return restore(std::move(fd), size_bytes, options, nullptr);
}

Result<std::unique_ptr<Extent>> FileDevice::restore(UniqueFd fd, uint64_t size_bytes, const AllocateOptions&,
                                                    const FabricHandle*) {
    auto addresses = TRY(Addresses::reserve(size_bytes));
    return std::make_unique<FileExtent>(std::move(fd), std::move(addresses), size_bytes, Access::write, false);
}

Result<std::unique_ptr<Extent>> FileDevice::import_fd(int fd, uint64_t size_bytes, Access access) {
    struct stat status = {};
    if (fstat(fd, &status) != 0) return fail_errno("cannot import a file");
    if (!S_ISREG(status.st_mode) || size_bytes == 0 || static_cast<uint64_t>(status.st_size) < size_bytes) {
        return fail(EINVAL, "the descriptor is not memory of {} bytes", size_bytes);
    }
    auto addresses = TRY(Addresses::reserve(size_bytes));
    return std::make_unique<FileExtent>(TRY(UniqueFd::clone(fd)), std::move(addresses), size_bytes, access, true);
}

Result<std::unique_ptr<Extent>> FileDevice::import_dmabuf(int, uint64_t, Access) {
    return fail(EOPNOTSUPP, "{} has no dma-bufs", info_.name);
}

Result<std::unique_ptr<Extent>> FileDevice::import_fabric(const FabricHandle&, uint64_t, Access) {
    return fail(EOPNOTSUPP, "{} has no fabric handles", info_.name);
}

}  // namespace gshm::core::test
