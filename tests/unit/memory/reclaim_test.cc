// Freed memory: the limit of the pile, and the reuse of kept memory.
#include <gtest/gtest.h>

#include "support/memory_rig.h"

namespace gshm::core::test {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

struct ReclaimTest : ::testing::Test {
    MemoryRig rig{256 * kMiB};
    SessionId ada = rig.store.begin_session({1000, 1000, 1, {}});
    SessionId ada_too = rig.store.begin_session({1000, 1000, 2, {}});
    SessionId ben = rig.store.begin_session({1001, 1001, 3, {}});

    // Completes all work of the reclaiming thread.
    void reclaim_all() {
        rig.devices.reclaim();
        rig.scheduler.run();
    }
    // The address of an object's memory, after it was freed.
    uint64_t make_and_free(SessionId session, bool map, const std::function<void(Object&)>& use = {}) {
        auto made = rig.create(session, "freed", kMiB, map);
        const uint64_t address = made->object->extent->memory->address();
        EXPECT_TRUE(made->object->extent->memory->fill(0, kMiB, 7));
        if (use) use(*made->object);
        rig.remove(*made);
        reclaim_all();
        return address;
    }
    uint64_t address_of_next(SessionId session, bool map) {
        auto made = rig.create(session, "next", kMiB, map);
        std::vector<std::byte> bytes(kMiB);
        EXPECT_TRUE(made->object->extent->memory->copy_out(0, bytes));
        EXPECT_TRUE(std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; }));
        return made->object->extent->memory->address();
    }
    uint64_t kept() { return rig.devices.freed().bytes(0); }
};

TEST_F(ReclaimTest, MemoryThatNobodyReachesIsUsedAgainByAnybody) {
    const uint64_t address = make_and_free(ada, false);
    EXPECT_EQ(kept(), kMiB);
    EXPECT_EQ(address_of_next(ben, true), address);
    EXPECT_EQ(kept(), 0u);
}

TEST_F(ReclaimTest, MemoryThatOneSessionReachesIsUsedAgainForThatSessionOnly) {
    const uint64_t address = make_and_free(ada, true);
    EXPECT_EQ(kept(), kMiB);
    for (SessionId other : {ben, ada_too}) {
        auto made = rig.create(other, "other", kMiB);
        EXPECT_NE(made->object->extent->memory->address(), address);
        rig.remove(*made);
    }
    // It is also not used for an object that other processes map but the session does not.
    auto unmapped = rig.create(ada, "unmapped", kMiB, false);
    EXPECT_NE(unmapped->object->extent->memory->address(), address);
    EXPECT_EQ(address_of_next(ada, true), address);
}

TEST_F(ReclaimTest, MemoryThatOthersMayReachIsFreed) {
    make_and_free(ada, true, [&](Object& object) { Extents::reach(object.extent, ben); });
    EXPECT_EQ(kept(), 0u);
    make_and_free(ada, true, [&](Object& object) { Extents::reach_anywhere(object.extent); });
    EXPECT_EQ(kept(), 0u);
    make_and_free(ada, false, [&](Object& object) { rig.store.extents().give_handle(object.extent); });
    EXPECT_EQ(kept(), 0u);
    EXPECT_EQ(rig.devices.first.used_bytes(), 0u);
}

TEST_F(ReclaimTest, MemoryOfASessionGoesWithIt) {
    make_and_free(ada, true);
    EXPECT_EQ(kept(), kMiB);
    {
        StoreLock lock(rig.scheduler.store_mutex());
        rig.reclaim.end_session(ada);
    }
    reclaim_all();
    EXPECT_EQ(kept(), 0u);
    EXPECT_EQ(rig.devices.first.used_bytes(), 0u);
}

TEST_F(ReclaimTest, IdleMemoryIsGivenBack) {
    make_and_free(ada, false);
    rig.scheduler.advance(FreedExtents::kIdle / 2);
    EXPECT_EQ(kept(), kMiB);
    rig.scheduler.advance(FreedExtents::kIdle);
    reclaim_all();
    EXPECT_EQ(kept(), 0u);
    EXPECT_EQ(rig.devices.first.used_bytes(), 0u);
}

TEST_F(ReclaimTest, KeptMemoryIsNoReasonToRefuse) {
    auto other = *rig.devices.first.allocate(256 * kMiB - 2 * kMiB, {});
    make_and_free(ada, false);
    EXPECT_EQ(kept(), kMiB);
    auto made = rig.create(ben, "large", 2 * kMiB);
    ASSERT_NE(made->object, nullptr) << made->error;
    EXPECT_EQ(kept(), 0u);
}

// Memory that is freed while the driver refuses an allocation.
TEST(FreedExtentsTest, MemoryThatFitsIsTakenAndNotDropped) {
    constexpr uint64_t kPage = MemoryRig::kPage;
    MemoryDevice device("memory:0", 64 * kPage);
    FreedExtents freed({device.info().capacity_bytes});
    auto add = [&](uint64_t bytes) {
        EXPECT_TRUE(freed.add(0, *device.allocate(bytes, {}), {.dedicated = true}, {}).empty());
    };
    add(kPage);
    add(2 * kPage);
    FreedExtents::Memory dropped;
    const auto taken = freed.take_or_drop(0, 2 * kPage, false, 0, &dropped);
    ASSERT_NE(taken, nullptr);
    EXPECT_EQ(taken->size(), 2 * kPage);
    EXPECT_TRUE(dropped.empty());
    EXPECT_EQ(freed.bytes(0), kPage);
    EXPECT_EQ(freed.take_or_drop(0, 2 * kPage, false, 0, &dropped), nullptr);
    EXPECT_EQ(dropped.size(), 1u);
    EXPECT_EQ(freed.bytes(0), 0u);
}

TEST_F(ReclaimTest, NotMoreThanAShareOfTheDeviceIsKept) {
    const uint64_t most = 256 * kMiB / FreedExtents::kShare;
    std::vector<std::string> names;
    for (uint64_t i = 0; i * kMiB <= most + 4 * kMiB; ++i) names.push_back("n" + std::to_string(i));
    std::vector<std::shared_ptr<MemoryRig::Creation>> made;
    for (const auto& name : names) made.push_back(rig.create(ada, name, kMiB, false));
    for (const auto& object : made) rig.remove(*object);
    reclaim_all();
    reclaim_all();
    EXPECT_EQ(kept(), most);
    EXPECT_EQ(rig.devices.first.used_bytes(), most);
}

TEST_F(ReclaimTest, NothingIsZeroedBeforeTheCatalogHasForgottenIt) {
    rig.reclaim.set_awaits_commit(true);
    auto made = rig.create(ada, "a", kMiB, false);
    std::shared_ptr<Extent> memory = made->object->extent->memory;
    ASSERT_TRUE(memory->fill(0, kMiB, 7));
    rig.remove(*made);
    reclaim_all();
    std::vector<std::byte> bytes(kMiB);
    ASSERT_TRUE(memory->copy_out(0, bytes));
    EXPECT_EQ(bytes[0], std::byte{7});
    {
        StoreLock lock(rig.scheduler.store_mutex());
        rig.reclaim.committed();
    }
    reclaim_all();
    ASSERT_TRUE(memory->copy_out(0, bytes));
    EXPECT_EQ(bytes[0], std::byte{0});
    EXPECT_EQ(kept(), kMiB);
}

// The reclaiming thread gets no time: a user who creates and removes objects all the time comes to wait for it.
TEST_F(ReclaimTest, AUsersFreedMemoryDoesNotPileUp) {
    constexpr uint64_t kBytes = 16 * kMiB;
    std::shared_ptr<MemoryRig::Creation> made;
    int rounds = 0;
    for (; rounds < 100; ++rounds) {
        made = rig.create(ada, "a", kBytes);
        if (made->object == nullptr) break;
        rig.remove(*made);
    }
    EXPECT_LT(rounds, 100);
    uint64_t pile = 0;
    {
        StoreLock lock(rig.scheduler.store_mutex());
        pile = rig.departures.pile_bytes(0, 1000);
    }
    EXPECT_GT(pile, Departures::kPileBytes);
    EXPECT_LE(pile, Departures::kPileBytes + kBytes);
    // Other users do not wait for it.
    EXPECT_NE(rig.create(ben, "b", kBytes)->object, nullptr);
    EXPECT_EQ(made->object, nullptr);
    // It continues as soon as some memory is free.
    rig.devices.reclaim(1);
    rig.scheduler.run();
    EXPECT_NE(made->object, nullptr);
}

TEST_F(ReclaimTest, ThePatienceWithAPileEnds) {
    std::shared_ptr<MemoryRig::Creation> made;
    do {
        made = rig.create(ada, "a", 16 * kMiB);
        if (made->object != nullptr) rig.remove(*made);
    } while (made->object != nullptr);
    rig.scheduler.advance(Departures::kPatience);
    EXPECT_NE(made->object, nullptr);
}

}  // namespace
}  // namespace gshm::core::test
