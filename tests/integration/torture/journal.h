// The expected contents, in memory that all processes share and that outlives each of them. Every user of the store
// works in a separate folder and has a journal of it. A step is recorded before it is executed, and again when it is
// acknowledged. After an interruption both outcomes are correct.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

namespace gshm::core::torture {

// An object or file; none if the seed is 0. Its bytes are derived from the seed, its attribute is a number.
struct Version {
    uint64_t seed = 0;
    uint64_t bytes = 0;
    uint64_t attribute = 0;

    bool exists() const { return seed != 0; }
    bool operator==(const Version&) const = default;
};

inline constexpr unsigned kSlots = 8;  // names of one user; the last is the target of renames
inline constexpr unsigned kTemporary = kSlots - 1;
inline constexpr unsigned kUsers = 8;

struct Step {
    unsigned a = 0;
    unsigned b = 0;  // same as a: only one name
    Version a_before, b_before, a_after, b_after;
    bool loose = false;  // after an interruption, `a` may have any contents
};

struct Journal {
    std::atomic<bool> in_flight;
    std::atomic<bool> paused;      // the user has released everything and waits
    std::atomic<uint64_t> steps;   // acknowledged steps
    std::atomic<uint64_t> checks;  // of bytes
    Step step;
    Version slots[kSlots];
    char error[512];

    void begin(const Step& next) {
        step = next;
        step.a_before = slots[next.a];
        step.b_before = slots[next.b];
        in_flight.store(true, std::memory_order_release);
    }
    void finish(bool done) {
        slots[step.b] = done ? step.b_after : step.b_before;
        slots[step.a] = done ? step.a_after : step.a_before;
        in_flight.store(false, std::memory_order_release);
        if (done) steps.fetch_add(1);
    }
};

struct Shared {
    std::atomic<bool> pause;
    std::atomic<bool> stop;
    Journal users[kUsers];
};

// The parameters of a user.
struct Task {
    Shared* shared = nullptr;
    Journal* journal = nullptr;
    unsigned number = 0;
    uint64_t seed = 0;
    std::string dir;    // runtime folder
    std::string mount;  // "": none
    bool cuda = false;
    bool tiers = false;  // the GPU may be full of what others hold
};

// Each runs until it is stopped. Returns "" if there was no error.
std::string write_objects(const Task& task);
std::string read_objects(const Task& task);
std::string use_mount(const Task& task);

std::string folder_of(unsigned user);
std::string name_of(unsigned user, unsigned slot);
std::string describe(const Version& version);

// After an interruption: determines which of the two outcomes it was. `actual` reads a slot; `remove` removes it.
struct Look {
    std::function<std::string(unsigned slot, Version* ret_version)> actual;
    std::function<std::string(unsigned slot)> remove;
};
std::string settle(Journal& journal, const Look& look);

}  // namespace gshm::core::torture
