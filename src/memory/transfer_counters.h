// Counts the bytes that pass through this process into objects and out of them, and the durations of transfers. For the
// metrics.
#pragma once

#include <array>
#include <cstdint>

#include "base/durations.h"
#include "base/limits.h"

namespace gshm::core {

enum class TransferDirection : uint8_t { in, out };  // of the object
// The other end of the bytes. Each byte is counted once.
enum class TransferPath : uint8_t {
    direct,  // a file, past the page cache
    cached,  // a file, by the page cache
    hole,    // a hole of a file
    cufile,  // a file, by cuFile
    staged,  // memory that a client shares with gshmd
    mount,   // reads and writes in the mount that the kernel sends to gshmd
};
inline constexpr size_t kTransferPaths = 6;

class TransferCounters {
public:
    // From any thread.
    static void note_bytes(uint32_t device, TransferDirection direction, TransferPath path, uint64_t bytes);
    static void note_duration(uint32_t device, TransferDirection direction, uint64_t ns);

    struct Sums {
        std::array<uint64_t, kTransferPaths> bytes = {};
        Durations durations;
    };
    static Sums sums(uint32_t device, TransferDirection direction);
};

}  // namespace gshm::core
