// Limits on accounts: what a user, a group, or the objects below a directory may have.
#pragma once

#include "store/store.h"

namespace gshm::core {

class AccountLimits {
public:
    explicit AccountLimits(Store& store) : store_(store) {}

private:
    Store& store_;
};

// The account of a directory with limits: of all objects that have a name below it.
struct TreeAccount {};

}  // namespace gshm::core
