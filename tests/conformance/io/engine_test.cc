// Many transfers: more than the engine starts at once or has staging memory for, from several sources and engines.
#include <chrono>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>

#include "rig.h"

namespace gshm::core::io::test {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class Many : public IoSuite {
protected:
    // Verified reads of all sizes from one file.
    static void read_all(TestSource& source, TestFile& file, Memory& memory, uint64_t count, uint64_t seed) {
        constexpr uint64_t kRoom = 256 << 10;
        gshm::core::test::Random random(seed);
        std::vector<std::unique_ptr<TestTransfer>> transfers;
        for (uint64_t i = 0; i < count; ++i) {
            transfers.push_back(std::make_unique<TestTransfer>(Direction::read, file.file(), random.below(4 * kMiB),
                                                               memory.address() + i * kRoom + random.below(4096),
                                                               memory.copier(), 1 + random.below(kRoom - 4096)));
            source.put(*transfers.back());
        }
        for (auto& transfer : transfers) {
            source.wait(*transfer);
            ASSERT_TRUE(transfer->result) << transfer->result.error().message;
            ASSERT_EQ(*transfer->result, transfer->bytes);
            const std::string got = memory.get(transfer->address - memory.address(), transfer->bytes);
            ASSERT_EQ(gshm::core::test::first_wrong(got, 1, transfer->file_offset), got.size());
        }
    }
};

TEST_P(Many, MoreThanTheDepth) {
    TestFile file(pattern(5 * kMiB, 1));
    Memory memory(device(), 300 << 18);
    for (unsigned depth : {1U, 2U, 7U}) {
        source_.reset();
        engine_ = *make_engine({.depth = depth});
        source_ = std::make_unique<TestSource>(*engine_);
        file.evict();
        read_all(*source_, file, memory, 300, depth);
        auto large = read(file, 0, memory, 1, 5 * kMiB);
        EXPECT_EQ(*source_->run(large), 5 * kMiB);
    }
}

TEST_P(Many, EnginesShareStagingMemory) {
    TestFile file(pattern(30 * kMiB, 1));
    auto staging = *Staging::create(device(), Staging::kLargeChunkBytes);
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < 4; ++i) {
        threads.emplace_back([&, i] {
            auto engine = *make_engine({.depth = 32}, staging);
            TestSource source(*engine);
            Memory memory(device(), 64 * kMiB);
            auto large = read(file, i * 333, memory, 32 * kMiB, 29 * kMiB);
            auto back = write(file, 0, memory, 0, 0);
            source.put(large);
            source.put(back);
            read_all(source, file, memory, 100, i);
            source.wait(large);
            ASSERT_TRUE(large.result) << large.result.error().message;
            ASSERT_EQ(gshm::core::test::first_wrong(memory.get(32 * kMiB, 29 * kMiB), 1, i * 333), 29 * kMiB);
        });
    }
    for (auto& thread : threads) thread.join();
}

TEST_P(Many, EachDoneStartsTheNext) {
    TestFile file(pattern(kMiB, 1));
    Memory memory(device(), kMiB);
    auto transfer = read(file, 0, memory, 0, 4096);
    unsigned left = 500;
    // Submits the same transfer again from its done().
    struct Again final : Transfer {
        Engine* engine = nullptr;
        unsigned left = 500;
        std::atomic<bool> ended{false};
        void done(Result<uint64_t> got) override {
            if (!got || *got != bytes) left = 1000;
            file_offset = left * 512;
            if (left == 0 || left == 1000) {
                ended = true;
                ended.notify_one();
                return;
            }
            --left;
            engine->start(*this);
        }
    } again;
    again.engine = engine_.get();
    again.file = &file.file();
    again.address = memory.address();
    again.copier = memory.copier();
    again.bytes = 4096;
    transfer.when_done = [&] { engine_->start(again); };
    ASSERT_TRUE(source_->run(transfer));
    again.ended.wait(false);
    EXPECT_EQ(again.left, 0u);
    EXPECT_EQ(left, 500u);
}

TEST_P(Many, RemovedWithTransfersUnderWay) {
    TestFile file(pattern(40 * kMiB, 1));
    Memory memory(device(), 40 * kMiB);
    for (int round = 0; round < 5; ++round) {
        TestSource leaving(*engine_);
        std::vector<std::unique_ptr<TestTransfer>> transfers;
        for (uint64_t i = 0; i < 200; ++i) {
            transfers.push_back(std::make_unique<TestTransfer>(i % 10 == 0 ? Direction::write : Direction::read,
                                                               file.file(), i * 4096, memory.address() + i * 4096,
                                                               memory.copier(), i % 50 == 0 ? 20 * kMiB : 4096));
            leaving.put(*transfers.back());
        }
        if (round % 2 == 0) usleep(500);
        leaving.leave();
        const unsigned polls = leaving.polls();
        // Each transfer was either started, and is done, or was never taken.
        size_t done = 0;
        for (auto& transfer : transfers) done += transfer->is_done ? 1 : 0;
        EXPECT_EQ(done + leaving.not_taken(), transfers.size());
        eventfd_write(leaving.doorbell(), 1);
        auto other = read(file, 0, memory, 0, 4096);
        EXPECT_TRUE(source_->run(other));
        EXPECT_EQ(leaving.polls(), polls) << "called after it was removed";
    }
}

// Small transfers do not wait for large ones. How many run meanwhile depends on the machine; if they waited, it would
// be one.
TEST_P(Many, LargeOnesDoNotStarveSmallOnes) {
    TestFile file(pattern(256 * kMiB, 1));
    Memory memory(device(), 257 * kMiB);
    TestSource other(*engine_);
    auto large = write(file, 0, memory, 0, 256 * kMiB);
    auto second = write(file, 0, memory, 0, 256 * kMiB);
    source_->put(large);
    source_->put(second);
    unsigned done = 0;
    for (bool is_done = false; !is_done;) {
        auto small = read(file, 0, memory, 256 * kMiB, 4096);
        ASSERT_TRUE(other.run(small));
        ++done;
        usleep(100);
        auto probe = read(file, 0, memory, 256 * kMiB, 1);
        ASSERT_TRUE(other.run(probe));
        is_done = large.is_done && second.is_done;
    }
    EXPECT_GT(done, 3u);
    EXPECT_TRUE(large.result);
    source_->wait(second);
}

// An idle engine does not poll.
TEST_P(Many, Sleeps) {
    TestFile file(pattern(kMiB, 1));
    Memory memory(device(), kMiB);
    auto transfer = read(file, 0, memory, 0, 4096);
    ASSERT_TRUE(source_->run(transfer));
    usleep(50'000);
    const unsigned polls = source_->polls();
    usleep(200'000);
    EXPECT_EQ(source_->polls(), polls);
    ASSERT_TRUE(source_->run(transfer));
    EXPECT_LE(source_->polls(), polls + 6);
}

TEST_P(Many, SourcesComeAndGo) {
    TestFile file(pattern(kMiB, 1));
    Memory memory(device(), kMiB);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; ++i) {
        threads.emplace_back([&, i] {
            for (unsigned round = 0; round < 50; ++round) {
                TestSource source(*engine_);
                auto transfer = read(file, round * 512, memory, i * 8192, 4096);
                ASSERT_TRUE(source.run(transfer));
            }
        });
    }
    for (auto& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(All, Many, ::testing::ValuesIn(all_cases()), case_name);

class NoStaging : public IoSuite {};

TEST_P(NoStaging, IsSaid) {
    auto engine = *Engine::create(nullptr, {.allow_uring = GetParam().uring});
    TestSource source(*engine);
    TestFile file(pattern(kMiB, 1));
    Memory memory(device(), kMiB);
    auto transfer = read(file, 0, memory, 0, 4096);
    EXPECT_EQ(source.run(transfer).error().code, ENOMEM);
}

INSTANTIATE_TEST_SUITE_P(All, NoStaging, ::testing::ValuesIn(cuda_cases()), case_name);

}  // namespace
}  // namespace gshm::core::io::test
