#include "daemon/options.h"

#include <charconv>
#include <cstdio>
#include <getopt.h>

#include "base/limits.h"
#include "base/runtime_dir.h"
#include "base/size.h"
#include "daemon/tier_specs.h"
#include "device/kinds.h"
#include "wire/version.h"

namespace gshm::core {
namespace {

constexpr const char* kUsage =
    R"(usage: gshmd [MOUNTPOINT]... [-f] [-d] [--dir DIR] [--device SPEC]... [--limit BYTES] [--takeover]

Owns GPU and host memory for every process on this machine. Goes to the background once it is ready to serve;
end it with `gshm shutdown` or SIGTERM. With a MOUNTPOINT the memory is there as files as well; unmounting it
(`gshm umount`, `fusermount3 -u`) ends the mount, not gshmd. `gshm mount DIR` mounts while gshmd runs.

Should gshmd be killed, gshm-keeper holds the memory. Start gshmd again, and all is there as it was: objects,
clients, the mounts, and the options --device, --limit and --staging where none are given now.

  -f, --foreground    stay in the foreground, log to stderr
  -d, --debug         log every request that fails and every session
      --dir DIR       runtime folder with the socket gshm.sock
                      (default: $GSHM_DIR, else /run/gshm for root, else $XDG_RUNTIME_DIR/gshm)
      --device SPEC   use this device; may be given several times, the first is the default one
                      {}; a size at the end bounds what is used
                      (default: all GPUs, then host)
      --limit BYTES   use at most so much of each device that its SPEC does not bound (64M, 4G, ...)
      --staging BYTES pinned memory that files pass through on their way to and from a GPU (64M)
      --tier SPEC     objects that are marked as evictable leave a full GPU for this tier: host:SIZE, FOLDER[:SIZE] or
                      FOLDER[:SIZE]:keep, which outlives a restart of the machine; both may be given, host comes first;
                      none: no tier (docs/tiers.md)
      --tier-free PERCENT
                      of each device with evictable objects, kept free for new ones (5)
      --threads N     threads that serve the clients of a user (three for four cores, from 2 to 12)
      --user-share PERCENT
                      the largest part of connections, descriptors, leases, names and the like that one user other than
                      root and the one who runs gshmd may hold (50); several users hold less each
      --no-passthrough
                      the bytes of host files go through gshmd, as they do for users other than root and on kernels
                      before 6.9; else the kernel reads and writes them by itself
      --io-uring      the mount's requests through io_uring, where the kernel has that switched on: less latency, but such
                      a mount does not outlive gshmd
      --takeover      take the place of the gshmd that runs there: its clients and its mount go on
      --keeper KIND   who holds the memory while gshmd is away: process (gshm-keeper, the default), systemd (its
                      store of descriptors; see packaging/gshmd.service), none (nothing outlives gshmd then)
      --discard       give up what an earlier gshmd has left, and begin anew
      --salvage       make what an earlier gshmd has left usable again if gshmd says that it is damaged: names that can
                      be read are there again, memory without one is in lost+found/, for root to copy out of
  -h, --help          this text
      --version       the version

exit codes: 0 it ran (or is serving in the background), 1 it could not start, 2 wrong usage
)";

// Room for a few chunks of large transfers.
constexpr uint64_t kStagingLeast = uint64_t{32} << 20;

// The argument of an option.
Result<unsigned> parse_number(const char* option, unsigned most, unsigned least = 1) {
    const std::string_view text = optarg;
    unsigned number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number < least || number > most) {
        return fail(EINVAL, "{} is a number from {} to {}, not '{}'", option, least, most, text);
    }
    return number;
}

}  // namespace

Result<std::optional<Options>> parse_options(int argc, char** argv) {
    enum {
        kDir = 256,
        kDevice,
        kLimit,
        kStaging,
        kThreads,
        kTier,
        kTierFree,
        kUserShare,
        kNoPassthrough,
        kIoUring,
        kTakeover,
        kKeeper,
        kDiscard,
        kSalvage,
        kVersion
    };
    const option long_options[] = {
        {"foreground", no_argument, nullptr, 'f'},
        {"debug", no_argument, nullptr, 'd'},
        {"dir", required_argument, nullptr, kDir},
        {"device", required_argument, nullptr, kDevice},
        {"limit", required_argument, nullptr, kLimit},
        {"staging", required_argument, nullptr, kStaging},
        {"tier", required_argument, nullptr, kTier},
        {"tier-free", required_argument, nullptr, kTierFree},
        {"threads", required_argument, nullptr, kThreads},
        {"no-passthrough", no_argument, nullptr, kNoPassthrough},
        {"io-uring", no_argument, nullptr, kIoUring},
        {"takeover", no_argument, nullptr, kTakeover},
        {"keeper", required_argument, nullptr, kKeeper},
        {"discard", no_argument, nullptr, kDiscard},
        {"salvage", no_argument, nullptr, kSalvage},
        {"help", no_argument, nullptr, 'h'},
        {"version", no_argument, nullptr, kVersion},
        {"user-share", required_argument, nullptr, kUserShare},
        {},
    };
    Options options;
    int choice = 0;
    while ((choice = getopt_long(argc, argv, "fdh", long_options, nullptr)) != -1) {
        switch (choice) {
            case 'f': options.foreground = true; break;
            case 'd': options.debug = true; break;
            case kDir: options.dir = optarg; break;
            case kDevice: options.devices.emplace_back(optarg); break;
            case kLimit:
                options.limit_bytes = TRY(parse_size(optarg));
                if (options.limit_bytes == 0) return fail(EINVAL, "--limit must be more than 0");
                break;
            case kStaging:
                options.staging_bytes = TRY(parse_size(optarg));
                if (options.staging_bytes < kStagingLeast) return fail(EINVAL, "--staging must be 32M or more");
                break;
            case kTier: options.tiers.emplace_back(optarg); break;
            case kTierFree: options.tier_free = TRY(parse_number("--tier-free", 90, 0)); break;
            case kThreads: options.threads = TRY(parse_number("--threads", limits::kClientThreads)); break;
            case kUserShare: options.user_share = TRY(parse_number("--user-share", 99)); break;
            case kNoPassthrough: options.passthrough = false; break;
            case kIoUring: options.io_uring = true; break;
            case kTakeover: options.takeover = true; break;
            case kDiscard: options.discard = true; break;
            case kSalvage: options.salvage = true; break;
            case kKeeper:
                options.keeper = optarg;
                if (options.keeper != "process" && options.keeper != "systemd" && options.keeper != "none") {
                    return fail(EINVAL, "--keeper is process, systemd or none, not '{}'", options.keeper);
                }
                break;
            case 'h': fmt::print(kUsage, device_spec_examples()); return std::nullopt;
            case kVersion:
                printf("gshmd %s (%s)\n", wire::kProductVersion, to_string(wire::ProtocolRange{}).c_str());
                return std::nullopt;
            default: return fail(EINVAL, "see gshmd --help");
        }
    }
    while (optind < argc) options.mountpoints.emplace_back(argv[optind++]);
    if (options.takeover + options.discard + options.salvage > 1) {
        return fail(EINVAL, "--takeover, --discard and --salvage exclude each other");
    }
    if (options.takeover && options.keeper != "process") {
        return fail(EINVAL, "--takeover goes with gshm-keeper alone, not with --keeper {}", options.keeper);
    }
    TRY(parse_tiers(options.tiers));
    options.protocols = TRY(wire::own_protocols());
    if (options.dir.empty()) options.dir = TRY(default_runtime_dir());
    return options;
}

}  // namespace gshm::core
