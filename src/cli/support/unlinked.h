// Memory that has no name any more and is still held.
#pragma once

#include <string>
#include <vector>

#include "cli/support/context.h"

namespace gshm::cli {

struct UnlinkedEntry {
    std::string name;  // the last one; empty: none, or not ours to know
    gshm_stat_info info;
    std::vector<gshm_holder> holders;

    bool former() const { return (info.flags & GSHM_FORMER) != 0; }
};

// Of all that we may see; nothing of a daemon that is too old to tell.
std::vector<UnlinkedEntry> list_unlinked(Context& context);

}  // namespace gshm::cli
