// Pools on host and on fake GPUs: contents, lookup by other processes, lifetime.
#include <random>

#include "pool_fixture.h"

namespace gshm::core::test::pools {
namespace {

class PoolTest : public PoolFixture {};
INSTANTIATE_TEST_SUITE_P(Devices, PoolTest, ::testing::Values("host", "cuda:0", "cuda:1"), [](const auto& info) {
    std::string name = info.param;
    std::erase(name, ':');
    return name;
});

TEST_P(PoolTest, MemoryIsAllocatedUsedAndGivenBack) {
    auto pool = make();
    EXPECT_EQ(info().used_bytes, 0u) << "nothing before it is needed";
    EXPECT_EQ(pool.allocate(0).value(), nullptr);
    EXPECT_TRUE(pool.deallocate(nullptr, 0));
    void* small = pool.allocate(1).value();
    void* odd = pool.allocate(123457, 4096, {}).value();
    void* large = pool.allocate(9 * kMiB + 1).value();
    EXPECT_EQ(reinterpret_cast<uint64_t>(odd) % 4096, 0u);
    write_to(small, 1, 1);
    write_to(odd, 123457, 2);
    write_to(large, 9 * kMiB + 1, 3);
    EXPECT_TRUE(holds_in(small, 1, 1));
    EXPECT_TRUE(holds_in(odd, 123457, 2));
    EXPECT_TRUE(holds_in(large, 9 * kMiB + 1, 3));
    auto stats = pool.stats().value();
    EXPECT_EQ(stats.slabs, 2u);
    EXPECT_EQ(stats.allocations, 3u);
    EXPECT_EQ(stats.used_bytes, 512u + 123904u + 9 * kMiB + 512);
    EXPECT_EQ(stats.reserved_bytes, info().used_bytes);
    EXPECT_TRUE(pool.deallocate(large, 9 * kMiB + 1));
    EXPECT_TRUE(pool.deallocate(odd, 123457));
    EXPECT_TRUE(pool.deallocate(small, 0)) << "whatever its size";
    stats = pool.stats().value();
    EXPECT_EQ(stats.used_bytes, 0u);
    EXPECT_EQ(stats.allocations, 0u);
    EXPECT_GE(stats.peak_used_bytes, 9 * kMiB);
    ASSERT_TRUE(pool.trim());
    EXPECT_EQ(pool.stats().value().slabs, 0u);
    EXPECT_TRUE(eventually([&] { return info().used_bytes == 0; }));
    EXPECT_TRUE(hpp_.list("").value().empty()) << "no name stays";
}

TEST_P(PoolTest, WhatIsWrongIsSaidAndChangesNothing) {
    auto pool = make({.limit_bytes = 8 * kMiB});
    EXPECT_EQ(code(pool.allocate(9 * kMiB)), ENOMEM);
    EXPECT_NE(pool.allocate(9 * kMiB).error().message.find("the pool may have"), std::string::npos);
    EXPECT_EQ(code(pool.allocate(~uint64_t{0})), ENOMEM);
    EXPECT_EQ(code(pool.allocate(1, 3, {})), EINVAL);
    void* memory = pool.allocate(1000).value();
    write_to(memory, 1000, 5);
    EXPECT_EQ(code(pool.deallocate(memory, 999)), EINVAL);
    EXPECT_EQ(code(pool.deallocate(static_cast<char*>(memory) + 512, 0)), EINVAL);
    EXPECT_EQ(code(pool.deallocate(&pool, 0)), EINVAL);
    EXPECT_EQ(hpp::locate(&pool).error().code, EINVAL);
    EXPECT_EQ(hpp::locate(static_cast<char*>(memory) + 1000).error().code, EINVAL);
    EXPECT_TRUE(holds_in(memory, 1000, 5));
    ASSERT_TRUE(pool.deallocate(memory, 1000));
    EXPECT_EQ(code(pool.deallocate(memory, 1000)), EINVAL) << "twice";
    EXPECT_EQ(hpp::locate(memory).error().code, EINVAL);
    void* whole = pool.allocate(8 * kMiB).value();
    EXPECT_EQ(code(pool.allocate(1)), ENOMEM);
    EXPECT_TRUE(pool.deallocate(whole, 8 * kMiB));
    // The daemon reports a full device; the pool continues to work.
    auto open = make();
    EXPECT_EQ(code(open.allocate(uint64_t{4} << 30)), ENOSPC);
    EXPECT_TRUE(open.allocate(kMiB));
    EXPECT_EQ(Memory::create(hpp_, {.device = "cuda:9"}).error().code, ENODEV);
    EXPECT_EQ(Memory::create(hpp_, {.device = where(), .mode = 01777}).error().code, EINVAL);
    EXPECT_EQ(Memory::create(hpp_, {.device = where(), .mode = 0040}).error().code, EINVAL);
    EXPECT_EQ(Memory::create(hpp_, {.device = std::string("a\0b", 3)}).error().code, EINVAL);
    Memory none;
    EXPECT_EQ(code(none.allocate(1)), EINVAL);
    EXPECT_EQ(none.stats().error().code, EINVAL);
    EXPECT_EQ(code(none.trim()), EINVAL);
}

TEST_P(PoolTest, AnotherProcessOpensWhatWasLocated) {
    auto pool = make();
    void* other = pool.allocate(10000).value();
    write_to(other, 10000, 1);
    auto* memory = static_cast<std::byte*>(pool.allocate(3 * kMiB).value());
    write_to(memory, 3 * kMiB, 7);
    const auto where_it_is = pool.locate(memory).value();
    EXPECT_EQ(where_it_is.size_bytes, 3 * kMiB);
    EXPECT_EQ(std::string_view(where_it_is.device), where());
    const auto middle = hpp::locate(memory + kMiB).value();
    EXPECT_EQ(middle.id, where_it_is.id);
    EXPECT_EQ(middle.offset, where_it_is.offset + kMiB);
    EXPECT_EQ(middle.size_bytes, 2 * kMiB);
    const std::string folder = dir();
    const int result = in_child([&] {
        auto client = hpp::Client::connect({.dir = folder});
        if (!client) return 1;
        auto object = client->open_id(where_it_is.id, {.write = true, .map = on_host()});
        if (!object) return 2;
        Bytes data(3 * kMiB);
        if (!object->copy_out(data, where_it_is.offset) || data != pattern_of(3 * kMiB, 7)) return 3;
        if (on_host() && std::memcmp(object->data_as<std::byte>() + where_it_is.offset, data.data(), data.size()) != 0)
            return 4;
        // The memory is shared: writes there are visible here.
        return object->fill(0x5A, middle.offset, 100) ? 0 : 5;
    });
    EXPECT_EQ(result, 0);
    Bytes data(100);
    ASSERT_TRUE(wrapped(memory + kMiB, 100).copy_out(data));
    EXPECT_EQ(data, Bytes(100, std::byte{0x5A}));
    EXPECT_TRUE(holds_in(other, 10000, 1));
}

TEST_P(PoolTest, ModeSaysWhoMayOpenIt) {
    if (getuid() != 0) GTEST_SKIP() << "needs root, to be somebody else";
    std::filesystem::permissions(dir(), std::filesystem::perms::others_exec, std::filesystem::perm_options::add);
    for (uint32_t mode : {0600u, 0644u}) {
        auto pool = make({.mode = mode, .name = mode == 0600 ? "mine" : "everybody/may/read"});
        const auto there = pool.locate(pool.allocate(1000).value()).value();
        const std::string folder = dir();
        const int opened = in_child(
            [&] {
                auto client = hpp::Client::connect({.dir = folder});
                if (!client) return 1;
                auto object = client->open_id(there.id, {.map = false});
                return object ? 0 : object.error().code;
            },
            65534);
        EXPECT_EQ(opened, mode == 0600 ? ENOENT : 0);  // as for an id that does not exist
    }
    EXPECT_TRUE(hpp_.list("").value().empty());
}

TEST_P(PoolTest, AReaderKeepsTheMemory) {
    auto pool = make();
    void* memory = pool.allocate(2 * kMiB).value();
    write_to(memory, 2 * kMiB, 9);
    const auto there = pool.locate(memory).value();
    auto reader = hpp_.open_id(there.id).value();
    pool = {};
    Bytes data(2 * kMiB);
    ASSERT_TRUE(reader.copy_out(data, there.offset));
    EXPECT_EQ(data, pattern_of(2 * kMiB, 9));
    EXPECT_EQ(hpp::locate(memory).error().code, EINVAL);
    EXPECT_GT(info().used_bytes, 0u);
    reader = {};
    EXPECT_TRUE(eventually([&] { return info().used_bytes == 0; }));
}

TEST_P(PoolTest, RandomPiecesKeepTheirBytes) {
    auto pool = make({.limit_bytes = 96 * kMiB});
    std::mt19937 random(3);
    struct Piece {
        void* memory;
        size_t bytes;
        unsigned seed;
    };
    std::vector<Piece> live;
    for (unsigned step = 0; step < 600; ++step) {
        if (random() % 5 < 3 || live.empty()) {
            const size_t bytes = random() % 4 == 0 ? random() % (4 * kMiB) + 1 : random() % 50000 + 1;
            auto memory = pool.allocate(bytes);
            if (!memory) {
                ASSERT_EQ(memory.error().code, ENOMEM);
                continue;
            }
            write_to(*memory, bytes, step);
            live.push_back({*memory, bytes, step});
        } else {
            std::swap(live[random() % live.size()], live.back());
            const Piece piece = live.back();
            live.pop_back();
            ASSERT_TRUE(holds_in(piece.memory, piece.bytes, piece.seed)) << step;
            ASSERT_TRUE(pool.deallocate(piece.memory, piece.bytes));
        }
    }
    for (const auto& piece : live) {
        EXPECT_TRUE(holds_in(piece.memory, piece.bytes, piece.seed));
        EXPECT_TRUE(pool.deallocate(piece.memory, piece.bytes));
    }
    EXPECT_EQ(pool.stats().value().used_bytes, 0u);
    EXPECT_TRUE(pool.trim());
    EXPECT_EQ(pool.stats().value().slabs, 0u);
}

TEST_P(PoolTest, ThreadsShareAPool) {
    auto pool = make({.slab_bytes = 2 * kMiB});
    std::vector<std::thread> threads;
    std::atomic<int> failures = 0;
    for (unsigned t = 1; t <= 6; ++t) {
        threads.emplace_back([&, t] {
            std::mt19937 random(t);
            std::vector<std::pair<void*, size_t>> mine;
            for (int step = 0; step < 150; ++step) {
                if (random() % 2 == 0 || mine.empty()) {
                    const size_t bytes = random() % 300000 + 1;
                    auto memory = pool.allocate(bytes, reinterpret_cast<void*>(2));  // the per-thread stream
                    if (!memory) {
                        ++failures;
                        continue;
                    }
                    write_to(*memory, bytes, t);
                    mine.emplace_back(*memory, bytes);
                } else {
                    auto [memory, bytes] = mine.back();
                    mine.pop_back();
                    if (!hpp::locate(memory) || !holds_in(memory, bytes, t)) ++failures;
                    if (!pool.deallocate(memory, bytes, reinterpret_cast<void*>(2))) ++failures;
                }
            }
            for (auto [memory, bytes] : mine) {
                if (!holds_in(memory, bytes, t) || !pool.deallocate(memory, bytes, reinterpret_cast<void*>(2)))
                    ++failures;
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(failures, 0);
    ASSERT_TRUE(pool.trim());
    EXPECT_EQ(pool.stats().value().reserved_bytes, 0u);
}

TEST_P(PoolTest, MemoryOutlivesTheDaemon) {
    auto pool = make();
    void* memory = pool.allocate(3 * kMiB).value();
    write_to(memory, 3 * kMiB, 4);
    const auto before = pool.locate(memory).value();
    kill();
    EXPECT_TRUE(holds_in(memory, 3 * kMiB, 4));
    void* without = pool.allocate(100).value();  // needs neither daemon nor driver
    EXPECT_TRUE(pool.deallocate(without, 100));
    ASSERT_TRUE(again()) << log();
    void* more = pool.allocate(8 * kMiB).value();  // from the new daemon
    write_to(more, 8 * kMiB, 5);
    EXPECT_TRUE(holds_in(memory, 3 * kMiB, 4));
    EXPECT_EQ(pool.locate(memory).value().id, before.id);
    auto reader = hpp_.open_id(before.id).value();
    Bytes data(3 * kMiB);
    ASSERT_TRUE(reader.copy_out(data, before.offset));
    EXPECT_EQ(data, pattern_of(3 * kMiB, 4));
    EXPECT_NE(pool.locate(more).value().id, before.id);
    reader = {};
    EXPECT_TRUE(pool.deallocate(memory, 3 * kMiB));
    EXPECT_TRUE(pool.deallocate(more, 8 * kMiB));
    pool = {};
    EXPECT_TRUE(eventually([&] { return info().used_bytes == 0; }));
}

TEST_P(PoolTest, ADaemonThatGaveEverythingUpLeavesTheMemoryHere) {
    auto pool = make();
    void* memory = pool.allocate(3 * kMiB).value();
    write_to(memory, 3 * kMiB, 4);
    ASSERT_EQ(run_cli({"shutdown"}).exit_code, 0);
    ASSERT_TRUE(start({"--device", "host:256M", "--device", "cuda"}, daemon_env())) << log();
    EXPECT_TRUE(holds_in(memory, 3 * kMiB, 4));
    void* more = pool.allocate(8 * kMiB).value();
    EXPECT_TRUE(hpp_.open_id(pool.locate(more).value().id));
    EXPECT_EQ(pool.locate(memory).error().code, ESTALE) << "the new daemon does not know it";
    EXPECT_TRUE(pool.deallocate(memory, 3 * kMiB));
    EXPECT_TRUE(pool.deallocate(more, 8 * kMiB));
    ASSERT_TRUE(pool.trim());
    EXPECT_EQ(pool.stats().value().slabs, 0u);
    EXPECT_TRUE(eventually([&] { return info().used_bytes == 0; }));
}

TEST_P(PoolTest, NothingStaysOfAProcessThatIsKilled) {
    int ready[2];
    ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
    const std::string folder = dir();
    const pid_t child = fork();
    if (child == 0) {
        auto client = hpp::Client::connect({.dir = folder}).value();
        auto pool = Memory::create(client, {.device = where(), .slab_bytes = 4 * kMiB}).value();
        for (int i = 0; i < 10; ++i) (void)pool.allocate(3 * kMiB).value();
        (void)!write(ready[1], "x", 1);
        pause();
        _exit(0);
    }
    char byte = 0;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    EXPECT_GE(info().used_bytes, 30 * kMiB);
    EXPECT_EQ(hpp_.list("").value().size(), 1u);
    ::kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    EXPECT_TRUE(eventually([&] { return info().used_bytes == 0; }));
    EXPECT_TRUE(hpp_.list("").value().empty());
    close(ready[0]);
    close(ready[1]);
}

TEST_P(PoolTest, AForkedChildHasNoneOfIt) {
    auto pool = make();
    void* memory = pool.allocate(1000).value();
    write_to(memory, 1000, 8);
    const std::string folder = dir();
    const int result = in_child([&] {
        if (code(pool.allocate(10)) != ECHILD) return 1;
        if (code(pool.deallocate(memory, 1000)) != ECHILD) return 2;
        if (pool.stats().error().code != ECHILD) return 3;
        if (hpp::locate(memory).error().code != EINVAL) return 4;
        pool = {};  // only the copy in the child
        if (!on_host()) return 0;
        auto client = hpp::Client::connect({.dir = folder});
        auto own = Memory::create(*client, {.device = where()});
        if (!own || !own->allocate(100)) return 5;
        return hpp::locate(own->allocate(100).value()) ? 0 : 6;
    });
    EXPECT_EQ(result, 0);
    EXPECT_TRUE(holds_in(memory, 1000, 8));
    EXPECT_TRUE(pool.locate(memory));
    EXPECT_TRUE(pool.deallocate(memory, 1000));
}

}  // namespace
}  // namespace gshm::core::test::pools
