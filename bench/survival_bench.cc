// The time until a killed gshmd serves again, and the pause that a client sees: survival_bench [OBJECTS [EXTENTS
// [ROUNDS]]]. Compared with the start of a gshmd without objects.
#include <atomic>
#include <cstdio>
#include <thread>

#include "support.h"

namespace {

using namespace gshm::core::bench;

struct Figures {
    Samples first_answer;  // since its start
    Samples pause;         // seen by a client
};

// A client that sends requests all the time, and its longest wait for a reply.
class Asking {
public:
    explicit Asking(const Daemon& daemon) : dir_(daemon.dir()) {
        const gshm_connect_options options = {sizeof options, 60'000, dir_.c_str()};
        gshm_client* client = nullptr;
        check(gshm_connect(&options, &client), "connect");
        thread_ = std::thread([this, client] {
            while (!ending_) {
                const Stopwatch watch;
                check(gshm_ping(client), "ping");
                longest_ = std::max(longest_, watch.seconds());
            }
            gshm_disconnect(client);
        });
    }
    double end() {
        ending_ = true;
        thread_.join();
        return longest_;
    }

private:
    std::string dir_;
    std::atomic<bool> ending_ = false;
    double longest_ = 0;
    std::thread thread_;
};

Figures measure(Daemon& daemon, int rounds) {
    Figures figures;
    for (int round = 0; round < rounds; ++round) {
        Asking asking(daemon);
        daemon.kill_and_start();
        const Stopwatch watch;
        daemon.wait_until_it_serves();
        figures.first_answer.add(watch.seconds());
        figures.pause.add(asking.end());
    }
    return figures;
}

void report(const char* what, Figures& figures, Figures& empty) {
    std::printf("%-44s first answer %7.1f ms, a client waits %7.1f ms; %7.1f ms more than with nothing there\n", what,
                figures.first_answer.quartile_seconds() * 1e3, figures.pause.quartile_seconds() * 1e3,
                (figures.first_answer.quartile_seconds() - empty.first_answer.quartile_seconds()) * 1e3);
}

void print_last_words(const Daemon& daemon) {
    const std::string log = daemon.log();
    const size_t at = log.rfind("took up");
    if (at != std::string::npos) std::printf("  %s\n", log.substr(at, log.find('\n', at) - at).c_str());
}

}  // namespace

int main(int argc, char** argv) {
    const size_t objects = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 10'000;
    const size_t extents = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1'000;
    const int rounds = argc > 3 ? std::atoi(argv[3]) : 5;
    Daemon daemon;
    Figures empty = measure(daemon, rounds);
    Client client = connect(daemon);
    const gshm_device_info device = choose_device(client.get());
    std::printf("%s, %d rounds, lower quartiles\n", describe(device).c_str(), rounds);
    report("nothing", empty, empty);

    const Names small("small/", objects);
    populate(client.get(), small, 4096, device.name);
    Figures with_objects = measure(daemon, rounds);
    report((std::to_string(objects) + " objects of 4 KiB").c_str(), with_objects, empty);
    print_last_words(daemon);
    Objects opened(objects);
    opened.open(client.get(), small.data(), GSHM_NO_MAP);
    Figures with_leases = measure(daemon, rounds);
    report("the same, all held by a client", with_leases, empty);
    print_last_words(daemon);
    opened.close();
    for (size_t i = 0; i < objects; ++i) check(gshm_unlink(client.get(), small[i]), "unlink");

    const Names large("large/", extents);
    populate(client.get(), large, 2 << 20, device.name);
    Figures with_extents = measure(daemon, rounds);
    report((std::to_string(extents) + " objects of 2 MiB, an extent each").c_str(), with_extents, empty);
    print_last_words(daemon);
    return 0;
}
