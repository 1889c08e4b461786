// Rings with GSHM_RING_SHARED: several threads that prepare, submit and wait at the same time.
#include <atomic>
#include <barrier>

#include "base/fd.h"
#include "integration/ring_fixture.h"
#include "support/silent_file.h"

namespace gshm::core::test {
namespace {

class SharedRingTest : public RingTest {
protected:
    static Object allocate(uint64_t bytes) {
        gshm_object* handle = nullptr;
        EXPECT_EQ(gshm_allocate(where(), bytes, 0, &handle), 0) << gshm_last_error();
        return Object(handle);
    }
};

// Takes completions, as other threads do, until the operations [begin, end) are complete. Any thread may take them.
void take_until_done(gshm_ring* ring, std::vector<std::atomic<int64_t>>& results, size_t begin, size_t end,
                     int patience_ms) {
    const auto is_done = [&] {
        for (size_t i = begin; i < end; ++i) {
            if (results[i] == 0) return false;
        }
        return true;
    };
    while (!is_done()) {
        gshm_completion completions[4];
        const int taken = gshm_ring_wait(ring, completions, 4, 1, patience_ms);
        ASSERT_GE(taken, 0) << gshm_last_error();
        for (int i = 0; i < taken; ++i) results[completions[i].user_data] += completions[i].result;
        if (taken == 0) std::this_thread::yield();  // another thread has them, and is about to say so
    }
}

TEST_P(SharedRingTest, ThreadsThatSubmitAndWaitAllMakeProgress) {
    constexpr size_t kThreads = 6, kRounds = 20, kEach = 4;
    constexpr uint64_t kBytes = kMiB / 4;
    const std::string bytes = pattern(kEach * kBytes, 6);
    const int fd = make_file("f", bytes);
    auto ring = make_ring(16);  // fewer entries than the threads want
    const uint32_t file = add(ring, fd);
    std::vector<std::atomic<int64_t>> results(kThreads * kRounds * kEach);
    std::vector<std::thread> threads;
    std::atomic<int> good = 0;
    std::barrier start(kThreads);
    for (size_t t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
            // Objects of gshmd, and memory that this process serves itself.
            Object object = t % 2 == 0 ? create(client_.get(), ("t" + std::to_string(t)).c_str(), kEach * kBytes,
                                                where(), GSHM_NO_MAP)
                                       : allocate(kEach * kBytes);
            start.arrive_and_wait();
            for (size_t round = 0; round < kRounds; ++round) {
                const size_t begin = (t * kRounds + round) * kEach;
                for (size_t i = 0; i < kEach; ++i) {
                    int code = -EAGAIN;
                    while (code == -EAGAIN) {
                        code = prepare(ring, GSHM_IO_READ, file, i * kBytes, {{object.get(), i * kBytes, kBytes}},
                                       begin + i);
                        if (code != -EAGAIN) break;
                        EXPECT_GE(gshm_ring_submit(ring.get()), 0) << gshm_last_error();
                        gshm_completion completion;
                        const int taken = gshm_ring_wait(ring.get(), &completion, 1, 1, kPatience);
                        EXPECT_GE(taken, 0) << gshm_last_error();
                        if (taken == 1) results[completion.user_data] += completion.result;
                    }
                    EXPECT_EQ(code, 0) << gshm_last_error();
                }
                EXPECT_GE(gshm_ring_submit(ring.get()), 0) << gshm_last_error();
                take_until_done(ring.get(), results, begin, begin + kEach, kPatience);
            }
            if (bytes_of(object.get()) == bytes) ++good;
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(good, static_cast<int>(kThreads));
    for (const auto& result : results) EXPECT_EQ(result, static_cast<int64_t>(kBytes)) << "each exactly once";
    gshm_completion completion;
    EXPECT_EQ(gshm_ring_wait(ring.get(), &completion, 1, 1, -1), 0) << "nothing is left";
}

// A thread sleeps for a transfer that does not end. It gets what another thread submits meanwhile, of both kinds.
TEST_P(SharedRingTest, ASleepingThreadTakesWhatOthersSubmit) {
    auto hung = SilentFile::create(file_path("hung"), 10'000);
    if (!hung) GTEST_SKIP() << "mounting is not permitted here";
    const auto silent = UniqueFd::adopt(::open(file_path("hung").c_str(), O_RDONLY | O_CLOEXEC));
    const int fd = make_file("f", pattern(10'000, 1));
    auto ring = make_ring(8);
    const uint32_t silent_file = add(ring, silent.get());
    const uint32_t file = add(ring, fd);
    auto object = create(client_.get(), "o", 20'000, where(), GSHM_NO_MAP);
    Object own = allocate(10'000);
    ASSERT_EQ(prepare(ring, GSHM_IO_READ, silent_file, 0, {{object.get(), 0, 10'000}}, 1), 0);
    ASSERT_EQ(gshm_ring_submit(ring.get()), 1) << gshm_last_error();
    for (uint64_t round = 0; round < 10; ++round) {
        std::atomic<uint64_t> heard = 0;
        std::thread sleeper([&] {
            gshm_completion completion = {};
            EXPECT_EQ(gshm_ring_wait(ring.get(), &completion, 1, 1, kPatience), 1) << gshm_last_error();
            heard = completion.user_data;
        });
        gshm_object* target = round % 2 == 0 ? object.get() : own.get();
        EXPECT_EQ(prepare(ring, GSHM_IO_READ, file, 0, {{target, 0, 10'000}}, 100 + round), 0) << gshm_last_error();
        EXPECT_EQ(gshm_ring_submit(ring.get()), 1) << gshm_last_error();
        sleeper.join();
        EXPECT_EQ(heard, 100 + round);
    }
    // Woken from outside, it returns with nothing.
    std::thread sleeper([&] {
        gshm_completion completion = {};
        EXPECT_EQ(gshm_ring_wait(ring.get(), &completion, 1, 1, kPatience), 0) << gshm_last_error();
    });
    gshm_ring_wake(ring.get());
    sleeper.join();
    hung.reset();
    gshm_completion completion = {};
    ASSERT_EQ(gshm_ring_wait(ring.get(), &completion, 1, 1, kPatience), 1) << gshm_last_error();
    EXPECT_EQ(completion.user_data, 1u);
}

// The last completion goes to one of two threads that wait. The other returns with nothing.
TEST_P(SharedRingTest, AWaitEndsWhenNothingIsLeft) {
    const int fd = make_file("f", pattern(10'000, 1));
    auto ring = make_ring(8);
    const uint32_t file = add(ring, fd);
    auto object = create(client_.get(), "o", 10'000, where(), GSHM_NO_MAP);
    for (int round = 0; round < 20; ++round) {
        ASSERT_EQ(prepare(ring, GSHM_IO_READ, file, 0, {{object.get(), 0, 10'000}}, 7), 0);
        ASSERT_EQ(gshm_ring_submit(ring.get()), 1) << gshm_last_error();
        std::atomic<int> taken = 0;
        auto wait = [&] {
            gshm_completion completions[2];
            const int count = gshm_ring_wait(ring.get(), completions, 2, 2, -1);
            EXPECT_GE(count, 0) << gshm_last_error();
            taken += count;
        };
        std::thread other(wait);
        wait();
        other.join();
        EXPECT_EQ(taken, 1);
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, SharedRingTest, ::testing::Values("host shared", "cuda:0 shared"), ring_of);

}  // namespace
}  // namespace gshm::core::test
