// A hash whose values nobody outside of the process can foresee, for tables whose keys others choose: else a user could make
// names that all fall into one place.
#pragma once

#include <cstdint>
#include <string_view>

namespace gshm::core {

struct HashKey {
    uint64_t low = 0;
    uint64_t high = 0;
};

// SipHash-2-4, by which tests see that the code is right.
uint64_t siphash24(std::string_view bytes, const HashKey& key);

// Another one in every process.
const HashKey& process_hash_key();

// SipHash-1-3: enough for tables, and half the work of 2-4, which authenticates messages.
uint64_t keyed_hash(std::string_view bytes, const HashKey& key = process_hash_key());

}  // namespace gshm::core
