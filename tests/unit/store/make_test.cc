#include <gtest/gtest.h>

#include "support/store_rig.h"

namespace gshm::core::test {
namespace {

class MakeTest : public ::testing::Test {
protected:
    const Directory* directory(std::string_view name) {
        auto node = rig.store.stat(root, name);
        return node ? as_directory(const_cast<Node*>(*node)) : nullptr;
    }

    StoreRig rig;
    SessionId root = rig.store.begin_session({0, 0, 1, {}});
    SessionId owner = rig.store.begin_session({1, 1, 2, {}});
    SessionId other = rig.store.begin_session({2, 2, 3, {}});
};

TEST_F(MakeTest, DirectoriesStayWithoutEntriesIfAskedTo) {
    ASSERT_TRUE(rig.store.make(owner, {.name = "kept", .mode = 0750, .flags = kCreateKeep}));
    ASSERT_TRUE(rig.store.make(owner, {.name = "passing"}));
    EXPECT_EQ(code_of(rig.store.make(owner, {.name = "kept"})), EEXIST);
    for (const char* name : {"kept/x", "passing/x"}) {
        ASSERT_TRUE(rig.create(owner, name));
        ASSERT_TRUE(rig.store.unlink(owner, name));
    }
    ASSERT_NE(directory("kept"), nullptr);
    EXPECT_EQ(directory("kept")->mode, 0750);
    EXPECT_EQ(directory("kept")->uid, 1u);
    EXPECT_EQ(directory("passing"), nullptr);
}

TEST_F(MakeTest, ADirectorysDeviceIsInherited) {
    ASSERT_TRUE(rig.store.make(owner, {.name = "second", .device = 1}));
    ASSERT_TRUE(rig.store.make(owner, {.name = "second/below"}));
    EXPECT_EQ(rig.store.inherited_device(owner, "second/below/x"), 1u);
    EXPECT_EQ(code_of(rig.store.make(owner, {.name = "third", .device = 2})), ENODEV);
}

TEST_F(MakeTest, SymbolicLinksAreFollowedAndRead) {
    ASSERT_TRUE(rig.create(owner, "a/x"));
    ASSERT_TRUE(rig.store.make(owner, {.name = "l", .kind = NodeKind::symlink, .target = "a/x"}));
    EXPECT_EQ(*rig.store.read_link(other, "l"), "a/x");
    EXPECT_EQ(code_of(rig.store.read_link(owner, "a/x")), EINVAL);
    EXPECT_TRUE(rig.store.open(owner, "l", Access::read, false));
    EXPECT_EQ(code_of(rig.store.make(owner, {.name = "m", .kind = NodeKind::symlink})), EINVAL);
    EXPECT_EQ(code_of(rig.store.make(owner, {.name = "m", .kind = NodeKind::special, .target = "x"})), EINVAL);
}

TEST_F(MakeTest, OnlyRootMakesThingsForOthers) {
    const CreateSpec spec{.name = "x", .size_bytes = 10, .mode = 0600, .flags = kCreateOwner, .uid = 1, .gid = 7};
    EXPECT_EQ(code_of(rig.create(other, spec)), EPERM);
    EXPECT_EQ(code_of(rig.store.make(other, {.name = "d", .flags = kCreateOwner, .uid = 1})), EPERM);
    Object* made = *rig.create(root, spec);
    EXPECT_EQ(made->uid, 1u);
    EXPECT_EQ(made->gid, 7u);
    EXPECT_EQ(made->flags & kCreateOwner, 0u);
    // In the extent of its owner's objects, and therefore mappable by the owner.
    EXPECT_TRUE(rig.store.begin_mapping(owner, made, Access::read));
    ASSERT_TRUE(rig.store.make(root, {.name = "d", .flags = kCreateOwner, .uid = 1, .gid = 7}));
    EXPECT_EQ(directory("d")->gid, 7u);
}

TEST_F(MakeTest, AnEmptyObjectHasNoMemory) {
    Object* made = *rig.create(owner, "e", 0, 0600, kCreateEmpty | kCreateKeep);
    EXPECT_EQ(made->extent, nullptr);
    EXPECT_EQ(made->flags, uint32_t{kCreateKeep | kCreateDedicated});
    EXPECT_EQ(code_of(rig.create(owner, "f", 1, 0600, kCreateEmpty)), EINVAL);
    EXPECT_EQ(code_of(rig.create(owner, "f", 0)), EINVAL);
    EXPECT_TRUE(rig.store.open(owner, "e", Access::read, false));
    EXPECT_TRUE(rig.store.unlink(owner, "e"));
}

TEST_F(MakeTest, FurtherNamesAreOfEqualStanding) {
    Object* made = *rig.create(owner, "a", 1000, 0644);
    EXPECT_EQ(code_of(rig.store.add_name(other, "a", "b")), EPERM);
    ASSERT_TRUE(rig.store.add_name(owner, "a", "new/b"));
    EXPECT_EQ(code_of(rig.store.add_name(owner, "a", "new/b")), EEXIST);
    EXPECT_EQ(code_of(rig.store.add_name(owner, "new", "c")), EPERM);
    ASSERT_TRUE(rig.store.unlink(owner, "a"));
    EXPECT_EQ(*rig.store.open(other, "new/b", Access::read, false), made);
    ASSERT_TRUE(rig.create(owner, "writable", 1000, 0666));
    EXPECT_TRUE(rig.store.add_name(other, "writable", "c"));
}

TEST_F(MakeTest, RightsAreTheOwnersToChange) {
    Object* made = *rig.create(owner, "a", 1000, 0600);
    EXPECT_EQ(code_of(rig.store.change(other, "a", {kChangeMode, 0666, 0, 0})), EPERM);
    EXPECT_EQ(code_of(rig.store.change(owner, "a", {kChangeOwner, 0, 2, 2})), EPERM);
    EXPECT_EQ(code_of(rig.store.change(owner, "a", {1u << 31, 0, 0, 0})), EINVAL);
    EXPECT_EQ(code_of(rig.store.change(owner, "a", {kChangeMode, 010000, 0, 0})), EINVAL);
    EXPECT_EQ(made->mode, 0600);
    ASSERT_TRUE(rig.store.change(owner, "a", {kChangeMode, 0644, 0, 0}));
    EXPECT_TRUE(rig.store.open(other, "a", Access::read, false));
    // It shares its extent with objects that the other user may not open.
    EXPECT_EQ(code_of(rig.store.begin_mapping(other, made, Access::read)), EACCES);
    ASSERT_TRUE(rig.store.change(root, "a", {kChangeOwner, 0, 2, 2}));
    EXPECT_EQ(made->uid, 2u);
}

TEST_F(MakeTest, WhatIsToBeKeptOutlivesItsSession) {
    ASSERT_TRUE(rig.create(owner, "kept"));
    ASSERT_TRUE(rig.create(owner, "lost"));
    EXPECT_EQ(code_of(rig.store.change(other, "kept", {kChangeKeep, 0, 0, 0})), EPERM);
    ASSERT_TRUE(rig.store.change(owner, "kept", {kChangeKeep, 0, 0, 0}));
    rig.store.end_session(owner);
    EXPECT_TRUE(rig.store.stat(root, "kept"));
    EXPECT_EQ(code_of(rig.store.stat(root, "lost")), ENOENT);
}

}  // namespace
}  // namespace gshm::core::test
