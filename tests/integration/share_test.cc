// Sharing with single users and groups, by the library and the command line, with real other users.
#include <algorithm>
#include <grp.h>

#include "library_fixture.h"
#include "other_user.h"
#include "support/as_user.h"

namespace gshm::core::test {
namespace {

constexpr uid_t kAlice = 2001;
constexpr uid_t kBob = 2002;
constexpr uid_t kCarol = 2003;
constexpr gid_t kTeam = 2050;

class ShareTest : public LibraryTest {
protected:
    void SetUp() override {
        if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become other users";
        start_all();
        connect_all();
    }
    void connect_all() {
        alice_ = connect_as(kAlice);
        bob_ = connect_as(kBob);
        carol_ = connect_as(kCarol, {kTeam});
    }
    Client connect_as(uid_t uid, const std::vector<gid_t>& groups = {}) {
        const gid_t before = getgid();
        EXPECT_EQ(::syscall(SYS_setgroups, groups.size(), groups.data()), 0);
        EXPECT_EQ(::syscall(SYS_setresgid, -1, uid, -1), 0);
        Client client;
        {
            AsUser user(uid);
            client = connect();
        }
        EXPECT_EQ(::syscall(SYS_setresgid, -1, before, -1), 0);
        EXPECT_EQ(::syscall(SYS_setgroups, 0, nullptr), 0);
        return client;
    }
    // A sealed object with these bytes.
    void make(const char* name, const char* device = "host", uint32_t mode = 0, uint64_t size = 5000) {
        Object object = create(alice_.get(), name, size, device, GSHM_KEEP, mode);
        ASSERT_NE(object, nullptr);
        ASSERT_EQ(gshm_copy_in(object.get(), 0, "shared", 6), 0) << gshm_last_error();
        ASSERT_EQ(gshm_seal(object.get()), 0) << gshm_last_error();
    }
    static int open_code(gshm_client* client, const std::string& name, uint32_t flags = 0) {
        gshm_object* object = nullptr;
        const int code = gshm_open(client, name.c_str(), flags, &object);
        if (code == 0) gshm_close(object);
        return code;
    }
    // Through a mapping.
    static std::string bytes_of(gshm_client* client, const char* name) {
        gshm_object* object = nullptr;
        if (gshm_open(client, name, 0, &object) != 0) return gshm_last_error();
        char bytes[6] = {};
        const int code = gshm_copy_out(object, 0, bytes, sizeof bytes);
        gshm_close(object);
        return code == 0 ? std::string(bytes, sizeof bytes) : gshm_last_error();
    }
    int share(const char* name, std::vector<gshm_acl_entry> with, uint32_t flags = 0) {
        info_ = GSHM_SHARE_INFO_INIT;
        return gshm_share(alice_.get(), name, with.data(), with.size(), flags, &info_);
    }
    int unshare(const char* name, std::vector<gshm_acl_entry> with = {}, uint32_t flags = 0) {
        info_ = GSHM_SHARE_INFO_INIT;
        return gshm_unshare(alice_.get(), name, with.data(), with.size(), flags, &info_);
    }
    static gshm_acl_entry user(uint32_t uid) { return {GSHM_ACL_USER, 0, uid}; }
    static gshm_acl_entry group(uint32_t gid) { return {GSHM_ACL_GROUP, 0, gid}; }

    Client alice_, bob_, carol_;
    gshm_share_info info_ = GSHM_SHARE_INFO_INIT;
};

TEST_F(ShareTest, AUserReadsWhatIsSharedWithHim) {
    for (const char* device : {"host", "cuda:0"}) {
        const std::string name = std::string("x-") + device;
        make(name.c_str(), device);
        EXPECT_EQ(open_code(bob_.get(), name), -EACCES);
        ASSERT_EQ(share(name.c_str(), {user(kBob)}), 0) << gshm_last_error();
        EXPECT_EQ(info_.changed, 1u);
        EXPECT_STREQ(info_.blocked_by, "");
        EXPECT_EQ(bytes_of(bob_.get(), name.c_str()), "shared");
        EXPECT_EQ(open_code(carol_.get(), name), -EACCES);
        EXPECT_EQ(open_code(bob_.get(), name, GSHM_WRITE), -EACCES);
        // An object that is open stays open after the share has ended.
        Object held = open(bob_.get(), name.c_str());
        ASSERT_EQ(unshare(name.c_str(), {user(kBob)}), 0) << gshm_last_error();
        EXPECT_EQ(info_.changed, 1u);
        EXPECT_EQ(open_code(bob_.get(), name), -EACCES);
        char byte = 0;
        EXPECT_EQ(gshm_copy_out(held.get(), 0, &byte, 1), 0);
        EXPECT_EQ(byte, 's');
        ASSERT_EQ(unshare(name.c_str(), {user(kBob)}), 0);
        EXPECT_EQ(info_.changed, 0u);
    }
}

// Small objects of one owner share memory. A user may map that of the shared ones only.
TEST_F(ShareTest, OneOfSeveralSmallObjectsIsShared) {
    for (const char* device : {"host", "cuda:0"}) {
        std::vector<std::string> names;
        for (int i = 0; i < 4; ++i) {
            names.push_back(std::string(device) + "/" + std::to_string(i));
            make(names.back().c_str(), device);
        }
        // The owner holds it: with bytes that do not change the object may move nevertheless.
        Object held = open(alice_.get(), names[1].c_str());
        ASSERT_EQ(share(names[1].c_str(), {user(kBob)}), 0);
        ASSERT_EQ(share(names[2].c_str(), {user(kBob)}), 0);
        EXPECT_EQ(bytes_of(bob_.get(), names[1].c_str()), "shared");
        EXPECT_EQ(bytes_of(bob_.get(), names[2].c_str()), "shared");
        EXPECT_EQ(open_code(bob_.get(), names[0]), -EACCES);
        EXPECT_EQ(bytes_of(alice_.get(), names[0].c_str()), "shared");
        EXPECT_EQ(bytes_of(alice_.get(), names[1].c_str()), "shared");
        gshm_stat_info infos[3];
        for (int i = 0; i < 3; ++i) {
            infos[i] = GSHM_STAT_INFO_INIT;
            ASSERT_EQ(gshm_stat(alice_.get(), names[static_cast<size_t>(i)].c_str(), &infos[i]), 0);
        }
        EXPECT_NE(infos[0].extent, infos[1].extent);
        EXPECT_EQ(infos[1].extent, infos[2].extent) << "with equal rights they share memory again";
        EXPECT_NE(infos[1].flags & GSHM_STAT_ACL, 0u);
        EXPECT_EQ(infos[0].flags & GSHM_STAT_ACL, 0u);
    }
}

TEST_F(ShareTest, AnObjectThatIsWrittenDoesNotMove) {
    Object x = create(alice_.get(), "x", 5000, "host", GSHM_KEEP);
    make("y");
    ASSERT_EQ(share("x", {user(kBob)}, GSHM_SHARE_WRITE), 0);
    EXPECT_EQ(open_code(bob_.get(), "x"), -EACCES) << "alice writes to where it is";
    x.reset();
    ASSERT_EQ(gshm_ping(alice_.get()), 0);
    EXPECT_EQ(open_code(bob_.get(), "x", GSHM_WRITE), 0) << gshm_last_error();
}

TEST_F(ShareTest, AGroupMayWrite) {
    Object object = create(alice_.get(), "x", 3 << 20, "host", GSHM_KEEP);
    ASSERT_EQ(share("x", {group(kTeam)}, GSHM_SHARE_WRITE), 0);
    EXPECT_EQ(open_code(carol_.get(), "x", GSHM_WRITE), 0) << gshm_last_error();
    EXPECT_EQ(open_code(bob_.get(), "x"), -EACCES);
    ASSERT_EQ(unshare("x", {group(kTeam)}), 0);
    EXPECT_EQ(open_code(carol_.get(), "x"), -EACCES);
}

TEST_F(ShareTest, DirectoriesShareWhatIsMadeInThemLater) {
    make("d/old");
    gshm_changes closed = {sizeof closed, GSHM_CHANGE_MODE, 0700, 0, 0};
    ASSERT_EQ(gshm_change(alice_.get(), "d", &closed), 0);
    ASSERT_EQ(share("d", {user(kBob)}), 0);
    EXPECT_EQ(info_.changed, 1u);
    EXPECT_EQ(open_code(bob_.get(), "d/old"), -EACCES);
    make("d/new");
    make("d/below/new");
    EXPECT_EQ(bytes_of(bob_.get(), "d/new"), "shared");
    EXPECT_EQ(bytes_of(bob_.get(), "d/below/new"), "shared");
    EXPECT_EQ(open_code(carol_.get(), "d/new"), -EACCES);
    gshm_listing* listing = nullptr;
    ASSERT_EQ(gshm_list(bob_.get(), "d", 0, &listing), 0);
    EXPECT_EQ(gshm_listing_count(listing), 3u);
    gshm_listing_free(listing);
    make("d/private", "host", 0600);
    EXPECT_EQ(open_code(bob_.get(), "d/private"), -EACCES) << "a mode limits it";
    // What is there already, with --recursive.
    ASSERT_EQ(share("d", {user(kBob)}, GSHM_SHARE_RECURSIVE), 0);
    EXPECT_EQ(info_.changed, 6u);
    EXPECT_EQ(bytes_of(bob_.get(), "d/old"), "shared");
    ASSERT_EQ(unshare("d", {}, GSHM_SHARE_RECURSIVE), 0);
    EXPECT_EQ(info_.changed, 6u);
    for (const char* name : {"d/old", "d/new", "d/below/new"}) EXPECT_EQ(open_code(bob_.get(), name), -EACCES) << name;
    make("d/after");
    gshm_stat_info info = GSHM_STAT_INFO_INIT;
    ASSERT_EQ(gshm_stat(alice_.get(), "d/after", &info), 0);
    EXPECT_EQ(info.mode, 0600u);
    EXPECT_EQ(info.flags & GSHM_STAT_ACL, 0u);
}

TEST_F(ShareTest, ADirectoryAboveMayBlockIt) {
    make("home/models/x");
    gshm_changes closed = {sizeof closed, GSHM_CHANGE_MODE, 0700, 0, 0};
    ASSERT_EQ(gshm_change(alice_.get(), "home", &closed), 0);
    ASSERT_EQ(share("home/models/x", {user(kAlice), user(kBob)}), 0);
    EXPECT_STREQ(info_.blocked_by, "home");
    EXPECT_EQ(info_.blocked.tag, GSHM_ACL_USER);
    EXPECT_EQ(info_.blocked.id, kBob);
    EXPECT_EQ(open_code(bob_.get(), "home/models/x"), -EACCES);
    ASSERT_EQ(share("home/models/x", {user(kBob)}, GSHM_SHARE_PARENTS), 0);
    EXPECT_STREQ(info_.blocked_by, "");
    EXPECT_EQ(bytes_of(bob_.get(), "home/models/x"), "shared");
    gshm_listing* listing = nullptr;
    EXPECT_EQ(gshm_list(bob_.get(), "home", 0, &listing), -EACCES) << "searched, not listed";
    // The right to search stays with others, and rights that are there are kept.
    ASSERT_EQ(share("home", {user(kBob)}), 0);
    ASSERT_EQ(share("home/models/x", {user(kBob), group(kTeam)}, GSHM_SHARE_PARENTS), 0);
    EXPECT_EQ(gshm_list(bob_.get(), "home", 0, &listing), 0);
    gshm_listing_free(listing);
    EXPECT_EQ(bytes_of(carol_.get(), "home/models/x"), "shared");
}

TEST_F(ShareTest, OnlyTheOwnerAndRootShare) {
    make("x", "host", 0644);
    const gshm_acl_entry entry = user(kBob);
    EXPECT_EQ(gshm_share(bob_.get(), "x", &entry, 1, 0, nullptr), -EPERM);
    EXPECT_EQ(gshm_unshare(bob_.get(), "x", nullptr, 0, 0, nullptr), 0) << "nothing to remove";
    ASSERT_EQ(gshm_share(client_.get(), "x", &entry, 1, 0, nullptr), 0) << gshm_last_error();
    EXPECT_EQ(gshm_unshare(bob_.get(), "x", nullptr, 0, 0, nullptr), -EPERM);
    EXPECT_EQ(gshm_acl_set(bob_.get(), "x", 0, nullptr, 0), -EPERM);
    // All may see who may.
    size_t count = 0;
    gshm_acl_entry entries[8];
    ASSERT_EQ(gshm_acl_get(carol_.get(), "x", 0, entries, 8, &count), 0);
    ASSERT_EQ(count, 5u);
    EXPECT_EQ(entries[1].id, kBob);
    EXPECT_EQ(gshm_share(bob_.get(), "missing", &entry, 1, 0, nullptr), -ENOENT);
    // Other users' objects in the directory are skipped, and the rest is shared.
    ASSERT_EQ(share("", {user(kCarol)}), -EPERM);
    gshm_make_spec spec = GSHM_MAKE_SPEC_INIT;
    spec.kind = GSHM_KIND_DIRECTORY;
    spec.name = "all";
    spec.mode = 0777;
    ASSERT_EQ(gshm_make(alice_.get(), &spec), 0);
    make("all/a");
    Object theirs = create(bob_.get(), "all/b", 100, "host", GSHM_KEEP);
    make("all/c");
    EXPECT_EQ(share("all", {user(kCarol)}, GSHM_SHARE_RECURSIVE), -EPERM);
    EXPECT_EQ(bytes_of(carol_.get(), "all/a"), "shared");
    EXPECT_EQ(bytes_of(carol_.get(), "all/c"), "shared");
    EXPECT_EQ(open_code(carol_.get(), "all/b"), -EACCES);
}

TEST_F(ShareTest, BadArgumentsAreRefused) {
    make("x");
    gshm_acl_entry entry = user(kBob);
    gshm_share_info info = GSHM_SHARE_INFO_INIT;
    EXPECT_EQ(gshm_share(alice_.get(), "x", nullptr, 0, 0, &info), -EINVAL);
    EXPECT_EQ(gshm_share(alice_.get(), "x", nullptr, 1, 0, &info), -EINVAL);
    EXPECT_EQ(gshm_share(alice_.get(), "x", &entry, 1, 1u << 20, &info), -EINVAL);
    EXPECT_EQ(gshm_share(alice_.get(), nullptr, &entry, 1, 0, &info), -EINVAL);
    EXPECT_EQ(gshm_unshare(alice_.get(), "x", &entry, 1, GSHM_SHARE_WRITE, &info), -EINVAL);
    entry.rights = 4;
    EXPECT_EQ(gshm_share(alice_.get(), "x", &entry, 1, 0, &info), -EINVAL);
    entry = {GSHM_ACL_OTHER, 0, 0};
    EXPECT_EQ(gshm_share(alice_.get(), "x", &entry, 1, 0, &info), -EINVAL);
    std::vector<gshm_acl_entry> many(512, user(kBob));
    EXPECT_EQ(gshm_share(alice_.get(), "x", many.data(), many.size(), 0, &info), -E2BIG);
    EXPECT_EQ(gshm_acl_set(alice_.get(), "x", 0, many.data(), many.size()), -E2BIG);
    EXPECT_EQ(gshm_acl_set(alice_.get(), "x", 0, many.data(), 2), -EINVAL) << "twice";
    EXPECT_EQ(gshm_acl_set(alice_.get(), "x", GSHM_ACL_DEFAULT, many.data(), 1), -EACCES);
    EXPECT_EQ(share("x", {user(kBob), user(kBob)}), 0) << "named twice is no error";
    size_t count = 0;
    EXPECT_EQ(gshm_acl_get(alice_.get(), "x", 0, nullptr, 0, &count), 0);
    EXPECT_EQ(count, 5u);
    EXPECT_EQ(gshm_acl_get(alice_.get(), "x", GSHM_ACL_DEFAULT, nullptr, 0, &count), 0);
    EXPECT_EQ(count, 0u);
}

TEST_F(ShareTest, OutlivesAKillAndATakeover) {
    make("d/x", "cuda:0");
    make("d/y");
    ASSERT_EQ(share("d", {user(kBob), group(kTeam)}, GSHM_SHARE_RECURSIVE), 0);
    const std::vector<std::string> options = {"--device", "host:256M", "--device", "cuda"};
    for (const bool takes_over : {false, true}) {
        if (takes_over) {
            ASSERT_TRUE(take_over(options, daemon_env())) << log();
        } else {
            kill();
            ASSERT_TRUE(start(options, daemon_env())) << log();
        }
        connect_all();  // otherwise they would connect again as root
        for (const char* name : {"d/x", "d/y"}) {
            EXPECT_EQ(bytes_of(bob_.get(), name), "shared");
            EXPECT_EQ(bytes_of(carol_.get(), name), "shared");
        }
        make(takes_over ? "d/later" : "d/soon");
        EXPECT_EQ(bytes_of(bob_.get(), takes_over ? "d/later" : "d/soon"), "shared");
        ASSERT_EQ(unshare("d/y", {user(kBob)}), 0);
        EXPECT_EQ(open_code(bob_.get(), "d/y"), -EACCES);
        ASSERT_EQ(share("d/y", {user(kBob)}), 0);
    }
    ASSERT_EQ(unshare("d", {}, GSHM_SHARE_RECURSIVE), 0);
    kill();
    ASSERT_TRUE(start(options, daemon_env())) << log();
    connect_all();
    EXPECT_EQ(open_code(bob_.get(), "d/x"), -EACCES);
    EXPECT_EQ(open_code(carol_.get(), "d/y"), -EACCES);
}

// ---- the command line ----

class ShareCommand : public ::testing::Test, protected DaemonFixture {
protected:
    void SetUp() override {
        if (const std::string missing = missing_for_nobody(); !missing.empty()) GTEST_SKIP() << missing;
        ASSERT_TRUE(start()) << log();
        ASSERT_EQ(run_cli({"create", "d/x", "--size", "6"}).exit_code, 0);
        ASSERT_EQ(run_cli({"write", "d/x"}, "shared").exit_code, 0);
        ASSERT_EQ(run_cli({"seal", "d/x"}).exit_code, 0);
    }
    RunResult as_nobody(const std::vector<std::string>& args) { return run_as_nobody(cli_argv(args)); }
};

TEST_F(ShareCommand, SharesAndShows) {
    EXPECT_EQ(as_nobody({"cat", "d/x"}).exit_code, 5);
    auto shared = run_cli({"share", "d/x", "--to", "65534,@12345", "--json"});
    EXPECT_EQ(shared.exit_code, 0) << shared.err;
    EXPECT_EQ(shared.out.find("\"blocked_by\": \"\"") != std::string::npos ||
                  shared.out.find("\"blocked_by\":\"\"") != std::string::npos,
              true)
        << shared.out;
    EXPECT_EQ(as_nobody({"cat", "d/x"}).out, "shared");
    auto shown = run_cli({"share", "d/x"});
    EXPECT_NE(shown.out.find("group:12345:r--\n"), std::string::npos) << shown.out;
    EXPECT_NE(shown.out.find("mask::r--\n"), std::string::npos) << shown.out;
    EXPECT_NE(run_cli({"ls", "-l", "d"}).out.find("-rw-r-----+"), std::string::npos) << run_cli({"ls", "-l", "d"}).out;
    EXPECT_NE(run_cli({"stat", "d/x"}).out.find("group:12345:r--"), std::string::npos);
    EXPECT_NE(run_cli({"stat", "d/x", "--json"}).out.find("\"acl\""), std::string::npos);
    auto ended = run_cli({"unshare", "d/x", "--from", "u:65534"});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_EQ(ended.err, "");
    ended = run_cli({"unshare", "d/x", "--from", "4711"});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_EQ(ended.err, "gshm: warning: d/x was not shared with 4711\n");
    EXPECT_EQ(as_nobody({"cat", "d/x"}).exit_code, 5);
    EXPECT_NE(run_cli({"share", "d/x"}).out.find("12345"), std::string::npos);
    EXPECT_EQ(run_cli({"unshare", "d", "-r"}).exit_code, 0);
    EXPECT_EQ(run_cli({"ls", "-l", "d"}).out.find("+"), std::string::npos);
}

TEST_F(ShareCommand, TellsWhatBlocksIt) {
    ASSERT_EQ(run_cli({"create", "closed/x", "--size", "10"}).exit_code, 0);
    gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
    const std::string folder = dir();
    options.dir = folder.c_str();
    gshm_client* client = nullptr;
    ASSERT_EQ(gshm_connect(&options, &client), 0);
    const gshm_changes changes = {sizeof changes, GSHM_CHANGE_MODE, 0700, 0, 0};
    ASSERT_EQ(gshm_change(client, "closed", &changes), 0);
    gshm_disconnect(client);
    auto shared = run_cli({"share", "closed/x", "--to", "65534"});
    EXPECT_EQ(shared.exit_code, 0);
    EXPECT_NE(shared.err.find("warning: user "), std::string::npos) << shared.err;
    EXPECT_NE(shared.err.find("this user may not search closed"), std::string::npos) << shared.err;
    EXPECT_NE(shared.err.find("--parents"), std::string::npos) << shared.err;
    shared = run_cli({"share", "closed/x", "--to", "65534", "--parents"});
    EXPECT_EQ(shared.exit_code, 0);
    EXPECT_EQ(shared.err, "");
    EXPECT_EQ(as_nobody({"stat", "closed/x"}).exit_code, 0);
}

TEST_F(ShareCommand, RefusesWhatItDoesNotKnow) {
    auto unknown = run_cli({"share", "d/x", "--to", "no-such-user"});
    EXPECT_EQ(unknown.exit_code, 2);
    EXPECT_NE(unknown.err.find("no-such-user"), std::string::npos) << unknown.err;
    EXPECT_EQ(run_cli({"share", "d/x", "--to", "@no-such-group"}).exit_code, 2);
    const auto empty = run_cli({"share", "d/x", "--to", ""});
    EXPECT_EQ(empty.exit_code, 2);
    EXPECT_NE(empty.err.find("the name of a user is empty"), std::string::npos) << empty.err;
    EXPECT_EQ(run_cli({"share", "d/x", "--to", "root,,"}).exit_code, 2);
    EXPECT_EQ(run_cli({"share", "d/x", "--write"}).exit_code, 2);
    EXPECT_EQ(run_cli({"share", "missing", "--to", "65534"}).exit_code, 4);
    EXPECT_EQ(as_nobody({"share", "d/x", "--to", "65534"}).exit_code, 5);
}

TEST_F(ShareCommand, ReplacedAndRestoredObjectsAreSharedAlike) {
    ASSERT_EQ(run_cli({"share", "d", "-r", "--to", "65534"}).exit_code, 0);
    ASSERT_EQ(run_cli({"put", "--replace", "-", "d/x"}, "newer!").exit_code, 0);
    EXPECT_EQ(as_nobody({"cat", "d/x"}).out, "newer!");
    const auto before = run_cli({"share", "d", "d/x"}).out;
    const std::string saved = scratch() + "/saved";
    ASSERT_EQ(run_cli({"snapshot", saved}).exit_code, 0);
    ASSERT_EQ(run_cli({"rm", "-r", "d"}).exit_code, 0);
    auto restored = run_cli({"restore", saved});
    ASSERT_EQ(restored.exit_code, 0) << restored.err;
    EXPECT_EQ(run_cli({"share", "d", "d/x"}).out, before);
    EXPECT_EQ(as_nobody({"cat", "d/x"}).out, "newer!");
}

}  // namespace
}  // namespace gshm::core::test
