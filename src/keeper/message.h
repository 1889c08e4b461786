// What gshmd and gshm-keeper say to each other: one message per packet of a SOCK_SEQPACKET socket, in this machine's
// own byte order, descriptors beside it in the order of the keys.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gshm::keeper {

inline constexpr size_t kMostKeys = 200;  // the kernel passes 253 descriptors at most

enum class Kind : uint32_t {
    put = 1,     // keep these descriptors; one that is kept under a key already is replaced
    drop = 2,    // close those of these keys
    list = 3,    // answered by `put`s with all, then `end`
    begin = 4,   // forget everything; keys[0] is the number of the daemon's instance from now on
    sync = 5,    // answered by `end` when all that was said before, by whomever, is done
    stop = 6,    // close everything and end
    end = 7,     // keys[0]: the instance, keys[1]: how many are kept
};

struct Message {
    Kind kind;
    uint32_t count;
    uint64_t keys[kMostKeys];
};

inline constexpr size_t kHeadBytes = offsetof(Message, keys);
constexpr size_t bytes_of(const Message& message) { return kHeadBytes + message.count * sizeof(uint64_t); }

}  // namespace gshm::keeper
