// Tools that copy all attributes failed or complained: the mount listed attributes that it computes, such as user.id, and
// refused to set them. Copies on disk had the ids of their sources.
#include <set>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <gtest/gtest.h>

#include "integration/library_fixture.h"
#include "mount/mount_fixture.h"

namespace gshm::core::test {
namespace {

using Names = std::set<std::string>;

class CopiedAttributes : public ::testing::TestWithParam<Way>, protected MountFixture {
protected:
    void SetUp() override {
        ASSERT_TRUE(fake_loaded || is_real_gpu());
        if (auto missing = missing_for(GetParam()); !missing.empty()) GTEST_SKIP() << missing;
        ASSERT_TRUE(start_mounted(GetParam())) << log();
        disk_ = scratch() + "/disk";
        ASSERT_EQ(::mkdir(disk_.c_str(), 0755), 0);
        if (set_attribute(disk_, "user.try", "x") != 0) GTEST_SKIP() << "no user attributes on " << disk_;
        // One with memory, an empty one, a sealed one, and a directory with a device.
        ASSERT_EQ(::mkdir(at("d").c_str(), 0755), 0);
        ASSERT_EQ(set_attribute(at("d"), "user.device", device()), 0);
        for (const auto* name : {"d/plain", "d/empty", "d/sealed"}) {
            ASSERT_TRUE(write_file(at(name), name == std::string("d/empty") ? "" : "bytes"));
            ASSERT_EQ(set_attribute(at(name), "user.mine", "kept"), 0);
        }
        ASSERT_EQ(set_attribute(at("d/sealed"), "user.state", "sealed"), 0);
    }
    static std::string device() { return GetParam() == Way::cuda ? "cuda:0" : "host"; }
    static bool has(const std::string& program) {
        return std::system(("command -v " + program + " >/dev/null").c_str()) == 0;
    }
    static Names names_of(const std::string& path) {
        std::string packed(64 << 10, '\0');
        const ssize_t length = ::listxattr(path.c_str(), packed.data(), packed.size());
        EXPECT_GE(length, 0) << path;
        Names names;
        for (const char* name = packed.data(); name < packed.data() + length; name += strlen(name) + 1)
            names.insert(name);
        return names;
    }
    // A command of the shell that succeeds and says nothing.
    void run(const std::string& command) {
        ChildProcess shell;
        ASSERT_TRUE(shell.spawn({"/usr/bin/timeout", "120", "/bin/sh", "-c", command}));
        const auto result = shell.finish();
        EXPECT_EQ(result.exit_code, 0) << command;
        EXPECT_EQ(result.out + result.err, "") << command;
    }
    static void check_copy(const std::string& folder) {  // of d
        for (const auto* name : {"/plain", "/empty", "/sealed"}) {
            EXPECT_EQ(names_of(folder + name), Names{"user.mine"}) << folder << name;
            EXPECT_EQ(read_file(folder + name), name == std::string("/empty") ? "" : "bytes") << folder << name;
        }
        EXPECT_EQ(names_of(folder), Names{"user.device"}) << folder;
    }
    // There, back, and from one folder of the mount to another.
    void check_tool(const std::function<std::string(const std::string& from, const std::string& to)>& command) {
        run(command(at("d"), disk_ + "/d"));
        check_copy(disk_ + "/d");
        EXPECT_EQ(attribute(disk_ + "/d/plain", "user.id"), "") << "a stale id";
        run(command(disk_ + "/d", at("back")));
        check_copy(at("back"));
        EXPECT_NE(attribute(at("back/plain"), "user.id"), attribute(at("d/plain"), "user.id"));
        EXPECT_EQ(attribute(at("back/sealed"), "user.state"), "open");
        run(command(at("back"), at("within")));
        check_copy(at("within"));
        // The values, not only the names.
        EXPECT_EQ(attribute(at("within/plain"), "user.mine"), "kept");
        EXPECT_EQ(attribute(at("within"), "user.device"), device());
    }

    std::string disk_;
};

TEST_P(CopiedAttributes, ComputedOnesAreReadAndNotListed) {
    EXPECT_EQ(names_of(at("d/plain")), Names{"user.mine"});
    EXPECT_EQ(names_of(at("d")), Names{"user.device"}) << "a setting of the directory";
    EXPECT_EQ(names_of(mount()), Names{});
    EXPECT_NE(attribute(at("d/plain"), "user.id"), "");
    EXPECT_NE(attribute(at("d/plain"), "user.allocation_size"), "");
    EXPECT_EQ(attribute(at("d/plain"), "user.device"), device());
    EXPECT_EQ(attribute(at("d/sealed"), "user.state"), "sealed");
    EXPECT_EQ(attribute(at("d/plain"), "user.gshm.dir"), dir());
}

TEST_P(CopiedAttributes, ByCp) {
    check_tool([](const auto& from, const auto& to) { return "cp -r --preserve=xattr " + from + " " + to; });
}

TEST_P(CopiedAttributes, ByCpOfEverything) {
    check_tool([](const auto& from, const auto& to) { return "cp -a " + from + " " + to; });
}

TEST_P(CopiedAttributes, ByTar) {
    check_tool([](const auto& from, const auto& to) {
        return "mkdir " + to + " && tar -C " + from + " --xattrs --xattrs-include='user.*' -cf - . | tar -C " + to +
               " --xattrs --xattrs-include='user.*' -xf -";
    });
}

TEST_P(CopiedAttributes, ByRsync) {
    if (!has("rsync")) GTEST_SKIP() << "there is no rsync";
    check_tool([](const auto& from, const auto& to) { return "rsync -aX " + from + "/ " + to; });
}

TEST_P(CopiedAttributes, ByMv) {
    run("mv " + at("d") + " " + disk_ + "/d");
    check_copy(disk_ + "/d");
    EXPECT_EQ(attribute(disk_ + "/d/plain", "user.id"), "") << "a stale id";
    EXPECT_FALSE(std::filesystem::exists(at("d")));
    run("mv " + disk_ + "/d " + at("d"));
    check_copy(at("d"));
    EXPECT_FALSE(std::filesystem::exists(disk_ + "/d"));
}

INSTANTIATE_TEST_SUITE_P(Ways, CopiedAttributes, ::testing::Values(Way::passthrough, Way::through, Way::cuda),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace gshm::core::test
