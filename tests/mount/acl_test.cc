// ACLs in the mount: getfacl and setfacl, and the programs that copy ACLs, do there what they do on a tmpfs.
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <linux/xattr.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <thread>
#include <unistd.h>

#include "mount_fixture.h"

namespace gshm::core::test {
namespace {

class MountAcls : public ::testing::TestWithParam<Way>, protected MountFixture {
protected:
    void SetUp() override {
        if (const std::string missing = missing_for(GetParam()); !missing.empty()) GTEST_SKIP() << missing;
        for (const char* program : {"getfacl", "setfacl"}) {
            if (std::system((std::string("command -v ") + program + " >/dev/null").c_str()) != 0)
                GTEST_SKIP() << "there is no " << program << " (package acl)";
        }
        ASSERT_TRUE(start_mounted(GetParam())) << log();
    }
    uid_t owner() const { return GetParam() == Way::user ? kNobody : 0; }
    // "STATUS:OUTPUT", as the user of the mount.
    std::string shell(const std::string& script) {
        return run_as(owner(), [&]() -> std::string {
            ChildProcess child;
            if (!child.spawn({"/bin/bash", "-c", script})) return "no bash";
            const RunResult result = child.finish();
            return std::to_string(result.exit_code) + ":" + result.out + result.err;
        });
    }
    // On failure: its text.
    static std::string reads(const std::string& path) {
        const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) return std::string("not opened: ") + strerror(errno);
        close(fd);
        return "";
    }
    static std::string writes(const std::string& path) {
        const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
        if (fd < 0) return std::string("not opened: ") + strerror(errno);
        close(fd);
        return "";
    }
    bool nobody_reads(const std::string& name) {
        return run_as(kNobody, [&] { return reads(at(name)); }).empty();
    }
    bool nobody_writes(const std::string& name) {
        return run_as(kNobody, [&] { return writes(at(name)); }).empty();
    }
    // A notice of gshmd reaches the kernel a moment after the reply to the client.
    static bool becomes(const std::function<bool()>& condition) {
        for (int i = 0; i < 10'000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return condition();
    }
};

INSTANTIATE_TEST_SUITE_P(Ways, MountAcls, ::testing::Values(Way::passthrough, Way::through, Way::user, Way::cuda),
                         [](const auto& info) { return name_of(info.param); });

// The same commands here and on a tmpfs print the same.
TEST_P(MountAcls, AreThoseOfATmpfs) {
    const std::string script = R"(
set -u
cd "$where" && mkdir work && cd work || exit 9
show() { getfacl -n "$@" 2>&1; stat -c '%A %n' "$@"; }
umask 027
echo text > a; show a
setfacl -m u:1234:rw,g:77:r a; show a
chmod 640 a; show a
chmod 604 a; show a
setfacl -m m::rwx a; show a
setfacl -x u:1234 a; show a
setfacl -b a; show a
setfacl -m u:1234:rw a; setfattr -x system.posix_acl_access a; show a
setfacl -d -m u:1234:r a; echo "no directory: $?"
setfacl -m u:1234:x,o::rwx a; show a
mkdir d; setfacl -d -m u:1234:rwx,g:77:rx d; show d
umask 077
touch d/f; mkdir d/sub; mkfifo d/p; ln -s f d/l; (umask 0; touch d/open; mkdir d/wide)
show d/f d/sub d/p d/open d/wide
setfacl -R -m u:55:r d; show d/f d/sub d/p
cp -a d e; getfacl -nR e
getfacl -nR d > saved; setfacl -R -b d; getfacl -nR d; setfacl --restore=saved; getfacl -nR d
cp d/f plain; show plain
cp --preserve=mode d/f kept; show kept
mv d/f moved; show moved
ln moved again; setfacl -m u:99:r again; show moved
setfacl -k d; show d; touch d/later; show d/later
setfacl -m u:1:r,u:1:w a; echo "twice: $?"
touch big; for i in $(seq 1 300); do echo "user:$i:r--"; done > many; setfacl -M many big; getfacl -n big | wc -l
ls -l | awk '{print $1, $NF}' | grep -v '^total'
getfattr -m - a 2>&1
)" + std::string(std::system("command -v rsync >/dev/null") == 0 ? "rsync -aA d/ r/; getfacl -nR r\n" : "") +
                               "tar --acls -cf t.tar e && mkdir t && tar --acls -C t -xf t.tar; getfacl -nR t\n";
    const std::string expected = shell("where=" + standard_folder() + "\n" + script);
    ASSERT_NE(expected.find("default:user:1234:rwx"), std::string::npos) << expected;
    ASSERT_NE(expected.substr(0, 2), "9:") << expected;
    EXPECT_EQ(shell("where=" + mount() + "\n" + script), expected);
    shell("rm -rf " + standard_folder() + "/work");
    EXPECT_TRUE(running()) << log();
}

TEST_P(MountAcls, TheKernelDecidesByThem) {
    if (GetParam() == Way::user) GTEST_SKIP() << "only its own user sees the mount of an ordinary user";
    ASSERT_TRUE(write_file(at("x"), "text"));
    ASSERT_EQ(chmod(at("x").c_str(), 0600), 0);
    EXPECT_FALSE(nobody_reads("x"));
    EXPECT_EQ(shell("setfacl -m u:65534:r " + at("x")), "0:");
    EXPECT_TRUE(nobody_reads("x"));
    EXPECT_FALSE(nobody_writes("x"));
    EXPECT_EQ(shell("setfacl -m u:65534:rw " + at("x")), "0:");
    EXPECT_TRUE(nobody_writes("x"));
    ASSERT_EQ(chmod(at("x").c_str(), 0604), 0);
    EXPECT_TRUE(nobody_reads("x")) << "by the rights of others: the kernel looks at no ACL whose mask is empty";
    EXPECT_FALSE(nobody_writes("x"));
    ASSERT_EQ(chmod(at("x").c_str(), 0640), 0);
    EXPECT_TRUE(nobody_reads("x"));
    EXPECT_EQ(shell("setfacl -x u:65534 " + at("x")), "0:");
    EXPECT_FALSE(nobody_reads("x"));
    EXPECT_EQ(shell("mkdir -m 700 " + at("d") + " && echo text > " + at("d/x") + " && chmod 644 " + at("d/x")), "0:");
    EXPECT_FALSE(nobody_reads("d/x"));
    EXPECT_EQ(shell("setfacl -m u:65534:x " + at("d")), "0:");
    EXPECT_TRUE(nobody_reads("d/x"));
    EXPECT_NE(run_as(kNobody, [&] { return writes(at("d/new")); }), "");
    // Others may not change them.
    EXPECT_NE(run_as(kNobody,
                     [&] {
                         return std::system(("setfacl -m u:65534:rw " + at("d/x") + " 2>/dev/null").c_str()) == 0
                                    ? ""
                                    : "refused";
                     }),
              "");
}

TEST_P(MountAcls, AClientsChangeIsSeen) {
    EXPECT_EQ(shell("echo text > " + at("x") + " && chmod 600 " + at("x")), "0:");
    EXPECT_EQ(shell("getfacl -cn " + at("x")).find("1234"), std::string::npos);
    auto shown = [&](const std::string& name, const std::string& text) {
        return shell("getfacl -cn " + at(name)).find(text) != std::string::npos;
    };
    const auto change = [&](const std::vector<std::string>& args) {
        std::string all;
        for (const auto& argument : cli_argv(args)) all += argument + " ";
        EXPECT_EQ(shell(all).substr(0, 2), "0:");
    };
    change({"share", "x", "--to", "1234"});
    EXPECT_TRUE(becomes([&] { return shown("x", "user:1234:r--"); }));
    EXPECT_NE(shell("ls -l " + at("x")).find("+"), std::string::npos);
    if (GetParam() != Way::user) {
        EXPECT_FALSE(nobody_reads("x"));
        change({"share", "x", "--to", "65534"});
        EXPECT_TRUE(becomes([&] { return nobody_reads("x"); }));
        change({"unshare", "x"});
        EXPECT_TRUE(becomes([&] { return !nobody_reads("x"); }));
    }
    EXPECT_EQ(shell("mkdir " + at("d")), "0:");
    change({"share", "d", "--to", "@77"});
    EXPECT_TRUE(becomes([&] { return shown("d", "default:group:77:r-x"); }));
    EXPECT_EQ(shell("umask 077; touch " + at("d/new")), "0:");
    EXPECT_TRUE(shown("d/new", "group:77:r-x")) << shell("getfacl -cn " + at("d/new"));
    // And the other way round.
    EXPECT_EQ(shell("setfacl -m u:4321:rw " + at("d/new")), "0:");
    std::string command;
    for (const auto& argument : cli_argv({"share", "d/new"})) command += argument + " ";
    EXPECT_NE(shell(command).find("user:4321:rw-"), std::string::npos);
}

TEST_P(MountAcls, AreThereAfterAKill) {
    EXPECT_EQ(shell("cd " + mount() +
                    " && mkdir d && setfacl -d -m u:65534:rwx,o::--- d && touch d/x && setfacl -m u:65534:rx d d/x && "
                    "chmod 755 d"),
              "0:");
    const std::string before = shell("getfacl -nR " + at("d"));
    kill();
    ASSERT_TRUE(start_again(GetParam())) << log();
    EXPECT_EQ(shell("getfacl -nR " + at("d")), before);
    // The kernel still leaves the umask to gshmd, and decides by ACLs.
    const std::string made = shell("umask 077; touch " + at("d/y") + "; getfacl -cn " + at("d/y"));
    EXPECT_NE(made.find("user:65534:rwx"), std::string::npos) << made;
    EXPECT_NE(made.find("mask::rw-"), std::string::npos) << made;
    if (GetParam() == Way::user) return;
    EXPECT_TRUE(nobody_reads("d/x"));
    EXPECT_TRUE(nobody_writes("d/y"));
    EXPECT_EQ(shell("setfacl -x u:65534 " + at("d/y")), "0:");
    EXPECT_FALSE(nobody_reads("d/y"));
    ASSERT_TRUE(take_over_mounted(GetParam())) << log();
    EXPECT_FALSE(nobody_reads("d/y"));
    EXPECT_EQ(shell("setfacl -m u:65534:r " + at("d/y")), "0:");
    EXPECT_TRUE(nobody_reads("d/y"));
}

// The raw attributes, as a hostile or careless program sets them.
TEST_P(MountAcls, BadOnesAreRefused) {
    EXPECT_EQ(shell("touch " + at("x")), "0:");
    EXPECT_EQ(run_as(owner(),
                     [&]() -> std::string {
                         const std::string path = at("x");
                         auto set = [&](const std::string& bytes) {
                             return setxattr(path.c_str(), XATTR_NAME_POSIX_ACL_ACCESS, bytes.data(), bytes.size(),
                                             0) == 0
                                        ? 0
                                        : errno;
                         };
                         if (set("garbage") == 0) return "garbage was taken";
                         if (set(std::string("\2\0\0\0\1\0\7\0\377\377\377\377", 12)) != EINVAL)
                             return "no group, no others";
                         std::string huge("\2\0\0\0", 4);
                         for (int i = 0; i < 600; ++i) huge += std::string("\2\0\4\0\1\0\0\0", 8);
                         if (set(huge) == 0) return "too many were taken";
                         if (getxattr(path.c_str(), XATTR_NAME_POSIX_ACL_ACCESS, nullptr, 0) >= 0) return "it has one";
                         if (removexattr(path.c_str(), XATTR_NAME_POSIX_ACL_ACCESS) != 0 && errno != ENODATA)
                             return std::string("removal: ") + strerror(errno);
                         return "";
                     }),
              "");
    EXPECT_TRUE(running()) << log();
}

}  // namespace
}  // namespace gshm::core::test
