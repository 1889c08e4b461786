// The protocol between gshmd and gshm-maker: one message per packet of a SOCK_SEQPACKET socket, in native byte order.
// The descriptor of an allocation is passed with its reply.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gshm::core::maker {

// The version of this protocol, which replies have. gshm-maker outlives its gshmd, so gshmds of other versions meet it:
// they need `list` and the head of a message, which never change.
inline constexpr uint8_t kVersion = 1;

inline constexpr int kSocketFd = 3;  // in gshm-maker, as started by gshmd
inline constexpr size_t kMostHandles = 64;

enum class Kind : uint32_t {
    make = 1,     // allocate; answered by `made`, with a descriptor on success
    release = 2,  // free the allocation of handles[0]; answered by `released`, also if there is none
    list = 3,     // answered by one or more `handles`; the last one has fewer than kMostHandles
    made = 4,
    released = 5,
    handles = 6,
};

struct Message {
    Kind kind;
    uint32_t count;   // number of handles
    uint64_t number;  // of the request; repeated in its replies
    int32_t result;   // of CUDA, in `made`
    int32_t pid;      // of gshm-maker, in replies
    uint64_t size_bytes;
    uint32_t handle_types;  // CUDA's bits
    uint8_t compressible;
    uint8_t rdma_capable;
    uint8_t version;  // of a reply: kVersion; 0 in gshm 0.1
    uint8_t padding;
    std::array<uint8_t, 16> uuid;  // of the GPU
    std::array<std::array<uint8_t, 64>, kMostHandles> handles;
};

inline constexpr size_t kHeadBytes = offsetof(Message, handles);
constexpr size_t bytes_of(const Message& message) {
    return kHeadBytes + message.count * sizeof message.handles[0];
}

}  // namespace gshm::core::maker
