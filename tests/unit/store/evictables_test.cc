// The order in which objects leave a device, and who stays.
#include <gtest/gtest.h>

#include "store/evictables.h"
#include "support/recount.h"
#include "support/store_rig.h"

namespace gshm::core::test {
namespace {

class EvictablesTest : public ::testing::Test {
protected:
    static constexpr int64_t kSecond = 1'000'000'000;
    static constexpr uint64_t kMiB = 1 << 20;

    // Closed, one second after the one before.
    Object* make(const std::string& name, uint64_t bytes = 4 * kMiB, uint32_t flags = kCreateEvictable) {
        rig.clock.advance(kSecond);
        Object* object = *rig.create(session, name, bytes, 0600, flags | kCreateKeep);
        EXPECT_TRUE(rig.store.release(session, object->id, Access::write));
        return object;
    }
    void use(const std::string& name) {
        rig.clock.advance(kSecond);
        Object* object = *rig.store.open(session, name, Access::read, false);
        EXPECT_TRUE(rig.store.release(session, object->id, Access::read));
    }
    std::vector<Object*> next(uint64_t wanted = 4 * kMiB) {
        rig.clock.advance(kSecond);
        return rig.store.evictables().next(0, wanted).objects;
    }
    // As if it had left for the second device.
    void leave(Object* object) {
        auto placed = rig.store.place_elsewhere(*object, 1);
        const auto* need = std::get_if<ExtentNeed>(&placed);
        ASSERT_NE(need, nullptr);
        std::shared_ptr<Extent> memory = *rig.second.allocate(need->size_bytes, {});
        rig.store.move(object, 1, {rig.store.extents().add(*need, std::move(memory)), 0}, false, 1);
    }

    StoreRig rig;
    SessionId session = rig.store.begin_session({1, 1, 10, {}});
};

TEST_F(EvictablesTest, TheLeastRecentlyUsedComesFirst) {
    Object* a = make("a");
    Object* b = make("b");
    Object* c = make("c");
    use("a");
    EXPECT_EQ(next(), std::vector{b});
    leave(b);
    EXPECT_EQ(next(), std::vector{c});
    leave(c);
    EXPECT_EQ(next(), std::vector{a});
    leave(a);
    EXPECT_TRUE(next().empty());
    expect_true_accounts(rig.store);
    EXPECT_EQ(rig.store.use(0).evicted_objects, 3u);
    EXPECT_EQ(rig.store.use(1).tier_bytes, 12 * kMiB);
    EXPECT_EQ(rig.store.use(0).evictable_bytes, 0u);
}

TEST_F(EvictablesTest, TheEndOfAUseIsToldWhileTheDeviceIsShort) {
    int told = 0;
    rig.store.evictables().set_on_release([&](DeviceIndex device) {
        EXPECT_EQ(device, 0u);
        ++told;
    });
    make("a");
    make("unmarked", 4 * kMiB, 0);
    EXPECT_EQ(told, 0);
    rig.store.evictables().set_short(0, true);
    use("unmarked");
    EXPECT_EQ(told, 0);
    ASSERT_TRUE(rig.store.open(session, "a", Access::read, false));
    EXPECT_EQ(told, 0);
    Object* a = *rig.store.open(session, "a", Access::read, false);
    ASSERT_TRUE(rig.store.release(session, a->id, Access::read));
    EXPECT_EQ(told, 0);
    ASSERT_TRUE(rig.store.release(session, a->id, Access::read));
    EXPECT_EQ(told, 1);
    const SessionId other = rig.store.begin_session({1, 1, 11, {}});
    ASSERT_TRUE(rig.store.open(other, "a", Access::read, false));
    rig.store.end_session(other);
    EXPECT_EQ(told, 2);
    rig.store.evictables().set_short(0, false);
    use("a");
    EXPECT_EQ(told, 2);
}

TEST_F(EvictablesTest, TheNextQueuedObjectIsToldOnce) {
    int told = 0;
    rig.store.evictables().set_on_add([&] { ++told; });
    Object* unmarked = make("unmarked", 4 * kMiB, 0);
    EXPECT_EQ(told, 0);
    rig.store.set_evictable(*unmarked, true);
    EXPECT_EQ(told, 1);
    make("a");
    EXPECT_EQ(told, 1);
}

TEST_F(EvictablesTest, HeldPinnedUnmarkedAndNamelessObjectsStay) {
    Object* held = make("held");
    ASSERT_TRUE(rig.store.open(session, "held", Access::read, false));
    Object* pinned = make("pinned");
    pinned->flags |= kPinned;
    make("unmarked", 4 * kMiB, 0);
    EXPECT_TRUE(next().empty());
    EXPECT_EQ(code_of(rig.store.check_eviction(*held)), EBUSY);
    EXPECT_EQ(code_of(rig.store.check_eviction(*pinned)), EBUSY);
    ASSERT_TRUE(rig.store.release(session, held->id, Access::read));
    EXPECT_EQ(next(), std::vector{held});
    leave(held);
    EXPECT_TRUE(next().empty());
    pinned->flags &= ~kPinned;
    EXPECT_EQ(next(), std::vector{pinned});
}

TEST_F(EvictablesTest, AMuchLargerObjectStaysWhileASmallerOneIsEnough) {
    make("large", 64 * kMiB);
    Object* enough = make("enough", 4 * kMiB);
    EXPECT_EQ(next(4 * kMiB), std::vector{enough});
}

TEST_F(EvictablesTest, ASlabLeavesAsAWholeOrNotAtAll) {
    Object* first = make("s/1", 1000);
    make("s/2", 1000);
    Object* third = make("s/3", 1000, 0);
    EXPECT_TRUE(next(1000).empty());
    ASSERT_EQ(first->extent, third->extent);
    ASSERT_TRUE(rig.store.unlink(session, "s/3"));
    EXPECT_EQ(next(1000).size(), 2u);
    ASSERT_TRUE(rig.store.open(session, "s/2", Access::read, false));
    EXPECT_TRUE(next(1000).empty());
}

TEST_F(EvictablesTest, EntriesOfRemovedObjectsAreForgottenAlthoughNothingLeaves) {
    for (int i = 0; i < 20'000; ++i) {
        make("x", 2 * kMiB);
        ASSERT_TRUE(rig.store.unlink(session, "x"));
    }
    EXPECT_LT(rig.store.evictables().entries(0), 3000u);
    Object* stays = make("y");
    EXPECT_EQ(next(), std::vector{stays});
}

TEST_F(EvictablesTest, AStoredObjectCountsOnItsDeviceAloneAndIsRemovedWithItsFile) {
    Object* object = make("a");
    rig.store.set_stored(object, 7);
    EXPECT_EQ(object->extent, nullptr);
    EXPECT_EQ(object->size_bytes, 4 * kMiB);
    EXPECT_EQ(object->home(), 0u);
    EXPECT_EQ(rig.store.use(0).object_bytes, 0u);
    EXPECT_EQ(rig.store.use(0).evicted_bytes, 4 * kMiB);
    expect_true_accounts(rig.store);
    EXPECT_EQ(rig.store.stored_objects(), std::vector{object});
    ASSERT_TRUE(rig.store.unlink(session, "a"));
    EXPECT_EQ(rig.store.use(0), Account{});
}

TEST_F(EvictablesTest, TheNearestDirectoryMarksNewObjects) {
    ASSERT_TRUE(rig.store.make(session, {"d", NodeKind::directory, {}, std::nullopt, 0755, kCreateKeep, 0, 0}));
    ASSERT_TRUE(rig.store.make(session, {"d/not", NodeKind::directory, {}, std::nullopt, 0755, kCreateKeep, 0, 0}));
    ASSERT_TRUE(rig.store.set_attribute(session, "d", "evictable", "1"));
    ASSERT_TRUE(rig.store.set_attribute(session, "d/not", "evictable", "0"));
    EXPECT_NE(make("d/deep/x", kMiB * 2, 0)->flags & kCreateEvictable, 0u);
    EXPECT_EQ(make("d/not/x", kMiB * 2, 0)->flags & kCreateEvictable, 0u);
    EXPECT_EQ(make("x", kMiB * 2, 0)->flags & kCreateEvictable, 0u);
}

}  // namespace
}  // namespace gshm::core::test
