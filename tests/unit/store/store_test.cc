#include <gtest/gtest.h>

#include "base/limits.h"
#include "support/store_rig.h"

namespace gshm::core::test {
namespace {

class StoreTest : public ::testing::Test {
protected:
    Credentials alice{1000, 1000, 10, {}};
    Credentials bob{1001, 1001, 11, {2000}};
    StoreRig rig;
    Store& store = rig.store;
    SessionId a = store.begin_session(alice);
    SessionId b = store.begin_session(bob);
    SessionId root = store.begin_session({0, 0, 12, {}});
};

TEST_F(StoreTest, CreateOpenReadBack) {
    Object* made = *rig.create(a, "models/w0", 4096, 0644);
    EXPECT_EQ(made->size_bytes, 4096u);
    EXPECT_EQ(made->uid, 1000u);
    Object* opened = *store.open(b, "models/w0", Access::read, false);
    EXPECT_EQ(opened, made);
    EXPECT_EQ(made->leases, 2u);
    EXPECT_EQ(code_of(store.open(b, "models/w0", Access::write, false)), EACCES);
    EXPECT_EQ(code_of(store.open(b, "models/w1", Access::read, false)), ENOENT);
    EXPECT_EQ(code_of(store.open(b, "models", Access::read, false)), EISDIR);
    EXPECT_EQ(code_of(store.open(b, "models/w0/x", Access::read, false)), ENOTDIR);
}

TEST_F(StoreTest, RefusesBadCreations) {
    EXPECT_EQ(code_of(rig.create(a, "x", 0)), EINVAL);
    EXPECT_EQ(code_of(rig.create(a, "x", uint64_t{2} << 30)), ENOSPC);
    EXPECT_EQ(code_of(rig.create(a, "../x")), EINVAL);
    EXPECT_EQ(code_of(rig.create(a, "x", 10, 01777)), EINVAL);
    EXPECT_EQ(code_of(store.create(a, {"x", 10, 7, 0600, 0, nullptr, nullptr})), ENODEV);
    EXPECT_EQ(code_of(store.create(a, {"x", 10, 1, 0600, kCreateCompressible, nullptr, nullptr})), EOPNOTSUPP);
    ASSERT_TRUE(rig.create(a, "x"));
    EXPECT_EQ(code_of(rig.create(b, "x")), EEXIST);
    EXPECT_EQ(code_of(rig.create(b, "x/y")), ENOTDIR);
    EXPECT_EQ(store.object_count(), 1u);
}

TEST_F(StoreTest, DefaultModeIsPrivate) {
    ASSERT_TRUE(rig.create(a, "secret"));
    EXPECT_EQ(code_of(store.open(b, "secret", Access::read, false)), EACCES);
    EXPECT_TRUE(store.open(root, "secret", Access::read, false));
    EXPECT_EQ(code_of(store.seal(b, "secret")), EACCES);
    EXPECT_EQ(code_of(store.set_attribute(b, "secret", "k", "v")), EACCES);
    EXPECT_EQ(code_of(store.get_attribute(b, "secret", "k")), EACCES);
    EXPECT_EQ(code_of(store.holders(b, "secret")), EACCES);
}

TEST_F(StoreTest, RootIsSticky) {
    ASSERT_TRUE(rig.create(a, "mine", 10, 0666));
    EXPECT_EQ(code_of(store.unlink(b, "mine")), EPERM);
    EXPECT_EQ(code_of(store.rename(b, "mine", "yours", false)), EPERM);
    ASSERT_TRUE(rig.create(b, "other"));
    EXPECT_EQ(code_of(store.rename(b, "other", "mine", true)), EPERM);
    EXPECT_TRUE(store.unlink(a, "mine"));
}

TEST_F(StoreTest, DirectoriesKeepPeopleOut) {
    ASSERT_TRUE(rig.create(a, "dir/open", 10, 0644));
    EXPECT_EQ(code_of(rig.create(b, "dir/new")), EACCES);
    EXPECT_EQ(code_of(store.unlink(b, "dir/open")), EACCES);
    const Node* dir = *store.stat(a, "dir");
    const_cast<Node*>(dir)->mode = 0700;
    EXPECT_EQ(code_of(store.open(b, "dir/open", Access::read, false)), EACCES);
    EXPECT_EQ(code_of(store.stat(b, "dir/open")), EACCES);
    auto id = (*store.stat(a, "dir/open"))->id;
    EXPECT_EQ(code_of(store.open_id(b, id, Access::read, false)), ENOENT);
    uint64_t cookie = 0;
    EXPECT_EQ(code_of(store.list(b, "dir", 0, 10, &cookie)), EACCES);
}

TEST_F(StoreTest, GroupsCount) {
    Object* object = *rig.create(a, "shared", 10, 0640);
    EXPECT_EQ(code_of(store.open(b, "shared", Access::read, false)), EACCES);
    object->gid = 2000;  // a supplementary group of bob
    EXPECT_TRUE(store.open(b, "shared", Access::read, false));
    EXPECT_EQ(code_of(store.open(b, "shared", Access::write, false)), EACCES);
}

TEST_F(StoreTest, SealedIsImmutable) {
    Object* object = *rig.create(a, "x", 10, 0666);
    EXPECT_EQ(code_of(store.open(b, "x", Access::read, true)), EBUSY);
    ASSERT_TRUE(store.open(b, "x", Access::write, false));
    EXPECT_EQ(code_of(store.seal_id(a, object->id)), EBUSY);
    ASSERT_TRUE(store.release(b, object->id, Access::write));
    ASSERT_TRUE(store.seal_id(a, object->id));
    EXPECT_TRUE(store.seal_id(a, object->id));
    EXPECT_EQ(code_of(store.open(b, "x", Access::write, false)), EPERM);
    EXPECT_EQ(code_of(store.leased(a, object->id, Access::write)), EPERM);
    EXPECT_TRUE(store.open(b, "x", Access::read, true));
}

TEST_F(StoreTest, SessionEndReclaimsWhatIsUnsealed) {
    ASSERT_TRUE(rig.create(a, "d/unsealed"));
    ASSERT_TRUE(rig.create(a, "d/kept", 10, 0600, kCreateKeep));
    Object* sealed = *rig.create(a, "d/sealed", 10, 0644);
    ASSERT_TRUE(store.seal_id(a, sealed->id));
    Object* held = *rig.create(a, "d/held", 10, 0644);
    ASSERT_TRUE(store.open(b, "d/held", Access::read, false));
    store.end_session(a);
    EXPECT_EQ(code_of(store.stat(root, "d/unsealed")), ENOENT);
    EXPECT_EQ(code_of(store.stat(root, "d/held")), ENOENT);
    EXPECT_TRUE(store.stat(root, "d/kept"));
    EXPECT_TRUE(store.stat(root, "d/sealed"));
    EXPECT_EQ(store.object_count(), 3u);  // kept, sealed, and the object that bob still holds
    EXPECT_EQ(store.use(0).unlinked_bytes, held->size_bytes);
    store.end_session(b);
    EXPECT_EQ(store.object_count(), 2u);
    EXPECT_EQ(store.use(0).unlinked_bytes, 0u);
    EXPECT_EQ(store.use(0).object_bytes, 20u);
}

TEST_F(StoreTest, UnlinkedLivesUntilItsLastLease) {
    Object* object = *rig.create(a, "x", 5000, 0644);
    ASSERT_TRUE(store.open(b, "x", Access::read, false));
    ASSERT_TRUE(store.unlink(a, "x"));
    EXPECT_EQ(code_of(store.stat(a, "x")), ENOENT);
    EXPECT_EQ(code_of(store.open_id(b, object->id, Access::read, false)), ENOENT);
    EXPECT_EQ(store.use(0).unlinked_bytes, 5000u);
    ASSERT_TRUE(store.release(a, object->id, Access::write));
    EXPECT_EQ(store.object_count(), 1u);
    ASSERT_TRUE(store.release(b, object->id, Access::read));
    EXPECT_EQ(store.object_count(), 0u);
    EXPECT_EQ(store.use(0).object_bytes, 0u);
}

TEST_F(StoreTest, ReleaseNeedsALeaseOfThatKind) {
    Object* object = *rig.create(a, "x", 10, 0644);
    uint64_t id = object->id;
    EXPECT_EQ(code_of(store.release(a, id, Access::read)), ENOENT);
    EXPECT_EQ(code_of(store.release(b, id, Access::read)), ENOENT);
    EXPECT_EQ(code_of(store.release(a, 999, Access::write)), ENOENT);
    EXPECT_TRUE(store.release(a, id, Access::write));
    EXPECT_EQ(code_of(store.release(a, id, Access::write)), ENOENT);
    EXPECT_EQ(code_of(store.leased(a, id, Access::read)), ENOENT);
}

TEST_F(StoreTest, PinnedBytesStayWhenAllLetGo) {
    Object* object = *rig.create(a, "x");
    store.pin(object, Access::write);
    EXPECT_EQ(code_of(store.seal_id(a, object->id)), EBUSY);
    store.end_session(a);
    EXPECT_EQ(store.object_count(), 1u);
    store.unpin(object, Access::write);
    EXPECT_EQ(store.object_count(), 0u);
}

TEST_F(StoreTest, RenameReplacesAtomically) {
    Object* old = *rig.create(a, "d/current", 10, 0644);
    ASSERT_TRUE(store.open(b, "d/current", Access::read, false));
    Object* next = *rig.create(a, "d/next", 20, 0644);
    EXPECT_EQ(code_of(store.rename(a, "d/next", "d/current", false)), EEXIST);
    ASSERT_TRUE(store.rename(a, "d/next", "d/current", true));
    EXPECT_EQ((*store.stat(b, "d/current"))->id, next->id);
    EXPECT_EQ(code_of(store.stat(b, "d/next")), ENOENT);
    EXPECT_TRUE(store.leased(b, old->id, Access::read));
    EXPECT_TRUE(store.rename(a, "d/current", "d/current", true));
    EXPECT_TRUE(store.rename(a, "d/current", "elsewhere/deep/x", false));
    EXPECT_EQ(code_of(store.stat(b, "d")), ENOENT);  // implicit, and empty now
}

TEST_F(StoreTest, ReplaceSealsAndNamesInOneStep) {
    Object* old = *rig.create(a, "d/x", 10, 0644, kCreateKeep);
    ASSERT_TRUE(store.open(b, "d/x", Access::read, false));
    Object* made = *rig.create(a, "d/x", 20, 0644, kCreateUnnamed);
    EXPECT_EQ(store.use(0).unlinked_bytes, 20u);
    EXPECT_EQ(made->flags & kCreateUnnamed, 0u);
    EXPECT_EQ(code_of(store.open_id(a, made->id, Access::read, false)), ENOENT);
    EXPECT_EQ(code_of(store.give_name(b, made->id, "d/x", true)), EACCES);
    EXPECT_EQ(code_of(store.give_name(a, made->id, "d/x", false)), EEXIST);
    EXPECT_EQ(code_of(store.give_name(a, made->id, "d", false)), EEXIST);
    EXPECT_EQ(made->state, ObjectState::open);
    ASSERT_TRUE(store.give_name(a, made->id, "d/x", true));
    EXPECT_EQ(*store.stat(root, "d/x"), made);
    EXPECT_EQ(made->state, ObjectState::sealed);
    EXPECT_EQ(store.use(0).unlinked_bytes, 10u);
    auto unlinked = store.unlinked(root, true, 0, 10);
    ASSERT_EQ(unlinked.size(), 1u);
    EXPECT_EQ(unlinked[0].object, old);
    EXPECT_EQ(unlinked[0].name, "d/x");
    EXPECT_EQ(unlinked[0].holders.size(), 2u);
    EXPECT_EQ(store.unlinked(b, false, 0, 10)[0].name, "");
    EXPECT_EQ(store.unlinked(b, false, 0, 10)[0].holders.size(), 1u);
    EXPECT_TRUE(store.unlinked(root, true, old->id, 10).empty());
    ASSERT_TRUE(store.release(a, old->id, Access::write));
    ASSERT_TRUE(store.release(b, old->id, Access::read));
    EXPECT_EQ(store.use(0).unlinked_bytes, 0u);
    EXPECT_EQ(store.use(0).object_bytes, 20u);
}

TEST_F(StoreTest, AnUnnamedObjectGoesWithItsSession) {
    SessionId writer = store.begin_session(alice);
    ASSERT_TRUE(rig.create(writer, "x", 20, 0600, kCreateUnnamed));
    ASSERT_TRUE(rig.create(writer, "x", 2 << 20, 0600, kCreateUnnamed));
    EXPECT_EQ(store.object_count(), 2u);
    store.end_session(writer);
    EXPECT_EQ(store.object_count(), 0u);
    EXPECT_EQ(store.use(0).unlinked_bytes + store.use(0).object_bytes, 0u);
    EXPECT_EQ(code_of(rig.create(a, "x", 20, 0600, kCreateUnnamed | kCreateKeep)), EINVAL);
}

TEST_F(StoreTest, RenameOfDirectories) {
    ASSERT_TRUE(rig.create(a, "d/e/x"));
    EXPECT_EQ(code_of(store.rename(a, "d", "d/e/f", false)), EINVAL);
    ASSERT_TRUE(rig.create(a, "file"));
    EXPECT_EQ(code_of(store.rename(a, "d", "file", true)), ENOTDIR);
    EXPECT_EQ(code_of(store.rename(a, "file", "d", true)), EISDIR);
    ASSERT_TRUE(store.rename(a, "d/e", "moved", false));
    EXPECT_TRUE(store.stat(a, "moved/x"));
    EXPECT_EQ(code_of(store.stat(a, "d")), ENOENT);
}

TEST_F(StoreTest, ImplicitDirectoriesGoWithTheirLastEntry) {
    ASSERT_TRUE(rig.create(a, "p/q/r/x"));
    EXPECT_EQ(code_of(store.unlink(a, "p/q")), EISDIR);
    ASSERT_TRUE(store.unlink(a, "p/q/r/x"));
    EXPECT_EQ(code_of(store.stat(a, "p")), ENOENT);
}

TEST_F(StoreTest, ListGoesOnAtACookieWhileEntriesComeAndGo) {
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(rig.create(a, "l/" + std::to_string(i)));
    uint64_t cookie = 0;
    auto first = *store.list(a, "l", 0, 4, &cookie);
    ASSERT_EQ(first.size(), 4u);
    ASSERT_NE(cookie, 0u);
    ASSERT_TRUE(store.unlink(a, "l/3"));  // the entry of the cookie
    ASSERT_TRUE(store.unlink(a, "l/4"));
    ASSERT_TRUE(rig.create(a, "l/new"));
    std::vector<std::string> rest;
    auto second = *store.list(a, "l", cookie, 100, &cookie);
    for (const auto& entry : second) rest.emplace_back(entry->name);
    EXPECT_EQ(cookie, 0u);
    EXPECT_EQ(rest, (std::vector<std::string>{"5", "6", "7", "8", "9", "new"}));
}

TEST_F(StoreTest, Attributes) {
    Attributes given{{"dtype", "bf16"}, {"shape", std::string("\0\1", 2)}};
    ASSERT_TRUE(rig.create(a, CreateSpec{"t", 10, 0, 0644, 0, &given, nullptr}));
    EXPECT_EQ(*store.get_attribute(b, "t", "dtype"), "bf16");
    EXPECT_EQ(store.get_attribute(b, "t", "shape")->size(), 2u);
    EXPECT_EQ(code_of(store.get_attribute(b, "t", "none")), ENODATA);
    EXPECT_TRUE(store.set_attribute(a, "t", "dtype", "f32"));
    EXPECT_EQ(*store.get_attribute(b, "t", "dtype"), "f32");
    EXPECT_TRUE(store.remove_attribute(a, "t", "dtype"));
    EXPECT_EQ(code_of(store.remove_attribute(a, "t", "dtype")), ENODATA);
    EXPECT_EQ(code_of(store.set_attribute(a, "t", "", "v")), EINVAL);
    EXPECT_EQ(code_of(store.set_attribute(a, "t", std::string(251, 'k'), "v")), ERANGE);
    EXPECT_TRUE(store.set_attribute(a, "t", std::string(250, 'k'), "v"));
    EXPECT_TRUE(store.remove_attribute(a, "t", std::string(250, 'k')));
    const std::string big(limits::kAttributeValueBytes, 'v');
    EXPECT_EQ(code_of(store.set_attribute(a, "t", "0", big + "v")), E2BIG);
    for (size_t i = 1; i < limits::kAttributesBytes / big.size(); ++i) {
        ASSERT_TRUE(store.set_attribute(a, "t", std::to_string(i), big)) << i;
    }
    EXPECT_EQ(code_of(store.set_attribute(a, "t", "more", big)), ENOSPC);  // its name exceeds the limit
    EXPECT_TRUE(store.set_attribute(a, "t", "1", "small again"));
    EXPECT_TRUE(store.set_attribute(a, "t", "more", big));
}

TEST_F(StoreTest, DirectoriesHaveAttributes) {
    ASSERT_TRUE(rig.create(a, "d/t", 10, 0644));
    EXPECT_TRUE(store.set_attribute(a, "d", "kind", "model"));
    EXPECT_EQ(*store.get_attribute(b, "d", "kind"), "model");
    EXPECT_EQ(code_of(store.set_attribute(b, "d", "kind", "mine")), EACCES);
    EXPECT_EQ(code_of(store.set_attribute(b, "", "kind", "mine")), EPERM);  // the sticky root is its owner's
    EXPECT_TRUE(store.remove_attribute(a, "d", "kind"));
    EXPECT_EQ(code_of(store.get_attribute(b, "d", "kind")), ENODATA);
}

TEST_F(StoreTest, SlabsAreSharedOnlyByEqualRights) {
    ExtentId mine = (*rig.create(a, "s/1", 100, 0644))->extent->id;
    EXPECT_EQ((*rig.create(a, "s/2", 100, 0644))->extent->id, mine);
    EXPECT_EQ((*rig.create(a, "t/3", 100, 0644))->extent->id, mine);
    EXPECT_NE((*rig.create(a, "s/private", 100, 0600))->extent->id, mine);
    EXPECT_NE((*rig.create(b, "bobs", 100, 0644))->extent->id, mine);
    EXPECT_NE((*rig.create(a, CreateSpec{"dev", 100, 1, 0644, 0, nullptr, nullptr}))->extent->id, mine);
    EXPECT_NE((*rig.create(a, "s/compressible", 100, 0644, kCreateCompressible))->extent->id, mine);
    EXPECT_NE((*rig.create(a, "s/dedicated", 100, 0644, kCreateDedicated))->extent->id, mine);
    // A user who opens s/1 can reach all of its extent. Objects behind a closed directory must not be in it.
    const_cast<Node*>(*store.stat(a, "t"))->mode = 0700;
    EXPECT_NE((*rig.create(a, "t/behind", 100, 0644))->extent->id, mine);
}

TEST_F(StoreTest, LargeObjectsHaveTheirOwnExtent) {
    Object* large = *rig.create(a, "large", limits::kSmallObjectBytes + 1);
    EXPECT_EQ(large->offset, 0u);
    EXPECT_EQ(large->extent->size_bytes % rig.first.info().granularity_bytes, 0u);
    EXPECT_NE((*rig.create(a, "large2", limits::kSmallObjectBytes + 1))->extent, large->extent);
    EXPECT_EQ(rig.first.live(), 2u);
    ASSERT_TRUE(store.release(a, large->id, Access::write));
    ASSERT_TRUE(store.unlink(a, "large"));
    EXPECT_EQ(rig.first.live(), 1u);
}

TEST_F(StoreTest, ReusedMemoryIsZero) {
    for (int round = 0; round < 3; ++round) {
        Object* object = *rig.create(a, "x", 3000);
        std::vector<std::byte> bytes(object->size_bytes);
        ASSERT_TRUE(object->extent->memory->copy_out(object->offset, bytes));
        for (auto byte : bytes) ASSERT_EQ(byte, std::byte{0});
        ASSERT_TRUE(object->extent->memory->fill(object->offset, object->size_bytes, 0xEE));
        ASSERT_TRUE(store.release(a, object->id, Access::write));
        ASSERT_TRUE(store.unlink(a, "x"));
    }
    EXPECT_EQ(rig.first.live(), 1u);  // the one slab that is kept
    store.extents().trim(0);
    EXPECT_EQ(rig.first.live(), 0u);
    EXPECT_EQ(store.extents().count(), 0u);
}

TEST_F(StoreTest, HoldersNameEachSession) {
    ASSERT_TRUE(rig.create(a, "x", 10, 0644));
    ASSERT_TRUE(store.open(b, "x", Access::read, false));
    ASSERT_TRUE(store.open(b, "x", Access::read, false));
    auto holders = *store.holders(a, "x");
    ASSERT_EQ(holders.size(), 2u);
    for (const auto& holder : holders) {
        EXPECT_EQ(holder.leases, holder.who.pid == 11 ? 2u : 1u);
        EXPECT_EQ(holder.writable, holder.who.pid == 10);
    }
}

}  // namespace
}  // namespace gshm::core::test
