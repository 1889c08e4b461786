#include "client/greeting.h"

#include <algorithm>
#include <poll.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/runtime_dir.h"
#include "wire/protocol_range.h"

namespace gshm::core::client {
namespace {

constexpr int kGreetingTimeoutMs = 5000;

// Always ECONNREFUSED: a call that reconnects uses ENOENT for missing objects.
std::unexpected<Error> not_running(const std::string& dir) {
    auto standard = default_runtime_dir();
    bool is_default = standard && *standard == dir;
    std::string hint;
    if (dir != kSystemRuntimeDir && access(socket_path(kSystemRuntimeDir).c_str(), F_OK) == 0) {
        hint = fmt::format(", or use the one at {} (--dir, GSHM_DIR)", kSystemRuntimeDir);
    }
    if (dir == kSystemRuntimeDir && geteuid() != 0) {
        return fail(ECONNREFUSED,
                    "gshmd is not running at {}; root starts it with `gshmd`; for a gshmd of your own, name another "
                    "folder by --dir or GSHM_DIR",
                    dir);
    }
    return fail(ECONNREFUSED, "gshmd is not running at {}; start it with `gshmd{}`{}", dir,
                is_default ? "" : " --dir " + dir, hint);
}

}  // namespace

bool may_come(const Error& error) {
    // ERESTART: gshmd is being replaced.
    return error.code == ECONNREFUSED || error.code == ECONNRESET || error.code == EPIPE || error.code == EAGAIN ||
           error.code == ERESTART;
}

Result<Greeting> greet(const std::string& dir, int timeout_ms, uint64_t request, const Secret& secret) {
    const wire::ProtocolRange own = TRY(wire::own_protocols());
    auto socket = wire::connect_to(socket_path(dir));
    if (!socket) {
        int code = socket.error().code;
        if (code == ENOENT || code == ECONNREFUSED) return not_running(dir);
        return fail(code, "cannot reach gshmd at {}: {}", dir, socket.error().message);
    }
    flatbuffers::FlatBufferBuilder builder;
    auto hello = wire::CreateHello(builder, own.lowest, builder.CreateString(wire::kProductVersion), secret.low,
                                   secret.high, own.highest);
    auto packet = wire::finish_request(builder, request, wire::RequestBody::Hello, hello.Union());
    auto sent = wire::send_packet(socket->get(), packet, {}, true);
    // EPIPE: gshmd closed the connection before it read the Hello. Its reply has the reason.
    if (!sent && sent.error().code != EPIPE) return std::unexpected(sent.error());
    // A stopped daemon still accepts connections.
    pollfd ready = {socket->get(), POLLIN, 0};
    if (poll(&ready, 1, std::max(timeout_ms, kGreetingTimeoutMs)) == 0) {
        return fail(ETIMEDOUT, "gshmd at {} does not answer", dir);
    }
    std::vector<uint8_t> buffer(limits::kMessageBytes);
    auto received = TRY(wire::receive_packet(socket->get(), buffer, true));
    if (received.end) return fail(ECONNRESET, "gshmd at {} closed the connection", dir);
    const auto* reply = TRY(wire::decode_reply({buffer.data(), received.bytes}));
    if (reply->error() != 0) return std::unexpected(Error{reply->error(), std::string(wire::view(reply->message()))});
    const auto* hello_reply = reply->body_as_HelloReply();
    if (hello_reply == nullptr) return fail(EPROTO, "gshmd at {} did not answer the greeting", dir);
    const uint32_t protocol = hello_reply->protocol();
    if (protocol < own.lowest || protocol > own.highest) {
        return fail(EPROTO, "gshmd at {} chose protocol {}, which was not offered", dir, protocol);
    }
    std::vector<RemoteDevice> devices;
    if (hello_reply->devices() != nullptr) {
        for (const auto* device : *hello_reply->devices()) {
            devices.push_back({std::string(wire::view(device->name())), std::string(wire::view(device->uuid()))});
        }
    }
    return Greeting{std::move(*socket),
                    std::make_shared<const std::vector<RemoteDevice>>(std::move(devices)),
                    protocol,
                    hello_reply->instance(),
                    {hello_reply->secret_low(), hello_reply->secret_high()},
                    hello_reply->resumed()};
}

}  // namespace gshm::core::client
