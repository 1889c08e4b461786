#include "fuse/mount_point.h"

#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <linux/openat2.h>
#include <spawn.h>
#include <sstream>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "base/descriptors.h"
#include "base/log.h"

extern char** environ;

namespace gshm::core::fuse {
namespace {

struct Mounted {
    std::string id;
    std::string device;  // major:minor
    std::string root;    // the directory of the file system that is mounted
    std::string place;
    std::string options;
    std::string type;
    std::string source;

    bool is_gshm() const { return type == "fuse.gshm"; }
};

void unescape(std::string& text) {
    for (size_t at = 0; (at = text.find('\\', at)) != std::string::npos; ++at) {
        if (at + 3 < text.size())
            text.replace(at, 4, 1, static_cast<char>(std::stoi(text.substr(at + 1, 3), nullptr, 8)));
    }
}

std::vector<Mounted> all_mounts() {
    std::ifstream mounts("/proc/self/mountinfo");
    std::vector<Mounted> all;
    for (std::string line; std::getline(mounts, line);) {
        // id parent major:minor root mount-point options... - type source options
        std::istringstream words(line);
        std::string word;
        Mounted found;
        words >> found.id >> word >> found.device >> found.root >> found.place >> found.options;
        while (words >> word && word != "-") {}
        words >> found.type >> found.source;
        for (auto* text : {&found.root, &found.place, &found.source}) unescape(*text);
        all.push_back(std::move(found));
    }
    return all;
}

// The topmost mount at exactly that path; empty: none.
Mounted mounted_at(const std::string& path) {
    Mounted found;
    for (auto& mounted : all_mounts()) {
        if (mounted.place == path) found = std::move(mounted);  // the last one is on top
    }
    return found;
}

MountOptions options_of(const Mounted& mounted) {
    MountOptions options{.source = mounted.source};
    options.read_only = mounted.options == "ro" || mounted.options.starts_with("ro,");
    if (mounted.root.size() > 1) options.subdirectory = mounted.root.substr(1);
    return options;
}

// Runs fusermount3. Its output is the error.
Status run_fusermount(const std::vector<std::string>& arguments, int comm_fd) {
    std::vector<std::string> words{"fusermount3"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    std::string comm = fmt::format("_FUSE_COMMFD={}", comm_fd);
    std::vector<char*> env;
    for (char** entry = environ; *entry != nullptr; ++entry) env.push_back(*entry);
    if (comm_fd >= 0) env.push_back(comm.data());
    env.push_back(nullptr);

    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return fail_errno("pipe");
    auto reader = UniqueFd::adopt(ends[0]);
    auto writer = UniqueFd::adopt(ends[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, writer.get(), 2);
    // A dup onto itself clears close-on-exec.
    if (comm_fd >= 0) posix_spawn_file_actions_adddup2(&actions, comm_fd, comm_fd);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    pid_t child = -1;
    int failed = posix_spawnp(&child, "fusermount3", &actions, &attributes, argv.data(), env.data());
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    writer.reset();
    if (failed != 0) {
        return fail(failed, "cannot run fusermount3, which mounts for users other than root (package fuse3): {}",
                    strerror(failed));
    }
    std::string error_text;
    char buffer[256];
    ssize_t got = 0;
    while ((got = ::read(reader.get(), buffer, sizeof buffer)) > 0) error_text.append(buffer, static_cast<size_t>(got));
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
    while (error_text.ends_with('\n')) error_text.pop_back();
    bool busy = error_text.find("busy") != std::string::npos;
    if (error_text.find("/dev/fuse") != std::string::npos) {
        error_text += "; users other than root need the device file: `chmod 666 /dev/fuse` by root, and in a container "
                      "`--device /dev/fuse` at its start";
    }
    return fail(busy ? EBUSY : EIO, "{}", error_text.empty() ? "fusermount3 failed" : error_text);
}

Result<UniqueFd> receive_fd(int socket) {
    char byte = 0;
    iovec part{&byte, 1};
    Descriptors<1> space;
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    space.prepare(message);
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) <= 0)
        return gshm::core::fail(EIO, "fusermount3 sent no descriptor");
    UniqueFd received;
    space.for_each(message, [&](int fd) { received = UniqueFd::adopt(fd); });
    if (!received) return gshm::core::fail(EIO, "fusermount3 sent no descriptor");
    return received;
}

Result<UniqueFd> open_fuse() {
    auto fd = UniqueFd::adopt(open("/dev/fuse", O_RDWR | O_CLOEXEC));
    if (!fd) return fail(errno, "cannot open /dev/fuse: {} (modprobe fuse?)", strerror(errno));
    return fd;
}

Result<UniqueFd> mount_as_root(const std::string& path, const std::string& source) {
    auto fd = TRY(open_fuse());
    // The kernel checks the rights of every user, by the owners and modes that gshmd reports.
    std::string options =
        fmt::format("fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions", fd.get());
    if (mount(source.c_str(), path.c_str(), "fuse.gshm", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
        return fail(errno, "cannot mount at {}: {}", path, strerror(errno));
    }
    return fd;
}

// A mount without a place, with the options of mount_as_root(). If the descriptor already belongs to a file system, it is
// a further mount of that (Linux 5.15).
Result<UniqueFd> make_detached(int fd, const MountOptions& options) {
    auto context = UniqueFd::adopt(fsopen("fuse", FSOPEN_CLOEXEC));
    if (!context) return fail_errno("fsopen");
    const std::string number = std::to_string(fd);
    const std::pair<const char*, const char*> texts[] = {{"source", options.source.c_str()},
                                                         {"subtype", "gshm"},
                                                         {"fd", number.c_str()},
                                                         {"rootmode", "40000"},
                                                         {"user_id", "0"},
                                                         {"group_id", "0"}};
    for (const auto& [key, value] : texts) {
        if (fsconfig(context.get(), FSCONFIG_SET_STRING, key, value, 0) != 0)
            return fail(errno, "the kernel refuses {}={}: {}", key, value, strerror(errno));
    }
    for (const char* flag : {"allow_other", "default_permissions"}) {
        if (fsconfig(context.get(), FSCONFIG_SET_FLAG, flag, nullptr, 0) != 0) return fail_errno("fsconfig");
    }
    if (fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) {
        return fail(errno, "the kernel makes no further mount: {} (Linux 5.15 is needed)", strerror(errno));
    }
    const unsigned flags = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (options.read_only ? MOUNT_ATTR_RDONLY : 0u);
    auto made = UniqueFd::adopt(fsmount(context.get(), FSMOUNT_CLOEXEC, flags));
    if (!made) return fail_errno("fsmount");
    return made;
}

// A mount without a place of a directory of that mount. Links are not followed: they could lead out of it.
Result<UniqueFd> clone_below(int mount, const std::string& directory) {
    open_how how = {};
    how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV;
    auto at = UniqueFd::adopt(static_cast<int>(syscall(SYS_openat2, mount, directory.c_str(), &how, sizeof how)));
    if (!at) return fail(errno, "cannot mount the subdirectory \"{}\": {}", directory, strerror(errno));
    auto made = UniqueFd::adopt(open_tree(at.get(), "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH));
    if (!made) {
        return fail(errno, "cannot mount the subdirectory \"{}\": {}{}", directory, strerror(errno),
                    errno == EINVAL ? " (Linux 6.15 is needed)" : "");
    }
    return made;
}

// The text of an option of fusermount3, in which a comma or a backslash has one before it.
std::string escaped(const std::string& text) {
    std::string out;
    for (char c : text) {
        if (c == ',' || c == '\\') out += '\\';
        out += c;
    }
    return out;
}

Result<UniqueFd> mount_as_user(const std::string& path, const MountOptions& options) {
    if (!options.subdirectory.empty()) return fail(EOPNOTSUPP, "a subdirectory can be mounted by a gshmd of root only");
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return fail_errno("socketpair");
    auto ours = UniqueFd::adopt(ends[0]);
    auto theirs = UniqueFd::adopt(ends[1]);
    const std::string text = fmt::format("fsname={},subtype=gshm,default_permissions,nosuid,nodev{}",
                                         escaped(options.source), options.read_only ? ",ro" : "");
    TRY(run_fusermount({"-o", text, "--", path}, theirs.get()));
    theirs.reset();
    return receive_fd(ours.get());
}

// Removes the mounts of daemons that died. EBUSY: a daemon is mounted there.
Status make_free(const std::string& path) {
    struct stat status = {};
    // Stale mounts are stacked if several daemons died. ECONNABORTED: the daemon is dying now. AT_STATX_FORCE_SYNC,
    // since cached attributes do not show whether a daemon answers.
    auto is_stale = [&] {
        struct statx asked = {};
        return statx(AT_FDCWD, path.c_str(), AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &asked) != 0 &&
               (errno == ENOTCONN || errno == ECONNABORTED);
    };
    for (int i = 0; i < 16 && is_stale(); ++i) {
        const auto stale = MountPoint::find(path);
        if (!stale.is_mounted()) break;
        log_info("{} is the mount of a gshmd that died; taking it over", path);
        TRY(stale.unmount(true));
    }
    if (stat(path.c_str(), &status) != 0) {
        return fail(errno, "cannot mount at {}: {}{}", path, strerror(errno),
                    errno == ENOENT ? fmt::format(" (mkdir {})", path) : "");
    }
    if (!S_ISDIR(status.st_mode)) return fail(ENOTDIR, "cannot mount at {}: it is not a directory", path);
    if (mounted_at(path).is_gshm())
        return fail(EBUSY, "{} is already a mount of gshm, of this or of another gshmd", path);
    return {};
}

}  // namespace

Result<MountPoint> MountPoint::create(const std::string& path, const MountOptions& options, UniqueFd* ret_fd) {
    TRY(make_free(path));
    *ret_fd = TRY(geteuid() == 0 ? mount_as_root(path, options.source) : mount_as_user(path, options));
    return find(path);
}

Result<UniqueFd> MountPoint::create_detached(UniqueFd* ret_fd) {
    *ret_fd = TRY(open_fuse());
    return make_detached(ret_fd->get(), {});
}

Result<MountPoint> MountPoint::add(const std::string& path, const MountOptions& options, int fd) {
    if (geteuid() != 0) {
        return fail(EOPNOTSUPP, "cannot mount at {}: a gshmd that root has not started has one mount at a time", path);
    }
    TRY(make_free(path));
    UniqueFd made = TRY(make_detached(fd, options));
    if (!options.subdirectory.empty()) made = TRY(clone_below(made.get(), options.subdirectory));
    if (move_mount(made.get(), "", AT_FDCWD, path.c_str(), MOVE_MOUNT_F_EMPTY_PATH) != 0) {
        return fail(errno, "cannot mount at {}: {}", path, strerror(errno));
    }
    return find(path);
}

MountPoint MountPoint::find(const std::string& path) {
    Mounted there = mounted_at(path);
    if (!there.is_gshm()) return MountPoint(path, {});
    return MountPoint(path, there.id, there.device, options_of(there));
}

std::vector<MountPoint> MountPoint::all_of(const std::string& device) {
    std::vector<MountPoint> points;
    for (const auto& mounted : all_mounts()) {
        if (mounted.is_gshm() && mounted.device == device && !device.empty())
            points.push_back(MountPoint(mounted.place, mounted.id, mounted.device, options_of(mounted)));
    }
    return points;
}

Status MountPoint::unmount(bool lazily) const {
    if (id_.empty() || mounted_at(path_).id != id_) return {};
    if (geteuid() != 0) {
        return lazily ? run_fusermount({"-u", "-z", "--", path_}, -1) : run_fusermount({"-u", "--", path_}, -1);
    }
    if (umount2(path_.c_str(), lazily ? MNT_DETACH : 0) == 0) return {};
    if (errno == EBUSY)
        return fail(EBUSY, "{} is busy: files in it are open, or a process has its folder there", path_);
    return fail(errno, "cannot unmount {}: {}", path_, strerror(errno));
}

std::optional<MountPoint> MountPoint::from_note(const std::string& note) {
    const size_t end = note.find(' ');
    if (end == std::string::npos) return std::nullopt;
    MountPoint noted(note.substr(end + 1), note.substr(0, end));
    const Mounted there = mounted_at(noted.path_);
    if (!there.is_gshm() || there.id != noted.id_) return std::nullopt;
    return noted;
}

void MountPoint::give_up() const {
    log_info("{} is the mount of a gshmd that died; it is given up", path_);
    // Otherwise the mount ends with the last process that has its descriptor. That process may be blocked in the kernel
    // by another one that waits for an answer.
    const std::string device = mounted_at(path_).device;
    if (geteuid() == 0) (void)umount2(path_.c_str(), MNT_FORCE);
    else std::ofstream("/sys/fs/fuse/connections/" + device.substr(device.find(':') + 1) + "/abort") << "1";
    if (auto gone = unmount(true); !gone) log_warning("{}", gone.error().message);
}

}  // namespace gshm::core::fuse
