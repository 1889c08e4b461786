// gshmd's command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "wire/protocol_range.h"

namespace gshm::core {

struct Options {
    std::string dir;
    std::vector<std::string> mountpoints;
    std::vector<std::string> devices;
    uint64_t limit_bytes = 0;           // 0: none
    uint64_t staging_bytes = 0;         // 0: the default
    unsigned threads = 0;               // that serve clients; 0: the default for the machine's cores
    std::vector<std::string> tiers;     // see TierSpec; none: as the earlier daemon; "none": no tier
    std::optional<unsigned> tier_free;  // percent of a device, kept free for new objects
    unsigned user_share = 0;            // of what is there for all users, in percent; 0: the default
    bool foreground = false;
    bool passthrough = true;
    bool io_uring = false;
    bool debug = false;
    bool takeover = false;
    bool discard = false;
    bool salvage = false;
    std::string keeper = "process";
    wire::ProtocolRange protocols;
};

// nullopt: --help or --version was printed.
Result<std::optional<Options>> parse_options(int argc, char** argv);

}  // namespace gshm::core
