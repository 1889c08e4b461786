// The cost of the metrics: metrics_bench [OBJECTS [FORMER]]. Scrapes of a gshmd with that many objects (1,000,000) by its
// Unix socket: their times, their sizes, and the longest hold of the store lock in processor time. FORMER is a folder with
// the gshmd of another build: then pings and opens of both are compared, in turns within one run.
#include <cstdio>
#include <sys/socket.h>
#include <sys/un.h>

#include "support.h"

namespace {

using namespace gshm::core::bench;

constexpr uint64_t kObjectBytes = 256;
constexpr int kScrapes = 500;
constexpr double kBarMs = 5;
constexpr double kBarLockUs = 100;

std::string name_of(size_t index) {
    return "many/" + std::to_string(index / 1000) + "/" + std::to_string(index);
}

void create(gshm_client* client, size_t count) {
    constexpr size_t kBatch = 1000;
    for (size_t at = 0; at < count; at += kBatch) {
        std::vector<std::string> texts;
        for (size_t i = at; i < std::min(at + kBatch, count); ++i) texts.push_back(name_of(i));
        std::vector<gshm_create_spec> wanted;
        for (const auto& text : texts) wanted.push_back(spec(text.c_str(), kObjectBytes, "host", GSHM_NO_MAP));
        Objects objects(texts.size());
        objects.create(client, wanted);
        objects.seal();
    }
}

size_t scrape(const std::string& path) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check_errno(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "connect");
    constexpr std::string_view kRequest = "GET /metrics HTTP/1.1\r\n\r\n";
    check_errno(::send(fd, kRequest.data(), kRequest.size(), 0) == static_cast<ssize_t>(kRequest.size()), "send");
    std::string answer;
    char buffer[65536];
    for (ssize_t got = 0; (got = ::recv(fd, buffer, sizeof buffer, 0)) > 0;) {
        answer.append(buffer, static_cast<size_t>(got));
    }
    ::close(fd);
    if (!answer.starts_with("HTTP/1.1 200 ")) die("a scrape has failed");
    return answer.size();
}

// Of one kind of hold in the report of gshmd, in microseconds.
double longest_hold(const std::string& log, const std::string& where) {
    double longest = 0;
    for (size_t at = 0; (at = log.find("store lock: " + where, at)) != std::string::npos; ++at) {
        constexpr std::string_view kMark = "longest ";
        const size_t found = log.find(kMark, at);
        if (found != std::string::npos)
            longest = std::max(longest, std::atof(log.c_str() + found + kMark.size()) * 1e3);
    }
    return longest;
}

void measure_scrapes(size_t count) {
    ::setenv("GSHM_LOCK_REPORT", "1", 1);
    const Daemon daemon({"host"});
    ::unsetenv("GSHM_LOCK_REPORT");
    {
        Client client = connect(daemon);
        create(client.get(), count);
    }
    std::vector<double> times;
    const std::string path = daemon.dir() + "/" GSHM_METRICS_SOCKET_NAME;
    size_t bytes = 0;
    for (int i = 0; i < kScrapes; ++i) {
        const Stopwatch watch;
        bytes = scrape(path);
        times.push_back(watch.seconds() * 1e3);
    }
    std::sort(times.begin(), times.end());
    ::kill(daemon.pid(), SIGTERM);
    while (daemon.log().find("store lock: src/daemon/metrics.cc") == std::string::npos) ::usleep(1000);
    ::usleep(100'000);  // the rest of the report
    const std::string log = daemon.log();
    std::printf("%zu objects, %zu bytes: median %.2f ms, longest of %d %.2f ms (target %.0f)\n", count, bytes,
                times[times.size() / 2], kScrapes, times.back(), kBarMs);
    std::printf("longest hold of the store lock: scrape %.1f us, look for stalled holders %.1f us (target %.0f)\n",
                longest_hold(log, "src/daemon/metrics.cc"), longest_hold(log, "src/daemon/stalled_holders.cc"),
                kBarLockUs);
}

// Processor time of gshmd and the client for a request.
struct Subject {
    explicit Subject(const std::string& bin) {
        if (!bin.empty()) ::setenv("GSHM_BIN", bin.c_str(), 1);
        daemon = std::make_unique<Daemon>(std::vector<std::string>{"host"});
        ::unsetenv("GSHM_BIN");
        client = connect(*daemon);
        create(client.get(), 1000);
        for (size_t i = 0; i < 1000; ++i) names.push_back(name_of(i));
    }
    void round() {
        constexpr int kTimes = 2000;
        auto take = [&](std::vector<double>& costs, auto&& act) {
            const CostMeter meter(daemon->pid());
            for (int i = 0; i < kTimes; ++i) act(static_cast<size_t>(i) % names.size());
            costs.push_back(meter.seconds() / kTimes * 1e6);
        };
        take(pings, [&](size_t) { check(gshm_ping(client.get()), "ping"); });
        take(opens, [&](size_t i) { open(client.get(), names[i].c_str(), GSHM_NO_MAP); });
    }
    static double quartile(std::vector<double> costs) {
        std::sort(costs.begin(), costs.end());
        return costs[costs.size() / 4];
    }

    std::unique_ptr<Daemon> daemon;
    Client client;
    std::vector<std::string> names;
    std::vector<double> pings;
    std::vector<double> opens;
};

void compare(const std::string& former) {
    constexpr int kRounds = 200;
    Subject before(former);
    Subject after("");
    for (int i = 0; i < kRounds; ++i) {
        (i % 2 == 0 ? before : after).round();
        (i % 2 == 0 ? after : before).round();
    }
    auto print = [](const char* what, double then, double now) {
        std::printf("%-5s %.3f us, before %.3f us: %.3f x\n", what, now, then, now / then);
    };
    print("ping", Subject::quartile(before.pings), Subject::quartile(after.pings));
    print("open", Subject::quartile(before.opens), Subject::quartile(after.opens));
}

}  // namespace

int main(int argc, char** argv) {
    measure_scrapes(argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1'000'000);
    if (argc > 2) compare(argv[2]);
    return 0;
}
