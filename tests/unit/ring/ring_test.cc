// The two ends of a ring, and the reaction of one to invalid values of the other.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/futex.h"
#include "base/limits.h"
#include "ring/consumer.h"
#include "ring/producer.h"
#include "support/pattern.h"

namespace gshm::core::ring {
namespace {

using namespace std::chrono_literals;

Entry entry(uint32_t token) {
    return {1, token, 2, 3, 4, 5, 6, {}};
}

struct Pair {
    explicit Pair(uint32_t entries)
        : producer(Producer::create(entries).value()),
          consumer(
              Consumer::create(UniqueFd::clone(producer.memory()).value(), UniqueFd::clone(producer.doorbell()).value())
                  .value()) {}
    Header& header() const { return *reinterpret_cast<Header*>(memory.data()); }

    Producer producer;
    Consumer consumer;
    Mapping memory = Mapping::create(producer.memory(), memory_bytes(producer.entries()), true).value();
};

TEST(Ring, EntriesAndCompletionsGoRound) {
    Pair ring(4);
    for (uint32_t round = 0; round < 1000; ++round) {
        for (uint32_t i = 0; i < 3; ++i) ring.producer.push(entry(round * 3 + i));
        Entry taken;
        EXPECT_FALSE(ring.consumer.take(&taken)) << "before it is published";
        ring.producer.publish();
        for (uint32_t i = 0; i < 3; ++i) {
            ASSERT_TRUE(ring.consumer.take(&taken));
            EXPECT_EQ(taken.token, round * 3 + i);
            EXPECT_EQ(taken.bytes, 6u);
        }
        EXPECT_FALSE(ring.consumer.take(&taken));
        for (uint32_t i = 0; i < 3; ++i) ring.consumer.post({-5, i, 1});
        Completion completion;
        for (uint32_t i = 0; i < 3; ++i) {
            ASSERT_TRUE(ring.producer.take(&completion));
            EXPECT_EQ(completion.token, i);
            EXPECT_EQ(completion.result, -5);
        }
        EXPECT_FALSE(ring.producer.take(&completion));
    }
    EXPECT_FALSE(ring.producer.is_broken());
    EXPECT_FALSE(ring.consumer.is_broken());
}

// A missing page would be a SIGBUS later.
TEST(Ring, AllPagesAreThereFromTheBeginning) {
    for (uint32_t entries : {1u, 64u, limits::kRingEntries}) {
        auto producer = Producer::create(entries).value();
        struct stat status = {};
        ASSERT_EQ(fstat(producer.memory(), &status), 0);
        EXPECT_EQ(static_cast<size_t>(status.st_size), memory_bytes(entries));
        EXPECT_GE(static_cast<size_t>(status.st_blocks) * 512, memory_bytes(entries));
    }
}

TEST(Ring, NothingIsTakenThatCouldNotBeCompleted) {
    Pair ring(4);
    for (uint32_t i = 0; i < 4; ++i) ring.producer.push(entry(i));
    ring.producer.publish();
    Entry taken;
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(ring.consumer.take(&taken));
    for (uint32_t i = 0; i < 4; ++i) ring.consumer.post({0, i, 0});
    // A client that submits more before it has taken completions.
    for (uint32_t i = 0; i < 4; ++i) ring.producer.push(entry(4 + i));
    ring.producer.publish();
    EXPECT_FALSE(ring.consumer.take(&taken));
    EXPECT_FALSE(ring.consumer.is_broken());
    Completion completion;
    ASSERT_TRUE(ring.producer.take(&completion));
    EXPECT_TRUE(ring.consumer.take(&taken));
    EXPECT_FALSE(ring.consumer.take(&taken));
}

TEST(Ring, TheDoorbellRingsOnlyForWhoSleeps) {
    Pair ring(4);
    eventfd_t count = 0;
    ring.producer.push(entry(0));
    ring.producer.publish();
    EXPECT_EQ(eventfd_read(ring.consumer.doorbell(), &count), -1);
    ring.consumer.set_asleep(true);
    ring.producer.push(entry(1));
    ring.producer.publish();
    ASSERT_EQ(eventfd_read(ring.consumer.doorbell(), &count), 0);
    EXPECT_EQ(count, 1u);
}

TEST(Ring, WhoWaitsForSeveralIsWokenWhenTheyAreThere) {
    Pair ring(8);
    for (uint32_t i = 0; i < 3; ++i) ring.producer.push(entry(i));
    ring.producer.publish();
    std::thread daemon([&] {
        Entry taken;
        for (uint32_t i = 0; i < 3; ++i) {
            ASSERT_TRUE(ring.consumer.take(&taken));
            std::this_thread::sleep_for(2ms);
            ring.consumer.post({1, i, 0});
            ring.consumer.flush();
        }
    });
    while (ring.producer.available() < 3) {
        ring.producer.announce(3);
        const uint32_t now = ring.producer.word().load();
        if (ring.producer.available() >= 3) break;
        const Awaited awaited{&ring.producer.word(), now};
        wait_for_any({&awaited, 1}, 10s);
    }
    ring.producer.withdraw();
    daemon.join();
    EXPECT_EQ(ring.producer.available(), 3u);
}

TEST(Ring, EitherOfTwoWordsWakes) {
    for (int which = 0; which < 2; ++which) {
        std::atomic<uint32_t> words[2] = {0, 0};
        std::thread other([&] {
            std::this_thread::sleep_for(2ms);
            words[which] = 1;
            wake(words[which]);
        });
        const Awaited awaited[] = {{&words[0], 0}, {&words[1], 0}};
        while (words[which] == 0) wait_for_any(awaited, 10s);
        other.join();
    }
}

TEST(Ring, ADaemonBelievesNoCounter) {
    for (uint32_t lie : {5u, 100u, 1u << 31, ~0u}) {
        Pair ring(4);
        ring.header().submitted = lie;
        Entry taken;
        EXPECT_FALSE(ring.consumer.take(&taken)) << lie;
        EXPECT_TRUE(ring.consumer.is_broken());
        ring.header().submitted = 1;
        EXPECT_FALSE(ring.consumer.take(&taken)) << "broken for good";
    }
    for (uint32_t lie : {1u, 77u, 1u << 31, ~0u}) {
        Pair ring(4);
        ring.producer.push(entry(0));
        ring.producer.publish();
        ring.header().taken = lie;
        Entry taken;
        EXPECT_FALSE(ring.consumer.take(&taken)) << lie;
        EXPECT_TRUE(ring.consumer.is_broken());
    }
}

TEST(Ring, AClientBelievesNoCounter) {
    Pair ring(4);
    ring.header().completed = 5;
    Completion completion;
    EXPECT_FALSE(ring.producer.take(&completion));
    EXPECT_TRUE(ring.producer.is_broken());
}

// The daemon never reads back values that it wrote for the client.
TEST(Ring, RandomBytesHarmNobody) {
    test::Random random(7);
    for (int round = 0; round < 200; ++round) {
        Pair ring(8);
        uint32_t under_way = 0;
        for (int step = 0; step < 200 && !ring.consumer.is_broken(); ++step) {
            if (random.below(4) == 0) {
                const size_t at = 64 + random.below(memory_bytes(8) - 64);
                ring.memory.data()[at] = static_cast<std::byte>(random.next());
            } else if (random.below(2) == 0) {
                ring.producer.push(entry(static_cast<uint32_t>(step)));
                ring.producer.publish();
            }
            Entry taken;
            while (ring.consumer.take(&taken)) ASSERT_LE(++under_way, 8u + 8u);
            if (under_way > 0 && random.below(2) == 0) {
                ring.consumer.post({0, 0, 0});
                --under_way;
            }
        }
    }
}

TEST(Ring, WhatIsNoRingIsRefused) {
    auto doorbell = [] { return UniqueFd::adopt(eventfd(0, EFD_CLOEXEC)); };
    auto made = Producer::create(8).value();
    auto memory = [&] { return UniqueFd::clone(made.memory()).value(); };
    EXPECT_TRUE(Consumer::create(memory(), doorbell()));
    EXPECT_FALSE(Consumer::create(memory(), UniqueFd::adopt(open("/dev/null", O_RDWR | O_CLOEXEC)))) << "no eventfd";
    EXPECT_FALSE(Consumer::create(UniqueFd::adopt(open("/dev/zero", O_RDWR | O_CLOEXEC)), doorbell()));
    auto unsealed = UniqueFd::adopt(memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(unsealed.get(), static_cast<off_t>(memory_bytes(8))), 0);
    EXPECT_FALSE(Consumer::create(UniqueFd::clone(unsealed.get()).value(), doorbell())) << "may shrink";
    ASSERT_EQ(fcntl(unsealed.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    EXPECT_FALSE(Consumer::create(UniqueFd::clone(unsealed.get()).value(), doorbell())) << "has no pages";
    auto mapping = Mapping::create(made.memory(), memory_bytes(8), true).value();
    auto& header = *reinterpret_cast<Header*>(mapping.data());
    for (uint32_t entries : {0u, 3u, 16u, limits::kRingEntries * 2, ~0u}) {
        header.entries = entries;
        EXPECT_FALSE(Consumer::create(memory(), doorbell())) << entries;
    }
    header.entries = 8;
    header.version = 2;
    EXPECT_FALSE(Consumer::create(memory(), doorbell()));
}

}  // namespace
}  // namespace gshm::core::ring
