// Pools on host and on fake GPUs, beside a real daemon: what is in them, who finds it, and what becomes of it.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>

#include "cuda/api.h"
#include "survival_fixture.h"
#include <gshm/pool.hpp>

namespace gshm::test {
namespace {

namespace hpp = ::gshm::v0;
using Memory = hpp::Pool;
using Bytes = std::vector<std::byte>;
constexpr uint64_t kMiB = 1 << 20;

// Rules for the fake driver of this process, which it reads whenever the file changes.
const std::string fault_file = [] {
    auto path = std::filesystem::temp_directory_path() / ("gshm-pool-" + std::to_string(getpid()) + ".faults");
    setenv("FAKECUDA_CONTROL", path.c_str(), 1);
    return path.string();
}();

template <typename Function>
Function* fake(const char* symbol) {
    return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, symbol));
}
unsigned long fake_calls(const char* symbol) {
    return fake<unsigned long(const char*)>("fakecuda_calls")(symbol);
}
// Of the driver in this process; "": none from now on.
void inject(const std::string& rules) {
    std::ofstream(fault_file + ".new") << rules;
    std::filesystem::rename(fault_file + ".new", fault_file);
}

Bytes pattern_of(size_t bytes, unsigned seed) {
    Bytes data(bytes);
    for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>((i * 131 + seed * 17 + (i >> 8)) & 0xFF);
    return data;
}
// As a program with these pointers would, on any device.
hpp::Object wrapped(void* memory, size_t bytes) {
    gshm_object* object = nullptr;
    EXPECT_EQ(gshm_wrap(memory, bytes, &object), 0) << gshm_last_error();
    return hpp::Object::adopt(object);
}
void write_to(void* memory, size_t bytes, unsigned seed) {
    EXPECT_TRUE(wrapped(memory, bytes).copy_in(pattern_of(bytes, seed)));
}
bool holds_in(void* memory, size_t bytes, unsigned seed) {
    Bytes data(bytes);
    return wrapped(memory, bytes).copy_out(data) && data == pattern_of(bytes, seed);
}

class PoolTest : public LibrarySurvivalTest, public ::testing::WithParamInterface<const char*> {
protected:
    void SetUp() override {
        ASSERT_NO_FATAL_FAILURE(start_all());
        hpp_ = hpp::Client::connect({.dir = dir(), .timeout = std::chrono::milliseconds(kPatience)}).value();
    }
    ~PoolTest() override { std::remove(fault_file.c_str()); }

    const char* where() const { return GetParam(); }
    bool on_host() const { return std::string_view(where()) == "host"; }
    Memory make(hpp::PoolOptions options = {}) {
        options.device = where();
        if (options.slab_bytes == 0) options.slab_bytes = 4 * kMiB;
        return Memory::create(hpp_, options).value();
    }
    gshm_device_info info() { return device(client_.get(), where()); }
    static int code(const hpp::Result<void*>& result) { return result ? 0 : result.error().code; }
    static int code(const hpp::Result<void>& result) { return result ? 0 : result.error().code; }

    hpp::Client hpp_;
};
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
    // Of a device that is full it is the daemon who says so; the pool goes on.
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
        if (on_host() && std::memcmp(object->data_as<std::byte>() + where_it_is.offset, data.data(), data.size()) != 0) return 4;
        // No copy: what is written there is here.
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
        EXPECT_EQ(opened, mode == 0600 ? EACCES : 0);
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
    EXPECT_LE(pool.stats().value().slabs, 1u);
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
                    auto memory = pool.allocate(bytes, reinterpret_cast<void*>(2));  // each thread's own stream
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
                if (!holds_in(memory, bytes, t) || !pool.deallocate(memory, bytes, reinterpret_cast<void*>(2))) ++failures;
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
    void* without = pool.allocate(100).value();  // nobody is asked
    EXPECT_TRUE(pool.deallocate(without, 100));
    ASSERT_TRUE(again()) << log();
    void* more = pool.allocate(8 * kMiB).value();  // from the new one
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
        pool = {};  // the child's copy alone
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

// ---- as resources ----

// What cuda::mr::resource and cuda::mr::async_resource ask for; S: the type of stream.
template <class T>
concept Resource = std::equality_comparable<T> && requires(T& resource, void* memory, size_t bytes, size_t alignment) {
    { resource.allocate(bytes, alignment) } -> std::same_as<void*>;
    { resource.deallocate(memory, bytes, alignment) } -> std::same_as<void>;
};
template <class T, class S>
concept AsyncResource = Resource<T> && requires(T& resource, void* memory, size_t bytes, size_t alignment, S stream) {
    { resource.allocate_async(bytes, alignment, stream) } -> std::same_as<void*>;
    { resource.deallocate_async(memory, bytes, alignment, stream) } -> std::same_as<void>;
};
struct StreamRef {  // as cuda::stream_ref
    cuda::CUstream handle = nullptr;
    cuda::CUstream get() const { return handle; }
};
struct StreamView {  // as rmm::cuda_stream_view
    cuda::CUstream handle = nullptr;
    cuda::CUstream value() const { return handle; }
};
static_assert(Resource<hpp::PoolResource> && AsyncResource<hpp::PoolResource, cuda::CUstream>);
static_assert(AsyncResource<hpp::PoolResource, StreamRef> && AsyncResource<hpp::PoolResource, StreamView>);
static_assert(std::is_copy_constructible_v<hpp::PoolResource> && !std::is_copy_constructible_v<hpp::Pool>);

TEST_P(PoolTest, IsAResource) {
    auto pool = make({.limit_bytes = 8 * kMiB});
    auto second = make();
    hpp::PoolResource resource(pool);
    EXPECT_TRUE(resource == hpp::PoolResource(pool));
    EXPECT_FALSE(resource == hpp::PoolResource(second));
    void* memory = resource.allocate(1000, 1024);
    EXPECT_EQ(reinterpret_cast<uint64_t>(memory) % 1024, 0u);
    write_to(memory, 1000, 1);
    EXPECT_TRUE(holds_in(memory, 1000, 1));
    resource.deallocate(memory, 1000, 1024);
    memory = resource.allocate_async(2000, 256, StreamRef{});
    resource.deallocate_async(memory, 2000, 256, StreamView{});
    memory = resource.allocate_async(2000, StreamView{});
    resource.deallocate_async(memory, 2000, StreamRef{});
    EXPECT_THROW(resource.allocate(9 * kMiB), std::bad_alloc);
    EXPECT_EQ(pool.stats().value().allocations, 0u);
}

TEST_P(PoolTest, ServesStandardContainers) {
    if (!on_host()) GTEST_SKIP() << "the CPU does not reach it";
    auto pool = make();
    hpp::PoolMemoryResource resource(pool);
    {
        std::pmr::vector<uint64_t> numbers(&resource);
        for (uint64_t i = 0; i < 100000; ++i) numbers.push_back(i);
        const auto there = hpp::locate(numbers.data()).value();
        auto reader = hpp_.open_id(there.id).value();
        uint64_t last = 0;
        std::memcpy(&last, reader.data_as<const std::byte>() + there.offset + 99999 * 8, 8);
        EXPECT_EQ(last, 99999u);
        EXPECT_NE(resource.allocate(0), nullptr);
        EXPECT_TRUE(resource == hpp::PoolMemoryResource(pool));
    }
    EXPECT_EQ(pool.stats().value().allocations, 1u) << "what nobody deallocated";
}

// ---- streams ----

class PoolStreams : public PoolTest {
protected:
    void SetUp() override {
        PoolTest::SetUp();
        // The primary context, as a program has it.
        ASSERT_EQ(fake<int(unsigned)>("cuInit")(0), 0);
        cuda::CUdevice ordinal = std::string_view(where()) == "cuda:1" ? 1 : 0;
        ASSERT_EQ(fake<int(cuda::CUcontext*, int)>("cuDevicePrimaryCtxRetain")(&context_, ordinal), 0);
        ASSERT_EQ(fake<int(cuda::CUcontext)>("cuCtxPushCurrent_v2")(context_), 0);
    }
    void TearDown() override {
        cuda::CUcontext popped = nullptr;
        fake<int(cuda::CUcontext*)>("cuCtxPopCurrent_v2")(&popped);
    }
    static cuda::CUstream make_stream() {
        cuda::CUstream stream = nullptr;
        EXPECT_EQ(fake<int(cuda::CUstream*, unsigned)>("cuStreamCreate")(&stream, cuda::kStreamNonBlocking), 0);
        return stream;
    }
    static void fill(void* memory, unsigned char value, size_t bytes, cuda::CUstream stream) {
        EXPECT_EQ(fake<int(cuda::CUdeviceptr, unsigned char, size_t, cuda::CUstream)>("cuMemsetD8Async")(
                      reinterpret_cast<cuda::CUdeviceptr>(memory), value, bytes, stream), 0);
    }
    static void hold(cuda::CUstream stream, bool held) {
        EXPECT_EQ(fake<int(cuda::CUstream, int)>("fakecuda_hold")(stream, held ? 1 : 0), 0);
    }
    static void finish(cuda::CUstream stream) { EXPECT_EQ(fake<int(cuda::CUstream)>("cuStreamSynchronize")(stream), 0); }
    static bool all_are(void* memory, size_t bytes, int value) {
        Bytes data(bytes);
        return wrapped(memory, bytes).copy_out(data) && data == Bytes(bytes, static_cast<std::byte>(value));
    }

    cuda::CUcontext context_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Devices, PoolStreams, ::testing::Values("cuda:0", "cuda:1"), [](const auto& info) {
    std::string name = info.param;
    std::erase(name, ':');
    return name;
});

// Without the wait the second stream would be through before the first begins, whose bytes would come last.
TEST_P(PoolStreams, AnotherStreamComesAfterTheOneThatFreedIt) {
    auto pool = make({.limit_bytes = 4 * kMiB});
    auto* first = make_stream();
    auto* second = make_stream();
    void* memory = pool.allocate(4 * kMiB, first).value();
    hold(first, true);
    fill(memory, 1, 4 * kMiB, first);
    ASSERT_TRUE(pool.deallocate(memory, 4 * kMiB, first));
    void* again = pool.allocate(4 * kMiB, second).value();
    ASSERT_EQ(again, memory) << "it need not be over";
    EXPECT_EQ(pool.stats().value().stream_waits, 1u);
    fill(again, 2, 4 * kMiB, second);
    std::thread later([&] {
        std::this_thread::sleep_for(20ms);  // enough for a second stream that does not wait
        hold(first, false);
    });
    finish(second);
    later.join();
    finish(first);
    EXPECT_TRUE(all_are(memory, 4 * kMiB, 2));
    EXPECT_TRUE(pool.deallocate(again, 4 * kMiB, second));
}

TEST_P(PoolStreams, TheSameStreamAndWhatIsOverNeedNoWait) {
    auto pool = make({.limit_bytes = 4 * kMiB});
    auto* first = make_stream();
    void* memory = pool.allocate(4 * kMiB, first).value();
    hold(first, true);
    fill(memory, 1, 4 * kMiB, first);
    ASSERT_TRUE(pool.deallocate(memory, 4 * kMiB, first));
    ASSERT_EQ(pool.allocate(4 * kMiB, first).value(), memory);
    fill(memory, 3, 4 * kMiB, first);
    ASSERT_TRUE(pool.deallocate(memory, 4 * kMiB, first));
    hold(first, false);
    finish(first);
    ASSERT_EQ(pool.allocate(4 * kMiB, make_stream()).value(), memory);
    EXPECT_EQ(fake_calls("cuStreamWaitEvent"), 0u);
    EXPECT_TRUE(all_are(memory, 4 * kMiB, 3));
}

TEST_P(PoolStreams, DefaultStreams) {
    auto pool = make({.limit_bytes = 4 * kMiB});
    auto* legacy = reinterpret_cast<cuda::CUstream>(cuda::kStreamLegacy);
    auto* thread = reinterpret_cast<cuda::CUstream>(cuda::kStreamPerThread);
    void* memory = pool.allocate(4 * kMiB).value();
    ASSERT_TRUE(pool.deallocate(memory, 4 * kMiB));
    ASSERT_EQ(pool.allocate(4 * kMiB, legacy).value(), memory) << "the same by another name";
    ASSERT_TRUE(pool.deallocate(memory, 4 * kMiB, thread));
    ASSERT_EQ(pool.allocate(4 * kMiB, thread).value(), memory);
    // A stream that did not ask to be left out is waited for by the legacy stream, and so by who frees there.
    auto* busy = make_stream();
    hold(busy, true);
    fill(memory, 1, 4 * kMiB, busy);
    ASSERT_TRUE(pool.deallocate(memory, 4 * kMiB, busy));
    std::thread later([&] { hold(busy, false); });
    ASSERT_EQ(pool.allocate(4 * kMiB).value(), memory);
    fill(memory, 2, 4 * kMiB, nullptr);
    later.join();
    finish(busy);
    EXPECT_TRUE(all_are(memory, 4 * kMiB, 2));
}

TEST_P(PoolStreams, WithoutAStreamItIsForAll) {
    auto pool = make({.limit_bytes = 4 * kMiB});
    auto* first = make_stream();
    void* memory = pool.allocate(4 * kMiB, first).value();
    hold(first, true);
    fill(memory, 1, 4 * kMiB, first);
    ASSERT_TRUE(pool.deallocate(memory, 4 * kMiB, first));
    std::thread later([&] { hold(first, false); });
    ASSERT_EQ(pool.allocate(4 * kMiB, hpp::Stream::none()).value(), memory);
    EXPECT_TRUE(all_are(memory, 4 * kMiB, 1)) << "the stream is through";
    later.join();
}

TEST_P(PoolStreams, ASlabWaitsForItsStreams) {
    auto pool = make();
    auto* first = make_stream();
    void* memory = pool.allocate(4 * kMiB, first).value();
    const auto there = pool.locate(memory).value();
    auto reader = hpp_.open_id(there.id).value();
    hold(first, true);
    fill(memory, 1, 4 * kMiB, first);
    ASSERT_TRUE(pool.deallocate(memory, 4 * kMiB, first));
    std::thread later([&] { hold(first, false); });
    ASSERT_TRUE(pool.trim());
    later.join();
    Bytes data(4 * kMiB);
    ASSERT_TRUE(reader.copy_out(data, there.offset));
    EXPECT_EQ(data, Bytes(4 * kMiB, std::byte{1})) << "it was written before it went";
    EXPECT_EQ(pool.stats().value().slabs, 0u);
}

TEST_P(PoolStreams, FailuresOfTheDriver) {
    auto pool = make({.limit_bytes = 4 * kMiB});
    auto* first = make_stream();
    auto* second = make_stream();
    void* memory = pool.allocate(4 * kMiB, first).value();
    EXPECT_EQ(code(pool.allocate(1, reinterpret_cast<void*>(4096))), EINVAL) << "no stream";
    EXPECT_EQ(code(pool.deallocate(memory, 0, reinterpret_cast<void*>(4096))), EINVAL);
    inject("cuEventRecord:*:400");
    EXPECT_EQ(code(pool.deallocate(memory, 4 * kMiB, first)), EINVAL);
    inject("");
    EXPECT_EQ(pool.stats().value().allocations, 1u);
    hold(first, true);
    fill(memory, 1, 4 * kMiB, first);
    ASSERT_TRUE(pool.deallocate(memory, 4 * kMiB, first));
    inject("cuStreamWaitEvent:*:1");
    EXPECT_EQ(code(pool.allocate(4 * kMiB, second)), EINVAL);
    inject("");
    EXPECT_EQ(pool.allocate(4 * kMiB, second).value(), memory);
    hold(first, false);
}

// ---- the process's own ----

class PoolMalloc : public LibraryTest {
protected:
    void SetUp() override {
        ASSERT_NO_FATAL_FAILURE(start_all());
        setenv("GSHM_DIR", dir().c_str(), 1);
    }
    static gshm_location locate(void* memory) {
        gshm_location location = {};
        location.struct_size = sizeof location;
        EXPECT_EQ(gshm_pool_locate(memory, &location), 0) << gshm_last_error();
        return location;
    }
};

TEST_F(PoolMalloc, MemoryIsBornShareable) {
    EXPECT_EQ(gshm_malloc(0, 0, nullptr), nullptr);
    EXPECT_EQ(gshm_malloc(-1, 0, nullptr), nullptr);
    EXPECT_STREQ(gshm_last_error(), "size is negative");
    for (int ordinal : {0, 1}) {
        void* memory = gshm_malloc(1000000, ordinal, nullptr);
        ASSERT_NE(memory, nullptr) << gshm_last_error();
        write_to(memory, 1000000, 3);
        const auto there = locate(memory);
        EXPECT_EQ(std::string(there.device), "cuda:" + std::to_string(ordinal));
        gshm_object* opened = nullptr;
        ASSERT_EQ(gshm_open_id(client_.get(), there.id, GSHM_NO_MAP, &opened), 0) << gshm_last_error();
        const Object object(opened);
        Bytes data(1000000);
        ASSERT_EQ(gshm_copy_out(object.get(), there.offset, data.data(), data.size()), 0) << gshm_last_error();
        EXPECT_EQ(data, pattern_of(1000000, 3));
        gshm_free(memory, 1000000, ordinal, nullptr);
        gshm_location gone = {};
        gone.struct_size = sizeof gone;
        EXPECT_EQ(gshm_pool_locate(memory, &gone), -EINVAL);
    }
    EXPECT_EQ(gshm_malloc(100, 7, nullptr), nullptr);
    EXPECT_NE(std::string(gshm_last_error()), "");
    EXPECT_EQ(gshm_malloc(100, -1, nullptr), nullptr);
    gshm_free(nullptr, 0, 0, nullptr);
    int here = 0;
    gshm_free(&here, 8, 0, nullptr);  // says so in the log, and does nothing
}

TEST_F(PoolMalloc, OrdinalsAreThisProcesss) {
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);  // before the driver is started here
    void* memory = gshm_malloc(1000, 0, nullptr);
    ASSERT_NE(memory, nullptr) << gshm_last_error();
    EXPECT_STREQ(locate(memory).device, "cuda:1");
    EXPECT_EQ(gshm_malloc(1000, 1, nullptr), nullptr);
    gshm_free(memory, 1000, 0, nullptr);
}

TEST_F(PoolMalloc, OptionsComeFromTheEnvironment) {
    setenv("GSHM_POOL_LIMIT", "rather much", 1);
    EXPECT_EQ(gshm_malloc(1000, 0, nullptr), nullptr);
    EXPECT_NE(std::string(gshm_last_error()).find("$GSHM_POOL_LIMIT"), std::string::npos) << gshm_last_error();
    setenv("GSHM_POOL_LIMIT", "6M", 1);
    setenv("GSHM_POOL_SLAB", "4M", 1);
    setenv("GSHM_POOL_MODE", "0999", 1);
    EXPECT_EQ(gshm_malloc(1000, 0, nullptr), nullptr);
    setenv("GSHM_POOL_MODE", "0644", 1);
    void* memory = gshm_malloc(1000, 0, nullptr);
    ASSERT_NE(memory, nullptr) << gshm_last_error();
    EXPECT_EQ(device(client_.get(), "cuda:0").used_bytes, uint64_t{4} << 20);
    EXPECT_EQ(gshm_malloc(8 << 20, 0, nullptr), nullptr);
    gshm_object* opened = nullptr;
    ASSERT_EQ(gshm_open_id(client_.get(), locate(memory).id, GSHM_NO_MAP, &opened), 0);
    const Object object(opened);
    gshm_stat_info info = {};
    info.struct_size = sizeof info;
    ASSERT_EQ(gshm_stat_object(object.get(), &info), 0);
    EXPECT_EQ(info.mode & 0777, 0644u);
    gshm_free(memory, 1000, 0, nullptr);
}

TEST_F(PoolMalloc, WithoutADaemonItFailsAndGoesOnLater) {
    setenv("GSHM_DIR", (scratch() + "/nowhere").c_str(), 1);
    EXPECT_EQ(gshm_malloc(1000, 0, nullptr), nullptr);
    EXPECT_NE(std::string(gshm_last_error()), "");
    setenv("GSHM_DIR", dir().c_str(), 1);
    void* memory = gshm_malloc(1000, 0, nullptr);
    EXPECT_NE(memory, nullptr) << gshm_last_error();
    // In a forked child CUDA cannot be used, and the parent's memory is not freed.
    const int result = in_child([&] {
        gshm_free(memory, 1000, 0, nullptr);
        return gshm_malloc(1000, 0, nullptr) == nullptr ? 0 : 1;
    });
    EXPECT_EQ(result, 0);
    EXPECT_EQ(locate(memory).size_bytes, 1000u);
    gshm_free(memory, 1000, 0, nullptr);
}

}  // namespace
}  // namespace gshm::test
