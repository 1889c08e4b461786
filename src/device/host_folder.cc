#include "device/host_folder.h"

#include <algorithm>
#include <charconv>
#include <dirent.h>
#include <fcntl.h>
#include <optional>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/log.h"

namespace gshm::core {
namespace {

// A detached mount: it has no path and ends with its last descriptor. within_size: huge pages for files that fill them,
// without cost for small files.
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

// Nothing: the name of a file that was never kept.
std::optional<uint64_t> key_of(std::string_view name) {
    uint64_t key = 0;
    const char* end = name.data() + name.size();
    auto [rest, error] = std::from_chars(name.data(), end, key);
    if (error != std::errc() || rest != end) return std::nullopt;
    return key;
}

}  // namespace

Result<std::shared_ptr<HostFolder>> HostFolder::create(uint64_t capacity_bytes) {
    return adopt(TRY(make_private_tmpfs(capacity_bytes)));
}

Result<std::shared_ptr<HostFolder>> HostFolder::adopt(UniqueFd folder) {
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, 0) != sizeof number) return fail_errno("getrandom");
    return std::shared_ptr<HostFolder>(new HostFolder(std::move(folder), fmt::format("new-{:016x}-", number)));
}

void HostFolder::set_size(uint64_t bytes) const {
    auto context = UniqueFd::adopt(fspick(fd(), "", FSPICK_CLOEXEC | FSPICK_EMPTY_PATH));
    if (!context) return;
    // The kernel refuses a size that is less than what is in use, which other processes may change meanwhile.
    constexpr int kTries = 4;
    for (int i = 0; i < kTries; ++i) {
        const std::string size = std::to_string(std::max(bytes, used_bytes()));
        if (fsconfig(context.get(), FSCONFIG_SET_STRING, "size", size.c_str(), 0) == 0 &&
            fsconfig(context.get(), FSCONFIG_CMD_RECONFIGURE, nullptr, nullptr, 0) == 0)
            return;
    }
    log_warning("the size of the private tmpfs of the device host cannot be set to {} bytes", bytes);
}

uint64_t HostFolder::used_bytes() const {
    struct statfs all = {};
    if (fstatfs(fd(), &all) != 0) return 0;
    return (all.f_blocks - all.f_bfree) * static_cast<uint64_t>(all.f_bsize);
}

Result<HostFolder::Made> HostFolder::make() {
    Made made;
    {
        MutexLock lock(mutex_);
        made.name = prefix_ + std::to_string(next_name_++);
    }
    made.fd = TRY(open(made.name, O_RDWR | O_CREAT | O_EXCL));
    return made;
}

std::string HostFolder::name_of(uint64_t key) {
    return std::to_string(key);
}

Status HostFolder::rename(const std::string& name, const std::string& new_name) const {
    if (renameat(fd(), name.c_str(), fd(), new_name.c_str()) != 0)
        return fail_errno("cannot name a shared-memory file");
    return {};
}

Result<bool> HostFolder::link(int file, const std::string& name) const {
    const std::string path = fmt::format("/proc/self/fd/{}", file);
    if (linkat(AT_FDCWD, path.c_str(), fd(), name.c_str(), AT_SYMLINK_FOLLOW) == 0 || errno == EEXIST) return true;
    if (errno == EXDEV) return false;
    return fail_errno("cannot name a shared-memory file");
}

void HostFolder::unlink(const std::string& name) const {
    (void)unlinkat(fd(), name.c_str(), 0);
}

Result<struct stat> HostFolder::stat(const std::string& name) const {
    struct stat status = {};
    if (fstatat(fd(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return fail_errno("stat of host memory");
    return status;
}

Status HostFolder::set_times(const std::string& name, const timespec (&times)[2]) const {
    if (utimensat(fd(), name.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0) return fail_errno("utimensat");
    return {};
}

Result<UniqueFd> HostFolder::open(const std::string& name, int access) {
    auto attempt = [&] { return UniqueFd::adopt(openat(fd(), name.c_str(), access | O_CLOEXEC | O_NOFOLLOW, 0600)); };
    auto opened = attempt();
    if (!opened && (errno == EMFILE || errno == ENFILE)) {
        // Those that are open for a later use make room.
        std::list<std::shared_ptr<OpenHostFile>> oldest;
        {
            MutexLock lock(mutex_);
            oldest = take_oldest(0);
        }
        oldest.clear();
        opened = attempt();
    }
    if (!opened) return fail_errno("cannot open a shared-memory file");
    return opened;
}

void HostFolder::clean(const std::function<bool(uint64_t key)>& is_used) const {
    DIR* listing = fdopendir(openat(fd(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (listing == nullptr) return;
    std::vector<std::string> unused;
    while (const dirent* entry = readdir(listing)) {
        if (entry->d_name[0] == '.') continue;
        auto key = key_of(entry->d_name);
        if (!key || !is_used(*key)) unused.emplace_back(entry->d_name);
    }
    closedir(listing);
    for (const auto& name : unused) unlink(name);
}

std::list<std::shared_ptr<OpenHostFile>> HostFolder::take_oldest(size_t most) {
    std::list<std::shared_ptr<OpenHostFile>> oldest;
    while (open_.size() > most) {
        oldest.push_back(std::move(open_.back()->file));
        open_.pop_back();
    }
    return oldest;
}

Result<std::shared_ptr<OpenHostFile>> HostFolder::use(Slot& slot, const std::string& name) {
    {
        MutexLock lock(mutex_);
        if (slot.file != nullptr) {
            open_.splice(open_.begin(), open_, slot.place);
            return slot.file;
        }
    }
    auto opened = std::make_shared<OpenHostFile>(TRY(open(name, O_RDWR)));
    add(slot, opened);
    return opened;
}

void HostFolder::add(Slot& slot, std::shared_ptr<OpenHostFile> file) {
    std::list<std::shared_ptr<OpenHostFile>> oldest;
    {
        MutexLock lock(mutex_);
        if (slot.file != nullptr) return;  // another thread has opened it
        slot.file = std::move(file);
        open_.push_front(&slot);
        slot.place = open_.begin();
        oldest = take_oldest(kMostOpen);
    }
}

void HostFolder::forget(Slot& slot) {
    std::shared_ptr<OpenHostFile> file;  // closed without the mutex
    MutexLock lock(mutex_);
    if (slot.file == nullptr) return;
    open_.erase(slot.place);
    file = std::move(slot.file);
}

}  // namespace gshm::core
