// The logic of the pool without queues: sizes, slabs, limits.
#include <random>

#include "pool_rig.h"

namespace gshm::core::client {
namespace {

class PoolTest : public PoolRig {};

TEST_F(PoolTest, SizesAndAlignments) {
    make();
    EXPECT_EQ(take(0), 0u);
    EXPECT_EQ(drop(0), 0) << "as free(NULL)";
    EXPECT_EQ(pool_->stats().slabs, 0u) << "nothing is taken before it is needed";
    std::vector<std::pair<uint64_t, uint64_t>> taken;
    for (uint64_t bytes :
         {uint64_t{1}, uint64_t{511}, uint64_t{512}, uint64_t{513}, 100 * kKiB + 1, kMiB, 3 * kMiB + 5}) {
        for (uint64_t alignment : {uint64_t{0}, uint64_t{1}, uint64_t{256}, uint64_t{4096}, 64 * kKiB, 2 * kMiB}) {
            const uint64_t at = take(bytes, alignment);
            EXPECT_EQ(at % std::max<uint64_t>(alignment, 512), 0u) << bytes << " " << alignment;
            taken.emplace_back(at, bytes);
        }
    }
    auto sorted = taken;
    std::ranges::sort(sorted);
    for (size_t i = 1; i < sorted.size(); ++i) EXPECT_GE(sorted[i].first, sorted[i - 1].first + sorted[i - 1].second);
    for (auto [at, bytes] : sorted) {
        bool inside = false;
        for (auto [base, size] : slabs_.live_) inside |= at >= base && at + bytes <= base + size;
        EXPECT_TRUE(inside);
    }
    EXPECT_EQ(refusal(1, 3), EINVAL);
    EXPECT_EQ(refusal(1, uint64_t{1} << 40), EINVAL);
    EXPECT_EQ(refusal(~uint64_t{0}), ENOMEM);
    EXPECT_EQ(refusal((uint64_t{1} << 48) + 1), ENOMEM);
    for (auto [at, bytes] : taken) EXPECT_EQ(drop(at, bytes), 0);
    EXPECT_EQ(pool_->stats().used_bytes, 0u);
    EXPECT_EQ(pool_->stats().allocations, 0u);
    EXPECT_EQ(pool_->stats().slabs, 1u) << "the others went back by themselves";
    ASSERT_TRUE(pool_->trim(0));
    EXPECT_TRUE(slabs_.live_.empty());
    EXPECT_EQ(pool_->stats().reserved_bytes, 0u);
}

TEST_F(PoolTest, WhatIsFreedIsOneAgain) {
    make();
    std::vector<uint64_t> taken;
    for (int i = 0; i < 16; ++i) taken.push_back(take(kMiB / 2));
    EXPECT_EQ(pool_->stats().slabs, 1u);
    for (int i : {3, 1, 0, 2, 15, 8, 9, 10, 4, 7, 5, 6, 14, 12, 13, 11})
        EXPECT_EQ(drop(taken[static_cast<size_t>(i)]), 0);
    EXPECT_EQ(take(8 * kMiB), slabs_.live_.begin()->first);
    EXPECT_EQ(pool_->stats().slabs, 1u);
}

TEST_F(PoolTest, WrongFreesChangeNothing) {
    make();
    const uint64_t at = take(1000);
    const uint64_t other = take(5000);
    EXPECT_EQ(drop(at + 512), EINVAL);
    EXPECT_EQ(drop(at - 512), EINVAL);
    EXPECT_EQ(drop(12345), EINVAL);
    EXPECT_EQ(drop(at, 999), EINVAL) << "another size";
    EXPECT_EQ(drop(at, 1024), EINVAL) << "what it was rounded up to is not what was asked for";
    EXPECT_EQ(pool_->stats().allocations, 2u);
    EXPECT_EQ(drop(at, 1000), 0);
    EXPECT_EQ(drop(at, 1000), EINVAL) << "twice";
    EXPECT_EQ(pool_->stats().allocations, 1u);
    EXPECT_EQ(drop(other, 5000), 0);
    EXPECT_EQ(take(8 * kMiB), slabs_.live_.begin()->first) << "all of it is one";
}

TEST_F(PoolTest, FindsWhatAnAddressIsIn) {
    make();
    const uint64_t small = take(700);
    const uint64_t large = take(3 * kMiB + 1);
    const uint64_t base = slabs_.live_.begin()->first;
    auto find = [&](uint64_t at) { return pool_->find(reinterpret_cast<void*>(at)); };
    for (auto [at, bytes] : {std::pair{small, uint64_t{700}}, {large, 3 * kMiB + 1}}) {
        for (uint64_t into : {uint64_t{0}, uint64_t{1}, bytes / 2, bytes - 1}) {
            auto place = find(at + into);
            ASSERT_TRUE(place) << into;
            EXPECT_EQ(place->slab, base);
            EXPECT_EQ(place->offset, at + into - base);
            EXPECT_EQ(place->bytes, bytes - into);
        }
        EXPECT_FALSE(find(at + bytes)) << "past the end";
    }
    EXPECT_FALSE(find(base - 1));
    EXPECT_FALSE(find(base + 8 * kMiB));
    EXPECT_FALSE(find(0));
    EXPECT_EQ(drop(small), 0);
    EXPECT_FALSE(find(small));
}

TEST_F(PoolTest, TheLimitIsSaid) {
    make(8 * kMiB, 12 * kMiB);
    const uint64_t first = take(8 * kMiB);
    const uint64_t second = take(kMiB);
    EXPECT_EQ(slabs_.asked_.back(), 4 * kMiB) << "what there is room for, not the least";
    auto refused = pool_->allocate(5 * kMiB, 0, nullptr);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ENOMEM);
    EXPECT_NE(refused.error().message.find("the pool may have 12582912 bytes"), std::string::npos)
        << refused.error().message;
    EXPECT_EQ(refusal(13 * kMiB), ENOMEM);
    EXPECT_EQ(drop(second), 0);
    EXPECT_EQ(drop(first), 0);
    take(12 * kMiB);  // after the other slabs were given back
    EXPECT_EQ(pool_->stats().reserved_bytes, 12 * kMiB);
}

TEST_F(PoolTest, AFullDeviceIsTriedForLess) {
    slabs_.room_ = 6 * kMiB;
    make(64 * kMiB);
    take(kMiB);
    EXPECT_EQ(slabs_.asked_, (std::vector<uint64_t>{64 * kMiB, 16 * kMiB, 4 * kMiB}));
    EXPECT_EQ(refusal(4 * kMiB), ENOSPC);
    take(2 * kMiB);
    take(2 * kMiB);
    EXPECT_EQ(refusal(2 * kMiB), ENOSPC);
    slabs_.fail_with_ = ECONNREFUSED;
    EXPECT_EQ(refusal(2 * kMiB), ECONNREFUSED) << "its own error, at once";
    slabs_.fail_with_ = 0;
    slabs_.room_ = kUnit;
    take(2 * kMiB);
    EXPECT_EQ(pool_->stats().reserved_bytes, 8 * kMiB);
}

TEST_F(PoolTest, SlabsGrowWithThePool) {
    make(8 * kMiB);
    for (int i = 0; i < 400; ++i) take(kMiB);
    EXPECT_EQ(slabs_.asked_.front(), 8 * kMiB);
    EXPECT_GT(slabs_.asked_.back(), 20 * kMiB);
    take(100 * kMiB + 1);
    EXPECT_EQ(slabs_.asked_.back(), 102 * kMiB) << "what is larger than a slab has its own";
    EXPECT_LE(pool_->stats().reserved_bytes, 500 * kMiB * 5 / 4);
}

TEST_F(PoolTest, OneUnusedSlabIsKept) {
    make(8 * kMiB);
    const uint64_t a = take(8 * kMiB);
    const uint64_t b = take(8 * kMiB);
    const uint64_t c = take(8 * kMiB);
    EXPECT_EQ(drop(a), 0);
    EXPECT_EQ(slabs_.live_.size(), 3u);
    EXPECT_EQ(drop(b), 0);
    EXPECT_EQ(slabs_.live_.size(), 2u);
    EXPECT_TRUE(slabs_.live_.contains(b)) << "the newest stays";
    EXPECT_EQ(take(8 * kMiB), b);
    EXPECT_EQ(drop(c), 0);
    EXPECT_EQ(drop(b), 0);
    EXPECT_EQ(slabs_.live_.size(), 1u);
    ASSERT_TRUE(pool_->trim(8 * kMiB));
    EXPECT_EQ(slabs_.live_.size(), 1u) << "so much is to be kept";
    ASSERT_TRUE(pool_->trim(0));
    EXPECT_EQ(slabs_.live_.size(), 0u);
}

// As a training step: the use rises to several slabs and falls to none.
TEST_F(PoolTest, SlabsThatAreNeededAgainAreKept) {
    make(8 * kMiB);
    for (int round = 0; round < 5; ++round) {
        uint64_t slabs[4];
        for (auto& slab : slabs) slab = take(8 * kMiB);
        for (auto& slab : slabs) EXPECT_EQ(drop(slab), 0);
        EXPECT_EQ(slabs_.asked_.size(), round == 0 ? 4u : 7u) << "the round " << round << " makes no slabs";
        EXPECT_EQ(slabs_.live_.size(), round == 0 ? 1u : 4u);
    }
    ASSERT_TRUE(pool_->trim(0));
    EXPECT_EQ(slabs_.live_.size(), 0u);
    const uint64_t a = take(8 * kMiB);
    const uint64_t b = take(8 * kMiB);
    EXPECT_EQ(drop(a), 0);
    EXPECT_EQ(drop(b), 0);
    EXPECT_EQ(slabs_.live_.size(), 1u) << "after trim() one is kept";
}

TEST_F(PoolTest, ASlabThatIsNotTakenBackIsUsedOn) {
    make(8 * kMiB);
    const uint64_t a = take(8 * kMiB);
    const uint64_t b = take(8 * kMiB);
    slabs_.keeps_ = true;
    EXPECT_EQ(drop(a), 0);
    EXPECT_EQ(drop(b), 0) << "the free itself is good";
    EXPECT_EQ(pool_->trim(0).error().code, ECONNREFUSED);
    EXPECT_EQ(pool_->stats().slabs, 2u);
    EXPECT_EQ(pool_->stats().reserved_bytes, 16 * kMiB);
    EXPECT_EQ(std::set({take(8 * kMiB), take(8 * kMiB)}), std::set({a, b}));
    slabs_.keeps_ = false;
    EXPECT_EQ(drop(a), 0);
    EXPECT_EQ(drop(b), 0);
    ASSERT_TRUE(pool_->trim(0));
    EXPECT_TRUE(slabs_.live_.empty());
}

// A live set with a high turnover: the reserved bytes stay close to the peak of the used bytes.
TEST_F(PoolTest, FragmentationStaysLow) {
    make(64 * kMiB);
    std::mt19937 random(11);
    std::vector<std::pair<uint64_t, uint64_t>> live;
    uint64_t used = 0;
    for (int step = 0; step < 200000; ++step) {
        while (used > 1000 * kMiB) {
            std::swap(live[random() % live.size()], live.back());
            ASSERT_EQ(drop(live.back().first, live.back().second), 0);
            used -= live.back().second;
            live.pop_back();
        }
        // From 512 bytes to 2 MiB, uniformly over the powers of two.
        const uint64_t bytes = (uint64_t{512} << random() % 12) * (100 + random() % 100) / 100;
        live.emplace_back(take(bytes), bytes);
        used += bytes;
    }
    const auto stats = pool_->stats();
    EXPECT_LE(stats.reserved_bytes, stats.peak_used_bytes * 115 / 100 + 64 * kMiB)
        << stats.reserved_bytes / kMiB << " MiB for " << stats.peak_used_bytes / kMiB;
    for (auto [at, bytes] : live) ASSERT_EQ(drop(at, bytes), 0);
    EXPECT_EQ(pool_->stats().slabs, 1u);
}

}  // namespace
}  // namespace gshm::core::client
