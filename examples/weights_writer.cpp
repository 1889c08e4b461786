// Publishes an object through the daemon and waits: creates it with its shape and type as attributes, copies numbers in
// and seals it. The sealed object outlives this process, since the daemon owns the memory. With --no-seal the object
// ends with the process, as incomplete data should.
//
// Exit status: 1 if a step fails, 2 for a wrong command line; otherwise it ends by a signal.

#include <cstdio>
#include <string>
#include <unistd.h>

#include "options.h"
#include "pattern.h"
#include <gshm/gshm.hpp>

namespace {

struct Settings {
    std::string dir;
    std::string name = "demo/weights";
    std::string device;
    bool no_seal = false;
};

void run(const Settings& settings) {
    const auto client = gshm::Client::connect({.dir = settings.dir}).value();
    const auto daemon = client.daemon().value();
    std::printf("Connected to gshmd %s (pid %d)\n", daemon.version, daemon.pid);

    auto weights = client
                       .create({.name = settings.name,
                                .size_bytes = kPatternBytes,
                                .device = settings.device,
                                .mode = 0640,
                                .attributes = {{"shape", "[512, 512]"}, {"dtype", "uint32"}}})
                       .value();
    std::printf("Created %s: object %llu, %llu bytes on %s at %p\n", settings.name.c_str(),
                static_cast<unsigned long long>(weights.id()), static_cast<unsigned long long>(weights.size()),
                std::string(weights.device()).c_str(), weights.data());

    weights.copy_in(make_pattern()).value();
    std::printf("Copied %zu integers in\n", kPatternCount);
    if (settings.no_seal) {
        std::printf("Not sealed: it goes with this process\n");
    } else {
        weights.seal().value();
        std::printf("Sealed: readers may rely on it now\n");
    }
    std::printf("Holding %s until killed (pid %d)\n", settings.name.c_str(), ::getpid());
    for (;;) ::pause();  // the leases end with the process
}

}  // namespace

int main(int argc, char** argv) {
    Settings settings;
    Options("Publishes 262144 integers as a named object, and holds it until killed.")
        .text("--dir", settings.dir, "the daemon's runtime folder; default: as for gshm")
        .text("--name", settings.name, "default: " + settings.name)
        .text("--device", settings.device, "cuda:0, host, ...; default: the daemon's first")
        .flag("--no-seal", settings.no_seal, "leave it open, so that it is reclaimed with this process")
        .parse(argc, argv);
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    try {
        run(settings);
    } catch (const gshm::Exception& exception) {
        std::fprintf(stderr, "weights_writer: %s\n", exception.what());
    }
    return 1;
}
