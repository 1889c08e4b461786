// The targets of a put or a get, with their sources.
#pragma once

#include <map>
#include <string>

#include <fmt/core.h>

#include "cli/support/failure.h"
#include "cli/support/text.h"

namespace gshm::cli {

class Targets {
public:
    // Throws a usage Failure if two sources have the same target.
    void add(const std::string& source, const std::string& target) {
        const auto [known, added] = sources_.try_emplace(target, source);
        if (added) return;
        throw Failure::usage(fmt::format("{} and {} would both become {}", printable(known->second), printable(source),
                                         printable(target)));
    }

private:
    std::map<std::string, std::string> sources_;  // by target
};

}  // namespace gshm::cli
