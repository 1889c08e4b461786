// The folder 3fs-virt/iovs: its rights, and the life of the links in it.
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <set>
#include <sys/stat.h>

#include "compat/peer.h"
#include "mount/survival_fixture.h"

namespace gshm::core::test {
namespace {

constexpr char kName[] = "0a1b2c3d-0000-4000-8000-00805f9b34fb";
constexpr char kOther[] = "0a1b2c3d-0000-4000-8000-00805f9b34fc.b4096";
constexpr char kTarget[] = "/dev/shm/psm_1";

class MountIovFolder : public SurvivalTest {
protected:
    void start_it() { ASSERT_TRUE(start_mounted(GetParam())) << log(); }
    std::string link(const std::string& name = kName) const { return at("3fs-virt/iovs/" + name); }
    std::string target(const std::string& path) const {
        std::error_code error;
        return std::filesystem::read_symlink(path, error).string();
    }
    static std::set<std::string> names_in(const std::string& path) {
        std::set<std::string> names;
        DIR* listing = opendir(path.c_str());
        while (const dirent* entry = listing == nullptr ? nullptr : readdir(listing)) names.insert(entry->d_name);
        if (listing != nullptr) closedir(listing);
        return names;
    }
    // Runs as the user of the mount, in a process that ends.
    std::string by_user(const std::function<std::string()>& body) { return run_as(user(), body); }
};

TEST_P(MountIovFolder, IsThereAndNotListed) {
    start_it();
    const auto result = by_user([&]() -> std::string {
        struct stat info = {};
        if (stat(at("3fs-virt").c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return failed("3fs-virt");
        const int folder = open(at("3fs-virt/iovs").c_str(), O_RDONLY | O_DIRECTORY);
        if (folder < 0) return failed("open iovs");
        if (symlink(kTarget, link().c_str()) != 0) return failed("symlink");
        if (symlink(kTarget, link().c_str()) == 0 || errno != EEXIST) return failed("the same again");
        if (target(link()) != kTarget) return "it leads to " + target(link());
        if (names_in(at("3fs-virt/iovs")) != std::set<std::string>{".", "..", kName}) return "the listing is wrong";
        if (names_in(at("3fs-virt")) != std::set<std::string>{".", "..", "iovs"}) return "the upper listing is wrong";
        if (names_in(mount()) != std::set<std::string>{".", ".."}) return "the root shows it";
        if (mkdir(at("3fs-virt").c_str(), 0755) == 0 || errno != EEXIST) return failed("mkdir 3fs-virt");
        if (open(link("x").c_str(), O_CREAT | O_RDWR, 0600) >= 0) return "a file can be made";
        if (unlink(link().c_str()) != 0) return failed("unlink");
        if (unlink(link().c_str()) == 0 || errno != ENOENT) return failed("unlink again");
        close(folder);
        return "";
    });
    EXPECT_EQ(result, "");
    EXPECT_EQ(run_cli({"ls", "-r"}).out.find("3fs-virt"), std::string::npos);
    EXPECT_NE(run_cli({"ping", "--json"}).out.find("\"objects\": 0"), std::string::npos)
        << run_cli({"ping", "--json"}).out;
}

TEST_P(MountIovFolder, ALinkGoesWithItsProcess) {
    start_it();
    Peer maker([&](Peer& peer) {
        EXPECT_EQ(run_as(user(),
                         [&]() -> std::string {
                             // A second process makes a link, and ends before this one.
                             const pid_t child = fork();
                             if (child == 0) _exit(symlink(kTarget, link(kOther).c_str()) == 0 ? 0 : 1);
                             int status = -1;
                             waitpid(child, &status, 0);
                             if (status != 0) return "the child could not make a link";
                             if (symlink(kTarget, link().c_str()) != 0) return failed("symlink");
                             if (target(link(kOther)) != "") return "the link of the ended process is there";
                             peer.go_on();
                             peer.wait();
                             if (target(link()) != kTarget) return "after the restart it leads to " + target(link());
                             return "";
                         }),
                  "");
    });
    maker.wait();
    auto names = [&] {
        std::string all;
        EXPECT_EQ(by_user([&]() -> std::string {
                      const bool own = names_in(at("3fs-virt/iovs")).contains(kName);
                      const bool other = names_in(at("3fs-virt/iovs")).contains(kOther);
                      return other ? "a stale link" : own ? "" : "no link";
                  }),
                  "");
    };
    names();
    kill();
    ASSERT_TRUE(again()) << log();
    names();
    maker.go_on();
    EXPECT_EQ(maker.finish(), 0);
    EXPECT_EQ(by_user([&]() -> std::string {
                  if (names_in(at("3fs-virt/iovs")) != std::set<std::string>{".", ".."}) return "the link is there";
                  return target(link()) == "" ? "" : "it leads somewhere";
              }),
              "");
}

// As in /tmp.
TEST_P(MountIovFolder, OthersDoNotRemoveIt) {
    if (GetParam() == Way::user) GTEST_SKIP() << "the mount is closed to others";
    start_it();
    Peer maker([&](Peer& peer) {
        EXPECT_EQ(run_as(kNobody,
                         [&]() -> std::string {
                             if (symlink(kTarget, link().c_str()) != 0) return failed("symlink");
                             peer.go_on();
                             peer.wait();
                             return target(link()) == "" ? "" : "root could not remove it";
                         }),
                  "");
    });
    maker.wait();
    struct stat info = {};
    ASSERT_EQ(lstat(link().c_str(), &info), 0);
    EXPECT_EQ(info.st_uid, kNobody);
    EXPECT_EQ(run_as(1000,
                     [&]() -> std::string {
                         if (unlink(link().c_str()) == 0 || errno != EPERM) return failed("unlink");
                         if (rename(link().c_str(), link(kOther).c_str()) == 0) return "it can be renamed";
                         return "";
                     }),
              "");
    EXPECT_EQ(unlink(link().c_str()), 0) << strerror(errno);
    maker.go_on();
    EXPECT_EQ(maker.finish(), 0);
}

INSTANTIATE_TEST_SUITE_P(Ways, MountIovFolder, ::testing::Values(Way::passthrough, Way::user), way_of);

}  // namespace
}  // namespace gshm::core::test
