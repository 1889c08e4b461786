#include "files.h"

#include <fcntl.h>
#include <shared_mutex>
#include <sys/stat.h>
#include <unistd.h>
#include <unordered_map>

namespace gshm::usrbio {

struct FileTable::State {
    mutable std::shared_mutex mutex;
    std::unordered_map<int, std::shared_ptr<RegisteredFile>> files;  // each under both of its numbers
};

Result<std::shared_ptr<RegisteredFile>> RegisteredFile::create(int fd, int least) {
    struct stat status = {};
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fstat(fd, &status) != 0) return Error{EBADF, fmt::format("{} is not open", fd)};
    if ((!S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode)) || (flags & O_PATH) != 0) {
        return Error{EBADF, fmt::format("{} is neither a regular file nor a block device", fd)};
    }
    auto copy = UniqueFd::adopt(fcntl(fd, F_DUPFD_CLOEXEC, least));
    if (!copy) return Error{errno, "cannot duplicate a descriptor"};
    return std::shared_ptr<RegisteredFile>(new RegisteredFile(std::move(copy), fd, flags));
}

bool RegisteredFile::is_readable() const {
    return (flags_ & O_ACCMODE) != O_WRONLY;
}

bool RegisteredFile::is_writable() const {
    return (flags_ & O_ACCMODE) != O_RDONLY;
}

bool RegisteredFile::has_hole(uint64_t offset, uint64_t bytes) {
    std::call_once(once_, [&] {
        probe_ = UniqueFd::adopt(open(fmt::format("/proc/self/fd/{}", fd_.get()).c_str(), O_RDONLY | O_CLOEXEC));
    });
    const off_t hole = lseek(probe_.get(), static_cast<off_t>(offset), SEEK_HOLE);
    return hole >= 0 && static_cast<uint64_t>(hole) < offset + bytes;
}

FileTable& FileTable::instance() {
    static auto* table = new FileTable;
    return *table;
}

FileTable::FileTable() : state_(new State) {}

Result<int> FileTable::add(int fd) {
    std::unique_lock lock(state_->mutex);
    auto& files = state_->files;
    // Also if the program has closed that file and another has its number: it must deregister it first.
    if (files.contains(fd)) return Error{EINVAL, fmt::format("{} is registered already", fd)};
    auto file = TRY(RegisteredFile::create(fd, 3));
    while (files.contains(file->fd())) file = TRY(RegisteredFile::create(fd, file->fd() + 1));
    const int kept = file->fd();
    files.emplace(fd, file);
    files.emplace(kept, std::move(file));
    return kept;
}

void FileTable::remove(int fd) {
    std::shared_ptr<RegisteredFile> gone;  // closed after the lock is released
    std::unique_lock lock(state_->mutex);
    auto found = state_->files.find(fd);
    if (found == state_->files.end()) return;
    gone = found->second;
    state_->files.erase(gone->number());
    state_->files.erase(gone->fd());
    version_.fetch_add(1, std::memory_order_release);
    lock.unlock();
}

std::shared_ptr<RegisteredFile> FileTable::find(int fd) const {
    std::shared_lock lock(state_->mutex);
    auto found = state_->files.find(fd);
    return found != state_->files.end() ? found->second : nullptr;
}

}  // namespace gshm::usrbio
