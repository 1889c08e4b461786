// A client that sends packets of its own making, with any descriptors.
#pragma once

#include <functional>
#include <poll.h>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/limits.h"
#include "wire/message.h"
#include "wire/version.h"

namespace gshm::core::test {

class RawClient {
public:
    using Builder = flatbuffers::FlatBufferBuilder;
    using Build = std::function<flatbuffers::Offset<void>(Builder&)>;
    struct Reply {
        bool is_end = false;  // of the connection
        uint64_t id = 0;
        int error = -1;
        std::string message;
    };

    enum class Greeting { none, hello };
    explicit RawClient(const std::string& socket_path, Greeting greeting = Greeting::hello)
        : socket_(std::move(*wire::connect_to(socket_path))) {
        if (greeting == Greeting::none) return;
        EXPECT_EQ(
            ask(wire::RequestBody::Hello,
                [](Builder& builder) {
                    return wire::CreateHello(builder, wire::kProtocolHighest, builder.CreateString("test")).Union();
                })
                .error,
            0);
    }

    int socket() const { return socket_.get(); }
    void send(wire::RequestBody kind, const Build& build, std::vector<int> descriptors = {}) {
        Builder builder;
        auto packet = wire::finish_request(builder, ++last_, kind, build(builder));
        EXPECT_TRUE(wire::send_packet(socket_.get(), packet, descriptors, true));
    }
    Reply receive() {
        std::vector<uint8_t> buffer(limits::kMessageBytes);
        auto received = wire::receive_packet(socket_.get(), buffer, true);
        if (!received || received->end) return {.is_end = true};
        auto decoded = wire::decode_reply({buffer.data(), received->bytes});
        if (!decoded) return {.message = decoded.error().message};
        return {false, (*decoded)->id(), (*decoded)->error(), std::string(wire::view((*decoded)->message()))};
    }
    Reply ask(wire::RequestBody kind, const Build& build, std::vector<int> descriptors = {}) {
        send(kind, build, std::move(descriptors));
        return receive();
    }
    void send_ping(std::vector<int> descriptors = {}) {
        send(
            wire::RequestBody::Ping, [](Builder& builder) { return wire::CreatePing(builder).Union(); },
            std::move(descriptors));
    }
    void send_ring(uint32_t ring, int memory, int doorbell) {
        send(wire::RequestBody::RingCreate,
             [&](Builder& builder) { return wire::CreateRingCreate(builder, ring).Union(); }, {memory, doorbell});
    }
    void send_file(uint32_t ring, int fd) {
        send(wire::RequestBody::RingFile,
             [&](Builder& builder) { return wire::CreateRingFile(builder, ring, 0).Union(); }, {fd});
    }
    Reply ping() { return send_ping(), receive(); }
    Reply create_ring(uint32_t ring, int memory, int doorbell) { return send_ring(ring, memory, doorbell), receive(); }
    Reply add_file(uint32_t ring, int fd) { return send_file(ring, fd), receive(); }

private:
    UniqueFd socket_;
    uint64_t last_ = 0;
};

}  // namespace gshm::core::test
