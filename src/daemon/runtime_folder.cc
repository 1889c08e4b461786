#include "daemon/runtime_folder.h"

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/runtime_dir.h"
#include "wire/message.h"

namespace gshm {

Result<RuntimeFolder> RuntimeFolder::create(const std::string& dir) {
    std::error_code error;
    auto parent = std::filesystem::path(dir).parent_path();
    if (!parent.empty()) std::filesystem::create_directories(parent, error);
    // Root's daemon serves everyone; a user's own is nobody else's business.
    bool made = mkdir(dir.c_str(), geteuid() == 0 ? 0755 : 0700) == 0;
    if (!made && errno != EEXIST) return fail(errno, "cannot make the runtime folder {}: {}", dir, strerror(errno));

    // Whoever can put files there could have us trust a keeper or a catalog of theirs.
    struct stat status = {};
    if (lstat(dir.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
        return fail(ENOTDIR, "the runtime folder {} is not a folder", dir);
    }
    if (!made && (status.st_uid != geteuid() || (status.st_mode & 022) != 0)) {
        return fail(EPERM, "the runtime folder {} can be written to by others: choose another --dir, or make it your own "
                    "(chown, chmod go-w)", dir);
    }

    // Whatever the umask says: root's daemon is for all.
    if (made && geteuid() == 0) chmod(dir.c_str(), 0755);

    std::string path = dir + "/gshm.lock";
    UniqueFd lock;
    constexpr int kAttempts = 1000;
    for (int attempts = 0;;) {
        lock = UniqueFd::adopt(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
        if (!lock) return fail(errno, "cannot make {}: {}", path, strerror(errno));
        if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
            if (errno != EWOULDBLOCK) return fail(errno, "cannot lock {}: {}", path, strerror(errno));
            char pid[16] = {};
            [[maybe_unused]] ssize_t got = pread(lock.get(), pid, sizeof pid - 1, 0);
            // One that was killed while it started another process: that has the lock until it runs its own program.
            const int number = atoi(pid);
            if (number > 0 && kill(number, 0) != 0 && errno == ESRCH && ++attempts < kAttempts) {
                usleep(10'000);
                continue;
            }
            return fail(EBUSY, "gshmd is already running at {} (pid {}); end it with `gshm --dir {} shutdown`", dir, pid,
                        dir);
        }
        // A daemon that was just ending may have removed the file between open and lock: then this is nobody's lock.
        struct stat ours = {};
        struct stat there = {};
        bool same = fstat(lock.get(), &ours) == 0 && stat(path.c_str(), &there) == 0 && ours.st_ino == there.st_ino;
        if (same) break;
    }
    RuntimeFolder folder(dir, made, std::move(lock));
    TRY(folder.write_pid());
    return folder;
}

Result<RuntimeFolder> RuntimeFolder::adopt(const std::string& dir, UniqueFd lock) {
    RuntimeFolder folder(dir, true, std::move(lock));
    TRY(folder.write_pid());
    return folder;
}

Status RuntimeFolder::write_pid() const {
    std::string pid = std::to_string(getpid());
    if (ftruncate(lock_.get(), 0) != 0 || pwrite(lock_.get(), pid.data(), pid.size(), 0) < 0) {
        return fail(errno, "cannot write {}: {}", lock_path(), strerror(errno));
    }
    return {};
}

Result<UniqueFd> RuntimeFolder::listen() {
    std::string path = socket_path(dir_);
    unlink(path.c_str());  // a dead daemon's; a live one has the lock
    auto socket = TRY(wire::listen_at(path));
    if (chmod(path.c_str(), 0666) != 0) return fail(errno, "cannot open {} to others: {}", path, strerror(errno));
    return socket;
}

void RuntimeFolder::close() {
    unlink(socket_path(dir_).c_str());
    leave();
}

void RuntimeFolder::clean() {
    if (!lock_) return;
    unlink(socket_path(dir_).c_str());
    unlink(log_path().c_str());
    unlink(lock_path().c_str());
    if (made_) rmdir(dir_.c_str());
    lock_.reset();
}

}  // namespace gshm
