// ACLs of objects and directories: who may do what, what is inherited, and which objects share memory.
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "base/limits.h"
#include "store/acl.h"
#include "store/files.h"
#include "store/shared.h"
#include "support/store_rig.h"

namespace gshm::core::test {
namespace {

using Change = Store::AclChange;
using Tag = AclTag;

constexpr uid_t kBob = 2;
constexpr gid_t kTeam = 50;

class AclRights : public ::testing::Test {
protected:
    int share(std::string_view name, AclEntries entries, AclKind kind = AclKind::access, Change how = Change::add) {
        return code_of(rig.store.change_acl(alice, name, kind, how, std::move(entries)));
    }
    int share_with_bob(std::string_view name, uint16_t rights = 4, AclKind kind = AclKind::access) {
        return share(name, {{Tag::user, rights, kBob}}, kind);
    }
    const Node* node(std::string_view name) { return rig.store.stat(root, name).value_or(nullptr); }
    bool opens(SessionId session, std::string_view name, Access access = Access::read) {
        auto opened = rig.store.open(session, name, access, false);
        if (!opened) return false;
        EXPECT_TRUE(rig.store.release(session, (*opened)->id, access));
        return true;
    }
    AclEntries acl(std::string_view name, AclKind kind = AclKind::access) {
        auto found = rig.store.acl(root, name, kind);
        EXPECT_TRUE(found);
        return found ? *found : AclEntries{};
    }

    StoreRig rig;
    SessionId root = rig.store.begin_session({0, 0, 1, {}});
    SessionId alice = rig.store.begin_session({1, 1, 2, {}});
    SessionId bob = rig.store.begin_session({kBob, kBob, 3, {}});
    SessionId carol = rig.store.begin_session({3, 3, 4, {kTeam}});
    SessionId dave = rig.store.begin_session({4, 4, 5, {}});
};

TEST_F(AclRights, AUserMayWhatItsEntrySays) {
    Object* made = *rig.create(alice, "x", 1000, 0600, kCreateKeep);
    EXPECT_FALSE(opens(bob, "x"));
    ASSERT_EQ(share_with_bob("x"), 0);
    EXPECT_EQ(made->mode, 0640) << "the mask";
    EXPECT_TRUE(opens(bob, "x"));
    EXPECT_FALSE(opens(bob, "x", Access::write));
    EXPECT_FALSE(opens(carol, "x"));
    EXPECT_EQ(code_of(rig.store.seal(bob, "x")), EACCES);
    EXPECT_EQ(code_of(rig.store.holders(carol, "x")), EACCES);
    EXPECT_TRUE(rig.store.holders(bob, "x"));
    EXPECT_TRUE(rig.store.open_id(bob, made->id, Access::read, false));
    EXPECT_EQ(code_of(rig.store.open_id(carol, made->id, Access::read, false)), ENOENT);
    EXPECT_NE(SharedStore(rig.store).open(bob, "x", false), nullptr);
    EXPECT_EQ(SharedStore(rig.store).open(carol, "x", false), nullptr);
    EXPECT_NE(SharedStore(rig.store).open_id(bob, made->id, false), nullptr);
    EXPECT_EQ(SharedStore(rig.store).open_id(carol, made->id, false), nullptr);

    ASSERT_EQ(share("x", {{Tag::group, 6, kTeam}}), 0);
    EXPECT_TRUE(opens(carol, "x", Access::write));
    EXPECT_TRUE(rig.store.set_attribute(carol, "x", "a", "b"));
    EXPECT_EQ(code_of(rig.store.set_attribute(bob, "x", "a", "b")), EACCES);
    EXPECT_FALSE(opens(dave, "x"));
    // Rights are the owner's to give.
    for (SessionId other : {bob, carol, dave}) {
        EXPECT_EQ(code_of(rig.store.change_acl(other, "x", AclKind::access, Change::add, {{Tag::user, 6, 4}})), EPERM);
    }
    EXPECT_TRUE(rig.store.change_acl(root, "x", AclKind::access, Change::remove, {{Tag::group, 0, kTeam}}));
    EXPECT_FALSE(opens(carol, "x"));
    EXPECT_TRUE(opens(bob, "x"));
}

TEST_F(AclRights, EndWithTheirEntry) {
    Object* made = *rig.create(alice, "x", 1000, 0640, kCreateKeep);
    ASSERT_EQ(share_with_bob("x", 6), 0);
    EXPECT_EQ(made->mode, 0660);
    auto held = rig.store.open(bob, "x", Access::read, false);
    ASSERT_TRUE(held);
    ASSERT_EQ(share("x", {{Tag::user, 0, kBob}}, AclKind::access, Change::remove), 0);
    EXPECT_FALSE(opens(bob, "x"));
    EXPECT_EQ(made->mode, 0640) << "as before";
    EXPECT_FALSE(made->acl);
    EXPECT_TRUE(rig.store.leased(bob, made->id, Access::read)) << "an open object stays open";
    // Removal of all of it.
    ASSERT_EQ(share_with_bob("x"), 0);
    ASSERT_EQ(share("x", {{Tag::group, 7, kTeam}}), 0);
    ASSERT_EQ(share("x", {}, AclKind::access, Change::replace), 0);
    EXPECT_FALSE(made->acl);
    EXPECT_EQ(made->mode, 0640);
    EXPECT_EQ(acl("x"), acl_of_mode(0640));
    // What nobody has is removed without a trace.
    EXPECT_EQ(share("x", {{Tag::user, 0, kBob}}, AclKind::access, Change::remove), 0);
    EXPECT_EQ(share("x", {{Tag::user, 0, kBob}}, AclKind::inherited, Change::remove), 0);
}

TEST_F(AclRights, OfDirectoriesDecideOnTheirEntries) {
    ASSERT_TRUE(rig.store.make(alice, {.name = "d", .mode = 0700, .flags = kCreateKeep}));
    ASSERT_TRUE(rig.create(alice, "d/x", 1000, 0644, kCreateKeep));
    uint64_t end = 0;
    EXPECT_FALSE(opens(bob, "d/x"));
    ASSERT_EQ(share_with_bob("d", 1), 0);
    EXPECT_TRUE(opens(bob, "d/x"));
    EXPECT_EQ(code_of(rig.store.list(bob, "d", 0, 10, &end)), EACCES);
    EXPECT_EQ(code_of(rig.create(bob, "d/y")), EACCES);
    EXPECT_EQ(code_of(rig.store.unlink(bob, "d/x")), EACCES);
    ASSERT_EQ(share_with_bob("d", 5), 0);
    EXPECT_TRUE(rig.store.list(bob, "d", 0, 10, &end));
    ASSERT_EQ(share_with_bob("d", 7), 0);
    EXPECT_TRUE(rig.create(bob, "d/y"));
    EXPECT_TRUE(rig.store.rename(bob, "d/y", "d/z", false));
    EXPECT_TRUE(rig.store.unlink(bob, "d/x"));
    EXPECT_EQ(code_of(rig.create(dave, "d/y")), EACCES);
    EXPECT_FALSE(opens(dave, "d/z"));
}

// A stranger cannot tell an object that was shared with another one from one that does not exist.
TEST_F(AclRights, ErrorsTellAStrangerNothing) {
    ASSERT_TRUE(rig.store.make(alice, {.name = "d", .mode = 0700, .flags = kCreateKeep}));
    Object* made = *rig.create(alice, "d/x", 1000, 0600, kCreateKeep);
    ASSERT_EQ(share_with_bob("d", 5), 0);
    ASSERT_EQ(share_with_bob("d/x"), 0);
    auto message = [](const auto& result) { return result ? std::string() : result.error().message; };
    const auto there = rig.store.acl(dave, "d/x", AclKind::access);
    const auto not_there = rig.store.acl(dave, "d/y", AclKind::access);
    EXPECT_EQ(code_of(there), EACCES);
    EXPECT_EQ(message(there), message(not_there));
    const auto changed = rig.store.change_acl(dave, "d/x", AclKind::access, Change::replace, {});
    const auto not_changed = rig.store.change_acl(dave, "d/y", AclKind::access, Change::replace, {});
    EXPECT_EQ(code_of(changed), EACCES);
    EXPECT_EQ(message(changed), message(not_changed));
    auto without_number = [](std::string text) {
        std::erase_if(text, [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; });
        return text;
    };
    EXPECT_EQ(without_number(message(rig.store.open_id(dave, made->id, Access::read, false))),
              without_number(message(rig.store.open_id(dave, 9'999'999, Access::read, false))));
}

TEST_F(AclRights, ADefaultAclIsInherited) {
    ASSERT_TRUE(rig.store.make(alice, {.name = "d", .mode = 0755, .flags = kCreateKeep}));
    ASSERT_EQ(share_with_bob("d", 5, AclKind::inherited), 0);
    CreateSpec spec{.name = "d/x", .size_bytes = 1000, .flags = kCreateKeep, .default_mode = true};
    Object* made = *rig.create(alice, spec);
    EXPECT_TRUE(made->acl);
    EXPECT_EQ(made->mode, 0640) << "private but for bob, as objects are by default";
    EXPECT_TRUE(opens(bob, "d/x"));
    EXPECT_FALSE(opens(carol, "d/x"));
    // Directories on the way pass it on, and can be searched.
    spec.name = "d/below/further/y";
    ASSERT_TRUE(rig.create(alice, spec));
    EXPECT_TRUE(opens(bob, "d/below/further/y"));
    EXPECT_FALSE(opens(carol, "d/below/further/y"));
    EXPECT_EQ(acl("d/below/further", AclKind::inherited), acl("d", AclKind::inherited));
    ASSERT_TRUE(rig.store.make(alice, {.name = "d/made", .flags = kCreateKeep}));
    EXPECT_EQ(acl("d/made", AclKind::inherited), acl("d", AclKind::inherited));
    EXPECT_EQ(node("d/made")->mode, 0751);
    // A mode limits what is inherited.
    ASSERT_TRUE(rig.create(alice, "d/private", 1000, 0600, kCreateKeep));
    EXPECT_FALSE(opens(bob, "d/private"));
    // What root makes for others is exact.
    ASSERT_TRUE(rig.create(
        root,
        {.name = "d/exact", .size_bytes = 9, .mode = 0644, .flags = kCreateOwner | kCreateKeep, .uid = 1, .gid = 1}));
    EXPECT_FALSE(node("d/exact")->acl);
    EXPECT_EQ(node("d/exact")->mode, 0644);
    ASSERT_TRUE(rig.store.make(alice, {.name = "d/link", .kind = NodeKind::symlink, .target = "x"}));
    EXPECT_FALSE(node("d/link")->acl);
    EXPECT_EQ(node("d/link")->mode, 0777);
    // Without it objects are private again.
    ASSERT_EQ(share("d", {{Tag::user, 0, kBob}}, AclKind::inherited, Change::remove), 0);
    EXPECT_TRUE(acl("d", AclKind::inherited).empty());
    spec.name = "d/after";
    EXPECT_EQ((*rig.create(alice, spec))->mode, 0600);
}

TEST_F(AclRights, GoWithTheNodeAndNotWithTheName) {
    ASSERT_TRUE(rig.store.make(alice, {.name = "d", .mode = 0755, .flags = kCreateKeep}));
    ASSERT_EQ(share_with_bob("d", 5, AclKind::inherited), 0);
    ASSERT_TRUE(rig.create(alice, "x", 1000, 0600, kCreateKeep));
    ASSERT_EQ(share("x", {{Tag::user, 4, 4}}), 0);
    ASSERT_TRUE(rig.store.rename(alice, "x", "d/x", false));
    EXPECT_TRUE(opens(dave, "d/x"));
    EXPECT_FALSE(opens(bob, "d/x"));
    ASSERT_TRUE(rig.store.add_name(alice, "d/x", "again"));
    EXPECT_TRUE(opens(dave, "again"));
    // A new object of the same name has its own.
    Object* fresh = *rig.create(alice, {.name = "again", .size_bytes = 10, .mode = 0600, .flags = kCreateUnnamed});
    ASSERT_TRUE(rig.store.give_name(alice, fresh->id, "again", true));
    EXPECT_FALSE(opens(dave, "again"));
    EXPECT_TRUE(opens(dave, "d/x"));
}

TEST_F(AclRights, FollowTheMode) {
    Object* made = *rig.create(alice, "x", 1000, 0600, kCreateKeep);
    ASSERT_EQ(share_with_bob("x", 6), 0);
    ASSERT_TRUE(rig.store.change(alice, "x", {kChangeMode, 0600, 0, 0}));
    EXPECT_TRUE(made->acl);
    EXPECT_FALSE(opens(bob, "x")) << "the mask";
    ASSERT_TRUE(rig.store.change(alice, "x", {kChangeMode, 0644, 0, 0}));
    EXPECT_TRUE(opens(bob, "x"));
    EXPECT_FALSE(opens(bob, "x", Access::write));
    EXPECT_TRUE(opens(dave, "x"));
    ASSERT_TRUE(rig.store.change(root, "x", {kChangeOwner, 0, 4, 4}));
    EXPECT_TRUE(made->acl);
    EXPECT_TRUE(opens(bob, "x"));
    EXPECT_FALSE(opens(bob, "x", Access::write));
    EXPECT_TRUE(opens(dave, "x", Access::write));
}

TEST_F(AclRights, BadOnesAreRefusedAndChangeNothing) {
    Object* made = *rig.create(alice, "x", 1000, 0600, kCreateKeep);
    ASSERT_TRUE(rig.store.make(alice, {.name = "link", .kind = NodeKind::symlink, .target = "x"}));
    ASSERT_EQ(share_with_bob("x"), 0);
    const AclEntries before = acl("x");
    EXPECT_EQ(share("x", {{Tag::user, 4, 7}, {Tag::user, 4, 7}}), EINVAL);
    EXPECT_EQ(share("x", {{Tag::user, 8, 7}}), EINVAL);
    EXPECT_EQ(share("x", {{Tag(5), 4, 7}}), EINVAL);
    EXPECT_EQ(share("x", {{Tag::user, 4, UINT32_MAX}}), EINVAL);
    EXPECT_EQ(share("x", {{Tag::mask, 4, 3}}), EINVAL);
    AclEntries many;
    for (uint32_t i = 0; i < limits::kAclEntries; ++i) many.push_back({Tag::user, 4, 100 + i});
    EXPECT_EQ(share("x", many), E2BIG) << "with those that are added";
    EXPECT_EQ(share("x", {{Tag::user, 4, 7}}, AclKind::inherited), EACCES);
    EXPECT_EQ(share("missing", {{Tag::user, 4, 7}}), ENOENT);
    EXPECT_EQ(acl("x"), before);
    EXPECT_EQ(made->mode, 0640);
    // A link is followed.
    EXPECT_EQ(share("link", {{Tag::user, 4, 4}}), 0);
    EXPECT_TRUE(opens(dave, "x"));
}

TEST_F(AclRights, CountInTheBudgetOfTheOwner) {
    Object* made = *rig.create(alice, "x", 1000, 0600, kCreateKeep);
    const uint32_t before = made->counted_bytes;
    ASSERT_EQ(share_with_bob("x"), 0);
    EXPECT_EQ(made->counted_bytes, before + made->acl->bytes());
    ASSERT_EQ(share("x", {}, AclKind::access, Change::replace), 0);
    EXPECT_EQ(made->counted_bytes, before);
}

// ---- memory that objects share ----

class AclSlabs : public AclRights {
protected:
    bool may_map(SessionId session, std::string_view name) {
        auto opened = rig.store.open(session, name, Access::read, false);
        if (!opened) return false;
        const bool may = rig.store.begin_mapping(session, *opened, Access::read).has_value();
        EXPECT_TRUE(rig.store.release(session, (*opened)->id, Access::read));
        return may;
    }
    Object* make(std::string_view name) {
        CreateSpec spec{.name = name, .size_bytes = 1000, .flags = kCreateKeep, .map = false, .default_mode = true};
        Object* made = *rig.create(alice, spec);
        EXPECT_TRUE(rig.store.release(alice, made->id, Access::write));
        return made;
    }
};

TEST_F(AclSlabs, HaveObjectsOfTheSameAclOnly) {
    ASSERT_TRUE(rig.store.make(alice, {.name = "bobs", .mode = 0755, .flags = kCreateKeep}));
    ASSERT_TRUE(rig.store.make(alice, {.name = "daves", .mode = 0755, .flags = kCreateKeep}));
    ASSERT_EQ(share_with_bob("bobs", 5, AclKind::inherited), 0);
    ASSERT_EQ(share("daves", {{Tag::user, 5, 4}}, AclKind::inherited), 0);
    const Object* a = make("bobs/a");
    const Object* b = make("bobs/b");
    const Object* c = make("daves/c");
    const Object* d = make("d");
    EXPECT_EQ(a->extent, b->extent);
    EXPECT_NE(a->extent, c->extent);
    EXPECT_NE(a->extent, d->extent);
    EXPECT_TRUE(may_map(bob, "bobs/a"));
    EXPECT_TRUE(may_map(dave, "daves/c"));
    EXPECT_FALSE(may_map(dave, "bobs/a"));
}

TEST_F(AclSlabs, AreKeptApartByDirectoriesThatAreMadeOnTheWay) {
    ASSERT_TRUE(rig.store.make(alice, {.name = "d", .mode = 0755, .flags = kCreateKeep}));
    // Others may read objects, but not search new directories.
    ASSERT_EQ(share("d", {{Tag::owner, 7, 0}, {Tag::user, 5, kBob}, {Tag::owning_group, 5, 0}, {Tag::other, 4, 0}},
                    AclKind::inherited, Change::replace),
              0);
    const Object* reached = make("d/x");
    const Object* hidden = make("d/below/y");
    ASSERT_EQ(reached->acl, hidden->acl);
    EXPECT_NE(reached->extent, hidden->extent);
    EXPECT_TRUE(may_map(dave, "d/x"));
    EXPECT_FALSE(opens(dave, "d/below/y"));
    EXPECT_TRUE(may_map(bob, "d/below/y"));
    EXPECT_EQ(make("d/below/z")->extent, hidden->extent) << "found by the same key as the first one";
}

TEST_F(AclSlabs, AreClosedWhenRightsChange) {
    Object* x = make("x");
    const Object* y = make("y");
    ASSERT_EQ(x->extent, y->extent);
    ASSERT_EQ(share_with_bob("x"), 0);
    EXPECT_TRUE(x->extent->closed);
    EXPECT_TRUE(opens(bob, "x"));
    EXPECT_FALSE(may_map(bob, "x")) << "y is in the same memory";
    EXPECT_TRUE(may_map(alice, "x"));
    // It may move, since no other session uses it.
    ASSERT_TRUE(rig.store.open(bob, "x", Access::read, false));
    EXPECT_TRUE(rig.store.leaves_closed_slab(bob, *x));
    EXPECT_FALSE(rig.store.leaves_closed_slab(root, *x)) << "root maps the closed one";
    ASSERT_TRUE(rig.store.open(alice, "x", Access::read, false));
    EXPECT_FALSE(rig.store.leaves_closed_slab(bob, *x)) << "alice would go on with the old bytes";
    ASSERT_TRUE(rig.store.seal(alice, "x"));
    EXPECT_TRUE(rig.store.leaves_closed_slab(bob, *x)) << "bytes that do not change";
}

TEST_F(AclSlabs, AreClosedWhenTheRightsOfADirectoryChange) {
    ASSERT_TRUE(rig.store.make(alice, {.name = "d", .mode = 0700, .flags = kCreateKeep}));
    ASSERT_TRUE(rig.store.make(alice, {.name = "e", .mode = 0700, .flags = kCreateKeep}));
    for (const char* name : {"d/x", "e/y"}) ASSERT_TRUE(rig.create(alice, name, 1000, 0644, kCreateKeep));
    const auto* x = static_cast<const Object*>(node("d/x"));
    const auto* y = static_cast<const Object*>(node("e/y"));
    ASSERT_EQ(x->extent, y->extent);
    ASSERT_EQ(share_with_bob("d", 1), 0);
    EXPECT_TRUE(x->extent->closed);
    EXPECT_TRUE(opens(bob, "d/x"));
    EXPECT_FALSE(may_map(bob, "d/x"));
    // A default ACL gives nobody access to what is there.
    ASSERT_TRUE(rig.store.make(alice, {.name = "f", .mode = 0700, .flags = kCreateKeep}));
    ASSERT_TRUE(rig.create(alice, "f/z", 1000, 0644, kCreateKeep));
    const auto* z = static_cast<const Object*>(node("f/z"));
    ASSERT_EQ(share_with_bob("f", 5, AclKind::inherited), 0);
    EXPECT_FALSE(z->extent->closed);
}

// ---- the mount's side ----

TEST_F(AclRights, TheMountSetsThemAsTheKernelDoes) {
    Files files(rig.store);
    Object* made = *rig.create(alice, "x", 1000, 0640, kCreateKeep);
    made->mode |= S_ISGID;
    const AclEntries entries = {
        {Tag::owner, 6, 0}, {Tag::user, 6, kBob}, {Tag::owning_group, 0, 0}, {Tag::mask, 4, 0}, {Tag::other, 0, 0}};
    ASSERT_TRUE(files.set_acl(*made, AclKind::access, entries, true));
    EXPECT_EQ(made->mode, 0640);
    EXPECT_TRUE(opens(bob, "x"));
    EXPECT_FALSE(opens(bob, "x", Access::write)) << "the mask";
    // Its removal keeps the mode.
    ASSERT_TRUE(files.set_acl(*made, AclKind::access, {}, false));
    EXPECT_FALSE(made->acl);
    EXPECT_EQ(made->mode, 0640);
    EXPECT_EQ(code_of(files.set_acl(*made, AclKind::inherited, entries, false)), EACCES);
    EXPECT_TRUE(files.set_acl(*made, AclKind::inherited, {}, false));
    // In a directory with a default ACL the umask has no effect.
    auto& top = *as_directory(files.find(Files::kRoot));
    Directory& directory = **files.make_directory(top, "d", {1, 1, 0777, false, 022});
    EXPECT_EQ(directory.mode, 0755);
    ASSERT_TRUE(files.set_acl(directory, AclKind::inherited, entries, false));
    Object* file = *files.make_object(directory, "f", {1, 1, 0666, false, 077});
    EXPECT_EQ(file->mode, 0640);
    EXPECT_TRUE(file->acl);
    EXPECT_TRUE((*files.make_special(directory, "p", {1, 1, 0666, false, 077}, S_IFIFO, 0))->acl);
    EXPECT_EQ((*files.make_unnamed(directory, {1, 1, 0600}))->mode, 0600);
    Node* link = *files.make_symlink(directory, "l", {1, 1, 0777}, "f");
    EXPECT_EQ(code_of(files.set_acl(*link, AclKind::access, entries, false)), EOPNOTSUPP);
}

}  // namespace
}  // namespace gshm::core::test
