// Limits and objects in tiers: they count on the device that they belong to, wherever their bytes are.
#include <gtest/gtest.h>

#include "store/account_limits.h"
#include "store/files.h"
#include "support/recount.h"
#include "support/store_rig.h"

namespace gshm::core::test {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class AccountLimitsTiersTest : public ::testing::Test {
protected:
    Object* make(std::string_view name, uint64_t bytes) {
        auto made = rig.create(ada, CreateSpec{name, bytes, 0, 0666, kCreateKeep | kCreateEvictable, nullptr, nullptr});
        EXPECT_TRUE(made);
        EXPECT_TRUE(store.release(ada, (*made)->id, Access::write));
        return *made;
    }
    int try_make(std::string_view name, uint64_t bytes, DeviceIndex device = 0) {
        auto made = rig.create(ada, CreateSpec{name, bytes, device, 0666, kCreateKeep, nullptr, nullptr});
        if (!made) return made.error().code;
        EXPECT_TRUE(store.release(ada, (*made)->id, Access::write));
        return 0;
    }
    // To the memory of the second device, as a tier.
    void leave(Object* object) { move(object, 1, 1); }
    void move(Object* object, DeviceIndex to, uint32_t evicted_from) {
        auto placed = store.place_elsewhere(*object, to);
        const auto* need = std::get_if<ExtentNeed>(&placed);
        ASSERT_NE(need, nullptr);
        std::shared_ptr<Extent> memory = *(to == 1 ? rig.second : rig.first).allocate(need->size_bytes, {});
        store.move(object, to, {store.extents().add(*need, std::move(memory)), 0}, false, evicted_from);
    }
    void TearDown() override { expect_true_accounts(store); }

    StoreRig rig;
    Store& store = rig.store;
    AccountLimits& limits = store.limits();
    SessionId root = store.begin_session({0, 0, 1, {}});
    SessionId ada = store.begin_session({1000, 1000, 2, {}});
};

TEST_F(AccountLimitsTiersTest, AnEvictedObjectCountsOnItsDeviceAndItsReturnIsNeverRefused) {
    limits.set(LimitKind::user, 1000, 0, kLimitBytes, {.bytes = 6 * kMiB});
    limits.set(LimitKind::user, 1000, 1, kLimitBytes, {.bytes = 1});
    for (const bool is_stored : {false, true}) {
        SCOPED_TRACE(is_stored);
        Object* a = make("a", 4 * kMiB);
        if (is_stored) store.set_stored(a, 7);
        else leave(a);
        EXPECT_EQ(limits.user_use(1000, 0), (LimitUse{4 * kMiB, 1, 0}));
        EXPECT_EQ(limits.user_use(1000, 1), LimitUse{});
        EXPECT_EQ(limits.group_use(1000, 0), (LimitUse{4 * kMiB, 1, 0}));
        EXPECT_EQ(limits.user_use(1000, Limit::kAll), (LimitUse{4 * kMiB, 1, 0}));
        EXPECT_EQ(try_make("b", 4 * kMiB), EDQUOT);
        EXPECT_EQ(try_make("b", 2 * kMiB), 0);
        EXPECT_TRUE(store.check_return(*a));
        // A limit that was set below the use does not keep it away either.
        limits.set(LimitKind::user, 1000, 0, kLimitBytes, {.bytes = 1});
        EXPECT_TRUE(store.check_return(*a));
        limits.set(LimitKind::user, 1000, 0, kLimitBytes, {.bytes = 6 * kMiB});
        move(a, 0, 0);
        EXPECT_EQ(limits.user_use(1000, 0), (LimitUse{6 * kMiB, 2, 0}));
        expect_true_accounts(store);
        ASSERT_TRUE(store.unlink(ada, "a"));
        ASSERT_TRUE(store.unlink(ada, "b"));
    }
}

TEST_F(AccountLimitsTiersTest, AnotherOwnerNeedsRoomForAnEvictedObject) {
    Object* a = make("a", 8 * kMiB);
    leave(a);
    limits.set(LimitKind::user, 1001, 0, kLimitBytes, {.bytes = 6 * kMiB});
    EXPECT_EQ(code_of(store.change(root, "a", {kChangeOwner, 0, 1001, 1001})), EDQUOT);
    limits.set(LimitKind::user, 1001, 0, kLimitBytes, {.bytes = 8 * kMiB});
    EXPECT_TRUE(store.change(root, "a", {kChangeOwner, 0, 1001, 1001}));
    EXPECT_EQ(limits.user_use(1001, 0), (LimitUse{8 * kMiB, 1, 0}));
}

TEST_F(AccountLimitsTiersTest, ADirectoryCountsThemOnTheirDevice) {
    ASSERT_TRUE(store.make(root, {.name = "team", .mode = 0777, .flags = kCreateKeep}));
    auto& team = *static_cast<Directory*>(Files(store).find((*store.stat(root, "team"))->id));
    limits.set(team, 0, kLimitBytes | kLimitObjects, {.bytes = 10 * kMiB, .objects = 2});
    limits.set(team, 1, kLimitBytes, {.bytes = 1});
    while (limits.count_some(10)) {}
    leave(make("team/a", 4 * kMiB));
    store.set_stored(make("team/b", 4 * kMiB), 7);
    EXPECT_EQ(AccountLimits::tree_use(*team.account, 0), (LimitUse{8 * kMiB, 2, 0}));
    EXPECT_EQ(AccountLimits::tree_use(*team.account, 1), LimitUse{});
    EXPECT_EQ(try_make("team/c", 1), EDQUOT);
    // One that gets there while it is in a tier.
    leave(make("d", 4 * kMiB));
    limits.set(team, 0, kLimitObjects, {});
    EXPECT_EQ(code_of(store.rename(ada, "d", "team/d", false)), EDQUOT);
    ASSERT_TRUE(store.unlink(ada, "team/b"));
    EXPECT_TRUE(store.rename(ada, "d", "team/d", false));
}

TEST_F(AccountLimitsTiersTest, AMoveToTheTierNeedsRoomThere) {
    Object* a = make("a", 4 * kMiB);
    leave(a);
    limits.set(LimitKind::user, 1000, 1, kLimitBytes, {.bytes = 1});
    EXPECT_EQ(code_of(limits.check_device(*a, 1, false)), EDQUOT);
    limits.set(LimitKind::user, 1000, 1, kLimitBytes, {.bytes = 4 * kMiB});
    EXPECT_TRUE(limits.check_device(*a, 1, false));
    // Its memory in the tier stays, for those who map it.
    EXPECT_EQ(code_of(limits.check_device(*a, 1, true)), EDQUOT);
}

}  // namespace
}  // namespace gshm::core::test
