// What a test tells libfaults.so, the library that is loaded into gshmd before all others (LD_PRELOAD), and what it hears
// back: one of these in a file that both have mapped. GSHM_FAULTS names it.
//
// The test writes the fields, `armed` last; the library counts the calls of that class from then on, and fails those
// from the `first`-th on, `count` of them. Only calls by gshmd's own code are counted (by libsqlite3's for `catalog`):
// not those of the C++ library, of the fake driver, or of the keeper, which is started with the same environment.
#pragma once

#include <atomic>
#include <cstdint>

namespace gshm::faults {

enum class Class : uint32_t {
    none = 0,
    system = 1,       // calls of the C library, each with an error of its own: see preload/
    interrupted = 2,  // those of them that a signal can interrupt, with EINTR
    sqlite = 3,       // calls into libsqlite3, with SQLITE_FULL, SQLITE_NOMEM and the like
    catalog = 4,      // calls of the C library that libsqlite3 makes
    device = 5,       // calls of the fake driver, but those that give something back
};

struct Control {
    std::atomic<uint32_t> armed;
    std::atomic<uint64_t> seen;
    std::atomic<uint64_t> first;
    std::atomic<uint64_t> count;
    std::atomic<uint64_t> failed;
    char last[64];               // the call that was failed last
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace gshm::faults
