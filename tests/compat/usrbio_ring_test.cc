// 3FS's interface: rings and registered files.
#include <fcntl.h>
#include <set>
#include <sys/stat.h>

#include "usrbio_fixture.h"

namespace gshm::core::test {
namespace {

timespec in_ms(int ms) {
    timespec now = {};
    clock_gettime(CLOCK_REALTIME, &now);
    const int64_t ns = now.tv_nsec + int64_t{ms} * 1'000'000;
    return {now.tv_sec + static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

class UsrbioRing : public UsrbioGpuTest {
protected:
    void SetUp() override {
        UsrbioGpuTest::SetUp();
        bytes_ = pattern(4 * kMiB + 777);
        path_ = make_file("file.bin", bytes_);
        fd_ = ::open(path_.c_str(), O_RDONLY);
        ASSERT_LE(hf3fs_reg_fd(fd_, 0), 0);
    }
    void TearDown() override {
        hf3fs_iordestroy(&ior_);
        hf3fs_iovdestroy(&iov_);
        hf3fs_dereg_fd(fd_);
        ::close(fd_);
    }
    void make_iov(size_t size = 8 * kMiB) { ASSERT_EQ(hf3fs_iovcreate_gpu(&iov_, mount_point(), size, 0, 0), 0); }
    void make_ior(int entries, bool for_read = true, int io_depth = 0, uint64_t flags = 0) {
        ASSERT_EQ(hf3fs_iorcreate4(&ior_, mount_point(), entries, for_read, io_depth, 0, -1, flags), 0);
    }
    int prep(size_t at, size_t offset, size_t length, const void* data = nullptr) {
        return hf3fs_prep_io(&ior_, &iov_, true, iov_.base + at, fd_, offset, length, data);
    }
    std::vector<hf3fs_cqe> take(int room, int least, const timespec* deadline = nullptr) {
        std::vector<hf3fs_cqe> cqes(static_cast<size_t>(room));
        const int taken = hf3fs_wait_for_ios(&ior_, cqes.data(), room, least, deadline);
        EXPECT_GE(taken, 0);
        cqes.resize(static_cast<size_t>(std::max(taken, 0)));
        return cqes;
    }
    // Of an operation alone.
    int64_t do_one(size_t at, size_t offset, size_t length) {
        EXPECT_GE(prep(at, offset, length), 0);
        EXPECT_EQ(hf3fs_submit_ios(&ior_), 0);
        const auto done = take(1, 1);
        return done.empty() ? -1 : done[0].result;
    }

    std::string bytes_;
    std::string path_;
    int fd_ = -1;
    hf3fs_iov iov_ = {};
    hf3fs_ior ior_ = {};
};
GSHM_FOR_GPU_AND_HOST(UsrbioRing);

TEST_P(UsrbioRing, WhatAnIorSays) {
    ASSERT_EQ(hf3fs_iorcreate3(&ior_, mount_point(), 100, false, -7, 1, 25, 0), 0);
    EXPECT_EQ(hf3fs_io_entries(&ior_), 100);
    EXPECT_STREQ(ior_.mount_point, mount_point());
    EXPECT_FALSE(ior_.for_read);
    EXPECT_EQ(ior_.io_depth, -7);
    EXPECT_EQ(ior_.priority, 1);
    EXPECT_EQ(ior_.timeout, 25);
    EXPECT_EQ(ior_.iov.size, hf3fs_ior_size(100));
    hf3fs_iordestroy(&ior_);
    EXPECT_EQ(ior_.iorh, nullptr);
    hf3fs_iordestroy(&ior_);
    ASSERT_EQ(hf3fs_iorcreate2(&ior_, mount_point(), 1, true, 0, -1, -1), 0);
    EXPECT_EQ(ior_.priority, -1);
    hf3fs_iordestroy(&ior_);
    ASSERT_EQ(hf3fs_iorcreate(&ior_, mount_point(), 1, true, 3, -1), 0);
    EXPECT_EQ(ior_.io_depth, 3);
    hf3fs_ior bad = {};
    EXPECT_EQ(hf3fs_iorcreate(&bad, mount_point(), 0, true, 0, -1), -EINVAL);
    EXPECT_EQ(hf3fs_iorcreate(&bad, mount_point(), -5, true, 0, -1), -EINVAL);
    EXPECT_EQ(hf3fs_iorcreate(&bad, mount_point(), 1 << 30, true, 0, -1), -EINVAL);
}

TEST_P(UsrbioRing, ReadsAtAllPlaces) {
    make_iov();
    make_ior(64);
    struct Case {
        size_t at, offset, length;
    };
    const size_t size = bytes_.size();
    for (auto [at, offset, length] :
         {Case{0, 0, size}, Case{1, 1, 1}, Case{4095, 511, 513}, Case{777, size - 5, 5}, Case{3, size - 5, 100},
          Case{0, size, 10}, Case{0, size + kMiB, 10}, Case{8 * kMiB - 100, 4096, 100}}) {
        const size_t there = offset < size ? std::min(length, size - offset) : 0;
        EXPECT_EQ(do_one(at, offset, length), static_cast<int64_t>(there)) << at << " " << offset << " " << length;
        if (there == 0) continue;
        EXPECT_EQ(read(iov_.base + at, there), bytes_.substr(offset, there));
    }
}

TEST_P(UsrbioRing, WritesAndReadsBack) {
    make_iov(3 * kMiB);
    make_ior(8, false);
    const std::string out = make_file("out.bin", "");
    const int fd = ::open(out.c_str(), O_RDWR);
    ASSERT_LE(hf3fs_reg_fd(fd, 0), 0);
    const std::string text = pattern(2 * kMiB + 3, 7);
    write(iov_.base + 5, text);
    ASSERT_EQ(hf3fs_iovsync_gpu(&iov_, 0), 0);
    ASSERT_GE(hf3fs_prep_io(&ior_, &iov_, false, iov_.base + 5, fd, 11, text.size(), &iov_), 0);
    ASSERT_EQ(hf3fs_submit_ios(&ior_), 0);
    auto done = take(4, 1);
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].result, static_cast<int64_t>(text.size()));
    EXPECT_EQ(done[0].userdata, &iov_);
    std::string found(text.size(), '\0');
    EXPECT_EQ(pread(fd, found.data(), found.size(), 11), static_cast<ssize_t>(found.size()));
    EXPECT_EQ(found, text);
    struct stat status = {};
    fstat(fd, &status);
    EXPECT_EQ(status.st_size, static_cast<off_t>(text.size() + 11)) << "nothing was written past its end";
    EXPECT_EQ(hf3fs_prep_io(&ior_, &iov_, true, iov_.base, fd, 0, 1, nullptr), -EINVAL) << "a ring for writing";
    EXPECT_EQ(hf3fs_prep_io(&ior_, &iov_, false, iov_.base, fd_, 0, 1, nullptr), -EACCES) << "open for reading only";
    hf3fs_dereg_fd(fd);
    ::close(fd);
}

TEST_P(UsrbioRing, PrepRefuses) {
    make_iov(kMiB);
    make_ior(4);
    EXPECT_EQ(prep(0, 0, 0), -EINVAL);
    EXPECT_EQ(prep(0, 0, kMiB + 1), -EINVAL);
    EXPECT_EQ(prep(kMiB, 0, 1), -EINVAL);
    EXPECT_EQ(prep(kMiB - 1, 0, 2), -EINVAL);
    EXPECT_EQ(prep(0, 0, UINT64_MAX), -EINVAL);
    EXPECT_EQ(hf3fs_prep_io(&ior_, &iov_, true, iov_.base - 1, fd_, 0, 1, nullptr), -EINVAL);
    EXPECT_EQ(hf3fs_prep_io(&ior_, &iov_, true, nullptr, fd_, 0, 1, nullptr), -EINVAL);
    EXPECT_EQ(hf3fs_prep_io(&ior_, &iov_, false, iov_.base, fd_, 0, 1, nullptr), -EINVAL) << "a ring for reading";
    EXPECT_EQ(hf3fs_prep_io(&ior_, &iov_, true, iov_.base, 999, 0, 1, nullptr), -EBADF);
    hf3fs_iov nothing = {};
    EXPECT_EQ(hf3fs_prep_io(&ior_, &nothing, true, iov_.base, fd_, 0, 1, nullptr), -EINVAL);
    hf3fs_cqe cqe = {};
    EXPECT_EQ(hf3fs_wait_for_ios(&ior_, &cqe, 0, 0, nullptr), -EINVAL);
    EXPECT_EQ(hf3fs_wait_for_ios(&ior_, nullptr, 1, 0, nullptr), -EINVAL);
}

TEST_P(UsrbioRing, AFullRingHasRoomAgainWhenCompletionsAreTaken) {
    make_iov();
    make_ior(5);
    std::set<int> indexes;
    for (size_t i = 0; i < 5; ++i) indexes.insert(prep(i * 4096, i * 100, 4096, &bytes_[i]));
    EXPECT_EQ(indexes.size(), 5u);
    EXPECT_GE(*indexes.begin(), 0);
    EXPECT_LT(*indexes.rbegin(), 5);
    EXPECT_EQ(prep(0, 0, 1), -EAGAIN);
    ASSERT_EQ(hf3fs_submit_ios(&ior_), 0);
    EXPECT_EQ(prep(0, 0, 1), -EAGAIN);
    auto done = take(2, 2);
    ASSERT_EQ(done.size(), 2u);
    EXPECT_GE(prep(0, 0, 1), 0);
    EXPECT_GE(prep(0, 0, 1), 0);
    EXPECT_EQ(prep(0, 0, 1), -EAGAIN);
    ASSERT_EQ(hf3fs_submit_ios(&ior_), 0);
    for (const auto& cqe : take(100, 5)) done.push_back(cqe);
    ASSERT_EQ(done.size(), 7u);
    for (const auto& cqe : done) {
        EXPECT_TRUE(indexes.contains(cqe.index));
        EXPECT_EQ(cqe.result, cqe.userdata == nullptr ? 1 : 4096);
    }
    for (size_t i = 1; i < 5; ++i) EXPECT_EQ(read(iov_.base + i * 4096, 4096), bytes_.substr(i * 100, 4096));
}

TEST_P(UsrbioRing, WaitingHasADeadline) {
    make_iov(kMiB);
    make_ior(8);
    auto soon = in_ms(50);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(take(4, 1, &soon).size(), 0u) << "nothing is under way, and nobody says ETIMEDOUT";
    EXPECT_GE(std::chrono::steady_clock::now() - begin, 45ms);
    const timespec past = {1, 0};
    EXPECT_EQ(take(4, 4, &past).size(), 0u);
    ASSERT_GE(prep(0, 0, 100), 0);
    ASSERT_EQ(hf3fs_submit_ios(&ior_), 0);
    soon = in_ms(300);
    EXPECT_EQ(take(4, 3, &soon).size(), 1u) << "fewer than asked for";
    EXPECT_EQ(take(4, 0).size(), 0u);
    const timespec far = {std::numeric_limits<time_t>::max(), 0};
    ASSERT_GE(prep(0, 0, 100), 0);
    EXPECT_EQ(take(4, 1, &far).size(), 1u) << "waiting begins what nobody has submitted";
}

TEST_P(UsrbioRing, ADepthBeginsByItself) {
    make_iov(kMiB);
    make_ior(8, true, 3);
    for (int i = 0; i < 3; ++i) ASSERT_GE(prep(static_cast<size_t>(i) * 4096, 0, 4096), 0);
    std::vector<hf3fs_cqe> done;
    for (int i = 0; i < 1000 && done.size() < 3; ++i) {
        for (const auto& cqe : take(8, 0)) done.push_back(cqe);
        std::this_thread::sleep_for(2ms);
    }
    EXPECT_EQ(done.size(), 3u);
    ASSERT_GE(prep(0, 0, 4096), 0);
    ASSERT_EQ(hf3fs_submit_ios(&ior_), 0);
    EXPECT_EQ(take(8, 1).size(), 1u) << "submitting begins what there is";
}

// As 3FS's programs do it: one thread prepares, another takes.
TEST_P(UsrbioRing, OneThreadPreparesWhileAnotherWaits) {
    make_iov();
    make_ior(16);
    constexpr int kOperations = 2000;
    std::atomic<int> taken = 0;
    std::thread taker([&] {
        hf3fs_cqe cqes[8];
        while (taken < kOperations) {
            const int got = hf3fs_wait_for_ios(&ior_, cqes, 8, 1, nullptr);
            ASSERT_GT(got, 0);
            for (int i = 0; i < got; ++i) EXPECT_EQ(cqes[i].result, 4096);
            taken += got;
        }
    });
    for (int i = 0; i < kOperations;) {
        const int index = prep(static_cast<size_t>(i % 64) * 4096, static_cast<size_t>(i) * 512 % (4 * kMiB), 4096);
        if (index == -EAGAIN) {
            std::this_thread::yield();
            continue;
        }
        ASSERT_GE(index, 0);
        ASSERT_EQ(hf3fs_submit_ios(&ior_), 0);
        ++i;
    }
    taker.join();
    EXPECT_EQ(taken, kOperations);
}

TEST_P(UsrbioRing, ForeignMemoryAndHostMemoryInOneRing) {
    make_iov(kMiB);
    make_ior(8);
    char* memory = foreign_memory(2 * kMiB) + 1001;
    const uint8_t id[16] = {8};
    hf3fs_iov wrapped = {};
    hf3fs_iov host = {};
    ASSERT_EQ(hf3fs_iovwrap_gpu(&wrapped, memory, id, mount_point(), kMiB, 0, 0), 0);
    ASSERT_EQ(hf3fs_iovcreate(&host, mount_point(), kMiB, 0, -1), 0);
    ASSERT_GE(prep(9, 10, 70000), 0);
    ASSERT_GE(hf3fs_prep_io(&ior_, &wrapped, true, memory + 3, fd_, 20, 80000, nullptr), 0);
    ASSERT_GE(hf3fs_prep_io(&ior_, &host, true, host.base + 1, fd_, 30, 90000, nullptr), 0);
    ASSERT_EQ(hf3fs_submit_ios(&ior_), 0);
    EXPECT_EQ(take(3, 3).size(), 3u);
    EXPECT_EQ(read(iov_.base + 9, 70000), bytes_.substr(10, 70000));
    EXPECT_EQ(read(memory + 3, 80000), bytes_.substr(20, 80000));
    EXPECT_EQ(std::string(reinterpret_cast<char*>(host.base) + 1, 90000), bytes_.substr(30, 90000));
    hf3fs_iovdestroy(&host);
    hf3fs_iovdestroy_gpu(&wrapped);
}

TEST_P(UsrbioRing, HolesAreZerosOrForbidden) {
    make_iov(4 * kMiB);
    make_ior(4);
    const size_t start[] = {kMiB};
    const size_t end[] = {2 * kMiB};
    const int fd = ::open(path_.c_str(), O_RDWR);
    ASSERT_EQ(hf3fs_punchhole(fd, 1, start, end, 0), 0);
    EXPECT_EQ(do_one(0, kMiB - 10, kMiB + 20), static_cast<int64_t>(kMiB + 20));
    EXPECT_EQ(read(iov_.base, kMiB + 20),
              bytes_.substr(kMiB - 10, 10) + std::string(kMiB, '\0') + bytes_.substr(2 * kMiB, 10));
    hf3fs_iordestroy(&ior_);
    make_ior(4, true, 0, HF3FS_IOR_FORBID_READ_HOLES);
    EXPECT_EQ(do_one(0, kMiB - 10, 20), -ENODATA);
    EXPECT_EQ(do_one(0, 2 * kMiB, 2 * kMiB), static_cast<int64_t>(2 * kMiB));
    EXPECT_EQ(do_one(0, bytes_.size() - 5, 10), 5) << "the file's end is no hole";
    ::close(fd);
}

TEST_P(UsrbioRing, RegisteredFiles) {
    make_iov(kMiB);
    make_ior(4);
    EXPECT_EQ(hf3fs_reg_fd(fd_, 0), EINVAL) << "registered already";
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    EXPECT_EQ(hf3fs_reg_fd(ends[0], 0), EBADF);
    const int folder = ::open(scratch().c_str(), O_RDONLY | O_DIRECTORY);
    EXPECT_EQ(hf3fs_reg_fd(folder, 0), EBADF);

    const int fd = ::open(path_.c_str(), O_RDONLY);
    const int handle = hf3fs_reg_fd(fd, 0);
    ASSERT_LE(handle, 0);
    const std::string other = make_file("other", "something else, of a hundred bytes or so");
    const int opened = ::open(other.c_str(), O_RDONLY);
    const int again = dup2(opened, fd);  // closes the first, and has its number
    for (int number : {fd, handle, -handle}) {
        ASSERT_GE(hf3fs_prep_io(&ior_, &iov_, true, iov_.base, number, 5, 100, nullptr), 0) << "it stays open here";
        ASSERT_EQ(hf3fs_submit_ios(&ior_), 0);
        ASSERT_EQ(take(1, 1).size(), 1u);
        EXPECT_EQ(read(iov_.base, 100), bytes_.substr(5, 100));
    }
    EXPECT_EQ(hf3fs_reg_fd(again, 0), EINVAL) << "the number is still the other file's";
    hf3fs_dereg_fd(fd);
    EXPECT_EQ(hf3fs_prep_io(&ior_, &iov_, true, iov_.base, fd, 0, 1, nullptr), -EBADF);
    EXPECT_EQ(hf3fs_prep_io(&ior_, &iov_, true, iov_.base, handle, 0, 1, nullptr), -EBADF);
    ASSERT_LE(hf3fs_reg_fd(again, 0), 0);
    ASSERT_GE(hf3fs_prep_io(&ior_, &iov_, true, iov_.base, again, 0, 9, nullptr), 0);
    ASSERT_EQ(hf3fs_submit_ios(&ior_), 0);
    ASSERT_EQ(take(1, 1).size(), 1u);
    EXPECT_EQ(read(iov_.base, 9), "something");
    hf3fs_dereg_fd(again);
    for (int one : {ends[0], ends[1], folder, opened, again}) ::close(one);
}

// A ring for each thread, all of them on one iov and one file.
TEST_P(UsrbioRing, ManyThreadsHaveARingEach) {
    make_iov();
    constexpr size_t kThreads = 100;
    std::vector<std::thread> threads;
    std::atomic<size_t> good = 0;
    for (size_t i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, i] {
            hf3fs_ior ior = {};
            if (hf3fs_iorcreate4(&ior, mount_point(), 4, true, 0, 0, -1, 0) != 0) return;
            for (size_t round = 0; round < 10; ++round) {
                hf3fs_cqe cqe = {};
                if (hf3fs_prep_io(&ior, &iov_, true, iov_.base + i * 8192, fd_, i * 8192 + round, 8192, &i) < 0) return;
                if (hf3fs_submit_ios(&ior) != 0 || hf3fs_wait_for_ios(&ior, &cqe, 1, 1, nullptr) != 1) return;
                if (cqe.result != 8192 || cqe.userdata != &i) return;
            }
            hf3fs_iordestroy(&ior);
            ++good;
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(good, kThreads);
    for (size_t i = 0; i < kThreads; ++i)
        EXPECT_EQ(read(iov_.base + i * 8192, 8192), bytes_.substr(i * 8192 + 9, 8192));
}

TEST_P(UsrbioRing, AKilledProcessLeavesNoRing) {
    Peer peer([&](Peer& self) {
        make_iov();
        make_ior(64);
        for (size_t i = 0; i < 64; ++i) EXPECT_GE(prep(0, 0, 4 * kMiB), 0);
        EXPECT_EQ(hf3fs_submit_ios(&ior_), 0);
        self.go_on();
        pause();
    });
    peer.wait();
    peer.kill();
    EXPECT_EQ(peer.finish(), 128 + SIGKILL);
    EXPECT_TRUE(nothing_is_left());
    make_iov();
    make_ior(4);
    EXPECT_EQ(do_one(0, 0, 1000), 1000);
}

}  // namespace
}  // namespace gshm::core::test
