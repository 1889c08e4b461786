// The library followed a symbolic link of any user in a directory where all users make entries, so that root wrote to
// the object that another user had chosen. The kernel refuses that (fs.protected_symlinks).
#include <gtest/gtest.h>

#include "mount/mount_fixture.h"
#include "support/store_rig.h"
#include <gshm/gshm.h>

namespace gshm::core::test {
namespace {

class ProtectedLinks : public ::testing::Test {
protected:
    static constexpr uid_t kOwner = 3;  // of the store

    void SetUp() override {
        ASSERT_TRUE(store.make(root, {.name = "tmp", .mode = 01777, .flags = kCreateKeep}));
        ASSERT_TRUE(store.make(root, {.name = "plain", .mode = 0777, .flags = kCreateKeep}));
        ASSERT_TRUE(store.make(root, {.name = "sticky", .mode = 01775, .flags = kCreateKeep}));
        ASSERT_TRUE(rig.create(root, "target/x", 10, 0666, kCreateKeep));
    }
    Status make_link(SessionId by, std::string_view name, std::string_view target) {
        return store.make(by, {.name = name, .kind = NodeKind::symlink, .target = target, .flags = kCreateKeep});
    }
    int open(SessionId by, std::string_view name) { return code_of(store.open(by, name, Access::write, false)); }

    StoreRig rig{kOwner};
    Store& store = rig.store;
    SessionId root = store.begin_session({0, 0, 1, {}});
    SessionId owner = store.begin_session({kOwner, kOwner, 2, {}});
    SessionId alice = store.begin_session({1, 1, 3, {}});
    SessionId bob = store.begin_session({2, 2, 4, {}});
};

TEST_F(ProtectedLinks, OnlyItsOwnerAndTheDirectorysLeadOthers) {
    ASSERT_TRUE(make_link(alice, "tmp/alices", "../target/x"));
    ASSERT_TRUE(make_link(root, "tmp/roots", "../target/x"));
    EXPECT_EQ(open(alice, "tmp/alices"), 0);
    EXPECT_EQ(open(bob, "tmp/alices"), EACCES);
    EXPECT_EQ(open(root, "tmp/alices"), EACCES);
    EXPECT_EQ(open(bob, "tmp/roots"), 0) << "the directory is root's";
    const auto refused = store.open(root, "tmp/alices", Access::read, false);
    EXPECT_NE(refused.error().message.find("\"tmp/alices\""), std::string::npos) << refused.error().message;
    EXPECT_EQ(refused.error().message.find("target"), std::string::npos) << refused.error().message;
}

TEST_F(ProtectedLinks, TheRootOfTheStoreIsSuchADirectory) {
    ASSERT_TRUE(make_link(alice, "alices", "target/x"));
    ASSERT_TRUE(make_link(owner, "owners", "target/x"));
    EXPECT_EQ(open(alice, "alices"), 0);
    EXPECT_EQ(open(root, "alices"), EACCES);
    EXPECT_EQ(open(bob, "owners"), 0);
}

TEST_F(ProtectedLinks, OtherDirectoriesAreNot) {
    ASSERT_TRUE(make_link(alice, "plain/alices", "../target/x"));
    EXPECT_EQ(open(root, "plain/alices"), 0) << "not sticky: there the mode protects nobody";
    const SessionId group = store.begin_session({1, 0, 5, {}});
    ASSERT_TRUE(make_link(group, "sticky/alices", "../target/x"));
    EXPECT_EQ(open(root, "sticky/alices"), 0) << "not all users write to it";
}

TEST_F(ProtectedLinks, ALinkBeforeTheLastPartIsProtectedToo) {
    ASSERT_TRUE(make_link(alice, "tmp/d", "../target"));
    EXPECT_EQ(open(root, "tmp/d/x"), EACCES);
    EXPECT_EQ(code_of(rig.create(root, "tmp/d/new")), EACCES);
    EXPECT_EQ(code_of(store.unlink(root, "tmp/d/x")), EACCES);
    EXPECT_EQ(code_of(store.rename(root, "target/x", "tmp/d/y", false)), EACCES);
    // By way of a link that is followed.
    ASSERT_TRUE(make_link(root, "roots", "tmp/d/x"));
    EXPECT_EQ(open(root, "roots"), EACCES);
    EXPECT_EQ(open(alice, "tmp/d/x"), 0);
}

TEST_F(ProtectedLinks, EveryRequestThatFollowsIsRefused) {
    ASSERT_TRUE(make_link(alice, "tmp/x", "../target/x"));
    ASSERT_TRUE(make_link(alice, "tmp/d", "../target"));
    uint64_t cookie = 0;
    EXPECT_EQ(code_of(store.open(root, "tmp/x", Access::read, false)), EACCES);
    EXPECT_EQ(code_of(store.seal(root, "tmp/x")), EACCES);
    EXPECT_EQ(code_of(store.set_attribute(root, "tmp/x", "k", "v")), EACCES);
    EXPECT_EQ(code_of(store.get_attribute(root, "tmp/x", "k")), EACCES);
    EXPECT_EQ(code_of(store.remove_attribute(root, "tmp/x", "k")), EACCES);
    EXPECT_EQ(code_of(store.attributes(root, "tmp/x")), EACCES);
    EXPECT_EQ(code_of(store.holders(root, "tmp/x")), EACCES);
    EXPECT_EQ(code_of(store.find_movable(root, "tmp/x")), EACCES);
    EXPECT_EQ(code_of(store.list(root, "tmp/d", 0, 10, &cookie)), EACCES);
    EXPECT_EQ(code_of(store.stat(root, "tmp/d/x")), EACCES);
    // These concern the link itself.
    EXPECT_TRUE(store.stat(root, "tmp/x"));
    EXPECT_TRUE(store.read_link(root, "tmp/x"));
    EXPECT_TRUE(store.change(root, "tmp/x", {.what = kChangeKeep}));
    EXPECT_TRUE(store.rename(root, "tmp/x", "tmp/y", false));
    EXPECT_TRUE(store.unlink(root, "tmp/y"));
}

class ProtectedLinksCommand : public ::testing::Test, protected DaemonFixture {};

TEST_F(ProtectedLinksCommand, RootWritesNotThroughTheLinkOfAUser) {
    if (geteuid() != 0) GTEST_SKIP() << "not root: the test needs a second user";
    ASSERT_TRUE(start()) << log();
    ASSERT_EQ(run_cli({"create", "victim", "--size", "4"}).exit_code, 0);
    const auto wrong = MountFixture::run_as(MountFixture::kNobody, [&]() -> std::string {
        gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
        const std::string folder = dir();
        options.dir = folder.c_str();
        gshm_client* client = nullptr;
        gshm_make_spec spec = GSHM_MAKE_SPEC_INIT;
        spec.kind = GSHM_KIND_SYMLINK;
        spec.name = "trap";
        spec.target = "victim";
        return gshm_connect(&options, &client) == 0 && gshm_make(client, &spec) == 0 ? "" : gshm_last_error();
    });
    ASSERT_EQ(wrong, "");
    const auto written = run_cli({"write", "trap"}, "evil");
    EXPECT_EQ(written.exit_code, 5) << written.err;
    EXPECT_NE(written.err.find("a symbolic link of another user"), std::string::npos) << written.err;
    EXPECT_EQ(run_cli({"cat", "victim"}).out, std::string(4, '\0'));
}

}  // namespace
}  // namespace gshm::core::test
