// What is known of a name, as a record and as words.
#pragma once

#include <string>
#include <vector>

#include "cli/support/attributes.h"
#include "cli/support/record.h"
#include <gshm/gshm.h>

namespace gshm::cli {

// The JSON shape of an object or a directory, the same in every command.
Record stat_record(const std::string& name, const gshm_stat_info& info);
// The same for people, with the attributes, as lines.
std::string stat_text(const std::string& name, const gshm_stat_info& info, const std::vector<Attribute>& attributes);

// "open", "sealed"; "-" for directories
std::string kind_text(const gshm_stat_info& info);
std::string state_text(const gshm_stat_info& info);

}  // namespace gshm::cli
