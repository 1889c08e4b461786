// The journal: entries in order, as a whole or not at all, in a ring that is full now and then.
#include <deque>
#include <random>

#include <gtest/gtest.h>

#include "catalog/journal.h"

namespace gshm::core::test {
namespace {

std::deque<std::string> entries(const Journal& journal, uint64_t* ret_place = nullptr) {
    std::deque<std::string> found;
    auto place = journal.each([&](std::string_view rows) -> Status {
        found.emplace_back(rows);
        return {};
    });
    EXPECT_TRUE(place) << place.error().message;
    if (place && ret_place != nullptr) *ret_place = *place;
    return found;
}

TEST(Journal, KeepsEntriesInOrderInARing) {
    std::vector<std::byte> memory(1024);
    Journal journal{memory};
    std::mt19937_64 random(1);
    std::deque<std::string> expected;
    size_t refused = 0;
    for (int step = 0; step < 20'000; ++step) {
        const std::string rows(1 + random() % 300, static_cast<char>(random()));
        if (journal.append(rows)) {
            expected.push_back(rows);
        } else {
            ++refused;
            ASSERT_FALSE(expected.empty());
        }
        // As the next process finds it.
        std::vector<std::byte> copy = memory;
        const Journal next{copy};
        ASSERT_TRUE(next.check());
        uint64_t place = 0;
        ASSERT_EQ(entries(next, &place), expected) << "step " << step;
        if (random() % 3 == 0) {
            journal.drop(place);
            expected.clear();
            EXPECT_TRUE(journal.is_empty());
        }
    }
    EXPECT_GT(refused, 100u);
}

TEST(Journal, RefusesAnEntryThatNeverFits) {
    std::vector<std::byte> memory(1024);
    Journal journal{memory};
    EXPECT_FALSE(journal.append(std::string(1024, 'x')));
    EXPECT_TRUE(journal.is_empty());
    EXPECT_TRUE(journal.append(std::string(512, 'x')));
}

// Its numbers may be anything, in memory that is damaged.
TEST(Journal, ReadsNothingOutsideItsMemory) {
    std::mt19937_64 random(2);
    for (int round = 0; round < 20'000; ++round) {
        std::vector<std::byte> memory(512);
        Journal journal{memory};
        while (journal.append(std::string(1 + random() % 60, 'x')))
            if (random() % 4 == 0) break;
        for (uint64_t flips = 1 + random() % 3; flips > 0; --flips) memory[random() % 48] ^= std::byte(random());
        if (!journal.check()) continue;
        (void)journal.each([](std::string_view rows) -> Status {
            EXPECT_LE(rows.size(), 512u);
            return {};
        });
    }
}

}  // namespace
}  // namespace gshm::core::test
