// Mirrors on host and on fake GPUs, with a real daemon.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>

#include "fake_driver.h"
#include "library_fixture.h"
#include <gshm/mirror.hpp>

namespace gshm::core::test {
namespace {

namespace hpp = ::gshm::v0;
using hpp::Mirror;
using Bytes = std::vector<std::byte>;

Bytes pattern(size_t bytes, unsigned seed) {
    Bytes data(bytes);
    for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>((i * 131 + seed * 17 + (i >> 8)) & 0xFF);
    return data;
}
Bytes content(hpp::Object& object) {
    Bytes data(object.size());
    EXPECT_TRUE(object.copy_out(data));
    return data;
}
void set(std::span<std::byte> to, int value) {
    std::ranges::fill(to, static_cast<std::byte>(value));
}

class MirrorTest : public LibraryTest, public ::testing::WithParamInterface<const char*> {
protected:
    void SetUp() override {
        ASSERT_NO_FATAL_FAILURE(start_all());
        hpp_ = hpp::Client::connect({.dir = dir()}).value();
    }
    ~MirrorTest() override { remove_faults(); }

    const char* where() const { return GetParam(); }
    bool on_host() const { return std::string_view(where()) == "host"; }
    hpp::Object make(const std::string& name, uint64_t bytes, unsigned seed = 1) {
        auto object = hpp_.create({.name = name, .size_bytes = bytes, .device = where(), .keep = true}).value();
        object.copy_in(pattern(bytes, seed)).value();
        return object;
    }

    hpp::Client hpp_;
};
INSTANTIATE_TEST_SUITE_P(Devices, MirrorTest, ::testing::Values("host", "cuda:0", "cuda:1"), [](const auto& info) {
    std::string name = info.param;
    std::erase(name, ':');
    return name;
});

TEST_P(MirrorTest, LoadsAndWritesBack) {
    for (uint64_t bytes : {uint64_t{1}, uint64_t{4096}, uint64_t{70000}, uint64_t{5} << 20}) {
        auto object = make("o" + std::to_string(bytes), bytes);
        auto mirror = Mirror::create(object, {.write = true}).value();
        ASSERT_EQ(mirror.size(), bytes);
        EXPECT_TRUE(std::ranges::equal(mirror.bytes(), pattern(bytes, 1)));
        EXPECT_EQ(mirror.data() == object.data(), on_host())
            << "no copy on host, and none of the GPU's pointers elsewhere";
        std::ranges::copy(pattern(bytes, 2), mirror.writable().value().begin());
        if (!on_host()) {
            EXPECT_EQ(content(object), pattern(bytes, 1)) << "not before it is flushed";
        }
        ASSERT_TRUE(mirror.flush());
        EXPECT_EQ(content(object), pattern(bytes, 2));
        // The changes are visible through another handle, and the other way round.
        auto other = hpp_.open("o" + std::to_string(bytes), {.write = true}).value();
        ASSERT_TRUE(other.fill(7));
        ASSERT_TRUE(mirror.load());
        EXPECT_TRUE(std::ranges::equal(mirror.bytes(), Bytes(bytes, std::byte{7})));
    }
}

TEST_P(MirrorTest, WithoutLoadNothingIsReadAndWhatIsWrittenCounts) {
    auto object = make("o", 8192);
    auto mirror = Mirror::create(object, {.load = false, .write = true}).value();
    set(mirror.writable(100, 50).value(), 9);
    ASSERT_TRUE(mirror.close());
    EXPECT_FALSE(mirror);
    auto expected = pattern(8192, 1);
    std::fill_n(expected.begin() + 100, 50, std::byte{9});
    EXPECT_EQ(content(object), expected);
}

TEST_P(MirrorTest, ShowsNothingOfAnEarlierOneAfterItsEnd) {
    if (on_host()) GTEST_SKIP() << "a mirror on host is the memory itself";
    auto earlier = make("earlier", 8192);
    ASSERT_TRUE(earlier.fill(7));
    const std::byte* place = nullptr;
    {
        auto mirror = Mirror::create(earlier, {}).value();
        place = mirror.data();
    }
    auto object = make("o", 5000);
    auto mirror = Mirror::create(object, {}).value();
    ASSERT_EQ(mirror.data(), place) << "the same memory is used again";
    EXPECT_EQ(Bytes(place + 5000, place + 8192), Bytes(3192, std::byte{0}));
}

TEST_P(MirrorTest, TheDestructorWritesBackWhatIsMarked) {
    auto object = make("o", 8192);
    {
        auto mirror = Mirror::create(object, {.write = true}).value();
        set(mirror.writable(0, 10).value(), 1);
        Mirror moved = std::move(mirror);
        EXPECT_FALSE(mirror);  // NOLINT: a moved-from one is empty by contract
        EXPECT_EQ(mirror.data(), nullptr);
        EXPECT_EQ(mirror.size(), 0u);
        EXPECT_EQ(mirror.flush().error().code, EINVAL);
        EXPECT_EQ(mirror.mark(0, 0).error().code, EINVAL);
        EXPECT_EQ(mirror.load().error().code, EINVAL);
        EXPECT_TRUE(mirror.close()) << "nothing to do";
        set(moved.writable(10, 10).value(), 2);
        Mirror assigned = Mirror::create(object, {.write = true}).value();
        assigned = std::move(moved);
        EXPECT_TRUE(assigned);
    }
    auto expected = pattern(8192, 1);
    std::fill_n(expected.begin(), 10, std::byte{1});
    std::fill_n(expected.begin() + 10, 10, std::byte{2});
    EXPECT_EQ(content(object), expected);
    static_assert(!std::is_copy_constructible_v<Mirror> && std::is_nothrow_move_constructible_v<Mirror>);
}

TEST_P(MirrorTest, UnmarkedChangesStayHere) {
    auto object = make("o", 8192);
    auto mirror = Mirror::create(object, {.write = true}).value();
    set(mirror.writable().value(), 3);
    mirror.unmark();
    ASSERT_TRUE(mirror.close());
    EXPECT_EQ(content(object), on_host() ? Bytes(8192, std::byte{3}) : pattern(8192, 1));
}

// Against a model: the bytes of the object, the bytes of the mirror, and a mark for each byte.
TEST_P(MirrorTest, MarksFlushesAndLoadsLikeTheModel) {
    constexpr size_t kBytes = 3000;
    constexpr size_t kOffset = 77;
    auto object = make("o", kBytes + 200);
    auto mirror = Mirror::create(object, {.offset_bytes = kOffset, .size_bytes = kBytes, .write = true}).value();
    auto there = content(object);
    auto here = Bytes(there.begin() + kOffset, there.begin() + kOffset + kBytes);
    std::vector<bool> marked(kBytes);
    auto flush_model = [&](size_t begin, size_t bytes, bool all) {
        for (size_t i = begin; i < begin + bytes; ++i) {
            if (all || marked[i]) there[kOffset + i] = here[i];
            marked[i] = false;
        }
    };
    std::minstd_rand random(4);
    for (int step = 0; step < 1500; ++step) {
        const size_t begin = random() % kBytes;
        const size_t bytes = random() % std::min<size_t>(kBytes - begin + 1, 300);
        const auto value = static_cast<std::byte>(random() % 256);
        switch (random() % 8) {
            case 0:
                ASSERT_TRUE(mirror.flush());
                flush_model(0, kBytes, false);
                break;
            case 1:
                ASSERT_TRUE(mirror.flush(begin, bytes));
                flush_model(begin, bytes, true);
                break;
            case 2:
                ASSERT_TRUE(mirror.load(begin, bytes));
                std::copy_n(there.begin() + kOffset + static_cast<long>(begin), bytes,
                            here.begin() + static_cast<long>(begin));
                std::fill_n(marked.begin() + static_cast<long>(begin), bytes, false);
                break;
            case 3: {  // another handle writes
                ASSERT_TRUE(object.fill(static_cast<uint8_t>(value), kOffset + begin, bytes));
                std::fill_n(there.begin() + kOffset + static_cast<long>(begin), bytes, value);
                if (on_host()) std::fill_n(here.begin() + static_cast<long>(begin), bytes, value);  // same memory
                break;
            }
            default: {
                std::ranges::fill(mirror.writable(begin, bytes).value(), value);
                std::fill_n(here.begin() + static_cast<long>(begin), bytes, value);
                std::fill_n(marked.begin() + static_cast<long>(begin), bytes, true);
                if (on_host()) std::fill_n(there.begin() + kOffset + static_cast<long>(begin), bytes, value);
            }
        }
        ASSERT_TRUE(std::ranges::equal(mirror.bytes(), here)) << "step " << step;
        ASSERT_EQ(content(object), there) << "step " << step;
    }
}

TEST_P(MirrorTest, RangesMustLieInside) {
    auto object = make("o", 5000);
    auto partial = Mirror::create(object, {.offset_bytes = 1000, .size_bytes = 100, .write = true}).value();
    const auto all = pattern(5000, 1);
    EXPECT_TRUE(std::ranges::equal(partial.bytes(), std::span(all).subspan(1000, 100)));
    EXPECT_EQ(Mirror::create(object, {.offset_bytes = 4999}).value().size(), 1u);
    EXPECT_EQ(Mirror::create(object, {.offset_bytes = 5000}).value().size(), 0u);
    for (auto [offset, bytes] : std::vector<std::pair<uint64_t, uint64_t>>{
             {5001, 0}, {0, 5001}, {4999, 2}, {~uint64_t{0}, 0}, {~uint64_t{0}, ~uint64_t{0}}, {1, ~uint64_t{0}}}) {
        EXPECT_EQ(Mirror::create(object, {.offset_bytes = offset, .size_bytes = bytes}).error().code, EINVAL);
    }
    for (auto [offset, bytes] : std::vector<std::pair<uint64_t, uint64_t>>{
             {0, 101}, {100, 1}, {101, 0}, {~uint64_t{0}, 2}, {50, ~uint64_t{0}}}) {
        EXPECT_EQ(partial.mark(offset, bytes).error().code, EINVAL);
        EXPECT_EQ(partial.writable(offset, bytes).error().code, EINVAL);
        EXPECT_EQ(partial.flush(offset, bytes).error().code, EINVAL);
        EXPECT_EQ(partial.load(offset, bytes).error().code, EINVAL);
    }
    EXPECT_TRUE(partial.flush(100, 0));
    set(partial.writable().value(), 5);
    ASSERT_TRUE(partial.close());
    auto expected = pattern(5000, 1);
    std::fill_n(expected.begin() + 1000, 100, std::byte{5});
    EXPECT_EQ(content(object), expected) << "nothing around it";
}

TEST_P(MirrorTest, WrongArguments) {
    auto object = make("o", 100);
    EXPECT_EQ(Mirror::create(hpp::Object()).error().code, EINVAL);
    EXPECT_EQ(Mirror::create(object, {.load = false}).error().code, EINVAL) << "neither loaded nor written";
    gshm_mirror* mirror = nullptr;
    gshm_mirror_options options = GSHM_MIRROR_OPTIONS_INIT;
    EXPECT_EQ(gshm_mirror_create(object.get(), &options, nullptr), -EINVAL);
    options.flags = 4;
    EXPECT_EQ(gshm_mirror_create(object.get(), &options, &mirror), -EINVAL);
    options = GSHM_MIRROR_OPTIONS_INIT;
    options.struct_size = 0;
    EXPECT_EQ(gshm_mirror_create(object.get(), &options, &mirror), -EINVAL);
    EXPECT_EQ(mirror, nullptr) << "not written on failure";
    EXPECT_EQ(gshm_mirror_create(object.get(), nullptr, &mirror), 0);
    EXPECT_EQ(gshm_mirror_size(mirror), 100u);
    EXPECT_EQ(gshm_mirror_destroy(mirror), 0);
    EXPECT_EQ(gshm_mirror_destroy(nullptr), 0);
    gshm_mirror_unmark(nullptr);
}

TEST_P(MirrorTest, SealedObjectsAreForReading) {
    auto object = make("o", 8192);
    auto before = Mirror::create(object, {.write = true}).value();
    set(before.writable(0, 16).value(), 1);
    ASSERT_TRUE(before.flush());
    set(before.writable(16, 16).value(), 2);
    ASSERT_TRUE(object.seal());
    // An existing mirror can no longer be flushed, and reports it every time.
    EXPECT_EQ(before.flush().error().code, EPERM);
    EXPECT_EQ(before.flush(0, 16).error().code, EPERM);
    EXPECT_EQ(before.mark(0, 16).error().code, EPERM);
    EXPECT_EQ(before.close().error().code, EPERM);
    EXPECT_FALSE(before) << "it is gone all the same";
    EXPECT_EQ(Mirror::create(object, {.write = true}).error().code, EPERM);
    auto expected = pattern(8192, 1);
    std::fill_n(expected.begin(), 16, std::byte{1});
    if (on_host()) std::fill_n(expected.begin() + 16, 16, std::byte{2});
    EXPECT_TRUE(std::ranges::equal(Mirror::create(object).value().bytes(), expected));

    auto reader = hpp_.open("o", {.sealed_only = true}).value();
    EXPECT_EQ(Mirror::create(reader, {.write = true}).error().code, EACCES);
    auto mirror = Mirror::create(reader).value();
    EXPECT_TRUE(std::ranges::equal(mirror.bytes(), expected));
    EXPECT_EQ(mirror.writable().error().code, EACCES);
    EXPECT_EQ(mirror.mark(0, 1).error().code, EACCES);
    EXPECT_EQ(mirror.flush(0, 1).error().code, EACCES);
    EXPECT_TRUE(mirror.flush()) << "nothing was changed";
    EXPECT_TRUE(mirror.load());
}

TEST_P(MirrorTest, OutlivesItsNameItsHandleAndItsClient) {
    constexpr uint64_t kBytes = uint64_t{4} << 20;
    const uint64_t used = device(client_.get(), where()).used_bytes;
    auto other = hpp::Client::connect({.dir = dir()}).value();
    auto object = other.create({.name = "o", .size_bytes = kBytes, .device = where(), .dedicated = true}).value();
    auto watcher = hpp_.open("o").value();
    auto mirror = Mirror::create(object, {.write = true}).value();
    ASSERT_TRUE(hpp_.unlink("o"));
    set(mirror.writable(0, 100).value(), 6);
    ASSERT_TRUE(mirror.flush());
    object.close();
    set(mirror.writable(100, 100).value(), 6);
    ASSERT_TRUE(mirror.flush());
    other.disconnect();
    set(mirror.writable(200, 100).value(), 6);
    ASSERT_TRUE(mirror.flush());
    auto seen = content(watcher);
    EXPECT_TRUE(std::ranges::equal(std::span(seen).first(300), Bytes(300, std::byte{6})));
    watcher.close();
    ASSERT_TRUE(hpp_.ping());
    ASSERT_EQ(hpp_.unlinked().value().size(), 1u) << "the mirror holds it";
    set(mirror.writable(300, 100).value(), 6);
    EXPECT_TRUE(mirror.close());
    EXPECT_TRUE(eventually([&] { return device(client_.get(), where()).used_bytes == used; })) << "and nobody else";
}

TEST_P(MirrorTest, TheDaemonMayBeKilledMeanwhile) {
    auto object = make("o", 8192);
    auto mirror = Mirror::create(object, {.write = true}).value();
    set(mirror.writable(0, 100).value(), 1);
    kill();
    ASSERT_TRUE(mirror.flush()) << "nobody is needed for it";
    set(mirror.writable(100, 100).value(), 2);
    ASSERT_TRUE(start({}, daemon_env())) << log();
    ASSERT_TRUE(mirror.close());
    auto expected = pattern(8192, 1);
    std::fill_n(expected.begin(), 100, std::byte{1});
    std::fill_n(expected.begin() + 100, 100, std::byte{2});
    auto fresh = hpp::Client::connect({.dir = dir()}).value();
    auto again = fresh.open("o", {.map = false}).value();
    EXPECT_EQ(content(again), expected) << "as the next daemon has it";
}

TEST_P(MirrorTest, WithoutAMappingItGoesThroughTheDaemon) {
    constexpr uint64_t kBytes = (uint64_t{9} << 20) + 5;
    auto patient = hpp::Client::connect({.dir = dir(), .timeout = 100ms}).value();
    auto made = make("o", kBytes);
    auto object = patient.open("o", {.write = true, .map = false}).value();
    int nowhere = 0;
    EXPECT_EQ(Mirror::create(object, {.stream = &nowhere}).error().code, EINVAL);
    auto mirror = Mirror::create(object, {.write = true}).value();
    EXPECT_TRUE(std::ranges::equal(mirror.bytes(), pattern(kBytes, 1)));
    set(mirror.writable(kBytes - 10, 10).value(), 8);
    EXPECT_EQ(content(made), pattern(kBytes, 1));
    kill();
    EXPECT_FALSE(mirror.flush()) << "there is nobody";
    ASSERT_TRUE(start({}, daemon_env())) << log();
    ASSERT_TRUE(mirror.flush()) << "what failed is still marked";
    auto expected = pattern(kBytes, 1);
    std::fill_n(expected.end() - 10, 10, std::byte{8});
    EXPECT_EQ(content(made), expected);
    // The next daemon does not know the object.
    set(mirror.writable(0, 10).value(), 9);
    kill();
    ASSERT_TRUE(start({"--device", "host:256M", "--device", "cuda", "--discard"}, daemon_env())) << log();
    EXPECT_EQ(mirror.close().error().code, ESTALE);
}

TEST_P(MirrorTest, EmptyObjectsHaveEmptyMirrors) {
    gshm_create_spec wanted = spec("empty", 0, where(), GSHM_EMPTY);
    gshm_object* handle = nullptr;
    ASSERT_EQ(gshm_create(hpp_.get(), &wanted, &handle), 0) << gshm_last_error();
    auto object = hpp::Object::adopt(handle);
    auto mirror = Mirror::create(object, {.write = true}).value();
    EXPECT_EQ(mirror.size(), 0u);
    EXPECT_TRUE(mirror.bytes().empty());
    EXPECT_TRUE(mirror.writable().value().empty());
    EXPECT_TRUE(mirror.flush());
    EXPECT_EQ(mirror.mark(0, 1).error().code, EINVAL);
}

TEST_P(MirrorTest, MemoryWithoutADaemon) {
    auto object = hpp::Object::allocate(where(), 100000).value();
    {
        auto mirror = Mirror::create(object, {.write = true}).value();
        EXPECT_TRUE(std::ranges::equal(mirror.bytes(), Bytes(100000)));
        std::ranges::copy(pattern(100000, 3), mirror.writable().value().begin());
    }
    EXPECT_EQ(content(object), pattern(100000, 3));
    // Wrapped memory, from the middle of an allocation.
    auto wrapped = hpp::Object::wrap(object.data_as<char>() + 1000, 5000).value();
    set(Mirror::create(wrapped, {.write = true}).value().writable(0, 7).value(), 4);
    auto expected = pattern(100000, 3);
    std::fill_n(expected.begin() + 1000, 7, std::byte{4});
    EXPECT_EQ(content(object), expected);
}

TEST_P(MirrorTest, AForkedChildHasNone) {
    auto object = make("o", 8192);
    auto mirror = Mirror::create(object, {.write = true}).value();
    set(mirror.writable(0, 100).value(), 1);
    const int code = in_child([&] {
        if (mirror.flush().error().code != ECHILD || mirror.mark(0, 1).error().code != ECHILD) return 1;
        if (mirror.load().error().code != ECHILD) return 2;
        object.close();
        if (mirror.close().error().code != ECHILD) return 3;
        // It gets its own mirror, through the daemon, or directly on host.
        auto client = hpp::Client::connect({.dir = dir()}).value();
        auto opened = client.open("o", {.write = true, .map = on_host()}).value();
        auto own = Mirror::create(opened, {.write = true}).value();
        set(own.writable(100, 100).value(), 2);
        return own.close() ? 0 : 4;
    });
    EXPECT_EQ(code, 0);
    ASSERT_TRUE(mirror.close());
    auto expected = pattern(8192, 1);
    std::fill_n(expected.begin(), 100, std::byte{1});
    std::fill_n(expected.begin() + 100, 100, std::byte{2});
    EXPECT_EQ(content(object), expected);
}

TEST_P(MirrorTest, AProcessThatDiesWithOneLeavesNothing) {
    auto kept = make("kept", 8192);
    const uint64_t used = device(client_.get(), where()).used_bytes;
    const int code = in_child([&] {
        auto client = hpp::Client::connect({.dir = dir()}).value();
        // Without a mapping on a GPU: a forked child must not use its parent's driver.
        auto object = client.create({.name = "o", .size_bytes = 4 << 20, .device = where(), .map = on_host()}).value();
        auto mirror = Mirror::create(object, {.write = true}).value();
        set(mirror.writable().value(), 1);
        auto opened = client.open("kept", {.write = true, .map = on_host()}).value();
        auto other = Mirror::create(opened, {.write = true}).value();
        set(other.writable(0, 100).value(), 1);
        ::kill(getpid(), SIGKILL);
        return 0;
    });
    EXPECT_EQ(code, 128 + SIGKILL);
    EXPECT_TRUE(eventually([&] {
        const auto found = hpp_.stat("o");
        return !found && found.error().code == ENOENT;
    })) << "not sealed, so reclaimed";
    EXPECT_TRUE(eventually([&] { return device(client_.get(), where()).used_bytes == used; }));
    auto expected = pattern(8192, 1);
    if (on_host()) std::fill_n(expected.begin(), 100, std::byte{1});
    EXPECT_EQ(content(kept), expected) << "what was not flushed is not there";
    EXPECT_TRUE(kept.seal()) << "nobody else has it for writing any more";
}

TEST_P(MirrorTest, ManyThreadsWithOneEach) {
    std::vector<std::thread> threads;
    std::atomic<int> failures = 0;
    for (unsigned t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            auto object =
                hpp_.create({.name = "t" + std::to_string(t), .size_bytes = 3 << 20, .device = where()}).value();
            for (unsigned round = 0; round < 40; ++round) {
                // Sizes that are cut from shared regions, and sizes with their own region.
                const uint64_t bytes = round % 4 == 3 ? uint64_t{2} << 20 : uint64_t{1000} << (round % 3 * 3);
                const auto data = pattern(bytes, t * 100 + round);
                auto mirror = Mirror::create(object, {.size_bytes = bytes, .load = false, .write = true}).value();
                std::ranges::copy(data, mirror.writable().value().begin());
                if (!mirror.close()) ++failures;
                if (!std::ranges::equal(Mirror::create(object, {.size_bytes = bytes}).value().bytes(), data))
                    ++failures;
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(failures, 0);
}

// ---- GPUs only ----

class MirrorOnGpu : public MirrorTest {
protected:
    void SetUp() override {
        ASSERT_NO_FATAL_FAILURE(MirrorTest::SetUp());
        // A current context, as in a program that uses CUDA.
        int ordinal = where()[5] - '0';
        ASSERT_EQ(fake<int(unsigned)>("cuInit")(0), 0);
        ASSERT_EQ(fake<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context_, ordinal), 0);
        ASSERT_EQ(fake<int(void*)>("cuCtxPushCurrent_v2")(context_), 0);
    }
    void TearDown() override {
        for (void* stream : streams_) fake<int(void*)>("cuStreamDestroy_v2")(stream);
        void* popped = nullptr;
        fake<int(void**)>("cuCtxPopCurrent_v2")(&popped);
    }
    void* make_stream() {
        constexpr unsigned kNonBlocking = 1;
        void* stream = nullptr;
        EXPECT_EQ(fake<int(void**, unsigned)>("cuStreamCreate")(&stream, kNonBlocking), 0);
        streams_.push_back(stream);
        return stream;
    }
    void put_copies(void* stream, unsigned long long address, std::span<std::byte> memory, int count) {
        for (int i = 0; i < count; ++i) {
            ASSERT_EQ(fake<int(void*, unsigned long long, size_t, void*)>("cuMemcpyDtoHAsync_v2")(
                          memory.data(), address, memory.size(), stream),
                      0);
        }
    }

private:
    void* context_ = nullptr;
    std::vector<void*> streams_;
};
INSTANTIATE_TEST_SUITE_P(Devices, MirrorOnGpu, ::testing::Values("cuda:0", "cuda:1"), [](const auto& info) {
    std::string name = info.param;
    std::erase(name, ':');
    return name;
});

// The fake executes work on a stream with a delay: a reader that does not wait sees the old bytes.
TEST_P(MirrorOnGpu, CopiesAreOnTheStreamAndHaveEnded) {
    auto object = make("o", 3 << 20);
    void* stream = make_stream();
    for (unsigned round = 0; round < 20; ++round) {
        auto mirror = Mirror::create(object, {.write = true, .stream = stream}).value();
        ASSERT_TRUE(std::ranges::equal(mirror.bytes(), pattern(3 << 20, 1 + round)));
        std::ranges::copy(pattern(3 << 20, 2 + round), mirror.writable().value().begin());
        ASSERT_TRUE(mirror.flush());
        set(mirror.writable(0, 100).value(), 0xEE);  // a copy that is still under way would include this
        mirror.unmark();
    }
    EXPECT_EQ(content(object), pattern(3 << 20, 21));
}

TEST_P(MirrorOnGpu, ItComesAfterWhatIsOnTheStream) {
    auto object = make("o", 1 << 20);
    void* stream = make_stream();
    Bytes other = pattern(1 << 20, 9);
    ASSERT_EQ(fake<int(unsigned long long, const void*, size_t, void*)>("cuMemcpyHtoDAsync_v2")(
                  reinterpret_cast<unsigned long long>(object.data()), other.data(), other.size(), stream),
              0);
    auto mirror = Mirror::create(object, {.stream = stream}).value();
    EXPECT_TRUE(std::ranges::equal(mirror.bytes(), other));
}

TEST_P(MirrorOnGpu, OtherStreamsAreNotWaitedFor) {
    auto object = make("o", 4096);
    void* busy = make_stream();
    void* stream = make_stream();
    void* event = nullptr;
    Bytes sink(4096);
    ASSERT_EQ(fake<int(void**, unsigned)>("cuEventCreate")(&event, 2), 0);
    put_copies(busy, reinterpret_cast<unsigned long long>(object.data()), sink, 20000);  // at least a second
    ASSERT_EQ(fake<int(void*, void*)>("cuEventRecord")(event, busy), 0);
    auto mirror = Mirror::create(object, {.write = true, .stream = stream}).value();
    set(mirror.writable().value(), 1);
    ASSERT_TRUE(mirror.flush());
    constexpr int kNotReady = 600;
    EXPECT_EQ(fake<int(void*)>("cuEventQuery")(event), kNotReady) << "all of the device was waited for";
    ASSERT_EQ(fake<int(void*)>("cuEventSynchronize")(event), 0);
    fake<int(void*)>("cuEventDestroy_v2")(event);
}

TEST_P(MirrorOnGpu, MemoryIsPinnedOnce) {
    hpp::keep_pinned(0);  // drops the memory of other tests
    hpp::keep_pinned(uint64_t{1} << 30);
    auto object = make("o", 20 << 20);
    auto cycle = [&](uint64_t bytes) {
        auto mirror = Mirror::create(object, {.size_bytes = bytes, .write = true}).value();
        set(mirror.writable(0, 1).value(), 1);
        ASSERT_TRUE(mirror.flush());
    };
    for (uint64_t bytes : {uint64_t{4096}, uint64_t{65536}, uint64_t{20} << 20}) cycle(bytes);
    const auto pinned = fake_calls("cuMemHostRegister");
    EXPECT_GT(pinned, 0u);
    for (int round = 0; round < 100; ++round) {
        for (uint64_t bytes : {uint64_t{4096}, uint64_t{65536}, uint64_t{20} << 20}) cycle(bytes);
    }
    EXPECT_EQ(fake_calls("cuMemHostRegister"), pinned);
    // Until the program requests its release.
    const auto unpinned = fake_calls("cuMemHostUnregister");
    hpp::keep_pinned(0);
    EXPECT_EQ(fake_calls("cuMemHostUnregister"), unpinned + 1) << "the large one";
    cycle(uint64_t{20} << 20);
    EXPECT_EQ(fake_calls("cuMemHostRegister"), pinned + 1);
    EXPECT_EQ(fake_calls("cuMemHostUnregister"), unpinned + 2) << "not kept";
    hpp::keep_pinned(uint64_t{1} << 30);
    cycle(uint64_t{20} << 20);
    EXPECT_EQ(fake_calls("cuMemHostUnregister"), unpinned + 2);
}

TEST_P(MirrorOnGpu, MemoryThatCannotBePinnedIsOnlySlower) {
    hpp::keep_pinned(0);  // drops the memory of other tests
    inject("cuMemHostRegister_v2:*:2\n");
    auto object = make("o", 17 << 20);
    auto mirror = Mirror::create(object, {.write = true});
    inject("");
    ASSERT_TRUE(mirror) << mirror.error().message;
    EXPECT_TRUE(std::ranges::equal(mirror->bytes(), pattern(17 << 20, 1)));
    set(mirror->writable().value(), 1);
    const auto unpinned = fake_calls("cuMemHostUnregister");
    EXPECT_TRUE(mirror->close());
    EXPECT_EQ(fake_calls("cuMemHostUnregister"), unpinned) << "what was not pinned";
    EXPECT_EQ(content(object), Bytes(17 << 20, std::byte{1}));
    hpp::keep_pinned(uint64_t{1} << 30);
}

TEST_P(MirrorOnGpu, ACopyThatFailsIsAnErrorAndCanBeTriedAgain) {
    auto object = make("o", 8192);
    constexpr const char* kRefuse = "cuMemcpyHtoDAsync_v2:*:1,cuMemcpyDtoHAsync_v2:*:1\n";
    inject(kRefuse);
    EXPECT_FALSE(Mirror::create(object));
    inject("");
    auto mirror = Mirror::create(object, {.write = true}).value();
    set(mirror.writable(0, 10).value(), 1);
    set(mirror.writable(100, 10).value(), 1);
    inject(kRefuse);
    EXPECT_FALSE(mirror.flush());
    EXPECT_FALSE(mirror.flush(0, 10));
    EXPECT_FALSE(mirror.load(0, 10));
    inject("");
    ASSERT_TRUE(mirror.flush());
    auto expected = pattern(8192, 1);
    std::fill_n(expected.begin(), 10, std::byte{1});
    std::fill_n(expected.begin() + 100, 10, std::byte{1});
    EXPECT_EQ(content(object), expected);
    EXPECT_FALSE(Mirror::create(object, {.stream = &mirror})) << "no stream";
}

}  // namespace
}  // namespace gshm::core::test
