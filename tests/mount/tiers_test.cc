// Files that a tier has: they read, write, grow and shrink as if they were on their device, to which each open brings
// them back.
#include <filesystem>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "mount/mount_fixture.h"
#include <gshm/gshm.hpp>

namespace gshm::core::test {
namespace {

constexpr size_t kMiB = 1 << 20;

class MountTiers : public ::testing::TestWithParam<Way>, protected MountFixture {
protected:
    void SetUp() override {
        if (auto missing = missing_for(GetParam()); !missing.empty()) GTEST_SKIP() << missing;
        const bool gpu = GetParam() == Way::cuda;
        folder_ = scratch() + "/tier";
        std::vector<std::string> devices = {"--device", gpu ? "cuda:0:32M" : "host:256M"};
        if (gpu) devices.insert(devices.end(), {"--device", "host:256M"});
        devices.insert(devices.end(), {"--tier", folder_ + ":1G", "--tier-free", "0"});
        if (gpu) devices.insert(devices.end(), {"--tier", "host:8M"});
        ASSERT_TRUE(start_mounted(GetParam(), devices)) << log();
        auto connected = Client::connect({.dir = dir()});
        ASSERT_TRUE(connected) << connected.error().message;
        client_ = std::move(*connected);
    }
    static std::string bytes(size_t count, char seed) {
        std::string text(count, seed);
        for (size_t i = 0; i < count; i += 997) text[i] = static_cast<char>(seed + i / 997);
        return text;
    }
    void evict(const std::string& name) {
        // The kernel closes a file after close(2) has returned.
        for (int i = 0; i < 12'000; ++i) {
            auto demoted = client_.demote(name);
            if (demoted) break;
            ASSERT_EQ(demoted.error().code, EBUSY) << demoted.error().message;
            usleep(1000);
        }
        ASSERT_NE(tier(name), "");
    }
    std::string tier(const std::string& name) { return attribute(at(name), "user.tier"); }

    std::string folder_;
    Client client_;
};
INSTANTIATE_TEST_SUITE_P(Ways, MountTiers, ::testing::Values(Way::passthrough, Way::through, Way::cuda),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(MountTiers, AnEvictedFileIsReadAndWritten) {
    for (size_t size : {size_t{5000}, 3 * kMiB + 5}) {
        const std::string name = "f" + std::to_string(size);
        ASSERT_TRUE(write_file(at(name), bytes(size, 'a')));
        struct stat before = {};
        ASSERT_EQ(::stat(at(name).c_str(), &before), 0);
        evict(name);
        struct stat after = {};
        ASSERT_EQ(::stat(at(name).c_str(), &after), 0);
        EXPECT_EQ(after.st_size, before.st_size);
        EXPECT_EQ(after.st_ino, before.st_ino);
        EXPECT_EQ(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
        EXPECT_EQ(after.st_mode, before.st_mode);
        EXPECT_NE(tier(name), "");
        EXPECT_EQ(read_file(at(name)), bytes(size, 'a'));
        EXPECT_EQ(tier(name), "");
        evict(name);
        ASSERT_TRUE(write_file(at(name), "end", O_APPEND));
        EXPECT_EQ(read_file(at(name)), bytes(size, 'a') + "end");
    }
}

TEST_P(MountTiers, AnEvictedFileIsTruncatedRenamedAndRemoved) {
    ASSERT_TRUE(write_file(at("f"), bytes(2 * kMiB, 'b')));
    evict("f");
    ASSERT_EQ(::truncate(at("f").c_str(), 100), 0) << strerror(errno);
    EXPECT_EQ(read_file(at("f")), bytes(2 * kMiB, 'b').substr(0, 100));
    evict("f");
    ASSERT_EQ(::truncate(at("f").c_str(), 3 * kMiB), 0) << strerror(errno);
    EXPECT_EQ(read_file(at("f")), bytes(2 * kMiB, 'b').substr(0, 100) + std::string(3 * kMiB - 100, '\0'));
    evict("f");
    ASSERT_EQ(::rename(at("f").c_str(), at("g").c_str()), 0);
    ASSERT_EQ(::chmod(at("g").c_str(), 0640), 0);
    EXPECT_NE(tier("g"), "");
    ASSERT_TRUE(write_file(at("g"), "new"));  // O_TRUNC
    EXPECT_EQ(read_file(at("g")), "new");
    evict("g");
    ASSERT_EQ(::unlink(at("g").c_str()), 0);
    for (int i = 0; i < 12'000 && used_bytes() != 0; ++i) usleep(10'000);
    EXPECT_EQ(used_bytes(), 0u);
}

TEST_P(MountTiers, AnOpenFileStays) {
    ASSERT_TRUE(write_file(at("f"), bytes(kMiB, 'c')));
    const int fd = ::open(at("f").c_str(), O_RDONLY);
    ASSERT_GE(fd, 0);
    auto demoted = client_.demote("f");
    ASSERT_FALSE(demoted);
    EXPECT_EQ(demoted.error().code, EBUSY);
    ::close(fd);
    evict("f");
}

TEST_P(MountTiers, TheAttributeOfADirectoryMarksNewFiles) {
    if (GetParam() != Way::cuda) GTEST_SKIP() << "files leave a full GPU";
    ASSERT_EQ(::mkdir(at("cache").c_str(), 0755), 0);
    ASSERT_EQ(set_attribute(at("cache"), "user.evictable", "1"), 0);
    constexpr int kFiles = 12;  // of 4 MiB, for a GPU of 32
    for (int i = 0; i < kFiles; ++i) {
        ASSERT_TRUE(write_file(at("cache/" + std::to_string(i)), bytes(4 * kMiB, static_cast<char>(i)))) << i;
    }
    int evicted = 0;
    for (int i = 0; i < kFiles; ++i) evicted += tier("cache/" + std::to_string(i)) == "" ? 0 : 1;
    EXPECT_GE(evicted, kFiles - 8);
    for (int i = 0; i < kFiles; ++i) {
        EXPECT_EQ(attribute(at("cache/" + std::to_string(i)), "user.evictable"), "1");
        EXPECT_TRUE(read_file(at("cache/" + std::to_string(i))) == bytes(4 * kMiB, static_cast<char>(i))) << i;
    }
    EXPECT_EQ(attribute(at("cache/0"), "user.device"), "cuda:0");
}

TEST_P(MountTiers, EvictedFilesOutliveAKill) {
    ASSERT_TRUE(write_file(at("f"), bytes(2 * kMiB, 'd')));
    evict("f");
    kill();
    ASSERT_TRUE(start_again(GetParam())) << log();
    EXPECT_NE(tier("f"), "");
    EXPECT_TRUE(read_file(at("f")) == bytes(2 * kMiB, 'd'));
}

}  // namespace
}  // namespace gshm::core::test
