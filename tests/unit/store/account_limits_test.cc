// Limits on accounts: users, groups, directories, soft limits, and their restart.
#include <gtest/gtest.h>

#include "store/account_limits.h"
#include "store/restore.h"
#include "support/recount.h"
#include "support/store_rig.h"

namespace gshm::core::test {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr int64_t kS = 1'000'000'000;

struct AccountLimitsTest : ::testing::Test {
    StoreRig rig;
    Store& store = rig.store;
    AccountLimits& limits = store.limits();
    SessionId root = store.begin_session({0, 0, 1, {}});
    SessionId ada = store.begin_session({1000, 1000, 2, {50}});
    SessionId ben = store.begin_session({1001, 1001, 3, {50}});

    void limit_user(uid_t uid, const LimitValues& values, DeviceIndex device = Limit::kAll, uint32_t fields = 31) {
        limits.set(LimitKind::user, uid, device, fields, values);
    }
    Directory& directory(std::string_view name) {
        if (!store.stat(root, name)) {
            EXPECT_TRUE(store.make(root, {.name = name, .mode = 0777, .flags = kCreateKeep}));
        }
        return *static_cast<Directory*>(Files(store).find((*store.stat(root, name))->id));
    }
    void limit_tree(std::string_view name, const LimitValues& values, DeviceIndex device = Limit::kAll) {
        limits.set(directory(name), device, 31, values);
        while (limits.count_some(1)) {}
    }
    int make(SessionId session, std::string_view name, uint64_t size, uint32_t flags = kCreateKeep,
             DeviceIndex device = 0) {
        auto made = rig.create(session, CreateSpec{name, size, device, 0666, flags, nullptr, nullptr});
        if (!made) return made.error().code;
        if ((flags & kCreateUnnamed) == 0) {
            EXPECT_TRUE(store.release(session, (*made)->id, Access::write));
        }
        return 0;
    }
    LimitUse tree(std::string_view name, DeviceIndex device = Limit::kAll) {
        return AccountLimits::tree_use(*directory(name).account, device);
    }
    void TearDown() override { expect_true_accounts(store); }
};

TEST_F(AccountLimitsTest, NoByteMoreThanAllowed) {
    struct Row {
        uint64_t limit, used, more;
        int expected;
    };
    for (const Row& row :
         {Row{1000, 0, 1000, 0}, Row{1000, 0, 1001, EDQUOT}, Row{1000, 999, 1, 0}, Row{1000, 999, 2, EDQUOT},
          Row{1000, 1000, 1, EDQUOT}, Row{0, 5000, 5000, 0}, Row{1, 0, 1, 0}, Row{UINT64_MAX, 1, 1000, 0}}) {
        SCOPED_TRACE(fmt::format("{} {} {}", row.limit, row.used, row.more));
        limit_user(1000, {});
        if (row.used > 0) {
            ASSERT_EQ(make(ada, "before", row.used), 0);
        }
        limit_user(1000, {.bytes = row.limit});
        EXPECT_EQ(make(ada, "more", row.more), row.expected);
        EXPECT_EQ(make(ben, "of ben", 5000), 0);
        for (const char* name : {"before", "more", "of ben"}) (void)store.unlink(root, name);
    }
}

TEST_F(AccountLimitsTest, ObjectsAreCounted) {
    limit_user(1000, {.objects = 2});
    EXPECT_EQ(make(ada, "a", 1), 0);
    EXPECT_EQ(make(ada, "b", 1, kCreateKeep | kCreateEmpty), EINVAL);
    EXPECT_EQ(make(ada, "b", 0, kCreateKeep | kCreateEmpty), 0);
    EXPECT_EQ(make(ada, "c", 1), EDQUOT);
    EXPECT_EQ(make(ada, "c", 1, kCreateUnnamed), EDQUOT);
    ASSERT_TRUE(store.unlink(ada, "b"));
    EXPECT_EQ(make(ada, "c", 1), 0);
}

TEST_F(AccountLimitsTest, DevicesAreApartAndTogether) {
    limit_user(1000, {.bytes = 1000}, 1);
    limit_user(1000, {.bytes = 3000});
    EXPECT_EQ(make(ada, "a", 1000, kCreateKeep, 1), 0);
    EXPECT_EQ(make(ada, "b", 1, kCreateKeep, 1), EDQUOT);
    EXPECT_EQ(make(ada, "c", 2000, kCreateKeep, 0), 0);
    EXPECT_EQ(make(ada, "d", 1, kCreateKeep, 0), EDQUOT);
    EXPECT_EQ(limits.user_use(1000, Limit::kAll), (LimitUse{3000, 2, 0}));
}

TEST_F(AccountLimitsTest, AGroupCountsTheObjectsOfAllItsUsers) {
    ASSERT_TRUE(store.make(root, {.name = "team", .mode = 02777, .flags = kCreateKeep | kCreateOwner, .gid = 50}));
    limits.set(LimitKind::group, 50, Limit::kAll, 31, {.bytes = 1000});
    EXPECT_EQ(make(ada, "team/a", 600), 0);
    EXPECT_EQ(make(ben, "team/b", 401), EDQUOT);
    EXPECT_EQ(make(ben, "elsewhere", 401), 0);
    EXPECT_EQ(make(ben, "team/b", 400), 0);
    // chgrp is checked, and takes the charge along.
    EXPECT_EQ(code_of(store.change(root, "elsewhere", {kChangeOwner, 0, 1001, 50})), EDQUOT);
    ASSERT_TRUE(store.change(root, "team/a", {kChangeOwner, 0, 1000, 1000}));
    EXPECT_TRUE(store.change(root, "elsewhere", {kChangeOwner, 0, 1001, 50}));
}

TEST_F(AccountLimitsTest, AnotherOwnerNeedsRoomForTheObject) {
    limit_user(1001, {.bytes = 100, .objects = 1});
    ASSERT_EQ(make(ada, "a", 101), 0);
    ASSERT_EQ(make(ada, "b", 100), 0);
    ASSERT_EQ(make(ada, "c", 1), 0);
    EXPECT_EQ(code_of(store.change(root, "a", {kChangeOwner, 0, 1001, 1001})), EDQUOT);
    EXPECT_TRUE(store.change(root, "b", {kChangeOwner, 0, 1001, 1001}));
    EXPECT_TRUE(store.change(root, "b", {kChangeOwner, 0, 1001, 7})) << "it has it already";
    EXPECT_EQ(code_of(store.change(root, "c", {kChangeOwner, 0, 1001, 1001})), EDQUOT);
}

TEST_F(AccountLimitsTest, RootIsLimitedOnlyByItsOwn) {
    limit_user(1000, {.bytes = 1});
    EXPECT_EQ(make(root, "a", 1000), 0);
    EXPECT_EQ(
        code_of(rig.create(root, CreateSpec{"b", 2, 0, 0600, kCreateKeep | kCreateOwner, nullptr, nullptr, 1000})),
        EDQUOT);
    limit_user(0, {.bytes = 1000});
    EXPECT_EQ(make(root, "c", 1), EDQUOT);
}

TEST_F(AccountLimitsTest, WhatIsHeldWithoutANameCounts) {
    limit_user(1000, {.bytes = 1000});
    auto object = rig.create(ada, "a", 1000, 0600, kCreateKeep);
    ASSERT_TRUE(object);
    const NodeId id = (*object)->id;
    ASSERT_TRUE(store.unlink(ada, "a"));
    auto refused = rig.create(ada, "b", 1);
    ASSERT_EQ(code_of(refused), EDQUOT);
    EXPECT_NE(refused.error().message.find("has no name"), std::string::npos) << refused.error().message;
    ASSERT_TRUE(store.release(ada, id, Access::write));
    EXPECT_EQ(make(ada, "b", 1000), 0);
}

TEST_F(AccountLimitsTest, FormerMemoryCounts) {
    ASSERT_TRUE(rig.create(ada, "a", 1000, 0600, kCreateKeep));
    const Object& object = **store.open(ada, "a", Access::read, false);
    limit_user(1000, {.bytes = 1999});
    EXPECT_EQ(code_of(limits.check_former(object)), EDQUOT);
    limit_user(1000, {.bytes = 2000});
    EXPECT_EQ(code_of(limits.check_former(object)), 0);
}

TEST_F(AccountLimitsTest, AMoveNeedsRoomOnTheOtherDevice) {
    ASSERT_EQ(make(ada, "a", 1000), 0);
    const Object& object = **store.open(ada, "a", Access::read, false);
    limit_user(1000, {.bytes = 999}, 1);
    EXPECT_EQ(code_of(limits.check_device(object, 1, false)), EDQUOT);
    limit_user(1000, {.bytes = 1000}, 1);
    limit_user(1000, {.bytes = 1000});
    EXPECT_EQ(code_of(limits.check_device(object, 1, false)), 0);
    EXPECT_EQ(code_of(limits.check_device(object, 1, true)), EDQUOT) << "both copies are there";
}

TEST_F(AccountLimitsTest, TheMessageHasTheFigures) {
    limit_user(1000, {.bytes = 4 * kMiB}, 0);
    ASSERT_EQ(make(ada, "a", 3 * kMiB), 0);
    auto refused = rig.create(ada, "b", 2 * kMiB);
    ASSERT_EQ(code_of(refused), EDQUOT);
    EXPECT_EQ(refused.error().message,
              "the limit of user 1000 on memory:0 is 4.0 MiB: 3.0 MiB used, and 2.0 MiB more needed (`gshm quota` "
              "shows what counts)");
}

TEST_F(AccountLimitsTest, ALimitBelowTheUseLetsItShrink) {
    ASSERT_EQ(make(ada, "a", 1000), 0);
    ASSERT_EQ(make(ada, "b", 1000), 0);
    limit_user(1000, {.bytes = 100, .objects = 1});
    EXPECT_TRUE(store.rename(ada, "a", "c", false));
    EXPECT_TRUE(store.seal(ada, "c"));
    EXPECT_EQ(make(ada, "d", 1), EDQUOT);
    EXPECT_TRUE(store.unlink(ada, "c"));
}

// ---- growth ----

TEST_F(AccountLimitsTest, GrowthCountsBeforeTheBytesAreThere) {
    Files files(store);
    limit_user(1000, {.bytes = 1000});
    Object* a = *files.make_object(directory("d"), "a", {1000, 1000, 0644});
    Object* b = *files.make_object(directory("d"), "b", {1000, 1000, 0644});
    auto first = limits.begin_growth(*a, 600);
    ASSERT_TRUE(first && *first);
    EXPECT_EQ(code_of(limits.begin_growth(*b, 401)), EDQUOT);
    auto again = limits.begin_growth(*a, 700);
    ASSERT_TRUE(again && *again);
    EXPECT_EQ(code_of(limits.begin_growth(*b, 301)), EDQUOT);
    files.refresh(*a);
    EXPECT_EQ(store.accounts().of(0, 1000).object_bytes, 700u) << "a look at the file does not drop the promise";
    limits.end_growth(*a);
    EXPECT_EQ(store.accounts().of(0, 1000).object_bytes, 700u);
    limits.end_growth(*a);
    EXPECT_EQ(store.accounts().of(0, 1000).object_bytes, 0u) << "nothing was written";
    EXPECT_EQ(code_of(limits.begin_growth(*b, 1000)), 0);
    limits.end_growth(*b);
}

TEST_F(AccountLimitsTest, FilesOfTheMountAreCounted) {
    Files files(store);
    limit_user(1000, {.objects = 2});
    Directory& parent = directory("d");
    ASSERT_TRUE(files.make_object(parent, "a", {1000, 1000, 0644}));
    ASSERT_TRUE(files.make_unnamed(parent, {1000, 1000, 0644}));
    EXPECT_EQ(code_of(files.make_object(parent, "b", {1000, 1000, 0644})), EDQUOT);
    EXPECT_EQ(code_of(files.make_unnamed(parent, {1000, 1000, 0644})), EDQUOT);
    EXPECT_TRUE(files.make_directory(parent, "below", {1000, 1000, 0755})) << "directories are no objects";
}

// ---- directories ----

TEST_F(AccountLimitsTest, ADirectoryCountsWhatIsBelowIt) {
    directory("team");
    ASSERT_EQ(make(ada, "team/deep/down/a", 1000), 0);
    ASSERT_EQ(make(ben, "team/b", 500), 0);
    ASSERT_EQ(make(ben, "b", 500), 0);
    limit_tree("team", {.bytes = 2000});
    EXPECT_EQ(tree("team"), (LimitUse{1500, 2, 0}));
    EXPECT_EQ(tree("team", 0), (LimitUse{1500, 2, 0}));
    EXPECT_EQ(tree("team", 1), LimitUse{});
    EXPECT_EQ(make(root, "team/deep/c", 501), EDQUOT);
    EXPECT_EQ(make(root, "team/deep/c", 500), 0);
    EXPECT_EQ(make(root, "c", 500), 0);
    ASSERT_TRUE(store.unlink(root, "team/deep/c"));
    EXPECT_EQ(tree("team"), (LimitUse{1500, 2, 0}));
}

TEST_F(AccountLimitsTest, ARenameIntoADirectoryNeedsRoomThere) {
    limit_tree("team", {.bytes = 1000, .objects = 2});
    ASSERT_EQ(make(root, "a", 600), 0);
    ASSERT_EQ(make(root, "b", 401), 0);
    ASSERT_EQ(make(root, "c", 400), 0);
    EXPECT_TRUE(store.rename(root, "a", "team/a", false));
    EXPECT_EQ(code_of(store.rename(root, "b", "team/sub/b", false)), EDQUOT);
    EXPECT_FALSE(store.stat(root, "team/sub")) << "no directory is left of the attempt";
    EXPECT_TRUE(store.stat(root, "b"));
    EXPECT_TRUE(store.rename(root, "c", "team/sub/c", false));
    EXPECT_TRUE(store.rename(root, "team/sub/c", "team/c", false)) << "inside it nothing changes";
    EXPECT_TRUE(store.rename(root, "team/a", "a", false));
    EXPECT_EQ(tree("team"), (LimitUse{400, 1, 0}));
}

TEST_F(AccountLimitsTest, ADirectoryMovesWithAllBelowIt) {
    limit_tree("team", {.bytes = 1000, .objects = 3});
    ASSERT_EQ(make(root, "work/deep/a", 500), 0);
    ASSERT_EQ(make(root, "work/b", 500), 0);
    ASSERT_EQ(make(root, "team/c", 1), 0);
    EXPECT_EQ(code_of(store.rename(root, "work", "team/work", false)), EDQUOT);
    EXPECT_EQ(tree("team"), (LimitUse{1, 1, 0}));
    ASSERT_TRUE(store.unlink(root, "team/c"));
    EXPECT_TRUE(store.rename(root, "work", "team/work", false));
    EXPECT_EQ(tree("team"), (LimitUse{1000, 2, 0}));
    limit_tree("team/work/deep", {.bytes = 500});
    EXPECT_EQ(tree("team/work/deep"), (LimitUse{500, 1, 0}));
    EXPECT_TRUE(store.rename(root, "team/work", "work", false));
    EXPECT_EQ(tree("team"), LimitUse{});
    EXPECT_EQ(tree("work/deep"), (LimitUse{500, 1, 0})) << "its own limit goes with it";
    EXPECT_EQ(make(root, "work/deep/d", 1), EDQUOT);
}

TEST_F(AccountLimitsTest, AHardLinkCountsOnceInEachDirectory) {
    limit_tree("one", {.bytes = 1000});
    limit_tree("two", {.bytes = 999});
    ASSERT_EQ(make(root, "one/a", 1000), 0);
    EXPECT_TRUE(store.add_name(root, "one/a", "one/again")) << "it counts there already";
    EXPECT_EQ(code_of(store.add_name(root, "one/a", "two/a")), EDQUOT);
    limit_tree("two", {.bytes = 1000});
    EXPECT_TRUE(store.add_name(root, "one/a", "two/a"));
    EXPECT_EQ(tree("one"), (LimitUse{1000, 1, 0}));
    EXPECT_EQ(tree("two"), (LimitUse{1000, 1, 0}));
    ASSERT_TRUE(store.unlink(root, "one/a"));
    EXPECT_EQ(tree("one"), (LimitUse{1000, 1, 0})) << "by its other name";
    ASSERT_TRUE(store.unlink(root, "one/again"));
    EXPECT_EQ(tree("one"), LimitUse{});
    EXPECT_EQ(tree("two"), (LimitUse{1000, 1, 0}));
}

TEST_F(AccountLimitsTest, AnExchangeIsChecked) {
    limit_tree("team", {.bytes = 1000});
    ASSERT_EQ(make(root, "team/small", 10), 0);
    ASSERT_EQ(make(root, "out/large", 2000), 0);
    Files files(store);
    constexpr unsigned kExchange = 2;
    EXPECT_EQ(code_of(files.rename(directory("team"), "small", directory("out"), "large", kExchange)), EDQUOT);
    EXPECT_EQ(tree("team"), (LimitUse{10, 1, 0}));
    limit_tree("team", {.bytes = 5000});
    EXPECT_TRUE(files.rename(directory("team"), "small", directory("out"), "large", kExchange));
    EXPECT_EQ(tree("team"), (LimitUse{2000, 1, 0}));
}

TEST_F(AccountLimitsTest, ADirectoryCountsWhatIsHeldAfterItsRemoval) {
    limit_tree("team", {.bytes = 1000});
    auto object = rig.create(ada, "team/a", 1000, 0600, kCreateKeep);
    ASSERT_TRUE(object);
    const NodeId id = (*object)->id;
    ASSERT_TRUE(store.unlink(ada, "team/a"));
    EXPECT_EQ(tree("team"), (LimitUse{1000, 1, 1000}));
    EXPECT_EQ(make(ada, "team/b", 1), EDQUOT);
    ASSERT_TRUE(store.release(ada, id, Access::write));
    EXPECT_EQ(make(ada, "team/b", 1000), 0);
}

TEST_F(AccountLimitsTest, AnObjectForADirectoryCountsThereBeforeItHasItsName) {
    limit_tree("team", {.bytes = 1000});
    ASSERT_EQ(make(ada, "team/a", 600, kCreateUnnamed), 0);
    EXPECT_EQ(make(ben, "team/b", 401), EDQUOT);
    EXPECT_EQ(make(ben, "team/b", 401, kCreateUnnamed), EDQUOT);
    store.end_session(ada);
    ada = store.begin_session({1000, 1000, 2, {}});
    EXPECT_EQ(make(ben, "team/b", 1000), 0);
}

TEST_F(AccountLimitsTest, AReplacementIsChecked) {
    limit_tree("team", {.bytes = 1000});
    auto object = rig.create(ada, "work/a", 1001, 0600, kCreateUnnamed);
    ASSERT_TRUE(object);
    EXPECT_EQ(code_of(store.give_name(ada, (*object)->id, "team/sub/a", true)), EDQUOT);
    EXPECT_EQ((*object)->state, ObjectState::open);
    EXPECT_FALSE(store.stat(root, "team/sub"));
    EXPECT_TRUE(store.give_name(ada, (*object)->id, "work/a", true));
}

TEST_F(AccountLimitsTest, ARemovedDirectoryTakesItsLimitAlong) {
    limit_tree("team", {.bytes = 1000});
    auto object = rig.create(ada, "team/a", 1000, 0600, kCreateKeep);
    ASSERT_TRUE(object);
    ASSERT_TRUE(store.unlink(root, "team/a"));
    ASSERT_TRUE(store.unlink(root, "team"));
    EXPECT_FALSE(limits.any());
    EXPECT_EQ(make(ada, "team/b", 5000), 0);
    ASSERT_TRUE(store.release(ada, (*object)->id, Access::write));
    EXPECT_EQ(code_of(rig.create(ada, "team/c", 5000)), 0);
}

TEST_F(AccountLimitsTest, ALimitIsTakenAwayAndSetAgain) {
    limit_tree("team", {.bytes = 1000});
    ASSERT_EQ(make(root, "team/a", 1000), 0);
    limit_tree("team", {});
    EXPECT_FALSE(limits.any());
    EXPECT_EQ(directory("team").account, nullptr);
    ASSERT_EQ(make(root, "team/b", 1000), 0);
    ASSERT_TRUE(store.unlink(root, "team/a"));
    limit_tree("team", {.bytes = 1500});
    EXPECT_EQ(tree("team"), (LimitUse{1000, 1, 0}));
    EXPECT_EQ(make(root, "team/c", 501), EDQUOT);
}

TEST_F(AccountLimitsTest, ALargeDirectoryIsCountedInPartsWhileItChanges) {
    constexpr int kObjects = 100;
    for (int i = 0; i < kObjects; ++i) ASSERT_EQ(make(root, fmt::format("team/{}/{}", i % 7, i), 10), 0);
    limits.set(directory("team"), Limit::kAll, 31, {.bytes = 1'000'000});
    // Counted ones leave, uncounted ones leave, new ones come, and a directory moves over the walk's place.
    for (int step = 0; limits.count_some(3); ++step) {
        ASSERT_EQ(make(root, fmt::format("team/new/{}", step), 10), 0);
        (void)store.unlink(root, fmt::format("team/{}/{}", step % 7, step));
        if (step == 5) {
            ASSERT_TRUE(store.rename(root, "team/6", "outside", false));
        }
        if (step == 9) {
            ASSERT_TRUE(store.rename(root, "outside", "team/back", false));
        }
        if (step == 12) {
            ASSERT_TRUE(store.rename(root, "team/0", "team/zero", false));
        }
    }
    EXPECT_FALSE(limits.is_counting());
    uint64_t objects = 0;
    for (Node* node : Files(store).all()) objects += node->kind == NodeKind::object ? 1 : 0;
    EXPECT_EQ(tree("team"), (LimitUse{10 * objects, objects, 0}));
}

TEST_F(AccountLimitsTest, TheRootMayHaveALimit) {
    ASSERT_EQ(make(ada, "a", 10), 0);
    limits.set(*static_cast<Directory*>(Files(store).find(Files::kRoot)), Limit::kAll, 31, {.bytes = 100});
    while (limits.count_some(100)) {}
    EXPECT_EQ(make(ben, "b", 91), EDQUOT);
    EXPECT_EQ(make(ben, "b", 90), 0);
}

TEST_F(AccountLimitsTest, ADirectoryKnowsItsUsers) {
    limit_tree("team", {.bytes = 1000});
    ASSERT_EQ(make(ada, "team/a", 600), 0);
    ASSERT_EQ(make(ben, "team/b", 400), 0);
    auto refused = rig.create(ben, "team/c", 1);
    ASSERT_EQ(code_of(refused), EDQUOT);
    const TreeAccount* account = limits.refused_by(refused.error().message);
    ASSERT_NE(account, nullptr);
    EXPECT_EQ(account->user_bytes, (std::unordered_map<uid_t, uint64_t>{{1000, 600}, {1001, 400}}));
    EXPECT_EQ(limits.refused_by("another message"), nullptr);
}

// ---- soft limits ----

TEST_F(AccountLimitsTest, ASoftLimitIsAHardOneAfterItsGrace) {
    limit_user(1000, {.bytes = 3000, .soft_bytes = 1000, .grace_s = 60});
    const Limit& limit = limits.of_users().at(1000).front();
    ASSERT_EQ(make(ada, "a", 1000), 0);
    EXPECT_EQ(limit.bytes_until_ns, 0);
    ASSERT_EQ(make(ada, "b", 500), 0);
    EXPECT_EQ(limit.bytes_until_ns, rig.clock.steady_ns() + 60 * kS);
    const int64_t until = limit.bytes_until_ns;
    rig.clock.advance(59 * kS);
    EXPECT_EQ(make(ada, "c", 500), 0);
    EXPECT_EQ(limit.bytes_until_ns, until) << "further use does not make it longer";
    EXPECT_EQ(make(ada, "d", 1001), EDQUOT) << "the hard limit";
    rig.clock.advance(1 * kS);
    auto refused = rig.create(ada, "d", 1);
    ASSERT_EQ(code_of(refused), EDQUOT);
    EXPECT_NE(refused.error().message.find("grace of 60 s"), std::string::npos) << refused.error().message;
    ASSERT_TRUE(store.unlink(ada, "a"));
    EXPECT_EQ(limit.bytes_until_ns, 0) << "at the soft limit, not above";
    EXPECT_EQ(make(ada, "d", 1), 0);
    EXPECT_EQ(limit.bytes_until_ns, rig.clock.steady_ns() + 60 * kS) << "a new grace";
}

TEST_F(AccountLimitsTest, SoftLimitsOfBytesAndObjectsHaveTheirOwnTimes) {
    limit_user(1000, {.soft_bytes = 100, .soft_objects = 1, .grace_s = 10});
    ASSERT_EQ(make(ada, "a", 1), 0);
    ASSERT_EQ(make(ada, "b", 1), 0);
    const Limit& limit = limits.of_users().at(1000).front();
    EXPECT_EQ(limit.bytes_until_ns, 0);
    EXPECT_NE(limit.objects_until_ns, 0);
    rig.clock.advance(10 * kS);
    EXPECT_EQ(make(ada, "c", 1), EDQUOT);
    EXPECT_EQ(code_of(limits.check_device(**store.open(ada, "a", Access::read, false), 1, false)), 0);
}

TEST_F(AccountLimitsTest, TheGraceOfADirectoryAndTheDefault) {
    limit_tree("team", {.soft_bytes = 10});
    ASSERT_EQ(make(ada, "team/a", 11), 0);
    EXPECT_EQ(directory("team").account->set.front().bytes_until_ns,
              rig.clock.steady_ns() + static_cast<int64_t>(kGraceS) * kS);
    rig.clock.advance(static_cast<int64_t>(kGraceS) * kS);
    EXPECT_EQ(make(ada, "team/b", 1), EDQUOT);
    ASSERT_TRUE(store.rename(root, "team/a", "a", false));
    EXPECT_EQ(make(ada, "team/b", 1), 0);
}

TEST_F(AccountLimitsTest, ASoftLimitBelowTheUseStartsAtOnceAndANewGraceStartsAgain) {
    ASSERT_EQ(make(ada, "a", 100), 0);
    limit_user(1000, {.soft_bytes = 10, .grace_s = 5});
    rig.clock.advance(5 * kS);
    EXPECT_EQ(make(ada, "b", 1), EDQUOT);
    limit_user(1000, {.grace_s = 50}, Limit::kAll, kLimitGrace);
    EXPECT_EQ(make(ada, "b", 1), 0);
}

TEST_F(AccountLimitsTest, ASoftLimitThatIsTakenAwayLeavesNoTimeBehind) {
    limit_user(1000, {.bytes = 1000, .soft_bytes = 10, .grace_s = 5});
    ASSERT_EQ(make(ada, "a", 100), 0);
    EXPECT_TRUE(limits.has_soft());
    limit_user(1000, {}, Limit::kAll, kLimitSoftBytes);
    EXPECT_FALSE(limits.has_soft());
    rig.clock.advance(100 * kS);
    EXPECT_EQ(make(ada, "b", 1), 0);
    limit_user(1000, {.soft_bytes = 10}, Limit::kAll, kLimitSoftBytes);
    EXPECT_EQ(make(ada, "c", 1), 0) << "its grace begins now";
    limit_tree("team", {.soft_objects = 1});
    limit_user(1000, {});
    EXPECT_TRUE(limits.has_soft());
    ASSERT_TRUE(store.unlink(root, "team"));
    EXPECT_FALSE(limits.has_soft());
}

// ---- restart ----

TEST(AccountLimitsText, IsReadBackAndDamageIsFound) {
    Limits limits{{"", Limit::kAll, {1, 2, 3, 4, 5}, 6, 7}, {"cuda:0", 0, {.bytes = UINT64_MAX}, 0, 0}};
    const std::string text = encode_limits(limits);
    auto decoded = decode_limits(text);
    ASSERT_TRUE(decoded);
    EXPECT_EQ(encode_limits(*decoded), text);
    ASSERT_EQ(decoded->size(), 2u);
    EXPECT_EQ((*decoded)[1].device, "cuda:0");
    EXPECT_TRUE(decode_limits(""));
    for (const char* bad : {"1 2 3", "1 2 3 4 5 6 7\n", "1 2 3 4 5 6 x host\n", "-1 2 3 4 5 6 7 host\n",
                            "99999999999999999999 2 3 4 5 6 7 host\n", "1 2 3 4 5 6 7 host"}) {
        EXPECT_EQ(code_of(decode_limits(bad)), EUCLEAN) << bad;
    }
}

TEST_F(AccountLimitsTest, AreRestored) {
    Limits saved{{"memory:0", 0, {.bytes = 1000}, 0, 0}, {"cuda:9", 0, {.bytes = 1}, 0, 0}};
    ASSERT_TRUE(limits.restore("user 1000", encode_limits(saved)));
    EXPECT_EQ(code_of(limits.restore("nobody 1000", encode_limits(saved))), EUCLEAN);
    EXPECT_EQ(code_of(limits.restore("user x", encode_limits(saved))), EUCLEAN);
    EXPECT_EQ(code_of(limits.restore("user 1000", "what?")), EUCLEAN);
    ASSERT_EQ(make(ada, "while it starts", 2000), 0);
    limits.restored();
    EXPECT_EQ(make(ada, "a", 1), EDQUOT);
    EXPECT_EQ(make(ada, "a", 1, kCreateKeep, 1), 0) << "cuda:9 is not there";
}

TEST_F(AccountLimitsTest, AClockThatWasSetBackMakesNoGraceLonger) {
    ASSERT_EQ(make(ada, "a", 100), 0);
    Limits saved{{"", Limit::kAll, {.soft_bytes = 10, .grace_s = 60}, rig.clock.steady_ns() + 1'000'000 * kS, 0}};
    ASSERT_TRUE(limits.restore("user 1000", encode_limits(saved)));
    limits.restored();
    rig.clock.advance(60 * kS);
    EXPECT_EQ(make(ada, "b", 1), EDQUOT);
}

}  // namespace
}  // namespace gshm::core::test
