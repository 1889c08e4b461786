// The communication between a test and libfaults.so, which is preloaded into gshmd: one of these structs in a file that
// both map. GSHM_FAULTS names it.
//
// The test writes the fields, `armed` last. The library then counts the calls of that class and fails `count` calls
// from the `first`-th on. Only calls by gshmd's own code are counted (by libsqlite3's for `catalog`), not those of the
// C++ library, of the fake driver, or of the keeper, which has the same environment.
#pragma once

#include <atomic>
#include <cstdint>

namespace gshm::core::faults {

enum class Class : uint32_t {
    none = 0,
    system = 1,       // calls of the C library, each with a suitable error: see preload/
    interrupted = 2,  // the interruptible calls of `system`, with EINTR
    sqlite = 3,       // calls into libsqlite3, with errors such as SQLITE_FULL and SQLITE_NOMEM
    catalog = 4,      // calls of the C library by libsqlite3
    device = 5,       // calls of the fake driver, except those that release a resource
    end = 6,          // calls of `system` and `sqlite`, unlink and rename: SIGKILL ends gshmd instead of the call
};

struct Control {
    std::atomic<uint32_t> armed;
    std::atomic<uint64_t> seen;
    std::atomic<uint64_t> first;
    std::atomic<uint64_t> count;
    std::atomic<uint64_t> failed;
    char last[64];  // the last failed call
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace gshm::core::faults
