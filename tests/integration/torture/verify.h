// Compares the store with the journals while all users are paused.
#pragma once

#include <string>

#include "integration/torture/journal.h"

namespace gshm::core::torture {

struct Verified {
    uint64_t objects = 0;
    uint64_t bytes = 0;
};

// "" if the store matches the journals: nothing is missing, nothing is superfluous, and all held memory has an owner.
// Adds to ret_verified.
std::string verify(const Task& task, unsigned first_mount_user, unsigned users, Verified* ret_verified);
// Checks the catalog of a dead daemon without changing it. `scratch` is a folder for a copy.
std::string verify_catalog(const std::string& dir, const std::string& scratch);
// The number of descriptors that the keeper holds; < 0: there is no keeper.
int64_t kept_descriptors(const std::string& dir);

}  // namespace gshm::core::torture
