// For tests of the pool's logic: slabs from a list, and queues that the test advances.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "client/pool/pool.h"

namespace gshm::core::client {

inline constexpr uint64_t kKiB = 1 << 10;
inline constexpr uint64_t kMiB = 1 << 20;
inline constexpr uint64_t kUnit = 2 * kMiB;

// Addresses that are never accessed.
class FakeSlabs final : public SlabSource {
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

// Streams are small numbers. Their work is done when the test says so.
class FakeQueues final : public Streams {
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

        void work(uint64_t queue) { ++put[queue]; }  // adds work
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
    // Unused by pools.
    Status signal(void*, std::atomic<uint64_t>&, uint64_t) override { return fail(EOPNOTSUPP, "not here"); }
    Status hold(void*, std::atomic<uint64_t>&, uint64_t) override { return fail(EOPNOTSUPP, "not here"); }
    void drop(Mark mark) override {
        std::lock_guard lock(shared_->mutex);
        EXPECT_TRUE(shared_->unused.insert(mark).second) << "dropped twice";
    }

private:
    std::shared_ptr<Shared> shared_;
};

inline void* queue(uint64_t number) {
    return reinterpret_cast<void*>(number);
}

class PoolRig : public ::testing::Test {
protected:
    // Without queues, as on host.
    void make(uint64_t slab = 8 * kMiB, uint64_t limit = 0) {
        pool_ = std::make_unique<Pool>(Pool::Options{kUnit, slab, limit}, slabs_, nullptr);
    }
    void make_queued(uint64_t slab = 8 * kMiB, uint64_t limit = 0) {
        pool_ =
            std::make_unique<Pool>(Pool::Options{kUnit, slab, limit}, slabs_, std::make_unique<FakeQueues>(shared_));
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

    FakeSlabs slabs_;
    std::shared_ptr<FakeQueues::Shared> shared_ = std::make_shared<FakeQueues::Shared>();
    std::unique_ptr<Pool> pool_;
};

}  // namespace gshm::core::client
