// `gshm reload` and SIGHUP: gshmd takes up what has changed in gshm.toml.
#include <atomic>
#include <thread>

#include "gshm/gshm.hpp"
#include "integration/config_fixture.h"
#include "integration/other_user.h"
#include "support/as_user.h"
#include "support/eventually.h"
#include "support/raw_client.h"
#include "wire/message.h"

namespace gshm::core::test {
namespace {

constexpr uid_t kUser = 65534;

class ReloadTest : public ConfigTest {
protected:
    void start_with(const std::string& text, const std::vector<std::string>& args = {"--device", "host:256M"}) {
        write(text);
        std::vector<std::string> all = {"--config", config()};
        all.insert(all.end(), args.begin(), args.end());
        ASSERT_TRUE(start(all)) << log();
    }
    // The output of `gshm reload`.
    std::string reload(const std::string& text) {
        write(text);
        const auto result = run_cli({"reload"});
        EXPECT_EQ(result.exit_code, 0) << result.err;
        return result.out;
    }
    // Waits for the text in the log.
    bool logs(const std::string& text) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
        while (log().find(text) == std::string::npos) {
            if (!running() || std::chrono::steady_clock::now() >= deadline) return false;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return true;
    }
    uint64_t size_of_host() {
        auto client = gshm::Client::connect({.dir = dir(), .timeout = {}});
        const auto devices = client->devices();
        return devices && !devices->empty() ? devices->front().capacity_bytes : 0;
    }
};

TEST_F(ReloadTest, TellsWhatHasChangedAndWhatNeedsARestart) {
    start_with("user-share = 40\n", {});
    EXPECT_EQ(reload("user-share = 40\n# the same\n"), "nothing has changed\n");
    EXPECT_EQ(
        reload("user-share = 30\nthreads = 3\n[budgets]\nleases = \"64K\"\n"),
        "budgets.leases: what the machine allows -> 64K\n"
        "threads: three for four cores, from 2 to 12 -> 3, needs a restart (`gshmd --takeover` keeps all objects)\n"
        "user-share: 40 -> 30\n");
    // What needs a restart stays a difference; what was taken up does not.
    const std::string again = "user-share = 30\nthreads = 3\nkeeper = \"none\"\n[budgets]\nleases = 65536\n";
    EXPECT_EQ(
        reload(again),
        "keeper: process -> none, needs a restart (`gshmd --takeover` keeps all objects)\n"
        "threads: three for four cores, from 2 to 12 -> 3, needs a restart (`gshmd --takeover` keeps all objects)\n");
    const auto json = run_cli({"--json", "reload"});
    EXPECT_NE(json.out.find("\"option\": \"threads\""), std::string::npos) << json.out;
    EXPECT_NE(json.out.find("\"needs_restart\": true"), std::string::npos) << json.out;
    // Without its file gshmd has the defaults: a file that was named must be there.
    ASSERT_EQ(::unlink(config().c_str()), 0);
    const auto gone = run_cli({"reload"});
    EXPECT_EQ(gone.exit_code, 1);
    EXPECT_NE(gone.err.find("No such file"), std::string::npos) << gone.err;
}

TEST_F(ReloadTest, AWrongFileChangesNothing) {
    start_with("user-share = 40\n");
    for (const char* text :
         {"user-share = 30\nlimit = \"x\"\n", "user-share = 30\nzzz = 1\n", "user-share = 30\n[budgets\n"}) {
        write(text);
        const auto refused = run_cli({"reload"});
        EXPECT_EQ(refused.exit_code, 1) << text;
        EXPECT_NE(refused.err.find(config() + ":2:"), std::string::npos) << refused.err;
        EXPECT_NE(log().find("nothing changes, since the configuration is wrong: " + config() + ":2:"),
                  std::string::npos)
            << log();
    }
    write("user-share = 30\n");
    ASSERT_EQ(::chmod(config().c_str(), 0666), 0);
    EXPECT_EQ(run_cli({"reload"}).exit_code, 1);
    auto client = gshm::Client::connect({.dir = dir(), .timeout = {}});
    ASSERT_TRUE(client) << client.error().message;
    const auto refused = client->reload();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, EBADMSG) << refused.error().message;
    EXPECT_NE(refused.error().message.find("chmod go-w"), std::string::npos) << refused.error().message;
}

TEST_F(ReloadTest, SighupReadsTheFileAgain) {
    start_with("user-share = 40\n");
    write("user-share = 30\n");
    ASSERT_EQ(::kill(pid(), SIGHUP), 0);
    EXPECT_TRUE(logs("reload by SIGHUP: user-share: 40 -> 30")) << log();
    write("user-share = \n");
    ASSERT_EQ(::kill(pid(), SIGHUP), 0);
    EXPECT_TRUE(logs("reload by SIGHUP: nothing changes, since the configuration is wrong: " + config() + ":1:"))
        << log();
    EXPECT_EQ(run_cli({"ping"}).exit_code, 0);
    EXPECT_EQ(reload("user-share = 30\ndebug = true\n"), "debug: false -> true\n");
    EXPECT_TRUE(logs(" debug ")) << "the log has more now";
}

TEST_F(ReloadTest, IsForRootAndTheDaemonsUserOnly) {
    if (const auto missing = missing_for_nobody(); !missing.empty()) GTEST_SKIP() << missing;
    start_with("user-share = 40\n");
    write("user-share = 30\n");
    const auto refused = run_as_nobody(cli_argv({"reload"}));
    EXPECT_EQ(refused.exit_code, 5);
    EXPECT_NE(refused.err.find("only root and the user who runs gshmd"), std::string::npos) << refused.err;
    EXPECT_EQ(log().find("40 -> 30"), std::string::npos) << log();
}

TEST_F(ReloadTest, LimitsOfDevicesRiseAndFall) {
    start_with("device = [\"host:32M\"]\n", {});
    ASSERT_EQ(run_cli({"create", "first", "--size", "24M"}).exit_code, 0);
    EXPECT_NE(run_cli({"create", "more", "--size", "24M"}).exit_code, 0);
    EXPECT_EQ(reload("device = [\"host:96M\"]\n"), "device: host:32M -> host:96M\n");
    EXPECT_EQ(size_of_host(), uint64_t{96} << 20);
    EXPECT_EQ(run_cli({"create", "more", "--size", "64M"}).exit_code, 0) << "larger than the whole device was";
    // Less than what is in use: that stays, and nothing is added.
    EXPECT_EQ(reload("device = [\"host:48M\"]\n"), "device: host:96M -> host:48M\n");
    EXPECT_EQ(run_cli({"stat", "more"}).exit_code, 0);
    const auto full = run_cli({"create", "another", "--size", "1M"});
    EXPECT_NE(full.exit_code, 0);
    EXPECT_NE(full.err.find("88 MiB of 48 MiB"), std::string::npos) << full.err;
    ASSERT_EQ(run_cli({"rm", "more"}).exit_code, 0);
    EXPECT_EQ(run_cli({"create", "another", "--size", "16M"}).exit_code, 0);
    // A limit for all devices that have none of their own.
    EXPECT_EQ(reload("device = [\"host\"]\nlimit = \"64M\"\n"), "device: host:48M -> host\nlimit: none -> 64M\n");
    EXPECT_EQ(size_of_host(), uint64_t{64} << 20);
    EXPECT_EQ(
        reload("device = [\"host\", \"cuda\"]\nlimit = \"80M\"\n"),
        "device: host -> host, cuda, needs a restart (`gshmd --takeover` keeps all objects)\nlimit: 64M -> 80M\n");
    EXPECT_EQ(size_of_host(), uint64_t{80} << 20);
    EXPECT_EQ(run_cli({"stat", "first"}).exit_code, 0);
}

TEST_F(ReloadTest, BudgetsTakeEffectOnUsersWhoHoldSome) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to connect as another user";
    start_with("[budgets]\nconnections = 4\n");
    std::vector<std::unique_ptr<RawClient>> clients;
    auto connects = [&] {
        auto client = [&] {
            AsUser user(kUser);
            return std::make_unique<RawClient>(socket_path(), RawClient::Greeting::none);
        }();
        RawClient::Builder builder;
        auto hello = wire::CreateHello(builder, wire::kProtocolHighest, builder.CreateString("test"));
        auto packet = wire::finish_request(builder, 1, wire::RequestBody::Hello, hello.Union());
        (void)wire::send_packet(client->socket(), packet, {}, true);  // it may be refused already
        const int error = client->receive().error;
        if (error == 0) clients.push_back(std::move(client));
        return error;
    };
    constexpr size_t kAlways = limits::kUserConnections.least;
    for (size_t i = 0; i < kAlways; ++i) ASSERT_EQ(connects(), 0);
    EXPECT_EQ(connects(), EUSERS);
    EXPECT_EQ(reload("[budgets]\nconnections = 64\n"), "budgets.connections: 4 -> 64\n");
    for (size_t i = 0; i < kAlways; ++i) EXPECT_EQ(connects(), 0);
    EXPECT_EQ(reload("[budgets]\nconnections = 4\n"), "budgets.connections: 64 -> 4\n");
    EXPECT_EQ(connects(), EUSERS);
    for (auto& client : clients) EXPECT_EQ(client->ping().error, 0) << "what a user holds stays";
    clients.clear();
}

TEST_F(ReloadTest, RacesWithClients) {
    start_with("device = [\"host:64M\"]\n", {});
    std::atomic<bool> stop = false;
    std::atomic<int> rounds = 0;
    std::vector<std::thread> users;
    for (int user = 0; user < 3; ++user) {
        users.emplace_back([&, user] {
            auto client = gshm::Client::connect({.dir = dir(), .timeout = {}});
            ASSERT_TRUE(client) << client.error().message;
            const std::string name = "of-" + std::to_string(user);
            while (!stop) {
                auto object = client->create({.name = name, .size_bytes = 1 << 20});
                ASSERT_TRUE(object) << object.error().message;
                ASSERT_TRUE(client->unlink(name));
                ++rounds;
            }
        });
    }
    auto reloading = gshm::Client::connect({.dir = dir(), .timeout = {}});
    ASSERT_TRUE(reloading) << reloading.error().message;
    auto change = [&](int i) {
        write(fmt::format("device = [\"host:{}M\"]\nuser-share = {}\n[budgets]\nleases = {}\n", 32 + i % 7, 10 + i % 80,
                          10000 + i));
        return reloading->reload();
    };
    for (int i = 0; i < 60; ++i) {
        // The reload by the last signal may have read the new file first.
        const auto done = change(i);
        ASSERT_TRUE(done) << done.error().message;
        if (i % 8 == 0) ::kill(pid(), SIGHUP);
        const int before = rounds;
        while (rounds == before && running()) std::this_thread::yield();
    }
    int last = 60;
    EXPECT_TRUE(eventually([&] {
        const auto done = change(last++);
        return done && done->size() >= 2;
    }));
    stop = true;
    for (auto& user : users) user.join();
    EXPECT_EQ(run_cli({"ls"}).out, "");
    EXPECT_EQ(this->stop(), 0);
}

}  // namespace
}  // namespace gshm::core::test
