#include "hostile/scene.h"

#include <fstream>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/fd.h"
#include <gshm/gshm.h>

namespace gshm::core::hostile {
namespace {

// As on a machine where /run is small: an attack can fill it.
constexpr const char* kRuntimeFolderOptions = "size=256m,mode=0755";

uint64_t number_after(const std::string& path, const std::string& word) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with(word)) return std::stoull(line.substr(word.size()));
    }
    return 0;
}

// Files without numbers, which differ each time.
void add_descriptors_of(pid_t process, Holdings& holdings) {
    std::error_code failed;
    const std::filesystem::directory_iterator entries("/proc/" + std::to_string(process) + "/fd", failed);
    for (const auto& entry : entries) {
        std::string kind = std::filesystem::read_symlink(entry, failed).string();
        std::erase_if(kind, [](unsigned char c) { return isdigit(c); });
        ++holdings.descriptors;
        ++holdings.descriptor_kinds[kind];
    }
}

class RootClient {
public:
    RootClient(const std::string& dir, std::chrono::milliseconds patience) {
        gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
        options.dir = dir.c_str();
        options.timeout_ms = static_cast<int>(patience.count());
        if (gshm_connect(&options, &client_) != 0) client_ = nullptr;
    }
    ~RootClient() { gshm_disconnect(client_); }
    gshm_client* get() const { return client_; }

    // Removes what the attacker owns below the directory; false if one cannot be removed.
    bool remove_below(const std::string& directory) const {
        gshm_listing* listing = nullptr;
        if (gshm_list(client_, directory.c_str(), 0, &listing) != 0) return false;
        std::vector<std::string> names;
        for (size_t i = 0; i < gshm_listing_count(listing); ++i) {
            gshm_stat_info info = GSHM_STAT_INFO_INIT;
            gshm_listing_stat(listing, i, &info);
            const std::string name = (directory.empty() ? "" : directory + "/") + gshm_listing_name(listing, i);
            if (info.kind == GSHM_KIND_DIRECTORY) remove_below(name);
            if (info.uid == kAttacker && name != "at") names.push_back(name);
        }
        gshm_listing_free(listing);
        std::vector<const char*> texts;
        for (const auto& name : names) texts.push_back(name.c_str());
        std::vector<int> status(names.size());
        const int code = names.empty() ? 0 : gshm_unlink_batch(client_, texts.data(), texts.size(), status.data());
        return code == 0 || code == -ENOENT;  // directories go with their last entry
    }

private:
    gshm_client* client_ = nullptr;
};

}  // namespace

template <typename T>
SharedMemory<T>::SharedMemory() {
    void* memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    value_ = static_cast<T*>(memory);
}
template <typename T>
SharedMemory<T>::~SharedMemory() {
    munmap(value_, sizeof(T));
}
template class SharedMemory<Progress>;
template class SharedMemory<Observations>;

UserProcess::UserProcess(uid_t user, const std::function<void()>& body, const std::function<void()>& as_root) {
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ != 0) {
        setpgid(pid_, pid_);
        return;
    }
    setpgid(0, 0);
    unshare(CLONE_NEWNS);
    rlimit descriptors = {};
    getrlimit(RLIMIT_NOFILE, &descriptors);
    descriptors.rlim_cur = descriptors.rlim_max;
    setrlimit(RLIMIT_NOFILE, &descriptors);
    if (as_root) as_root();
    if (setgroups(0, nullptr) != 0 || setgid(user) != 0 || setuid(user) != 0) _exit(1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // cleared by setuid()
    if (getppid() != parent) _exit(1);
    signal(SIGPIPE, SIG_IGN);
    body();
    _exit(0);
}

bool UserProcess::running() {
    if (pid_ <= 0) return false;
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
    return pid_ > 0;
}

bool UserProcess::ends_within(std::chrono::milliseconds limit) {
    if (!running()) return true;
    const auto handle = UniqueFd::adopt(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
    pollfd end = {handle.get(), POLLIN, 0};
    (void)poll(&end, 1, static_cast<int>(limit.count()));
    return !running();
}

void UserProcess::wait() {
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    pid_ = -1;
}

void UserProcess::end() {
    if (pid_ <= 0) return;
    kill(-pid_, SIGKILL);
    while (waitpid(-pid_, nullptr, 0) > 0) continue;  // its children are then ours
    pid_ = -1;
}

std::string Scene::prepare_program() {
    if (geteuid() != 0) return "not root: other users are needed";
    if (unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
        return "no mount namespace of its own";
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);  // of processes that an attack leaves
    return {};
}

Scene::~Scene() {
    stop();
    if (!mount_.empty()) umount2(mount_.c_str(), MNT_DETACH);
    umount2(dir().c_str(), MNT_DETACH);
}

std::vector<std::string> Scene::arguments() const {
    std::vector<std::string> arguments = {"--device", "host:2G"};
    if (!mount_.empty()) arguments.insert(arguments.begin(), mount_);
    return arguments;
}

bool Scene::begin(bool mounted) {
    mkdir(dir().c_str(), 0755);
    if (::mount("tmpfs", dir().c_str(), "tmpfs", MS_NOSUID | MS_NODEV, kRuntimeFolderOptions) != 0) return false;
    if (mounted) {
        mount_ = scratch() + "/mnt";
        mkdir(mount_.c_str(), 0755);
    }
    for (const auto& [name, user] : {std::pair("at", kAttacker), std::pair("by", kBystander)}) {
        mkdir(folder_of(name).c_str(), 0700);
        if (chown(folder_of(name).c_str(), user, user) != 0) return false;
    }
    return start(arguments()) && make_directory("at", kAttacker, 0755) && make_directory("by", kBystander, 0755) &&
           make_directory("shared", 0, 01777);
}

bool Scene::restart() {
    kill();
    return start(arguments());
}

bool Scene::make_directory(const char* name, uid_t owner, uint32_t mode) {
    const RootClient client(dir(), patience_);
    gshm_make_spec spec = GSHM_MAKE_SPEC_INIT;
    spec.kind = GSHM_KIND_DIRECTORY;
    spec.name = name;
    spec.mode = mode;
    spec.flags = GSHM_MAKE_KEEP | GSHM_MAKE_OWNER;
    spec.uid = owner;
    spec.gid = owner;
    return client.get() != nullptr && gshm_make(client.get(), &spec) == 0;
}

bool Scene::remove_names_of_attacker() const {
    const RootClient client(dir(), patience_);
    return client.get() != nullptr && client.remove_below("");
}

bool Scene::serves_root() const {
    const RootClient client(dir(), patience_);
    gshm_listing* listing = nullptr;
    const bool served = client.get() != nullptr && gshm_list(client.get(), "by", 0, &listing) == 0;
    gshm_listing_free(listing);
    return served;
}

uint64_t Scene::memory_kib() const {
    return number_after("/proc/" + std::to_string(pid()) + "/status", "RssAnon:");
}

std::string Holdings::descriptors_beyond(const Holdings& other) const {
    std::string text;
    for (const auto& [kind, count] : descriptor_kinds) {
        const auto found = other.descriptor_kinds.find(kind);
        const uint64_t there = found == other.descriptor_kinds.end() ? 0 : found->second;
        if (count > there) text += (text.empty() ? "" : ", ") + std::to_string(count - there) + " " + kind;
    }
    return text;
}

Holdings Scene::holdings() const {
    Holdings now;
    now.memory_kib = memory_kib();
    // Before this program connects: a session ends a moment later.
    add_descriptors_of(pid(), now);
    add_descriptors_of(keeper_pid(), now);
    std::error_code failed;
    for (const auto& entry : std::filesystem::directory_iterator(dir(), failed)) {
        ++now.files;
        if (entry.is_regular_file(failed)) now.file_kib += entry.file_size(failed) / 1024;
    }
    now.log_kib = log().size() / 1024;
    const RootClient client(dir(), patience_);
    gshm_daemon_info info = GSHM_DAEMON_INFO_INIT;
    if (client.get() != nullptr && gshm_daemon(client.get(), &info) == 0) now.objects = info.objects;
    return now;
}

}  // namespace gshm::core::hostile
