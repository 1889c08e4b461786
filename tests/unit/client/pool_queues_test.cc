// The logic of the pool with streams: the reuse of blocks that another queue has freed, and the waits for it.
#include <atomic>
#include <random>
#include <thread>

#include "pool_rig.h"

namespace gshm::core::client {
namespace {

class PoolQueues : public PoolRig {};

TEST_F(PoolQueues, TheSameQueueHasItBackAtOnce) {
    make_queued(kUnit, kUnit);
    const uint64_t at = take(kUnit, 0, queue(1));
    shared_->work(1);
    EXPECT_EQ(drop(at, kUnit, queue(1)), 0);
    EXPECT_EQ(take(kUnit, 0, queue(1)), at);
    EXPECT_TRUE(shared_->follows.empty());
    EXPECT_EQ(pool_->stats().waits, 0u);
    EXPECT_EQ(shared_->waits, 0);
}

TEST_F(PoolQueues, AnotherQueueWaitsForTheFree) {
    make_queued(kUnit, kUnit);
    const uint64_t at = take(kUnit, 0, queue(1));
    shared_->work(1);
    shared_->work(1);
    EXPECT_EQ(drop(at, kUnit, queue(1)), 0);
    shared_->work(1);  // after the free, so it is not waited for
    EXPECT_EQ(take(kUnit, 0, queue(2)), at);
    ASSERT_EQ(shared_->follows.size(), 1u);
    EXPECT_EQ(shared_->follows[0].first, 2u);
    EXPECT_EQ(shared_->follows[0].second.queue, 1u);
    EXPECT_EQ(shared_->follows[0].second.at, 2u);
    EXPECT_EQ(pool_->stats().waits, 1u);
    // The second queue's free then covers both.
    shared_->work(2);
    EXPECT_EQ(drop(at, kUnit, queue(2)), 0);
    EXPECT_EQ(take(kUnit, 0, queue(3)), at);
    ASSERT_EQ(shared_->follows.size(), 2u);
    EXPECT_EQ(shared_->follows[1].first, 3u);
    EXPECT_EQ(shared_->follows[1].second.queue, 2u);
}

TEST_F(PoolQueues, ARetiredSlabGoesWhenNoQueueUsesItAnyMore) {
    make_queued(kUnit);
    const uint64_t early = take(kUnit / 4, 0, queue(1));
    const uint64_t first = take(kUnit / 4, 0, queue(2));
    const uint64_t second = take(kUnit / 4, 0, queue(3));
    const uint64_t slab = slabs_.live_.begin()->first;
    for (const uint64_t number : {1, 2, 3}) shared_->work(number);
    EXPECT_EQ(drop(early, 0, queue(1)), 0);  // before it is retired
    EXPECT_EQ(pool_->retire().size(), 1u);
    EXPECT_EQ(drop(first, 0, queue(2)), 0);
    EXPECT_EQ(drop(second, 0, queue(3)), 0);
    EXPECT_TRUE(slabs_.live_.contains(slab));
    shared_->finish(2);
    shared_->finish(3);
    take(kUnit, 0, queue(4));  // each makes a slab
    EXPECT_TRUE(slabs_.live_.contains(slab)) << "the first queue still works";
    shared_->finish(1);
    take(kUnit, 0, queue(4));
    EXPECT_FALSE(slabs_.live_.contains(slab));
    EXPECT_EQ(pool_->stats().slabs, 2u);
    EXPECT_EQ(pool_->stats().reserved_bytes, 2 * kUnit);
    EXPECT_EQ(shared_->waits, 0);
}

TEST_F(PoolQueues, AtTheLimitARetiredSlabIsWaitedFor) {
    make_queued(kUnit, kUnit);
    const uint64_t at = take(kUnit, 0, queue(1));
    shared_->work(1);
    pool_->retire();
    EXPECT_EQ(drop(at, kUnit, queue(1)), 0);
    EXPECT_NE(take(kUnit, 0, queue(1)), at);
    EXPECT_EQ(shared_->waits, 1);
}

TEST_F(PoolQueues, ARefusedRetiredSlabIsGivenBackLater) {
    make_queued(kUnit);
    const uint64_t at = take(kUnit, 0, queue(1));
    pool_->retire();
    slabs_.keeps_ = true;
    EXPECT_EQ(drop(at, kUnit, queue(1)), 0);
    EXPECT_EQ(pool_->stats().slabs, 1u);
    EXPECT_NE(take(kUnit, 0, queue(1)), at) << "its memory is not used again";
    slabs_.keeps_ = false;
    EXPECT_TRUE(pool_->trim(0));
    EXPECT_EQ(pool_->stats().slabs, 1u);
    EXPECT_FALSE(slabs_.live_.contains(at));
}

TEST_F(PoolQueues, WhatIsOverNeedsNoWait) {
    make_queued(kUnit, kUnit);
    const uint64_t at = take(kUnit, 0, queue(1));
    shared_->work(1);
    EXPECT_EQ(drop(at, kUnit, queue(1)), 0);
    shared_->finish(1);
    EXPECT_EQ(take(kUnit, 0, queue(2)), at);
    EXPECT_TRUE(shared_->follows.empty());
}

TEST_F(PoolQueues, TheRestOfABlockStaysBehindItsQueue) {
    make_queued(kUnit, kUnit);
    const uint64_t at = take(kUnit, 0, queue(1));
    shared_->work(1);
    EXPECT_EQ(drop(at, kUnit, queue(1)), 0);
    EXPECT_EQ(take(kMiB / 2, 0, queue(2)), at);
    take(kMiB / 2, 0, queue(3));
    take(kMiB, 0, queue(1));
    ASSERT_EQ(shared_->follows.size(), 2u) << "the second and the third; the first has freed it itself";
    EXPECT_EQ(shared_->follows[1].first, 3u);
}

TEST_F(PoolQueues, NobodyWaitsWhereThereIsSomethingElse) {
    make_queued(4 * kMiB);
    const uint64_t a = take(kMiB, 0, queue(1));
    const uint64_t b = take(kMiB, 0, queue(1));
    const uint64_t rest = take(2 * kMiB, 0, queue(1));
    shared_->work(1);
    shared_->work(2);
    EXPECT_EQ(drop(a, 0, queue(1)), 0);
    EXPECT_EQ(drop(b, 0, queue(2)), 0);
    EXPECT_EQ(take(kMiB, 0, queue(2)), b) << "its own, not the first's";
    EXPECT_EQ(drop(rest, 0, queue(3)), 0);  // no work is pending there
    const uint64_t c = take(kMiB, 0, queue(2));
    EXPECT_TRUE(c >= rest && c < rest + 2 * kMiB) << "what is over, not the first's";
    EXPECT_TRUE(shared_->follows.empty());
    EXPECT_EQ(slabs_.live_.size(), 1u);
}

TEST_F(PoolQueues, PiecesOfDifferentQueuesAreOneWhenTheyAreOver) {
    make_queued(4 * kMiB, 4 * kMiB);
    std::vector<uint64_t> taken;
    for (int i = 0; i < 4; ++i) taken.push_back(take(kMiB, 0, queue(1)));
    for (uint64_t i = 0; i < 4; ++i) {
        shared_->work(i + 1);
        EXPECT_EQ(drop(taken[i], kMiB, queue(i + 1)), 0);
    }
    EXPECT_EQ(shared_->waits, 0);
    EXPECT_EQ(take(4 * kMiB, 0, queue(1)), slabs_.live_.begin()->first) << "waits for them, rather than to fail";
    EXPECT_EQ(shared_->waits, 4);
    EXPECT_TRUE(shared_->follows.empty());
}

TEST_F(PoolQueues, AQueuesBlocksAndWhatIsOverNextToThemAreOne) {
    make_queued(4 * kMiB, 4 * kMiB);
    std::vector<uint64_t> taken;
    for (int i = 0; i < 4; ++i) taken.push_back(take(kMiB, 0, queue(1)));
    std::ranges::sort(taken);
    shared_->work(1);
    EXPECT_EQ(drop(taken[0], kMiB, queue(2)), 0);  // free at once
    EXPECT_EQ(drop(taken[1], kMiB, queue(1)), 0);
    EXPECT_EQ(drop(taken[2], kMiB, queue(2)), 0);
    EXPECT_EQ(take(3 * kMiB, 0, queue(1)), taken[0]);
    EXPECT_TRUE(shared_->follows.empty());
    EXPECT_EQ(shared_->waits, 0);
    // The joined block still waits for the queue.
    EXPECT_EQ(drop(taken[0], 3 * kMiB, queue(1)), 0);
    EXPECT_EQ(take(3 * kMiB, 0, queue(2)), taken[0]);
    EXPECT_EQ(shared_->follows.size(), 1u);
}

TEST_F(PoolQueues, WithoutAQueueItIsWaitedForHere) {
    make_queued(kUnit, kUnit);
    const uint64_t at = take(kUnit, 0, queue(1));
    shared_->work(1);
    EXPECT_EQ(drop(at, kUnit, queue(1)), 0);
    EXPECT_EQ(take(kUnit, 0, Pool::kNoStream), at);
    EXPECT_EQ(shared_->waits, 1);
    EXPECT_TRUE(shared_->follows.empty());
    EXPECT_EQ(drop(at, kUnit, Pool::kNoStream), 0);
    EXPECT_EQ(take(kUnit, 0, queue(2)), at) << "nobody was at work with it";
    EXPECT_TRUE(shared_->follows.empty());
}

TEST_F(PoolQueues, ASlabGoesWhenItsQueuesAreThroughWithIt) {
    make_queued(kUnit);
    const uint64_t a = take(kUnit, 0, queue(1));
    const uint64_t b = take(kUnit, 0, queue(1));
    shared_->work(1);
    EXPECT_EQ(drop(a, 0, queue(1)), 0);
    EXPECT_EQ(drop(b, 0, queue(1)), 0);
    EXPECT_EQ(slabs_.live_.size(), 2u) << "neither is over, and a free does not wait";
    EXPECT_EQ(shared_->waits, 0);
    const uint64_t c = take(kUnit, 0, queue(1));
    shared_->finish(1);
    EXPECT_EQ(drop(c, 0, queue(1)), 0);
    EXPECT_EQ(slabs_.live_.size(), 1u);
    shared_->work(1);
    const uint64_t d = take(kUnit, 0, queue(1));
    EXPECT_EQ(drop(d, 0, queue(1)), 0);
    ASSERT_TRUE(pool_->trim(0));
    EXPECT_EQ(shared_->waits, 1);
    EXPECT_TRUE(slabs_.live_.empty());
}

TEST_F(PoolQueues, FailuresOfTheDriverLeaveThingsAsTheyWere) {
    make_queued(kUnit, kUnit);
    EXPECT_EQ(refusal(1, 0, queue(99)), EINVAL);
    const uint64_t at = take(kUnit, 0, queue(1));
    EXPECT_EQ(drop(at, kUnit, queue(99)), EINVAL);
    shared_->fail_record = true;
    EXPECT_EQ(drop(at, kUnit, queue(1)), EIO);
    EXPECT_EQ(pool_->stats().allocations, 1u) << "still the caller's";
    shared_->fail_record = false;
    shared_->work(1);
    EXPECT_EQ(drop(at, kUnit, queue(1)), 0);
    shared_->fail_follow = true;
    EXPECT_EQ(refusal(kUnit, 0, queue(2)), EIO);
    shared_->fail_follow = false;
    EXPECT_EQ(take(kUnit, 0, queue(2)), at);
    EXPECT_EQ(shared_->follows.size(), 1u);
}

TEST_F(PoolQueues, MarksAreFewAndUsedAgain) {
    make_queued(kUnit);
    uint64_t at = take(1000, 0, queue(1));
    for (int i = 0; i < 5000; ++i) {
        shared_->work(1);
        ASSERT_EQ(drop(at, 1000, queue(1)), 0);
        at = take(1000, 0, queue(1));
        if (i % 1000 == 999) shared_->finish(1);
    }
    EXPECT_LE(shared_->made, 300);
    shared_->work(1);
    EXPECT_EQ(drop(at, 1000, queue(1)), 0);
    pool_.reset();
    EXPECT_EQ(static_cast<int>(shared_->unused.size()), shared_->made) << "all were given up";
    EXPECT_TRUE(slabs_.live_.empty());
}

// Random sizes, frees and queues against a model of the owner of each byte and of the required waits.
TEST_F(PoolQueues, NobodyGetsWhatAnotherIsAtWorkWith) {
    make_queued(4 * kMiB, 48 * kMiB);
    struct Owner {
        uint64_t bytes = 0;
        uint64_t queue = 0;
    };
    std::map<uint64_t, Owner> live;
    // For each unit of 512 bytes: the queue that last used it, and the number of that work.
    std::map<uint64_t, std::pair<uint64_t, uint64_t>> last;
    std::map<std::pair<uint64_t, uint64_t>, uint64_t> seen;  // [a, b]: queue a has waited for that much work of b
    std::mt19937 random(7);
    size_t told = 0;
    for (int step = 0; step < 10000; ++step) {
        const uint64_t q = random() % 5 + 1;
        if (random() % 10 == 0) shared_->finish(random() % 5 + 1);
        if (random() % 2 == 0 || live.empty()) {
            const uint64_t bytes = random() % 3 == 0 ? random() % (2 * kMiB) + 1 : random() % (64 * kKiB) + 1;
            auto memory = pool_->allocate(bytes, 0, queue(q));
            if (!memory) {
                ASSERT_EQ(memory.error().code, ENOMEM);
                continue;
            }
            for (; told < shared_->follows.size(); ++told) {
                auto& [who, what] = shared_->follows[told];
                seen[{who, what.queue}] = std::max(seen[{who, what.queue}], what.at);
            }
            const auto at = reinterpret_cast<uint64_t>(*memory);
            auto next = live.lower_bound(at);
            ASSERT_TRUE(next == live.end() || next->first >= at + bytes);
            ASSERT_TRUE(next == live.begin() || std::prev(next)->first + std::prev(next)->second.bytes <= at);
            for (auto unit = last.lower_bound(at); unit != last.end() && unit->first < at + bytes;
                 unit = last.erase(unit)) {
                const auto [other, work] = unit->second;
                const bool good = other == q || shared_->done[other] >= work || seen[{q, other}] >= work;
                ASSERT_TRUE(good) << "queue " << q << " did not wait for " << other;
            }
            live[at] = {bytes, q};
        } else {
            auto found = live.lower_bound(std::next(live.begin(), random() % std::min<size_t>(live.size(), 20))->first);
            // Sometimes in another queue than the one that used it, which has then waited for it.
            const uint64_t in = random() % 4 == 0 ? q : found->second.queue;
            shared_->work(in);
            for (uint64_t unit = found->first; unit < found->first + found->second.bytes; unit += 512) {
                last[unit] = {in, shared_->put[in]};
            }
            ASSERT_EQ(drop(found->first, found->second.bytes, queue(in)), 0);
            live.erase(found);
        }
    }
    EXPECT_GT(pool_->stats().waits, 20u);
    EXPECT_EQ(pool_->stats().allocations, live.size());
    for (auto& [at, owner] : live) EXPECT_EQ(drop(at, owner.bytes, queue(owner.queue)), 0);
    ASSERT_TRUE(pool_->trim(0));
    EXPECT_TRUE(slabs_.live_.empty());
}

TEST_F(PoolQueues, ManyThreads) {
    make_queued(4 * kMiB, 64 * kMiB);
    std::vector<std::thread> threads;
    std::mutex owners;
    std::map<uint64_t, uint64_t> live;
    std::atomic<int> failures = 0;
    for (uint64_t t = 1; t <= 8; ++t) {
        threads.emplace_back([&, t] {
            std::mt19937 random(static_cast<unsigned>(t));
            std::vector<std::pair<uint64_t, uint64_t>> mine;
            for (int step = 0; step < 3000; ++step) {
                if (random() % 2 == 0 || mine.empty()) {
                    const uint64_t bytes = random() % (256 * kKiB) + 1;
                    auto memory = pool_->allocate(bytes, 0, queue(t));
                    if (!memory) {
                        failures += memory.error().code == ENOMEM ? 0 : 1;
                        continue;
                    }
                    const auto at = reinterpret_cast<uint64_t>(*memory);
                    std::lock_guard lock(owners);
                    auto next = live.lower_bound(at);
                    if (next != live.end() && next->first < at + bytes) ++failures;
                    if (next != live.begin() && std::prev(next)->first + std::prev(next)->second > at) ++failures;
                    live[at] = bytes;
                    mine.emplace_back(at, bytes);
                } else {
                    auto [at, bytes] = mine.back();
                    mine.pop_back();
                    {
                        std::lock_guard lock(owners);
                        live.erase(at);
                    }
                    if (!pool_->deallocate(reinterpret_cast<void*>(at), bytes, queue(t))) ++failures;
                }
                if (step % 500 == 0 && !pool_->trim(0)) ++failures;
            }
            for (auto [at, bytes] : mine) {
                {
                    std::lock_guard lock(owners);
                    live.erase(at);
                }
                if (!pool_->deallocate(reinterpret_cast<void*>(at), bytes, queue(t))) ++failures;
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(failures, 0);
    EXPECT_EQ(pool_->stats().used_bytes, 0u);
    ASSERT_TRUE(pool_->trim(0));
    EXPECT_TRUE(slabs_.live_.empty());
    EXPECT_EQ(pool_->stats().reserved_bytes, 0u);
}

}  // namespace
}  // namespace gshm::core::client
