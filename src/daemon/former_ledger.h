// The ledger that gshmd had before the keeper held it: gshm.leases in the runtime folder, beside a catalog of version 1.
#pragma once

#include <functional>
#include <string>

#include "store/ledger.h"
#include "store/node.h"

namespace gshm::core {

std::string former_ledger_path(const std::string& dir);

// Adds its entries. `extent_of` returns the key of an object's extent, 0: none.
Status add_former_entries(const std::string& path, Ledger& into, const std::function<uint64_t(NodeId)>& extent_of);

}  // namespace gshm::core
