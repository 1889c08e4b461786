// The state of a mount is restored after a kill: one kill and one property each. Descriptors are close-on-exec, since
// the daemons are children of this process.
#include <dirent.h>
#include <fcntl.h>
#include <set>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/xattr.h>

#include "mount/survival_fixture.h"

namespace gshm::core::test {
namespace {

class MountSurvivalOfState : public SurvivalTest {
protected:
    void start_it() { ASSERT_TRUE(start_mounted(GetParam())) << log(); }
    void kill_it() {
        kill();
        ASSERT_TRUE(again()) << log();
    }
    static std::string read_all(int fd) {
        struct stat info = {};
        if (fstat(fd, &info) != 0) return failed("fstat");
        std::string bytes(static_cast<size_t>(info.st_size) + 1, '\0');
        const ssize_t got = pread(fd, bytes.data(), bytes.size(), 0);
        if (got < 0) return failed("pread");
        bytes.resize(static_cast<size_t>(got));
        return bytes;
    }
    uint32_t leases_of(const std::string& name) {
        auto client = gshm::Client::connect({.dir = dir()});
        auto info = client ? client->stat(name) : gshm::Result<StatInfo>(Error{EIO, "no client"});
        return info ? info->leases : UINT32_MAX;
    }
};

TEST_P(MountSurvivalOfState, OpenFilesStayOpen) {
    start_it();
    const std::string first = pattern(3'000'000, 1);
    ASSERT_TRUE(write_file(at("f"), first));
    const int reader = open(at("f").c_str(), O_RDONLY | O_CLOEXEC);
    const int writer = open(at("g").c_str(), O_RDWR | O_CLOEXEC | O_CREAT | O_APPEND, 0644);
    ASSERT_GE(reader, 0);
    ASSERT_GE(writer, 0);
    ASSERT_EQ(write(writer, "before ", 7), 7);
    kill_it();
    EXPECT_EQ(read_all(reader), first);
    EXPECT_EQ(write(writer, "after", 5), 5) << strerror(errno);
    EXPECT_EQ(read_all(writer), "before after");
    EXPECT_EQ(read_file(at("g")), "before after");
    EXPECT_EQ(ftruncate(writer, 3), 0);
    EXPECT_EQ(leases_of("f"), 1u);
    EXPECT_EQ(leases_of("g"), 1u);
    EXPECT_EQ(close(reader), 0);
    EXPECT_EQ(close(writer), 0);
    EXPECT_TRUE(eventually([&] { return leases_of("f") == 0 && leases_of("g") == 0; }));
    EXPECT_EQ(read_file(at("g")), "bef");
}

TEST_P(MountSurvivalOfState, AFileWithoutANameLastsAsLongAsItIsOpen) {
    start_it();
    const std::string bytes = pattern(5'000'000, 2);
    ASSERT_TRUE(write_file(at("f"), bytes));
    const int fd = open(at("f").c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(unlink(at("f").c_str()), 0);
    const int unnamed = open(mount().c_str(), O_RDWR | O_CLOEXEC | O_TMPFILE, 0600);
    ASSERT_GE(unnamed, 0) << strerror(errno);
    ASSERT_EQ(write(unnamed, "unnamed", 7), 7);
    kill_it();
    EXPECT_EQ(read_all(fd), bytes);
    EXPECT_EQ(read_all(unnamed), "unnamed");
    EXPECT_EQ(unlinked_bytes(), bytes.size() + 7);
    EXPECT_EQ(pwrite(fd, "x", 1, 0), 1);
    const std::string path = "/proc/self/fd/" + std::to_string(unnamed);
    EXPECT_EQ(linkat(AT_FDCWD, path.c_str(), AT_FDCWD, at("named").c_str(), AT_SYMLINK_FOLLOW), 0) << strerror(errno);
    kill_it();
    EXPECT_EQ(read_file(at("named")), "unnamed");
    EXPECT_EQ(unlinked_bytes(), bytes.size());
    close(unnamed);
    close(fd);
    EXPECT_TRUE(eventually([&] { return unlinked_bytes() == 0; }));
    EXPECT_NE(access(at("f").c_str(), F_OK), 0);
}

TEST_P(MountSurvivalOfState, AFileClosedWhileTheDaemonIsDeadIsClosed) {
    start_it();
    ASSERT_TRUE(write_file(at("f"), pattern(3'000'000, 3)));
    const int fd = open(at("f").c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(unlink(at("f").c_str()), 0);
    kill();
    close(fd);  // the kernel queues the RELEASE and does not wait
    ASSERT_TRUE(again()) << log();
    EXPECT_TRUE(eventually([&] { return unlinked_bytes() == 0; }));
}

TEST_P(MountSurvivalOfState, NamesLinksAttributesAndTimes) {
    start_it();
    ASSERT_EQ(mkdir(at("d").c_str(), 02775), 0);
    ASSERT_TRUE(write_file(at("d/f"), "bytes"));
    ASSERT_EQ(link(at("d/f").c_str(), at("hard").c_str()), 0);
    ASSERT_EQ(symlink("d/f", at("soft").c_str()), 0);
    ASSERT_EQ(mkfifo(at("pipe").c_str(), 0640), 0);
    ASSERT_EQ(set_attribute(at("d/f"), "user.a", "value"), 0);
    ASSERT_EQ(set_attribute(at("d"), "user.b", "of a folder"), 0);
    ASSERT_EQ(chmod(at("d/f").c_str(), 0604), 0);
    ASSERT_EQ(chown(at("d/f").c_str(), 12, 34), 0);
    const timespec times[2] = {{1'000'000'000, 1}, {1'100'000'000, 2}};
    ASSERT_EQ(utimensat(AT_FDCWD, at("d/f").c_str(), times, 0), 0);
    const std::vector<std::string> names = {"", "d", "d/f", "hard", "soft", "pipe"};
    std::vector<struct stat> before(names.size());
    for (size_t i = 0; i < names.size(); ++i) ASSERT_EQ(lstat(at(names[i]).c_str(), &before[i]), 0);
    kill_it();
    for (size_t i = 0; i < names.size(); ++i) {
        struct stat after = {};
        ASSERT_EQ(lstat(at(names[i]).c_str(), &after), 0) << names[i];
        EXPECT_EQ(after.st_ino, before[i].st_ino) << names[i];
        EXPECT_EQ(after.st_dev, before[i].st_dev) << names[i];
        EXPECT_EQ(after.st_mode, before[i].st_mode) << names[i];
        EXPECT_EQ(after.st_nlink, before[i].st_nlink) << names[i];
        EXPECT_EQ(after.st_uid, before[i].st_uid) << names[i];
        EXPECT_EQ(after.st_gid, before[i].st_gid) << names[i];
        EXPECT_EQ(after.st_size, before[i].st_size) << names[i];
        EXPECT_EQ(after.st_mtim.tv_sec, before[i].st_mtim.tv_sec) << names[i];
        EXPECT_EQ(after.st_mtim.tv_nsec, before[i].st_mtim.tv_nsec) << names[i];
        EXPECT_EQ(after.st_ctim.tv_sec, before[i].st_ctim.tv_sec) << names[i];
        EXPECT_EQ(after.st_ctim.tv_nsec, before[i].st_ctim.tv_nsec) << names[i];
    }
    struct stat file = {};
    ASSERT_EQ(stat(at("d/f").c_str(), &file), 0);
    EXPECT_EQ(file.st_atim.tv_sec, 1'000'000'000);
    EXPECT_EQ(attribute(at("hard"), "user.a"), "value");
    EXPECT_EQ(attribute(at("d"), "user.b"), "of a folder");
    EXPECT_EQ(read_file(at("soft")), "bytes");
    // They are still one file.
    ASSERT_TRUE(write_file(at("hard"), "other"));
    EXPECT_EQ(read_file(at("d/f")), "other");
    EXPECT_EQ(unlink(at("hard").c_str()), 0);
    ASSERT_EQ(stat(at("d/f").c_str(), &file), 0);
    EXPECT_EQ(file.st_nlink, 1u);
    EXPECT_EQ(rename(at("d").c_str(), at("e").c_str()), 0);
    EXPECT_EQ(read_file(at("e/f")), "other");
}

TEST_P(MountSurvivalOfState, AWorkingFolderAndItsDescriptor) {
    start_it();
    ASSERT_EQ(mkdir(at("d").c_str(), 0755), 0);
    ASSERT_EQ(mkdir(at("d/e").c_str(), 0755), 0);
    const int folder = open(at("d/e").c_str(), O_PATH | O_CLOEXEC | O_DIRECTORY);
    ASSERT_GE(folder, 0);
    const std::filesystem::path home = std::filesystem::current_path();
    ASSERT_EQ(chdir(at("d").c_str()), 0);
    kill_it();
    EXPECT_TRUE(write_file("here", "x")) << strerror(errno);
    EXPECT_EQ(mkdirat(folder, "below", 0755), 0) << strerror(errno);
    EXPECT_EQ(std::filesystem::current_path(), at("d"));
    std::filesystem::current_path(home);
    close(folder);
    EXPECT_EQ(read_file(at("d/here")), "x");
    EXPECT_EQ(access(at("d/e/below").c_str(), F_OK), 0);
}

TEST_P(MountSurvivalOfState, LocksHold) {
    start_it();
    ASSERT_TRUE(write_file(at("f"), "0123456789"));
    const int fd = open(at("f").c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(flock(fd, LOCK_EX), 0);
    struct flock range = {};
    range.l_type = F_WRLCK;
    range.l_start = 2;
    range.l_len = 3;
    ASSERT_EQ(fcntl(fd, F_SETLK, &range), 0);
    kill_it();
    EXPECT_EQ(run_as(0,
                     [&]() -> std::string {
                         const int other = open(at("f").c_str(), O_RDWR | O_CLOEXEC);
                         if (other < 0) return failed("open");
                         if (flock(other, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return "flock was let go of";
                         struct flock wanted = {};
                         wanted.l_type = F_WRLCK;
                         wanted.l_start = 4;
                         wanted.l_len = 1;
                         if (fcntl(other, F_SETLK, &wanted) == 0 || (errno != EAGAIN && errno != EACCES))
                             return "the range was let go of";
                         wanted.l_start = 6;
                         if (fcntl(other, F_SETLK, &wanted) != 0) return failed("what is free cannot be locked");
                         return {};
                     }),
              "");
    EXPECT_EQ(flock(fd, LOCK_UN), 0);
    close(fd);
}

TEST_P(MountSurvivalOfState, AListingGoesOn) {
    start_it();
    constexpr int kFiles = 3000;
    ASSERT_EQ(mkdir(at("many").c_str(), 0755), 0);
    std::set<std::string> missing;
    for (int i = 0; i < kFiles; ++i) {
        const std::string name = "a-file-with-a-name-of-some-length-" + std::to_string(i);
        ASSERT_TRUE(write_file(at("many/" + name), ""));
        missing.insert(name);
    }
    DIR* listing = opendir(at("many").c_str());
    ASSERT_NE(listing, nullptr);
    int seen = 0;
    for (const dirent* entry; errno = 0, (entry = readdir(listing)) != nullptr; ++seen) {
        if (entry->d_name[0] == '.') continue;
        EXPECT_EQ(missing.erase(entry->d_name), 1u) << entry->d_name << " came twice";
        if (seen % 1000 == 100) kill_it();
    }
    EXPECT_EQ(errno, 0) << strerror(errno);
    closedir(listing);
    EXPECT_TRUE(missing.empty()) << missing.size() << " did not come, such as " << *missing.begin();
}

TEST_P(MountSurvivalOfState, UnmountedWhileTheDaemonIsDead) {
    start_it();
    ASSERT_TRUE(write_file(at("f"), "bytes"));
    kill();
    ASSERT_EQ(umount2(mount().c_str(), MNT_DETACH), 0) << strerror(errno);
    ASSERT_TRUE(again()) << log();
    EXPECT_EQ(run_cli({"ping"}).exit_code, 0);
    EXPECT_EQ(run_cli({"cat", "f"}).out, "bytes");
    EXPECT_FALSE(is_mounted(mount()));
    // The next daemon can mount it again.
    kill();
    ASSERT_TRUE(again({mount()})) << log();
    EXPECT_EQ(read_file(at("f")), "bytes");
}

TEST_P(MountSurvivalOfState, UnmountedWhileTheDaemonIsDeadAndWantedAgain) {
    start_it();
    ASSERT_TRUE(write_file(at("f"), "bytes"));
    kill();
    ASSERT_EQ(umount2(mount().c_str(), MNT_DETACH), 0) << strerror(errno);
    ASSERT_TRUE(again({mount()})) << log();
    EXPECT_TRUE(is_mounted(mount()));
    EXPECT_EQ(read_file(at("f")), "bytes");
    // It is an ordinary mount, and outlives the daemon.
    kill();
    ASSERT_TRUE(again()) << log();
    EXPECT_EQ(read_file(at("f")), "bytes");
}

TEST_P(MountSurvivalOfState, MountedElsewhereByTheNext) {
    start_it();
    ASSERT_TRUE(write_file(at("f"), "bytes"));
    const std::string other = scratch() + "/other";
    ASSERT_EQ(mkdir(other.c_str(), 0755), 0);
    kill();
    ASSERT_TRUE(again({other})) << log();
    EXPECT_FALSE(is_mounted(mount()));
    EXPECT_EQ(read_file(other + "/f"), "bytes");
    ASSERT_TRUE(write_file(other + "/g", "more"));
    kill();
    ASSERT_TRUE(again()) << log();
    EXPECT_EQ(read_file(other + "/g"), "more");
    EXPECT_EQ(stop(), 0);
    EXPECT_FALSE(is_mounted(other));
}

TEST_P(MountSurvivalOfState, WithoutAKeeperTheMountEndsWithTheDaemon) {
    ASSERT_TRUE(start_mounted(GetParam(), {}, {"--keeper", "none"})) << log();
    ASSERT_TRUE(write_file(at("f"), "bytes"));
    const int fd = open(at("f").c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(keeper_pid(), 0);
    kill();
    // ECONNABORTED while the mount is ending.
    EXPECT_TRUE(eventually([&] { return open(at("f").c_str(), O_RDONLY | O_CLOEXEC) < 0 && errno == ENOTCONN; }));
    close(fd);
    ASSERT_TRUE(start_mounted(GetParam())) << log();
    EXPECT_NE(access(at("f").c_str(), F_OK), 0);
    EXPECT_EQ(errno, ENOENT);
    EXPECT_TRUE(write_file(at("f"), "anew"));
}

TEST_P(MountSurvivalOfState, TheKeeperIsKilledThenTheDaemon) {
    start_it();
    const std::string bytes = pattern(3'000'000, 9);
    ASSERT_TRUE(write_file(at("f"), bytes));
    const int fd = open(at("f").c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    const pid_t first = keeper_pid();
    ASSERT_GT(first, 0);
    ASSERT_EQ(::kill(first, SIGKILL), 0);
    ASSERT_TRUE(eventually([&] {
        const pid_t now = keeper_pid();  // the killed one may listen for a moment, and then none
        return now > 0 && now != first;
    }));
    auto pinged = run_cli({"ping"});  // answered after all descriptors are with the new keeper
    EXPECT_EQ(pinged.exit_code, 0) << pinged.err << log();
    kill_it();
    EXPECT_EQ(read_all(fd), bytes);
    EXPECT_EQ(pwrite(fd, "x", 1, 0), 1);
    close(fd);
    EXPECT_EQ(read_file(at("f")).substr(1), bytes.substr(1));
}

INSTANTIATE_TEST_SUITE_P(Ways, MountSurvivalOfState, ::testing::Values(Way::passthrough, Way::through, Way::cuda),
                         way_of);

}  // namespace
}  // namespace gshm::core::test
