// The names of the resources of --budgets and [budgets].
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gshm::core {

std::vector<std::string_view> resource_names();
// "there is no resource "leasez"; did you mean leases? There are: connections, ..."
std::string unknown_resource(std::string_view name);

}  // namespace gshm::core
