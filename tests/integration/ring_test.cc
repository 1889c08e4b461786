// Rings: files into objects and back, on every device, and rejected requests.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "integration/ring_fixture.h"

namespace gshm::core::test {
namespace {

TEST_P(RingTest, RangesOfEveryKindArriveWhole) {
    const uint64_t size = 9 * kMiB + 12345;
    const std::string bytes = pattern(size, 1);
    const int fd = make_file("f", bytes);
    auto ring = make_ring();
    const uint32_t file = add(ring, fd);
    auto object = create(client_.get(), "o", size + 8192, where(), GSHM_NO_MAP);
    std::string expected(size + 8192, '\0');
    const uint64_t lengths[] = {0, 1, 511, 512, 513, 4095, 4096, 4097, kMiB, 8 * kMiB + 1};
    const uint64_t offsets[] = {0, 1, 511, 4096, 4097, 8191};
    for (uint64_t length : lengths) {
        for (uint64_t from : offsets) {
            for (uint64_t to : offsets) {
                ASSERT_EQ(one(ring, GSHM_IO_READ, file, from, object.get(), to, length), static_cast<int64_t>(length));
                expected.replace(to, length, bytes, from, length);
            }
        }
        ASSERT_TRUE(bytes_of(object.get()) == expected) << length;
    }
}

TEST_P(RingTest, ObjectsBecomeFiles) {
    const uint64_t size = 5 * kMiB + 777;
    auto object = make("o", size, where(), 3);
    auto ring = make_ring();
    const int fd = make_file("f", std::string(100, 'x'));
    const uint32_t file = add(ring, fd);
    // Across its end, in its middle, and beyond its end.
    EXPECT_EQ(one(ring, GSHM_IO_WRITE, file, 50, object.get(), 0, size), static_cast<int64_t>(size));
    std::string expected = std::string(50, 'x') + pattern(size, 3);
    EXPECT_TRUE(contents(fd) == expected);
    EXPECT_EQ(one(ring, GSHM_IO_WRITE, file, 4097, object.get(), 1, 4095), 4095);
    expected.replace(4097, 4095, pattern(size, 3), 1, 4095);
    EXPECT_TRUE(contents(fd) == expected);
    EXPECT_EQ(one(ring, GSHM_IO_WRITE, file, 8 * kMiB, object.get(), 0, kMiB), static_cast<int64_t>(kMiB));
    expected.resize(8 * kMiB, '\0');
    expected += pattern(kMiB, 3);
    EXPECT_TRUE(contents(fd) == expected);
}

TEST_P(RingTest, ShortAtTheEndOfTheFileAndZerosInItsHoles) {
    const int fd = make_file("f", pattern(10'000, 1));
    ASSERT_EQ(ftruncate(fd, 40 * kMiB), 0);
    ASSERT_EQ(pwrite(fd, "end", 3, 40 * kMiB - 3), 3);
    auto ring = make_ring();
    const uint32_t file = add(ring, fd);
    auto object = create(client_.get(), "o", 48 * kMiB, where(), GSHM_NO_MAP);
    ASSERT_EQ(gshm_fill(object.get(), 0, 48 * kMiB, 0xee), 0);
    EXPECT_EQ(one(ring, GSHM_IO_READ, file, 0, object.get(), 1, 47 * kMiB), 40 * static_cast<int64_t>(kMiB));
    const std::string bytes = bytes_of(object.get());
    EXPECT_EQ(bytes[0], '\xee');
    EXPECT_EQ(bytes.compare(1, 10'000, pattern(10'000, 1)), 0);
    EXPECT_EQ(bytes.find_first_not_of('\0', 10'001), 40 * kMiB - 2);
    EXPECT_EQ(bytes.compare(40 * kMiB - 2, 3, "end"), 0);
    EXPECT_EQ(bytes[40 * kMiB + 1], '\xee') << "what lies past the end of the file was touched";
    EXPECT_EQ(one(ring, GSHM_IO_READ, file, 40 * kMiB, object.get(), 0, 100), 0);
    EXPECT_EQ(one(ring, GSHM_IO_READ, file, 400 * kMiB, object.get(), 0, 100), 0);
    EXPECT_EQ(one(ring, GSHM_IO_READ, file, 40 * kMiB - 1, object.get(), 0, 100), 1);
}

TEST_P(RingTest, OneOperationOfManyRangesInAllKindsOfMemory) {
    const std::string bytes = pattern(8 * kMiB, 4);
    const int fd = make_file("f", bytes);
    auto ring = make_ring(8);
    const uint32_t file = add(ring, fd);
    auto small = create(client_.get(), "small", 5000, where());
    auto large = create(client_.get(), "large", 3 * kMiB, where());
    gshm_object* handle = nullptr;
    ASSERT_EQ(gshm_allocate(where(), 2 * kMiB, 0, &handle), 0) << gshm_last_error();
    Object mine(handle);
    std::string memory(10'000, '\0');
    ASSERT_EQ(gshm_wrap(memory.data() + 1, 9'000, &handle), 0) << gshm_last_error();
    Object wrapped(handle);
    ASSERT_EQ(
        prepare(ring, GSHM_IO_READ, file, 100,
                {{small.get(), 10, 4000}, {large.get(), 0, 3 * kMiB}, {wrapped.get(), 0, 9'000}, {mine.get(), 7, kMiB}},
                9),
        0)
        << gshm_last_error();
    const uint64_t total = 4000 + 3 * kMiB + 9'000 + kMiB;
    EXPECT_EQ(finish(ring, 1)[9], static_cast<int64_t>(total));
    EXPECT_EQ(bytes_of(small.get()).substr(10, 4000), bytes.substr(100, 4000));
    EXPECT_EQ(bytes_of(large.get()), bytes.substr(4100, 3 * kMiB));
    EXPECT_EQ(memory.substr(1, 9'000), bytes.substr(4100 + 3 * kMiB, 9'000));
    EXPECT_EQ(bytes_of(mine.get()).substr(7, kMiB), bytes.substr(4100 + 3 * kMiB + 9'000, kMiB));
    // If the file ends in the second range, the third one gets no bytes.
    ASSERT_EQ(prepare(ring, GSHM_IO_READ, file, 8 * kMiB - 4500,
                      {{small.get(), 0, 4000}, {large.get(), 0, 4000}, {mine.get(), 0, 5}}),
              0);
    EXPECT_EQ(finish(ring, 1)[0], 4500);
}

TEST_P(RingTest, ManyAtOnceAndEachCompletionAsItComes) {
    const std::string bytes = pattern(16 * kMiB, 5);
    const int fd = make_file("f", bytes);
    auto ring = make_ring(64);
    const uint32_t file = add(ring, fd);
    auto object = create(client_.get(), "o", 16 * kMiB, where(), GSHM_NO_MAP);
    Random random(1);
    for (int round = 0; round < 20; ++round) {
        for (uint64_t i = 0; i < 64; ++i) {
            const uint64_t block = random.below(4096);
            ASSERT_EQ(prepare(ring, GSHM_IO_READ, file, block * 4096, {{object.get(), block * 4096, 4096}}, i), 0);
        }
        gshm_object* o = object.get();
        EXPECT_EQ(prepare(ring, GSHM_IO_READ, file, 0, {{o, 0, 1}}), -EAGAIN);
        for (const auto& [index, result] : finish(ring, 64)) EXPECT_EQ(result, 4096) << index;
    }
    ASSERT_EQ(one(ring, GSHM_IO_READ, file, 0, object.get(), 0, 16 * kMiB), 16 * static_cast<int64_t>(kMiB));
    EXPECT_TRUE(bytes_of(object.get()) == bytes);
}

TEST_P(RingTest, WhatItRefuses) {
    const int fd = make_file("f", pattern(10'000, 1), O_RDONLY);
    const int write_only = make_file("w", "", O_WRONLY);
    auto ring = make_ring(4);
    const uint32_t file = add(ring, fd);
    auto open_one = create(client_.get(), "o", 10'000, where(), GSHM_NO_MAP);
    auto sealed = make("s", 10'000, where(), 1);
    gshm_object* o = open_one.get();
    EXPECT_EQ(prepare(ring, GSHM_IO_WRITE, file, 0, {{o, 0, 1}}), -EBADF);
    EXPECT_EQ(prepare(ring, GSHM_IO_READ, add(ring, write_only), 0, {{o, 0, 1}}), -EBADF);
    EXPECT_EQ(prepare(ring, GSHM_IO_READ, 77, 0, {{o, 0, 1}}), -EBADF);
    EXPECT_EQ(prepare(ring, 3, file, 0, {{o, 0, 1}}), -EINVAL);
    EXPECT_EQ(prepare(ring, GSHM_IO_READ, file, 0, {}), -EINVAL);
    EXPECT_EQ(prepare(ring, GSHM_IO_READ, file, 0, {{nullptr, 0, 1}}), -EINVAL);
    EXPECT_EQ(prepare(ring, GSHM_IO_READ, file, 0, {{o, 9'999, 2}}), -EINVAL);
    EXPECT_EQ(prepare(ring, GSHM_IO_READ, file, 0, {{o, ~0ull, 2}}), -EINVAL);
    EXPECT_EQ(prepare(ring, GSHM_IO_READ, file, ~0ull, {{o, 0, 2}}), -EINVAL);
    EXPECT_EQ(prepare(ring, GSHM_IO_READ, file, 0, {{sealed.get(), 0, 1}}), -EPERM);
    auto reader = open(client_.get(), "s", GSHM_NO_MAP);
    EXPECT_EQ(prepare(ring, GSHM_IO_READ, file, 0, {{reader.get(), 0, 1}}), -EACCES);
    EXPECT_EQ(prepare(ring, GSHM_IO_READ, file, 0, std::vector<gshm_range>(5, {o, 0, 1})), -EINVAL);
    gshm_completion completion;
    EXPECT_EQ(gshm_ring_wait(ring.get(), &completion, 1, 1, -1), is_shared() ? 0 : -EINVAL) << "nothing is under way";
    EXPECT_EQ(gshm_ring_wait(ring.get(), &completion, 1, 2, 0), -EINVAL);
    EXPECT_EQ(gshm_ring_wait(ring.get(), &completion, 1, 0, 0), 0);
    EXPECT_EQ(gshm_ring_submit(ring.get()), 0);
    // Descriptors that are not files.
    uint32_t slot = 0;
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    EXPECT_EQ(gshm_ring_add_file(ring.get(), ends[0], &slot), -EINVAL);
    files_.insert(files_.end(), {ends[0], ends[1]});
    files_.push_back(::open("/", O_RDONLY | O_DIRECTORY));
    EXPECT_EQ(gshm_ring_add_file(ring.get(), files_.back(), &slot), -EINVAL);
    files_.push_back(::open(file_path("f").c_str(), O_PATH));
    EXPECT_EQ(gshm_ring_add_file(ring.get(), files_.back(), &slot), -EBADF);
    EXPECT_EQ(gshm_ring_add_file(ring.get(), -1, &slot), -EBADF);
    EXPECT_EQ(gshm_ring_remove_file(ring.get(), 99), -EBADF);
    // An object of another connection.
    auto other = connect();
    auto foreign = create(other.get(), "foreign", 100, where(), GSHM_NO_MAP);
    EXPECT_EQ(prepare(ring, GSHM_IO_READ, file, 0, {{foreign.get(), 0, 1}}), -EXDEV);
    auto alone = make_ring(nullptr, 4);
    EXPECT_EQ(prepare(alone, GSHM_IO_READ, add(alone, fd), 0, {{o, 0, 1}}), -EXDEV);
    gshm_ring_options wrong = GSHM_RING_OPTIONS_INIT;
    wrong.entries = 0;
    gshm_ring* none = nullptr;
    EXPECT_EQ(gshm_ring_create(client_.get(), &wrong, &none), -EINVAL);
    EXPECT_EQ(one(ring, GSHM_IO_READ, file, 0, o, 0, 10'000), 10'000) << "after all that it works";
}

TEST_P(RingTest, WhatIsDoneCanBeSealedAtOnce) {
    const int fd = make_file("f", pattern(8192, 1));
    auto ring = make_ring();
    const uint32_t file = add(ring, fd);
    for (int i = 0; i < 200; ++i) {
        const std::string name = "o" + std::to_string(i);
        auto object = create(client_.get(), name.c_str(), 8192, where(), GSHM_NO_MAP);
        ASSERT_EQ(one(ring, GSHM_IO_READ, file, 0, object.get(), 0, 8192), 8192);
        ASSERT_EQ(gshm_seal(object.get()), 0) << gshm_last_error();
    }
    EXPECT_TRUE(has("o0", 1));
    EXPECT_TRUE(has("o199", 1));
}

TEST_P(RingTest, AnObjectMayBeClosedAndAFileOnceItIsPrepared) {
    const std::string bytes = pattern(4 * kMiB, 2);
    const int fd = make_file("f", bytes);
    auto ring = make_ring();
    const int copy = dup(fd);
    const uint32_t file = add(ring, copy);
    ::close(copy);
    auto object = create(client_.get(), "o", 4 * kMiB, where(), GSHM_KEEP);
    ASSERT_EQ(prepare(ring, GSHM_IO_READ, file, 0, {{object.get(), 0, 4 * kMiB}}), 0);
    object.reset();
    EXPECT_EQ(gshm_ring_remove_file(ring.get(), file), -EBUSY);
    EXPECT_EQ(finish(ring, 1)[0], 4 * static_cast<int64_t>(kMiB));
    EXPECT_TRUE(has("o", 2));
    EXPECT_EQ(gshm_ring_remove_file(ring.get(), file), 0) << gshm_last_error();
    auto again = open(client_.get(), "o", GSHM_NO_MAP);
    EXPECT_EQ(prepare(ring, GSHM_IO_WRITE, file, 0, {{again.get(), 0, 1}}), -EBADF);
    gshm_object* mine = nullptr;
    ASSERT_EQ(gshm_allocate(where(), 4 * kMiB, 0, &mine), 0);
    const uint32_t second = add(ring, fd);
    ASSERT_EQ(prepare(ring, GSHM_IO_READ, second, 0, {{mine, 0, 4 * kMiB}}), 0);
    gshm_close(mine);
    EXPECT_EQ(finish(ring, 1)[0], 4 * static_cast<int64_t>(kMiB));
}

TEST_P(RingTest, SealingWaitsForNothingButRefusesWhileItIsWritten) {
    auto ring = make_ring();
    const uint32_t file = add(ring, make_file("f", pattern(64 * kMiB, 1)));
    auto object = create(client_.get(), "o", 64 * kMiB, where(), GSHM_NO_MAP);
    ASSERT_EQ(prepare(ring, GSHM_IO_READ, file, 0, {{object.get(), 0, 64 * kMiB}}), 0);
    ASSERT_EQ(gshm_ring_submit(ring.get()), 1);
    const int sealed = gshm_seal(object.get());
    EXPECT_TRUE(sealed == -EBUSY || sealed == 0) << sealed;  // it may already be done
    gshm_completion completion;
    ASSERT_EQ(gshm_ring_wait(ring.get(), &completion, 1, 1, kPatience), 1);
    EXPECT_EQ(gshm_seal(object.get()), 0) << gshm_last_error();
    EXPECT_TRUE(has("o", 1));
}

TEST_P(RingTest, ARingForEachOfManyThreads) {
    const std::string bytes = pattern(4 * kMiB, 6);
    make_file("f", bytes);
    std::vector<std::thread> threads;
    std::atomic<int> good = 0;
    for (int t = 0; t < 6; ++t) {
        threads.emplace_back([&, t] {
            auto ring = make_ring(8);
            const int fd = ::open(file_path("f").c_str(), O_RDONLY | O_CLOEXEC);
            const uint32_t file = add(ring, fd);
            ::close(fd);
            auto object = create(client_.get(), ("t" + std::to_string(t)).c_str(), 4 * kMiB, where(), GSHM_NO_MAP);
            for (int round = 0; round < 10; ++round) {
                for (uint64_t i = 0; i < 8; ++i) {
                    prepare(ring, GSHM_IO_READ, file, i * kMiB / 2, {{object.get(), i * kMiB / 2, kMiB / 2}}, i);
                }
                for (const auto& [index, result] : finish(ring, 8)) EXPECT_EQ(result, static_cast<int64_t>(kMiB / 2));
            }
            if (holds(object.get(), 6)) ++good;
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(good, 6);
}

// The kernel refuses to allocate file pages from now on.
bool refuse_pages(int error) {
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program = {std::size(filter), filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST_P(RingTest, TooLittleSharedMemoryIsSaidWhenItIsMade) {
    make_file("f", "some bytes");
    for (int error : {ENOSPC, ENOMEM}) {
        EXPECT_EQ(in_child([&] {
                      auto mine = connect();
                      if (!refuse_pages(error)) return 1;
                      gshm_ring* ring = nullptr;
                      if (gshm_ring_create(mine.get(), nullptr, &ring) != -ENOSPC || ring != nullptr) return 2;
                      if (std::string(gshm_last_error()).find("no shared memory") == std::string::npos) return 3;
                      const auto wanted = spec("o", 0, where());
                      if (gshm_put_file(mine.get(), file_path("f").c_str(), &wanted, nullptr, nullptr) != -ENOSPC)
                          return 4;
                      if (open_code(mine.get(), "o") != -ENOENT) return 5;
                      return gshm_ping(mine.get()) == 0 ? 0 : 6;
                  }),
                  0)
            << error;
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, RingTest, kDevicesAndKinds, ring_of);

}  // namespace
}  // namespace gshm::core::test
