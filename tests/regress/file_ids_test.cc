// After a restart, ids of open files were reused: they continued after the highest id still open. A RELEASE that the
// kernel sent again then closed another user's file, and a descriptor could refer to another user's file.
#include <linux/falloc.h>
#include <set>
#include <unistd.h>

#include <gtest/gtest.h>

#include "support/fuse_rig.h"

namespace gshm::core::test {
namespace {

class FileIds : public ::testing::TestWithParam<bool> {
protected:
    FileIds() : rig_({.files = GetParam(), .passthrough = GetParam()}) {}

    FuseRig rig_;
};

TEST_P(FileIds, AReleaseThatIsSentAgainClosesNothingOfOthers) {
    auto first = rig_.create("first", 1000);
    ASSERT_TRUE(first.is_good());
    rig_.kill_at(KillPoint::answer);
    EXPECT_FALSE(rig_.release(first.node(), first.open_out().file).given);
    rig_.restart();
    // Another user opens a file before the kernel resends its request.
    auto second = rig_.create("second", 2000, 0600);
    ASSERT_TRUE(second.is_good());
    EXPECT_NE(second.open_out().file, first.open_out().file);
    auto released = rig_.resend();
    ASSERT_EQ(released.size(), 1u);
    EXPECT_TRUE(released[0].is_good());
    EXPECT_TRUE(rig_.write(second.node(), second.open_out().file, "mine").is_good());
    EXPECT_EQ(rig_.read(second.node(), second.open_out().file).body, "mine");
}

// No id is reused, including those without an open file and without a reply.
TEST_P(FileIds, NoneIsUsedAgain) {
    auto made = rig_.create("file");
    std::set<FileId> used{made.open_out().file};
    rig_.release(made.node(), made.open_out().file);
    for (int round = 0; round < 5; ++round) {
        rig_.restart();
        auto opened = rig_.open(made.node());
        ASSERT_TRUE(opened.is_good()) << opened.error;
        EXPECT_TRUE(used.insert(opened.open_out().file).second) << opened.open_out().file << " in round " << round;
        rig_.release(made.node(), opened.open_out().file);
    }
}

// An OPEN whose reply was lost gives the same file when it is sent again, after any number of killed daemons.
TEST_P(FileIds, AnOpenThatIsSentAgainIsTheSameFile) {
    auto made = rig_.create("file");
    rig_.release(made.node(), made.open_out().file);
    rig_.kill_at(KillPoint::answer);
    EXPECT_FALSE(rig_.open(made.node()).given);
    rig_.restart();
    const FileId other = rig_.create("other").open_out().file;
    rig_.restart();
    auto opened = rig_.resend();
    ASSERT_EQ(opened.size(), 1u);
    ASSERT_TRUE(opened[0].is_good()) << opened[0].error;
    EXPECT_NE(opened[0].open_out().file, other);
    EXPECT_EQ(as_object(rig_.files().find(made.node()))->open_files, 1u);
}

// Every request names the node and the file, and a file is valid only for its own node.
TEST_P(FileIds, AFileOfAnotherNodeIsRefused) {
    auto mine = rig_.create("mine", 1000, 0600);
    auto foreign = rig_.create("foreign", 2000, 0600);
    const NodeId node = mine.node();
    const FileId file = foreign.open_out().file;
    ASSERT_TRUE(rig_.write(foreign.node(), file, "secret").is_good());
    ASSERT_TRUE(rig_.write(node, mine.open_out().file, "public").is_good());

    EXPECT_EQ(rig_.read(node, file).error, EBADF);
    EXPECT_EQ(rig_.write(node, file, "x").error, EBADF);
    fuse_fallocate_in allocate = {};
    allocate.fh = file;
    allocate.length = 6;
    allocate.mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    EXPECT_EQ(rig_.ask(RigRequest(FUSE_FALLOCATE, node).add(allocate)).error, EBADF);
    fuse_lseek_in seek = {};
    seek.fh = file;
    seek.whence = SEEK_DATA;
    EXPECT_EQ(rig_.ask(RigRequest(FUSE_LSEEK, node).add(seek)).error, EBADF);
    fuse_setattr_in truncate = {};
    truncate.valid = FATTR_SIZE | FATTR_FH;
    truncate.fh = file;
    EXPECT_EQ(rig_.ask(RigRequest(FUSE_SETATTR, node).add(truncate)).error, EBADF);
    fuse_getattr_in look = {};
    look.getattr_flags = FUSE_GETATTR_FH;
    look.fh = file;
    EXPECT_EQ(rig_.ask(RigRequest(FUSE_GETATTR, node).add(look)).error, EBADF);

    fuse_copy_file_range_in copy = {};
    copy.fh_in = file;
    copy.fh_out = mine.open_out().file;
    copy.nodeid_out = node;
    copy.len = 6;
    EXPECT_EQ(rig_.ask(RigRequest(FUSE_COPY_FILE_RANGE, node).add(copy)).error, EBADF) << "from another's file";
    copy.fh_in = mine.open_out().file;
    copy.fh_out = file;
    EXPECT_EQ(rig_.ask(RigRequest(FUSE_COPY_FILE_RANGE, node).add(copy)).error, EBADF) << "to another's file";
    copy.nodeid_out = foreign.node();
    EXPECT_TRUE(rig_.ask(RigRequest(FUSE_COPY_FILE_RANGE, node).add(copy)).is_good()) << "as it should be";

    EXPECT_TRUE(rig_.release(node, file).is_good());
    EXPECT_EQ(rig_.read(foreign.node(), file).body, "public") << "it is still open";
    EXPECT_EQ(rig_.read(node, mine.open_out().file).body, "public");
}

INSTANTIATE_TEST_SUITE_P(Devices, FileIds, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Host" : "Gpu"; });

}  // namespace
}  // namespace gshm::core::test
