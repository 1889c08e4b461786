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
#include "base/safe_folder.h"
#include "daemon/folder_reserve.h"
#include "daemon/kept_config.h"
#include "daemon/process.h"
#include "fuse/iov_folder.h"
#include "http/server.h"
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
        // Another user who could open it could lock it, and no gshmd would start.
        auto lock = UniqueFd::adopt(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
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

constexpr FolderRole kRole = {"the runtime folder", "choose another --dir"};

}  // namespace

Status RuntimeFolder::check(const std::string& dir) {
    TRY(check_folders_above(dir, kRole, false));
    return access(dir.c_str(), F_OK) == 0 ? check_own_folder(dir, kRole) : Status{};
}

Result<RuntimeFolder> RuntimeFolder::create(const std::string& dir, const OnWait& on_wait) {
    TRY(check_folders_above(dir, kRole, true));
    // Root's daemon serves all users; that of another user serves only this user.
    bool made = mkdir(dir.c_str(), geteuid() == 0 ? 0755 : 0700) == 0;
    if (!made && errno != EEXIST) return fail(errno, "cannot make the runtime folder {}: {}", dir, strerror(errno));
    if (!made) TRY(check_own_folder(dir, kRole));
    // Independent of the umask.
    if (made && geteuid() == 0) chmod(dir.c_str(), 0755);

    RuntimeFolder folder(dir, made, TRY(take_lock(dir, on_wait)));
    FolderReserve::make_room(dir);
    TRY(folder.write_pid());
    return folder;
}

Result<RuntimeFolder> RuntimeFolder::adopt(const std::string& dir, UniqueFd lock) {
    RuntimeFolder folder(dir, true, std::move(lock));
    FolderReserve::make_room(dir);
    TRY(folder.write_pid());
    return folder;
}

Status RuntimeFolder::write_pid() const {
    std::string pid = std::to_string(getpid());
    // In a takeover another process has sent it: whatever else it may be stays as it is.
    struct stat status = {};
    if (fstat(lock_.get(), &status) != 0 || !S_ISREG(status.st_mode)) return fail(EINVAL, "{} is no file", lock_path());
    // Made by an older gshmd, it may be open to others.
    if (fchmod(lock_.get(), 0600) != 0 || ftruncate(lock_.get(), 0) != 0 ||
        pwrite(lock_.get(), pid.data(), pid.size(), 0) < 0) {
        return fail(errno, "cannot write {}: {}", lock_path(), strerror(errno));
    }
    return {};
}

Result<UniqueFd> RuntimeFolder::listen() {
    std::string path = socket_path(dir_);
    unlink(path.c_str());  // of a dead daemon: a running one would hold the lock
    return wire::listen_at(path, geteuid() == 0 ? 0666 : 0600);
}

Result<UniqueFd> RuntimeFolder::listen_for_metrics() const {
    const std::string path = metrics_socket_path(dir_);
    unlink(path.c_str());
    return http::listen_at_path(path, geteuid() == 0 ? 0666 : 0600);
}

void RuntimeFolder::close() {
    unlink(socket_path(dir_).c_str());
    unlink(metrics_socket_path(dir_).c_str());
    leave();
}

void RuntimeFolder::clean() {
    if (!lock_) return;
    unlink(socket_path(dir_).c_str());
    unlink(metrics_socket_path(dir_).c_str());
    unlink(log_path().c_str());
    unlink(lock_path().c_str());
    unlink(kept_config_path(dir_).c_str());
    std::error_code ignored;
    std::filesystem::remove_all(dir_ + "/" + fuse::IovFolder::kKeptName, ignored);
    if (made_) rmdir(dir_.c_str());
    lock_.reset();
}

}  // namespace gshm::core
