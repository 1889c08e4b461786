// Limits on accounts, by the library and the command line, with users who are not root.
#include <regex>
#include <sys/stat.h>

#include "library_fixture.h"
#include "other_user.h"
#include "support/as_user.h"
#include <gshm/gshm.hpp>

namespace gshm::core::test {
namespace {

constexpr uint64_t kKiB = 1 << 10;
constexpr uint64_t kMiB = 1 << 20;
constexpr uid_t kUser = 65534;

class LimitsTest : public LibraryTest {
protected:
    void SetUp() override {
        if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
        start_all();
        root_ = connect_hpp();
    }
    gshm::Client connect_hpp() {
        auto connected = gshm::Client::connect({.dir = dir()});
        EXPECT_TRUE(connected) << connected.error().message;
        return connected ? *std::move(connected) : gshm::Client();
    }
    Client connect_as(uid_t uid) {
        AsUser user(uid);
        return connect();
    }
    static gshm::Limit limit(uint32_t kind, uint32_t id, uint64_t bytes, uint64_t objects = 0) {
        gshm::Limit limit;
        limit.info.kind = kind;
        limit.info.id = id;
        limit.info.fields = GSHM_LIMIT_BYTES | GSHM_LIMIT_OBJECTS;
        limit.info.bytes = bytes;
        limit.info.objects = objects;
        return limit;
    }
    void set(gshm::Limit limit, const std::string& device = {}, const std::string& path = {}) {
        limit.device = device;
        limit.path = path;
        auto done = root_.set_limit(limit);
        ASSERT_TRUE(done) << done.error().message;
    }
    void set_user(uint64_t bytes, const std::string& device = {}, uint64_t objects = 0) {
        set(limit(GSHM_LIMIT_USER, kUser, bytes, objects), device);
    }
    // The present use of the user, as limits count it.
    gshm_limit of_user(const std::string& device = {}) {
        gshm::Limit which = limit(GSHM_LIMIT_USER, kUser, 0);
        auto found = root_.limits(GSHM_LIMITS_ID, which);
        EXPECT_TRUE(found);
        for (const auto& one : *found) {
            if (one.device == device) return one.info;
        }
        return GSHM_LIMIT_INIT;
    }
    int try_create(gshm_client* client, const std::string& name, uint64_t size, const char* device,
                   uint32_t flags = GSHM_KEEP | GSHM_NO_MAP) {
        auto wanted = spec(name.c_str(), size, device, flags);
        gshm_object* object = nullptr;
        const int code = gshm_create(client, &wanted, &object);
        if (code == 0) gshm_close(object);
        return code;
    }
    void make_directory(const char* name, uint32_t mode = 0777) {
        gshm_make_spec made = GSHM_MAKE_SPEC_INIT;
        made.name = name;
        made.kind = GSHM_KIND_DIRECTORY;
        made.mode = mode;
        made.flags = GSHM_MAKE_KEEP;
        ASSERT_EQ(gshm_make(client_.get(), &made), 0) << gshm_last_error();
    }
    RunResult cli_as_nobody(const std::vector<std::string>& args) { return run_as_nobody(cli_argv(args)); }

    gshm::Client root_;
};

// Each creates until it is refused; together they get exactly what is allowed.
void race(const std::function<std::string(int)>& name, const std::string& folder, uint64_t size, const char* device,
          uid_t uid, int* ret_made) {
    constexpr int kProcesses = 16;
    constexpr int kTries = 12;
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    std::vector<pid_t> children;
    for (int i = 0; i < kProcesses; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            if (setgid(uid) != 0 || setuid(uid) != 0) _exit(9);
            gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
            options.dir = folder.c_str();
            gshm_client* client = nullptr;
            if (gshm_connect(&options, &client) != 0) _exit(8);
            for (int at = 0; at < kTries; ++at) {
                const std::string own = name(i * kTries + at);
                gshm_create_spec wanted = GSHM_CREATE_SPEC_INIT;
                wanted.name = own.c_str();
                wanted.size_bytes = size;
                wanted.device = device;
                wanted.flags = GSHM_KEEP | GSHM_NO_MAP;
                gshm_object* object = nullptr;
                const int code = gshm_create(client, &wanted, &object);
                if (code != 0 && code != -EDQUOT) _exit(7);
                if (code == 0 && write(ends[1], "+", 1) != 1) _exit(6);
                gshm_close(object);
            }
            _exit(0);
        }
        children.push_back(child);
    }
    close(ends[1]);
    char byte = 0;
    *ret_made = 0;
    while (read(ends[0], &byte, 1) == 1) ++*ret_made;
    close(ends[0]);
    for (pid_t child : children) {
        int status = 0;
        waitpid(child, &status, 0);
        EXPECT_EQ(status, 0);
    }
}

TEST_F(LimitsTest, SixteenProcessesNeverGetAByteMoreOfSmallObjects) {
    constexpr uint64_t kSize = 60 * kKiB + 1;
    set_user(100 * kSize + kSize - 1, "cuda:0");
    int made = 0;
    race([](int i) { return "race/" + std::to_string(i); }, dir(), kSize, "cuda:0", kUser, &made);
    EXPECT_EQ(made, 100);
    EXPECT_EQ(of_user("cuda:0").used_bytes, 100 * kSize);
}

TEST_F(LimitsTest, SixteenProcessesNeverGetAByteMoreOfLargeObjects) {
    constexpr uint64_t kSize = 2 * kMiB + 4097;
    for (const char* where : {"host", "cuda:1"}) {
        set_user(7 * kSize, where);
        int made = 0;
        race([&](int i) { return std::string("race/") + (where[0] == 'h' ? "h" : "c") + std::to_string(i); }, dir(),
             kSize, where, kUser, &made);
        EXPECT_EQ(made, 7) << where;
        EXPECT_EQ(of_user(where).used_bytes, 7 * kSize);
    }
}

TEST_F(LimitsTest, SixteenProcessesNeverGetAnObjectMoreInADirectory) {
    make_directory("team");
    set(limit(GSHM_LIMIT_DIRECTORY, 0, 0, 50), "", "team");
    int made = 0;
    race([](int i) { return "team/" + std::to_string(i % 3) + "/" + std::to_string(i); }, dir(), 100, "host", kUser,
         &made);
    EXPECT_EQ(made, 50);
}

TEST_F(LimitsTest, AreSetByRootOnlyAndSeenByThoseWhomTheyConcern) {
    set_user(10 * kMiB);
    set(limit(GSHM_LIMIT_USER, 4711, 20 * kMiB));
    set(limit(GSHM_LIMIT_GROUP, 0, 30 * kMiB));  // AsUser keeps the group
    set(limit(GSHM_LIMIT_GROUP, 4711, 30 * kMiB));
    make_directory("open", 0755);
    make_directory("hidden", 0700);
    set(limit(GSHM_LIMIT_DIRECTORY, 0, kMiB), "", "open");
    set(limit(GSHM_LIMIT_DIRECTORY, 0, kMiB), "", "hidden");
    EXPECT_EQ(root_.limits()->size(), 6u);
    gshm::Client user = [&] {
        AsUser as(kUser);
        return connect_hpp();
    }();
    const auto refused = user.set_limit(limit(GSHM_LIMIT_USER, kUser, 0));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, EPERM);
    auto seen = user.limits();
    ASSERT_TRUE(seen);
    std::vector<std::string> found;
    for (const auto& one : *seen) {
        found.push_back(std::to_string(one.info.kind) + " " + std::to_string(one.info.id) + " " + one.path);
    }
    EXPECT_EQ(found, (std::vector<std::string>{"1 65534 ", "2 0 ", "3 0 open"}));
    gshm::Limit which = limit(GSHM_LIMIT_USER, 4711, 0);
    EXPECT_EQ(user.limits(GSHM_LIMITS_ID, which).error().code, EPERM);
    which = limit(GSHM_LIMIT_DIRECTORY, 0, 0);
    which.path = "hidden";
    EXPECT_EQ(user.limits(GSHM_LIMITS_ID, which).error().code, EACCES);
    which.path = "absent";
    EXPECT_EQ(user.limits(GSHM_LIMITS_ID, which).error().code, ENOENT);
}

TEST_F(LimitsTest, TheMessageTellsNoStrangerWhoElseHasObjects) {
    make_directory("team");
    set(limit(GSHM_LIMIT_DIRECTORY, 0, 10 * kMiB), "", "team");
    ASSERT_EQ(try_create(client_.get(), "team/of-root", 6 * kMiB, "host"), 0);
    Client user = connect_as(kUser);
    ASSERT_EQ(try_create(user.get(), "team/mine", 2 * kMiB, "host"), 0);
    ASSERT_EQ(try_create(user.get(), "team/more", 3 * kMiB, "host"), -EDQUOT);
    EXPECT_STREQ(gshm_last_error(),
                 "the limit of directory \"team\" on all devices together is 10 MiB: 8.0 MiB used, and 3.0 MiB more "
                 "needed (`gshm quota` shows what counts); your objects below it have 2.0 MiB");
    ASSERT_EQ(try_create(client_.get(), "team/more", 3 * kMiB, "host"), -EDQUOT);
    EXPECT_NE(std::string(gshm_last_error()).find("; below it: uid 0 6.0 MiB, uid 65534 2.0 MiB"), std::string::npos)
        << gshm_last_error();
}

TEST_F(LimitsTest, ARenameALinkAMoveAndAReplacementAreChecked) {
    make_directory("team");
    set(limit(GSHM_LIMIT_DIRECTORY, 0, kMiB), "", "team");
    ASSERT_EQ(try_create(client_.get(), "a", kMiB + 1, "host"), 0);
    EXPECT_EQ(gshm_rename(client_.get(), "a", "team/a", 0), -EDQUOT);
    EXPECT_EQ(gshm_link(client_.get(), "a", "team/a"), -EDQUOT);
    set_user(kMiB, "cuda:1");
    gshm_changes changes = GSHM_CHANGES_INIT;
    changes.what = GSHM_CHANGE_OWNER;
    changes.uid = changes.gid = kUser;
    ASSERT_EQ(gshm_change(client_.get(), "a", &changes), 0);
    EXPECT_EQ(gshm_move(client_.get(), "a", "cuda:1", 0), -EDQUOT) << gshm_last_error();
    EXPECT_STREQ(stat(client_.get(), "a").device, "host");
    EXPECT_EQ(gshm_move(client_.get(), "a", "cuda:0", 0), 0) << gshm_last_error();
    auto object = create(client_.get(), "b", kMiB + 1, "cuda:0", GSHM_UNNAMED);
    EXPECT_EQ(gshm_replace(object.get(), "team/b"), -EDQUOT) << gshm_last_error();
    EXPECT_EQ(gshm_replace(object.get(), "b"), 0) << gshm_last_error();
    set_user(kMiB);
    EXPECT_EQ(gshm_change(client_.get(), "b", &changes), -EDQUOT);
}

TEST_F(LimitsTest, MemoryOfALimitedUserCannotBeMadeLarger) {
    set_user(8 * kMiB);
    Client user = connect_as(kUser);
    auto object = create(user.get(), "mine", 2 * kMiB, "host", GSHM_DEDICATED);
    gshm_handle_info info = GSHM_HANDLE_INFO_INIT;
    int fd = -1;
    ASSERT_EQ(gshm_export_fd(object.get(), &fd, &info), 0) << gshm_last_error();
    EXPECT_NE(ftruncate(fd, 64 * kMiB), 0);
    EXPECT_EQ(errno, EPERM);
    char byte = 1;
    EXPECT_LT(pwrite(fd, &byte, 1, 8 * kMiB), 0);
    EXPECT_EQ(pwrite(fd, &byte, 1, kMiB), 1);
    ::close(fd);
    EXPECT_EQ(of_user().used_bytes, 2 * kMiB);
}

TEST_F(LimitsTest, OutliveGshmdsKill) {
    make_directory("team");
    set_user(10 * kMiB, "host", 5);
    set(limit(GSHM_LIMIT_GROUP, 77, 30 * kMiB));
    set(limit(GSHM_LIMIT_DIRECTORY, 0, 4 * kMiB), "", "team");
    gshm::Limit soft = limit(GSHM_LIMIT_USER, kUser, 0);
    soft.info.fields = GSHM_LIMIT_SOFT_BYTES | GSHM_LIMIT_GRACE;
    soft.info.soft_bytes = kMiB;
    soft.info.grace_s = 3600;
    set(soft, "host");
    Client user = connect_as(kUser);
    auto held = create(user.get(), "team/held", 3 * kMiB, "host", GSHM_KEEP);
    ASSERT_EQ(gshm_unlink(user.get(), "team/held"), 0);
    const gshm_limit before = of_user("host");
    EXPECT_EQ(before.used_bytes, 3 * kMiB);
    EXPECT_EQ(before.unlinked_bytes, 3 * kMiB);
    EXPECT_GT(before.bytes_until_ns, 0);
    kill();
    ASSERT_TRUE(start({}, daemon_env())) << log();
    const gshm_limit after = of_user("host");
    EXPECT_EQ(after.bytes, 10 * kMiB);
    EXPECT_EQ(after.objects, 5u);
    EXPECT_EQ(after.grace_s, 3600u);
    EXPECT_EQ(after.used_bytes, 3 * kMiB);
    // As time of day; the clock may have been adjusted in between.
    EXPECT_NEAR(static_cast<double>(after.bytes_until_ns), static_cast<double>(before.bytes_until_ns), 1e9);
    EXPECT_EQ(root_.limits()->size(), 3u);
    // What is held without a name still counts in the directory. The client connects again in these calls.
    std::optional<AsUser> as(kUser);
    EXPECT_EQ(try_create(user.get(), "team/more", kMiB + 1, "cuda:0"), -EDQUOT) << gshm_last_error();
    held.reset();
    EXPECT_EQ(try_create(user.get(), "team/more", 4 * kMiB, "cuda:0"), 0) << gshm_last_error();
    as.reset();
    kill();
    ASSERT_TRUE(start({}, daemon_env())) << log();
    as.emplace(kUser);
    EXPECT_EQ(try_create(user.get(), "team/again", 1, "cuda:0"), -EDQUOT) << "counted again at the start";
    ASSERT_EQ(gshm_unlink(user.get(), "team/more"), 0);
    EXPECT_EQ(try_create(user.get(), "team/again", 1, "cuda:0"), 0);
    as.reset();
    set_user(0, "host");
    soft.info.soft_bytes = 0;
    set(soft, "host");
    kill();
    ASSERT_TRUE(start({}, daemon_env())) << log();
    EXPECT_EQ(root_.limits()->size(), 2u) << "a limit that was taken away does not come back";
}

TEST_F(LimitsTest, OutliveATakeover) {
    set_user(kMiB);
    ASSERT_TRUE(take_over({}, daemon_env())) << log();
    Client user = connect_as(kUser);
    EXPECT_EQ(try_create(user.get(), "x", kMiB + 1, "host"), -EDQUOT);
    EXPECT_EQ(try_create(user.get(), "x", kMiB, "host"), 0);
}

TEST_F(LimitsTest, AReserveLeavesMemoryToOtherPrograms) {
    const auto before = device(client_.get(), "cuda:0");
    gshm::Limit reserve = limit(GSHM_LIMIT_RESERVE, 0, 0);
    reserve.info.fields = GSHM_LIMIT_BYTES;
    reserve.info.percent = 90;
    reserve.device = "host";
    EXPECT_EQ(root_.set_limit(reserve).error().code, EOPNOTSUPP);
    reserve.device = "";
    EXPECT_EQ(root_.set_limit(reserve).error().code, EINVAL);
    reserve.device = "cuda:0";
    reserve.info.percent = 91;
    EXPECT_EQ(root_.set_limit(reserve).error().code, EINVAL);
    reserve.info.percent = 50;
    ASSERT_TRUE(root_.set_limit(reserve));
    const uint64_t half = before.capacity_bytes / 100 * 50;
    EXPECT_EQ(try_create(client_.get(), "large", half + 4 * kMiB, "cuda:0"), -ENOSPC);
    EXPECT_NE(std::string(gshm_last_error()).find("reserved for other programs"), std::string::npos)
        << gshm_last_error();
    EXPECT_EQ(std::string(gshm_last_error()).find("other processes"), std::string::npos)
        << "nobody else has memory: " << gshm_last_error();
    EXPECT_EQ(try_create(client_.get(), "large", half - 16 * kMiB, "cuda:0"), 0) << gshm_last_error();
    kill();
    ASSERT_TRUE(start({}, daemon_env())) << log();
    EXPECT_EQ(try_create(client_.get(), "more", 64 * kMiB, "cuda:0"), -ENOSPC) << "the reserve outlives gshmd";
    auto listed = root_.limits();
    ASSERT_TRUE(listed && listed->size() == 1);
    EXPECT_EQ(listed->front().info.percent, 50u);
    EXPECT_EQ(listed->front().info.bytes, half);
    reserve.info.percent = 0;
    ASSERT_TRUE(root_.set_limit(reserve));
    EXPECT_EQ(try_create(client_.get(), "more", 64 * kMiB, "cuda:0"), 0) << gshm_last_error();
}

TEST_F(LimitsTest, ALargeDirectoryIsCountedBeforeTheAnswer) {
    constexpr int kObjects = 10'000;
    std::vector<std::string> names;
    for (int i = 0; i < kObjects; ++i) names.push_back("big/" + std::to_string(i % 16) + "/" + std::to_string(i));
    for (const auto& name : names) ASSERT_EQ(try_create(client_.get(), name, 16, "host"), 0) << gshm_last_error();
    set(limit(GSHM_LIMIT_DIRECTORY, 0, 0, kObjects), "", "big");
    EXPECT_EQ(try_create(client_.get(), "big/one-more", 16, "host"), -EDQUOT);
    gshm::Limit which = limit(GSHM_LIMIT_DIRECTORY, 0, 0);
    which.path = "big";
    auto found = root_.limits(GSHM_LIMITS_ID, which);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->front().info.used_objects, static_cast<uint64_t>(kObjects));
}

TEST_F(LimitsTest, ManyAccountsComeByPages) {
    constexpr uint32_t kAccounts = 2000;
    for (uint32_t id = 1; id <= kAccounts; ++id) set(limit(GSHM_LIMIT_USER, 100'000 + id, id));
    auto found = root_.limits();
    ASSERT_TRUE(found);
    ASSERT_EQ(found->size(), kAccounts);
    for (uint32_t i = 0; i < kAccounts; ++i) EXPECT_EQ((*found)[i].info.bytes, i + 1);
}

TEST_F(LimitsTest, ByTheCommandLine) {
    if (auto missing = missing_for_nobody(); !missing.empty()) GTEST_SKIP() << missing;
    EXPECT_EQ(run_cli({"limit"}).out, "there are no limits\n");
    auto done = run_cli({"limit", "--user", "65534", "--device", "host", "--bytes", "1M", "--objects", "2"});
    ASSERT_EQ(done.exit_code, 0) << done.err;
    ASSERT_EQ(run_cli({"limit", "--user", "65534", "--soft-bytes", "512K", "--grace", "2h"}).exit_code, 0);
    auto listed = run_cli({"--json", "limit"});
    EXPECT_NE(listed.out.find("\"uid\""), std::string::npos) << listed.out;
    EXPECT_NE(listed.out.find("7200"), std::string::npos) << listed.out;
    ASSERT_EQ(cli_as_nobody({"create", "a", "--size", "600K", "--device", "host"}).exit_code, 0);
    auto refused = cli_as_nobody({"create", "b", "--size", "500K", "--device", "host"});
    EXPECT_EQ(refused.exit_code, 7) << refused.err;
    EXPECT_NE(refused.err.find("the limit of user 65534 on host is 1.0 MiB: 600 KiB used, and 500 KiB more needed"),
              std::string::npos)
        << refused.err;
    auto quota = cli_as_nobody({"quota"});
    EXPECT_EQ(quota.exit_code, 0) << quota.err;
    EXPECT_NE(quota.out.find("600K"), std::string::npos) << quota.out;
    EXPECT_NE(quota.out.find("1.0M"), std::string::npos) << quota.out;
    EXPECT_EQ(cli_as_nobody({"quota", "--user", "0"}).exit_code, 5);
    EXPECT_EQ(cli_as_nobody({"limit", "--user", "65534", "--bytes", "none"}).exit_code, 5);
    ASSERT_EQ(
        run_cli({"limit", "--user", "65534", "--device", "host", "--bytes", "none", "--objects", "none"}).exit_code, 0);
    ASSERT_EQ(run_cli({"limit", "--user", "65534", "--soft-bytes", "none"}).exit_code, 0);
    EXPECT_EQ(run_cli({"limit"}).out, "there are no limits\n");
    for (const std::vector<std::string>& bad : {std::vector<std::string>{"limit", "--bytes", "1M"},
                                                {"limit", "--user", "a", "--group", "b", "--bytes", "1"},
                                                {"limit", "--user", "no such user", "--bytes", "1M"},
                                                {"limit", "--user", "0", "--bytes", "much"},
                                                {"limit", "--user", "0", "--grace", "3 weeks"},
                                                {"limit", "--user", "0", "--bytes", "0"},
                                                {"limit", "--user", "0", "--soft-bytes", "0"},
                                                {"limit", "--user", "0", "--objects", "0"},
                                                {"limit", "--user", "0", "--soft-objects", "0"},
                                                {"limit", "--device", "cuda:0", "--reserve", "0%"},
                                                {"limit", "--reserve", "10%"},
                                                {"limit", "--device", "cuda:0", "--reserve", "99%"},
                                                {"limit", "--user", "0", "--reserve", "1G"}}) {
        EXPECT_EQ(run_cli(bad).exit_code, 2) << bad.back();
    }
    EXPECT_EQ(run_cli({"limit"}).out, "there are no limits\n") << "0 removes nothing";
    EXPECT_EQ(run_cli({"limit", "--directory", "/", "--objects", "100"}).exit_code, 0);
    EXPECT_EQ(run_cli({"limit", "--device", "cuda:0", "--reserve", "10%"}).exit_code, 0);
    EXPECT_NE(run_cli({"limit"}).out.find("RESERVE"), std::string::npos);
    EXPECT_EQ(run_cli({"limit", "--device", "cuda:0", "--reserve", "none"}).exit_code, 0);
}

TEST_F(LimitsTest, QuotaSaysWhoUsesNothingAndWhoMaySeeTheOthers) {
    if (auto missing = missing_for_nobody(); !missing.empty()) GTEST_SKIP() << missing;
    EXPECT_EQ(run_cli({"quota"}).out, "you use nothing, and have no limits; `--all` shows the others\n");
    EXPECT_EQ(cli_as_nobody({"quota"}).out, "you use nothing, and have no limits\n");
    EXPECT_EQ(run_cli({"quota", "--all"}).out, "nobody uses anything, and there are no limits\n");
    const auto refused = cli_as_nobody({"quota", "--all"});
    EXPECT_EQ(refused.exit_code, 5);
    EXPECT_NE(refused.err.find("only root and the user who runs gshmd"), std::string::npos) << refused.err;
    ASSERT_EQ(cli_as_nobody({"create", "a", "--size", "600K", "--device", "host"}).exit_code, 0);
    EXPECT_NE(run_cli({"quota"}).out.find("you use nothing"), std::string::npos);
    EXPECT_NE(run_cli({"quota", "--all"}).out.find("600K"), std::string::npos);
    EXPECT_EQ(run_cli({"quota", "--all", "--user", "0"}).exit_code, 2);
}

TEST_F(LimitsTest, ASoftLimitIsNeverAboveTheHardOne) {
    gshm::Limit both = limit(GSHM_LIMIT_USER, kUser, 1 * kMiB, 10);
    ASSERT_TRUE(root_.set_limit(both));
    gshm::Limit soft = limit(GSHM_LIMIT_USER, kUser, 0);
    soft.info.fields = GSHM_LIMIT_SOFT_BYTES;
    soft.info.soft_bytes = 2 * kMiB;
    auto refused = root_.set_limit(soft);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, EINVAL);
    EXPECT_EQ(refused.error().message,
              "the soft limit of 2.0 MiB would be above the hard one of 1.0 MiB, and never apply");
    soft.info.fields = GSHM_LIMIT_SOFT_OBJECTS;
    soft.info.soft_objects = 11;
    EXPECT_EQ(root_.set_limit(soft).error().code, EINVAL);
    soft.info.soft_objects = 10;
    EXPECT_TRUE(root_.set_limit(soft)) << "the same is permitted";
    both.info.fields = GSHM_LIMIT_OBJECTS;
    both.info.objects = 9;
    EXPECT_EQ(root_.set_limit(both).error().code, EINVAL) << "nor may the hard one get below it";
    gshm::Limit grace = limit(GSHM_LIMIT_USER, kUser, 0);
    grace.info.fields = GSHM_LIMIT_GRACE;
    grace.info.grace_s = 60;
    EXPECT_TRUE(root_.set_limit(grace));
    EXPECT_EQ(of_user().bytes, kMiB);
    EXPECT_EQ(of_user().objects, 10u);
    // Another device has its own.
    soft.device = "host";
    soft.info.soft_objects = 100;
    EXPECT_TRUE(root_.set_limit(soft));
    make_directory("team");
    set(limit(GSHM_LIMIT_DIRECTORY, 0, kMiB), "", "team");
    gshm::Limit tree = limit(GSHM_LIMIT_DIRECTORY, 0, 0);
    tree.path = "team";
    tree.info.fields = GSHM_LIMIT_SOFT_BYTES;
    tree.info.soft_bytes = kMiB + 1;
    EXPECT_EQ(root_.set_limit(tree).error().code, EINVAL);
}

TEST_F(LimitsTest, TheTableShowsTheGraceAndItsEnd) {
    ASSERT_EQ(run_cli({"limit", "--user", "0", "--device", "host", "--soft-bytes", "512K"}).exit_code, 0);
    EXPECT_EQ(run_cli({"limit"}).out.find(" GRACE  "), std::string::npos) << "the default";
    ASSERT_EQ(run_cli({"limit", "--user", "0", "--device", "host", "--grace", "1h30m"}).exit_code, 0);
    EXPECT_NE(run_cli({"limit"}).out.find("1h30m"), std::string::npos) << run_cli({"limit"}).out;
    ASSERT_EQ(run_cli({"create", "a", "--size", "600K", "--device", "host"}).exit_code, 0);
    const std::string running = run_cli({"limit"}).out;
    EXPECT_TRUE(std::regex_search(running, std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d\n)"))) << running;
    ASSERT_EQ(run_cli({"limit", "--user", "0", "--device", "host", "--grace", "1ms"}).exit_code, 0);
    EXPECT_TRUE(eventually([&] { return run_cli({"limit"}).out.find(" over\n") != std::string::npos; }));
    const auto refused = run_cli({"create", "b", "--size", "1K", "--device", "host"});
    EXPECT_EQ(refused.exit_code, 7) << refused.err;
}

TEST_F(LimitsTest, MessagesSayWhatHelps) {
    auto failed = run_cli({"limit", "--directory", "absent", "--bytes", "1M"});
    EXPECT_EQ(failed.exit_code, 4);
    EXPECT_NE(failed.err.find("gshm mkdir"), std::string::npos) << failed.err;
    failed = run_cli({"limit", "--user", "no such user", "--bytes", "1M"});
    EXPECT_NE(failed.err.find("there is no user \"no such user\""), std::string::npos) << failed.err;
    failed = run_cli({"limit", "--group", "no such group", "--bytes", "1M"});
    EXPECT_NE(failed.err.find("there is no group \"no such group\""), std::string::npos) << failed.err;
    failed = run_cli({"limit", "--device", "host", "--reserve", "10%"});
    EXPECT_EQ(failed.exit_code, 9);
    EXPECT_EQ(failed.err.find("host: host"), std::string::npos) << failed.err;
    EXPECT_NE(failed.err.find("--device host:SIZE"), std::string::npos) << failed.err;
    ASSERT_EQ(run_cli({"limit", "--user", "0", "--objects", "1"}).exit_code, 0);
    ASSERT_EQ(run_cli({"create", "a", "--size", "1K", "--device", "host"}).exit_code, 0);
    failed = run_cli({"create", "b", "--size", "1K", "--device", "host"});
    EXPECT_NE(failed.err.find("is 1 object: 1 object used, and 1 object more needed"), std::string::npos) << failed.err;
    failed = run_cli({"limit", "--user", "0", "--bytes", "0"});
    EXPECT_NE(failed.err.find("`none` removes it"), std::string::npos) << failed.err;
}

}  // namespace
}  // namespace gshm::core::test
