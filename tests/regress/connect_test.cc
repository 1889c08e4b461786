// A program that connects while gshmd is being replaced waits for the next one. It used to fail with ERESTART.
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>

#include "base/limits.h"
#include "base/runtime_dir.h"
#include "integration/daemon_fixture.h"
#include "wire/message.h"
#include "wire/version.h"
#include <gshm/gshm.h>

namespace gshm::core::test {
namespace {

// A gshmd that is being replaced, and then its successor, at one socket.
class Replacement {
public:
    explicit Replacement(const std::string& dir) : listener_(*wire::listen_at(socket_path(dir))) {
        thread_ = std::jthread([this] {
            answer(true);
            answer(false);
        });
    }

private:
    // The second one also reads the client's goodbye, and ends.
    void answer(bool replaced) {
        auto peer = UniqueFd::adopt(accept(listener_.get(), nullptr, nullptr));
        std::vector<uint8_t> buffer(limits::kMessageBytes);
        auto received = wire::receive_packet(peer.get(), buffer, true);
        flatbuffers::FlatBufferBuilder builder;
        const auto* hello = *wire::decode_request({buffer.data(), received->bytes});
        wire::Bytes reply;
        if (replaced) {
            reply = wire::finish_reply(builder, 0, wire::ReplyBody::NONE, 0, ERESTART, "gshmd is being replaced");
        } else {
            const auto body = wire::CreateHelloReply(builder, hello->body_as_Hello()->protocol(), 1);
            reply = wire::finish_reply(builder, hello->id(), wire::ReplyBody::HelloReply, body.Union());
        }
        (void)wire::send_packet(peer.get(), reply, {}, true);
        if (!replaced) (void)wire::receive_packet(peer.get(), buffer, true);
    }

    UniqueFd listener_;
    std::jthread thread_;
};

class ConnectRegress : public ::testing::Test, protected DaemonFixture {};

TEST_F(ConnectRegress, WaitsForTheNextGshmd) {
    std::filesystem::create_directories(dir());
    Replacement replacement(dir());
    gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
    const std::string folder = dir();
    options.dir = folder.c_str();
    options.timeout_ms = 60'000;
    gshm_client* client = nullptr;
    EXPECT_EQ(gshm_connect(&options, &client), 0) << gshm_last_error();
    gshm_disconnect(client);
}

}  // namespace
}  // namespace gshm::core::test
