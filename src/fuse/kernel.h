// The FUSE protocol: linux/fuse.h, and the additions of kernels that are newer than that header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <linux/fuse.h>
#include <sys/ioctl.h>

namespace gshm::core::fuse {

// Flags of INIT, as one number: the lower half is `flags`, the upper half `flags2`.
inline constexpr uint64_t kDirectIoAllowMmap = uint64_t{1} << 36;  // 6.6
inline constexpr uint64_t kPassthrough = uint64_t{1} << 37;        // 6.9
inline constexpr uint64_t kHasResend = uint64_t{1} << 39;          // 6.9
inline constexpr uint64_t kOverIoUring = uint64_t{1} << 41;        // 6.14

// FUSE_NOTIFY_...
inline constexpr int32_t kNotifyResend = 7;       // requests that were read but not answered are sent again
inline constexpr int32_t kNotifyForgetNames = 8;  // 6.16: all cached names are invalid
// Set in the id of a request that was read before.
inline constexpr uint64_t kResent = uint64_t{1} << 63;

// FOPEN_...: the kernel reads and writes the backing file by itself.
inline constexpr uint32_t kOpenPassthrough = 1U << 7;

// fuse_init_out with the fields that came later.
struct InitOut {
    uint32_t major;
    uint32_t minor;
    uint32_t max_readahead;
    uint32_t flags;
    uint16_t max_background;
    uint16_t congestion_threshold;
    uint32_t max_write;
    uint32_t time_gran;
    uint16_t max_pages;
    uint16_t map_alignment;
    uint32_t flags2;
    uint32_t max_stack_depth;
    uint32_t unused[6];
};
static_assert(sizeof(InitOut) == sizeof(fuse_init_out));

// fuse_open_out, whose padding became the backing file.
struct OpenOut {
    uint64_t file;
    uint32_t open_flags;
    int32_t backing_id;
};
static_assert(sizeof(OpenOut) == sizeof(fuse_open_out));

struct BackingMap {
    int32_t fd;
    uint32_t flags;
    uint64_t padding;
};
inline constexpr unsigned long kBackingOpen = _IOW(229, 1, BackingMap);
inline constexpr unsigned long kBackingClose = _IOW(229, 2, uint32_t);

// A request through io_uring, and its answer, in memory shared with the kernel.
struct UringEntryState {
    uint64_t flags;
    uint64_t commit_id;
    uint32_t payload_bytes;
    uint32_t padding;
    uint64_t reserved;
};
struct UringHeader {
    std::byte in_out[128];     // fuse_in_header, then fuse_out_header
    std::byte arguments[128];  // the first part of the operation; names and data are in the payload
    UringEntryState entry;
};
static_assert(sizeof(UringHeader) == 288);

// The command in a submission of 128 bytes.
struct UringCommand {
    uint64_t flags;
    uint64_t commit_id;
    uint16_t queue;
    uint8_t padding[6];
};
static_assert(sizeof(UringCommand) == 24);
inline constexpr uint32_t kRingRegister = 1;
inline constexpr uint32_t kRingCommitAndFetch = 2;

}  // namespace gshm::core::fuse
