// Another user, who goes on as usual: pings at a steady rate, and full rounds of calls that must all succeed.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace gshm::core::hostile {

// Memory that the bystander shares with the program.
struct Observations {
    static constexpr size_t kSamples = 1 << 20;

    std::atomic<bool> stop;
    std::atomic<uint64_t> rounds;
    std::atomic<uint64_t> calls;
    std::atomic<uint64_t> failed;
    std::atomic<uint64_t> pings;
    std::atomic<uint64_t> slowest_ns;  // of the calls of the rounds
    char slowest[32];
    char failure[240];  // the first one
    char call[32];      // in progress
    std::atomic<uint64_t> samples;
    std::array<uint32_t, kSamples> ping_ns;
};

struct BystanderTask {
    std::string dir;
    std::string mount;    // "": none
    std::string scratch;  // a folder of the bystander
    int connect_timeout_ms = 2000;
    Observations* seen = nullptr;
};

// Both run in a process of their own, as the user kBystander, until `stop`.
void run_pings(const BystanderTask& task);
void run_rounds(const BystanderTask& task);

// In milliseconds; 0 without samples.
double ping_p99_ms(const Observations& seen);

}  // namespace gshm::core::hostile
