// Allocation on a full device, in the loop and in a thread: the same steps.
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "support/memory_rig.h"

namespace gshm::core::test {
namespace {

using Memory = Result<std::shared_ptr<Extent>>;

enum class Way { loop, thread };
void PrintTo(Way way, std::ostream* out) {
    *out << (way == Way::loop ? "in the loop" : "in a thread");
}

class Allocation : public ::testing::TestWithParam<Way> {
protected:
    static constexpr uint64_t kPage = MemoryRig::kPage;

    // Allocates all memory of the first device except that many bytes.
    std::shared_ptr<Extent> take_all_but(uint64_t bytes) {
        return *rig_.devices.first.allocate(16 * kPage - bytes, {});
    }
    void begin(uint64_t bytes, uint64_t min_bytes) {
        const AllocationRequest request{0, bytes, min_bytes, {}, 0};
        auto done = [this](Memory memory) { result_ = std::move(memory); };
        if (GetParam() == Way::loop) {
            return rig_.scheduler.post([this, request, done] {
                store_lock.assert_held();
                rig_.allocator.allocate(request, done);
            });
        }
        thread_ = std::jthread([this, request, done] {
            rig_.scheduler.post(
                [memory = rig_.allocator.allocate_blocking(request), done]() mutable { done(std::move(memory)); });
        });
    }
    void wait_until_refused() {
        rig_.scheduler.run_until([&] {
            StoreLock lock(rig_.scheduler.store_mutex());
            return rig_.departures.waiting() == 1;
        });
    }
    Memory& end() {
        rig_.scheduler.run_until([&] { return result_.has_value(); });
        return *result_;
    }

    MemoryRig rig_;
    std::optional<Memory> result_;
    std::jthread thread_;
};

TEST_P(Allocation, IsServedAtOnceWhereThereIsRoom) {
    begin(4 * kPage, 4 * kPage);
    ASSERT_TRUE(end());
    EXPECT_EQ((*result_)->get()->size(), 4 * kPage);
}

TEST_P(Allocation, WaitsForMemoryOnItsWayOut) {
    auto other = take_all_but(kPage);
    Departures::Ticket ticket = 0;
    {
        StoreLock lock(rig_.scheduler.store_mutex());
        ticket = rig_.departures.begin(0, Departures::Kind::reclaim, other->size(), 0);
    }
    begin(4 * kPage, 4 * kPage);
    // The reclaimer frees it only after the request was refused and waits.
    wait_until_refused();
    EXPECT_FALSE(result_);
    other.reset();
    {
        StoreLock lock(rig_.scheduler.store_mutex());
        rig_.departures.end(0, ticket);
    }
    ASSERT_TRUE(end());
    EXPECT_EQ((*result_)->get()->size(), 4 * kPage);
}

TEST_P(Allocation, AsksForTheLeastAtLast) {
    auto other = take_all_but(kPage);
    begin(4 * kPage, kPage);
    ASSERT_TRUE(end());
    EXPECT_EQ((*result_)->get()->size(), kPage);
}

TEST_P(Allocation, IsRefusedWhenNothingIsOnItsWayOut) {
    auto other = take_all_but(kPage);
    begin(4 * kPage, 2 * kPage);
    ASSERT_FALSE(end());
    EXPECT_EQ(result_->error().code, ENOSPC);
}

TEST_P(Allocation, FreesEmptySlabs) {
    const SlabKey key{0, 1000, 1000, 0600, false, {}};
    auto* slab = rig_.store.extents().add({0, 15 * kPage, 15 * kPage, false, key}, take_all_but(kPage));
    EXPECT_EQ(slab->objects, 0u);
    begin(4 * kPage, 4 * kPage);
    wait_until_refused();
    EXPECT_EQ(rig_.store.extents().count(), 0u);
    rig_.devices.reclaim();
    ASSERT_TRUE(end());
}

INSTANTIATE_TEST_SUITE_P(Ways, Allocation, ::testing::Values(Way::loop, Way::thread),
                         [](const auto& info) { return info.param == Way::loop ? "InTheLoop" : "InAThread"; });

// A request of the mount, on a device of which the kernel has not freed all bytes.
class Retry : public ::testing::Test {
protected:
    // The operation succeeds at that attempt. Returns the number of attempts made.
    int attempts_until(int success) {
        int attempts = 0;
        std::atomic<bool> ended = false;
        std::jthread thread([&] {
            result_ = rig_.allocator.retry(
                0, 0, [&] { return ++attempts == success ? Status{} : fail(ENOSPC, "full"); },
                [](bool) { return true; });
            ended = true;
            rig_.scheduler.post([] {});
        });
        rig_.scheduler.run_until([&] { return ended.load(); });
        return attempts;
    }
    MemoryDevice& device() { return static_cast<MemoryDevice&>(rig_.devices.first.upstream()); }

    MemoryRig rig_;
    Status result_;
};

TEST_F(Retry, GoesOnWhileTheKernelHasUnaccountedBytes) {
    device().set_unaccounted_bytes(MemoryRig::kPage);
    EXPECT_EQ(attempts_until(6), 6);
    EXPECT_TRUE(result_);
}

TEST_F(Retry, EndsWhenAllBytesAreAccountedFor) {
    EXPECT_LT(attempts_until(6), 6);
    ASSERT_FALSE(result_);
    EXPECT_EQ(result_.error().code, ENOSPC);
}

TEST(AllocationSteps, EndWithTheErrorWhenTheLeastWasAskedFor) {
    AllocationSteps steps(8, 2);
    EXPECT_EQ(AllocationSteps::attempted(fail(EIO, "broken")), AllocationSteps::Next::end);
    EXPECT_EQ(AllocationSteps::attempted(fail(ENOSPC, "full")), AllocationSteps::Next::wait);
    EXPECT_EQ(steps.waited(true), AllocationSteps::Next::attempt);
    EXPECT_EQ(steps.bytes(), 8u);
    EXPECT_EQ(steps.waited(false), AllocationSteps::Next::attempt);
    EXPECT_EQ(steps.bytes(), 2u);
    EXPECT_EQ(steps.waited(false), AllocationSteps::Next::end);
}

}  // namespace
}  // namespace gshm::core::test
