// Scaling of gshmd with its clients: 1, 2, 4, ... processes that each make one request at a time. The table has the
// total requests per second, and the processor time of gshmd per request.
//
//   clients_bench [--seconds S] [--most N] [--threads N] [--operations ping,open,create]
//
// ping: no operation. open: opens and closes a small sealed object of 1,000, whose memory the client has mapped.
// create: creates and closes a small object. Each number of clients runs for S seconds (1).
#include <atomic>
#include <cstring>
#include <ctime>
#include <sys/mman.h>

#include "support.h"

namespace gshm::core::bench {
namespace {

struct Shared {
    std::atomic<uint32_t> ready;
    std::atomic<uint32_t> go;
    std::atomic<uint32_t> stop;
    std::atomic<uint64_t> done;
};

constexpr size_t kObjects = 1000;
constexpr uint64_t kBytes = 256;

double processor_seconds(pid_t pid) {
    clockid_t clock = 0;
    check_errno(::clock_getcpuclockid(pid, &clock) == 0, "clock_getcpuclockid");
    timespec time = {};
    check_errno(::clock_gettime(clock, &time) == 0, "clock_gettime");
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// One client, in a process of its own, until it is told to stop.
void work(const Daemon& daemon, const std::string& operation, size_t number, Shared& shared) {
    auto client = connect(daemon);
    const Names names("clients/", kObjects);
    std::vector<Object> held;
    if (operation == "open") held = hold_extents(client.get(), names);
    uint64_t done = 0;
    std::mt19937_64 random(number);
    const std::string prefix = "made/" + std::to_string(number) + "-";
    // One object that keeps its slab.
    if (operation == "create") {
        const auto first = spec((prefix + "first").c_str(), kBytes, "host");
        gshm_object* object = nullptr;
        check(gshm_create(client.get(), &first, &object), "create");
        held.emplace_back(object);
    }
    shared.ready.fetch_add(1);
    while (shared.go.load() == 0) ::usleep(100);
    while (shared.stop.load(std::memory_order_relaxed) == 0) {
        if (operation == "ping") {
            check(gshm_ping(client.get()), "ping");
        } else if (operation == "open") {
            open(client.get(), names[random() % names.size()]);
        } else {
            const std::string name = prefix + std::to_string(done);
            const auto wanted = spec(name.c_str(), kBytes, "host");
            gshm_object* object = nullptr;
            check(gshm_create(client.get(), &wanted, &object), name.c_str());
            gshm_close(object);
        }
        ++done;
    }
    shared.done.fetch_add(done);
}

void measure(const Daemon& daemon, const std::string& operation, size_t clients, double seconds) {
    auto* shared = static_cast<Shared*>(
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    check_errno(shared != MAP_FAILED, "mmap");
    std::vector<pid_t> processes;
    for (size_t i = 0; i < clients; ++i) {
        const pid_t pid = ::fork();
        check_errno(pid >= 0, "fork");
        if (pid == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            work(daemon, operation, i, *shared);
            std::_Exit(0);
        }
        processes.push_back(pid);
    }
    while (shared->ready.load() < clients) ::usleep(1000);
    const double before = processor_seconds(daemon.pid());
    const Stopwatch watch;
    shared->go.store(1);
    ::usleep(static_cast<useconds_t>(seconds * 1e6));
    shared->stop.store(1);
    const double elapsed = watch.seconds();
    const double used = processor_seconds(daemon.pid()) - before;
    for (pid_t pid : processes) {
        int status = 0;
        ::waitpid(pid, &status, 0);
        if (status != 0) die("a client has failed");
    }
    const auto done = static_cast<double>(shared->done.load());
    std::printf("%-8s %8zu %14.0f %12.2f %12.2f\n", operation.c_str(), clients, done / elapsed, used / done * 1e6,
                used / elapsed);
    std::fflush(stdout);
    ::munmap(shared, sizeof(Shared));
}

int run_all(int argc, char** argv) {
    double seconds = 1;
    size_t most = 32;
    std::string threads;
    std::string operations = "ping,open,create";
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string option = argv[i];
        if (option == "--seconds") seconds = std::atof(argv[i + 1]);
        else if (option == "--most") most = std::strtoul(argv[i + 1], nullptr, 10);
        else if (option == "--threads") threads = argv[i + 1];
        else if (option == "--operations") operations = argv[i + 1];
        else die("unknown option " + option);
    }
    std::printf("%-8s %8s %14s %12s %12s\n", "request", "clients", "a second", "gshmd us", "gshmd cores");
    for (const char* operation : {"ping", "open", "create"}) {
        if (operations.find(operation) == std::string::npos) continue;
        for (size_t clients = 1; clients <= most; clients *= 2) {
            // Anew for each: what was created before is no matter of how many clients there are.
            const Daemon daemon({"host"}, threads.empty() ? std::vector<std::string>{}
                                                          : std::vector<std::string>{"--threads", threads});
            auto client = connect(daemon);
            populate(client.get(), Names("clients/", kObjects), kBytes, "host");
            measure(daemon, operation, clients, seconds);
        }
    }
    return 0;
}

}  // namespace
}  // namespace gshm::core::bench

int main(int argc, char** argv) {
    return gshm::core::bench::run_all(argc, argv);
}
