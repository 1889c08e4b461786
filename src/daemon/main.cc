// gshmd: option parsing, going to the background, signals; the rest is Server.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/size.h"
#include "daemon/command_line.h"
#include "daemon/configuration.h"
#include "daemon/kept_config.h"
#include "daemon/metrics_listeners.h"
#include "daemon/runtime_folder.h"
#include "daemon/server.h"
#include "daemon/takeover.h"
#include "daemon/tier_specs.h"
#include "fuse/mount_point.h"
#include "fuse/notices.h"
#include "wire/version.h"

namespace gshm::core {
namespace {

// Every extent and every client takes a descriptor. Root may raise the limit to fs.nr_open.
void raise_descriptor_limit() {
    rlimit limit = {};
    getrlimit(RLIMIT_NOFILE, &limit);
    rlim_t most = 0;
    std::ifstream("/proc/sys/fs/nr_open") >> most;
    rlimit wanted = {most, most};
    if (most <= limit.rlim_max || setrlimit(RLIMIT_NOFILE, &wanted) != 0) {
        wanted = {limit.rlim_max, limit.rlim_max};
        setrlimit(RLIMIT_NOFILE, &wanted);
    }
    getrlimit(RLIMIT_NOFILE, &limit);
    log_info("descriptor limit: {}", limit.rlim_cur);
}

// What there is for all users.
Budgets::Machine machine_of(const std::string& dir) {
    Budgets::Machine machine;
    rlimit descriptors = {};
    getrlimit(RLIMIT_NOFILE, &descriptors);
    machine.descriptors = descriptors.rlim_cur;
    machine.memory_bytes =
        static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    if (uint64_t of_container = 0; std::ifstream("/sys/fs/cgroup/memory.max") >> of_container) {
        machine.memory_bytes = std::min(machine.memory_bytes, of_container);
    }
    struct statvfs space = {};
    if (statvfs(dir.c_str(), &space) == 0) machine.folder_bytes = uint64_t{space.f_bavail} * space.f_frsize;
    for (const auto& file : Survival::files(dir)) {
        struct stat status = {};
        if (stat(file.c_str(), &status) == 0) machine.folder_bytes += static_cast<uint64_t>(status.st_size);
    }
    return machine;
}

// A limit of host memory that is none: the kernel would end processes first.
void warn_of_memory(const DeviceSet& devices, const Options& options, uint64_t memory_bytes) {
    const auto warn = [&](const char* option, uint64_t bytes) {
        if (bytes <= memory_bytes) return;
        log_warning("{} host has {}, but this machine has {} of memory", option, size_text(bytes),
                    size_text(memory_bytes));
    };
    if (const auto host = devices.find("host")) warn("--device", devices.info(*host).capacity_bytes);
    const auto tiers = parse_tiers(options.tiers);
    for (const auto& tier : tiers.value_or(std::vector<TierSpec>{})) {
        if (tier.folder.empty()) warn("--tier", tier.bytes);
    }
}

// on_reload must outlive the loop's run; it is called under the store lock.
Result<UniqueFd> watch_signals(EventLoop& loop, const std::function<void()>& on_reload) {
    sigset_t watched;
    sigemptyset(&watched);
    for (int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&watched, signal);
    // Blocked before any thread starts, so that no thread gets them.
    pthread_sigmask(SIG_BLOCK, &watched, nullptr);
    signal(SIGPIPE, SIG_IGN);
    auto signals = UniqueFd::adopt(signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals) return fail_errno("signalfd");
    TRY(loop.watch(signals.get(), EPOLLIN, [&loop, &on_reload, fd = signals.get()](uint32_t) {
        signalfd_siginfo info = {};
        if (read(fd, &info, sizeof info) != sizeof info) return;
        // The kernel sends SIGHUP when the terminal has gone.
        if (info.ssi_signo == SIGHUP && info.ssi_code != SI_KERNEL) return on_reload();
        log_info("ending on signal {}", info.ssi_signo);
        loop.stop();
    }));
    return signals;
}

// Reports the outcome of the start to the waiting parent. A pipe closed without a report means failure: the child has
// died.
class Readiness {
public:
    static constexpr std::string_view kReady = "ready";

    explicit Readiness(UniqueFd pipe) : pipe_(std::move(pipe)) {}
    // A line that the parent shows during the start.
    void tell(const std::string& what) {
        if (!pipe_) return;
        const std::string line = what + "\n";
        [[maybe_unused]] ssize_t put = write(pipe_.get(), line.data(), line.size());
    }
    // The outcome, without a newline.
    void report(std::string_view outcome) {
        if (!pipe_) return;
        [[maybe_unused]] ssize_t put = write(pipe_.get(), outcome.data(), outcome.size());
        pipe_.reset();
    }

private:
    UniqueFd pipe_;
};

// Closes descriptors that the starting process has left open: gshmd outlives it, and would keep its locks and pipes.
// Standard streams stay, and descriptors of systemd (sd_listen_fds(3)).
void close_inherited() {
    constexpr int kFirst = 3;
    const char* pid = getenv("LISTEN_PID");
    const char* count = getenv("LISTEN_FDS");
    const bool listens = pid != nullptr && count != nullptr && atoi(pid) == getpid();
    closefrom(kFirst + (listens ? std::max(atoi(count), 0) : 0));
}

KeeperKind keeper_kind(const std::string& name) {
    if (name == "systemd") return KeeperKind::systemd;
    return name == "none" ? KeeperKind::none : KeeperKind::process;
}

// Stores the options for the next daemon, once the start has succeeded with them.
Status remember(const Configuration& configuration, Survival& survival) {
    for (const auto& [name, value] : configuration.kept()) TRY(survival.set_setting(name, value));
    return keep_config(configuration.options().dir, configuration.kept_file());
}

// Measures the stages of a start.
class Stages {
public:
    void end(const char* name) {
        auto now = std::chrono::steady_clock::now();
        text_ += fmt::format(" {:.1f} ms ({})", std::chrono::duration<double, std::milli>(now - last_).count(), name);
        last_ = now;
    }
    const std::string& text() const { return text_; }
    // So far.
    double seconds() const { return std::chrono::duration<double>(last_ - begin_).count(); }

private:
    const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
    std::chrono::steady_clock::time_point last_ = begin_;
    std::string text_;
};

// Runs an action at the end of its block, unless cancelled.
class Undo {
public:
    explicit Undo(std::function<void()> action) : action_(std::move(action)) {}
    ~Undo() {
        if (action_) action_();
    }
    Undo(const Undo&) = delete;
    Undo& operator=(const Undo&) = delete;
    void cancel() { action_ = nullptr; }

private:
    std::function<void()> action_;
};

bool has_place(const std::vector<MountRecord>& mounts, const std::string& path) {
    return std::ranges::any_of(mounts, [&](const MountRecord& mount) { return mount.path == path; });
}

// The kernel's mount table has real paths. The parent is resolved, not the mountpoint itself: a request to the mount of
// a dead daemon would block until this one serves it.
std::string real_mountpoint(const std::string& given) {
    auto folder = std::filesystem::absolute(given).lexically_normal();
    if (!folder.has_filename()) folder = folder.parent_path();
    std::error_code error;
    auto parent = std::filesystem::canonical(folder.parent_path(), error);
    auto real = error ? folder : parent / folder.filename();
    if (!fuse::MountPoint::find(real).is_mounted()) {
        if (auto followed = std::filesystem::canonical(folder, error); !error) real = followed;
    }
    return real;
}

std::vector<std::string> real_mountpoints(const Options& options) {
    std::vector<std::string> real;
    for (const auto& point : options.mountpoints) real.push_back(real_mountpoint(point));
    return real;
}

// Whether the options name places where the earlier daemon was not mounted. Then its mounts end.
bool wants_other_mounts(const std::vector<std::string>& wanted, const std::vector<MountRecord>& earlier) {
    return !std::ranges::all_of(wanted, [&](const auto& path) { return has_place(earlier, path); });
}

// Resumes the mounts of the earlier daemon, or mounts at the paths of the options or of the earlier daemon.
Status mount(Server& server, const Options& options, const std::vector<std::string>& wanted,
             std::vector<MountRecord> earlier, UniqueFd fd) {
    server.set_mount_settings({options.dir, !options.no_passthrough, options.io_uring});
    if (wants_other_mounts(wanted, earlier)) {
        earlier.clear();
        for (const auto& path : wanted) earlier.push_back({path});
    }
    if (earlier.empty()) return {};
    if (fd) return server.resume_mount(earlier[0].path, std::move(fd));
    for (const auto& record : earlier) {
        auto mounted = server.mount(record);
        if (mounted) continue;
        if (std::ranges::find(wanted, record.path) != wanted.end()) return mounted;
        log_error("{}; gshmd runs without this mount", mounted.error().message);  // not requested by the options
    }
    return {};
}

// A number in the catalog, with this one.
uint64_t count(Survival& survival, std::string_view key, bool is_one) REQUIRES(store_lock) {
    uint64_t number = strtoull(survival.setting(key).c_str(), nullptr, 10);
    if (!is_one) return number;
    if (auto set = survival.set_setting(key, std::to_string(++number)); !set) log_error("{}", set.error().message);
    return number;
}

Status serve(Configuration& configuration, Readiness& readiness) {
    const Options& options = configuration.options();
    if (options.debug) log_set_level(LogLevel::debug);
    if (!configuration.file().empty()) log_info("configuration: {}", configuration.file());
    if (getenv("GSHM_LOCK_REPORT") != nullptr) LockReport::start();
    auto loop = TRY(EventLoop::create());
    std::function<void()> on_reload;  // set before the loop runs
    auto signals = TRY(watch_signals(*loop, on_reload));
    raise_descriptor_limit();
    Takeover::Received received;
    // Opening the devices can fail or take long, and the state may have a format that this gshmd does not read. Both are
    // tried while the other daemon still serves; the contexts are then retained twice, which costs nothing.
    std::unique_ptr<DeviceSet> rehearsal;
    if (options.takeover) {
        TRY(RuntimeFolder::check(options.dir));
        auto takeover = TRY(Takeover::create(options.dir));
        const auto& devices = options.devices.empty() ? takeover.devices() : options.devices;
        TRY(Survival::check_formats(options.dir));
        rehearsal = TRY(DeviceSet::create(*loop, devices, options.limit_bytes, {}));
        if (!options.tiers.empty()) TRY(Server::check_tiers(options.tiers, *rehearsal, takeover.folder()));
        received = TRY(takeover.ask());
    }
    auto folder = TRY(options.takeover ? RuntimeFolder::adopt(options.dir, std::move(received.lock))
                                       : RuntimeFolder::create(options.dir, [&](const std::string& what) {
                                             log_info("{}", what);
                                             readiness.tell(what);
                                         }));
    // After a failed start another gshmd can still take up the memory of the earlier daemon.
    std::unique_ptr<Survival> survival;
    auto close_survival = [&] {
        StoreLock lock(loop->store_mutex());
        survival->close();
    };
    bool resuming = access(keeper_socket_path(options.dir).c_str(), F_OK) == 0;
    Undo undo([&] {
        if (resuming) return folder.leave();
        if (!survival) return;
        StoreLock lock(loop->store_mutex());
        survival->discard();
    });
    if (!options.foreground && !log_to_file(folder.log_path())) {
        return fail(EIO, "cannot write the log {}", folder.log_path());
    }
    Stages stages;
    auto earlier = options.takeover  ? Survival::Earlier::resume
                   : options.discard ? Survival::Earlier::begin
                   : options.salvage ? Survival::Earlier::salvage
                                     : Survival::Earlier::any;
    survival = TRY(Survival::create(*loop, options.dir, keeper_kind(options.keeper), earlier));
    resuming = survival->is_resuming();
    if (resuming) folder.set_made(survival->setting("made folder") == "1");
    else TRY(survival->set_setting("made folder", folder.is_made() ? "1" : "0"));
    stages.end("descriptors");
    configuration.recall([&](std::string_view name) { return survival->setting(name); });
    // Before there are objects: an address that is in use ends a start from nothing. Objects of an earlier gshmd are worth
    // more than an address.
    auto metrics_listeners = TRY(listen_for_metrics(folder, options, !resuming));
    const auto mountpoints = real_mountpoints(options);
    auto earlier_places = earlier_mounts(*survival);
    UniqueFd mount_fd = survival->take_mount();
    // Unmounted by another process while no gshmd ran. Not tested in a salvage: an interrupted salvage may have
    // unmounted it itself.
    const bool was_unmounted = mount_fd && !survival->is_salvaging() && fuse::Mount::has_ended(mount_fd.get());
    if (was_unmounted) {
        mount_fd.reset();
        earlier_places.clear();
    }
    // After a salvage the nodes may differ from those that the kernel knows.
    const bool other_mount = survival->is_salvaging() || wants_other_mounts(mountpoints, earlier_places);
    auto devices = TRY(DeviceSet::create(*loop, options.devices, options.limit_bytes, survival->take_host_folder()));
    rehearsal.reset();
    {
        StoreLock lock(loop->store_mutex());
        TRY(survival->start_maker(*devices));
    }
    stages.end("devices");
    std::string names;
    for (const auto& info : devices->infos()) names += " " + info.name;
    const bool with_mount = mount_fd && !other_mount;
    UniqueFd listener = options.takeover ? std::move(received.listener) : TRY(folder.listen());
    auto server = TRY(Server::create(*loop, std::move(devices), *survival, std::move(listener), with_mount));
    const auto machine = machine_of(options.dir);
    warn_of_memory(server->devices(), options, machine.memory_bytes);
    server->set_machine(machine);
    {
        StoreLock lock(loop->store_mutex());
        for (const auto& option : option_table()) {
            if (option.apply != nullptr) option.apply(*server, options);
        }
    }
    auto tiers_started = server->start_tiers(options.tiers, options.tier_free, [&](const std::string& what) {
        log_info("{}", what);
        readiness.tell(what);
    });
    if (!tiers_started) {
        if (resuming) close_survival();
        return tiers_started;
    }
    if (auto started = server->start_clients(options.threads, options.protocols); !started) {
        if (resuming) close_survival();
        return started;
    }
    server->start_rings(options.staging_bytes);
    // After the objects are loaded: a start that fails earlier leaves the mount to the next daemon. The keeper drops
    // the mount before the unmount, else the next daemon would resume it.
    {
        StoreLock lock(loop->store_mutex());
        if (!with_mount) survival->drop_mount();
        if (was_unmounted) {
            survival->note_mounts({});
            for (const char* key : {"mountpoint", "mounts"}) {
                if (auto set = survival->set_setting(key, ""); !set) log_error("{}", set.error().message);
            }
        }
    }
    if (mount_fd && other_mount) {
        mount_fd.reset();
        for (const auto& earlier : earlier_places) {
            if (auto gone = fuse::MountPoint::find(earlier.path).unmount(true); !gone)
                log_warning("{}", gone.error().message);
        }
    } else if (!mount_fd) {
        for (const auto& note : survival->noted_mounts()) {
            if (auto stale = fuse::MountPoint::from_note(note)) stale->give_up();
        }
    }
    stages.end("objects");
    // With systemd as the keeper the memory stays: systemd decides between a restart and an end.
    server->set_keep(options.keeper == "systemd");
    if (auto mounted = mount(*server, options, mountpoints, std::move(earlier_places), std::move(mount_fd)); !mounted) {
        if (resuming) close_survival();
        return mounted;
    }
    if (auto started = server->start_expiry(); !started) {
        if (resuming) close_survival();
        return started;
    }
    undo.cancel();
    stages.end("mount");
    Metrics::Start start{0, 0, stages.seconds(), resuming};
    {
        StoreLock lock(loop->store_mutex());  // the mount's threads already run
        start.starts = count(*survival, "starts", true);
        start.takeovers = count(*survival, "takeovers", options.takeover);
    }
    if (auto started = server->start_metrics(std::move(metrics_listeners), start); !started)
        log_error("there are no metrics: {}", started.error().message);
    {
        StoreLock lock(loop->store_mutex());  // the mount's threads already run
        if (auto remembered = remember(configuration, *survival); !remembered)
            log_error("{}", remembered.error().message);
        if (resuming) log_info("took up {} objects in{}", server->store().object_count(), stages.text());
    }
    server->set_configuration(&configuration);
    on_reload = [&server] {
        store_lock.assert_held();
        server->reload("SIGHUP", [](const auto&) {});
    };
    log_info("gshmd {} is ready at {}; devices:{}", wire::kProductVersion, options.dir, names);
    readiness.report(Readiness::kReady);
    tell_systemd("READY=1");
    loop->run();
    const bool keep = server->keeps();
    log_info("gshmd ends{}", keep ? "; its objects stay" : "");
    bool handed_over = server->end(folder.lock());
    if (LockReport::is_on()) LockReport::log();
    // Before clients are disconnected, so that a client that sees the end finds no files left.
    if (!keep) folder.clean();
    else if (handed_over) folder.leave();
    else folder.close();
    if (!server->can_end()) {
        log_warning("a file does not answer; gshmd ends without it");
        _exit(0);
    }
    return {};
}

int run(Configuration& configuration, UniqueFd pipe) {
    Readiness readiness(std::move(pipe));
    auto served = serve(configuration, readiness);
    if (served) return 0;
    if (configuration.options().foreground) fprintf(stderr, "gshmd: %s\n", served.error().message.c_str());
    readiness.report(served.error().message);
    return 1;
}

// Returns in the parent when the child serves or has failed. CUDA is initialised in the child, since it does not
// survive a fork.
int run_in_background(Configuration& configuration) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        perror("gshmd: pipe");
        return 1;
    }
    auto reader = UniqueFd::adopt(ends[0]);
    auto writer = UniqueFd::adopt(ends[1]);
    pid_t child = fork();
    if (child < 0) {
        perror("gshmd: fork");
        return 1;
    }
    if (child == 0) {
        reader.reset();
        setsid();
        if (chdir("/") != 0) return 1;
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        for (int fd : {0, 1, 2}) dup2(null, fd);
        close(null);
        return run(configuration, std::move(writer));
    }
    writer.reset();
    std::string outcome;
    char buffer[512];
    ssize_t got = 0;
    while ((got = read(reader.get(), buffer, sizeof buffer)) > 0) {
        outcome.append(buffer, static_cast<size_t>(got));
        for (size_t end = 0; (end = outcome.find('\n')) != std::string::npos; outcome.erase(0, end + 1)) {
            fprintf(stderr, "gshmd: %s\n", outcome.substr(0, end).c_str());
        }
    }
    if (outcome == Readiness::kReady) return 0;
    fprintf(stderr, "gshmd: %s\n", outcome.empty() ? "it died while starting" : outcome.c_str());
    return 1;
}

int complain(int exit_code, const Error& error) {
    fprintf(stderr, "gshmd: %s\n", error.message.c_str());
    return exit_code;
}

int start(int argc, char** argv) {
    auto given = parse_command_line(argc, argv);
    if (!given) return complain(2, given.error());
    auto is_set = [&](std::string_view name) {
        const auto found = given->find(name);
        return found != given->end() && found->second.values == std::vector<std::string>{"true"};
    };
    if (is_set("help")) {
        fputs(help_text().c_str(), stdout);
        return 0;
    }
    if (is_set("version")) {
        printf("gshmd %s (%s)\n", wire::kProductVersion, to_string(wire::ProtocolRange{}).c_str());
        return 0;
    }
    auto configuration = Configuration::create(std::move(*given));
    if (!configuration) return complain(configuration.error().code == EINVAL ? 2 : 1, configuration.error());
    const Options& options = configuration->options();
    if (options.check_config) {
        fputs(configuration->text().c_str(), stdout);
        return 0;
    }
    return options.foreground ? run(*configuration, {}) : run_in_background(*configuration);
}

}  // namespace
}  // namespace gshm::core

int main(int argc, char** argv) {
    if (argc == 2 && strcmp(argv[1], gshm::core::fuse::Notices::kOption) == 0)
        _exit(gshm::core::fuse::Notices::serve());
    gshm::core::close_inherited();
    return gshm::core::start(argc, argv);
}
