#include "daemon/takeover.h"

#include "base/limits.h"
#include "base/runtime_dir.h"
#include "wire/message.h"
#include "wire/version.h"

namespace gshm::core {
namespace {

struct Answer {
    std::vector<uint8_t> bytes;
    std::vector<UniqueFd> descriptors;
    const wire::Reply* reply = nullptr;
};

Result<Answer> call(int socket, wire::RequestBody kind, flatbuffers::FlatBufferBuilder& builder,
                    flatbuffers::Offset<void> body) {
    TRY(wire::send_packet(socket, wire::finish_request(builder, 1, kind, body), {}, true));
    Answer answer;
    answer.bytes.resize(limits::kMessageBytes);
    auto received = TRY(wire::receive_packet(socket, answer.bytes, true));
    if (received.end) return fail(ECONNRESET, "the gshmd that runs has gone before it could be taken over");
    answer.descriptors = std::move(received.descriptors);
    answer.reply = TRY(wire::decode_reply({answer.bytes.data(), received.bytes}));
    if (answer.reply->error() != 0) {
        return fail(answer.reply->error(), "the gshmd that runs: {}", wire::view(answer.reply->message()));
    }
    return answer;
}

}  // namespace

Result<Takeover> Takeover::create(const std::string& dir) {
    auto socket = wire::connect_to(socket_path(dir));
    if (!socket)
        return fail(ECONNREFUSED, "there is no gshmd at {} to take over from; start it without --takeover", dir);
    Takeover made(std::move(*socket));
    flatbuffers::FlatBufferBuilder builder;
    // Every protocol from the first on, even if this gshmd serves fewer: Hello, its reply and Takeover never change, so
    // that a gshmd of any age can be replaced.
    auto hello =
        wire::CreateHello(builder, 1, builder.CreateString(wire::kProductVersion), 0, 0, wire::kProtocolHighest);
    auto answer = TRY(call(made.socket_.get(), wire::RequestBody::Hello, builder, hello.Union()));
    const auto* greeting = answer.reply->body_as_HelloReply();
    if (greeting == nullptr) return fail(EPROTO, "the gshmd that runs did not answer the greeting");
    if (greeting->devices() != nullptr) {
        for (const auto* device : *greeting->devices()) made.devices_.emplace_back(wire::view(device->name()));
    }
    flatbuffers::FlatBufferBuilder question;
    auto devices = wire::CreateDevices(question);
    auto told = call(made.socket_.get(), wire::RequestBody::Devices, question, devices.Union());
    const auto* list = told ? told->reply->body_as_DeviceList() : nullptr;
    // A gshmd of 0.1 has no tiers.
    if (list == nullptr || list->tiers() == nullptr) return made;
    for (const auto* tier : *list->tiers()) {
        const auto name = wire::view(tier->name());
        if (name.starts_with('/') && tier->objects() > 0) made.folder_ = name;
    }
    return made;
}

Result<Takeover::Received> Takeover::ask() {
    flatbuffers::FlatBufferBuilder builder;
    auto body = wire::CreateTakeover(builder);
    auto answer = TRY(call(socket_.get(), wire::RequestBody::Takeover, builder, body.Union()));
    if (answer.descriptors.size() != 2) return fail(EPROTO, "the gshmd that runs did not hand over its socket");
    return Received{std::move(answer.descriptors[0]), std::move(answer.descriptors[1])};
}

}  // namespace gshm::core
