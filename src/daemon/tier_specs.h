// The tiers on gshmd's command line.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace gshm::core {

// host:SIZE, FOLDER[:SIZE][:keep]
struct TierSpec {
    std::string folder;  // an absolute path; "": host memory
    uint64_t bytes = 0;  // 0: no limit
    bool keep = false;
    std::string text;  // the whole specification, with an absolute path
};

// In the order in which objects enter them: at most host memory, then one folder. "none" alone: no tier. EINVAL with the
// reason.
Result<std::vector<TierSpec>> parse_tiers(const std::vector<std::string>& specs);

}  // namespace gshm::core
