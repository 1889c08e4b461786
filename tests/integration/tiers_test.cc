// Objects that leave a full GPU for host memory and a folder, and return: who leaves, who stays, what is kept, and what a
// kill leaves.
#include "integration/tiers_fixture.h"

namespace gshm::core::test {
namespace {

TEST_F(TiersTest, TheLeastRecentlyUsedLeaveForTheHostAndThenForTheFolder) {
    fill(kRoom);
    for (unsigned i = 0; i < kRoom; ++i) EXPECT_EQ(tier(name(i)), "");
    // 0 is used again, so that 1 is the first to leave.
    EXPECT_TRUE(has_bytes(name(0), 0));
    pass_tick();
    make_closed("a", 100);
    EXPECT_EQ(tier(name(1)), "host");
    EXPECT_EQ(tier(name(0)), "");
    for (unsigned i = 0; i < 6; ++i) make_closed("b" + std::to_string(i), i);
    // The host has room for four.
    const auto at = tiers();
    ASSERT_EQ(at.size(), 2u);
    EXPECT_STREQ(at[0].name, "host");
    EXPECT_EQ(at[0].used_bytes, 4 * kObject);
    EXPECT_EQ(at[0].objects, 4u);
    EXPECT_EQ(at[1].objects, 3u);
    EXPECT_EQ(tier(name(1)), "disk");
    EXPECT_EQ(device(client_.get(), "cuda:0").evicted_bytes, 7 * kObject);
    EXPECT_EQ(device(client_.get(), "cuda:0").object_bytes, kRoom * kObject);
    EXPECT_EQ(device(client_.get(), "host").object_bytes, 4 * kObject);
    for (unsigned i = 0; i < kRoom; ++i) EXPECT_TRUE(has_bytes(name(i), i)) << i;
    EXPECT_EQ(tier(name(1)), "");
}

TEST_F(TiersTest, AnEvictedObjectKeepsAllButItsPlace) {
    for (bool sealed : {true, false}) {
        const std::string name = sealed ? "sealed" : "open";
        make_closed(name, 7, kObject + 17, GSHM_EVICTABLE, sealed);
        ASSERT_EQ(gshm_set_attribute(client_.get(), name.c_str(), "dtype", "u8", 2), 0);
        const auto before = stat(client_.get(), name.c_str());
        for (const char* where : {"host", "disk"}) {
            if (std::string(where) == "disk") {  // the host is made full
                for (unsigned i = 0; i < 4; ++i) {
                    make_closed(name + std::to_string(i), i);
                    ASSERT_EQ(demote(name + std::to_string(i)), 0) << gshm_last_error();
                }
            }
            ASSERT_EQ(demote(name), 0) << gshm_last_error();
            const auto after = stat(client_.get(), name.c_str());
            EXPECT_NE(std::string(after.tier), "");
            EXPECT_STREQ(after.device, "cuda:0");
            EXPECT_EQ(after.id, before.id);
            EXPECT_EQ(after.size_bytes, before.size_bytes);
            EXPECT_EQ(after.state, before.state);
            EXPECT_EQ(after.mode, before.mode);
            EXPECT_EQ(after.created_ns, before.created_ns);
            EXPECT_EQ(after.modified_ns, before.modified_ns);
            EXPECT_EQ(after.flags, before.flags);
            EXPECT_EQ(attribute(name, "dtype"), "u8");
            ASSERT_EQ(promote(name), 0) << gshm_last_error();
            EXPECT_EQ(tier(name), "");
            EXPECT_TRUE(has(name, 7));
        }
    }
}

TEST_F(TiersTest, NeitherAHeldNorAPinnedNorAnUnmarkedObjectLeaves) {
    make_closed("unmarked", 1, kObject, 0);
    make_closed("held", 2);
    Object held = open(client_.get(), "held");
    fill(kRoom - 2);
    for (unsigned i = 0; i < 3 * kRoom; ++i) make_closed("n" + std::to_string(i), i);
    EXPECT_EQ(tier("unmarked"), "");
    EXPECT_EQ(tier("held"), "");
    EXPECT_TRUE(holds(held.get(), 2));
    EXPECT_EQ(demote("held"), -EBUSY);
    for (unsigned i = 0; i < 3 * kRoom; ++i) EXPECT_TRUE(has_bytes("n" + std::to_string(i), i));
}

TEST_F(TiersTest, AGpuFullOfHeldObjectsIsFull) {
    std::vector<Object> held;
    for (unsigned i = 0; i < kRoom; ++i) {
        held.push_back(make(name(i), kObject, "cuda:0", i, false, GSHM_EVICTABLE | GSHM_KEEP | GSHM_NO_MAP));
    }
    EXPECT_EQ(try_create("more", kObject), -ENOSPC);
    held.pop_back();
    EXPECT_EQ(try_create("more", kObject), 0) << gshm_last_error();
    EXPECT_EQ(tier(name(kRoom - 1)), "host");
}

// It counts on the GPU wherever its bytes are: no limit keeps it from its readers.
TEST_F(TiersTest, AnEvictedObjectCountsInTheLimitOfItsDevice) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    gshm_limit limit = GSHM_LIMIT_INIT;
    limit.kind = GSHM_LIMIT_USER;
    limit.id = getuid();
    limit.fields = GSHM_LIMIT_BYTES;
    limit.device = "cuda:0";
    limit.bytes = kObject + kObject / 2;
    auto set = [&] { return gshm_limit_set(client_.get(), &limit); };
    ASSERT_EQ(set(), 0) << gshm_last_error();
    make_closed("a", 1);
    ASSERT_EQ(demote("a"), 0) << gshm_last_error();
    // All that the user has is evicted.
    const std::string quota = run_cli({"quota"}).out;
    EXPECT_TRUE(std::regex_search(quota, std::regex("user +root +cuda:0 +4.0M +- +6.0M +1 "))) << quota;
    EXPECT_EQ(quota.find("host"), std::string::npos) << quota;
    EXPECT_EQ(try_create("b", kObject), -EDQUOT);
    EXPECT_TRUE(has_bytes("a", 1)) << gshm_last_error();
    // With a limit below what is used.
    ASSERT_EQ(demote("a"), 0) << gshm_last_error();
    limit.bytes = 1;
    ASSERT_EQ(set(), 0) << gshm_last_error();
    EXPECT_EQ(try_create("b", 1), -EDQUOT);
    EXPECT_TRUE(has_bytes("a", 1)) << gshm_last_error();
    limit.bytes = 0;
    ASSERT_EQ(set(), 0) << gshm_last_error();
    // Its new owner needs room for it, wherever it is.
    ASSERT_EQ(demote("a"), 0) << gshm_last_error();
    constexpr uid_t kOther = 65534;
    limit.id = kOther;
    limit.bytes = kObject - 1;
    ASSERT_EQ(set(), 0) << gshm_last_error();
    gshm_changes changes = GSHM_CHANGES_INIT;
    changes.what = GSHM_CHANGE_OWNER;
    changes.uid = changes.gid = kOther;
    EXPECT_EQ(gshm_change(client_.get(), "a", &changes), -EDQUOT);
    EXPECT_EQ(tier("a"), "host");
    EXPECT_TRUE(has_bytes("a", 1)) << gshm_last_error();
}

TEST_F(TiersTest, SeveralOpenersBringAnObjectBackOnce) {
    make_closed("shared", 5);
    for (int round = 0; round < 10; ++round) {
        ASSERT_EQ(demote("shared"), 0) << gshm_last_error();
        std::vector<std::thread> openers;
        std::atomic<int> good = 0;
        for (int i = 0; i < 4; ++i) {
            openers.emplace_back([&] {
                auto client = connect(kPatience);
                Object object = open(client.get(), "shared", GSHM_NO_MAP);
                good += object && holds(object.get(), 5) ? 1 : 0;
            });
        }
        for (auto& opener : openers) opener.join();
        EXPECT_EQ(good, 4);
        EXPECT_EQ(device(client_.get(), "cuda:0").object_bytes, kObject);
        EXPECT_EQ(device(client_.get(), "cuda:0").evicted_objects, 0u);
        EXPECT_TRUE(eventually([&] { return device(client_.get(), "host").used_bytes == 0; }));
    }
}

TEST_F(TiersTest, SeveralWritersBringAnObjectBackOnce) {
    make_closed("written", 5, kObject, GSHM_EVICTABLE, false);
    for (int round = 0; round < 10; ++round) {
        ASSERT_EQ(demote("written"), 0) << gshm_last_error();
        std::vector<std::thread> openers;
        std::atomic<int> good = 0;
        for (int i = 0; i < 4; ++i) {
            openers.emplace_back([&] {
                auto client = connect(kPatience);
                Object object = open(client.get(), "written", GSHM_NO_MAP | GSHM_WRITE);
                good += object && holds(object.get(), 5) ? 1 : 0;
            });
        }
        for (auto& opener : openers) opener.join();
        EXPECT_EQ(good, 4);
    }
}

TEST_F(TiersTest, AnyDeviceOpensItWhereItIs) {
    for (bool sealed : {true, false}) {
        const std::string name = sealed ? "sealed" : "open";
        make_closed(name, 3, kObject, GSHM_EVICTABLE, sealed);
        ASSERT_EQ(demote(name), 0) << gshm_last_error();
        Object there = open(client_.get(), name.c_str(), GSHM_OPEN_ANY_DEVICE);
        ASSERT_TRUE(there);
        EXPECT_STREQ(gshm_device(there.get()), "host");
        EXPECT_NE(gshm_data(there.get()), nullptr);
        EXPECT_TRUE(holds(there.get(), 3));
        EXPECT_EQ(tier(name), "host");
        // Another opener may not know.
        EXPECT_EQ(open_code(client_.get(), name.c_str(), GSHM_NO_MAP), sealed ? 0 : -EBUSY);
        EXPECT_TRUE(holds(there.get(), 3));
        there.reset();
        EXPECT_TRUE(has(name, 3));
        EXPECT_EQ(tier(name), "");
    }
}

TEST_F(TiersTest, ABatchReturnsTogetherOrSaysWhatDoesNotFit) {
    fill(2 * kRoom);
    std::vector<std::string> names;
    std::vector<const char*> texts;
    for (unsigned i = 0; i < kRoom; ++i) names.push_back(name(i));
    for (const auto& text : names) texts.push_back(text.c_str());
    std::vector<gshm_object*> objects(kRoom);
    std::vector<int> codes(kRoom);
    ASSERT_EQ(gshm_open_batch(client_.get(), texts.data(), kRoom, GSHM_NO_MAP, objects.data(), codes.data()), 0)
        << gshm_last_error();
    for (unsigned i = 0; i < kRoom; ++i) EXPECT_TRUE(holds(objects[i], i)) << i;
    gshm_close_batch(objects.data(), kRoom);
    // More than the GPU has room for.
    for (unsigned i = kRoom; i <= kRoom + 1; ++i) names.push_back(name(i));
    texts.clear();
    for (const auto& text : names) texts.push_back(text.c_str());
    objects.assign(texts.size(), nullptr);
    codes.assign(texts.size(), 0);
    (void)gshm_open_batch(client_.get(), texts.data(), texts.size(), GSHM_NO_MAP, objects.data(), codes.data());
    unsigned opened = 0;
    for (size_t i = 0; i < texts.size(); ++i) {
        if (codes[i] == 0) ++opened;
        else EXPECT_EQ(codes[i], -ENOSPC);
    }
    EXPECT_EQ(opened, kRoom);
    for (auto* object : objects) gshm_close(object);
    for (unsigned i = 0; i < 2 * kRoom; ++i) EXPECT_TRUE(has_bytes(name(i), i)) << i;
}

TEST_F(TiersTest, SmallObjectsLeaveWithTheirSlabs) {
    constexpr unsigned kSmall = 400;
    constexpr uint64_t kBytes = 100'000;  // in all more than the GPU has
    for (unsigned i = 0; i < kSmall; ++i) make_closed(name(i), i, kBytes, GSHM_EVICTABLE, i % 2 == 0);
    EXPECT_GT(device(client_.get(), "cuda:0").evicted_objects, 0u);
    for (unsigned i = 0; i < kSmall; ++i) EXPECT_TRUE(has_bytes(name(i), i)) << i;
    for (unsigned i = 0; i < kSmall; ++i) EXPECT_EQ(gshm_unlink(client_.get(), name(i).c_str()), 0);
    EXPECT_TRUE(eventually([&] {
        const auto gpu = device(client_.get(), "cuda:0");
        return gpu.object_bytes == 0 && gpu.evicted_bytes == 0 && device(client_.get(), "host").object_bytes == 0;
    }));
    EXPECT_TRUE(eventually([&] { return tiers()[1].objects == 0; }));
}

TEST_F(TiersTest, OnlyTheOwnerAndRootChangeTheTier) {
    make_closed("mine", 1, kObject, 0);
    ASSERT_EQ(gshm_demote(client_.get(), "nothing", 0), -ENOENT);
    ASSERT_EQ(demote("mine"), 0) << gshm_last_error();
    EXPECT_EQ(tier("mine"), "host");
    if (getuid() != 0) GTEST_SKIP() << "another user needs root";
    const int as_other = in_child(
        [&] {
            auto other = connect();
            if (gshm_promote(other.get(), "mine", 0) != -EPERM) return 1;
            return gshm_demote(other.get(), "mine", 0) == -EPERM ? 0 : 2;
        },
        65534);
    EXPECT_EQ(as_other, 0);
    EXPECT_EQ(tier("mine"), "host");
    EXPECT_EQ(promote("mine"), 0) << gshm_last_error();
}

TEST_F(TiersTest, AnAttributeMarksTheObjectsOfADirectory) {
    gshm_make_spec directory = GSHM_MAKE_SPEC_INIT;
    directory.name = "cache";
    directory.kind = GSHM_KIND_DIRECTORY;
    ASSERT_EQ(gshm_make(client_.get(), &directory), 0) << gshm_last_error();
    ASSERT_EQ(gshm_set_attribute(client_.get(), "cache", "evictable", "1", 1), 0) << gshm_last_error();
    make_closed("cache/deep/x", 1, kObject, 0);
    make_closed("y", 1, kObject, 0);
    EXPECT_NE(stat(client_.get(), "cache/deep/x").flags & GSHM_STAT_EVICTABLE, 0u);
    EXPECT_EQ(stat(client_.get(), "y").flags & GSHM_STAT_EVICTABLE, 0u);
    ASSERT_EQ(gshm_set_attribute(client_.get(), "y", "evictable", "1", 1), 0) << gshm_last_error();
    EXPECT_NE(stat(client_.get(), "y").flags & GSHM_STAT_EVICTABLE, 0u);
    EXPECT_EQ(attribute("y", "evictable"), "1");
    EXPECT_EQ(device(client_.get(), "cuda:0").evictable_bytes, 2 * kObject);
    ASSERT_EQ(gshm_remove_attribute(client_.get(), "y", "evictable"), 0) << gshm_last_error();
    EXPECT_EQ(device(client_.get(), "cuda:0").evictable_bytes, kObject);
}

TEST_F(TiersTest, EvictedObjectsOutliveAKillAndATakeover) {
    fill(2 * kRoom);
    const uint64_t evicted = device(client_.get(), "cuda:0").evicted_bytes;
    kill_it();
    EXPECT_EQ(device(client_.get(), "cuda:0").evicted_bytes, evicted);
    EXPECT_EQ(tier(name(0)), "disk");
    EXPECT_TRUE(has_bytes(name(0), 0));
    ASSERT_TRUE(take_over({}, daemon_env())) << log();
    for (unsigned i = 0; i < 2 * kRoom; ++i) EXPECT_TRUE(has_bytes(name(i), i)) << i;
}

TEST_F(TiersTest, AKillWhileObjectsMoveLosesNothing) {
    fill(2 * kRoom);
    for (unsigned round = 0; round < 8; ++round) {
        std::thread opener([&] {
            auto client = connect(kPatience);
            for (unsigned i = 0; i < 6; ++i)
                (void)open(client.get(), name((round * 3 + i) % (2 * kRoom)).c_str(), GSHM_NO_MAP);
        });
        // At another moment each time: after so many objects have changed places.
        std::set<std::string> seen;
        for (unsigned i = 0; i < round; ++i) seen.insert(tier(name(i)));
        kill();
        ASSERT_TRUE(again()) << log();
        opener.join();
        for (unsigned i = 0; i < 2 * kRoom; ++i) ASSERT_TRUE(has_bytes(name(i), i)) << i;
        const auto gpu = device(client_.get(), "cuda:0");
        EXPECT_EQ(gpu.object_bytes + gpu.evicted_bytes, 2 * kRoom * kObject);
    }
    for (unsigned i = 0; i < 2 * kRoom; ++i) ASSERT_EQ(gshm_unlink(client_.get(), name(i).c_str()), 0);
    EXPECT_TRUE(eventually([&] { return tiers()[1].objects == 0 && files() == 0; }));
    EXPECT_TRUE(eventually([&] { return device(client_.get(), "host").used_bytes == 0; }));
}

TEST_F(TiersTest, AStartWithoutTheFolderIsRefusedWhileObjectsAreInIt) {
    fill(2 * kRoom);
    ASSERT_EQ(tier(name(0)), "disk");
    kill();
    EXPECT_FALSE(start({"--tier", "host:16M"}, daemon_env()));
    EXPECT_NE(log().find("--tier " + folder_), std::string::npos) << log();
    ASSERT_TRUE(again()) << log();
    EXPECT_TRUE(has_bytes(name(0), 0));
    // Without the tier `host` its objects still return.
    kill();
    ASSERT_TRUE(again({"--tier", folder_})) << log();
    for (unsigned i = 0; i < 2 * kRoom; ++i) EXPECT_TRUE(has_bytes(name(i), i)) << i;
}

TEST_F(TiersTest, ARemovedObjectLeavesNothingInItsTier) {
    fill(2 * kRoom);
    for (unsigned i = 0; i < 2 * kRoom; ++i) ASSERT_EQ(gshm_unlink(client_.get(), name(i).c_str()), 0);
    EXPECT_TRUE(eventually([&] { return tiers()[0].objects == 0 && tiers()[1].objects == 0 && files() == 0; }));
    const auto gpu = device(client_.get(), "cuda:0");
    EXPECT_EQ(gpu.object_bytes + gpu.evicted_bytes + gpu.evicted_objects + gpu.evictable_bytes, 0u);
}

TEST_F(TiersTest, AMoveOfAnEvictedObjectGivesItAnotherHome) {
    make_closed("moved", 9);
    ASSERT_EQ(demote("moved"), 0) << gshm_last_error();
    ASSERT_EQ(gshm_move(client_.get(), "moved", "host", 0), 0) << gshm_last_error();
    EXPECT_STREQ(stat(client_.get(), "moved").device, "host");
    EXPECT_EQ(tier("moved"), "");
    EXPECT_TRUE(has("moved", 9));
    // An object of the host has the folder as its only tier.
    ASSERT_EQ(demote("moved"), 0) << gshm_last_error();
    EXPECT_EQ(tier("moved"), "disk");
    EXPECT_TRUE(has("moved", 9));
}

TEST_F(TiersTest, ADemotedObjectGoesOnToTheFolder) {
    make_closed("x", 1);
    for (const char* where : {"host", "disk", "disk"}) {
        ASSERT_EQ(demote("x"), 0) << gshm_last_error();
        EXPECT_EQ(tier("x"), where);
    }
    EXPECT_EQ(tiers()[0].objects, 0u);
    EXPECT_TRUE(has_bytes("x", 1));
}

class TiersStart : public LibrarySurvivalTest {
protected:
    void SetUp() override {}
    void expect_refused(const std::vector<std::string>& tiers, const std::string& why) {
        std::vector<std::string> args = {"--device", "host:64M"};
        for (const auto& tier : tiers) args.insert(args.end(), {"--tier", tier});
        EXPECT_FALSE(start(args, daemon_env()));
        EXPECT_NE(log().find(why), std::string::npos) << log();
    }
};

TEST_F(TiersStart, WrongTiersAreRefused) {
    expect_refused({"host"}, "needs a size");
    expect_refused({"host:0"}, "takes no object");
    expect_refused({"cuda:0:4G"}, "neither `host` nor the path");
    expect_refused({"/a", "/b"}, "at most one folder");
    expect_refused({"host:1G", "host:2G"}, "gshmd: --tier: host is named twice");
    expect_refused({"host:1G", "none"}, "`none` stands alone");
    for (const char* order : {":keep:5G", ":1G:kep", ":1G:2G", ":5GB:keep:keep"})
        expect_refused({scratch() + "/tier" + order}, "the order is FOLDER:SIZE:keep");
    expect_refused({scratch() + "/tier:5Q"}, "'5Q' is not a size (examples: host:64G");
    EXPECT_FALSE(std::filesystem::exists(scratch() + "/tier"));
    expect_refused({scratch() + "/no/such/folder:1G"}, "no/such/folder");
}

TEST_F(TiersStart, WithoutATierNothingIsEvicted) {
    ASSERT_TRUE(fake_loaded);
    ASSERT_TRUE(start({"--device", "cuda:0:16M", "--device", "host:64M"}, daemon_env())) << log();
    client_ = connect(kPatience);
    for (int i = 0; i < 4; ++i)
        make("x" + std::to_string(i), 4 * kMiB, "cuda:0", 1, true, GSHM_EVICTABLE | GSHM_NO_MAP);
    gshm_object* object = nullptr;
    auto wanted = spec("more", 4 * kMiB, "cuda:0");
    EXPECT_EQ(gshm_create(client_.get(), &wanted, &object), -ENOSPC);
    EXPECT_EQ(gshm_demote(client_.get(), "x0", 0), -EOPNOTSUPP);
    EXPECT_EQ(gshm_promote(client_.get(), "x0", 0), -EOPNOTSUPP);
}

}  // namespace
}  // namespace gshm::core::test
