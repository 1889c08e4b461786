// Reads what weights_writer publishes: waits until the name is sealed, opens it and checks the numbers.
//
// By default the object is mapped: on host the CPU reads it in place, on a GPU it is copied out through the device
// pointer. With --no-map the daemon copies; nothing is mapped and CUDA is not started.
//
// Exit status: 0 if the data is correct, 1 if it is not or a step fails, 2 for a wrong command line.

#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "options.h"
#include "pattern.h"
#include <gshm/gshm.hpp>

namespace {

struct Settings {
    std::string dir;
    std::string name = "demo/weights";
    std::optional<std::chrono::seconds> timeout = std::chrono::seconds(10);
    bool no_map = false;
};

bool verify(std::span<const uint32_t> numbers) {
    if (numbers.size() != kPatternCount) {
        std::printf("Data verification FAILED (%zu integers instead of %zu)\n", numbers.size(), kPatternCount);
        return false;
    }
    if (const auto index = first_difference(numbers)) {
        std::printf("Data verification FAILED (integer %zu is 0x%08x instead of 0x%08x)\n", *index, numbers[*index],
                    pattern_at(*index));
        return false;
    }
    std::printf("Data verification PASSED (%zu integers verified)\n", numbers.size());
    return true;
}

bool run(const Settings& settings) {
    const auto client = gshm::Client::connect({.dir = settings.dir}).value();
    client.wait(settings.name, gshm::WaitFor::kSealed, settings.timeout).value();
    auto weights = client.open(settings.name, {.map = !settings.no_map}).value();
    std::printf("Opened %s: object %llu, %llu bytes on %s\n", settings.name.c_str(),
                static_cast<unsigned long long>(weights.id()), static_cast<unsigned long long>(weights.size()),
                std::string(weights.device()).c_str());
    for (const auto& [name, value] : client.attributes(settings.name).value())
        std::printf("  %s = %s\n", name.c_str(), value.c_str());

    if (const auto numbers = weights.host_span<const uint32_t>()) {
        std::printf("Reading them in place at %p\n", weights.data());
        return verify(*numbers);
    }
    std::vector<uint32_t> numbers(weights.size() / sizeof(uint32_t));
    weights.copy_out(numbers).value();
    std::printf("Copied them out %s\n", settings.no_map ? "through the daemon, mapping nothing" : "of the GPU");
    return verify(numbers);
}

}  // namespace

int main(int argc, char** argv) {
    Settings settings;
    Options("Waits for a named object, opens it and checks its 262144 integers.")
        .text("--dir", settings.dir, "the daemon's runtime folder; default: as for gshm")
        .text("--name", settings.name, "default: " + settings.name)
        .seconds("--timeout", settings.timeout, "seconds to wait for it; default: 10")
        .flag("--no-map", settings.no_map, "let the daemon copy; map nothing, start no CUDA")
        .parse(argc, argv);
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    try {
        return run(settings) ? 0 : 1;
    } catch (const gshm::Exception& exception) {
        std::fprintf(stderr, "weights_reader: %s\n", exception.what());
        return 1;
    }
}
