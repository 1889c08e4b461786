#include "daemon/runtime_folder.h"

#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/runtime_dir.h"
#include "daemon/process.h"
#include "wire/message.h"

namespace gshm::core {

namespace {

// Whether the process has the file open. True if its descriptors may not be listed.
bool has_open(pid_t pid, const struct stat& file) {
    std::error_code error;
    std::filesystem::directory_iterator entries(fmt::format("/proc/{}/fd", pid), error);
    if (error) return error == std::errc::permission_denied;
    for (const auto& entry : entries) {
        struct stat status = {};
        if (stat(entry.path().c_str(), &status) == 0 && status.st_ino == file.st_ino && status.st_dev == file.st_dev) {
            return true;
        }
    }
    return false;
}

// EBUSY: the process named in the lock file runs and has it open. Otherwise waits a while for the end of that process,
// or of another process that inherited the lock: if gshmd is killed while it starts a program, the lock is held until
// both are gone.
Status wait_for_lock(int lock, const std::string& dir, const RuntimeFolder::OnWait& on_wait, pid_t* last) {
    char text[16] = {};
    [[maybe_unused]] ssize_t got = pread(lock, text, sizeof text - 1, 0);
    const pid_t pid = atoi(text);
    struct stat file = {};
    // Read several times: between a pending SIGKILL and the exit a process looks alive for a moment.
    constexpr int kLooks = 3;
    constexpr int kStepMs = 10;
    auto state = ProcessState::living;
    for (int i = 0; i < kLooks && state == ProcessState::living; ++i) {
        if (i > 0) poll(nullptr, 0, kStepMs);
        state = process_state(pid);
        if (state == ProcessState::living && fstat(lock, &file) == 0 && !has_open(pid, file))
            state = ProcessState::gone;
    }
    if (pid > 0 && state == ProcessState::living) {
        return fail(EBUSY,
                    "gshmd is already running at {} (pid {}). `gshmd --takeover` takes its place and keeps all it has; "
                    "`gshm --dir {} "
                    "shutdown` ends it and frees its memory",
                    dir, pid, dir);
    }
    if (std::exchange(*last, pid) != pid) {
        on_wait(pid > 0 ? fmt::format("waiting for pid {}, which is ending", pid)
                        : fmt::format(
                              "waiting for the lock of {}, which another gshmd is about to take or to give back", dir));
    }
    auto ending = UniqueFd::adopt(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    pollfd end{ending.get(), POLLIN, 0};
    // The end of the process ends the wait. The timeout lets the caller see a living process that has taken the lock.
    constexpr int kLookAgainMs = 100;
    poll(&end, 1, ending && state == ProcessState::dying ? kLookAgainMs : kStepMs);
    return {};
}

Result<UniqueFd> take_lock(const std::string& dir, const RuntimeFolder::OnWait& on_wait) {
    const std::string path = dir + "/gshm.lock";
    pid_t last = -1;
    for (;;) {
        auto lock = UniqueFd::adopt(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
        if (!lock) return fail(errno, "cannot make {}: {}", path, strerror(errno));
        if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
            if (errno != EWOULDBLOCK) return fail(errno, "cannot lock {}: {}", path, strerror(errno));
            TRY(wait_for_lock(lock.get(), dir, on_wait, &last));
            continue;
        }
        // An ending daemon may have removed the file between open and lock; a lock on the removed file has no
        // effect.
        struct stat ours = {};
        struct stat there = {};
        bool same = fstat(lock.get(), &ours) == 0 && stat(path.c_str(), &there) == 0 && ours.st_ino == there.st_ino;
        if (same) return lock;
    }
}

}  // namespace

Result<RuntimeFolder> RuntimeFolder::create(const std::string& dir, const OnWait& on_wait) {
    std::error_code error;
    auto parent = std::filesystem::path(dir).parent_path();
    if (!parent.empty()) std::filesystem::create_directories(parent, error);
    // Root's daemon serves all users; that of another user serves only this user.
    bool made = mkdir(dir.c_str(), geteuid() == 0 ? 0755 : 0700) == 0;
    if (!made && errno != EEXIST) return fail(errno, "cannot make the runtime folder {}: {}", dir, strerror(errno));

    // A user who can create files there could make gshmd trust a false keeper or catalog.
    struct stat status = {};
    if (lstat(dir.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
        return fail(ENOTDIR, "the runtime folder {} is not a folder", dir);
    }
    if (!made && (status.st_uid != geteuid() || (status.st_mode & 022) != 0)) {
        return fail(EPERM,
                    "the runtime folder {} can be written to by others: choose another --dir, or make it your own "
                    "(chown, chmod go-w)",
                    dir);
    }

    // Independent of the umask.
    if (made && geteuid() == 0) chmod(dir.c_str(), 0755);

    RuntimeFolder folder(dir, made, TRY(take_lock(dir, on_wait)));
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
    unlink(path.c_str());  // of a dead daemon: a running one would hold the lock
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

}  // namespace gshm::core
