// The protocol between gshmd and gshm-keeper: one message per packet of a SOCK_SEQPACKET socket, in native byte order,
// with descriptors in the order of the keys.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gshm::core::keeper {

// The version of this protocol, which `end` reports. A keeper outlives its gshmd, so gshmds of other versions meet it:
// they need `list` and `end`, which never change.
inline constexpr uint64_t kVersion = 1;

inline constexpr size_t kMostKeys = 200;  // the kernel passes at most 253 descriptors

enum class Kind : uint32_t {
    put = 1,    // keep these descriptors; replaces those with the same keys
    drop = 2,   // close the descriptors with these keys
    list = 3,   // answered by `put`s with all descriptors, then `end`
    begin = 4,  // drop everything; keys[0] is the new instance of the daemon
    sync = 5,   // answered by `end` when all earlier messages, of all peers, are processed
    stop = 6,   // close everything and exit
    end = 7,    // keys[0]: the instance, keys[1]: number of descriptors, keys[2]: kVersion; 0.1 has no keys[2]
};

struct Message {
    Kind kind;
    uint32_t count;
    uint64_t keys[kMostKeys];
};

inline constexpr size_t kHeadBytes = offsetof(Message, keys);
constexpr size_t bytes_of(const Message& message) {
    return kHeadBytes + message.count * sizeof(uint64_t);
}

}  // namespace gshm::core::keeper
