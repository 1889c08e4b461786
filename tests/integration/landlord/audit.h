// The landlord's books: df against the sum of its parts and a recount, and limits and pin budgets against the use.
#pragma once

#include <map>

#include "integration/landlord/tenant.h"

namespace gshm::core::landlord {

struct Rules {
    std::map<uid_t, uint64_t> most_bytes;  // the largest limit that was ever set; empty: none
    unsigned pin_share = 0;                // in percent
};

// "" or what is wrong. Tenants wait meanwhile. What goes by itself, as expired objects do, is waited for.
std::string audit(gshm_client* client, const Rules& rules);
// At any time: no user has more than the limit.
std::string check_limits(gshm_client* client, const Rules& rules);

}  // namespace gshm::core::landlord
