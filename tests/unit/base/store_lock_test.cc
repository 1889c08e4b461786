#include <latch>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/store_lock.h"

namespace gshm::core::test {
namespace {

TEST(StoreMutexTest, EveryActionRunsOnceAndAlone) {
    constexpr int kThreads = 6;
    constexpr int kRounds = 2000;
    StoreMutex mutex;
    int count = 0;  // not atomic: ThreadSanitizer sees two actions at a time
    std::vector<int> runs(kThreads);
    std::vector<std::thread> threads;
    for (int number = 0; number < kThreads; ++number) {
        threads.emplace_back([&, number] {
            for (int round = 0; round < kRounds; ++round) {
                bool ran = false;
                mutex.run([&] {
                    ASSERT_TRUE(mutex.is_mine());
                    ran = true;
                    ++count;
                    ++runs[number];
                });
                ASSERT_TRUE(ran) << "run() returns after its action";
                ASSERT_FALSE(mutex.is_mine());
                if (round % 3 == 0) {
                    StoreLock lock(mutex);
                    ++count;
                }
                if (round % 5 == 0) {
                    SharedStoreLock lock(mutex);
                    ASSERT_LE(count, kThreads * kRounds * 2);
                }
            }
        });
    }
    for (auto& thread : threads) thread.join();
    for (int each : runs) EXPECT_EQ(each, kRounds);
    EXPECT_EQ(count, kThreads * (kRounds + (kRounds + 2) / 3));
}

TEST(StoreMutexTest, ActionsOfWaitingThreadsRunInOrder) {
    StoreMutex mutex;
    std::vector<int> order;
    std::vector<std::thread> threads;
    {
        StoreLock lock(mutex);
        for (int number = 0; number < 4; ++number) {
            std::latch is_next(1);
            threads.emplace_back([&, number] {
                is_next.count_down();
                mutex.run([&] { order.push_back(number); });
            });
            is_next.wait();
            while (mutex.waiting() != static_cast<size_t>(number) + 1) std::this_thread::yield();
        }
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(order, (std::vector{0, 1, 2, 3}));
}

}  // namespace
}  // namespace gshm::core::test
