// A hash with a secret key, for tables with keys that users choose. Without the secret a user could choose names that
// collide.
#pragma once

#include <cstdint>
#include <string_view>

namespace gshm::core {

struct HashKey {
    uint64_t low = 0;
    uint64_t high = 0;
};

// SipHash-2-4, for comparison with published test vectors.
uint64_t siphash24(std::string_view bytes, const HashKey& key);

// A random key of this process.
const HashKey& process_hash_key();

// SipHash-1-3: sufficient for hash tables, at half the cost of 2-4, which is meant for authentication.
uint64_t keyed_hash(std::string_view bytes, const HashKey& key = process_hash_key());

}  // namespace gshm::core
