// The options of gshmd, as values. Their names, texts and effects are in option_table.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/budgets.h"
#include "base/limits.h"
#include "wire/protocol_range.h"

namespace gshm::core {

// "--metrics none"
inline constexpr std::string_view kNoMetrics = "none";

struct Options {
    std::string dir;  // absolute; "" before Configuration::create()
    std::vector<std::string> mountpoints;
    std::vector<std::string> devices;  // empty: all
    uint64_t limit_bytes = 0;          // 0: none
    // Enough to keep the bus busy. More is slower, since the copies then miss the processor's cache (H200: 47 GB/s from
    // the page cache with 64 MiB, 39 with 256, 34 with 512).
    uint64_t staging_bytes = uint64_t{64} << 20;
    unsigned threads = 0;  // that serve clients; 0: the default for the machine's cores
    // Of what is there for all users, in percent.
    unsigned user_share = limits::kUserSharePercent;
    unsigned pin_share = limits::kPinSharePercent;  // of each device, that a user may pin of own objects, in percent
    std::vector<std::string> tiers;                 // see TierSpec; empty or "none": no tier
    unsigned tier_free = limits::kTierFreePercent;  // percent of a device, kept free for new objects
    Budgets::Totals budgets = Budgets::kOfMachine;
    std::vector<std::string> metrics;  // addresses that serve them too; empty or "none": none
    std::string keeper = "process";
    bool debug = false;
    bool no_passthrough = false;
    bool io_uring = false;

    // ---- of the command line alone ----
    std::string config;  // a file, "none", or "": the default one
    bool check_config = false;
    bool foreground = false;
    bool takeover = false;
    bool discard = false;
    bool salvage = false;
    bool help = false;
    bool version = false;

    wire::ProtocolRange protocols;
};

}  // namespace gshm::core
