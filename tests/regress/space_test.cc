// The memory of a removed file is free when the kernel has reported its last close, the mount has ended its work on the
// bytes, and the reclaimer and the keeper have closed it. A full device used to refuse a request before that.
#include <fcntl.h>
#include <latch>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "mount/mount_fixture.h"
#include <gshm/gshm.hpp>

namespace gshm::core::test {
namespace {

constexpr off_t kMiB = 1 << 20;
constexpr off_t kDeviceBytes = 400 * kMiB;
constexpr off_t kMostBytes = 220 * kMiB;  // the device has room for one of these, not for two

class Space : public ::testing::TestWithParam<Way>, protected MountFixture {
protected:
    void SetUp() override {
        if (auto missing = missing_for(GetParam()); !missing.empty()) GTEST_SKIP() << missing;
        const char* device = GetParam() == Way::cuda ? "cuda:0:400M" : "host:400M";
        ASSERT_TRUE(start_mounted(GetParam(), {"--device", device})) << log();
    }
    // Returns 0 or the errno.
    static int reserve(int fd, off_t bytes) { return fallocate(fd, 0, 0, bytes) == 0 ? 0 : errno; }
    int make(const std::string& name, off_t bytes) {
        int fd = open(at(name).c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
        if (fd < 0) return errno;
        int code = reserve(fd, bytes);
        close(fd);
        return code;
    }
    // Writes in pieces, so that its memory is larger than the file until it is trimmed.
    int write(const std::string& name, off_t bytes) {
        int fd = open(at(name).c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
        if (fd < 0) return errno;
        int code = 0;
        const std::string piece(kMiB, 'x');
        for (off_t done = 0; code == 0 && done < bytes; done += kMiB) {
            if (::write(fd, piece.data(), piece.size()) != kMiB) code = errno;
        }
        close(fd);
        return code;
    }
};

TEST_P(Space, OfARemovedFileIsFreeForTheNext) {
    for (int round = 0; round < 60; ++round) {
        ASSERT_EQ(make("a", kMostBytes), 0) << "round " << round << ": " << log();
        ASSERT_EQ(unlink(at("a").c_str()), 0);
    }
}

TEST_P(Space, OfAFileThatIsBeingSettledIsFreeForTheNext) {
    for (int round = 0; round < 6; ++round) {
        ASSERT_EQ(write("a", 70 * kMiB), 0) << "round " << round << ": " << log();
        ASSERT_EQ(unlink(at("a").c_str()), 0);
        ASSERT_EQ(make("b", 390 * kMiB), 0) << "round " << round << ": " << log();
        ASSERT_EQ(unlink(at("b").c_str()), 0);
    }
}

TEST_P(Space, OfAReplacedFileIsFreeForTheNext) {
    ASSERT_EQ(make("a", kDeviceBytes / 5 * 2), 0);
    for (int round = 0; round < 40; ++round) {
        ASSERT_EQ(make("new", kDeviceBytes / 5 * 2), 0) << "round " << round << ": " << log();
        ASSERT_EQ(rename(at("new").c_str(), at("a").c_str()), 0);
    }
}

TEST_P(Space, OfAFileWithoutANameIsFreeForTheNext) {
    for (int round = 0; round < 40; ++round) {
        int fd = open(mount().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        ASSERT_GE(fd, 0);
        ASSERT_EQ(reserve(fd, kMostBytes), 0) << "round " << round << ": " << log();
        close(fd);
    }
}

TEST_P(Space, OfARemovedFileIsFreeForAnObject) {
    if (GetParam() == Way::user) GTEST_SKIP() << "the library of this process is another user's";
    auto client = Client::connect({.dir = dir()});
    ASSERT_TRUE(client) << client.error().message;
    for (int round = 0; round < 20; ++round) {
        ASSERT_EQ(make("a", kMostBytes), 0) << "round " << round << ": " << log();
        ASSERT_EQ(unlink(at("a").c_str()), 0);
        auto object = client->create({.name = "b", .size_bytes = kMostBytes, .map = false});
        ASSERT_TRUE(object) << "round " << round << ": " << object.error().message;
        object->close();
        ASSERT_TRUE(client->unlink("b"));
    }
}

// A process may keep the file open indefinitely.
TEST_P(Space, OfAFileThatIsOpenIsNotWaitedForForEver) {
    int held = open(at("a").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    ASSERT_GE(held, 0);
    ASSERT_EQ(reserve(held, kMostBytes), 0);
    ASSERT_EQ(unlink(at("a").c_str()), 0);
    for (int round = 0; round < 20; ++round) {
        EXPECT_EQ(make("b", kMostBytes), ENOSPC);
        ASSERT_EQ(unlink(at("b").c_str()), 0);
    }
    close(held);
    EXPECT_EQ(make("b", kMostBytes), 0) << log();
}

// More requests wait than the mount has threads, and the close that frees the memory comes after them.
TEST_P(Space, IsFreedWhileManyWait) {
    constexpr int kWriters = 24;
    int held = open(at("a").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    ASSERT_GE(held, 0);
    ASSERT_EQ(reserve(held, kMostBytes), 0);
    ASSERT_EQ(unlink(at("a").c_str()), 0);
    std::latch begun(kWriters + 1);
    std::atomic<int> made = 0;
    std::vector<std::thread> writers;
    for (int i = 0; i < kWriters; ++i) {
        writers.emplace_back([&, i] {
            const std::string name = "b" + std::to_string(i);
            int fd = open(at(name).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
            begun.arrive_and_wait();
            if (fd >= 0 && reserve(fd, kMostBytes) == 0) ++made;
            close(fd);
        });
    }
    begun.arrive_and_wait();
    close(held);
    for (auto& writer : writers) writer.join();
    EXPECT_EQ(made, 1) << log();
}

INSTANTIATE_TEST_SUITE_P(Ways, Space, ::testing::Values(Way::passthrough, Way::through, Way::cuda),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace gshm::core::test
