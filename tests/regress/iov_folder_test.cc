// The mount had no folder 3fs-virt/iovs, which 3FS's Python binding and NIXL use to register memory. Requests on it that
// a killed gshmd has executed, but not answered, succeed when they are sent again.
#include "base/limits.h"
#include "support/fuse_rig.h"

namespace gshm::core::test {
namespace {

constexpr char kName[] = "0a1b2c3d-0000-4000-8000-00805f9b34fb";
constexpr char kTarget[] = "/dev/shm/psm_1";

class IovFolderRequests : public ::testing::Test {
protected:
    NodeId folder() {
        auto top = rig_.lookup("3fs-virt");
        EXPECT_TRUE(top.is_good()) << top.error;
        auto links = rig_.lookup("iovs", top.node());
        EXPECT_TRUE(links.is_good()) << links.error;
        return links.node();
    }
    RigAnswer make(NodeId folder, std::string_view name = kName, std::string_view target = kTarget, uint32_t user = 0) {
        return rig_.ask(RigRequest(FUSE_SYMLINK, folder, user).add_text(name).add_text(target));
    }
    RigAnswer remove(NodeId folder, std::string_view name = kName) {
        return rig_.ask(RigRequest(FUSE_UNLINK, folder).add_text(name));
    }
    FuseRig rig_;
};

TEST_F(IovFolderRequests, ALinkThatIsMadeAgainIsTheSame) {
    const NodeId at = folder();
    rig_.kill_at(KillPoint::answer);
    EXPECT_FALSE(make(at).given);
    rig_.restart();
    const NodeId made = rig_.lookup(kName, at).node();
    auto again = rig_.resend();
    ASSERT_EQ(again.size(), 1u);
    EXPECT_TRUE(again[0].is_good()) << again[0].error;
    EXPECT_EQ(again[0].node(), made);
    EXPECT_EQ(make(at).error, EEXIST) << "another request";
    EXPECT_EQ(rig_.ask(RigRequest(FUSE_READLINK, made)).body, kTarget);
}

TEST_F(IovFolderRequests, ALinkThatIsRemovedAgainIsGone) {
    const NodeId at = folder();
    ASSERT_TRUE(make(at).is_good());
    rig_.kill_at(KillPoint::answer);
    EXPECT_FALSE(remove(at).given);
    rig_.restart();
    auto again = rig_.resend();
    ASSERT_EQ(again.size(), 1u);
    EXPECT_TRUE(again[0].is_good()) << again[0].error;
    EXPECT_EQ(remove(at).error, ENOENT) << "another request";
}

TEST_F(IovFolderRequests, NodeNumbersAreNotUsedAgain) {
    const NodeId at = folder();
    std::set<NodeId> used;
    for (int i = 0; i < 20; ++i) {
        auto made = make(at);
        ASSERT_TRUE(made.is_good());
        EXPECT_TRUE(used.insert(made.node()).second);
        ASSERT_TRUE(remove(at).is_good());
        if (i % 3 == 0) rig_.restart();
    }
}

TEST_F(IovFolderRequests, OnlyLinksOfIovsToSharedMemory) {
    const NodeId at = folder();
    for (const char* name : {"a", "..", "0a1b2c3d", "0a1b2c3d-0000-4000-8000-00805f9b34f/", "submit-ios",
                             "0a1b2c3d-0000-4000-8000-00805f9b34fb.b1/.."}) {
        EXPECT_EQ(make(at, name).error, EINVAL) << name;
    }
    for (const char* target : {"/etc/shadow", "/dev/shm/", "/dev/shm/..", "/dev/shm/../etc/x", "/dev/shm/a/b", "x"}) {
        EXPECT_EQ(make(at, kName, target).error, EINVAL) << target;
    }
    EXPECT_TRUE(make(at, "0A1B2C3D000040008000008000000000.b4096.r-1.ph.t5.f10", "/dev/shm/hf3fs-iov-1").is_good());
    fuse_mkdir_in in = {};
    EXPECT_EQ(rig_.ask(RigRequest(FUSE_MKDIR, at).add(in).add_text(kName)).error, EPERM);
}

TEST_F(IovFolderRequests, TheFolderStays) {
    EXPECT_EQ(rig_.ask(RigRequest(FUSE_RMDIR, Files::kRoot).add_text("3fs-virt")).error, EBUSY);
    EXPECT_EQ(rig_.rename("3fs-virt", "other").error, EBUSY);
    ASSERT_TRUE(rig_.ask(RigRequest(FUSE_MKDIR, Files::kRoot).add(fuse_mkdir_in{}).add_text("mine")).is_good());
    EXPECT_EQ(rig_.rename("mine", "3fs-virt").error, EBUSY);
}

// One user fills it: the others, and root, still make links.
TEST_F(IovFolderRequests, AUserHasALimit) {
    const NodeId at = folder();
    auto name = [](size_t i) { return fmt::format("{:032x}", i); };
    size_t made = 0;
    while (made <= limits::kIovLinksOfUser && make(at, name(made), kTarget, 1000).is_good()) ++made;
    EXPECT_EQ(made, limits::kIovLinksOfUser);
    EXPECT_EQ(make(at, name(made), kTarget, 1000).error, ENOSPC);
    EXPECT_TRUE(make(at, name(made), kTarget, 2000).is_good());
    EXPECT_TRUE(make(at, name(made + 1), kTarget, 0).is_good());
    ASSERT_TRUE(remove(at, name(0)).is_good());
    EXPECT_TRUE(make(at, name(0), kTarget, 1000).is_good());
    rig_.restart();
    EXPECT_EQ(make(at, name(made + 2), kTarget, 1000).error, ENOSPC) << "after a restart too";
}

}  // namespace
}  // namespace gshm::core::test
