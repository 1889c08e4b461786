// Ttls, pins and ephemeral objects with a real gshmd: its clock, its end, other users, and the command.
#include <ctime>
#include <signal.h>

#include "integration/library_fixture.h"
#include "integration/other_user.h"

namespace gshm::core::test {
namespace {

constexpr uint64_t kHourMs = 3'600'000;
constexpr uint64_t kMiB = 1 << 20;
constexpr uid_t kNobody = 65534;

struct DestroyWatch {
    void operator()(gshm_watch* watch) const { gshm_watch_destroy(watch); }
};
using WatchHandle = std::unique_ptr<gshm_watch, DestroyWatch>;

int64_t boot_ms() {
    timespec now = {};
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

class LifetimesTest : public LibraryTest {
protected:
    void SetUp() override {
        ASSERT_TRUE(start({"--device", "host:100M"})) << log();
        client_ = connect(60'000);
        ASSERT_TRUE(client_);
    }
    // Sealed, and held by no one.
    void put(const char* name, uint64_t ttl_ms, uint32_t flags = 0) {
        auto wanted = spec(name, 1000, "host", GSHM_NO_MAP | flags);
        wanted.ttl_ms = ttl_ms;
        gshm_object* object = nullptr;
        ASSERT_EQ(gshm_create(client_.get(), &wanted, &object), 0) << gshm_last_error();
        const std::string bytes(1000, name[0]);
        EXPECT_EQ(gshm_copy_in(object, 0, bytes.data(), bytes.size()), 0) << gshm_last_error();
        EXPECT_EQ(gshm_seal(object), 0) << gshm_last_error();
        gshm_close(object);
    }
    WatchHandle watch() {
        gshm_watch* made = nullptr;
        EXPECT_EQ(gshm_watch_create(client_.get(), "", 0, &made), 0) << gshm_last_error();
        return WatchHandle(made);
    }
    // The kind of the next event for that name, among those that remove it.
    static uint32_t removal(const WatchHandle& watch, std::string_view name) {
        for (;;) {
            gshm_event event = {};
            event.struct_size = sizeof event;
            const int code = gshm_watch_next(watch.get(), &event, 120'000);
            if (code != 0) {
                ADD_FAILURE() << name << ": " << gshm_last_error();
                return 0;
            }
            const bool removes = event.event == GSHM_EVENT_EXPIRED || event.event == GSHM_EVENT_DELETED;
            if (removes && event.name == name) return event.event;
        }
    }
    bool exists(const char* name) {
        gshm_stat_info info = {};
        info.struct_size = sizeof info;
        return gshm_stat(client_.get(), name, &info) == 0;
    }
    void wait_until(int64_t at_ms) {
        ASSERT_TRUE(eventually([&] { return boot_ms() >= at_ms; }));
    }
};

TEST_F(LifetimesTest, AnObjectExpiresAndWatchesAreTold) {
    const auto events = watch();
    const int64_t before = boot_ms();
    put("a", 50);
    put("b", kHourMs);
    EXPECT_EQ(removal(events, "a"), GSHM_EVENT_EXPIRED);
    EXPECT_GE(boot_ms(), before + 50) << "not before its time";
    EXPECT_FALSE(exists("a"));
    EXPECT_EQ(device(client_.get(), "host").object_bytes, 1000u);
    const auto info = stat(client_.get(), "b");
    EXPECT_EQ(info.ttl_ms, kHourMs);
    const int64_t now_ns = int64_t{time(nullptr)} * 1'000'000'000;
    EXPECT_GT(info.expires_ns, now_ns + int64_t{3000} * 1'000'000'000);
    EXPECT_LT(info.expires_ns, now_ns + int64_t{3700} * 1'000'000'000);
    ASSERT_EQ(gshm_set_ttl(client_.get(), "b", 1, 0), 0) << gshm_last_error();
    EXPECT_EQ(removal(events, "b"), GSHM_EVENT_EXPIRED);
    put("c", 30);
    ASSERT_EQ(gshm_set_ttl(client_.get(), "c", 0, 0), 0);
    put("d", 60);
    EXPECT_EQ(removal(events, "d"), GSHM_EVENT_EXPIRED);
    EXPECT_TRUE(exists("c"));
    EXPECT_EQ(stat(client_.get(), "c").ttl_ms, 0u);
}

TEST_F(LifetimesTest, HoldersKeepTheBytes) {
    const auto events = watch();
    put("a", 0);
    auto held = open(client_.get(), "a");
    ASSERT_EQ(gshm_set_ttl(client_.get(), "a", 1, 0), 0);
    EXPECT_EQ(removal(events, "a"), GSHM_EVENT_EXPIRED);
    std::string bytes(1000, ' ');
    ASSERT_EQ(gshm_copy_out(held.get(), 0, bytes.data(), bytes.size()), 0);
    EXPECT_EQ(bytes, std::string(1000, 'a'));
    gshm_stat_info info = GSHM_STAT_INFO_INIT;
    ASSERT_EQ(gshm_stat_object(held.get(), &info), 0);
    EXPECT_EQ(info.expires_ns, 0);
    EXPECT_EQ(device(client_.get(), "host").unlinked_bytes, 1000u);
    held.reset();
    EXPECT_TRUE(eventually([&] { return device(client_.get(), "host").object_bytes == 0; }));
}

TEST_F(LifetimesTest, AnObjectInUseDoesNotExpireByDisuse) {
    const auto events = watch();
    put("a", 40, GSHM_CREATE_TTL_UNUSED);
    auto held = open(client_.get(), "a");
    const auto info = stat(client_.get(), "a");
    EXPECT_EQ(info.expires_ns, 0);
    EXPECT_NE(info.flags & GSHM_STAT_TTL_UNUSED, 0u);
    wait_until(boot_ms() + 200);
    EXPECT_TRUE(exists("a"));
    const int64_t released = boot_ms();
    held.reset();
    EXPECT_EQ(removal(events, "a"), GSHM_EVENT_EXPIRED);
    EXPECT_GE(boot_ms(), released + 40);
}

TEST_F(LifetimesTest, WhatEndedWhileGshmdWasAwayIsRemovedAtItsStart) {
    const int64_t begin = boot_ms();
    put("short", 300);
    put("pinned", 300);
    put("long", kHourMs);
    put("disused", 300, GSHM_CREATE_TTL_UNUSED);
    ASSERT_EQ(gshm_pin(client_.get(), "pinned"), 0) << gshm_last_error();
    const int64_t expires_ns = stat(client_.get(), "long").expires_ns;
    kill();
    wait_until(begin + 700);
    ASSERT_TRUE(start({})) << log();
    EXPECT_FALSE(exists("short"));
    EXPECT_TRUE(exists("pinned"));
    const auto info = stat(client_.get(), "long");
    EXPECT_EQ(info.ttl_ms, kHourMs);
    EXPECT_NEAR(static_cast<double>(info.expires_ns - expires_ns), 0, 1e8) << "the time went on";
    // The time since the last use begins again at the start of gshmd.
    const auto events = watch();
    if (exists("disused")) EXPECT_EQ(removal(events, "disused"), GSHM_EVENT_EXPIRED);
    ASSERT_EQ(gshm_unpin(client_.get(), "pinned"), 0) << gshm_last_error();
    EXPECT_EQ(removal(events, "pinned"), GSHM_EVENT_EXPIRED);
    EXPECT_TRUE(exists("long"));
}

TEST_F(LifetimesTest, ATtlGoesOnAfterATakeover) {
    put("a", kHourMs);
    put("b", 0);
    ASSERT_EQ(gshm_pin(client_.get(), "b"), 0);
    const int64_t expires_ns = stat(client_.get(), "a").expires_ns;
    ASSERT_TRUE(take_over()) << log();
    EXPECT_NEAR(static_cast<double>(stat(client_.get(), "a").expires_ns - expires_ns), 0, 1e8);
    EXPECT_NE(stat(client_.get(), "b").flags & GSHM_STAT_PINNED, 0u);
    const auto events = watch();
    ASSERT_EQ(gshm_set_ttl(client_.get(), "a", 20, 0), 0);
    EXPECT_EQ(removal(events, "a"), GSHM_EVENT_EXPIRED);
}

// A second gshmd is killed again and again while objects with short ttls are made: none comes back, and none is early.
TEST_F(LifetimesTest, KillsBringNothingBack) {
    std::map<std::string, int64_t> ends;
    for (int round = 0; round < 4; ++round) {
        for (int i = 0; i < 20; ++i) {
            const std::string name = "r" + std::to_string(round) + "-" + std::to_string(i);
            const uint64_t ttl_ms = static_cast<uint64_t>(1 + 40 * i);
            ends[name] = boot_ms() + static_cast<int64_t>(ttl_ms);
            put(name.c_str(), ttl_ms);
        }
        kill();
        ASSERT_TRUE(start({})) << log();
        for (const auto& [name, end] : ends) {
            if (!exists(name.c_str())) EXPECT_GE(boot_ms(), end) << name << " is gone early";
        }
    }
    EXPECT_TRUE(eventually([&] { return device(client_.get(), "host").object_bytes == 0; }));
}

// ---- users ----

TEST_F(LifetimesTest, AnotherUserSetsNoTtlAndNoPin) {
    if (const auto why = missing_for_nobody(); !why.empty()) GTEST_SKIP() << why;
    put("a", 0);
    const std::string gshm = bin("gshm");
    for (const auto& command :
         std::vector<std::vector<std::string>>{{"pin", "a"}, {"unpin", "a"}, {"ttl", "a", "1s"}}) {
        std::vector<std::string> argv = {gshm, "--dir", dir()};
        argv.insert(argv.end(), command.begin(), command.end());
        const auto run = run_as_nobody(argv);
        EXPECT_EQ(run.exit_code, 5) << command[0] << ": " << run.err;
        EXPECT_EQ(run_cli(command).exit_code, 0);
    }
    // Root's pin is not the owner's.
    ASSERT_EQ(run_as_nobody({gshm, "--dir", dir(), "create", "n", "--size", "1M"}).exit_code, 0);
    ASSERT_EQ(run_cli({"pin", "n"}).exit_code, 0);
    EXPECT_EQ(run_as_nobody({gshm, "--dir", dir(), "unpin", "n"}).exit_code, 5);
    ASSERT_EQ(run_cli({"unpin", "n"}).exit_code, 0);
}

// 16 processes of a user pin at the boundary of the budget, 10 MiB of 100: never a byte more.
TEST_F(LifetimesTest, ThePinBudgetIsExactWhenProcessesRace) {
    if (const auto why = missing_for_nobody(); !why.empty()) GTEST_SKIP() << why;
    constexpr int kProcesses = 16;
    constexpr uint64_t kBytes = 2 * kMiB;
    auto as_nobody = [&](const std::function<int(gshm_client*)>& body) {
        return in_child(
            [&] {
                const auto client = connect();
                return client ? body(client.get()) : 98;
            },
            kNobody);
    };
    ASSERT_EQ(as_nobody([&](gshm_client* client) {
                  for (int i = 0; i < kProcesses; ++i) {
                      const std::string name = "n" + std::to_string(i);
                      auto wanted = spec(name.c_str(), kBytes, "host", GSHM_NO_MAP | GSHM_KEEP);
                      gshm_object* object = nullptr;
                      if (gshm_create(client, &wanted, &object) != 0) return 1;
                      gshm_close(object);
                  }
                  return 0;
              }),
              0);
    const auto codes = in_children(
        kProcesses,
        [&](int i) {
            const auto client = connect();
            if (!client) return 98;
            for (int round = 0; round < 50; ++round) {
                const std::string name = "n" + std::to_string((i + round) % kProcesses);
                const int pinned = gshm_pin(client.get(), name.c_str());
                if (pinned != 0 && pinned != -EDQUOT) return 2;
                if (pinned == 0 && round < 40 && gshm_unpin(client.get(), name.c_str()) != 0) return 3;
            }
            return 0;
        },
        kNobody);
    EXPECT_EQ(codes, std::vector<int>(kProcesses, 0));
    auto pinned = [&] {
        int count = 0;
        for (int i = 0; i < kProcesses; ++i) {
            const auto info = stat(client_.get(), ("n" + std::to_string(i)).c_str());
            count += (info.flags & GSHM_STAT_PINNED) != 0 ? 1 : 0;
        }
        return count;
    };
    EXPECT_EQ(pinned(), 5) << "10 MiB of 2 MiB each";
    kill();
    ASSERT_TRUE(start({})) << log();
    EXPECT_EQ(pinned(), 5);
    EXPECT_EQ(as_nobody([&](gshm_client* client) {
                  int refused = 0;
                  std::string message;
                  for (int i = 0; i < kProcesses; ++i) {
                      if (gshm_pin(client, ("n" + std::to_string(i)).c_str()) != -EDQUOT) continue;
                      ++refused;
                      message = gshm_last_error();
                  }
                  return refused == kProcesses - 5 && message.find("10 MiB on host") != message.npos ? 0 : 1;
              }),
              0)
        << "the next gshmd counts the same";
}

// ---- ephemeral objects ----

// Makes objects, tells so, and lives until it is killed.
class Maker {
public:
    Maker(const std::string& folder, bool handles_end) {
        int ends[2] = {-1, -1};
        EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
        pid_ = fork();
        if (pid_ == 0) {
            gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
            options.dir = folder.c_str();
            options.timeout_ms = 60'000;
            gshm_client* client = nullptr;
            if (gshm_connect(&options, &client) != 0) _exit(1);
            auto make = [&](const char* name, uint32_t flags) {
                gshm_create_spec wanted = GSHM_CREATE_SPEC_INIT;
                wanted.name = name;
                wanted.size_bytes = 1000;
                wanted.flags = GSHM_NO_MAP | GSHM_CREATE_EPHEMERAL | flags;
                gshm_object* object = nullptr;
                if (gshm_create(client, &wanted, &object) != 0) _exit(2);
                return object;
            };
            gshm_object* sealed = make("sealed", 0);
            if (gshm_seal(sealed) != 0) _exit(3);
            gshm_close(sealed);
            gshm_object* published = make("published", GSHM_UNNAMED);
            if (gshm_publish(published, "published", 0) != 0) _exit(4);
            if (gshm_link(client, "published", "d/link") != 0) _exit(5);
            if (gshm_rename(client, "sealed", "renamed", 0) != 0) _exit(6);
            [[maybe_unused]] ssize_t told = write(ends[1], "x", 1);
            close(ends[1]);
            while (!handles_end) {
                gshm_ping(client);  // resumes the session
                usleep(10'000);
            }
            gshm_disconnect(client);
            _exit(0);
        }
        close(ends[1]);
        char ready = 0;
        EXPECT_EQ(read(ends[0], &ready, 1), 1);
        close(ends[0]);
    }
    ~Maker() { end(); }
    void end() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        waitpid(std::exchange(pid_, 0), nullptr, 0);
    }

private:
    pid_t pid_ = 0;
};

TEST_F(LifetimesTest, EphemeralObjectsEndWithTheirMaker) {
    for (bool orderly : {true, false}) {
        const auto events = watch();
        Maker maker(dir(), orderly);
        if (!orderly) {
            for (const char* name : {"published", "d/link", "renamed"}) EXPECT_TRUE(exists(name)) << name;
            EXPECT_NE(stat(client_.get(), "renamed").flags & GSHM_STAT_EPHEMERAL, 0u);
            auto held = open(client_.get(), "published");
            maker.end();
            EXPECT_EQ(removal(events, "published"), GSHM_EVENT_DELETED);
            char byte = 1;
            EXPECT_EQ(gshm_copy_out(held.get(), 999, &byte, 1), 0) << "a holder keeps it";
        }
        EXPECT_TRUE(eventually([&] { return !exists("published") && !exists("d/link") && !exists("renamed"); }));
        EXPECT_FALSE(exists("d"));
    }
    EXPECT_TRUE(eventually([&] { return device(client_.get(), "host").object_bytes == 0; }));
}

TEST_F(LifetimesTest, EphemeralObjectsOutliveGshmdButNotTheirMaker) {
    Maker maker(dir(), false);
    kill();
    ASSERT_TRUE(start({})) << log();
    for (const char* name : {"published", "d/link", "renamed"}) EXPECT_TRUE(exists(name)) << name;
    kill();
    maker.end();
    ASSERT_TRUE(start({})) << log();
    for (const char* name : {"published", "d/link", "renamed", "d"}) EXPECT_FALSE(exists(name)) << name;
}

TEST_F(LifetimesTest, AnEphemeralObjectIsNotKept) {
    auto wanted = spec("a", 10, "host", GSHM_CREATE_EPHEMERAL | GSHM_CREATE_KEEP);
    gshm_object* object = nullptr;
    EXPECT_EQ(gshm_create(client_.get(), &wanted, &object), -EINVAL);
    wanted.flags = GSHM_CREATE_TTL_UNUSED;
    EXPECT_EQ(gshm_create(client_.get(), &wanted, &object), -EINVAL);
    wanted.flags = 0;
    wanted.ttl_ms = UINT64_MAX;
    EXPECT_EQ(gshm_create(client_.get(), &wanted, &object), -EINVAL);
    put("b", 0);
    EXPECT_EQ(gshm_set_ttl(client_.get(), "b", UINT64_MAX, 0), -EINVAL);
    EXPECT_EQ(gshm_set_ttl(client_.get(), "b", 1, 1), -EINVAL);
    EXPECT_EQ(gshm_set_ttl(client_.get(), "none", 1, 0), -ENOENT);
}

// ---- the command ----

TEST_F(LifetimesTest, TheCommandSetsAndShows) {
    const auto events = watch();
    const std::string file = scratch() + "/file";
    std::ofstream(file) << "bytes";
    auto run = [&](const std::vector<std::string>& args) {
        const auto result = run_cli(args);
        EXPECT_EQ(result.exit_code, 0) << args[0] << ": " << result.err;
        return result.out;
    };
    run({"create", "c", "--size", "1K", "--ttl", "1h30m"});
    run({"put", file, "p", "--ttl-unused", "2d"});
    auto out = run({"stat", "c", "p"});
    EXPECT_NE(out.find("1h30m\n"), std::string::npos) << out;
    EXPECT_NE(out.find("2d since the last use"), std::string::npos) << out;
    out = run({"stat", "--json", "c"});
    EXPECT_NE(out.find("\"ttl_ms\": 5400000"), std::string::npos) << out;
    EXPECT_NE(out.find("\"expires_ns\":"), std::string::npos) << out;
    out = run({"ls", "-l"});
    EXPECT_NE(out.find("EXPIRES"), std::string::npos) << out;
    EXPECT_NE(out.find("1d23h59m5"), std::string::npos) << out;
    EXPECT_TRUE(run({"ttl", "c"}).starts_with("1h30m")) << run({"ttl", "c"});
    EXPECT_NE(run({"ttl", "--json", "c"}).find("\"ttl_ms\": 5400000"), std::string::npos);
    EXPECT_EQ(run_cli({"ttl", "c", "--unused"}).exit_code, 2);
    EXPECT_EQ(run_cli({"ttl", "none"}).exit_code, 4);
    run({"pin", "c", "p"});
    out = run({"stat", "c"});
    EXPECT_NE(out.find("pinned"), std::string::npos) << out;
    run({"ttl", "c", "10ms"});
    run({"unpin", "c", "p"});
    EXPECT_EQ(removal(events, "c"), GSHM_EVENT_EXPIRED);
    run({"ttl", "p", "off"});
    EXPECT_EQ(stat(client_.get(), "p").ttl_ms, 0u);
    EXPECT_EQ(run({"ttl", "p"}), "off\n");
    run({"ttl", "p", "20ms", "--unused"});
    EXPECT_EQ(removal(events, "p"), GSHM_EVENT_EXPIRED);
    for (const char* wrong : {"0", "10x", "1m1h", "-5s", "", "1h1h", "200000d", "99999999999999999999d"}) {
        EXPECT_EQ(run_cli({"create", "w", "--size", "1", "--ttl", wrong}).exit_code, 2) << wrong;
    }
    EXPECT_EQ(run_cli({"create", "w", "--size", "1", "--ttl", "1s", "--ttl-unused", "1s"}).exit_code, 2);
    EXPECT_EQ(run_cli({"ttl", "none", "1s"}).exit_code, 4);
}

TEST_F(LifetimesTest, TheCommandHoldsWhatIsEphemeral) {
    const std::string file = scratch() + "/file";
    std::ofstream(file) << "bytes";
    const std::string folder = scratch() + "/folder";
    std::filesystem::create_directory(folder);
    for (int i = 0; i < 20; ++i) std::ofstream(folder + "/" + std::to_string(i)) << i;
    struct Row {
        std::vector<std::string> args;
        std::vector<std::string> names;
    };
    std::vector<std::string> of_folder;
    for (int i = 0; i < 20; ++i) of_folder.push_back("d/" + std::to_string(i));
    for (const auto& [args, names] :
         {Row{{"create", "c", "--size", "1K", "--ephemeral"}, {"c"}}, Row{{"put", file, "p", "--ephemeral"}, {"p"}},
          Row{{"put", "-r", folder, "d", "--ephemeral"}, of_folder}}) {
        std::vector<std::string> argv = {bin("gshm"), "--dir", dir()};
        argv.insert(argv.end(), args.begin(), args.end());
        ChildProcess child;
        ASSERT_TRUE(child.spawn(argv));
        auto all = [&](bool there) {
            return std::ranges::all_of(names, [&](const auto& name) { return exists(name.c_str()) == there; });
        };
        ASSERT_TRUE(eventually([&] { return all(true); })) << args[0];
        EXPECT_TRUE(child.running());
        child.signal(SIGTERM);
        EXPECT_EQ(child.finish().exit_code, 0);
        EXPECT_TRUE(eventually([&] { return all(false); }));
    }
    EXPECT_TRUE(eventually([&] { return device(client_.get(), "host").object_bytes == 0; }));
}

}  // namespace
}  // namespace gshm::core::test
