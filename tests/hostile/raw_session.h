// A connection for packets of any content, with any descriptors. All failures are results: gshmd may refuse anything.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/limits.h"
#include "wire/message.h"
#include "wire/version.h"

namespace gshm::core::hostile {

class RawSession {
public:
    using Builder = flatbuffers::FlatBufferBuilder;
    using Build = std::function<flatbuffers::Offset<void>(Builder&)>;

    bool connect(const std::string& socket_path) {
        auto connected = wire::connect_to(socket_path);
        if (!connected) return false;
        socket_ = std::move(*connected);
        return true;
    }
    bool greet(const std::string& socket_path) {
        return connect(socket_path) && send(wire::RequestBody::Hello, hello) && receive() == 0;
    }
    static flatbuffers::Offset<void> hello(Builder& builder) {
        return wire::CreateHello(builder, wire::kProtocolHighest, builder.CreateString("hostile")).Union();
    }
    static std::vector<uint8_t> packet(wire::RequestBody kind, const Build& build, uint64_t id = 1) {
        Builder builder;
        const auto bytes = wire::finish_request(builder, id, kind, build(builder));
        return {bytes.begin(), bytes.end()};
    }

    int socket() const { return socket_.get(); }
    // False: the connection is gone or, without `wait`, would block.
    bool send(wire::Bytes bytes, std::span<const int> descriptors = {}, bool wait = true) {
        const auto sent = wire::send_packet(socket_.get(), bytes, descriptors, wait);
        return sent && *sent == wire::SendOutcome::sent;
    }
    bool send(wire::RequestBody kind, const Build& build, std::span<const int> descriptors = {}, bool wait = true) {
        return send(packet(kind, build, ++last_), descriptors, wait);
    }
    // The error of the next reply; -1: the connection is gone or, without `wait`, there is none. The descriptors of the
    // reply are closed.
    int receive(bool wait = true) {
        buffer_.resize(limits::kMessageBytes);
        const auto received = wire::receive_packet(socket_.get(), buffer_, wait);
        if (!received || received->end || received->bytes == 0) return -1;
        const auto reply = wire::decode_reply({buffer_.data(), received->bytes});
        return reply ? (*reply)->error() : -1;
    }
    int ask(wire::RequestBody kind, const Build& build, std::span<const int> descriptors = {}) {
        return send(kind, build, descriptors) ? receive() : -1;
    }

private:
    UniqueFd socket_;
    uint64_t last_ = 0;
    std::vector<uint8_t> buffer_;
};

}  // namespace gshm::core::hostile
