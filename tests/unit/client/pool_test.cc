// The pool's own logic: slabs from a list, queues that move when the test says so.
#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "client/pool.h"

namespace gshm::client {
namespace {

constexpr uint64_t kKiB = 1 << 10;
constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kUnit = 2 * kMiB;

// Addresses that nobody follows.
class Slabs final : public SlabSource {
public:
    Result<uint64_t> make(uint64_t bytes) override {
        std::lock_guard lock(mutex_);
        EXPECT_EQ(bytes % kUnit, 0u);
        asked_.push_back(bytes);
        if (fail_with_ != 0) return fail(fail_with_, "no");
        if (bytes > room_) return fail(ENOSPC, "full");
        room_ -= bytes;
        const uint64_t address = next_;
        next_ += bytes + kUnit;
        live_[address] = bytes;
        return address;
    }
    Status give_back(uint64_t address) override {
        std::lock_guard lock(mutex_);
        if (keeps_) return fail(ECONNREFUSED, "away");
        auto found = live_.find(address);
        EXPECT_NE(found, live_.end());
        room_ += found->second;
        live_.erase(found);
        return {};
    }

    std::mutex mutex_;
    uint64_t next_ = uint64_t{1} << 40;
    uint64_t room_ = uint64_t{1} << 40;
    int fail_with_ = 0;
    bool keeps_ = false;
    std::map<uint64_t, uint64_t> live_;
    std::vector<uint64_t> asked_;
};

// Queues are small numbers. What is on one is done when the test says so.
class FakeQueues final : public Queues {
public:
    struct Record {
        uint64_t queue = 0;
        uint64_t at = 0;
    };
    struct Shared {
        std::mutex mutex;
        std::map<uint64_t, uint64_t> put, done;  // by queue
        std::vector<std::pair<uint64_t, Record>> follows;
        std::map<Mark, Record> records;
        std::set<Mark> unused;
        int waits = 0;
        bool fail_follow = false, fail_record = false;
        int made = 0;

        void work(uint64_t queue) { ++put[queue]; }  // something to do
        void finish(uint64_t queue) { done[queue] = put[queue]; }
    };
    explicit FakeQueues(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

    static uint64_t number(void* queue) { return reinterpret_cast<uint64_t>(queue); }
    Result<uint64_t> identify(void* queue) override {
        if (number(queue) == 99) return fail(EINVAL, "no such queue");
        return number(queue);
    }
    Result<Mark> record(void* queue) override {
        std::lock_guard lock(shared_->mutex);
        if (shared_->fail_record) return fail(EIO, "lost");
        Mark mark = nullptr;
        if (shared_->unused.empty()) {
            mark = reinterpret_cast<Mark>(uint64_t{1000} + static_cast<uint64_t>(++shared_->made));
        } else {
            mark = *shared_->unused.begin();
            shared_->unused.erase(mark);
        }
        shared_->records[mark] = {number(queue), shared_->put[number(queue)]};
        return mark;
    }
    Status record(void* queue, Mark mark) override {
        std::lock_guard lock(shared_->mutex);
        EXPECT_FALSE(shared_->unused.contains(mark));
        shared_->records[mark] = {number(queue), shared_->put[number(queue)]};
        return {};
    }
    bool is_passed(Mark mark) override {
        std::lock_guard lock(shared_->mutex);
        const Record& at = shared_->records.at(mark);
        return shared_->done[at.queue] >= at.at;
    }
    Status follow(void* queue, Mark mark) override {
        std::lock_guard lock(shared_->mutex);
        if (shared_->fail_follow) return fail(EIO, "lost");
        EXPECT_FALSE(shared_->unused.contains(mark)) << "a mark that means something else by now";
        shared_->follows.emplace_back(number(queue), shared_->records.at(mark));
        return {};
    }
    Status wait(Mark mark) override {
        std::lock_guard lock(shared_->mutex);
        ++shared_->waits;
        auto& at = shared_->records.at(mark);
        shared_->done[at.queue] = std::max(shared_->done[at.queue], at.at);
        return {};
    }
    void drop(Mark mark) override {
        std::lock_guard lock(shared_->mutex);
        EXPECT_TRUE(shared_->unused.insert(mark).second) << "dropped twice";
    }

private:
    std::shared_ptr<Shared> shared_;
};

void* queue(uint64_t number) {
    return reinterpret_cast<void*>(number);
}

class PoolTest : public ::testing::Test {
protected:
    // Without queues, as on host.
    void make(uint64_t slab = 8 * kMiB, uint64_t limit = 0) {
        pool_ = std::make_unique<Pool>(Pool::Options{kUnit, slab, limit}, slabs_, nullptr);
    }
    void make_queued(uint64_t slab = 8 * kMiB, uint64_t limit = 0) {
        pool_ = std::make_unique<Pool>(Pool::Options{kUnit, slab, limit}, slabs_, std::make_unique<FakeQueues>(shared_));
    }
    uint64_t take(uint64_t bytes, uint64_t alignment = 0, void* in = nullptr) {
        auto memory = pool_->allocate(bytes, alignment, in);
        EXPECT_TRUE(memory) << memory.error().message;
        return memory ? reinterpret_cast<uint64_t>(*memory) : 0;
    }
    int refusal(uint64_t bytes, uint64_t alignment = 0, void* in = nullptr) {
        auto memory = pool_->allocate(bytes, alignment, in);
        return memory ? 0 : memory.error().code;
    }
    int drop(uint64_t address, uint64_t bytes = 0, void* in = nullptr) {
        auto freed = pool_->deallocate(reinterpret_cast<void*>(address), bytes, in);
        return freed ? 0 : freed.error().code;
    }

    Slabs slabs_;
    std::shared_ptr<FakeQueues::Shared> shared_ = std::make_shared<FakeQueues::Shared>();
    std::unique_ptr<Pool> pool_;
};

TEST_F(PoolTest, SizesAndAlignments) {
    make();
    EXPECT_EQ(take(0), 0u);
    EXPECT_EQ(drop(0), 0) << "as free(NULL)";
    EXPECT_EQ(pool_->stats().slabs, 0u) << "nothing is taken before it is needed";
    std::vector<std::pair<uint64_t, uint64_t>> taken;
    for (uint64_t bytes : {uint64_t{1}, uint64_t{511}, uint64_t{512}, uint64_t{513}, 100 * kKiB + 1, kMiB, 3 * kMiB + 5}) {
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
    for (int i : {3, 1, 0, 2, 15, 8, 9, 10, 4, 7, 5, 6, 14, 12, 13, 11}) EXPECT_EQ(drop(taken[static_cast<size_t>(i)]), 0);
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
    EXPECT_NE(refused.error().message.find("the pool may have 12582912 bytes"), std::string::npos) << refused.error().message;
    EXPECT_EQ(refusal(13 * kMiB), ENOMEM);
    EXPECT_EQ(drop(second), 0);
    EXPECT_EQ(drop(first), 0);
    take(12 * kMiB);  // after the others have gone back
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

// ---- the order of queues ----

TEST_F(PoolTest, TheSameQueueHasItBackAtOnce) {
    make_queued(kUnit, kUnit);
    const uint64_t at = take(kUnit, 0, queue(1));
    shared_->work(1);
    EXPECT_EQ(drop(at, kUnit, queue(1)), 0);
    EXPECT_EQ(take(kUnit, 0, queue(1)), at);
    EXPECT_TRUE(shared_->follows.empty());
    EXPECT_EQ(pool_->stats().waits, 0u);
    EXPECT_EQ(shared_->waits, 0);
}

TEST_F(PoolTest, AnotherQueueWaitsForTheFree) {
    make_queued(kUnit, kUnit);
    const uint64_t at = take(kUnit, 0, queue(1));
    shared_->work(1);
    shared_->work(1);
    EXPECT_EQ(drop(at, kUnit, queue(1)), 0);
    shared_->work(1);  // comes after the free, and need not be waited for
    EXPECT_EQ(take(kUnit, 0, queue(2)), at);
    ASSERT_EQ(shared_->follows.size(), 1u);
    EXPECT_EQ(shared_->follows[0].first, 2u);
    EXPECT_EQ(shared_->follows[0].second.queue, 1u);
    EXPECT_EQ(shared_->follows[0].second.at, 2u);
    EXPECT_EQ(pool_->stats().waits, 1u);
    // And on from there: the second's free stands for both.
    shared_->work(2);
    EXPECT_EQ(drop(at, kUnit, queue(2)), 0);
    EXPECT_EQ(take(kUnit, 0, queue(3)), at);
    ASSERT_EQ(shared_->follows.size(), 2u);
    EXPECT_EQ(shared_->follows[1].first, 3u);
    EXPECT_EQ(shared_->follows[1].second.queue, 2u);
}

TEST_F(PoolTest, WhatIsOverNeedsNoWait) {
    make_queued(kUnit, kUnit);
    const uint64_t at = take(kUnit, 0, queue(1));
    shared_->work(1);
    EXPECT_EQ(drop(at, kUnit, queue(1)), 0);
    shared_->finish(1);
    EXPECT_EQ(take(kUnit, 0, queue(2)), at);
    EXPECT_TRUE(shared_->follows.empty());
}

TEST_F(PoolTest, TheRestOfABlockStaysBehindItsQueue) {
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

TEST_F(PoolTest, NobodyWaitsWhereThereIsSomethingElse) {
    make_queued(4 * kMiB);
    const uint64_t a = take(kMiB, 0, queue(1));
    const uint64_t b = take(kMiB, 0, queue(1));
    const uint64_t rest = take(2 * kMiB, 0, queue(1));
    shared_->work(1);
    shared_->work(2);
    EXPECT_EQ(drop(a, 0, queue(1)), 0);
    EXPECT_EQ(drop(b, 0, queue(2)), 0);
    EXPECT_EQ(take(kMiB, 0, queue(2)), b) << "its own, not the first's";
    EXPECT_EQ(drop(rest, 0, queue(3)), 0);  // nothing is under way there
    const uint64_t c = take(kMiB, 0, queue(2));
    EXPECT_TRUE(c >= rest && c < rest + 2 * kMiB) << "what is over, not the first's";
    EXPECT_TRUE(shared_->follows.empty());
    EXPECT_EQ(slabs_.live_.size(), 1u);
}

TEST_F(PoolTest, PiecesOfDifferentQueuesAreOneWhenTheyAreOver) {
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

TEST_F(PoolTest, AQueuesBlocksAndWhatIsOverNextToThemAreOne) {
    make_queued(4 * kMiB, 4 * kMiB);
    std::vector<uint64_t> taken;
    for (int i = 0; i < 4; ++i) taken.push_back(take(kMiB, 0, queue(1)));
    std::ranges::sort(taken);
    shared_->work(1);
    EXPECT_EQ(drop(taken[0], kMiB, queue(2)), 0);  // over at once
    EXPECT_EQ(drop(taken[1], kMiB, queue(1)), 0);
    EXPECT_EQ(drop(taken[2], kMiB, queue(2)), 0);
    EXPECT_EQ(take(3 * kMiB, 0, queue(1)), taken[0]);
    EXPECT_TRUE(shared_->follows.empty());
    EXPECT_EQ(shared_->waits, 0);
    // What was joined so still waits for the queue.
    EXPECT_EQ(drop(taken[0], 3 * kMiB, queue(1)), 0);
    EXPECT_EQ(take(3 * kMiB, 0, queue(2)), taken[0]);
    EXPECT_EQ(shared_->follows.size(), 1u);
}

TEST_F(PoolTest, WithoutAQueueItIsWaitedForHere) {
    make_queued(kUnit, kUnit);
    const uint64_t at = take(kUnit, 0, queue(1));
    shared_->work(1);
    EXPECT_EQ(drop(at, kUnit, queue(1)), 0);
    EXPECT_EQ(take(kUnit, 0, Pool::kNoQueue), at);
    EXPECT_EQ(shared_->waits, 1);
    EXPECT_TRUE(shared_->follows.empty());
    EXPECT_EQ(drop(at, kUnit, Pool::kNoQueue), 0);
    EXPECT_EQ(take(kUnit, 0, queue(2)), at) << "nobody was at work with it";
    EXPECT_TRUE(shared_->follows.empty());
}

TEST_F(PoolTest, ASlabGoesWhenItsQueuesAreThroughWithIt) {
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

TEST_F(PoolTest, FailuresOfTheDriverLeaveThingsAsTheyWere) {
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

TEST_F(PoolTest, MarksAreFewAndUsedAgain) {
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

// ---- all together ----

// Random sizes, frees and queues against a model: who has which bytes, and who must have waited for whom.
TEST_F(PoolTest, NobodyGetsWhatAnotherIsAtWorkWith) {
    make_queued(4 * kMiB, 48 * kMiB);
    struct Owner {
        uint64_t bytes = 0;
        uint64_t queue = 0;
    };
    std::map<uint64_t, Owner> live;
    // For each unit of 512 bytes: the queue that was last at work with it, and its work.
    std::map<uint64_t, std::pair<uint64_t, uint64_t>> last;
    std::map<std::pair<uint64_t, uint64_t>, uint64_t> seen;  // [a, b]: a comes after so much of b
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
            // Sometimes in another queue than where it was used, which has then waited by itself.
            const uint64_t in = random() % 4 == 0 ? q : found->second.queue;
            shared_->work(in);
            for (uint64_t unit = found->first; unit < found->first + found->second.bytes; unit += 512) {
                last[unit] = {in, shared_->put[in]};
            }
            ASSERT_EQ(drop(found->first, found->second.bytes, queue(in)), 0);
            live.erase(found);
        }
    }
    EXPECT_GT(pool_->stats().waits, 50u);
    EXPECT_EQ(pool_->stats().allocations, live.size());
    for (auto& [at, owner] : live) EXPECT_EQ(drop(at, owner.bytes, queue(owner.queue)), 0);
    ASSERT_TRUE(pool_->trim(0));
    EXPECT_TRUE(slabs_.live_.empty());
}

// A live set that turns over many times: what is reserved stays near what is used at most.
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
        // From 512 bytes to 2 MiB, evenly over the doublings.
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

TEST_F(PoolTest, ManyThreads) {
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
}  // namespace gshm::client
