// Every host file of the mount took one or two descriptors of gshmd and one of gshm-keeper. With a few thousand files
// new clients were refused. Descriptors are for what is open, not for what exists.
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include "mount/mount_fixture.h"
#include "support/eventually.h"
#include <gshm/gshm.hpp>

namespace gshm::core::test {
namespace {

constexpr int kLimit = 256;
constexpr int kFiles = 2000;

class OpenDescriptors : public ::testing::TestWithParam<Way>, protected MountFixture {
protected:
    void SetUp() override {
        if (auto missing = missing_for(GetParam()); !missing.empty()) GTEST_SKIP() << missing;
        if (access("/usr/bin/setpriv", X_OK) != 0) GTEST_SKIP() << "there is no setpriv (package util-linux)";
        std::vector<std::string> args = {mount(), "--device", "host:1G"};
        if (GetParam() == Way::through) args.push_back("--no-passthrough");
        ASSERT_TRUE(start(args, {}, limited())) << log();
        ASSERT_NE(log().find("descriptor limit: " + std::to_string(kLimit)), std::string::npos) << log();
    }
    // Without the capability gshmd cannot raise the limit.
    static std::vector<std::string> limited() {
        const std::string script =
            "ulimit -n " + std::to_string(kLimit) + " && exec /usr/bin/setpriv --bounding-set=-sys_resource -- \"$@\"";
        return {"/bin/sh", "-c", script, "sh"};
    }
    std::string name(int i) const { return at("d" + std::to_string(i % 7) + "/f" + std::to_string(i)); }
    static std::string content(int i) { return "the bytes of " + std::to_string(i); }
    void make_files() {
        for (int i = 0; i < 7; ++i) ASSERT_EQ(mkdir(at("d" + std::to_string(i)).c_str(), 0755), 0);
        for (int i = 0; i < kFiles; ++i) ASSERT_TRUE(write_file(name(i), content(i))) << i << ": " << strerror(errno);
    }
    void check_files() {
        for (int i = 0; i < kFiles; ++i) ASSERT_EQ(read_file(name(i)), content(i)) << i;
        check_descriptors();
    }
    static size_t descriptors_of(pid_t process) {
        size_t count = 0;
        std::error_code gone;
        for ([[maybe_unused]] const auto& fd :
             std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd", gone)) {
            ++count;
        }
        return count;
    }
    // Memory that the kernel forgets is freed asynchronously.
    bool comes_to_use(uint64_t bytes) {
        return eventually([&] { return used_bytes() == bytes; });
    }
    void check_descriptors() {
        EXPECT_LT(descriptors_of(pid()), 150u);
        EXPECT_LT(descriptors_of(keeper_pid()), 50u);
        EXPECT_EQ(run_cli({"ping"}).exit_code, 0);
    }
};

TEST_P(OpenDescriptors, AreFewerThanFiles) {
    ASSERT_NO_FATAL_FAILURE(make_files());
    ASSERT_NO_FATAL_FAILURE(check_files());
    kill();
    ASSERT_TRUE(start({}, {}, limited())) << log();
    ASSERT_NO_FATAL_FAILURE(check_files());
    ASSERT_TRUE(take_over({}, {}, limited())) << log();
    ASSERT_NO_FATAL_FAILURE(check_files());
    // The next keeper needs no more.
    const pid_t first = keeper_pid();
    ASSERT_EQ(::kill(first, SIGKILL), 0);
    ASSERT_TRUE(eventually([&] {
        const pid_t now = keeper_pid();
        return now > 0 && now != first;
    }));
    ASSERT_EQ(run_cli({"ping"}).exit_code, 0);
    kill();
    ASSERT_TRUE(start({}, {}, limited())) << log();
    ASSERT_NO_FATAL_FAILURE(check_files());
    for (int i = 0; i < kFiles; ++i) ASSERT_EQ(unlink(name(i).c_str()), 0);
    EXPECT_TRUE(comes_to_use(0)) << used_bytes();
    check_descriptors();
    EXPECT_EQ(stop(), 0);
}

// Large objects of the library are such files, too.
TEST_P(OpenDescriptors, OfTheLibraryAreFewerThanObjects) {
    constexpr int kObjects = 400;
    auto client = gshm::Client::connect({.dir = dir()});
    ASSERT_TRUE(client);
    for (int i = 0; i < kObjects; ++i) {
        auto made =
            client->create({.name = "o/" + std::to_string(i), .size_bytes = 5000, .keep = true, .dedicated = true});
        ASSERT_TRUE(made) << made.error().message;
        memcpy(made->data(), content(i).data(), content(i).size());
    }
    check_descriptors();
    kill();
    ASSERT_TRUE(start({}, {}, limited())) << log();
    for (int i = 0; i < kObjects; ++i) {
        auto opened = client->open("o/" + std::to_string(i));
        ASSERT_TRUE(opened) << opened.error().message;
        EXPECT_EQ(memcmp(opened->data(), content(i).data(), content(i).size()), 0) << i;
    }
    check_descriptors();
}

// Memory that was freed when gshmd was killed, and files that were being made, do not stay.
TEST_P(OpenDescriptors, FilesWithoutARowAreRemoved) {
    const std::string big(8 << 20, 'x');
    for (int round = 0; round < 3; ++round) {
        ASSERT_TRUE(write_file(at("a"), big));
        ASSERT_TRUE(write_file(at("b"), big));
        ASSERT_EQ(unlink(at("a").c_str()), 0);
        kill();
        ASSERT_TRUE(start({}, {}, limited())) << log();
        EXPECT_EQ(read_file(at("b")), big);
        EXPECT_TRUE(comes_to_use(big.size())) << used_bytes();
    }
}

INSTANTIATE_TEST_SUITE_P(Ways, OpenDescriptors, ::testing::Values(Way::passthrough, Way::through),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace gshm::core::test
