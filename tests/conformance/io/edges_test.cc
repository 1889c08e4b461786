// Ends of files, holes, and descriptors that are not files.
#include <cstring>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "rig.h"

namespace gshm::core::io::test {
namespace {

constexpr uint64_t kKiB = 1 << 10;
constexpr uint64_t kMiB = 1 << 20;

class Edges : public IoSuite {};

TEST_P(Edges, AtTheEndOfTheFileAndBeyond) {
    for (uint64_t size :
         {uint64_t{0}, uint64_t{1}, uint64_t{4095}, uint64_t{4096}, uint64_t{4097}, 300 * kKiB + 7, 3 * kMiB + 5}) {
        const std::string content = pattern(size, 7);
        TestFile file(content);
        Memory memory(device(), size + 2 * kMiB);
        for (bool cold : {false, true}) {
            for (uint64_t before_end :
                 {uint64_t{0}, uint64_t{1}, uint64_t{512}, uint64_t{4096}, uint64_t{5000}, size}) {
                if (before_end > size) continue;
                for (uint64_t bytes : {uint64_t{1}, uint64_t{4096}, uint64_t{8192}, kMiB, size + kMiB}) {
                    if (cold) file.evict();
                    memory.put(0, std::string(size + 2 * kMiB, 'g'));
                    auto transfer = read(file, size - before_end, memory, 4096, bytes);
                    auto got = source_->run(transfer);
                    ASSERT_TRUE(got) << got.error().message;
                    const uint64_t expected = std::min(bytes, before_end);
                    ASSERT_EQ(*got, expected)
                        << "size " << size << " from the end " << before_end << " bytes " << bytes;
                    ASSERT_TRUE(memory.get(4096, expected) == content.substr(size - before_end, expected));
                    ASSERT_TRUE(memory.get(4096 + expected, kMiB - expected % kMiB) ==
                                std::string(kMiB - expected % kMiB, 'g'))
                        << "bytes behind the end of the file came into memory";
                    ASSERT_TRUE(memory.get(0, 4096) == std::string(4096, 'g'));
                }
            }
        }
        auto far = read(file, size + 10 * kMiB, memory, 0, 4096);
        EXPECT_EQ(*source_->run(far), 0u);
    }
}

TEST_P(Edges, HolesAreZeros) {
    const std::string data = pattern(kMiB + 100, 8);
    TestFile file;
    std::string expected(40 * kMiB, '\0');
    ASSERT_EQ(ftruncate(file.fd(), static_cast<off_t>(expected.size())), 0);
    for (uint64_t at : {uint64_t{0}, 9 * kMiB + 777, 30 * kMiB}) {
        ASSERT_EQ(pwrite(file.fd(), data.data(), data.size(), static_cast<off_t>(at)), ssize_t(data.size()));
        expected.replace(at, data.size(), data);
    }
    for (uint64_t at = 35 * kMiB; at < 36 * kMiB; at += 12 * kKiB) {  // holes below the size that is queried
        ASSERT_EQ(pwrite(file.fd(), data.data(), 4096, static_cast<off_t>(at)), 4096);
        expected.replace(at, 4096, data, 0, 4096);
    }
    file.evict();
    file.open_again();
    ASSERT_TRUE(file.file().is_sparse());
    Memory memory(device(), expected.size() + kMiB);
    memory.clear('g');
    for (uint64_t offset : {uint64_t{0}, uint64_t{12345}, 2 * kMiB, 33 * kMiB}) {
        auto transfer = read(file, offset, memory, 513, expected.size());
        auto got = source_->run(transfer);
        ASSERT_TRUE(got) << got.error().message;
        ASSERT_EQ(*got, expected.size() - offset);
        EXPECT_NE(transfer.path & kPathHole, 0u);
        ASSERT_TRUE(memory.get(513, *got) == expected.substr(offset)) << offset;
        ASSERT_EQ(memory.get(512, 1), "g");
    }
    auto hole = read(file, 11 * kMiB, memory, 0, 8 * kMiB);
    ASSERT_EQ(*source_->run(hole), 8 * kMiB);
    EXPECT_EQ(hole.path & (kPathCached | kPathDirect), 0u) << "nothing was read";
    EXPECT_TRUE(memory.get(0, 8 * kMiB) == std::string(8 * kMiB, '\0'));
}

TEST_P(Edges, FilesThatShrinkWhileTheyAreRead) {
    const std::string content = pattern(64 * kMiB, 9);
    Memory memory(device(), content.size());
    for (int round = 0; round < 6; ++round) {
        TestFile file(content);
        if (round % 2 == 0) file.evict();
        auto transfer = read(file, 0, memory, 0, content.size());
        const uint64_t left = 5 * kMiB + 1234 * static_cast<uint64_t>(round);
        memory.clear('g');
        std::thread shrinker([&] {
            usleep(static_cast<useconds_t>(round) * 1500);
            ASSERT_EQ(ftruncate(file.fd(), static_cast<off_t>(left)), 0);
        });
        auto got = source_->run(transfer);
        shrinker.join();
        ASSERT_TRUE(got) << got.error().message;
        EXPECT_GE(*got, left);
        ASSERT_EQ(gshm::core::test::first_wrong(memory.get(0, *got), 9), *got);
        // Also a small read, of a file that was larger when its size was last read.
        auto small = read(file, left - 10, memory, 0, 4096);
        EXPECT_EQ(*source_->run(small), 10u);
    }
}

TEST_P(Edges, GrowingFilesAreReadToTheirNewEnd) {
    TestFile file(pattern(1000, 10));
    Memory memory(device(), kMiB);
    auto first = read(file, 0, memory, 0, 8192);
    EXPECT_EQ(*source_->run(first), 1000u);
    const std::string more = pattern(9000, 10).substr(1000);
    ASSERT_EQ(pwrite(file.fd(), more.data(), more.size(), 1000), 8000);
    auto second = read(file, 0, memory, 0, 8192);
    EXPECT_EQ(*source_->run(second), 8192u);
    EXPECT_TRUE(memory.get(0, 8192) == pattern(8192, 10));
}

TEST_P(Edges, FilesWithoutASize) {
    auto file = File::create(UniqueFd::adopt(open("/proc/self/cmdline", O_RDONLY)));
    ASSERT_TRUE(file);
    Memory memory(device(), kMiB);
    TestTransfer transfer(Direction::read, **file, 0, memory.address(), memory.copier(), 100'000);
    auto got = source_->run(transfer);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_GT(*got, 5u);
    EXPECT_NE(memory.get(0, *got).find("conformance_tests"), std::string::npos);
}

TEST_P(Edges, WrongWays) {
    TestFile readable(pattern(5000, 1), O_RDONLY);
    TestFile writable(pattern(5000, 1), O_WRONLY);
    TestFile appending(pattern(5000, 1), O_RDWR | O_APPEND);
    Memory memory(device(), kMiB);
    auto a = write(readable, 0, memory, 0, 100);
    EXPECT_EQ(source_->run(a).error().code, EBADF);
    auto b = read(writable, 0, memory, 0, 100);
    EXPECT_EQ(source_->run(b).error().code, EBADF);
    auto c = write(appending, 0, memory, 0, 100);
    EXPECT_EQ(source_->run(c).error().code, EBADF);
    auto d = read(readable, UINT64_MAX - 10, memory, 0, 100);
    EXPECT_EQ(source_->run(d).error().code, EINVAL);
    auto e = write(writable, INT64_MAX - 100, memory, 0, 100);
    EXPECT_EQ(source_->run(e).error().code, EFBIG);
    auto f = write(writable, 4096, memory, 0, 8192);
    EXPECT_EQ(*source_->run(f), 8192u) << "the engine is well";
    EXPECT_EQ(lseek(readable.fd(), 0, SEEK_CUR), 0) << "the place of whoever passed the file has not moved";
    EXPECT_EQ(fcntl(readable.fd(), F_GETFL) & O_DIRECT, 0);
}

class HostEdges : public IoSuite {};

TEST_P(HostEdges, MemoryThatIsNotThere) {
    TestFile file(pattern(4 * kMiB, 1));
    auto* gap = static_cast<char*>(mmap(nullptr, 4 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_EQ(munmap(gap + 2 * kMiB, 2 * kMiB), 0);
    for (bool cold : {false, true}) {
        if (cold) file.evict();
        for (auto way : {Direction::read, Direction::write}) {
            TestTransfer large(way, file.file(), 0, reinterpret_cast<uint64_t>(gap), nullptr, 4 * kMiB);
            EXPECT_EQ(source_->run(large).error().code, EFAULT);
            TestTransfer small(way, file.file(), 0, reinterpret_cast<uint64_t>(gap) + 3 * kMiB, nullptr, 4096);
            EXPECT_EQ(source_->run(small).error().code, EFAULT);
        }
    }
    ASSERT_EQ(ftruncate(file.fd(), 0), 0);
    ASSERT_EQ(ftruncate(file.fd(), 4 * kMiB), 0);  // a hole
    TestTransfer hole(Direction::read, file.file(), 0, reinterpret_cast<uint64_t>(gap), nullptr, 4 * kMiB);
    EXPECT_EQ(source_->run(hole).error().code, EFAULT);
    munmap(gap, 2 * kMiB);
}

TEST_P(Edges, NoRoomForTheFile) {
    rlimit before = {};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    rlimit tight = before;
    tight.rlim_cur = 2 * kMiB;
    TestFile file;
    Memory memory(device(), 4 * kMiB);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
    auto transfer = write(file, 0, memory, 0, 4 * kMiB);
    auto got = source_->run(transfer);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, EFBIG);
}

INSTANTIATE_TEST_SUITE_P(All, Edges, ::testing::ValuesIn(all_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(All, HostEdges, ::testing::ValuesIn(host_cases()), case_name);

TEST(IoFile, WhatIsNoFile) {
    int pipes[2];
    ASSERT_EQ(pipe(pipes), 0);
    EXPECT_EQ(File::create(UniqueFd::adopt(pipes[0])).error().code, EINVAL);
    EXPECT_EQ(File::create(UniqueFd::adopt(pipes[1])).error().code, EINVAL);
    EXPECT_EQ(File::create(UniqueFd::adopt(socket(AF_UNIX, SOCK_STREAM, 0))).error().code, EINVAL);
    EXPECT_EQ(File::create(UniqueFd::adopt(open("/tmp", O_RDONLY | O_DIRECTORY))).error().code, EINVAL);
    EXPECT_EQ(File::create(UniqueFd::adopt(open("/dev/null", O_RDWR))).error().code, EINVAL);
    EXPECT_EQ(File::create(UniqueFd::adopt(open("/proc/self/exe", O_PATH))).error().code, EBADF);
    EXPECT_EQ(File::create(UniqueFd::adopt(-1)).error().code, EBADF);
}

TEST(IoFile, KnowsWhatIsInThePageCache) {
    TestFile file(pattern(8 * kMiB, 1));
    EXPECT_TRUE(file.file().is_cached(0, 8 * kMiB));
    EXPECT_TRUE(file.file().is_mostly_cached(0, 4096));
    file.evict();
    EXPECT_FALSE(file.file().is_cached(0, 8 * kMiB));
    // The old answer is cached for a while.
    unsigned asked = 0;
    while (file.file().is_mostly_cached(0, 4096)) ASSERT_LT(++asked, 5000u);
    EXPECT_GT(asked, 1000u);
}

}  // namespace
}  // namespace gshm::core::io::test
