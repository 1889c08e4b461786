// A backing file was closed before its record was erased. A daemon that was killed in between left the id of a backing
// file that the kernel no longer had, and every later open() of the file failed with EIO.
#include <gtest/gtest.h>

#include "support/fuse_rig.h"

namespace gshm::core::test {
namespace {

class BackingFiles : public ::testing::Test {
protected:
    RigAnswer make_open(std::string_view name) {
        auto made = rig_.create(name);
        EXPECT_TRUE(made.is_good());
        EXPECT_NE(made.open_out().backing_id, 0);
        EXPECT_TRUE(rig_.write(made.node(), made.open_out().file, "bytes").is_good());
        return made;
    }
    // A closed file.
    NodeId make(std::string_view name) {
        auto made = make_open(name);
        rig_.release(made.node(), made.open_out().file);
        return made.node();
    }
    // Opens the file as the kernel does, which uses the given backing file.
    void check_opens(std::string_view name) {
        auto found = rig_.lookup(name);
        ASSERT_TRUE(found.is_good());
        auto opened = rig_.open(found.node());
        check_is_backed(found.node(), opened);
        rig_.release(found.node(), opened.open_out().file);
    }
    void check_is_backed(NodeId node, const RigAnswer& opened) {
        ASSERT_TRUE(opened.is_good()) << opened.error;
        const auto out = opened.open_out();
        ASSERT_NE(out.backing_id, 0);
        ASSERT_TRUE(rig_.kernel.has_backing(out.backing_id)) << "EIO: the kernel does not know " << out.backing_id;
        ASSERT_TRUE(rig_.kernel.write_backing(out.backing_id, "by the kernel"));
        EXPECT_EQ(rig_.read(node, out.file).body, "by the kernel") << "another file";
    }

    FuseRig rig_;
};

TEST_F(BackingFiles, OneThatIsClosedIsNotHandedOut) {
    const NodeId node = make("file");
    const auto opened = rig_.open(node, O_RDONLY);
    rig_.kill_at(KillPoint::closed_backing);
    rig_.release(node, opened.open_out().file);
    ASSERT_TRUE(rig_.is_dead());
    rig_.restart();
    check_opens("file");
}

// It would keep the memory until the mount ends.
TEST_F(BackingFiles, OneThatWasToBeClosedIsClosedByTheNext) {
    const NodeId node = make("file");
    const auto opened = rig_.open(node, O_RDONLY);
    rig_.kill_at(KillPoint::close_backing);
    rig_.release(node, opened.open_out().file);
    ASSERT_TRUE(rig_.is_dead());
    EXPECT_EQ(rig_.kernel.backing_count(), 1u);
    rig_.restart();
    EXPECT_EQ(rig_.kernel.backing_count(), 0u);
    check_opens("file");
}

TEST_F(BackingFiles, OneThatWasNotNotedIsClosedByTheNext) {
    const auto kept = make_open("kept");
    rig_.kill_at(KillPoint::opened_backing);
    EXPECT_FALSE(rig_.create("file").given);
    EXPECT_EQ(rig_.kernel.backing_count(), 2u);
    rig_.restart();
    EXPECT_EQ(rig_.kernel.backing_count(), 1u) << "that of the other file";
    auto opened = rig_.resend();
    ASSERT_EQ(opened.size(), 1u);
    check_is_backed(opened[0].node(), opened[0]);
    check_is_backed(kept.node(), kept);
}

// The kernel held a file for every inode that it knew. The files that are not open are given back.
TEST_F(BackingFiles, ThereAreAsManyAsOpenFiles) {
    std::vector<NodeId> nodes;
    for (int i = 0; i < 20; ++i) nodes.push_back(make("file" + std::to_string(i)));
    EXPECT_EQ(rig_.kernel.backing_count(), 0u);
    auto first = rig_.open(nodes[0]);
    auto second = rig_.open(nodes[0]);
    EXPECT_EQ(first.open_out().backing_id, second.open_out().backing_id);
    rig_.release(nodes[0], first.open_out().file);
    EXPECT_EQ(rig_.kernel.backing_count(), 1u);
    check_is_backed(nodes[0], second);
    rig_.release(nodes[0], second.open_out().file);
    EXPECT_EQ(rig_.kernel.backing_count(), 0u);
}

// While a file is open, the kernel keeps its backing file and accepts no other for the inode.
TEST_F(BackingFiles, ThatOfAnOpenFileStays) {
    auto made = rig_.create("file");
    rig_.restart();
    auto opened = rig_.open(made.node());
    ASSERT_TRUE(opened.is_good());
    EXPECT_EQ(opened.open_out().backing_id, made.open_out().backing_id);
    check_is_backed(made.node(), opened);
}

TEST_F(BackingFiles, ThatOfAnOpenWithoutAnAnswerStays) {
    const NodeId node = make("file");
    rig_.forget(node, 1);
    ASSERT_EQ(rig_.lookup("file").node(), node);
    rig_.kill_at(KillPoint::answer);
    EXPECT_FALSE(rig_.open(node).given);
    rig_.restart();
    auto opened = rig_.resend();
    ASSERT_EQ(opened.size(), 1u);
    check_is_backed(node, opened[0]);
}

// The kernel has the file of memory that the object did not keep, since the daemon was killed before it was in the
// catalog.
TEST_F(BackingFiles, OneOfOtherMemoryIsNotHandedOut) {
    const NodeId node = make("file");
    rig_.forget(node, 1);
    {
        auto* object = as_object(rig_.files().find(node));
        auto device = HostDevice::create(1 << 20);
        std::shared_ptr<Extent> memory = *(*device)->allocate(5, {false, true});
        const auto fd = *memory->file()->open();
        rig_.files().replace_memory(*object, std::move(memory), 5);
        ASSERT_TRUE(rig_.files().note_backing(*object, *rig_.kernel.open_backing(fd->get())));
    }
    rig_.restart();
    EXPECT_EQ(rig_.kernel.backing_count(), 0u);
    check_opens("file");
}

// The backing file of a node that is not in the catalog is useless.
TEST_F(BackingFiles, OneOfANodeThatWasNotWrittenDownIsClosed) {
    rig_.kill_at(KillPoint::record);
    EXPECT_FALSE(rig_.create("file").given);
    EXPECT_EQ(rig_.kernel.backing_count(), 1u);
    rig_.restart();
    EXPECT_EQ(rig_.kernel.backing_count(), 0u);
    auto created = rig_.resend();
    ASSERT_EQ(created.size(), 1u);
    check_is_backed(created[0].node(), created[0]);
}

}  // namespace
}  // namespace gshm::core::test
