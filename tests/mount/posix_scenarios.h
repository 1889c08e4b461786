// File operations as scenarios that run in any directory and record every result. tmpfs is the reference:
//
//   for (const Scenario& scenario : scenarios())
//       EXPECT_EQ(compare(scenario, "/dev/shm/standard", "/mnt/gshm"), "") << scenario.name;
//
// Raw times, inode numbers, block counts, sizes and orders of directories are never recorded; relations between them
// are. The reference should be a tmpfs with relatime and without noexec, and both directories searchable by everyone:
// scenarios that need root also act as other users.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "mount/recorder.h"

namespace gshm::core::test {

struct Scenario {
    const char* name;  // also the name of its directory
    void (*run)(Recorder& recorder, const std::string& dir);
    bool needs_root;  // it makes devices, changes owners or becomes other users
};

std::span<const Scenario> scenarios();

// Runs the scenario in a child process, in a new directory below `parent` that is removed afterwards. Returns the
// recorded lines. If the child was killed by a signal or by the time limit, the last line says so.
std::vector<std::string> record(const Scenario& scenario, const std::string& parent);

// "" if the scenario records the same lines below both directories, else the differences: lines with - are only in
// dir_a, lines with + only in dir_b.
std::string compare(const Scenario& scenario, const std::string& dir_a, const std::string& dir_b);

// Removes a directory and all below it, at any depth, even if modes forbid it.
void remove_tree(const std::string& path);

// The themes, each in its own scenarios_*.cc.
std::span<const Scenario> open_scenarios();
std::span<const Scenario> name_scenarios();
std::span<const Scenario> directory_scenarios();
std::span<const Scenario> link_scenarios();
std::span<const Scenario> rename_scenarios();
std::span<const Scenario> special_scenarios();
std::span<const Scenario> rights_scenarios();
std::span<const Scenario> owner_scenarios();
std::span<const Scenario> time_scenarios();
std::span<const Scenario> data_scenarios();
std::span<const Scenario> space_scenarios();
std::span<const Scenario> mapping_scenarios();
std::span<const Scenario> attribute_scenarios();
std::span<const Scenario> lock_scenarios();

}  // namespace gshm::core::test
