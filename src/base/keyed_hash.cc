#include "base/keyed_hash.h"

#include <bit>
#include <cstring>
#include <sys/random.h>
#include <time.h>

namespace gshm::core {
namespace {

struct State {
    uint64_t v0, v1, v2, v3;

    template <int rounds>
    void mix() {
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
    template <int rounds>
    void add(uint64_t word) {
        v3 ^= word;
        mix<rounds>();
        v0 ^= word;
    }
};

template <typename Word>
uint64_t load(const char* bytes) {
    Word word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

// The last, fewer than eight bytes. Avoids a call of memcpy() with a variable size.
uint64_t load_rest(const char* bytes, size_t count) {
    uint64_t word = 0;
    size_t at = 0;
    if ((count & 4) != 0) word = load<uint32_t>(bytes), at = 4;
    if ((count & 2) != 0) word |= load<uint16_t>(bytes + at) << (8 * at), at += 2;
    if ((count & 1) != 0) word |= load<uint8_t>(bytes + at) << (8 * at);
    return word;
}

HashKey random_key() {
    HashKey key;
    if (getrandom(&key, sizeof key, 0) == sizeof key) return key;
    // Without random numbers the time makes the key at least differ between processes.
    timespec now = {};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return {static_cast<uint64_t>(now.tv_nsec), static_cast<uint64_t>(now.tv_sec)};
}

template <int rounds, int last_rounds>
uint64_t siphash(std::string_view bytes, const HashKey& key) {
    State state{key.low ^ 0x736f6d6570736575, key.high ^ 0x646f72616e646f6d, key.low ^ 0x6c7967656e657261,
                key.high ^ 0x7465646279746573};
    size_t at = 0;
    for (; at + 8 <= bytes.size(); at += 8) state.add<rounds>(load<uint64_t>(bytes.data() + at));
    state.add<rounds>(load_rest(bytes.data() + at, bytes.size() - at) | uint64_t{bytes.size()} << 56);
    state.v2 ^= 0xff;
    state.mix<last_rounds>();
    return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

}  // namespace

uint64_t siphash24(std::string_view bytes, const HashKey& key) {
    return siphash<2, 4>(bytes, key);
}

uint64_t keyed_hash(std::string_view bytes, const HashKey& key) {
    return siphash<1, 3>(bytes, key);
}

const HashKey& process_hash_key() {
    static const HashKey key = random_key();
    return key;
}

}  // namespace gshm::core
