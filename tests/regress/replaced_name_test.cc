// A name that is only ever replaced was ENOENT in rare cases while gshmd was killed. The kernel has received the reply
// to a LOOKUP, but the waiting process has not run yet, and so the kernel reports that it does not know the node. If
// the node is then replaced, it is gone, and the process continues with a request for it. ENOENT was the reply, which
// the kernel passes to the process; for ESTALE it repeats the path lookup.
#include <gtest/gtest.h>

#include "support/fuse_rig.h"

namespace gshm::core::test {
namespace {

class ReplacedName : public ::testing::TestWithParam<bool> {
protected:
    ReplacedName() : rig_({.files = GetParam(), .passthrough = GetParam()}) {}

    void put(std::string_view name, std::string_view bytes) {
        auto made = rig_.create(name);
        ASSERT_TRUE(made.is_good());
        ASSERT_TRUE(rig_.write(made.node(), made.open_out().file, bytes).is_good());
        ASSERT_TRUE(rig_.release(made.node(), made.open_out().file).is_good());
        rig_.forget(made.node(), 1);
    }

    FuseRig rig_;
};

TEST_P(ReplacedName, IsLookedUpAgain) {
    put("name", "old");
    const NodeId old = rig_.lookup("name").node();
    rig_.restart();
    put("temporary", "new");
    ASSERT_TRUE(rig_.rename("temporary", "name").is_good());
    rig_.answer_surveys({});
    ASSERT_EQ(rig_.files().find(old), nullptr) << "or this shows nothing";
    // All requests that a path lookup can lead to before the node is opened.
    EXPECT_EQ(rig_.get_attributes(old).error, ESTALE);
    EXPECT_EQ(rig_.open(old).error, ESTALE);
    fuse_setattr_in times = {};
    times.valid = FATTR_MTIME | FATTR_MTIME_NOW;
    EXPECT_EQ(rig_.ask(RigRequest(FUSE_SETATTR, old).add(times)).error, ESTALE);
    fuse_getxattr_in attribute = {};
    attribute.size = 100;
    EXPECT_EQ(rig_.ask(RigRequest(FUSE_GETXATTR, old).add(attribute).add_text("user.a")).error, ESTALE);
    EXPECT_EQ(rig_.ask(RigRequest(FUSE_LISTXATTR, old).add(attribute)).error, ESTALE);
    EXPECT_EQ(rig_.ask(RigRequest(FUSE_READLINK, old)).error, ESTALE);
    EXPECT_EQ(rig_.lookup("below", old).error, ESTALE);
    fuse_link_in link = {};
    link.oldnodeid = old;
    EXPECT_EQ(rig_.ask(RigRequest(FUSE_LINK, Files::kRoot).add(link).add_text("other")).error, ESTALE);

    auto found = rig_.lookup("name");
    ASSERT_TRUE(found.is_good());
    EXPECT_NE(found.node(), old);
    auto opened = rig_.open(found.node());
    EXPECT_EQ(rig_.read(found.node(), opened.open_out().file).body, "new");
}

// The new daemon makes the kernel drop all names. The inode goes with its name, and the kernel forgets the node and
// looks it up again at the same time: the daemon replies to the lookup, reads the FORGET and surveys the kernel before
// the process has run.
TEST_P(ReplacedName, IsLookedUpAgainWhenTheSurveyWasFaster) {
    put("name", "old");
    rig_.restart();
    rig_.answer_surveys({rig_.lookup("name").node()});
    const NodeId old = rig_.lookup("name").node();
    rig_.forget(old, 1);
    rig_.answer_surveys({});
    put("temporary", "new");
    ASSERT_TRUE(rig_.rename("temporary", "name").is_good());
    ASSERT_EQ(rig_.files().find(old), nullptr) << "or this shows nothing";
    EXPECT_EQ(rig_.get_attributes(old).error, ESTALE);
    EXPECT_EQ(rig_.open(old).error, ESTALE);
    EXPECT_NE(rig_.lookup("name").node(), old);
}

// A name without a node is still missing.
TEST_P(ReplacedName, ANameThatIsRemovedIsMissing) {
    put("name", "bytes");
    ASSERT_TRUE(rig_.unlink("name").is_good());
    EXPECT_EQ(rig_.lookup("name").error, ENOENT);
}

// CREATE was processed but not answered, and the file has been removed since: it is created again, not missing.
TEST_P(ReplacedName, AFileThatWasCreatedAndRemovedIsCreatedAgain) {
    rig_.kill_at(KillPoint::answer);
    EXPECT_FALSE(rig_.create("name").given);
    rig_.restart();
    Node* node = Files::child(*as_directory(rig_.files().find(Files::kRoot)), "name");
    ASSERT_NE(node, nullptr);
    const NodeId id = node->id;
    rig_.files().close_all();  // the file of the lost reply
    ASSERT_TRUE(rig_.unlink("name").is_good());
    rig_.answer_surveys({});
    ASSERT_EQ(rig_.files().find(id), nullptr);
    auto created = rig_.resend();
    ASSERT_EQ(created.size(), 1u);
    EXPECT_EQ(created[0].error, ESTALE);
    EXPECT_TRUE(rig_.create("name").is_good());
}

INSTANTIATE_TEST_SUITE_P(Devices, ReplacedName, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Host" : "Gpu"; });

}  // namespace
}  // namespace gshm::core::test
