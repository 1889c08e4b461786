// Requests that are interrupted, done in part, or fail, in the middle of a transfer.
#include <atomic>
#include <mutex>
#include <set>
#include <unistd.h>

#include "faulty_queue.h"
#include "rig.h"

namespace gshm::core::io::test {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class Faults : public IoSuite {
protected:
    void use(FaultyQueue::Decide decide, unsigned depth = 128) {
        source_.reset();
        engine_ = *make_wrapped({.depth = depth}, [decide](std::unique_ptr<Queue> queue) {
            return std::make_unique<FaultyQueue>(std::move(queue), decide);
        });
        source_ = std::make_unique<TestSource>(*engine_);
    }
};

// Delays events of ended watches, as the kernel may.
class LateQueue final : public Queue {
public:
    struct Seen {
        std::mutex mutex;
        std::vector<uint64_t> watched;
        std::vector<uint64_t> late;
    };
    LateQueue(std::unique_ptr<Queue> below, std::shared_ptr<Seen> seen)
        : below_(std::move(below)), seen_(std::move(seen)) {}
    void submit(const Request& request) override { below_->submit(request); }
    Status watch(int fd, uint64_t tag) override {
        std::lock_guard lock(seen_->mutex);
        seen_->watched.push_back(tag);
        return below_->watch(fd, tag);
    }
    void unwatch(int fd, uint64_t tag) override { below_->unwatch(fd, tag); }
    size_t wait(std::span<Event> events, bool block) override {
        const size_t taken = below_->wait(events.first(events.size() / 2), block);
        std::lock_guard lock(seen_->mutex);
        size_t more = 0;
        for (uint64_t tag : std::exchange(seen_->late, {})) events[taken + more++] = {tag, -ECANCELED};
        return taken + more;
    }
    bool is_uring() const override { return below_->is_uring(); }

private:
    std::unique_ptr<Queue> below_;
    std::shared_ptr<Seen> seen_;
};

TEST_P(Faults, WhatComesLateOfOneDoorbellIsNotTakenForAnother) {
    source_.reset();
    auto seen = std::make_shared<LateQueue::Seen>();
    engine_ = *make_wrapped(
        {}, [&](std::unique_ptr<Queue> queue) { return std::make_unique<LateQueue>(std::move(queue), seen); });
    for (int i = 0; i < 3; ++i) TestSource comes_and_goes(*engine_);
    source_ = std::make_unique<TestSource>(*engine_);
    TestFile file(pattern(kMiB, 1));
    Memory memory(device(), kMiB);
    auto transfer = read(file, 0, memory, 0, 4096);
    ASSERT_TRUE(source_->run(transfer));
    usleep(50'000);
    const unsigned polls = source_->polls();
    {
        std::lock_guard lock(seen->mutex);
        const std::set<uint64_t> different(seen->watched.begin(), seen->watched.end());
        EXPECT_EQ(different.size(), seen->watched.size()) << "a tag was used twice";
        // The first is the mailbox's, and the last is in use.
        seen->late.assign(seen->watched.begin() + 1, seen->watched.end() - 1);
    }
    TestSource wakes_the_engine(*engine_);
    usleep(50'000);
    EXPECT_EQ(source_->polls(), polls);
    ASSERT_TRUE(source_->run(transfer));
}

// Holds requests back until the test releases them, like a file that does not respond.
class HoldingQueue final : public Queue {
public:
    struct Gate {
        std::atomic<bool> holds{true};
        std::atomic<size_t> held{0};
    };
    HoldingQueue(std::unique_ptr<Queue> below, std::shared_ptr<Gate> gate)
        : below_(std::move(below)), gate_(std::move(gate)) {}
    void submit(const Request& request) override {
        held_.push_back(request);
        gate_->held = held_.size();
    }
    Status watch(int fd, uint64_t tag) override { return below_->watch(fd, tag); }
    void unwatch(int fd, uint64_t tag) override { below_->unwatch(fd, tag); }
    size_t wait(std::span<Event> events, bool block) override {
        if (!gate_->holds) {
            for (const Request& request : std::exchange(held_, {})) below_->submit(request);
        }
        return below_->wait(events, block);
    }
    bool is_uring() const override { return below_->is_uring(); }

private:
    std::unique_ptr<Queue> below_;
    std::shared_ptr<Gate> gate_;
    std::vector<Request> held_;
};

// A user whose files do not respond holds staging memory for long, and other users continue.
TEST_P(Faults, OneUserDoesNotTakeAllStagingMemory) {
    if (!GetParam().cuda) GTEST_SKIP() << "no staging memory is needed";
    auto gate = std::make_shared<HoldingQueue::Gate>();
    auto hung_engine = *make_wrapped({.staging_user = 1}, [&](std::unique_ptr<Queue> queue) {
        return std::make_unique<HoldingQueue>(std::move(queue), gate);
    });
    TestSource hung_source(*hung_engine);
    TestFile file(pattern(100 * kMiB, 1));
    Memory memory(device(), 200 * kMiB);
    std::vector<std::unique_ptr<TestTransfer>> hung;
    for (uint64_t bytes : {100 * kMiB, 20 * kMiB, kMiB, uint64_t{4096}}) {
        hung.push_back(
            std::make_unique<TestTransfer>(Direction::read, file.file(), 0, memory.address(), memory.copier(), bytes));
        hung_source.put(*hung.back());
        // The largest first, so that they would take all the memory.
        for (size_t before = 0; gate->held == 0 || gate->held != before; usleep(50'000)) before = gate->held;
    }
    source_.reset();
    engine_ = *make_engine({.staging_user = 2});
    source_ = std::make_unique<TestSource>(*engine_);
    auto other = read(file, 5, memory, 100 * kMiB, 90 * kMiB);
    source_->put(other);
    for (int i = 0; i < 1000 && !other.is_done; ++i) usleep(10'000);
    EXPECT_TRUE(other.is_done) << "it waits for another's";
    gate->holds = false;
    hung_engine->poke(hung_source);
    source_->wait(other);
    ASSERT_TRUE(other.result);
    EXPECT_EQ(*other.result, 90 * kMiB);
    EXPECT_EQ(gshm::core::test::first_wrong(memory.get(100 * kMiB, 90 * kMiB), 1, 5), 90 * kMiB);
    for (auto& transfer : hung) {
        hung_source.wait(*transfer);
        EXPECT_TRUE(transfer->result);
    }
}

struct Hears final : Staging::Listener {
    void chunk_is_back() override { ++count; }
    int count = 0;
};

TEST_P(Faults, WhoHasStagingMemoryLeavesSomeToOthers) {
    auto staging = *Staging::create(device(), 64 * kMiB);
    Hears hears;
    auto take_all = [&](Staging::User user, size_t bytes) {
        std::vector<Chunk> chunks;
        while (Chunk chunk = staging->take(bytes, true, hears, user)) chunks.push_back(chunk);
        return chunks;
    };
    auto bytes_of = [](const std::vector<Chunk>& chunks) {
        size_t bytes = 0;
        for (const Chunk& chunk : chunks) bytes += chunk.bytes;
        return bytes;
    };
    std::vector<std::vector<Chunk>> taken;
    taken.push_back(take_all(1, Staging::kLargeChunkBytes));
    EXPECT_EQ(bytes_of(taken[0]), 48 * kMiB);
    for (Staging::User user = 2; user < 5; ++user) {
        taken.push_back(take_all(user, Staging::kLargeChunkBytes));
        EXPECT_FALSE(taken.back().empty()) << user;
    }
    EXPECT_EQ(hears.count, 0);
    for (size_t i = 0; i < taken.size(); ++i) {
        for (const Chunk& chunk : taken[i]) staging->give(chunk, i + 1);
    }
    EXPECT_EQ(hears.count, 1);
    auto all = take_all(Staging::kAlone, Staging::kLargeChunkBytes);
    EXPECT_EQ(bytes_of(all), 64 * kMiB);
    for (const Chunk& chunk : all) staging->give(chunk);
    // The only chunk is available to a user without chunks.
    auto small = *Staging::create(device(), Staging::kLargeChunkBytes);
    Chunk whole = small->take(Staging::kLargeChunkBytes, false, hears, 1);
    EXPECT_TRUE(whole);
    small->give(whole, 1);
    small->forget(hears);
    staging->forget(hears);
}

// After a partial completion the rest follows, through the right descriptor.
TEST_P(Faults, ShortAndInterrupted) {
    use([random = std::make_shared<gshm::core::test::Random>(1)](const Request& request,
                                                                 uint64_t) -> std::optional<int32_t> {
        switch (random->below(8)) {
            case 0: return -EINTR;
            case 1: return -EAGAIN;
            case 2: return 1 + static_cast<int32_t>(random->below(request.bytes));
            case 3: return 1 + static_cast<int32_t>(random->below(std::min(request.bytes, 5000U)));
            case 4: return 4096;
            case 5: return 512;
            default: return std::nullopt;
        }
    });
    const std::string content = pattern(5 * kMiB + 321, 1);
    Memory memory(device(), content.size() + 8192);
    gshm::core::test::Random random(2);
    for (int round = 0; round < 40; ++round) {
        TestFile from(content);
        TestFile to;
        if (round % 2 == 0) from.evict();
        from.open_again();
        const uint64_t offset = random.below(2) == 0 ? random.below(9000) : random.below(3) * 4096;
        const uint64_t at = random.below(2) == 0 ? random.below(5000) : 4096;
        const uint64_t bytes = random.below(3) == 0 ? random.below(20'000) : content.size() - offset;
        auto in = read(from, offset, memory, at, bytes);
        auto got = source_->run(in);
        ASSERT_TRUE(got) << got.error().message;
        ASSERT_EQ(*got, std::min(bytes, content.size() - offset));
        ASSERT_TRUE(memory.get(at, *got) == content.substr(offset, *got)) << round;
        auto out = write(to, offset, memory, at, *got);
        auto wrote = source_->run(out);
        ASSERT_TRUE(wrote) << wrote.error().message;
        ASSERT_TRUE(to.content() == (*got == 0 ? "" : std::string(offset, '\0') + content.substr(offset, *got)))
            << round;
    }
}

TEST_P(Faults, AnErrorInTheMiddle) {
    for (int code : {EIO, ENOSPC, EDQUOT}) {
        auto begun = std::make_shared<std::atomic<unsigned>>(0);
        use(
            [=](const Request& request, uint64_t) -> std::optional<int32_t> {
                ++*begun;
                if (request.offset >= 20 * kMiB && request.offset < 28 * kMiB) return -code;
                return std::nullopt;
            },
            8);
        TestFile file(pattern(100 * kMiB, 1));
        file.evict();
        Memory memory(device(), 100 * kMiB);
        for (auto way : {Direction::read, Direction::write}) {
            *begun = 0;
            TestTransfer transfer(way, file.file(), 0, memory.address(), memory.copier(), 100 * kMiB);
            auto got = source_->run(transfer);
            ASSERT_FALSE(got);
            EXPECT_EQ(got.error().code, code);
            EXPECT_LT(*begun, 60u) << "the rest was begun all the same";
            auto after = read(file, 0, memory, 0, kMiB);
            EXPECT_TRUE(source_->run(after)) << "the engine is well";
        }
    }
}

TEST_P(Faults, WritesThatGetNowhere) {
    use([](const Request& request, uint64_t) -> std::optional<int32_t> {
        if (request.is_write) return 0;
        return std::nullopt;
    });
    TestFile file;
    Memory memory(device(), kMiB);
    for (uint64_t bytes : {uint64_t{1}, uint64_t{4096}, kMiB}) {
        auto transfer = write(file, 0, memory, 0, bytes);
        EXPECT_EQ(source_->run(transfer).error().code, EIO);
    }
}

TEST_P(Faults, InterruptedForEver) {
    use([](const Request&, uint64_t) -> std::optional<int32_t> { return -EAGAIN; });
    TestFile file(pattern(kMiB, 1));
    Memory memory(device(), kMiB);
    auto transfer = read(file, 0, memory, 0, kMiB);
    EXPECT_EQ(source_->run(transfer).error().code, EAGAIN);
}

// Some file systems accept O_DIRECT but reject the requests.
TEST_P(Faults, DirectRefusedAfterAll) {
    int direct = -1;
    use([&direct](const Request& request, uint64_t) -> std::optional<int32_t> {
        if (request.fd == direct) return -EINVAL;
        return std::nullopt;
    });
    const std::string content = pattern(20 * kMiB + 5, 1);
    TestFile file(content);
    file.evict();
    direct = file.file().direct_fd();
    if (direct < 0) GTEST_SKIP() << "the folder for temporary files has no O_DIRECT";
    Memory memory(device(), content.size());
    auto transfer = read(file, 3, memory, 3, content.size() - 3);
    auto got = source_->run(transfer);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_TRUE(memory.get(3, *got) == content.substr(3));
    EXPECT_LT(file.file().direct_fd(), 0);
}

INSTANTIATE_TEST_SUITE_P(All, Faults, ::testing::ValuesIn(all_cases()), case_name);

}  // namespace
}  // namespace gshm::core::io::test
