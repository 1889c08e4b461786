#include "wire/message.h"

#include "base/limits.h"

namespace gshm::wire {
namespace {

// Deep nesting and table bombs cost the verifier time before they can cost us anything else.
constexpr flatbuffers::uoffset_t kMaxDepth = 16;
constexpr flatbuffers::uoffset_t kMaxTables = 4 * limits::kBatchItems;

template <typename Message>
Result<const Message*> decode(Bytes packet) {
    // A root offset, an identifier and a vtable are the least there can be.
    if (packet.size() < 12 || packet.size() > limits::kMessageBytes) {
        return fail(EPROTO, "a message of {} bytes", packet.size());
    }
    flatbuffers::Verifier verifier(packet.data(), packet.size(), kMaxDepth, kMaxTables);
    if (!verifier.VerifyBuffer<Message>("GSHM")) return fail(EPROTO, "a message that is not well formed");
    return flatbuffers::GetRoot<Message>(packet.data());
}

}  // namespace

Result<const Request*> decode_request(Bytes packet) {
    return decode<Request>(packet);
}

Result<const Reply*> decode_reply(Bytes packet) {
    return decode<Reply>(packet);
}

Bytes finish_request(flatbuffers::FlatBufferBuilder& builder, uint64_t id, RequestBody kind,
                     flatbuffers::Offset<void> body) {
    builder.Finish(CreateRequest(builder, id, kind, body), "GSHM");
    return {builder.GetBufferPointer(), builder.GetSize()};
}

Bytes finish_reply(flatbuffers::FlatBufferBuilder& builder, uint64_t id, ReplyBody kind, flatbuffers::Offset<void> body,
                   int error, std::string_view message) {
    flatbuffers::Offset<flatbuffers::String> text;
    // Long enough for any sentence of ours, short enough for any message.
    if (!message.empty()) text = builder.CreateString(message.data(), std::min<size_t>(message.size(), 8192));
    builder.Finish(CreateReply(builder, id, error, text, kind, body), "GSHM");
    return {builder.GetBufferPointer(), builder.GetSize()};
}

}  // namespace gshm::wire
