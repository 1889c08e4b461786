// All limits of gshm. Incoming data is checked against them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gshm::core::limits {

// Devices of a gshmd: eight GPUs in seven instances each, and host memory.
inline constexpr size_t kDevices = 64;

// Names.
inline constexpr size_t kNamePartBytes = 255;
inline constexpr size_t kNameBytes = 4095;

// Objects.
inline constexpr uint64_t kObjectBytes = (uint64_t{1} << 63) - 1;
// For a file in the mount. Larger sizes give EFBIG; sizes above the capacity of a device give ENOSPC.
inline constexpr uint64_t kFileBytes = uint64_t{1} << 47;
// Objects up to this size are in slabs, larger ones in extents of their own.
inline constexpr uint64_t kSmallObjectBytes = uint64_t{1} << 20;
// Required by GPU libraries.
inline constexpr uint64_t kObjectAlignment = 256;
// Slabs of one kind double in size from the granularity up to this, so that waste is proportional to use.
inline constexpr uint64_t kWriterSlabBytes = uint64_t{256} << 10;  // first slab of a writer with slabs of its own
inline constexpr uint64_t kSlabBytesMax = uint64_t{64} << 20;
inline constexpr size_t kEmptySlabs = 8;  // kept for the next objects of a user
// Attributes, in the mount and the library. The kernel allows 255 bytes for a name, which include "user.".
inline constexpr size_t kAttributeNameBytes = 250;
inline constexpr size_t kAttributeValueBytes = 64 << 10;  // as in the kernel
// For all attributes of a node.
inline constexpr size_t kAttributesBytes = 1 << 20;
// Entries of an ACL. Its value fits the page in which the kernel asks a FUSE file system for it.
inline constexpr size_t kAclEntries = 511;

// Symbolic links in 3fs-virt/iovs of the mount. All users together; root is not bounded by that.
inline constexpr size_t kIovLinksOfUser = 4096;
inline constexpr size_t kIovLinks = 64 << 10;

// Of a device with evictable objects, kept free for new ones, unless `gshmd --tier-free` says otherwise.
inline constexpr unsigned kTierFreePercent = 5;

// Lifetimes.
inline constexpr uint64_t kTtlMs = uint64_t{36500} * 24 * 3600 * 1000;  // 100 years
// Of each device, that a user may pin. `gshmd --pin-share` changes it.
inline constexpr unsigned kPinSharePercent = 10;
// Objects that expire in one turn of the store lock.
inline constexpr size_t kExpiredAtOnce = 128;
// Objects that are reclaimed together with their session. The rest goes as expired objects do.
inline constexpr size_t kReclaimedAtOnce = 1024;

// Protocol. A message must fit the socket buffer of an unprivileged process.
inline constexpr size_t kMessageBytes = 128 << 10;
inline constexpr size_t kMessageDescriptors = 200;  // the kernel's limit is 253
inline constexpr size_t kBatchItems = 1024;
// Replies queued for a client that does not read. Beyond this its requests are not read.
inline constexpr size_t kSessionQueueBytes = 1 << 20;
inline constexpr size_t kSessionWaits = 4096;
inline constexpr size_t kSessionWaitSteps = 256 << 10;  // directory entries that index its waits
inline constexpr unsigned kClientThreads = 64;
inline constexpr size_t kSessionJobs = 256;
// Events queued for a watch that does not read. Beyond this events are dropped and an overflow is reported.
inline constexpr size_t kWatchQueueBytes = 1 << 20;

// Rings.
inline constexpr uint32_t kRingEntries = 32768;
inline constexpr uint32_t kRingFiles = 4096;
inline constexpr size_t kSessionFiles = 4096;  // in all its rings
inline constexpr uint32_t kRingObjects = 65536;
inline constexpr size_t kSessionFences = 1024;  // each takes one or two descriptors of gshmd
inline constexpr size_t kSessionRings = 512;    // one or two per thread of a program

// ---- budgets of users (base/budgets.h): what gshmd has for all users together ----
// The largest part of each that a single user may hold. `gshmd --user-share` changes it.
inline constexpr unsigned kUserSharePercent = 50;
// A connection that has sent no Hello by then is closed.
inline constexpr unsigned kGreetingSeconds = 10;
// One descriptor in so many is kept back from users, for gshmd itself and for root.
inline constexpr uint64_t kDescriptorReserve = 16;
struct UserBudget {
    uint64_t most;                  // in all
    uint64_t descriptors_for_one;   // gshmd's descriptor limit allows one for so many; 0: it does not matter
    uint64_t memory_bytes_for_one;  // the machine's memory allows one for so many bytes; 0: it does not matter
    uint64_t least;                 // every user may hold so many at any time
};
inline constexpr UserBudget kUserConnections{16384, 4, 0, 8};
inline constexpr UserBudget kUserGreetings{4096, 16, 0, 4};  // connections without a Hello
inline constexpr UserBudget kUserDescriptors{UINT64_MAX, 1, 0, 64};
inline constexpr UserBudget kUserJobs{16384, 0, 1 << 20, 16};  // requests under way in other threads
inline constexpr UserBudget kUserReplyBytes{uint64_t{1} << 30, 0, 64, kSessionQueueBytes};
inline constexpr UserBudget kUserWaits{16 << 10, 0, 64 << 10, 64};
inline constexpr UserBudget kUserWaitSteps{512 << 10, 0, 4 << 10, 4096};
inline constexpr UserBudget kUserWatches{1024, 0, 1 << 20, 8};
inline constexpr UserBudget kUserEventBytes{uint64_t{1} << 30, 0, 64, 64 << 10};
inline constexpr UserBudget kUserLeases{4'000'000, 0, 4 << 10, 1024};  // the ledger has room for slightly more
inline constexpr UserBudget kUserFences{64 << 10, 16, 0, 16};
inline constexpr UserBudget kUserRings{4096, 16, 16 << 20, 8};  // with all their transfers
// Rows of the catalog: names, attributes, and the rest of a node. Also half of the bytes of the runtime folder, which has
// the catalog's log beside it.
inline constexpr UserBudget kUserNameBytes{UINT64_MAX, 0, 4, 256 << 10};
inline constexpr uint64_t kNodeBytes = 512;  // of a node, with its row, besides its names and attributes
// Space of the runtime folder that is kept back for removals and for the start of a gshmd.
inline constexpr uint64_t kFolderReserveBytes = uint64_t{16} << 20;

// Copies through the daemon are split into pieces of this size.
inline constexpr size_t kStagingBytes = 4 << 20;

}  // namespace gshm::core::limits
