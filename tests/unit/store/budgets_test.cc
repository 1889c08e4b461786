// What the store counts for users: names, attributes, leases, and descriptors of extents.
#include <gtest/gtest.h>

#include "base/limits.h"
#include "store/files.h"
#include "store/shared.h"
#include "support/store_rig.h"

namespace gshm::core::test {
namespace {

constexpr uid_t kUser = 1000;
constexpr uint64_t kMany = uint64_t{1} << 40;

class StoreBudgets : public ::testing::Test {
protected:
    uint64_t held(Resource kind, uid_t uid = kUser) { return rig.store.budgets().user(uid)->held(kind); }
    Status set(std::string_view name, size_t bytes) {
        return rig.store.set_attribute(session, name, "a", std::string(bytes, 'x'));
    }

    StoreRig rig;
    Files files{rig.store};
    SessionId root = rig.store.begin_session({0, 0, 1, {}});
    SessionId session = rig.store.begin_session({kUser, kUser, 2, {}});
    SessionId other = rig.store.begin_session({kUser + 1, kUser + 1, 3, {}});
};

TEST_F(StoreBudgets, NamesAreCountedForTheirOwner) {
    ASSERT_TRUE(rig.store.make(root, {.name = "all", .mode = 0777, .flags = kCreateKeep}));
    const uint64_t of_root = held(Resource::name_bytes, 0);
    ASSERT_TRUE(rig.create(session, "all/name", 1000, 0600, kCreateKeep));
    EXPECT_EQ(held(Resource::name_bytes), limits::kNodeBytes + 4);
    ASSERT_TRUE(set("all/name", 100));
    EXPECT_EQ(held(Resource::name_bytes), limits::kNodeBytes + 4 + 101);
    ASSERT_TRUE(set("all/name", 10));
    EXPECT_EQ(held(Resource::name_bytes), limits::kNodeBytes + 4 + 11);
    ASSERT_TRUE(rig.store.remove_attribute(session, "all/name", "a"));
    ASSERT_TRUE(rig.store.rename(session, "all/name", "all/long name", false));
    EXPECT_EQ(held(Resource::name_bytes), limits::kNodeBytes + 9);
    ASSERT_TRUE(rig.store.add_name(session, "all/long name", "all/b"));
    EXPECT_EQ(held(Resource::name_bytes), 2 * limits::kNodeBytes + 9);
    ASSERT_TRUE(rig.store.make(session, {.name = "all/l", .kind = NodeKind::symlink, .target = "target"}));
    EXPECT_EQ(held(Resource::name_bytes), 3 * limits::kNodeBytes + 9 + 7);
    EXPECT_EQ(held(Resource::name_bytes, 0), of_root);
    ASSERT_TRUE(rig.store.change(root, "all/long name", {kChangeOwner, 0, kUser + 1, 0}));
    EXPECT_EQ(held(Resource::name_bytes), limits::kNodeBytes + 7);
    EXPECT_EQ(held(Resource::name_bytes, kUser + 1), 2 * limits::kNodeBytes + 9);
    for (const char* name : {"all/long name", "all/b", "all/l"}) ASSERT_TRUE(rig.store.unlink(root, name));
    rig.store.end_session(session);
    EXPECT_EQ(held(Resource::name_bytes), 0u);
    EXPECT_EQ(held(Resource::name_bytes, kUser + 1), 0u);
}

TEST_F(StoreBudgets, NamesAndAttributesAreBounded) {
    rig.store.budgets().set_limits({kMany, kMany, 4 << 20}, 50);  // 1 MiB for one user
    ASSERT_TRUE(rig.store.make(root, {.name = "all", .mode = 0777, .flags = kCreateKeep}));
    ASSERT_TRUE(rig.create(session, "all/a", 1000, 0666, kCreateKeep));
    for (int i = 0; i < 15; ++i) {
        ASSERT_TRUE(rig.store.set_attribute(session, "all/a", fmt::format("a{}", i), std::string(65000, 'x')));
    }
    ASSERT_TRUE(rig.create(session, "all/b", 1000, 0666, kCreateKeep));
    EXPECT_TRUE(set("all/b", 60'000)) << "as much as there is room for";
    EXPECT_EQ(code_of(rig.store.set_attribute(session, "all/b", "b", std::string(60'000, 'x'))), EDQUOT);
    uint64_t made = 0;
    while (rig.create(session, fmt::format("all/{}", made), 1000, 0600, kCreateKeep)) ++made;
    EXPECT_GT(made, 10u);
    EXPECT_LT(made, 200u);
    EXPECT_EQ(code_of(rig.create(session, "all/next")), EDQUOT);
    EXPECT_EQ(code_of(rig.store.make(session, {.name = "all/next", .mode = 0755})), EDQUOT);
    EXPECT_EQ(code_of(rig.store.make(session, {.name = "all/n", .kind = NodeKind::symlink, .target = "t"})), EDQUOT);
    EXPECT_EQ(code_of(rig.store.add_name(session, "all/a", "all/next")), EDQUOT);
    Directory* all = as_directory(const_cast<Node*>(*rig.store.stat(root, "all")));
    EXPECT_EQ(code_of(files.make_object(*all, "next", {kUser, kUser, 0644})), EDQUOT) << "the mount";
    // Others, root, and removals.
    EXPECT_TRUE(rig.create(other, "all/other"));
    EXPECT_TRUE(rig.create(root, "all/root"));
    EXPECT_TRUE(rig.store.rename(session, "all/0", "all/renamed", false));
    EXPECT_TRUE(rig.store.unlink(session, "all/a"));
    rig.store.end_session(session);  // which has it open
    session = rig.store.begin_session({kUser, kUser, 2, {}});
    EXPECT_TRUE(rig.create(session, "all/next"));
}

TEST_F(StoreBudgets, AFullFolderTakesRemovalsOnly) {
    ASSERT_TRUE(rig.create(root, "a"));
    rig.store.budgets().set_folder_full(true);
    EXPECT_EQ(code_of(rig.create(root, "b")), ENOSPC);
    EXPECT_EQ(code_of(rig.store.set_attribute(root, "a", "n", "v")), ENOSPC);
    EXPECT_TRUE(rig.store.unlink(root, "a"));
    rig.store.budgets().set_folder_full(false);
    EXPECT_TRUE(rig.create(root, "b"));
}

TEST_F(StoreBudgets, LeasesAreBounded) {
    ASSERT_TRUE(rig.store.make(root, {.name = "all", .mode = 0777, .flags = kCreateKeep}));
    constexpr int kObjects = 3000;
    for (int i = 0; i < kObjects; ++i) {
        ASSERT_TRUE(rig.create(root, fmt::format("all/{}", i), 10, 0644, kCreateKeep));
    }
    rig.store.budgets().set_limits({kMany, 28 << 20, kMany}, 50);  // 7168, of which root has 3000
    auto open_all = [&](SessionId by) {
        int opened = 0;
        while (opened < kObjects && rig.store.open(by, fmt::format("all/{}", opened), Access::read, false)) ++opened;
        return opened;
    };
    const int opened = open_all(session);
    EXPECT_LE(opened, 2084);
    EXPECT_GT(opened, 1900);
    EXPECT_EQ(code_of(rig.store.open(session, "all/2999", Access::read, false)), EMFILE);
    EXPECT_EQ(SharedStore(rig.store).open(session, "all/2999", false), nullptr);
    const SessionId second = rig.store.begin_session({kUser, kUser, 2, {}});
    EXPECT_EQ(code_of(rig.create(second, "all/new")), EMFILE) << "all sessions of the user count";
    auto* object = rig.store.object((*rig.store.stat(root, "all/0"))->id);
    EXPECT_EQ(code_of(files.open(*object, Access::read, {kUser, kUser, 2, {}}, 1)), EMFILE) << "the mount";
    EXPECT_GT(open_all(other), 500);
    EXPECT_EQ(open_all(root), kObjects);
    for (int i = 0; i < 1000; ++i) {
        ASSERT_TRUE(rig.store.release(session, (*rig.store.stat(root, fmt::format("all/{}", i)))->id, Access::read));
    }
    EXPECT_TRUE(rig.create(second, "all/new"));
    EXPECT_NE(SharedStore(rig.store).open(second, "all/2999", false), nullptr);
    rig.store.end_session(session);
    rig.store.end_session(second);
    EXPECT_EQ(held(Resource::leases), 0u);
}

TEST_F(StoreBudgets, ExtentsTakeDescriptors) {
    rig.store.budgets().set_limits({256, kMany, kMany}, 50);  // 120 for one user
    ASSERT_TRUE(rig.store.make(root, {.name = "all", .mode = 0777, .flags = kCreateKeep}));
    int made = 0;
    while (rig.create(session, fmt::format("all/{}", made), 10, 0600, kCreateDedicated)) ++made;
    EXPECT_EQ(made, 60);
    EXPECT_EQ(code_of(rig.create(session, "all/next", 10, 0600, kCreateDedicated)), EMFILE);
    EXPECT_TRUE(rig.create(other, "all/other", 10, 0600, kCreateDedicated));
    EXPECT_TRUE(rig.create(root, "all/root", 10, 0600, kCreateDedicated));
    rig.store.end_session(session);
    EXPECT_EQ(held(Resource::descriptors), 0u);
}

}  // namespace
}  // namespace gshm::core::test
