// gshmd is killed with SIGKILL and restarted: everything is restored, and clients continue with their handles.
#include <sys/mman.h>

#include "integration/survival_fixture.h"

namespace gshm::core::test {
namespace {

TEST_P(SurvivalOn, ObjectsWithAllThatIsKnownOfThem) {
    const std::vector<std::pair<std::string, uint64_t>> sizes = {
        {"small", 100}, {"page", 4096}, {"dir/sub/middle", 3 * kMiB + 17}, {"dir/large", 20 * kMiB}};
    std::vector<gshm_stat_info> before;
    for (size_t i = 0; i < sizes.size(); ++i) {
        make(sizes[i].first, sizes[i].second, where(), i, i != 1,
             i == 1   ? GSHM_KEEP
             : i == 2 ? GSHM_DEDICATED
                      : 0,
             0640);
    }
    ASSERT_EQ(gshm_set_attribute(client_.get(), "small", "kind", "tiny", 4), 0);
    ASSERT_EQ(in_child(
                  [&] {
                      client_.release();
                      client_ = connect();
                      return make("theirs/o", 5000, where(), 9, true, GSHM_NO_MAP, 0604)
                                 ? 0
                                 : 1;  // CUDA does not survive a fork
                  },
                  65534),
              0);
    // The end of its creator may not be processed yet.
    ASSERT_TRUE(eventually([&] { return stat(client_.get(), "theirs/o").leases == 0; }));
    const gshm_stat_info theirs = stat(client_.get(), "theirs/o");
    EXPECT_EQ(theirs.uid, 65534u);
    for (const auto& [name, bytes] : sizes) before.push_back(stat(client_.get(), name.c_str()));
    const gshm_stat_info folder = stat(client_.get(), "dir/sub");
    const gshm_daemon_info daemon = daemon_info();
    const gshm_device_info use = device(client_.get(), where());
    kill_it();
    for (size_t i = 0; i < sizes.size(); ++i) {
        const gshm_stat_info after = stat(client_.get(), sizes[i].first.c_str());
        EXPECT_EQ(memcmp(&after, &before[i], sizeof after), 0) << sizes[i].first;
        EXPECT_TRUE(has(sizes[i].first, i)) << sizes[i].first;
    }
    const gshm_stat_info theirs_after = stat(client_.get(), "theirs/o");
    EXPECT_EQ(memcmp(&theirs_after, &theirs, sizeof theirs), 0);
    EXPECT_TRUE(has("theirs/o", 9));
    EXPECT_EQ(in_child(
                  [&] {
                      Client other = connect();
                      return open_code(other.get(), "small") == -EACCES &&
                                     open_code(other.get(), "theirs/o", GSHM_NO_MAP) == 0
                                 ? 0
                                 : 1;
                  },
                  65534),
              0);
    const gshm_stat_info folder_after = stat(client_.get(), "dir/sub");
    EXPECT_EQ(memcmp(&folder_after, &folder, sizeof folder), 0);
    EXPECT_EQ(attribute("small", "kind"), "tiny");
    EXPECT_EQ(daemon_info().instance, daemon.instance);
    EXPECT_NE(daemon_info().pid, daemon.pid);
    EXPECT_EQ(daemon_info().objects, daemon.objects);
    EXPECT_EQ(device(client_.get(), where()).object_bytes, use.object_bytes);
    EXPECT_EQ(device(client_.get(), where()).used_bytes, use.used_bytes);
    EXPECT_EQ(open_code(client_.get(), "small", GSHM_WRITE), -EPERM) << "it was sealed";
    EXPECT_EQ(open_code(client_.get(), "page", GSHM_WRITE), 0);
}

TEST_P(SurvivalOn, AHandleFromBefore) {
    Object draft = make("draft", 3 * kMiB, where(), 1, false);
    Object unmapped = create(client_.get(), "unmapped", 2 * kMiB, where(), GSHM_NO_MAP);
    put(unmapped.get(), 2);
    Object reader = open(client_.get(), "draft");
    kill_it();
    EXPECT_TRUE(holds(draft.get(), 1));
    EXPECT_TRUE(holds(reader.get(), 1));
    EXPECT_TRUE(holds(unmapped.get(), 2)) << gshm_last_error();
    put(unmapped.get(), 3);
    EXPECT_TRUE(holds(unmapped.get(), 3));
    EXPECT_EQ(gshm_fill(unmapped.get(), 0, 100, 9), 0) << gshm_last_error();
    gshm_stat_info info = {};
    info.struct_size = sizeof info;
    EXPECT_EQ(gshm_stat_object(draft.get(), &info), 0) << gshm_last_error();
    EXPECT_EQ(info.leases, 2u);
    EXPECT_EQ(info.id, gshm_id(draft.get()));
    gshm_handle_info handle = {};
    handle.struct_size = sizeof handle;
    int fd = -1;
    EXPECT_EQ(gshm_export_fd(draft.get(), &fd, &handle), 0) << gshm_last_error();
    ::close(fd);
    EXPECT_EQ(gshm_seal(draft.get()), 0) << gshm_last_error();
    EXPECT_EQ(stat(client_.get(), "draft").state, uint32_t{GSHM_STATE_SEALED});
    draft.reset();
    reader.reset();
    EXPECT_TRUE(eventually([&] { return stat(client_.get(), "draft").leases == 0; }));
}

TEST_P(SurvivalOn, ALeaseKeepsItsBytesAndNothingLonger) {
    make("held", 64 << 10, where(), 1);
    make("large", 8 * kMiB, where(), 2);
    Object held = open(client_.get(), "held");
    Object large = open(client_.get(), "large");
    kill_it();
    Client other = connect(kPatience);
    ASSERT_EQ(gshm_unlink(other.get(), "held"), 0);
    ASSERT_EQ(gshm_unlink(other.get(), "large"), 0);
    EXPECT_EQ(device(other.get(), where()).unlinked_bytes, (64 << 10) + 8 * kMiB);
    for (int i = 0; i < 40; ++i) {  // enough to fill its place
        make("new/" + std::to_string(i), 64 << 10, where(), 100, false, GSHM_KEEP);
    }
    make("new/large", 8 * kMiB, where(), 100);
    EXPECT_TRUE(holds(held.get(), 1));
    EXPECT_TRUE(holds(large.get(), 2));
    kill_it();
    EXPECT_EQ(device(other.get(), where()).unlinked_bytes, (64 << 10) + 8 * kMiB);
    EXPECT_TRUE(holds(held.get(), 1));
    EXPECT_TRUE(holds(large.get(), 2));
    const uint64_t used = device(other.get(), where()).used_bytes;
    held.reset();
    large.reset();
    EXPECT_TRUE(eventually([&] { return device(other.get(), where()).unlinked_bytes == 0; }));
    EXPECT_TRUE(eventually([&] { return device(other.get(), where()).used_bytes <= used - 8 * kMiB; }));
    EXPECT_EQ(device(other.get(), where()).object_bytes, 40 * (64 << 10) + 8 * kMiB);
}

TEST_P(SurvivalOn, DraftsOfTheDeadGoAndThoseOfTheLivingStay) {
    Object own = make("own", kMiB, where(), 1, false);
    Workers workers;
    workers.add([&](Workers::Self& self) -> std::string {
        client_.release();  // of the parent
        client_ = connect(kPatience);
        Object draft = make("theirs", kMiB, where(), 2, false, GSHM_NO_MAP);
        Object kept = make("kept", kMiB, where(), 3, false, GSHM_KEEP | GSHM_NO_MAP);
        self.goes_on();
        for (;;) pause();
    });
    ASSERT_TRUE(workers.wait_until_begun()) << workers.finish();
    kill();
    ::kill(workers.pid(0), SIGKILL);
    workers.finish();
    ASSERT_TRUE(again()) << log();
    stat(client_.get(), "theirs", -ENOENT);
    EXPECT_TRUE(has("kept", 3));
    EXPECT_EQ(stat(client_.get(), "kept").leases, 0u);
    EXPECT_EQ(stat(client_.get(), "own").leases, 1u);
    EXPECT_TRUE(holds(own.get(), 1));
    EXPECT_EQ(gshm_seal(own.get()), 0) << gshm_last_error();
    EXPECT_EQ(total(client_.get()).unlinked_bytes, 0u);
}

TEST_P(SurvivalOn, ClosedWhileNobodyListened) {
    Object draft = make("draft", kMiB, where(), 1, false);
    make("a", kMiB, where(), 2);
    Object first = open(client_.get(), "a");
    Object second = open(client_.get(), "a");
    kill();
    first.reset();
    draft.reset();  // not sealed, but its process is alive
    ASSERT_TRUE(again()) << log();
    EXPECT_TRUE(eventually([&] { return stat(client_.get(), "a").leases == 1; }));
    EXPECT_EQ(stat(client_.get(), "draft").leases, 0u);
    EXPECT_TRUE(holds(second.get(), 2));
}

// A close may be the first message to the new daemon: the client reports its leases first, and must not release twice.
TEST_P(SurvivalOn, OneOfTwoIsClosedBeforeAllElse) {
    make("a", kMiB, where(), 2);
    Object first = open(client_.get(), "a");
    Object second = open(client_.get(), "a");
    kill_it();
    first.reset();
    EXPECT_EQ(stat(client_.get(), "a").leases, 1u);
    ASSERT_EQ(gshm_unlink(client_.get(), "a"), 0);
    for (int i = 0; i < 4; ++i) make("other" + std::to_string(i), kMiB, where(), 3);
    EXPECT_TRUE(holds(second.get(), 2));
    EXPECT_EQ(device(client_.get(), where()).unlinked_bytes, kMiB);
}

TEST_P(SurvivalOn, DisconnectedWhileNobodyListened) {
    Client other = connect(0);
    auto wanted = spec("draft", kMiB, where());
    gshm_object* object = nullptr;
    ASSERT_EQ(gshm_create(other.get(), &wanted, &object), 0);
    make("a", kMiB, where(), 2);
    Object reader = open(other.get(), "a");
    kill();
    gshm_close(object);
    reader.reset();
    other.reset();
    ASSERT_TRUE(again()) << log();
    // The process is alive, and the daemon cannot know that the session has no owner. The session ends with the
    // process.
    EXPECT_TRUE(has("a", 2));
}

TEST_P(SurvivalOn, MemoryThatIsUsedAgainIsZero) {
    for (int i = 0; i < 30; ++i) make("s/" + std::to_string(i), 40'000, where(), 1);
    make("large", 8 * kMiB, where(), 2);
    for (int i = 0; i < 30; i += 2) ASSERT_EQ(gshm_unlink(client_.get(), ("s/" + std::to_string(i)).c_str()), 0);
    ASSERT_EQ(gshm_unlink(client_.get(), "large"), 0);
    kill_it();
    for (int i = 1; i < 30; i += 4) ASSERT_EQ(gshm_unlink(client_.get(), ("s/" + std::to_string(i)).c_str()), 0);
    kill_it();
    for (int i = 0; i < 60; ++i) {
        const std::string name = "n/" + std::to_string(i);
        Object object = create(client_.get(), name.c_str(), i == 0 ? 8 * kMiB : 40'000, where(), GSHM_KEEP);
        ASSERT_TRUE(object);
        std::string bytes(gshm_size(object.get()), 'x');
        ASSERT_EQ(gshm_copy_out(object.get(), 0, bytes.data(), bytes.size()), 0);
        EXPECT_EQ(bytes.find_first_not_of('\0'), std::string::npos) << name;
    }
    for (int i = 3; i < 30; i += 4) EXPECT_TRUE(has("s/" + std::to_string(i), 1)) << i;
}

TEST_P(SurvivalOn, WaitingGoesOn) {
    Workers workers;
    workers.add([&](Workers::Self& self) -> std::string {
        client_.release();
        client_ = connect(kPatience);
        self.goes_on();
        const int code = gshm_wait(client_.get(), "later", GSHM_WAIT_SEALED, -1, nullptr);
        if (code != 0) return gshm_last_error();
        return has("later", 5, GSHM_NO_MAP) ? "" : "other bytes";
    });
    ASSERT_TRUE(workers.wait_until_begun()) << workers.finish();
    std::this_thread::sleep_for(20ms);
    kill_it();
    std::this_thread::sleep_for(20ms);
    kill_it();
    make("later", 5000, where(), 5);
    EXPECT_EQ(workers.finish(), "");
}

TEST_P(SurvivalOn, AForkedChildAndItsParent) {
    Object object = make("a", kMiB, where(), 1, false);
    kill();
    EXPECT_EQ(in_child([&] {
                  const bool refused = gshm_ping(client_.get()) == -ECHILD && gshm_seal(object.get()) == -ECHILD;
                  gshm_close(object.release());
                  client_.reset();
                  return refused ? 0 : 1;
              }),
              0);
    ASSERT_TRUE(again()) << log();
    EXPECT_EQ(stat(client_.get(), "a").leases, 1u);
    EXPECT_EQ(gshm_seal(object.get()), 0) << gshm_last_error();
}

INSTANTIATE_TEST_SUITE_P(Devices, SurvivalOn, ::testing::Values("host", "cuda:0"), device_of);

}  // namespace
}  // namespace gshm::core::test
