// Watches, and waits for the end of a name, through the library and the command.
#include <algorithm>
#include <map>
#include <poll.h>
#include <set>
#include <signal.h>

#include "integration/library_fixture.h"
#include <gshm/watch.hpp>

namespace gshm::core::test {
namespace {

using namespace std::chrono_literals;

struct DestroyWatch {
    void operator()(gshm_watch* watch) const { gshm_watch_destroy(watch); }
};
using WatchHandle = std::unique_ptr<gshm_watch, DestroyWatch>;

std::string text_of(const gshm_event& event) {
    static constexpr const char* kNames[] = {"?",        "created",  "sealed", "deleted", "renamed",
                                             "replaced", "existing", "ready",  "overflow"};
    std::string text = kNames[event.event];
    if (event.name[0] != '\0') text += std::string(" ") + event.name;
    if (event.old_name[0] != '\0') text += std::string(" from ") + event.old_name;
    return text;
}

class WatchTest : public LibraryTest {
protected:
    void SetUp() override {
        ASSERT_TRUE(start()) << log();
        client_ = connect();
        ASSERT_TRUE(client_);
    }
    static WatchHandle watch(gshm_client* client, const char* prefix, uint32_t flags = 0) {
        gshm_watch* made = nullptr;
        EXPECT_EQ(gshm_watch_create(client, prefix, flags, &made), 0) << gshm_last_error();
        return WatchHandle(made);
    }
    static std::string next(const WatchHandle& watch, int timeout_ms = 30'000) {
        gshm_event event = {};
        event.struct_size = sizeof event;
        const int code = gshm_watch_next(watch.get(), &event, timeout_ms);
        return code == 0 ? text_of(event) : "error " + std::to_string(-code);
    }
    static std::string nothing() { return "error " + std::to_string(ETIMEDOUT); }
    static bool is_readable(const WatchHandle& watch, int timeout_ms) {
        pollfd fd = {gshm_watch_fd(watch.get()), POLLIN, 0};
        return poll(&fd, 1, timeout_ms) == 1;
    }
    void make(const std::string& name) {
        auto wanted = spec(name.c_str(), 100, "host", GSHM_KEEP | GSHM_NO_MAP);
        gshm_object* object = nullptr;
        EXPECT_EQ(gshm_create(client_.get(), &wanted, &object), 0) << gshm_last_error();
        gshm_close(object);
    }
    uint64_t daemon_memory_kib() const {
        std::ifstream status("/proc/" + std::to_string(pid()) + "/status");
        for (std::string line; std::getline(status, line);) {
            if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8));
        }
        return 0;
    }
};

class WatchOn : public LibraryTest, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Devices, WatchOn, ::testing::Values("host", "cuda:1"),
                         [](const auto& info) { return std::string(info.param) == "host" ? "host" : "cuda"; });

TEST_P(WatchOn, SaysWhichDeviceItIs) {
    start_all();
    ASSERT_TRUE(client_);
    gshm_watch* made = nullptr;
    ASSERT_EQ(gshm_watch_create(client_.get(), "", 0, &made), 0) << gshm_last_error();
    const WatchHandle watch(made);
    auto object = create(client_.get(), "a", 5000, GetParam());
    ASSERT_EQ(gshm_seal(object.get()), 0) << gshm_last_error();
    for (uint32_t expected : {GSHM_EVENT_CREATED, GSHM_EVENT_SEALED}) {
        gshm_event event = {};
        event.struct_size = sizeof event;
        ASSERT_EQ(gshm_watch_next(watch.get(), &event, 30'000), 0) << gshm_last_error();
        EXPECT_EQ(event.event, expected);
        EXPECT_STREQ(event.device, GetParam());
        EXPECT_EQ(event.size_bytes, 5000u);
    }
}

TEST_F(WatchTest, TellsWhatTheLibraryAndTheCommandDo) {
    auto models = watch(client_.get(), "m/");
    EXPECT_EQ(next(models, 0), nothing());
    EXPECT_FALSE(is_readable(models, 0));
    auto object = create(client_.get(), "m/a", 4096, "host");
    gshm_event event = {};
    event.struct_size = sizeof event;
    ASSERT_EQ(gshm_watch_next(models.get(), &event, 30'000), 0) << gshm_last_error();
    EXPECT_EQ(text_of(event), "created m/a");
    EXPECT_EQ(event.kind, static_cast<uint32_t>(GSHM_KIND_OBJECT));
    EXPECT_EQ(event.state, static_cast<uint32_t>(GSHM_STATE_OPEN));
    EXPECT_EQ(event.size_bytes, 4096u);
    EXPECT_STREQ(event.device, "host");
    EXPECT_EQ(event.id, gshm_id(object.get()));
    EXPECT_GT(event.time_ns, 0);
    ASSERT_EQ(gshm_seal(object.get()), 0);
    EXPECT_EQ(run_cli({"mv", "m/a", "m/b"}).exit_code, 0);
    EXPECT_EQ(run_cli({"put", "--replace", "/etc/hostname", "m/b"}).exit_code, 0);
    EXPECT_EQ(run_cli({"rm", "m/b"}).exit_code, 0);
    EXPECT_EQ(next(models), "sealed m/a");
    EXPECT_TRUE(is_readable(models, 30'000));
    EXPECT_EQ(next(models), "renamed m/b from m/a");
    EXPECT_EQ(next(models), "replaced m/b");
    EXPECT_EQ(next(models), "deleted m/b");
    EXPECT_EQ(next(models, 20), nothing());
}

TEST_F(WatchTest, ItsDescriptorIsReadableAsLongAsThereAreEvents) {
    auto all = watch(client_.get(), "");
    std::vector<gshm_create_spec> specs;
    std::vector<std::string> names;
    for (int i = 0; i < 50; ++i) names.push_back("n" + std::to_string(i));
    for (const auto& name : names) specs.push_back(spec(name.c_str(), 10, "host", GSHM_KEEP | GSHM_NO_MAP));
    std::vector<gshm_object*> objects(50);
    std::vector<int> status(50);
    ASSERT_EQ(gshm_create_batch(client_.get(), specs.data(), 50, objects.data(), status.data()), 0);
    gshm_close_batch(objects.data(), 50);
    const int fd = gshm_watch_fd(all.get());
    for (const auto& name : names) {
        ASSERT_TRUE(is_readable(all, 30'000)) << name;
        ASSERT_EQ(next(all, 0), "created " + name);
    }
    EXPECT_FALSE(is_readable(all, 20));
    EXPECT_EQ(gshm_watch_fd(all.get()), fd);
}

TEST_F(WatchTest, BadArgumentsAreRefused) {
    gshm_watch* made = nullptr;
    EXPECT_EQ(gshm_watch_create(nullptr, "", 0, &made), -EINVAL);
    EXPECT_EQ(gshm_watch_create(client_.get(), nullptr, 0, &made), -EINVAL);
    EXPECT_EQ(gshm_watch_create(client_.get(), "", 0, nullptr), -EINVAL);
    EXPECT_EQ(gshm_watch_create(client_.get(), "", 2, &made), -EINVAL);
    EXPECT_EQ(gshm_watch_create(client_.get(), "/a", 0, &made), -EINVAL);
    EXPECT_EQ(gshm_watch_create(client_.get(), "a//b", 0, &made), -EINVAL);
    EXPECT_EQ(gshm_watch_create(client_.get(), "\xff", 0, &made), -EILSEQ);
    EXPECT_EQ(gshm_watch_create(client_.get(), std::string(300, 'a').c_str(), 0, &made), -ENAMETOOLONG);
    EXPECT_EQ(gshm_watch_create(client_.get(), std::string(5000, 'a').c_str(), 0, &made), -ENAMETOOLONG);
    EXPECT_EQ(made, nullptr);
    auto good = watch(client_.get(), "");
    gshm_event event = {};
    EXPECT_EQ(gshm_watch_next(good.get(), &event, 0), -EINVAL) << "struct_size";
    event.struct_size = sizeof event;
    EXPECT_EQ(gshm_watch_next(nullptr, &event, 0), -EINVAL);
    EXPECT_EQ(gshm_watch_next(good.get(), nullptr, 0), -EINVAL);
    EXPECT_EQ(gshm_watch_fd(nullptr), -1);
    gshm_watch_destroy(nullptr);
    EXPECT_EQ(in_child([&] {
                  gshm_event here = {};
                  here.struct_size = sizeof here;
                  if (gshm_watch_next(good.get(), &here, 0) != -ECHILD) return 1;
                  if (gshm_watch_fd(good.get()) != -1) return 2;
                  gshm_watch_destroy(good.release());
                  return 0;
              }),
              0);
    make("after");
    EXPECT_EQ(next(good), "created after") << "the parent's goes on";
}

TEST_F(WatchTest, OneThatIsDestroyedWakesWhoWaits) {
    auto waiting = watch(client_.get(), "");
    std::atomic<bool> begun = false;
    std::string told;
    std::thread waiter([&] {
        begun = true;
        told = next(waiting, -1);
    });
    while (!begun) std::this_thread::yield();
    std::this_thread::sleep_for(20ms);
    gshm_watch_destroy(waiting.release());
    waiter.join();
    EXPECT_EQ(told, "error " + std::to_string(ECANCELED));
}

TEST_F(WatchTest, AWatchOutlivesItsClient) {
    auto other = connect();
    auto all = watch(other.get(), "");
    other.reset();
    make("a");
    EXPECT_EQ(next(all), "created a");
}

TEST_F(WatchTest, AKilledWritersObjectsAreDeleted) {
    auto all = watch(client_.get(), "");
    EXPECT_EQ(in_child([&] {
                  auto own = connect();
                  auto wanted = spec("half", 100, "host", GSHM_NO_MAP);
                  gshm_object* object = nullptr;
                  if (gshm_create(own.get(), &wanted, &object) != 0) return 1;
                  ::kill(getpid(), SIGKILL);
                  return 0;
              }),
              128 + SIGKILL);
    EXPECT_EQ(next(all), "created half");
    EXPECT_EQ(next(all), "deleted half");
}

TEST_F(WatchTest, GoesOnWithTheNextDaemon) {
    auto all = watch(client_.get(), "");
    auto gone = watch(client_.get(), "x");
    make("before");
    EXPECT_EQ(next(all), "created before");
    kill();
    EXPECT_TRUE(is_readable(all, 30'000));
    EXPECT_EQ(next(all, 0), "error " + std::to_string(ECONNREFUSED));
    EXPECT_TRUE(is_readable(all, 0)) << "it is to be asked again";
    ASSERT_TRUE(start()) << log();
    EXPECT_EQ(next(all), "overflow");
    make("after");
    EXPECT_EQ(next(all), "created after");
    EXPECT_FALSE(is_readable(all, 0));
    ASSERT_TRUE(take_over()) << log();
    EXPECT_EQ(next(all), "overflow");
    make("later");
    EXPECT_EQ(next(all), "created later");
    EXPECT_EQ(next(gone), "overflow") << "however many times it was";
    EXPECT_TRUE(eventually([&] {
        gshm_daemon_info info = {};
        info.struct_size = sizeof info;
        return gshm_daemon(client_.get(), &info) == 0 && info.sessions == 3;
    })) << "none is left of an earlier daemon";
}

TEST_F(WatchTest, WhoDoesNotReadIsToldOfIt) {
    constexpr int kEvents = 100'000;
    auto slow = watch(client_.get(), "n/");
    make("n/first");
    make("keep/x");
    const auto events = [&](int from, int to) {
        for (int i = from; i < to; ++i) {
            ASSERT_EQ(
                gshm_rename(client_.get(), i % 2 == 0 ? "n/first" : "n/second", i % 2 == 0 ? "n/second" : "n/first", 0),
                0);
        }
    };
    events(0, kEvents / 2);
    const uint64_t before = daemon_memory_kib();
    events(kEvents / 2, kEvents);
    if (!is_sanitized()) {
        EXPECT_LT(daemon_memory_kib(), before + 1024) << "the queue is full by now, and grows no more";
    }
    int heard = 0;
    for (;;) {
        const std::string event = next(slow);
        if (event == "overflow") break;
        ASSERT_EQ(event.substr(0, 5), heard == 0 ? "creat" : "renam") << event;
        ++heard;
    }
    EXPECT_GT(heard, 1000);
    EXPECT_LT(heard, kEvents);
    make("n/after");
    EXPECT_EQ(next(slow), "created n/after");
}

TEST_F(WatchTest, ManyWatchesHearTheSame) {
    constexpr int kWatches = 50;
    constexpr int kObjects = 400;
    std::vector<WatchHandle> watches;
    for (int i = 0; i < kWatches; ++i) watches.push_back(watch(client_.get(), i % 2 == 0 ? "w/" : ""));
    for (int i = 0; i < kObjects; ++i) make("w/" + std::to_string(i));
    for (int i = 0; i < kWatches; ++i) {
        if (i % 2 != 0) {
            EXPECT_EQ(next(watches[static_cast<size_t>(i)]), "created w");
        }
        for (int k = 0; k < kObjects; ++k) {
            ASSERT_EQ(next(watches[static_cast<size_t>(i)]), "created w/" + std::to_string(k));
        }
    }
}

TEST_F(WatchTest, WhatIsThereComesFirstWithoutAGap) {
    constexpr int kBefore = 3000;
    constexpr int kDuring = 3000;
    for (int i = 0; i < kBefore; ++i) make("d" + std::to_string(i % 10) + "/" + std::to_string(i));
    std::thread maker([&] {
        auto own = connect();
        for (int i = kBefore; i < kBefore + kDuring; ++i) {
            const std::string name = "d" + std::to_string(i % 10) + "/" + std::to_string(i);
            auto wanted = spec(name.c_str(), 100, "host", GSHM_KEEP | GSHM_NO_MAP);
            gshm_object* object = nullptr;
            ASSERT_EQ(gshm_create(own.get(), &wanted, &object), 0) << gshm_last_error();
            gshm_close(object);
        }
        ASSERT_EQ(gshm_unlink(own.get(), "d0/0"), 0);
    });
    auto all = watch(client_.get(), "d", GSHM_WATCH_EXISTING);
    std::set<std::string> known;
    bool ready = false;
    for (;;) {
        std::string event = next(all);
        if (event == "ready") {
            ready = true;
            continue;
        }
        if (event == "deleted d0/0") break;
        const bool existing = event.starts_with("existing ");
        ASSERT_TRUE(existing || event.starts_with("created ")) << event;
        ASSERT_FALSE(existing && ready) << event;
        ASSERT_TRUE(known.insert(event.substr(event.find(' ') + 1)).second) << event;
        // Removed before the walk reached it: not reported.
        if (known.size() == kBefore + kDuring + 9 && !known.contains("d0/0")) break;
    }
    maker.join();
    known.insert("d0/0");
    EXPECT_EQ(known.size(), static_cast<size_t>(kBefore + kDuring + 10));
}

TEST_F(WatchTest, OthersSeeOnlyWhatTheyMay) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
    gshm_make_spec closed = GSHM_MAKE_SPEC_INIT;
    closed.kind = GSHM_KIND_DIRECTORY;
    closed.name = "closed";
    closed.mode = 0700;
    ASSERT_EQ(gshm_make(client_.get(), &closed), 0);
    int ready[2];
    int done[2];
    ASSERT_EQ(pipe(ready), 0);
    ASSERT_EQ(pipe(done), 0);
    std::thread maker([&] {
        char byte = 0;
        ASSERT_EQ(read(ready[0], &byte, 1), 1);
        make("closed/a");
        make("open/b");
        EXPECT_EQ(gshm_rename(client_.get(), "open/b", "closed/b", 0), 0);
        make("end");
    });
    EXPECT_EQ(in_child(
                  [&] {
                      auto own = connect();
                      auto all = watch(own.get(), "");
                      if (write(ready[1], "x", 1) != 1) return 1;
                      // The directory is removed with its last entry.
                      for (const char* expected :
                           {"created open", "created open/b", "deleted open/b", "deleted open", "created end"}) {
                          const std::string event = next(all);
                          if (event != expected) {
                              fprintf(stderr, "%s instead of %s\n", event.c_str(), expected);
                              return 2;
                          }
                      }
                      return 0;
                  },
                  65534),
              0);
    maker.join();
    for (int fd : {ready[0], ready[1], done[0], done[1]}) close(fd);
}

TEST_F(WatchTest, WaitsUntilANameLeadsElsewhere) {
    gshm_stat_info info = {};
    info.struct_size = sizeof info;
    info.id = 99;
    EXPECT_EQ(gshm_wait(client_.get(), "a", GSHM_WAIT_GONE, 0, &info), 0) << "there is nothing";
    EXPECT_EQ(info.id, 0u);
    EXPECT_EQ(gshm_wait(client_.get(), "a/b", GSHM_WAIT_GONE, -1, nullptr), 0);
    EXPECT_EQ(gshm_wait(client_.get(), "a//b", GSHM_WAIT_GONE, -1, nullptr), -EINVAL);
    make("a");
    const uint64_t id = stat(client_.get(), "a").id;
    EXPECT_EQ(gshm_wait(client_.get(), "a", GSHM_WAIT_GONE, 0, nullptr), -ETIMEDOUT);
    EXPECT_EQ(gshm_wait(client_.get(), "a", GSHM_WAIT_GONE, 20, nullptr), -ETIMEDOUT);
    // Each way to lose a name, during a wait.
    const auto goes = [&](const char* name, const std::function<void()>& change) {
        int code = 1;
        std::thread waiter([&] { code = gshm_wait(client_.get(), name, GSHM_WAIT_GONE, -1, &info); });
        std::this_thread::sleep_for(20ms);
        change();
        waiter.join();
        EXPECT_EQ(code, 0) << name;
    };
    goes("a", [&] { EXPECT_EQ(gshm_unlink(client_.get(), "a"), 0); });
    EXPECT_EQ(info.id, id);
    make("a");
    make("b");
    goes("a", [&] { EXPECT_EQ(gshm_rename(client_.get(), "b", "a", GSHM_REPLACE), 0); });
    goes("a", [&] { EXPECT_EQ(gshm_rename(client_.get(), "a", "d/a", 0), 0); });
    goes("d/a", [&] { EXPECT_EQ(gshm_rename(client_.get(), "d", "e", 0), 0); });
    gshm_make_spec link = GSHM_MAKE_SPEC_INIT;
    link.kind = GSHM_KIND_SYMLINK;
    link.name = "l";
    link.target = "e";
    ASSERT_EQ(gshm_make(client_.get(), &link), 0);
    goes("l/a", [&] { EXPECT_EQ(gshm_unlink(client_.get(), "e/a"), 0); });
    // An object that is reclaimed, and a wait that outlives the daemon.
    auto other = connect();
    auto open = create(other.get(), "mine", 10, "host");
    goes("mine", [&] {
        open.reset();
        other.reset();
    });
    make("long");
    goes("long", [&] {
        kill();
        EXPECT_TRUE(start()) << log();
        EXPECT_EQ(gshm_unlink(client_.get(), "long"), 0) << gshm_last_error();
    });
}

TEST_F(WatchTest, InCpp) {
    auto client = gshm::Client::connect({.dir = dir()});
    ASSERT_TRUE(client);
    make("a");
    auto made = gshm::Watch::create(*client, "", {.existing = true});
    ASSERT_TRUE(made) << made.error().message;
    auto first = made->next();
    ASSERT_TRUE(first);
    EXPECT_EQ(first->kind, gshm::EventKind::kExisting);
    EXPECT_EQ(first->name, "a");
    EXPECT_EQ(first->device, "host");
    EXPECT_EQ(made->next()->kind, gshm::EventKind::kReady);
    EXPECT_EQ(made->next(10ms).error().code, ETIMEDOUT);
    EXPECT_GE(made->fd(), 0);
    ASSERT_TRUE(client->unlink("a"));
    auto gone = client->wait("a", gshm::WaitFor::kGone, 0ms);
    ASSERT_TRUE(gone);
    EXPECT_EQ(gone->id, 0u);
    EXPECT_EQ(made->next()->kind, gshm::EventKind::kDeleted);
    EXPECT_FALSE(gshm::Watch::create(*client, "/"));
}

TEST_F(WatchTest, TheCommandPrintsALineForEachEvent) {
    make("m/there");
    ChildProcess child;
    ASSERT_TRUE(child.spawn(cli_argv({"watch", "m/", "--existing", "--json", "--count", "4"})));
    // The watch exists when it has reported the existing names, and only its output shows that.
    ASSERT_EQ(run_cli({"wait", "m/there"}).exit_code, 0);
    std::thread maker([&] {
        auto own = connect();
        auto object = create(own.get(), "m/new", 100, "host");
        EXPECT_EQ(gshm_seal(object.get()), 0);
        EXPECT_EQ(gshm_rename(own.get(), "m/new", "m/last", 0), 0);
        EXPECT_EQ(gshm_unlink(own.get(), "m/last"), 0);
        EXPECT_EQ(gshm_unlink(own.get(), "m/there"), 0);
        // Enough events for --count, even if the watch began late and missed some.
        for (int i = 0; i < 4; ++i) {
            auto more = create(own.get(), ("m/" + std::to_string(i)).c_str(), 100, "host", GSHM_KEEP);
        }
    });
    const auto result = child.finish();
    maker.join();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.out.find(R"("event":")"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find(R"("name":"m/)"), std::string::npos) << result.out;
}

TEST_F(WatchTest, TheCommandEndsAsItIsTold) {
    const auto listed = run_cli({"watch", "--existing", "--timeout", "0.05"});
    EXPECT_EQ(listed.exit_code, 0) << listed.err;
    EXPECT_NE(listed.out.find("ready"), std::string::npos) << listed.out;
    EXPECT_EQ(run_cli({"watch", "--count", "1", "--timeout", "0.05"}).exit_code,
              run_cli({"wait", "x", "--timeout", "0.05"}).exit_code);
    EXPECT_EQ(run_cli({"watch", "/x"}).exit_code, run_cli({"stat", "/x"}).exit_code);
    for (int signal : {SIGINT, SIGTERM}) {
        ChildProcess child;
        ASSERT_TRUE(child.spawn(cli_argv({"watch", "--existing"})));
        ASSERT_TRUE(eventually([&] {
            gshm_daemon_info info = {};
            info.struct_size = sizeof info;
            return gshm_daemon(client_.get(), &info) == 0 && info.sessions == 2;
        }));
        std::this_thread::sleep_for(50ms);
        child.signal(signal);
        const auto result = child.finish();
        EXPECT_EQ(result.exit_code, 128 + signal);
        EXPECT_EQ(result.err, "");
    }
    ChildProcess child;
    ASSERT_TRUE(child.spawn(cli_argv({"watch"})));
    child.close_stdout();
    EXPECT_EQ(child.wait(60s), 128 + SIGPIPE) << "nobody reads";
    ASSERT_EQ(run_cli({"wait", "nothing", "--gone"}).exit_code, 0);
    make("a");
    EXPECT_NE(run_cli({"wait", "a", "--gone", "--timeout", "0"}).exit_code, 0);
    EXPECT_NE(run_cli({"wait", "a", "--gone", "--sealed"}).exit_code, 0);
}

}  // namespace
}  // namespace gshm::core::test
