// Moves of objects to another device: unchanged properties, conflicts with holders, and the state after a kill.
#include <atomic>
#include <thread>

#include "survival_fixture.h"

namespace gshm::core::test {
namespace {

struct Way {
    const char* from;
    const char* to;
};
void PrintTo(const Way& way, std::ostream* out) {
    *out << way.from << " to " << way.to;
}

class Move : public LibrarySurvivalTest {
protected:
    int move(const std::string& name, const char* device, uint32_t flags = 0) {
        return gshm_move(client_.get(), name.c_str(), device, flags);
    }
    std::string device_of(const std::string& name) { return stat(client_.get(), name.c_str()).device; }
    uint64_t object_bytes(const char* name) { return device(client_.get(), name).object_bytes; }
    // Handles without a mapping, which forks and restarts of the daemon do not affect.
    void make_closed(const std::string& name, uint64_t bytes, const char* device, uint64_t seed, bool seal = true,
                     uint32_t flags = 0) {
        make(name, bytes, device, seed, seal, flags | uint32_t{GSHM_KEEP} | uint32_t{GSHM_NO_MAP}, 0644);
    }
    bool has_bytes(const std::string& name, uint64_t seed) { return has(name, seed, GSHM_NO_MAP); }
};

class MoveBetween : public Move, public ::testing::WithParamInterface<Way> {};
INSTANTIATE_TEST_SUITE_P(Devices, MoveBetween,
                         ::testing::Values(Way{"host", "cuda:0"}, Way{"cuda:0", "host"}, Way{"cuda:0", "cuda:1"}),
                         [](const auto& info) {
                             std::string name = std::string(info.param.from) + "To" + info.param.to;
                             std::erase(name, ':');
                             return name;
                         });

TEST_P(MoveBetween, KeepsAllButTheDevice) {
    const auto [from, to] = GetParam();
    for (uint64_t bytes : {uint64_t{1}, uint64_t{70'000}, 3 * kMiB + 17}) {
        for (bool sealed : {false, true}) {
            const std::string name = "d/" + std::to_string(bytes) + (sealed ? "-sealed" : "-open");
            make_closed(name, bytes, from, bytes, sealed);
            ASSERT_EQ(gshm_set_attribute(client_.get(), name.c_str(), "dtype", "u8", 2), 0);
            const auto before = stat(client_.get(), name.c_str());
            ASSERT_EQ(move(name, to), 0) << gshm_last_error();
            const auto after = stat(client_.get(), name.c_str());
            EXPECT_STREQ(after.device, to);
            EXPECT_EQ(after.id, before.id);
            EXPECT_EQ(after.size_bytes, before.size_bytes);
            EXPECT_EQ(after.state, before.state);
            EXPECT_EQ(after.mode, before.mode);
            EXPECT_EQ(after.uid, before.uid);
            EXPECT_EQ(after.created_ns, before.created_ns);
            EXPECT_EQ(after.modified_ns, before.modified_ns);
            EXPECT_EQ(attribute(name, "dtype"), "u8");
            EXPECT_TRUE(has_bytes(name, bytes)) << name;
        }
    }
    EXPECT_EQ(object_bytes(from), 0u);
    EXPECT_EQ(object_bytes(to), 2 * (1 + 70'000 + 3 * kMiB + 17));
    // And back, to the device where it can be mapped.
    for (const char* name : {"d/1-open", "d/70000-sealed", "d/3145745-open"}) {
        ASSERT_EQ(move(name, from), 0) << gshm_last_error();
        EXPECT_TRUE(has(name, stat(client_.get(), name).size_bytes));
        EXPECT_EQ(gshm_unlink(client_.get(), name), 0);
    }
    EXPECT_EQ(object_bytes(from), 0u);
}

TEST_P(MoveBetween, OutlivesTheDaemon) {
    const auto [from, to] = GetParam();
    make_closed("large", 5 * kMiB, from, 1);
    make_closed("small", 1000, from, 2, false);
    for (const char* name : {"large", "small"}) ASSERT_EQ(move(name, to), 0) << gshm_last_error();
    kill_it();
    for (const char* name : {"large", "small"}) EXPECT_EQ(device_of(name), to);
    EXPECT_TRUE(has_bytes("large", 1));
    EXPECT_TRUE(has_bytes("small", 2));
    EXPECT_EQ(stat(client_.get(), "large").state, uint32_t{GSHM_STATE_SEALED});
    EXPECT_EQ(object_bytes(from), 0u);
}

TEST_P(MoveBetween, WaitsForNoHolderButIsRefused) {
    const auto [from, to] = GetParam();
    Object object = make("held", 2 * kMiB, from, 1);
    EXPECT_EQ(move("held", to), -EBUSY);
    EXPECT_EQ(device_of("held"), from);
    EXPECT_TRUE(holds(object.get(), 1));
    object.reset();
    EXPECT_EQ(move("held", to), 0) << gshm_last_error();
    EXPECT_TRUE(has("held", 1));
}

TEST_P(MoveBetween, HoldersKeepTheOldMemoryIfThatIsWanted) {
    const auto [from, to] = GetParam();
    for (uint64_t bytes : {uint64_t{1000}, 2 * kMiB}) {
        const std::string name = "held" + std::to_string(bytes);
        make(name, bytes, from, 1);
        auto other = connect(kPatience);
        Object held = open(other.get(), name.c_str());
        ASSERT_EQ(move(name, to, GSHM_MOVE_KEEP_HOLDERS), 0) << gshm_last_error();
        EXPECT_EQ(device_of(name), to);
        EXPECT_STREQ(gshm_device(held.get()), from);
        EXPECT_TRUE(holds(held.get(), 1));
        EXPECT_TRUE(has(name, 1));
        EXPECT_EQ(object_bytes(from), bytes);
        EXPECT_EQ(device(client_.get(), from).unlinked_bytes, bytes);
        held.reset();
        EXPECT_TRUE(eventually([&] { return object_bytes(from) == 0; }));
        ASSERT_EQ(gshm_unlink(client_.get(), name.c_str()), 0);
    }
}

TEST_P(MoveBetween, AWriterIsInTheWayInAnyCase) {
    const auto [from, to] = GetParam();
    Object object = make("written", 2 * kMiB, from, 1, false, GSHM_KEEP);
    EXPECT_EQ(move("written", to, GSHM_MOVE_KEEP_HOLDERS), -EBUSY);
    object.reset();
    EXPECT_EQ(move("written", to, GSHM_MOVE_KEEP_HOLDERS), 0) << gshm_last_error();
}

// Other clients read it all the time, through the daemon and through a mapping.
TEST_P(MoveBetween, WhileItIsRead) {
    const auto [from, to] = GetParam();
    make_closed("read", 3 * kMiB, from, 1);
    std::atomic<bool> ends = false;
    std::atomic<int> reads = 0;
    auto reader = [&](uint32_t flags) {
        auto client = connect(kPatience);
        while (!ends) {
            Object object = open(client.get(), "read", flags);
            EXPECT_TRUE(object && holds(object.get(), 1));
            ++reads;
        }
    };
    std::thread through(reader, uint32_t{GSHM_NO_MAP});
    std::thread mapped(reader, 0u);
    for (int round = 0; round < 20; ++round) {
        const int seen = reads;
        EXPECT_EQ(move("read", round % 2 == 0 ? to : from, GSHM_MOVE_KEEP_HOLDERS), 0) << gshm_last_error();
        while (reads == seen) std::this_thread::yield();
    }
    ends = true;
    through.join();
    mapped.join();
    EXPECT_EQ(device_of("read"), from);
    EXPECT_TRUE(has_bytes("read", 1));
    EXPECT_TRUE(eventually([&] { return object_bytes(to) == 0; }));
}

// SIGKILL during the copy: the object is complete on one device, and the other has none of its bytes.
TEST_P(MoveBetween, AKillLeavesItWholeOnOneOfTheTwo) {
    const auto [from, to] = GetParam();
    constexpr uint64_t kBytes = 48 * kMiB;
    make_closed("killed", kBytes, from, 1);
    for (int round = 0; round < 6; ++round) {
        const std::string here = device_of("killed");
        const std::string there = here == from ? to : from;
        ChildProcess mover;
        ASSERT_TRUE(mover.spawn({bin("gshm"), "--dir", dir(), "mv", "--device", there, "killed"}));
        // In even rounds, waits until its new memory exists. In odd rounds, the move may not have begun.
        auto has_begun = [&] {
            return device(client_.get(), there).used_bytes >= kBytes || device_of("killed") == there;
        };
        while (round % 2 == 0 && !has_begun()) std::this_thread::yield();
        kill();
        mover.reset();
        ASSERT_TRUE(again()) << log();
        const std::string found = device_of("killed");
        EXPECT_TRUE(found == from || found == to) << found;
        EXPECT_TRUE(has_bytes("killed", 1)) << "round " << round;
        EXPECT_EQ(object_bytes(found.c_str()), kBytes);
        const std::string other = found == from ? to : from;
        EXPECT_EQ(object_bytes(other.c_str()), 0u);
        EXPECT_TRUE(eventually([&] { return device(client_.get(), other).used_bytes == 0; }));
    }
}

TEST_F(Move, OfWhatIsNotThereOrCannotMove) {
    make_closed("x", 1000, "host", 1);
    EXPECT_EQ(move("x", "cuda:7"), -ENODEV);
    EXPECT_EQ(move("nothing", "cuda:0"), -ENOENT);
    make_closed("d/x", 1000, "host", 1);
    EXPECT_EQ(move("d", "cuda:0"), -EISDIR);
    EXPECT_EQ(move("x", "host"), 0) << gshm_last_error();
    EXPECT_EQ(device_of("x"), "host");
}

TEST_F(Move, AnEmptyObjectHasADeviceToo) {
    create(client_.get(), "empty", 0, "host", GSHM_EMPTY | GSHM_KEEP);
    EXPECT_EQ(move("empty", "cuda:1"), 0) << gshm_last_error();
    EXPECT_EQ(device_of("empty"), "cuda:1");
    kill_it();
    EXPECT_EQ(device_of("empty"), "cuda:1");
}

TEST_F(Move, IsForItsOwnerAndRoot) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root to be another user";
    create(client_.get(), "others", 1000, "host", GSHM_KEEP | GSHM_NO_MAP, 0666);
    EXPECT_EQ(in_child(
                  [&] {
                      auto client = connect();
                      if (gshm_move(client.get(), "others", "cuda:0", 0) != -EPERM) return 1;
                      auto wanted = spec("mine", 1000, "host", GSHM_KEEP | GSHM_NO_MAP);
                      gshm_object* made = nullptr;
                      if (gshm_create(client.get(), &wanted, &made) != 0) return 2;
                      gshm_close(made);
                      return gshm_move(client.get(), "mine", "cuda:0", 0) == 0 ? 0 : 3;
                  },
                  65534),
              0);
    EXPECT_EQ(device_of("others"), "host");
    EXPECT_EQ(device_of("mine"), "cuda:0");
    EXPECT_EQ(move("mine", "host"), 0) << gshm_last_error();
}

TEST_F(Move, ToAFullDeviceIsRefusedAndLeavesItWhole) {
    EXPECT_EQ(stop(), 0);
    ASSERT_TRUE(start({"--device", "host:256M", "--device", "cuda:0:8M"}, daemon_env())) << log();
    client_ = connect(kPatience);
    make_closed("large", 12 * kMiB, "host", 1);
    make_closed("fits", 6 * kMiB, "host", 2);
    EXPECT_EQ(move("large", "cuda:0"), -ENOSPC);
    EXPECT_EQ(device_of("large"), "host");
    EXPECT_TRUE(has_bytes("large", 1));
    EXPECT_EQ(move("fits", "cuda:0"), 0) << gshm_last_error();
    EXPECT_TRUE(has_bytes("fits", 2));
    EXPECT_EQ(object_bytes("cuda:0"), 6 * kMiB);
}

TEST_F(Move, ThatCannotCopyLeavesNothingBehind) {
    make_closed("x", 4 * kMiB, "host", 1);
    make_closed("small", 1000, "host", 2);
    const std::string faults = scratch() + "/faults";
    std::ofstream(faults + ".new") << "cuMemcpyHtoDAsync_v2:*:1";
    std::filesystem::rename(faults + ".new", faults);
    EXPECT_LT(move("x", "cuda:0"), 0);
    EXPECT_LT(move("small", "cuda:0"), 0);
    std::ofstream(faults + ".new") << "";
    std::filesystem::rename(faults + ".new", faults);
    for (const char* name : {"x", "small"}) EXPECT_EQ(device_of(name), "host");
    EXPECT_TRUE(has_bytes("x", 1));
    EXPECT_TRUE(has_bytes("small", 2));
    EXPECT_EQ(object_bytes("cuda:0"), 0u);
    EXPECT_EQ(move("x", "cuda:0"), 0) << gshm_last_error();
    EXPECT_TRUE(has_bytes("x", 1));
}

// Small objects also share an extent on the new device.
TEST_F(Move, ManySmallObjectsTakeLittleMemory) {
    for (int i = 0; i < 50; ++i) make_closed("s" + std::to_string(i), 1000, "host", static_cast<uint64_t>(i));
    for (int i = 0; i < 50; ++i) ASSERT_EQ(move("s" + std::to_string(i), "cuda:0"), 0) << gshm_last_error();
    EXPECT_LE(device(client_.get(), "cuda:0").used_bytes, 4 * kMiB);
    for (int i = 0; i < 50; ++i) EXPECT_TRUE(has_bytes("s" + std::to_string(i), static_cast<uint64_t>(i)));
}

TEST_F(Move, ByTheCommand) {
    make_closed("x", 4 * kMiB, "host", 1);
    const auto moved = run_cli({"--json", "mv", "--device", "cuda:0", "x"});
    EXPECT_EQ(moved.exit_code, 0) << moved.err;
    EXPECT_EQ(moved.out.find("\"device\""), moved.out.rfind("\"device\""));
    EXPECT_EQ(device_of("x"), "cuda:0");
    Object held = open(client_.get(), "x");
    EXPECT_EQ(run_cli({"mv", "--device", "host", "x"}).exit_code, 9);
    EXPECT_EQ(run_cli({"mv", "--device", "host", "--keep-holders", "x"}).exit_code, 0);
    EXPECT_EQ(device_of("x"), "host");
    EXPECT_EQ(run_cli({"mv", "--device", "host", "x", "y"}).exit_code, 2);
    EXPECT_EQ(run_cli({"mv", "x"}).exit_code, 2);
    EXPECT_EQ(run_cli({"mv", "--keep-holders", "x", "y"}).exit_code, 2);
}

}  // namespace
}  // namespace gshm::core::test
