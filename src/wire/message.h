// Packets and their decoding, for daemon and client. A packet is verified before use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <flatbuffers/flatbuffers.h>

#include "base/fd.h"
#include "base/result.h"
#include "protocol_generated.h"

namespace gshm::core::wire {

using Bytes = std::span<const uint8_t>;

// EPROTO for anything but a well-formed message. The result points into the bytes.
Result<const Request*> decode_request(Bytes packet);
Result<const Reply*> decode_reply(Bytes packet);

// Finishes the builder with a request or reply.
Bytes finish_request(flatbuffers::FlatBufferBuilder& builder, uint64_t id, RequestBody kind,
                     flatbuffers::Offset<void> body);
Bytes finish_reply(flatbuffers::FlatBufferBuilder& builder, uint64_t id, ReplyBody kind, flatbuffers::Offset<void> body,
                   int error = 0, std::string_view message = {});

inline std::string_view view(const flatbuffers::String* text) {
    return text == nullptr ? std::string_view{} : std::string_view(text->data(), text->size());
}
inline std::string_view view(const flatbuffers::Vector<uint8_t>* bytes) {
    return bytes == nullptr ? std::string_view{}
                            : std::string_view(reinterpret_cast<const char*>(bytes->data()), bytes->size());
}
template <typename T>
size_t count(const flatbuffers::Vector<T>* vector) {
    return vector == nullptr ? 0 : vector->size();
}

enum class SendOutcome { sent, would_block };

// Sends one packet with descriptors. Never raises SIGPIPE. EMSGSIZE above limits::kMessageBytes.
Result<SendOutcome> send_packet(int socket, Bytes packet, std::span<const int> descriptors, bool wait);

struct Received {
    size_t bytes = 0;  // 0: nothing available (without wait), or the peer is gone: see `end`
    bool end = false;
    std::vector<UniqueFd> descriptors;
};
// Receives one packet into `buffer`, which must have limits::kMessageBytes. EMSGSIZE for a longer one, EMFILE if
// descriptors were lost because this process has too many open. The descriptors of such a packet go to `ret_refused`, or
// are closed here, which may block.
Result<Received> receive_packet(int socket, std::span<uint8_t> buffer, bool wait,
                                std::vector<UniqueFd>* ret_refused = nullptr);
// The next packet to be received has descriptors. None of them is received or closed.
bool next_has_descriptors(int socket);

// A SOCK_SEQPACKET socket connected to the path.
Result<UniqueFd> connect_to(const std::string& path);
Result<UniqueFd> listen_at(const std::string& path, mode_t mode = 0600);

}  // namespace gshm::core::wire
