#include "daemon/resource_names.h"

#include <fmt/ranges.h>

#include "base/budgets.h"
#include "base/nearest.h"

namespace gshm::core {

std::vector<std::string_view> resource_names() {
    std::vector<std::string_view> names;
    for (size_t i = 0; i < Budgets::kKinds; ++i) names.push_back(Budgets::name_of(static_cast<Resource>(i)));
    return names;
}

std::string unknown_resource(std::string_view name) {
    const auto names = resource_names();
    const auto hint = nearest_hint(name, names);
    return fmt::format("there is no resource \"{}\"{} There are: {}", name, hint.empty() ? "." : hint,
                       fmt::join(names, ", "));
}

}  // namespace gshm::core
