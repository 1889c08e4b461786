#include "wire/message.h"

#include "base/limits.h"
#include "wire/records.h"

namespace gshm::core::wire {
namespace {

// Bounds deep nesting and table bombs, which cost the verifier time.
constexpr flatbuffers::uoffset_t kMaxDepth = 16;
constexpr flatbuffers::uoffset_t kMaxTables = 4 * limits::kBatchItems;

// The verifier checks the alignment of a vector's length, not of its elements. For empty vectors it does not matter.
template <typename Vector>
bool are_aligned(const Vector* vector) {
    return count(vector) == 0 || reinterpret_cast<uintptr_t>(vector->Data()) % alignof(uint64_t) == 0;
}

bool is_aligned(const Request& request) {
    if (const auto* open = request.body_as_OpenObjects()) return are_aligned(open->ids());
    if (const auto* stat = request.body_as_Stat()) return are_aligned(stat->ids());
    if (const auto* seal = request.body_as_Seal()) return are_aligned(seal->ids());
    if (const auto* release = request.body_as_Release()) {
        return are_aligned(release->read()) && are_aligned(release->write()) && are_aligned(release->unmapped());
    }
    return true;
}

// Also that records are whole.
bool is_aligned(const Reply& reply) {
    const void* body = reply.body();
    if (body == nullptr) return true;
    auto whole = [&]<typename Body>() { return records_of(*static_cast<const Body*>(body)).is_valid(); };
    switch (reply.body_type()) {
        case ReplyBody::OpenReply: return whole.operator()<OpenReply>();
        case ReplyBody::StatReply: return whole.operator()<StatReply>();
        case ReplyBody::ListReply: return whole.operator()<ListReply>();
        case ReplyBody::WatchReply: return whole.operator()<WatchReply>();
        case ReplyBody::HoldersReply: return whole.operator()<HoldersReply>();
        case ReplyBody::UnlinkedReply:
            return whole.operator()<UnlinkedReply>() && holders_of(*static_cast<const UnlinkedReply*>(body)).is_valid();
        default: return true;
    }
}

template <typename Message>
Result<const Message*> decode(Bytes packet) {
    // The minimum: a root offset, an identifier and a vtable.
    if (packet.size() < 12 || packet.size() > limits::kMessageBytes) {
        return fail(EPROTO, "invalid message size: {} bytes", packet.size());
    }
    flatbuffers::Verifier verifier(packet.data(), packet.size(), kMaxDepth, kMaxTables);
    if (!verifier.VerifyBuffer<Message>("GSHM")) return fail(EPROTO, "malformed message");
    const auto* message = flatbuffers::GetRoot<Message>(packet.data());
    if (!is_aligned(*message)) return fail(EPROTO, "message with misaligned numbers or with parts of records");
    return message;
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
    // Longer than any sentence of ours, shorter than any message.
    if (!message.empty()) text = builder.CreateString(message.data(), std::min<size_t>(message.size(), 8192));
    builder.Finish(CreateReply(builder, id, error, text, kind, body), "GSHM");
    return {builder.GetBufferPointer(), builder.GetSize()};
}

}  // namespace gshm::core::wire
