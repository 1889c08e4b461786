// What a gshmd of another version has left, or started, is refused with a clear error, and nothing of it is lost.
#include <fcntl.h>
#include <map>
#include <poll.h>
#include <sys/socket.h>

#include "daemon/maker.h"
#include "fence/page.h"
#include "integration/library_fixture.h"
#include "keeper/message.h"
#include "maker/message.h"
#include "ring/consumer.h"
#include "ring/producer.h"
#include "wire/message.h"

namespace gshm::core::test {
namespace {

// A gshm-keeper of another version, without descriptors.
class OtherKeeper {
public:
    // version 0: that of 0.1, which does not say it.
    OtherKeeper(const std::string& dir, uint64_t version) : version_(version) {
        listener_ = wire::listen_at(dir + "/keeper.sock").value();
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_), 0);
        thread_ = std::thread([this] { run(); });
    }
    ~OtherKeeper() { end(); }
    void end() {
        if (!thread_.joinable()) return;
        ::close(ends_[0]);
        thread_.join();
        ::close(ends_[1]);
        listener_.reset();
    }
    std::vector<keeper::Kind> heard;  // after end()

private:
    void run() {
        std::vector<pollfd> wanted = {{ends_[1], POLLIN, 0}, {listener_.get(), POLLIN, 0}};
        std::vector<UniqueFd> peers;
        for (;;) {
            poll(wanted.data(), wanted.size(), -1);
            if (wanted[0].revents != 0) return;
            for (size_t i = 2; i < wanted.size(); ++i) {
                if (wanted[i].revents != 0 && !answer(wanted[i].fd)) wanted[i].fd = -1;
            }
            if (wanted[1].revents != 0) {
                peers.push_back(UniqueFd::adopt(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
                wanted.push_back({peers.back().get(), POLLIN, 0});
            }
        }
    }
    bool answer(int peer) {
        keeper::Message message = {};
        auto received = wire::receive_packet(peer, {reinterpret_cast<uint8_t*>(&message), sizeof message}, true);
        if (!received || received->end) return false;
        heard.push_back(message.kind);
        if (message.kind == keeper::Kind::stop) {
            shutdown(peer, SHUT_RDWR);  // gshmd waits for the end of the keeper
            return false;
        }
        if (message.kind != keeper::Kind::list && message.kind != keeper::Kind::sync) return true;
        keeper::Message end = {keeper::Kind::end, version_ == 0 ? 2u : 3u, {0, 0, version_}};
        return wire::send_packet(peer, {reinterpret_cast<const uint8_t*>(&end), bytes_of(end)}, {}, true).has_value();
    }

    uint64_t version_;
    UniqueFd listener_;
    int ends_[2] = {-1, -1};
    std::thread thread_;
};

class OtherVersions : public LibraryTest {
protected:
    RunResult run_daemon(std::vector<std::string> args) {
        args.insert(args.begin(), {bin("gshmd"), "--dir", dir(), "-f"});
        ChildProcess child;
        child.spawn(args, daemon_env());
        return child.finish();
    }
    // The keeper's copies of all descriptors.
    std::map<uint64_t, UniqueFd> kept() {
        std::map<uint64_t, UniqueFd> all;
        auto socket = wire::connect_to(dir() + "/keeper.sock").value();
        const keeper::Message list = {keeper::Kind::list, 0, {}};
        EXPECT_TRUE(
            wire::send_packet(socket.get(), {reinterpret_cast<const uint8_t*>(&list), bytes_of(list)}, {}, true));
        for (;;) {
            keeper::Message message = {};
            auto received =
                wire::receive_packet(socket.get(), {reinterpret_cast<uint8_t*>(&message), sizeof message}, true);
            if (!received || received->end || message.kind == keeper::Kind::end) {
                said_ = message;
                return all;
            }
            for (uint32_t i = 0; i < message.count; ++i) all[message.keys[i]] = std::move(received->descriptors[i]);
        }
    }
    UniqueFd kept_like(uint64_t mask) {
        for (auto& [key, fd] : kept()) {
            if ((key & mask) == mask) return std::move(fd);
        }
        ADD_FAILURE() << "not kept";
        return {};
    }

    static constexpr uint64_t kSpecial = uint64_t{1} << 63;
    static constexpr uint64_t kLedger = kSpecial | 4;
    static constexpr uint64_t kFence = kSpecial | uint64_t{1} << 62;
    keeper::Message said_ = {};
};

TEST_F(OtherVersions, ANewerKeeperIsLeftAlone) {
    ASSERT_EQ(mkdir(dir().c_str(), 0755), 0);
    OtherKeeper newer(dir(), keeper::kVersion + 1);
    const auto refused = run_daemon({"--device", "host:64M"});
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_NE(refused.err.find("gshm-keeper was started by a newer gshmd and speaks version 2"), std::string::npos)
        << refused.err;
    newer.end();
    EXPECT_EQ(newer.heard, std::vector{keeper::Kind::list}) << "neither stopped nor emptied";
}

TEST_F(OtherVersions, AKeeperOf01IsUsed) {
    ASSERT_EQ(mkdir(dir().c_str(), 0755), 0);
    OtherKeeper old(dir(), 0);
    ASSERT_TRUE(start({"--device", "host:64M"})) << log();
    EXPECT_EQ(run_cli({"create", "a", "--size", "1M"}).exit_code, 0);
    EXPECT_EQ(stop(), 0);
    old.end();
    EXPECT_EQ(std::ranges::count(old.heard, keeper::Kind::begin), 1);
    EXPECT_GT(std::ranges::count(old.heard, keeper::Kind::put), 1);
}

TEST_F(OtherVersions, TheKeeperSaysItsVersion) {
    ASSERT_TRUE(start({"--device", "host:64M"})) << log();
    (void)kept();
    ASSERT_EQ(said_.count, 3u);
    EXPECT_EQ(said_.keys[2], keeper::kVersion);
}

TEST_F(OtherVersions, ADescriptorOfAnUnknownKindStays) {
    ASSERT_TRUE(start({"--device", "host:64M"})) << log();
    constexpr uint64_t kUnknown = kSpecial | 77;
    {
        auto socket = wire::connect_to(dir() + "/keeper.sock").value();
        const keeper::Message put = {keeper::Kind::put, 1, {kUnknown}};
        const int descriptors[] = {STDERR_FILENO};
        ASSERT_TRUE(wire::send_packet(socket.get(), {reinterpret_cast<const uint8_t*>(&put), bytes_of(put)},
                                      descriptors, true));
    }
    ASSERT_TRUE(kept().contains(kUnknown));
    kill();
    ASSERT_TRUE(start({})) << log();
    EXPECT_TRUE(kept().contains(kUnknown));
}

// Also of a gshmd that runs: it goes on serving when the takeover is refused.
TEST_F(OtherVersions, MemoryOfANewerGshmdIsKept) {
    ASSERT_TRUE(start({"--device", "host:64M"})) << log();
    EXPECT_EQ(run_cli({"put", "-", "a"}, "contents").exit_code, 0);
    const UniqueFd ledger = kept_like(kLedger);
    char format = 0;
    constexpr off_t kFormatAt = 7;
    ASSERT_EQ(pread(ledger.get(), &format, 1, kFormatAt), 1);
    const char newer = static_cast<char>(format + 1);
    ASSERT_EQ(pwrite(ledger.get(), &newer, 1, kFormatAt), 1);
    const auto refused = run_daemon({"--takeover"});
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_NE(refused.err.find("left by a newer gshmd"), std::string::npos) << refused.err;
    EXPECT_TRUE(running());
    EXPECT_EQ(run_cli({"cat", "a"}).out, "contents");
    kill();
    for (std::vector<std::string> args : {std::vector<std::string>{}, {"--salvage"}}) {
        const auto start_refused = run_daemon(args);
        EXPECT_EQ(start_refused.exit_code, 1);
        EXPECT_NE(start_refused.err.find("left by a newer gshmd"), std::string::npos) << start_refused.err;
    }
    ASSERT_EQ(pwrite(ledger.get(), &format, 1, kFormatAt), 1);
    ASSERT_TRUE(start({})) << log();
    EXPECT_EQ(run_cli({"cat", "a"}).out, "contents");
}

TEST_F(OtherVersions, AFenceOfANewerGshmdIsKeptAndNotUsed) {
    ASSERT_TRUE(start({"--device", "host:64M"})) << log();
    client_ = connect(60'000);
    auto object = create(client_.get(), "a", 4096, "host", GSHM_KEEP);
    gshm_fence* fence = nullptr;
    ASSERT_EQ(gshm_fence_open(object.get(), GSHM_WRITE, &fence), 0) << gshm_last_error();
    gshm_fence_close(fence);
    const UniqueFd page = kept_like(kFence);
    const uint32_t newer = 1;
    ASSERT_EQ(pwrite(page.get(), &newer, sizeof newer, fence::kPageBytes - sizeof newer), 4);
    EXPECT_EQ(gshm_fence_open(object.get(), 0, &fence), -EPROTO) << "by a library that does not know it";
    kill();
    ASSERT_TRUE(start({})) << log() << "a client can write to the page";
    EXPECT_EQ(gshm_fence_open(object.get(), 0, &fence), -EPROTO);
    EXPECT_NE(std::string(gshm_last_error()).find("layout 2"), std::string::npos) << gshm_last_error();
    const uint32_t known = 0;
    ASSERT_EQ(pwrite(page.get(), &known, sizeof known, fence::kPageBytes - sizeof known), 4);
    kill();
    ASSERT_TRUE(start({})) << log();
    EXPECT_EQ(gshm_fence_open(object.get(), 0, &fence), 0) << gshm_last_error() << ": the page was kept";
    gshm_fence_close(fence);
}

TEST(OtherVersion, OfARingIsRefused) {
    auto producer = ring::Producer::create(16).value();
    const auto take = [&] {
        return ring::Consumer::create(UniqueFd::clone(producer.memory()).value(),
                                      UniqueFd::clone(producer.doorbell()).value());
    };
    EXPECT_TRUE(take());
    const uint32_t version = ring::kVersion + 1;
    ASSERT_EQ(pwrite(producer.memory(), &version, sizeof version, offsetof(ring::Header, version)), 4);
    const auto refused = take();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, EINVAL);
    EXPECT_NE(refused.error().message.find("version 2 of the layout, gshmd knows 1: upgrade gshmd"), std::string::npos)
        << refused.error().message;
}

// Answers one request for the list as a gshm-maker of that version, without handles.
Result<std::shared_ptr<MakerProcess>> use_maker(uint8_t version) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    auto theirs = UniqueFd::adopt(ends[1]);
    std::thread other([&] {
        maker::Message message = {};
        (void)wire::receive_packet(theirs.get(), {reinterpret_cast<uint8_t*>(&message), sizeof message}, true);
        message.kind = maker::Kind::handles;
        message.version = version;
        (void)wire::send_packet(theirs.get(), {reinterpret_cast<const uint8_t*>(&message), bytes_of(message)}, {},
                                true);
    });
    auto loop = EventLoop::create().value();
    auto made =
        MakerProcess::create(*loop, UniqueFd::adopt(ends[0]), [](int) { ADD_FAILURE() << "another was started"; });
    other.join();
    if (made) (*made)->close();
    return made;
}

TEST(OtherVersion, OfAMakerIsRefused) {
    EXPECT_TRUE(use_maker(maker::kVersion));
    EXPECT_TRUE(use_maker(0)) << "that of 0.1";
    const auto refused = use_maker(maker::kVersion + 1);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, EPROTO);
    EXPECT_NE(refused.error().message.find("speaks version 2"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace gshm::core::test
