// Other users and the runtime folder. A lock on gshm.lock by another user prevented every start. A folder above the
// runtime folder that another user can replace was accepted. The socket of an ordinary user's gshmd was open to all.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <gtest/gtest.h>

#include "integration/daemon_fixture.h"
#include "mount/mount_fixture.h"
#include <gshm/gshm.h>

namespace gshm::core::test {
namespace {

constexpr uid_t kUser = MountFixture::kNobody;
constexpr uid_t kStranger = 1;

class RuntimeFolderTest : public ::testing::Test, protected DaemonFixture {
protected:
    void SetUp() override {
        if (geteuid() != 0) GTEST_SKIP() << "not root: the test needs other users";
    }
    static mode_t mode_of(const std::string& path) {
        struct stat status = {};
        EXPECT_EQ(::lstat(path.c_str(), &status), 0) << path;
        return status.st_mode & 07777;
    }
    std::string at(const std::string& name) const { return scratch() + "/" + name; }
    void make(const std::string& name, mode_t mode, uid_t owner = 0) {
        ASSERT_EQ(::mkdir(at(name).c_str(), 0700), 0);
        ASSERT_EQ(::chown(at(name).c_str(), owner, owner), 0);
        ASSERT_EQ(::chmod(at(name).c_str(), mode), 0);
    }
    static std::vector<std::string> as_user() {
        return {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
    }
    // gshmd in the background, which ends at once if it is accepted. "" if so, else its message.
    std::string refusal(const std::string& name, const std::vector<std::string>& by = {}) {
        auto run = [&](std::vector<std::string> rest) {
            std::vector<std::string> argv = by;
            argv.insert(argv.end(), rest.begin(), rest.end());
            ChildProcess child;
            EXPECT_TRUE(child.spawn(argv));
            return child.finish();
        };
        const auto started = run({bin("gshmd"), "--dir", at(name), "--device", "host:16M"});
        if (started.exit_code != 0) return started.err.empty() ? "no message" : started.err;
        EXPECT_EQ(run({bin("gshm"), "--dir", at(name), "shutdown"}).exit_code, 0);
        return {};
    }
    static void expect_names(const std::string& refusal, const std::string& path) {
        const bool names = refusal.find(path + " ") != refusal.npos || refusal.find(path + ",") != refusal.npos;
        EXPECT_TRUE(names) << path << " is not named: " << refusal;
        EXPECT_NE(refusal.find("--dir"), refusal.npos) << refusal;
    }
    static int connect_code(const std::string& path) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
        const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        const int code = ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
        ::close(fd);
        return code;
    }
};

TEST_F(RuntimeFolderTest, FilesAreClosedToOthersWhateverTheUmask) {
    ChildProcess gshmd;
    ASSERT_TRUE(
        gshmd.spawn({"/bin/sh", "-c", "umask 0; exec \"$0\" --dir \"$1\" --device host:16M", bin("gshmd"), dir()}));
    const auto started = gshmd.finish();
    ASSERT_EQ(started.exit_code, 0) << started.err;
    EXPECT_EQ(mode_of(dir()), 0755u);
    EXPECT_EQ(mode_of(socket_path()), 0666u) << "root's serves all users";
    size_t others = 0;
    for (const auto& entry : std::filesystem::directory_iterator(dir())) {
        if (entry.path() == socket_path() || entry.is_symlink()) continue;
        if (entry.path() == dir() + "/" GSHM_METRICS_SOCKET_NAME) {
            EXPECT_EQ(mode_of(entry.path()), 0666u);
            continue;
        }
        ++others;
        EXPECT_EQ(mode_of(entry.path()), 0600u) << entry.path();
    }
    EXPECT_GE(others, 4u) << "the lock, the log, the keeper's socket, the catalog";
    EXPECT_EQ(run_cli({"shutdown"}).exit_code, 0);
}

TEST_F(RuntimeFolderTest, NoOtherUserHoldsTheLock) {
    ASSERT_TRUE(start()) << log();
    const std::string lock = dir() + "/gshm.lock";
    const auto wrong = MountFixture::run_as(kStranger, [&]() -> std::string {
        return ::open(lock.c_str(), O_RDONLY) < 0 && errno == EACCES ? "" : "it can be opened, and so locked";
    });
    EXPECT_EQ(wrong, "");
}

TEST_F(RuntimeFolderTest, TheLockOfAnOlderGshmdIsClosedAtTheStart) {
    make("run", 0755);
    const int old = ::open((dir() + "/gshm.lock").c_str(), O_RDWR | O_CREAT, 0644);
    ::fchmod(old, 0644);
    ::close(old);
    ASSERT_TRUE(start()) << log();
    EXPECT_EQ(mode_of(dir() + "/gshm.lock"), 0600u);
}

TEST_F(RuntimeFolderTest, AFolderAboveItThatAnotherUserOwnsIsRefused) {
    make("theirs", 0755, kStranger);
    expect_names(refusal("theirs/run"), at("theirs"));
    make("theirs/mine", 0755);
    expect_names(refusal("theirs/mine/run"), at("theirs"));
    EXPECT_FALSE(std::filesystem::exists(at("theirs/mine/run")));
    make("theirs/mine/run", 0755);
    expect_names(refusal("theirs/mine/run"), at("theirs"));
}

TEST_F(RuntimeFolderTest, AFolderAboveItThatOthersWriteToIsRefused) {
    make("group", 0775);
    expect_names(refusal("group/run"), at("group"));
    make("all", 0777);
    expect_names(refusal("all/missing/run"), at("all"));
    EXPECT_FALSE(std::filesystem::exists(at("all/missing")));
    make("sticky", 01777);
    EXPECT_EQ(refusal("sticky/made/run"), "");
    EXPECT_EQ(mode_of(at("sticky/made")), 0755u);
    make("sticky/theirs", 0755, kStranger);
    expect_names(refusal("sticky/theirs/run"), at("sticky/theirs"));
}

TEST_F(RuntimeFolderTest, SymbolicLinksAboveItAreCheckedToo) {
    make("safe", 0755);
    make("unsafe", 0777);
    make("sticky", 01777);
    for (const auto* name : {"safe", "unsafe"}) {
        ASSERT_EQ(::symlink(at(name).c_str(), at(std::string("to-") + name).c_str()), 0);
    }
    EXPECT_EQ(refusal("to-safe/run"), "");
    EXPECT_EQ(refusal("to-safe/../safe/./run"), "");
    expect_names(refusal("to-unsafe/run"), at("unsafe"));
    ASSERT_EQ(::symlink("../safe", at("sticky/link").c_str()), 0);
    EXPECT_EQ(refusal("sticky/link/run"), "");
    ASSERT_EQ(::lchown(at("sticky/link").c_str(), kStranger, kStranger), 0);
    expect_names(refusal("sticky/link/run"), at("sticky/link"));
}

TEST_F(RuntimeFolderTest, ATakeoverIsRefusedThere) {
    ASSERT_TRUE(start()) << log();
    ASSERT_EQ(::chmod(scratch().c_str(), 0777), 0);
    EXPECT_FALSE(take_over());
    expect_names(log(), scratch());
    EXPECT_TRUE(running());
    ASSERT_EQ(::chmod(scratch().c_str(), 0755), 0);
    EXPECT_TRUE(take_over()) << log();
}

// Under a umask that leaves everything open, and in a folder that the user made and that others may search.
TEST_F(RuntimeFolderTest, AnOrdinaryUsersGshmdIsClosedToOthers) {
    for (const bool made : {false, true}) {
        const std::string home = made ? "home2" : "home1";
        make(home, 0755, kUser);
        const std::string run = home + "/run";
        if (made) make(run, 0755, kUser);
        auto argv = as_user();
        for (const auto& word :
             {std::string("/bin/sh"), std::string("-c"),
              std::string("umask 0; exec \"$0\" --dir \"$1\" --device host:16M"), bin("gshmd"), at(run)})
            argv.push_back(word);
        ChildProcess gshmd;
        ASSERT_TRUE(gshmd.spawn(argv));
        const auto started = gshmd.finish();
        ASSERT_EQ(started.exit_code, 0) << started.err;
        EXPECT_EQ(mode_of(at(run)), made ? 0755u : 0700u);
        for (const auto& entry : std::filesystem::directory_iterator(at(run))) {
            if (entry.is_symlink()) continue;
            EXPECT_EQ(mode_of(entry.path()), 0600u) << entry.path();
        }
        const std::string folder = at(run);
        const auto wrong = MountFixture::run_as(kStranger, [&]() -> std::string {
            std::string text;
            for (const auto* name : {"/gshm.sock", "/keeper.sock"}) {
                if (connect_code(folder + name) != EACCES) text += std::string(name) + " accepts a stranger\n";
                if (::unlink((folder + name).c_str()) == 0) text += std::string(name) + " is removed by a stranger\n";
            }
            if (::rename(folder.c_str(), (folder + "2").c_str()) == 0) text += "the folder is renamed\n";
            if (::open((folder + "/new").c_str(), O_CREAT | O_WRONLY, 0600) >= 0) text += "a file is made\n";
            return text;
        });
        EXPECT_EQ(wrong, "");
        ChildProcess end;
        ASSERT_TRUE(end.spawn({bin("gshm"), "--dir", at(run), "shutdown"}));
        EXPECT_EQ(end.finish().exit_code, 0) << "root may";
    }
}

TEST_F(RuntimeFolderTest, AnOrdinaryUserTrustsRootAndHerselfOnly) {
    make("home", 0755, kUser);
    EXPECT_EQ(refusal("home/run", as_user()), "");
    make("theirs", 0755, kStranger);
    make("theirs/mine", 0755, kUser);
    expect_names(refusal("theirs/mine/run", as_user()), at("theirs"));
    make("home/group", 0770, kUser);
    expect_names(refusal("home/group/run", as_user()), at("home/group"));
}

}  // namespace
}  // namespace gshm::core::test
