#include <linux/fs.h>

#include <gtest/gtest.h>

#include "fuse/known_nodes.h"
#include "store/files.h"
#include "support/store_rig.h"

namespace gshm::core::test {
namespace {

class FilesTest : public ::testing::Test {
protected:
    Directory& root() { return *as_directory(files.find(Files::kRoot)); }
    Object* make(std::string_view name) { return *files.make_object(root(), name, {1, 1, 0644}); }
    // As the mount does it.
    void give_memory(Object* object, uint64_t bytes, uint64_t size) {
        auto gate = Files::gate(*object);  // held by a thread
        std::shared_ptr<Extent> memory = *rig.first.allocate(bytes, {});
        files.replace_memory(*object, std::move(memory), size);
    }
    Object* make_in(std::string_view directory, std::string_view name) {
        return *files.make_object(*as_directory(Files::child(root(), directory)), name, {1, 1, 0644});
    }
    const Account& use() { return rig.store.use(0); }

    StoreRig rig;
    Files files{rig.store};
    fuse::KnownNodes known{files};
    SessionId session = rig.store.begin_session({1, 1, 100, {}});
};

TEST_F(FilesTest, AnObjectLivesAsLongAsOneOfItsNames) {
    Object* object = make("a");
    const NodeId id = object->id;
    give_memory(object, 1 << 20, 1000);
    ASSERT_TRUE(files.link(*object, root(), "b"));
    EXPECT_EQ(object->links, 2u);
    EXPECT_EQ(code_of(files.link(*object, root(), "b")), EEXIST);
    EXPECT_EQ(code_of(files.link(root(), root(), "c")), EPERM);
    ASSERT_TRUE(files.unlink(root(), "a"));
    EXPECT_EQ(use().unlinked_bytes, 0u);
    EXPECT_EQ(Tree::path_of(*object), "b");
    EXPECT_TRUE(rig.store.open(session, "b", Access::read, false));
    ASSERT_TRUE(files.unlink(root(), "b"));
    EXPECT_EQ(use().unlinked_bytes, 1000u);
    ASSERT_TRUE(rig.store.release(session, id, Access::read));
    EXPECT_EQ(files.find(id), nullptr);
    EXPECT_EQ(use().object_bytes, 0u);
    EXPECT_EQ(use().unlinked_bytes, 0u);
}

TEST_F(FilesTest, WhatTheKernelKnowsStaysUntilItForgets) {
    Object* object = make("a");
    const NodeId id = object->id;
    give_memory(object, 1 << 20, 1000);
    fuse::KnownNodes::hold(*object);
    fuse::KnownNodes::hold(*object);
    ASSERT_TRUE(files.unlink(root(), "a"));
    EXPECT_EQ(files.find(id), object);
    EXPECT_EQ(use().object_bytes, 0u);  // its memory is freed with its name
    known.forget(id, 1);
    EXPECT_EQ(files.find(id), object);
    known.forget(id, 5);
    EXPECT_EQ(files.find(id), nullptr);
}

TEST_F(FilesTest, WhatWasReplacedCanBeOpenedByWhoeverHadFoundIt) {
    Object* old = make("a");
    const NodeId id = old->id;
    give_memory(old, 1 << 20, 1000);
    fuse::KnownNodes::hold(*old);
    give_memory(make("b"), 1 << 20, 500);
    ASSERT_TRUE(files.rename(root(), "b", root(), "a", 0));
    EXPECT_NE(old->extent, nullptr);
    EXPECT_EQ(use().unlinked_bytes, 1000u);
    FileId file = *files.open(*old, Access::read, {1, 1, 7, {}}, 9);
    known.forget(id, 1);
    EXPECT_EQ(use().unlinked_bytes, 1000u);
    auto unlinked = rig.store.unlinked(session, false, 0, 10);
    ASSERT_EQ(unlinked.size(), 1u);
    EXPECT_EQ(unlinked[0].name, "a");
    EXPECT_EQ(unlinked[0].holders[0].who.pid, 7);
    files.close(file);
    EXPECT_EQ(files.find(id), nullptr);
    EXPECT_EQ(use().unlinked_bytes, 0u);
    EXPECT_EQ(use().object_bytes, 500u);
}

TEST_F(FilesTest, SessionsKeepTheMemoryThatWasReplaced) {
    Object* object = make("a");
    give_memory(object, 1 << 20, 1000);
    auto* before = object->extent;
    ASSERT_TRUE(rig.store.open(session, "a", Access::read, false));
    give_memory(object, 2 << 20, 1'500'000);
    EXPECT_NE(object->extent, before);
    EXPECT_EQ(rig.store.extents().count(), 2u);
    EXPECT_EQ(use().object_bytes, 1'501'000u);
    EXPECT_EQ(use().unlinked_bytes, 1000u);
    ASSERT_TRUE(rig.store.release(session, object->id, Access::read));
    EXPECT_EQ(rig.store.extents().count(), 1u);
    EXPECT_EQ(use().object_bytes, 1'500'000u);
    EXPECT_EQ(use().unlinked_bytes, 0u);
    files.replace_memory(*object, nullptr, 0);
    EXPECT_EQ(use().object_bytes, 0u);
    EXPECT_EQ(rig.store.extents().count(), 0u);
}

TEST_F(FilesTest, ASmallObjectLeavesItsSlabWhole) {
    auto made = rig.create(session, "small", 1000);
    ASSERT_TRUE(made);
    ASSERT_NE((*made)->extent->slab_group, nullptr);
    ASSERT_TRUE(rig.store.release(session, (*made)->id, Access::write));
    give_memory(*made, 1 << 20, 1000);
    EXPECT_EQ((*made)->extent->slab_group, nullptr);
    EXPECT_EQ(use().object_bytes, 1000u);
    auto next = rig.create(session, "next", 1000);  // its old place is free again
    ASSERT_TRUE(next);
    EXPECT_EQ((*next)->offset, 0u);
}

TEST_F(FilesTest, FilesWithoutANameGoWhenTheyAreClosed) {
    Object* object = *files.make_unnamed(root(), {1, 1, 0600});
    const NodeId id = object->id;
    FileId file = *files.open(*object, Access::write, {1, 1, 7, {}}, 1);
    give_memory(object, 1 << 20, 10);
    EXPECT_EQ(use().unlinked_bytes, 10u);
    ASSERT_TRUE(files.link(*object, root(), "named"));
    EXPECT_EQ(use().unlinked_bytes, 0u);
    files.close(file);
    EXPECT_EQ(files.find(id), object);
    auto holders = rig.store.holders(session, "named");
    ASSERT_TRUE(holders);
    EXPECT_TRUE(holders->empty());

    Object* other = *files.make_unnamed(root(), {1, 1, 0600});
    const NodeId other_id = other->id;
    files.close(*files.open(*other, Access::read, {1, 1, 7, {}}, 2));
    EXPECT_EQ(files.find(other_id), nullptr);
}

TEST_F(FilesTest, OpenFilesAreWritersAndHolders) {
    Object* object = make("a");
    FileId file = *files.open(*object, Access::write, {1, 1, 77, {}}, 3);
    EXPECT_EQ(code_of(files.seal(*object)), EBUSY);
    auto holders = rig.store.holders(session, "a");
    ASSERT_TRUE(holders);
    ASSERT_EQ(holders->size(), 1u);
    EXPECT_EQ(holders->front().who.pid, 77);
    files.close_all();
    EXPECT_EQ(files.opened(object->id, file), nullptr);
    EXPECT_TRUE(files.seal(*object));
}

TEST_F(FilesTest, DirectoriesCountWhatIsInThem) {
    auto* d = as_directory(*files.make_directory(root(), "d", {1, 1, 02755}));
    EXPECT_EQ(root().subdirectories, 1u);
    auto* below = as_directory(*files.make_directory(*d, "e", {1, 5, 0755}));
    EXPECT_EQ(below->gid, 1u);  // from the set-group-id directory
    EXPECT_NE(below->mode & 02000, 0);
    EXPECT_EQ(code_of(files.remove_directory(root(), "d")), ENOTEMPTY);
    ASSERT_TRUE(files.rename(*d, "e", root(), "e", 0));
    EXPECT_EQ(root().subdirectories, 2u);
    EXPECT_EQ(d->subdirectories, 0u);
    make("f");
    EXPECT_EQ(code_of(files.rename(root(), "f", root(), "d", 0)), EISDIR);
    EXPECT_EQ(code_of(files.rename(root(), "d", root(), "f", 0)), ENOTDIR);
    EXPECT_EQ(code_of(files.rename(root(), "f", root(), "d", RENAME_NOREPLACE)), EEXIST);
    ASSERT_TRUE(files.rename(root(), "f", root(), "d", RENAME_EXCHANGE));
    ASSERT_TRUE(files.rename(root(), "f", root(), "f", RENAME_EXCHANGE));  // once removed the name
    EXPECT_EQ(code_of(files.rename(root(), "f", root(), "d", RENAME_EXCHANGE | RENAME_NOREPLACE)), EINVAL);
    EXPECT_EQ(Files::child(root(), "d")->kind, NodeKind::object);
    EXPECT_EQ(Files::child(root(), "f")->kind, NodeKind::directory);
    EXPECT_EQ(code_of(files.make_object(root(), std::string(256, 'n'), {1, 1, 0})), ENAMETOOLONG);
}

TEST_F(FilesTest, TheLibraryFollowsLinksThatStayInside) {
    files.make_directory(root(), "d", {1, 1, 0755}).value();
    ASSERT_TRUE(rig.create(session, "d/object", 100));
    files.make_symlink(root(), "link", {1, 1, 0}, "d/object").value();
    files.make_symlink(root(), "folder", {1, 1, 0}, "./d/../d").value();
    files.make_symlink(root(), "loop", {1, 1, 0}, "loop").value();
    files.make_symlink(root(), "out", {1, 1, 0}, "/etc/passwd").value();
    files.make_symlink(root(), "up", {1, 1, 0}, "../outside").value();
    files.make_special(root(), "pipe", {1, 1, 0600}, S_IFIFO, 0).value();
    EXPECT_TRUE(rig.store.open(session, "link", Access::read, false));
    EXPECT_TRUE(rig.store.open(session, "folder/object", Access::read, false));
    EXPECT_TRUE(rig.create(session, "folder/new", 100));
    EXPECT_NE(Files::child(*as_directory(Files::child(root(), "d")), "new"), nullptr);
    EXPECT_EQ(code_of(rig.store.open(session, "loop", Access::read, false)), ELOOP);
    EXPECT_EQ(code_of(rig.store.open(session, "out", Access::read, false)), EXDEV);
    EXPECT_EQ(code_of(rig.store.open(session, "up", Access::read, false)), EXDEV);
    EXPECT_EQ(code_of(rig.store.open(session, "pipe", Access::read, false)), EINVAL);
    EXPECT_EQ((*rig.store.stat(session, "link"))->kind, NodeKind::symlink);
    ASSERT_TRUE(rig.store.unlink(session, "link"));
    EXPECT_TRUE(rig.store.open(session, "d/object", Access::read, false));
}

TEST_F(FilesTest, ADirectoryThatTheMountHasTouchedStays) {
    ASSERT_TRUE(rig.create(session, "made/a", 10));
    ASSERT_TRUE(rig.create(session, "touched/a", 10));
    make_in("touched", "b");
    ASSERT_TRUE(files.unlink(*as_directory(Files::child(root(), "touched")), "b"));
    ASSERT_TRUE(rig.store.unlink(session, "made/a"));
    ASSERT_TRUE(rig.store.unlink(session, "touched/a"));
    EXPECT_EQ(Files::child(root(), "made"), nullptr);
    ASSERT_NE(Files::child(root(), "touched"), nullptr);
    EXPECT_TRUE(rig.store.unlink(session, "touched"));  // empty, so the library can remove it
}

class Notices : public TreeObserver {
public:
    void entry_added(const Directory&, std::string_view name) override { text += "entry " + std::string(name) + ";"; }
    void entry_removed(const Directory&, std::string_view name, const Node&) override {
        text += "entry " + std::string(name) + ";";
    }
    void node_changed(const Node&) override { text += "node;"; }
    std::string text;
};

TEST_F(FilesTest, TheKernelIsToldWhatItDidNotDoItself) {
    Notices notices;
    files.set_observer(&notices);
    make("mine");
    EXPECT_EQ(notices.text, "");
    ASSERT_TRUE(rig.create(session, "theirs", 10));
    EXPECT_EQ(notices.text, "entry theirs;node;");
    notices.text.clear();
    ASSERT_TRUE(rig.store.seal(session, "theirs"));
    EXPECT_EQ(notices.text, "node;");
    notices.text.clear();
    ASSERT_TRUE(rig.store.unlink(session, "theirs"));
    EXPECT_EQ(notices.text, "entry theirs;node;");
    files.set_observer(nullptr);
}

}  // namespace
}  // namespace gshm::core::test
