// A program that connects while gshmd is being replaced waits for the next one. It used to fail with ERESTART.
#include <atomic>
#include <filesystem>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

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

// While gshmd starts, a client of another user used to be refused for want of rights (EACCES), and did not try again: the
// socket had the mode of the umask first.
TEST_F(ConnectRegress, TheSocketHasItsModeFromTheBeginning) {
    std::filesystem::create_directories(dir());
    const std::string path = socket_path();
    std::atomic<bool> ended = false;
    std::atomic<mode_t> wrong = 0;
    std::atomic<uint64_t> seen = 0;
    std::jthread watcher([&] {
        struct stat status = {};
        while (!ended) {
            if (::stat(path.c_str(), &status) != 0) continue;
            ++seen;
            if ((status.st_mode & 0777) != 0666) wrong = status.st_mode & 0777;
        }
    });
    const mode_t umask_before = ::umask(022);
    for (int i = 0; i < 5'000 || (seen < 1'000 && i < 1'000'000); ++i) {
        auto listener = wire::listen_at(path, 0666);
        EXPECT_TRUE(listener);
        ::unlink(path.c_str());
    }
    ended = true;
    EXPECT_EQ(::umask(umask_before), 022u) << "the umask of the process is what it was";
    EXPECT_GE(seen, 1'000u);
    EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace gshm::core::test
