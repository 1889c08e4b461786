#include <map>
#include <random>

#include <gtest/gtest.h>

#include "base/limits.h"
#include "store/slab.h"

namespace gshm::core {
namespace {

TEST(Slab, TakesAlignedRangesUntilFull) {
    Slab slab(1024);
    EXPECT_EQ(slab.take(1), 0u);
    EXPECT_EQ(slab.take(256), 256u);
    EXPECT_EQ(slab.take(257), 512u);
    EXPECT_EQ(slab.take(1), std::nullopt);
    EXPECT_EQ(slab.largest_free(), 0u);
}

TEST(Slab, JoinsNeighbours) {
    Slab slab(1024);
    for (uint64_t offset : {0, 256, 512, 768}) ASSERT_EQ(slab.take(256), offset);
    slab.give_back(256, 256);
    slab.give_back(768, 256);
    EXPECT_EQ(slab.largest_free(), 256u);
    slab.give_back(512, 256);
    EXPECT_EQ(slab.largest_free(), 768u);
    slab.give_back(0, 256);
    EXPECT_EQ(slab.largest_free(), 1024u);
    EXPECT_EQ(slab.take(1024), 0u);
}

TEST(Slab, RandomUseNeverOverlapsAndComesBackWhole) {
    constexpr uint64_t kSize = 1 << 20;
    for (unsigned seed = 0; seed < 20; ++seed) {
        std::mt19937 random(seed);
        Slab slab(kSize);
        std::map<uint64_t, uint64_t> taken;  // offset -> bytes
        for (int step = 0; step < 2000; ++step) {
            if (random() % 3 != 0) {
                uint64_t bytes = 1 + random() % 20000;
                auto offset = slab.take(bytes);
                if (!offset) continue;
                ASSERT_EQ(*offset % limits::kObjectAlignment, 0u);
                ASSERT_LE(*offset + bytes, kSize);
                auto next = taken.lower_bound(*offset);
                if (next != taken.end()) {
                    ASSERT_LE(*offset + bytes, next->first);
                }
                if (next != taken.begin()) {
                    ASSERT_LE(std::prev(next)->first + std::prev(next)->second, *offset);
                }
                taken[*offset] = bytes;
            } else if (!taken.empty()) {
                auto victim = std::next(taken.begin(), static_cast<long>(random() % taken.size()));
                slab.give_back(victim->first, victim->second);
                taken.erase(victim);
            }
        }
        for (auto [offset, bytes] : taken) slab.give_back(offset, bytes);
        EXPECT_EQ(slab.largest_free(), kSize);
    }
}

}  // namespace
}  // namespace gshm::core
