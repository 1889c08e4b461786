// Several mounts of one gshmd: `gshm mount`, `gshm umount DIR`, mount(8).
#include <filesystem>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "daemon/mount_records.h"
#include "integration/other_user.h"
#include "mount/survival_fixture.h"

namespace gshm::core::test {
namespace {

class MountSeveral : public SurvivalTest {
protected:
    std::string place(const std::string& name) {
        const std::string path = scratch() + "/" + name;
        mkdir(path.c_str(), 0755);
        places_.push_back(path);
        return path;
    }
    void TearDown() override {
        SurvivalTest::TearDown();
        stop();
        for (const auto& path : places_) umount2(path.c_str(), MNT_DETACH);
    }
    void start_it() { ASSERT_TRUE(start_mounted(GetParam())) << log(); }
    void mount_at(const std::string& path, const std::vector<std::string>& options = {}) {
        std::vector<std::string> args = {"mount", path};
        args.insert(args.end(), options.begin(), options.end());
        const auto done = run_cli(args);
        ASSERT_EQ(done.exit_code, 0) << done.err << log();
        ASSERT_TRUE(is_mounted(path));
    }
    // The mountpoints, as gshmd lists them, with their options.
    std::vector<std::string> listed() {
        std::vector<std::string> texts;
        auto client = Client::connect({.dir = dir()});
        auto mounts = client ? client->mounts() : gshm::Result<std::vector<MountInfo>>(gshm::Error{EIO, "no client"});
        EXPECT_TRUE(mounts);
        if (!mounts) return texts;
        for (const auto& mount : *mounts) {
            texts.push_back(fmt::format("{} {} {} {}", mount.source, mount.path,
                                        *mount.subdirectory ? mount.subdirectory : "/",
                                        mount.flags != 0 ? "ro" : "rw"));
        }
        return texts;
    }
    static bool refuses_changes(const std::string& folder) {
        auto refused = [](int result) { return result < 0 && errno == EROFS; };
        const std::string file = folder + "/f";
        return refused(open(file.c_str(), O_RDWR)) &&
               refused(open((folder + "/new").c_str(), O_CREAT | O_RDWR, 0644)) &&
               refused(mkdir((folder + "/dir").c_str(), 0755)) && refused(unlink(file.c_str())) &&
               refused(chmod(file.c_str(), 0600)) && refused(truncate(file.c_str(), 1)) &&
               refused(rename(file.c_str(), (folder + "/g").c_str())) &&
               refused(setxattr(file.c_str(), "user.x", "1", 1, 0));
    }
    static std::string source_of(const std::string& path) {
        std::ifstream mounts("/proc/self/mounts");
        std::string source;
        for (std::string line; std::getline(mounts, line);) {
            if (line.find(" " + path + " ") != std::string::npos) source = line.substr(0, line.find(' '));
        }
        return source;
    }
    std::vector<std::string> places_;
};

TEST_P(MountSeveral, ShowTheSameFiles) {
    start_it();
    ASSERT_EQ(mkdir(at("models").c_str(), 0755), 0);
    ASSERT_TRUE(write_file(at("models/f"), "bytes", O_CREAT));
    const std::string whole = place("whole");
    const std::string part = place("part");
    mount_at(whole, {"--source", "my memory"});
    mount_at(part, {"--read-only", "--subdir", "models", "--source", "models"});
    EXPECT_EQ(listed(), (std::vector<std::string>{"gshm " + mount() + " / rw", "my memory " + whole + " / rw",
                                                  "models " + part + " models ro"}));
    EXPECT_EQ(source_of(part), "models");
    EXPECT_EQ(source_of(whole), "my\\040memory");
    EXPECT_EQ(read_file(part + "/f"), "bytes");
    EXPECT_EQ(inode_of(part + "/f"), inode_of(at("models/f")));
    EXPECT_TRUE(refuses_changes(part)) << strerror(errno);
    ASSERT_TRUE(write_file(whole + "/models/f", "other", O_TRUNC));
    EXPECT_EQ(read_file(part + "/f"), "other");
    EXPECT_NE(access((part + "/../models").c_str(), F_OK), 0) << "its root is the subdirectory";
    // The library does not go around it.
    auto object = gshm::Object::open_path(part + "/f", {.write = true});
    ASSERT_FALSE(object);
    EXPECT_EQ(object.error().code, EROFS);
    EXPECT_TRUE(gshm::Object::open_path(part + "/f"));
    // All commands show them.
    for (const char* command : {"df", "doctor"}) {
        EXPECT_NE(run_cli({command}).out.find(part + " (ro, of models)"), std::string::npos) << run_cli({command}).out;
    }
    EXPECT_NE(run_cli({"ping", "--json"}).out.find(whole), std::string::npos);
    EXPECT_NE(run_cli({"mount"}).out.find(whole), std::string::npos);
    // One of them ends.
    EXPECT_EQ(run_cli({"umount"}).exit_code, 2) << "which one?";
    EXPECT_EQ(run_cli({"umount", scratch()}).exit_code, 9);
    ASSERT_EQ(run_cli({"umount", mount()}).exit_code, 0);
    EXPECT_FALSE(is_mounted(mount()));
    EXPECT_EQ(listed().size(), 2u);
    EXPECT_EQ(read_file(whole + "/models/f"), "other");
    ASSERT_EQ(run_cli({"umount", "--all"}).exit_code, 0);
    EXPECT_FALSE(is_mounted(whole) || is_mounted(part));
    EXPECT_EQ(run_cli({"umount"}).exit_code, 9);
    // And comes back.
    mount_at(mount());
    EXPECT_EQ(read_file(at("models/f")), "other");
}

TEST_P(MountSeveral, EachOutlivesGshmd) {
    start_it();
    ASSERT_EQ(mkdir(at("models").c_str(), 0755), 0);
    ASSERT_TRUE(write_file(at("models/f"), "bytes", O_CREAT));
    const std::string second = place("second");
    const std::string third = place("third");
    mount_at(second);
    mount_at(third, {"--read-only", "--subdir", "models", "--source", "models"});
    const int fd = open((third + "/f").c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    const auto before = listed();
    auto check = [&] {
        EXPECT_EQ(listed(), before);
        char bytes[5] = {};
        EXPECT_EQ(pread(fd, bytes, 5, 0), 5) << strerror(errno);
        EXPECT_EQ(std::string(bytes, 5), "bytes");
        EXPECT_EQ(read_file(second + "/models/f"), "bytes");
        EXPECT_TRUE(refuses_changes(third)) << strerror(errno);
        EXPECT_TRUE(write_file(at("g"), "x", O_CREAT));
    };
    kill();
    ASSERT_TRUE(again()) << log();
    check();
    kill();
    ASSERT_TRUE(again({mount()})) << log();  // the option names one of them
    check();
    ASSERT_TRUE(take_over_mounted(GetParam())) << log();
    check();
    // The first one is unmounted while gshmd is dead. The others stay.
    kill();
    ASSERT_EQ(umount2(mount().c_str(), MNT_DETACH), 0);
    ASSERT_TRUE(again()) << log();
    EXPECT_EQ(listed(), (std::vector<std::string>{before[1], before[2]}));
    EXPECT_EQ(read_file(second + "/models/f"), "bytes");
    close(fd);
    // A salvage makes the mounts anew.
    kill();
    ASSERT_TRUE(again({"--salvage"})) << log();
    EXPECT_EQ(listed(), (std::vector<std::string>{before[1], before[2]}));
    EXPECT_EQ(read_file(third + "/f"), "bytes");
    EXPECT_TRUE(refuses_changes(third)) << strerror(errno);
    EXPECT_EQ(stop(), 0);
    EXPECT_FALSE(is_mounted(second) || is_mounted(third));
}

TEST_P(MountSeveral, TheFirstIsMadeWhileGshmdRuns) {
    ASSERT_TRUE(start({"--device", "host:64M"})) << log();
    ASSERT_TRUE(write_file(scratch() + "/source", "bytes", O_CREAT));
    ASSERT_EQ(run_cli({"put", scratch() + "/source", "models/f"}).exit_code, 0);
    EXPECT_EQ(run_cli({"mount", scratch() + "/nowhere"}).exit_code, 4);
    EXPECT_NE(run_cli({"mount", mount(), "--subdir", "nowhere"}).exit_code, 0);
    EXPECT_NE(run_cli({"mount", mount(), "--subdir", "models/f"}).exit_code, 0) << "not a directory";
    EXPECT_FALSE(is_mounted(mount()));
    mount_at(mount(), {"--read-only", "--subdir", "models"});
    EXPECT_EQ(read_file(at("f")), "bytes");
    EXPECT_TRUE(refuses_changes(mount())) << strerror(errno);
    EXPECT_EQ(run_cli({"mount", mount()}).exit_code, 9) << "taken";
    const std::string whole = place("whole");
    mount_at(whole);
    EXPECT_TRUE(write_file(whole + "/g", "x", O_CREAT)) << "only the first one is read-only";
    kill();
    ASSERT_TRUE(again()) << log();
    EXPECT_EQ(listed().size(), 2u);
    EXPECT_TRUE(refuses_changes(mount())) << strerror(errno);
    // All are gone, and one is made again.
    ASSERT_EQ(run_cli({"umount", "--all"}).exit_code, 0);
    for (int i = 0; i < 5; ++i) {
        mount_at(whole);
        EXPECT_EQ(read_file(whole + "/models/f"), "bytes");
        ASSERT_EQ(umount2(whole.c_str(), 0), 0) << strerror(errno);  // gshmd hears of it later
    }
}

TEST_P(MountSeveral, UnmountsOfOthersAreNoticed) {
    start_it();
    const std::string second = place("second");
    mount_at(second);
    ASSERT_EQ(umount2(second.c_str(), 0), 0);
    while (listed().size() != 1) usleep(1000);
    // The next gshmd does not mount it again, although the mount must be made anew.
    kill_keeper();
    kill();
    ASSERT_TRUE(again({"--device", "host:64M"})) << log();
    EXPECT_FALSE(is_mounted(second));
}

TEST_P(MountSeveral, NotByOtherUsers) {
    if (auto missing = missing_for_nobody(); !missing.empty()) GTEST_SKIP() << missing;
    start_it();
    const std::string second = place("second");
    for (const std::vector<std::string>& args : {std::vector<std::string>{"mount", second}, {"umount", mount()}}) {
        const auto refused = run_as_nobody(cli_argv(args));
        EXPECT_EQ(refused.exit_code, 5) << refused.err;
        EXPECT_NE(refused.err.find("only root"), std::string::npos) << refused.err;
    }
    EXPECT_FALSE(is_mounted(second));
    EXPECT_TRUE(is_mounted(mount()));
}

// As mount(8) calls the helper.
TEST_P(MountSeveral, TheHelperOfMount) {
    start_it();
    ASSERT_EQ(mkdir(at("models").c_str(), 0755), 0);
    ASSERT_TRUE(write_file(at("models/f"), "bytes", O_CREAT));
    const std::string sbin = scratch() + "/prefix/sbin";
    std::filesystem::create_directories(sbin);
    std::filesystem::create_directory_symlink(std::filesystem::path(bin("gshm")).parent_path(),
                                              scratch() + "/prefix/bin");
    std::filesystem::copy(GSHM_SOURCE_DIR "/packaging/mount.fuse.gshm", sbin);
    const std::string second = place("second");
    auto helper = [&](const std::vector<std::string>& args) {
        std::vector<std::string> argv = {sbin + "/mount.fuse.gshm"};
        argv.insert(argv.end(), args.begin(), args.end());
        ChildProcess child;
        return child.spawn(argv, {"GSHM_DIR=" + dir()}) ? child.finish() : RunResult{};
    };
    const auto unknown = helper({"models", second, "-o", "rw,nonsense=1"});
    EXPECT_EQ(unknown.exit_code, 1);
    EXPECT_NE(unknown.err.find("nonsense"), std::string::npos) << unknown.err;
    EXPECT_EQ(helper({"models", second, "-f", "-o", "ro"}).exit_code, 0);
    EXPECT_FALSE(is_mounted(second));
    EXPECT_EQ(helper({"models", scratch() + "/nowhere", "-o", "rw"}).exit_code, 32);
    const auto done = helper(
        {"models", second, "-t", "fuse.gshm", "-o", "ro,nosuid,nodev,subdir=models,x-systemd.requires=gshmd.service"});
    ASSERT_EQ(done.exit_code, 0) << done.err;
    EXPECT_EQ(source_of(second), "models");
    EXPECT_TRUE(refuses_changes(second)) << strerror(errno);
    EXPECT_EQ(umount2(second.c_str(), 0), 0);
    ASSERT_EQ(helper({dir(), second, "-o", "fsname=named"}).exit_code, 0);
    EXPECT_EQ(source_of(second), "named");
}

INSTANTIATE_TEST_SUITE_P(Ways, MountSeveral, ::testing::Values(Way::passthrough), way_of);

TEST(MountRecords, AreReadAsTheyWereWritten) {
    const std::vector<MountRecord> records = {
        {"/mnt/gshm"},
        {"/mnt/with blanks\tand\nlines\\", {.read_only = true, .subdirectory = "a b/c", .source = "my source"}}};
    EXPECT_EQ(parse_mounts(mounts_text(records)), records);
    EXPECT_EQ(parse_mounts("broken\n\nx /y z ro\n"), std::vector<MountRecord>());
}

class MountOfAUser : public SurvivalTest {};

TEST_P(MountOfAUser, IsOneAtATime) {
    ASSERT_TRUE(start_mounted(GetParam())) << log();
    const std::string second = scratch() + "/second";
    ASSERT_EQ(mkdir(second.c_str(), 0755), 0);
    ASSERT_EQ(chown(second.c_str(), kNobody, kNobody), 0);
    const auto refused = run_cli({"mount", second});
    EXPECT_EQ(refused.exit_code, 9);
    EXPECT_NE(refused.err.find("one mount at a time"), std::string::npos) << refused.err;
    ASSERT_EQ(run_cli({"umount"}).exit_code, 0);
    ASSERT_EQ(run_cli({"mount", second, "--read-only", "--source", "a,b"}).exit_code, 0) << log();
    EXPECT_EQ(run_as(kNobody,
                     [&]() -> std::string {
                         return mkdir((second + "/d").c_str(), 0755) < 0 && errno == EROFS ? "" : failed("mkdir");
                     }),
              "");
    EXPECT_EQ(run_cli({"umount", second}).exit_code, 0);
}

INSTANTIATE_TEST_SUITE_P(Ways, MountOfAUser, ::testing::Values(Way::user), way_of);

}  // namespace
}  // namespace gshm::core::test
