// Every limit of gshm, checked where data comes in.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gshm::limits {

// Names.
inline constexpr size_t kNamePartBytes = 255;
inline constexpr size_t kNameBytes = 4095;

// Objects.
inline constexpr uint64_t kObjectBytes = (uint64_t{1} << 63) - 1;
// Of a file in the mount. More is no file that outgrows a device (ENOSPC) but nonsense (EFBIG).
inline constexpr uint64_t kFileBytes = uint64_t{1} << 47;
// Up to here an object lives in a slab; above, in an extent of its own.
inline constexpr uint64_t kSmallObjectBytes = uint64_t{1} << 20;
// What GPU libraries expect of a pointer.
inline constexpr uint64_t kObjectAlignment = 256;
// Slabs of one kind double from the granularity up to this, so that waste stays in proportion to use.
inline constexpr uint64_t kWriterSlabBytes = uint64_t{256} << 10;  // the first slab of a writer that has to have its own
inline constexpr uint64_t kSlabBytesMax = uint64_t{64} << 20;
// Attributes, by whatever way they are set. The kernel has 255 bytes for a name, with "user." before it.
inline constexpr size_t kAttributeNameBytes = 250;
inline constexpr size_t kAttributeValueBytes = 64 << 10;  // as the kernel
// All attributes of a node together.
inline constexpr size_t kAttributesBytes = 1 << 20;

// Protocol. A message must fit the socket buffer that an unprivileged process may have.
inline constexpr size_t kMessageBytes = 128 << 10;
inline constexpr size_t kMessageDescriptors = 200;  // the kernel takes 253
inline constexpr size_t kBatchItems = 1024;
// Replies waiting for a client that does not read: beyond this its requests are not read either.
inline constexpr size_t kSessionQueueBytes = 1 << 20;
inline constexpr size_t kSessionWaits = 4096;
inline constexpr size_t kSessionWaitSteps = 256 << 10;  // directory entries that its waits are found by
inline constexpr unsigned kClientThreads = 64;
inline constexpr size_t kSessionJobs = 256;
// Events waiting for a watch that does not read: beyond this it is told that it has missed some.
inline constexpr size_t kWatchQueueBytes = 1 << 20;

// Rings.
inline constexpr uint32_t kRingEntries = 32768;
inline constexpr uint32_t kRingFiles = 4096;
inline constexpr size_t kSessionFiles = 4096;  // of all its rings
inline constexpr uint32_t kRingObjects = 65536;
inline constexpr size_t kSessionFences = 1024;  // each is a descriptor or two of gshmd's
inline constexpr size_t kSessionRings = 512;  // one or two for each of a program's threads

// Copies through the daemon go by pieces of this size.
inline constexpr size_t kStagingBytes = 4 << 20;

}  // namespace gshm::limits
