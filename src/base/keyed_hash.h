// A hash whose values nobody outside of the process can foresee, for tables whose keys others choose: else a user could make
// names that all fall into one place.
#pragma once

#include <cstdint>
#include <string_view>

namespace gshm {

struct HashKey {
    uint64_t low = 0;
    uint64_t high = 0;
};

// SipHash with so many rounds for each word and at the end.
uint64_t siphash(std::string_view bytes, const HashKey& key, int rounds, int last_rounds);

// Another one in every process.
const HashKey& process_hash_key();

// SipHash-1-3: what other tables of names use, as the stronger 2-4 is for authentication.
inline uint64_t keyed_hash(std::string_view bytes, const HashKey& key = process_hash_key()) {
    return siphash(bytes, key, 1, 3);
}

}  // namespace gshm
