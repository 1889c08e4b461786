#include "base/keyed_hash.h"

#include <bit>
#include <cstring>
#include <sys/random.h>
#include <time.h>

namespace gshm {
namespace {

struct State {
    uint64_t v0, v1, v2, v3;

    void mix(int rounds) {
        for (int i = 0; i < rounds; ++i) {
            v0 += v1;
            v1 = std::rotl(v1, 13) ^ v0;
            v0 = std::rotl(v0, 32);
            v2 += v3;
            v3 = std::rotl(v3, 16) ^ v2;
            v0 += v3;
            v3 = std::rotl(v3, 21) ^ v0;
            v2 += v1;
            v1 = std::rotl(v1, 17) ^ v2;
            v2 = std::rotl(v2, 32);
        }
    }
    void add(uint64_t word, int rounds) {
        v3 ^= word;
        mix(rounds);
        v0 ^= word;
    }
};

uint64_t word_at(const char* bytes, size_t count) {
    uint64_t word = 0;
    memcpy(&word, bytes, count);
    return word;
}

HashKey random_key() {
    HashKey key;
    if (getrandom(&key, sizeof key, 0) == sizeof key) return key;
    // Without random numbers at least not the same each time.
    timespec now = {};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return {static_cast<uint64_t>(now.tv_nsec), static_cast<uint64_t>(now.tv_sec)};
}

}  // namespace

uint64_t siphash(std::string_view bytes, const HashKey& key, int rounds, int last_rounds) {
    State state{key.low ^ 0x736f6d6570736575, key.high ^ 0x646f72616e646f6d, key.low ^ 0x6c7967656e657261,
                key.high ^ 0x7465646279746573};
    size_t at = 0;
    for (; at + 8 <= bytes.size(); at += 8) state.add(word_at(bytes.data() + at, 8), rounds);
    state.add(word_at(bytes.data() + at, bytes.size() - at) | uint64_t{bytes.size()} << 56, rounds);
    state.v2 ^= 0xff;
    state.mix(last_rounds);
    return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

const HashKey& process_hash_key() {
    static const HashKey key = random_key();
    return key;
}

}  // namespace gshm
