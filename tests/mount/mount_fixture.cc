#include "mount/mount_fixture.h"

#include <fstream>
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include <gshm/gshm.h>

namespace gshm::core::test {
namespace {

// The whole program runs in a private mount namespace: its mounts end with it. There, users may open /dev/fuse (as on
// desktops; servers and containers often forbid it), and a tmpfs is the reference.
class OwnMounts : public ::testing::Environment {
public:
    void SetUp() override {
        if (geteuid() != 0 || unshare(CLONE_NEWNS) != 0) return;
        if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return;
        std::string pattern = "/tmp/gshm-standard-XXXXXX";
        if (mkdtemp(pattern.data()) == nullptr) return;
        folder_ = pattern;
        if (::mount("tmpfs", folder_.c_str(), "tmpfs", 0, nullptr) != 0) return;
        chmod(folder_.c_str(), 0755);
        std::string node = folder_ + "/fuse";
        if (mknod(node.c_str(), S_IFCHR | 0666, makedev(10, 229)) == 0 && chmod(node.c_str(), 0666) == 0) {
            ::mount(node.c_str(), "/dev/fuse", nullptr, MS_BIND, nullptr);
        }
        standard_ = folder_ + "/standard";
        mkdir(standard_.c_str(), 0777);
        chmod(standard_.c_str(), 01777);
    }
    void TearDown() override {
        if (folder_.empty()) return;
        umount2("/dev/fuse", MNT_DETACH);
        umount2(folder_.c_str(), MNT_DETACH);
        rmdir(folder_.c_str());
    }

    std::string standard_;

private:
    std::string folder_;
};

OwnMounts* const own_mounts =
    static_cast<OwnMounts*>(::testing::AddGlobalTestEnvironment(new OwnMounts));  // owned by Google Test

bool has_program(const std::string& name) {
    return std::system(("command -v " + name + " >/dev/null").c_str()) == 0;
}

}  // namespace

const std::string& standard_folder() {
    return own_mounts->standard_;
}

std::string name_of(Way way) {
    switch (way) {
        case Way::passthrough: return "passthrough";
        case Way::through: return "through";
        case Way::user: return "user";
        case Way::cuda: return "cuda";
    }
    return {};
}

MountFixture::MountFixture() : mount_(scratch() + "/mnt") {
    mkdir(mount_.c_str(), 0755);
}

MountFixture::~MountFixture() {
    stop();
    umount2(mount_.c_str(), MNT_DETACH);  // of a killed daemon
}

bool MountFixture::is_real_gpu() {
    return std::getenv("GSHM_TEST_GPU") != nullptr;
}

std::string MountFixture::missing_for(Way way) {
    if (access("/dev/fuse", R_OK | W_OK) != 0) return "there is no /dev/fuse that may be opened";
    if (geteuid() != 0) return "not root: mounting in a namespace of its own needs that";
    if (standard_folder().empty()) return "no mount namespace of its own, or no tmpfs in it";
    if (way == Way::user && !has_program("fusermount3")) return "there is no fusermount3 (package fuse3)";
    if (way == Way::user && access("/usr/bin/setpriv", X_OK) != 0) return "there is no setpriv (package util-linux)";
    return {};
}

bool MountFixture::start_mounted(Way way, const std::vector<std::string>& options,
                                 const std::vector<std::string>& further) {
    std::vector<std::string> args = {mount_};
    if (options.empty()) {
        args.insert(args.end(), {"--device", way == Way::cuda ? "cuda" : "host:512M"});
        if (way == Way::cuda) args.insert(args.end(), {"--device", "host:512M"});
    }
    if (way == Way::through) args.push_back("--no-passthrough");
    args.insert(args.end(), options.begin(), options.end());
    args.insert(args.end(), further.begin(), further.end());
    if (way == Way::user &&
        (chown(scratch().c_str(), kNobody, kNobody) != 0 || chown(mount_.c_str(), kNobody, kNobody) != 0)) {
        return false;
    }
    return start(args, environment_of(way), by(way));
}

std::vector<std::string> MountFixture::environment_of(Way way) {
    if (way != Way::cuda || is_real_gpu()) return {};
    auto env = fake_cuda_env(2);
    env.push_back("FAKECUDA_FABRIC=1");
    return env;
}

std::vector<std::string> MountFixture::by(Way way) {
    if (way != Way::user) return {};
    return {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
}

bool MountFixture::start_again(Way way, const std::vector<std::string>& options) {
    return start(options, environment_of(way), by(way));
}

bool MountFixture::take_over_mounted(Way way) {
    return take_over({}, environment_of(way), by(way));
}

std::string MountFixture::run_as(uid_t user, const std::function<std::string()>& body) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return "no pipe";
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        std::string said = "cannot become that user";
        bool became = user == 0 || (setgroups(0, nullptr) == 0 && setgid(user) == 0 && setuid(user) == 0);
        if (became) said = body();
        for (size_t done = 0; done < said.size();) {
            ssize_t put = write(ends[1], said.data() + done, said.size() - done);
            if (put <= 0) break;
            done += static_cast<size_t>(put);
        }
        _exit(0);
    }
    close(ends[1]);
    std::string said;
    char buffer[4096];
    ssize_t got = 0;
    while ((got = read(ends[0], buffer, sizeof buffer)) > 0) said.append(buffer, static_cast<size_t>(got));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status)) said += " [ended by a signal]";
    return said;
}

std::string MountFixture::read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

bool MountFixture::write_file(const std::string& path, const std::string& bytes, int flags) {
    int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (flags != 0 ? flags : O_TRUNC), 0644);
    if (fd < 0) return false;
    size_t done = 0;
    while (done < bytes.size()) {
        ssize_t put = write(fd, bytes.data() + done, bytes.size() - done);
        if (put <= 0) break;
        done += static_cast<size_t>(put);
    }
    int code = errno;
    close(fd);
    errno = code;
    return done == bytes.size();
}

std::string MountFixture::attribute(const std::string& path, const std::string& name) {
    std::string value(4096, '\0');
    ssize_t length = getxattr(path.c_str(), name.c_str(), value.data(), value.size());
    if (length < 0) return {};
    errno = 0;
    value.resize(static_cast<size_t>(length));
    return value;
}

int MountFixture::set_attribute(const std::string& path, const std::string& name, const std::string& value) {
    return setxattr(path.c_str(), name.c_str(), value.data(), value.size(), 0) == 0 ? 0 : errno;
}

bool MountFixture::is_mounted(const std::string& path) {
    std::ifstream mounts("/proc/self/mountinfo");
    for (std::string line; std::getline(mounts, line);) {
        if (line.find(" " + path + " ") != std::string::npos) return true;
    }
    return false;
}

uint64_t MountFixture::used_bytes() {
    gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
    const std::string folder = dir();
    options.dir = folder.c_str();
    gshm_client* client = nullptr;
    if (gshm_connect(&options, &client) != 0) return UINT64_MAX;
    gshm_device_info device = {};
    device.struct_size = sizeof device;
    size_t count = 0;
    gshm_devices(client, &device, 1, &count);
    gshm_disconnect(client);
    return device.used_bytes;
}

}  // namespace gshm::core::test
