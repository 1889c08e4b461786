// gshmd: option parsing, going to the background, signals; the rest is Server.
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/options.h"
#include "daemon/runtime_folder.h"
#include "daemon/server.h"
#include "wire/version.h"

namespace gshm {
namespace {

// Every extent and every client takes a descriptor. Root may go up to what the kernel allows at all.
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

Result<UniqueFd> watch_signals(EventLoop& loop) {
    sigset_t ending;
    sigemptyset(&ending);
    sigaddset(&ending, SIGTERM);
    sigaddset(&ending, SIGINT);
    sigaddset(&ending, SIGHUP);
    // Blocked before any thread starts, so that no thread gets them.
    pthread_sigmask(SIG_BLOCK, &ending, nullptr);
    signal(SIGPIPE, SIG_IGN);
    auto signals = UniqueFd::adopt(signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals) return fail_errno("signalfd");
    TRY(loop.watch(signals.get(), EPOLLIN, [&loop, fd = signals.get()](uint32_t) {
        signalfd_siginfo info = {};
        if (read(fd, &info, sizeof info) == sizeof info) log_info("ending on signal {}", info.ssi_signo);
        loop.stop();
    }));
    return signals;
}

// Tells the waiting parent how it went. Silence is failure: a child that dies says nothing.
class Readiness {
public:
    static constexpr std::string_view kReady = "ready";

    explicit Readiness(UniqueFd pipe) : pipe_(std::move(pipe)) {}
    void report(std::string_view outcome) {
        if (!pipe_) return;
        [[maybe_unused]] ssize_t put = write(pipe_.get(), outcome.data(), outcome.size());
        pipe_.reset();
    }

private:
    UniqueFd pipe_;
};

Status serve(const Options& options, Readiness& readiness) {
    auto folder = TRY(RuntimeFolder::create(options.dir));
    if (!options.foreground && !log_to_file(folder.log_path())) {
        return fail(EIO, "cannot write the log {}", folder.log_path());
    }
    if (options.debug) log_set_level(LogLevel::debug);
    auto loop = TRY(EventLoop::create());
    auto signals = TRY(watch_signals(*loop));
    raise_descriptor_limit();
    auto devices = TRY(DevicePool::create(*loop, options.devices, options.limit_bytes));
    std::string names;
    for (const auto& info : devices->infos()) names += " " + info.name;
    auto server = TRY(Server::create(*loop, std::move(devices), TRY(folder.listen())));
    if (!options.mountpoint.empty()) TRY(server->mount(options.mountpoint, {options.dir, options.passthrough}));
    log_info("gshmd {} is ready at {}; devices:{}", wire::kProductVersion, options.dir, names);
    readiness.report(Readiness::kReady);
    loop->run();
    log_info("gshmd ends");
    folder.clean();
    return {};
}

int run(const Options& options, UniqueFd pipe) {
    Readiness readiness(std::move(pipe));
    auto served = serve(options, readiness);
    if (served) return 0;
    if (options.foreground) fprintf(stderr, "gshmd: %s\n", served.error().message.c_str());
    readiness.report(served.error().message);
    return 1;
}

// Returns in the parent when the child serves or has failed; CUDA starts in the child, as it does not survive a fork.
int run_in_background(const Options& options) {
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
        return run(options, std::move(writer));
    }
    writer.reset();
    std::string outcome;
    char buffer[512];
    ssize_t got = 0;
    while ((got = read(reader.get(), buffer, sizeof buffer)) > 0) outcome.append(buffer, static_cast<size_t>(got));
    if (outcome == Readiness::kReady) return 0;
    fprintf(stderr, "gshmd: %s\n", outcome.empty() ? "it died while starting" : outcome.c_str());
    return 1;
}

}  // namespace
}  // namespace gshm

int main(int argc, char** argv) {
    auto options = gshm::parse_options(argc, argv);
    if (!options) {
        fprintf(stderr, "gshmd: %s\n", options.error().message.c_str());
        return 2;
    }
    if (!*options) return 0;
    // The child keeps no relation to where it was started.
    (*options)->dir = std::filesystem::absolute((*options)->dir);
    if (auto& point = (*options)->mountpoint; !point.empty()) {
        // The kernel calls a mount by its real path. A dead daemon's mount cannot be looked into, but its parent can.
        auto folder = std::filesystem::absolute(point).lexically_normal();
        if (!folder.has_filename()) folder = folder.parent_path();
        std::error_code error;
        auto real = std::filesystem::canonical(folder, error);
        if (error) {
            auto parent = std::filesystem::canonical(folder.parent_path(), error);
            real = error ? folder : parent / folder.filename();
        }
        point = real;
    }
    return (*options)->foreground ? gshm::run(**options, {}) : gshm::run_in_background(**options);
}
