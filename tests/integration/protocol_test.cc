// A hostile or broken client against a real daemon: it gets an error, it is dropped, and other clients do not notice.
#include <algorithm>
#include <dirent.h>
#include <fcntl.h>
#include <fstream>
#include <random>
#include <sys/mman.h>

#include <gtest/gtest.h>

#include "base/limits.h"
#include "daemon_fixture.h"
#include "wire/message.h"
#include "wire/version.h"

namespace gshm::core::test {
namespace {

class ProtocolTest : public ::testing::Test, protected DaemonFixture {
protected:
    void SetUp() override { ASSERT_TRUE(start()) << log(); }
    // After every test the daemon serves the next client and has released everything.
    void TearDown() override {
        EXPECT_TRUE(running()) << log();
        EXPECT_EQ(run_cli({"ping"}).exit_code, 0);
    }

    UniqueFd connect_raw() {
        auto socket = wire::connect_to(socket_path());
        EXPECT_TRUE(socket);
        return socket ? std::move(*socket) : UniqueFd();
    }
    using Build = std::function<flatbuffers::Offset<void>(flatbuffers::FlatBufferBuilder&)>;
    static void send(const UniqueFd& socket, wire::RequestBody kind, uint64_t id, const Build& build,
                     std::vector<int> fds = {}) {
        flatbuffers::FlatBufferBuilder builder;
        auto packet = wire::finish_request(builder, id, kind, build(builder));
        ASSERT_TRUE(wire::send_packet(socket.get(), packet, fds, true));
    }
    static void hello(const UniqueFd& socket, uint32_t protocol = wire::kProtocolHighest, uint32_t highest = 0) {
        send(socket, wire::RequestBody::Hello, 1, [&](auto& builder) {
            return wire::CreateHello(builder, protocol, builder.CreateString("test"), 0, 0, highest).Union();
        });
    }
    UniqueFd greeted() {
        auto socket = connect_raw();
        hello(socket);
        EXPECT_EQ(read_reply(socket).error, 0);
        return socket;
    }
    struct Seen {
        bool end = false;
        uint64_t id = 0;
        int error = 0;
        std::string message;
        size_t descriptors = 0;
        uint32_t protocol = 0;  // of a HelloReply
    };
    static Seen read_reply(const UniqueFd& socket) {
        std::vector<uint8_t> buffer(limits::kMessageBytes);
        pollfd ready = {socket.get(), POLLIN, 0};
        if (poll(&ready, 1, 120'000) != 1) return {true, 0, ETIMEDOUT, "no answer"};
        auto received = wire::receive_packet(socket.get(), buffer, true);
        if (!received || received->end) return {true};
        auto reply = wire::decode_reply({buffer.data(), received->bytes});
        EXPECT_TRUE(reply);
        const auto* greeting = (*reply)->body_as_HelloReply();
        return {false,
                (*reply)->id(),
                (*reply)->error(),
                std::string(wire::view((*reply)->message())),
                received->descriptors.size(),
                greeting == nullptr ? 0 : greeting->protocol()};
    }
    // An error for the session, followed by its end.
    static void expect_dropped(const UniqueFd& socket, int error) {
        auto seen = read_reply(socket);
        EXPECT_FALSE(seen.end);
        EXPECT_EQ(seen.id, 0u);
        EXPECT_EQ(seen.error, error) << seen.message;
        EXPECT_FALSE(seen.message.empty());
        EXPECT_TRUE(read_reply(socket).end);
    }
    size_t daemon_descriptors() const {
        size_t count = 0;
        DIR* folder = opendir(("/proc/" + std::to_string(pid()) + "/fd").c_str());
        while (folder != nullptr && readdir(folder) != nullptr) ++count;
        if (folder != nullptr) closedir(folder);
        return count;
    }
    // Back to that number, or fewer if an earlier connection has also ended.
    bool settles_at(size_t descriptors) const {
        for (int i = 0; i < 24'000 && daemon_descriptors() > descriptors; ++i) usleep(5000);
        return daemon_descriptors() <= descriptors;
    }
};

TEST_F(ProtocolTest, GarbageIsRefused) {
    std::mt19937 random(1);
    for (size_t size : {1, 7, 12, 64, 1000, 100000}) {
        auto socket = connect_raw();
        std::vector<uint8_t> noise(size);
        for (auto& byte : noise) byte = static_cast<uint8_t>(random());
        ASSERT_EQ(::send(socket.get(), noise.data(), noise.size(), MSG_NOSIGNAL), static_cast<ssize_t>(size));
        expect_dropped(socket, EPROTO);
    }
}

TEST_F(ProtocolTest, HalfMessagesAreRefused) {
    flatbuffers::FlatBufferBuilder builder;
    auto body = wire::CreateHello(builder, wire::kProtocolHighest, builder.CreateString("test"));
    auto packet = wire::finish_request(builder, 1, wire::RequestBody::Hello, body.Union());
    // The last bytes may be padding.
    for (size_t length = 1; length + 8 < packet.size(); length += 5) {
        auto socket = connect_raw();
        ASSERT_EQ(::send(socket.get(), packet.data(), length, MSG_NOSIGNAL), static_cast<ssize_t>(length));
        expect_dropped(socket, EPROTO);
    }
}

TEST_F(ProtocolTest, FlippedBitsNeverHarm) {
    flatbuffers::FlatBufferBuilder builder;
    std::vector<flatbuffers::Offset<wire::CreateItem>> items;
    for (int i = 0; i < 3; ++i) {
        items.push_back(wire::CreateCreateItem(builder, builder.CreateString("n" + std::to_string(i)), 100,
                                               builder.CreateString("host"), 0600, 0));
    }
    auto body = wire::CreateCreateObjects(builder, builder.CreateVector(items), false);
    auto packet = wire::finish_request(builder, 2, wire::RequestBody::CreateObjects, body.Union());
    std::mt19937 random(7);
    for (int round = 0; round < 300; ++round) {
        std::vector<uint8_t> bad(packet.begin(), packet.end());
        for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips) {
            bad[random() % bad.size()] ^= static_cast<uint8_t>(1u << random() % 8);
        }
        auto socket = greeted();
        ASSERT_EQ(::send(socket.get(), bad.data(), bad.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bad.size()));
        read_reply(socket);  // any reply, an error or the end
    }
}

TEST_F(ProtocolTest, QuestionsForEventsAreOneAtATime) {
    auto socket = greeted();
    uint64_t id = 10;
    auto ask = [&](wire::RequestBody kind, const Build& build) { send(socket, kind, ++id, build); };
    const Build next = [](auto& builder) { return wire::CreateWatchNext(builder).Union(); };
    const Build watch = [](auto& builder) {
        return wire::CreateWatchCreate(builder, builder.CreateString("w/"), true).Union();
    };
    ask(wire::RequestBody::WatchNext, next);
    EXPECT_EQ(read_reply(socket).error, EINVAL);
    ask(wire::RequestBody::WatchCreate, watch);
    EXPECT_EQ(read_reply(socket).error, 0);
    ask(wire::RequestBody::WatchCreate, watch);
    EXPECT_EQ(read_reply(socket).error, EBUSY);
    ask(wire::RequestBody::WatchNext, next);
    auto ready = read_reply(socket);  // nothing exists, and that is reported
    EXPECT_EQ(ready.id, id);
    EXPECT_EQ(ready.error, 0);
    ask(wire::RequestBody::WatchNext, next);
    const uint64_t open = id;
    ask(wire::RequestBody::WatchNext, next);
    auto refused = read_reply(socket);
    EXPECT_EQ(refused.id, id);
    EXPECT_EQ(refused.error, EBUSY);
    EXPECT_EQ(run_cli({"create", "w/a", "--size", "1"}).exit_code, 0);
    auto told = read_reply(socket);
    EXPECT_EQ(told.id, open);
    EXPECT_EQ(told.error, 0);
    // A session that ends with a pending request.
    ask(wire::RequestBody::WatchNext, next);
    ask(wire::RequestBody::Goodbye, [](auto& builder) { return wire::CreateGoodbye(builder).Union(); });
    EXPECT_EQ(read_reply(socket).id, id);
    EXPECT_EQ(run_cli({"rm", "w/a"}).exit_code, 0);
    ask(wire::RequestBody::WatchNext, next);
    EXPECT_EQ(read_reply(socket).error, EINVAL);
    socket.reset();
    EXPECT_EQ(run_cli({"ping"}).exit_code, 0);
}

TEST_F(ProtocolTest, BadAclsAreRefused) {
    ASSERT_EQ(run_cli({"create", "d/x", "--size", "1"}).exit_code, 0);
    const std::string before = run_cli({"share", "d/x"}).out;
    auto socket = greeted();
    uint64_t id = 10;
    auto change = [&](const std::vector<wire::AclRecord>& entries, uint8_t how = 1, bool inherited = false,
                      const std::string& name = "d/x") {
        send(socket, wire::RequestBody::ChangeAcl, ++id, [&](auto& builder) {
            auto text = builder.CreateString(name);
            return wire::CreateChangeAcl(builder, text, inherited, how, builder.CreateVectorOfStructs(entries)).Union();
        });
        const auto seen = read_reply(socket);
        EXPECT_EQ(seen.id, id);
        EXPECT_EQ(seen.error == 0, seen.message.empty());
        return seen.error;
    };
    using Entry = wire::AclRecord;
    for (const Entry& bad : {Entry(0, 4, 1), Entry(3, 4, 1), Entry(0xffff, 4, 1), Entry(2, 8, 1), Entry(2, 0xffff, 1),
                             Entry(2, 4, UINT32_MAX), Entry(16, 4, 1), Entry(1, 4, 1)}) {
        for (uint8_t how : {1, 2}) EXPECT_EQ(change({bad}, how), EINVAL) << bad.tag() << " " << bad.rights();
    }
    EXPECT_EQ(change({Entry(2, 4, 7), Entry(2, 6, 7)}), EINVAL) << "twice";
    EXPECT_EQ(change({Entry(1, 4, 0), Entry(1, 6, 0)}), EINVAL) << "two owners";
    for (uint8_t how : {0, 4, 255}) EXPECT_EQ(change({Entry(2, 4, 7)}, how), EINVAL);
    std::vector<Entry> many;
    for (uint32_t i = 0; i < 2'000; ++i) many.emplace_back(2, 4, i);
    EXPECT_EQ(change(many), E2BIG);
    many.resize(limits::kAclEntries);
    EXPECT_EQ(change(many), E2BIG) << "with the entries of the mode";
    EXPECT_EQ(change({Entry(2, 4, 7)}, 1, true), EACCES) << "no directory";
    EXPECT_EQ(change({Entry(2, 4, 7)}, 1, false, "d/y"), ENOENT);
    EXPECT_EQ(change({Entry(2, 4, 7)}, 1, false, "d/../x"), EINVAL);
    EXPECT_EQ(change({Entry(2, 4, 7)}, 1, false, std::string(5000, 'x')), ENAMETOOLONG);
    EXPECT_EQ(run_cli({"share", "d/x"}).out, before);
    // The most that there may be, in any order, and their end.
    many.resize(limits::kAclEntries - 4);
    std::ranges::reverse(many);
    EXPECT_EQ(change(many), 0);
    EXPECT_EQ(change(many, 2), 0) << "again";
    EXPECT_EQ(change(many, 1, true, "d"), 0);
    EXPECT_EQ(run_cli({"create", "d/new", "--size", "1"}).exit_code, 0);
    EXPECT_NE(run_cli({"share", "d/new"}).out.find("user:506:r--"), std::string::npos);
    EXPECT_EQ(change(many, 3), 0);
    EXPECT_EQ(run_cli({"share", "d/x"}).out, before);
}

TEST_F(ProtocolTest, HugeMessagesAreRefused) {
    auto socket = greeted();
    int bytes = 1 << 20;
    setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    std::vector<uint8_t> huge(limits::kMessageBytes + 1);
    if (::send(socket.get(), huge.data(), huge.size(), MSG_NOSIGNAL) < 0)
        GTEST_SKIP() << "the kernel refused it already";
    EXPECT_TRUE(read_reply(socket).end);
}

TEST_F(ProtocolTest, HelloComesFirst) {
    auto socket = connect_raw();
    send(socket, wire::RequestBody::Ping, 1, [](auto& builder) { return wire::CreatePing(builder).Union(); });
    expect_dropped(socket, EPROTO);
}

TEST_F(ProtocolTest, TheHighestCommonProtocolIsTaken) {
    using Offer = std::pair<uint32_t, uint32_t>;
    for (auto [offer, taken] : {std::pair(Offer{1, 0}, 1u),
                                {Offer{1, 1}, 1u},
                                {Offer{1, 2}, 2u},
                                {Offer{2, 0}, 2u},
                                {Offer{1, 9}, 2u},
                                {Offer{2, 9}, 2u},
                                {Offer{0, 1}, 1u}}) {
        auto socket = connect_raw();
        hello(socket, offer.first, offer.second);
        const auto seen = read_reply(socket);
        EXPECT_EQ(seen.error, 0) << seen.message;
        EXPECT_EQ(seen.protocol, taken) << offer.first << " to " << offer.second;
    }
    auto socket = connect_raw();
    hello(socket, 3, 9);
    const auto refused = read_reply(socket);
    EXPECT_EQ(refused.error, EPROTO);
    EXPECT_NE(refused.message.find("protocols 1 to 2, the client (gshm test) speaks protocols 3 to 9: upgrade gshmd"),
              std::string::npos)
        << refused.message;
    EXPECT_TRUE(read_reply(socket).end);
}

TEST_F(ProtocolTest, AFutureVersionIsToldWhatToDo) {
    auto socket = connect_raw();
    hello(socket, wire::kProtocolHighest + 6);
    auto seen = read_reply(socket);
    EXPECT_EQ(seen.error, EPROTO);
    EXPECT_NE(seen.message.find("upgrade gshmd"), std::string::npos) << seen.message;
    EXPECT_TRUE(read_reply(socket).end);
    socket = connect_raw();
    hello(socket, 0);
    EXPECT_NE(read_reply(socket).message.find("upgrade the client"), std::string::npos);
}

TEST_F(ProtocolTest, AnUnknownRequestIsAnErrorNotTheEnd) {
    auto socket = greeted();
    flatbuffers::FlatBufferBuilder builder;
    auto body = wire::CreatePing(builder);
    auto packet = wire::finish_request(builder, 9, static_cast<wire::RequestBody>(200), body.Union());
    ASSERT_TRUE(wire::send_packet(socket.get(), packet, {}, true));
    const auto refused = read_reply(socket);
    EXPECT_EQ(refused.error, EOPNOTSUPP);
    EXPECT_NE(refused.message.find("gshmd --takeover"), std::string::npos) << refused.message;
    send(socket, wire::RequestBody::Ping, 10, [](auto& out) { return wire::CreatePing(out).Union(); });
    EXPECT_EQ(read_reply(socket).id, 10u);
}

TEST_F(ProtocolTest, SurpriseDescriptorsAreClosed) {
    auto socket = greeted();
    size_t before = daemon_descriptors();
    std::vector<int> fds(100, 0);
    for (int i = 0; i < 20; ++i) {
        send(socket, wire::RequestBody::Ping, 5, [](auto& builder) { return wire::CreatePing(builder).Union(); }, fds);
        EXPECT_EQ(read_reply(socket).error, 0);
    }
    EXPECT_TRUE(settles_at(before));
}

TEST_F(ProtocolTest, BadStagingMemoryIsRefused) {
    auto attach = [&](const UniqueFd& socket, std::vector<int> fds, uint64_t bytes) {
        send(
            socket, wire::RequestBody::AttachStaging, 3,
            [&](auto& builder) { return wire::CreateAttachStaging(builder, bytes).Union(); }, std::move(fds));
        return read_reply(socket).error;
    };
    auto socket = greeted();
    EXPECT_EQ(attach(socket, {}, 4096), EINVAL);
    EXPECT_EQ(attach(socket, {0}, 4096), EINVAL);
    auto loose = UniqueFd::adopt(memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(loose.get(), 4096), 0);
    EXPECT_EQ(attach(socket, {loose.get()}, 4096), EINVAL) << "not sealed: it could shrink under the daemon";
    ASSERT_EQ(fcntl(loose.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    EXPECT_EQ(attach(socket, {loose.get()}, 8192), EINVAL) << "smaller than said";
    EXPECT_EQ(attach(socket, {loose.get()}, uint64_t{1} << 60), EINVAL);
    EXPECT_EQ(attach(socket, {loose.get()}, 4096), 0);
    send(socket, wire::RequestBody::Copy, 4,
         [](auto& builder) { return wire::CreateCopy(builder, 77, 0, 100, true).Union(); });
    EXPECT_EQ(read_reply(socket).error, ENOENT);
}

TEST_F(ProtocolTest, IdsOfOthersAreNoUse) {
    ASSERT_EQ(run_cli({"create", "x", "--size", "1M"}).exit_code, 0);
    auto socket = greeted();
    for (uint64_t id = 1; id < 10; ++id) {
        send(socket, wire::RequestBody::Export, id,
             [&](auto& builder) { return wire::CreateExport(builder, id, 1, true).Union(); });
        auto seen = read_reply(socket);
        EXPECT_EQ(seen.error, ENOENT) << "without a lease";
        EXPECT_EQ(seen.descriptors, 0u);
    }
}

TEST_F(ProtocolTest, AClientThatStopsReadingOnlyStallsItself) {
    ASSERT_EQ(run_cli({"create", "x", "--size", "1M"}).exit_code, 0);
    auto socket = greeted();
    flatbuffers::FlatBufferBuilder builder;
    std::vector<flatbuffers::Offset<flatbuffers::String>> names(1000);
    for (auto& name : names) name = builder.CreateString("x");
    auto body = wire::CreateStat(builder, builder.CreateVector(names));
    auto packet = wire::finish_request(builder, 1, wire::RequestBody::Stat, body.Union());
    auto memory = [&] {
        std::ifstream status("/proc/" + std::to_string(pid()) + "/statm");
        size_t size = 0, resident = 0;
        status >> size >> resident;
        return resident * 4096;
    };
    size_t before = memory();
    size_t accepted = 0;
    for (int i = 0; i < 20000; ++i) {
        auto outcome = wire::send_packet(socket.get(), packet, {}, false);
        ASSERT_TRUE(outcome);
        if (*outcome == wire::SendOutcome::sent) ++accepted;
        else usleep(100);
        if (accepted > 2000) break;
    }
    EXPECT_LT(accepted, 2000u) << "the daemon must stop reading from it";
    EXPECT_LT(memory(), before + (64u << 20));
    EXPECT_EQ(run_cli({"ping"}).exit_code, 0);
    // When it reads again, it gets every answer.
    for (size_t i = 0; i < accepted; ++i) ASSERT_FALSE(read_reply(socket).end) << i;
}

TEST_F(ProtocolTest, ConnectionsThatSayNothingCostADescriptorAndGiveItBack) {
    size_t before = daemon_descriptors();
    {
        std::vector<UniqueFd> sockets;
        for (int i = 0; i < 200; ++i) sockets.push_back(connect_raw());
        EXPECT_EQ(run_cli({"ping"}).exit_code, 0);
    }
    EXPECT_TRUE(settles_at(before));
}

TEST_F(ProtocolTest, TheSecondDaemonIsTurnedAway) {
    ChildProcess second;
    ASSERT_TRUE(second.spawn({bin("gshmd"), "--dir", dir(), "--device", "host:1M"}));
    auto result = second.finish();
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_NE(result.err.find("already running"), std::string::npos) << result.err;
}

TEST(DaemonStart, BadOptionsAreExplained) {
    auto run = [](std::vector<std::string> args) {
        args.insert(args.begin(), DaemonFixture::bin("gshmd"));
        ChildProcess child;
        child.spawn(args);
        return child.finish();
    };
    DaemonFixture folder;
    for (std::vector<std::string> bad : {std::vector<std::string>{"--nonsense"}, {"--limit", "lots"}}) {
        auto result = run(bad);
        EXPECT_EQ(result.exit_code, 2) << result.err;
        EXPECT_FALSE(result.err.empty());
    }
    for (const char* device : {"tape", "cuda:x", "host:", "host:4X", "cuda:0:1G:2", "cuda:-1"}) {
        auto result = run({"--dir", folder.dir(), "--device", device});
        EXPECT_EQ(result.exit_code, 1) << device;
        EXPECT_NE(result.err.find("device"), std::string::npos) << result.err;
        EXPECT_FALSE(std::filesystem::exists(folder.dir())) << "nothing is left behind";
    }
    EXPECT_EQ(run({"--dir", folder.dir(), "--device", "host", "--device", "host"}).exit_code, 1);
    EXPECT_EQ(run({"--dir", "/dev/null/x", "--device", "host"}).exit_code, 1);
    auto help = run({"--help"});
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_NE(help.out.find("--device"), std::string::npos);
}

TEST(DaemonStart, GoesToTheBackgroundOnceItServes) {
    DaemonFixture folder;
    ChildProcess child;
    ASSERT_TRUE(child.spawn({DaemonFixture::bin("gshmd"), "--dir", folder.dir(), "--device", "host:64M"}));
    auto result = child.finish();
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(folder.run_cli({"ping"}).exit_code, 0) << "ready when it returns";
    EXPECT_EQ(folder.run_cli({"shutdown"}).exit_code, 0);
    EXPECT_FALSE(std::filesystem::exists(folder.dir())) << "nothing is left behind";
}

TEST(DaemonStart, ADeadDaemonsFolderIsTakenOver) {
    DaemonFixture daemon;
    ASSERT_TRUE(daemon.start());
    daemon.kill();
    EXPECT_TRUE(std::filesystem::exists(daemon.socket_path()));
    EXPECT_TRUE(daemon.start()) << daemon.log();
}

TEST(DaemonStart, SaysWhenDescriptorsAreTheBound) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to lower the limit for another user";
    DaemonFixture folder;
    std::string home = folder.scratch() + "/home";
    std::filesystem::create_directory(home);
    ASSERT_EQ(chown(home.c_str(), 12345, 12345), 0);
    ChildProcess daemon;
    ASSERT_TRUE(daemon.spawn({"/usr/bin/prlimit", "--nofile=48:48", "/usr/bin/setpriv", "--reuid=12345",
                              "--regid=12345", "--clear-groups", DaemonFixture::bin("gshmd"), "--dir", home + "/run",
                              "-f", "--device", "host:256M"},
                             {}, folder.scratch() + "/log"));
    auto cli = [&](std::vector<std::string> args) {
        args.insert(args.begin(), {DaemonFixture::bin("gshm"), "--dir", home + "/run"});
        ChildProcess child;
        child.spawn(args);
        return child.finish();
    };
    for (int i = 0; i < 12'000 && cli({"ping"}).exit_code != 0; ++i) usleep(10000);
    RunResult last;
    for (int i = 0; i < 60 && last.exit_code <= 0; ++i) {
        last = cli({"create", "o" + std::to_string(i), "--size", "100", "--dedicated"});
    }
    EXPECT_GT(last.exit_code, 0);
    EXPECT_NE(last.err.find("48 open descriptors"), std::string::npos) << last.err;
    EXPECT_TRUE(daemon.running());
}

}  // namespace
}  // namespace gshm::core::test
