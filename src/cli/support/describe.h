// An entry as a record and as text.
#pragma once

#include <string>
#include <vector>

#include "cli/support/attributes.h"
#include "cli/support/record.h"

namespace gshm::cli {

// The JSON form of an entry, the same in every command.
Record stat_record(const std::string& name, const StatInfo& info);
// The same as lines of text, with the attributes.
struct ShownAcls {
    std::vector<AclEntry> acl;
    std::vector<AclEntry> default_acl;
};
std::string stat_text(const std::string& name, const StatInfo& info, const std::vector<Attribute>& attributes,
                      const ShownAcls& acls = {});

// "ok", or "failed: why"
std::string device_state_text(const DeviceInfo& device);

// "open", "sealed"; "-" for directories
std::string kind_text(const StatInfo& info);
std::string state_text(const StatInfo& info);
// The device, with the tier that has the object.
std::string device_text(const StatInfo& info);

}  // namespace gshm::cli
