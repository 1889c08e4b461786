// One user could take what gshmd has for all: 10,000 silent connections kept everybody out, fences and files of rings used
// up its descriptors, unread replies and events its memory, waits its time.
#include <filesystem>
#include <poll.h>
#include <sys/resource.h>

#include "integration/library_fixture.h"
#include "ring/producer.h"
#include "support/as_user.h"
#include "support/raw_client.h"
#include <gshm/fence.hpp>

namespace gshm::core::test {
namespace {

constexpr uid_t kUser = 65534;
constexpr uid_t kOther = 65533;

class UserBudgets : public LibraryTest {
protected:
    void SetUp() override {
        if (::geteuid() != 0) GTEST_SKIP() << "needs root, to connect as other users";
    }
    // gshmd has 2000 descriptors for all users, and may not raise its limit.
    void start_small() {
        ASSERT_TRUE(
            start({"--device", "host:256M"}, {},
                  {"/usr/bin/prlimit", "--nofile=2000:2000", "/usr/bin/setpriv", "--bounding-set", "-sys_resource"}))
            << log();
    }
    void start_with_share(const char* percent) {
        ASSERT_TRUE(start({"--device", "host:256M", "--user-share", percent})) << log();
    }
    std::unique_ptr<RawClient> connect_as(uid_t uid, RawClient::Greeting greeting = RawClient::Greeting::hello) {
        AsUser user(uid);
        return std::make_unique<RawClient>(socket_path(), greeting);
    }
    // The reply to a Hello of that user.
    RawClient::Reply greet_as(uid_t uid) { return say_hello(*connect_as(uid, RawClient::Greeting::none)); }
    static RawClient::Reply say_hello(RawClient& client) {
        RawClient::Builder builder;
        auto hello = wire::CreateHello(builder, wire::kProtocolHighest, builder.CreateString("test"));
        auto packet = wire::finish_request(builder, 1, wire::RequestBody::Hello, hello.Union());
        // The connection may be closed already, with the reason in it.
        (void)wire::send_packet(client.socket(), packet, {}, true);
        return client.receive();
    }
    gshm::Client library_as(uid_t uid) {
        AsUser user(uid);
        auto client = gshm::Client::connect({.dir = dir(), .timeout = {}});
        EXPECT_TRUE(client) << client.error().message;
        return std::move(client).value();
    }
    void expect_others_are_served() {
        for (uid_t uid : {uid_t{0}, kOther}) {
            auto client = connect_as(uid);
            EXPECT_EQ(client->ping().error, 0) << uid;
            const auto devices = client->ask(wire::RequestBody::Devices, [](RawClient::Builder& builder) {
                return wire::CreateDevices(builder).Union();
            });
            EXPECT_EQ(devices.error, 0) << uid;
        }
    }
    size_t descriptors() const {
        const std::filesystem::directory_iterator all("/proc/" + std::to_string(pid()) + "/fd");
        return static_cast<size_t>(std::distance(begin(all), end(all)));
    }
    static short events_of(const RawClient& client) {
        pollfd ready = {client.socket(), POLLIN, 0};
        ::poll(&ready, 1, 0);
        return ready.revents;
    }
    static std::string sentence(const char* what) { return std::string(what) + ", and one user may not have more now"; }
    static bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
};

TEST_F(UserBudgets, SilentConnectionsDoNotKeepOthersOut) {
    start_small();
    const size_t before = descriptors();
    std::vector<std::unique_ptr<RawClient>> silent;
    for (int i = 0; i < 1000; ++i) silent.push_back(connect_as(kUser, RawClient::Greeting::none));
    expect_others_are_served();  // after all of them were accepted or refused
    size_t refused = 0;
    for (auto& client : silent) {
        if ((events_of(*client) & POLLIN) == 0) continue;
        const auto reply = client->receive();
        EXPECT_EQ(reply.error, EUSERS);
        EXPECT_TRUE(has(reply.message, sentence("connections that have not said Hello"))) << reply.message;
        EXPECT_TRUE(has(reply.message, "user 65534 has ")) << reply.message;
        ++refused;
    }
    EXPECT_GT(refused, 900u);
    EXPECT_LT(refused, 1000u);
    EXPECT_EQ(greet_as(kUser).error, EUSERS);
    silent.clear();
    EXPECT_TRUE(eventually([&] { return greet_as(kUser).error == 0; }));
    // gshmd keeps a thread for each of the two other users, with two descriptors.
    constexpr size_t kKept = 4;
    EXPECT_TRUE(eventually([&] { return descriptors() <= before + kKept; })) << descriptors() << " of " << before;
}

TEST_F(UserBudgets, AConnectionWithoutHelloEnds) {
    start_small();
    auto client = connect_as(kUser, RawClient::Greeting::none);
    auto greeted = connect_as(kUser);
    const auto reply = client->receive();
    EXPECT_EQ(reply.error, ETIMEDOUT);
    EXPECT_TRUE(client->receive().is_end);
    EXPECT_EQ(greeted->ping().error, 0);
}

TEST_F(UserBudgets, ConnectionsAreBounded) {
    start_small();
    std::vector<std::unique_ptr<RawClient>> all;
    size_t greeted = 0;
    for (int i = 0; i < 400; ++i) {
        all.push_back(connect_as(kUser, RawClient::Greeting::none));
        greeted += say_hello(*all.back()).error == 0 ? 1u : 0u;
    }
    EXPECT_GT(greeted, 200u);
    EXPECT_LT(greeted, 250u);
    expect_others_are_served();
    {
        AsUser user(kUser);
        gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
        const auto folder = dir();
        options.dir = folder.c_str();
        gshm_client* client = nullptr;
        EXPECT_EQ(gshm_connect(&options, &client), -EUSERS);
        EXPECT_TRUE(has(gshm_last_error(), sentence("connections"))) << gshm_last_error();
    }
    all.clear();
    EXPECT_TRUE(eventually([&] { return greet_as(kUser).error == 0; }));
}

TEST_F(UserBudgets, WaitsAreBoundedInAllSessions) {
    start_with_share("1");
    std::vector<std::unique_ptr<RawClient>> all;
    auto wait = [](RawClient& client, const std::string& name) {
        client.send(wire::RequestBody::Wait, [&](RawClient::Builder& builder) {
            return wire::CreateWait(builder, builder.CreateString(name), false, -1).Union();
        });
        client.send_ping();
        const auto first = client.receive();
        if (first.error != 0) {
            EXPECT_EQ(client.receive().error, 0);
        }
        return first;
    };
    size_t waiting = 0;
    RawClient::Reply refused;
    for (int i = 0; i < 1000; ++i) {
        if (i % 100 == 0) all.push_back(connect_as(kUser));
        const auto reply = wait(*all.back(), "x" + std::to_string(i));
        if (reply.error == 0) ++waiting;
        else refused = reply;
    }
    EXPECT_GT(waiting, 150u);
    EXPECT_LT(waiting, 170u);
    EXPECT_EQ(refused.error, EAGAIN);
    EXPECT_TRUE(has(refused.message, sentence("waits for names"))) << refused.message;
    EXPECT_EQ(wait(*connect_as(kOther), "y").error, 0);
    EXPECT_EQ(wait(*connect_as(0), "y").error, 0);
    all.clear();
    EXPECT_TRUE(eventually([&] { return wait(*connect_as(kUser), "z").error == 0; }));
}

TEST_F(UserBudgets, WatchesAreBounded) {
    start_with_share("1");
    std::vector<std::unique_ptr<RawClient>> all;
    auto watch = [](RawClient& client) {
        return client.ask(wire::RequestBody::WatchCreate, [](RawClient::Builder& builder) {
            return wire::CreateWatchCreate(builder, builder.CreateString("")).Union();
        });
    };
    size_t watching = 0;
    for (int i = 0; i < 20; ++i) {
        all.push_back(connect_as(kUser));
        const auto reply = watch(*all.back());
        if (reply.error == 0) ++watching;
        else EXPECT_EQ(reply.error, ENOSPC);
    }
    EXPECT_EQ(watching, 10u);
    EXPECT_EQ(watch(*connect_as(kOther)).error, 0);
    EXPECT_EQ(watch(*connect_as(0)).error, 0);
    all.clear();
    EXPECT_TRUE(eventually([&] { return watch(*connect_as(kUser)).error == 0; }));
}

TEST_F(UserBudgets, FilesOfRingsAreBoundedInAllSessions) {
    start_small();
    const size_t before = descriptors();
    auto ring = ring::Producer::create(8).value();
    auto client = connect_as(kUser);
    ASSERT_EQ(client->create_ring(0, ring.memory(), ring.doorbell()).error, 0);
    auto file = UniqueFd::adopt(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    RawClient::Reply refused;
    uint32_t files = 0;
    for (; refused.error <= 0 && files < 2000; ++files) {
        refused = client->ask(
            wire::RequestBody::RingFile,
            [&](RawClient::Builder& builder) { return wire::CreateRingFile(builder, 0, files).Union(); }, {file.get()});
    }
    EXPECT_LT(files, 500u);
    EXPECT_EQ(refused.error, EMFILE);
    EXPECT_TRUE(has(refused.message, sentence("descriptors in gshmd"))) << refused.message;
    expect_others_are_served();
    EXPECT_EQ(client->ping().error, 0);
    client.reset();
    EXPECT_TRUE(eventually([&] { return greet_as(kUser).error == 0; }));
    EXPECT_TRUE(eventually([&] { return descriptors() <= before + 2 + 16; })) << descriptors() << " of " << before;
}

// The kernel closes descriptors that a full process receives, in the receiving thread: the close of some blocks.
TEST_F(UserBudgets, DescriptorsAreNotReceivedFromAUserWhoHasTooMany) {
    start_small();
    auto ring = ring::Producer::create(8).value();
    auto client = connect_as(kUser);
    auto second = connect_as(kUser);
    auto third = connect_as(kUser);
    ASSERT_EQ(client->create_ring(0, ring.memory(), ring.doorbell()).error, 0);
    auto file = UniqueFd::adopt(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    auto null = UniqueFd::adopt(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    for (uint32_t i = 0;
         client
             ->ask(wire::RequestBody::RingFile,
                   [&](RawClient::Builder& builder) { return wire::CreateRingFile(builder, 0, i).Union(); },
                   {file.get()})
             .error == 0;
         ++i) {}
    // The last ones are taken by connections: one has one or two, a file two.
    std::vector<std::unique_ptr<RawClient>> more;
    do more.push_back(connect_as(kUser, RawClient::Greeting::none));
    while (say_hello(*more.back()).error == 0);
    second->send_ping({null.get()});
    const auto reply = second->receive();
    EXPECT_EQ(reply.error, EMFILE);
    EXPECT_TRUE(has(reply.message, sentence("descriptors in gshmd"))) << reply.message;
    EXPECT_TRUE(second->receive().is_end);
    EXPECT_EQ(third->ping().error, 0) << "without descriptors";
    expect_others_are_served();
}

TEST_F(UserBudgets, FencesAreBoundedBeyondTheirSession) {
    start_small();
    auto make = [&](const gshm::Client& client, const std::string& prefix, int count) {
        int made = 0;
        for (int i = 0; i < count; ++i) {
            auto object = client.create({.name = prefix + std::to_string(i), .size_bytes = 100, .keep = true});
            EXPECT_TRUE(object);
            auto fence = gshm::Fence::open(*object, {.write = true});
            if (fence) ++made;
            else EXPECT_EQ(fence.error().code, EMFILE) << fence.error().message;
        }
        return made;
    };
    {
        auto client = library_as(kUser);
        EXPECT_EQ(make(client, "a", 100), 59);
    }
    auto client = library_as(kUser);
    EXPECT_EQ(make(client, "b", 1), 0);
    EXPECT_EQ(make(library_as(kOther), "other", 5), 5);
    EXPECT_EQ(make(library_as(0), "root", 5), 5);
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(client.unlink("a" + std::to_string(i)));
    EXPECT_EQ(make(client, "c", 20), 20);
}

TEST_F(UserBudgets, UnreadRepliesEndTheirConnections) {
    start_with_share("1");
    auto root = library_as(0);
    for (int i = 0; i < 300; ++i) {
        ASSERT_TRUE(root.create({.name = "d/" + std::string(200, 'x') + std::to_string(i),
                                 .size_bytes = 1,
                                 .mode = 0644,
                                 .keep = true,
                                 .map = false}));
    }
    RawClient::Builder builder;
    auto list = wire::CreateList(builder, builder.CreateString("d"));
    auto packet = wire::finish_request(builder, 7, wire::RequestBody::List, list.Union());
    std::vector<std::unique_ptr<RawClient>> all;
    for (int i = 0; i < 150; ++i) {
        all.push_back(connect_as(kUser));
        for (int n = 0; n < 40; ++n) {
            auto sent = wire::send_packet(all.back()->socket(), packet, {}, false);
            if (!sent || *sent == wire::SendOutcome::would_block) break;
        }
    }
    EXPECT_TRUE(eventually([&] {
        return std::ranges::any_of(all, [](const auto& client) { return (events_of(*client) & POLLHUP) != 0; });
    }));
    expect_others_are_served();
    all.clear();
    EXPECT_TRUE(eventually([&] { return greet_as(kUser).error == 0; }));
}

// A loop served its connections in turn: a ping waited for a request of each connection of another user.
TEST_F(UserBudgets, ManyConnectionsHaveNoLargerPartOfAThread) {
    constexpr int kMany = 150;
    ASSERT_TRUE(start({"--device", "host:256M", "--threads", "1"})) << log();
    auto root = library_as(0);
    for (int i = 0; i < 300; ++i) {
        ASSERT_TRUE(
            root.create({.name = "d/" + std::to_string(i), .size_bytes = 1, .mode = 0644, .keep = true, .map = false}));
    }
    std::vector<std::unique_ptr<RawClient>> many;
    for (int i = 0; i < kMany; ++i) many.push_back(connect_as(kUser));
    auto other = connect_as(kOther);
    auto set_running = [&](bool running) {
        ASSERT_EQ(::kill(pid(), running ? SIGCONT : SIGSTOP), 0);
        int status = 0;
        ASSERT_EQ(::waitpid(pid(), &status, running ? WCONTINUED : WUNTRACED), pid());
    };
    // This process may be delayed after the reply, while gshmd goes on: one of the rounds must show it.
    size_t least = many.size();
    for (int round = 0; round < 10 && least >= many.size() - 20; ++round) {
        set_running(false);
        for (auto& client : many) {
            client->send(wire::RequestBody::List, [](RawClient::Builder& builder) {
                return wire::CreateList(builder, builder.CreateString("d")).Union();
            });
        }
        other->send_ping();
        set_running(true);
        EXPECT_EQ(other->receive().error, 0);
        set_running(false);
        size_t answered = 0;
        for (auto& client : many) answered += (events_of(*client) & POLLIN) != 0 ? 1u : 0u;
        set_running(true);
        least = std::min(least, answered);
        for (auto& client : many) ASSERT_EQ(client->receive().error, 0);
    }
    EXPECT_LT(least, many.size() - 20);
}

TEST_F(UserBudgets, LinesOfTheLogAreBounded) {
    start_small();
    const size_t before = log().size();
    for (int i = 0; i < 2000; ++i) {
        auto client = connect_as(kUser, RawClient::Greeting::none);
        EXPECT_EQ(client->ping().error, EPROTO);  // the first message must be Hello
    }
    EXPECT_LT(log().size() - before, 2000u * 20);
    EXPECT_TRUE(has(log(), "of this user before it are not shown") || has(log(), "the first message must be Hello"));
    expect_others_are_served();
}

}  // namespace
}  // namespace gshm::core::test
