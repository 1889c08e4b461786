// Accounts: bytes and objects by device and user.
#include <gtest/gtest.h>

#include "support/recount.h"
#include "support/store_rig.h"

namespace gshm::core::test {
namespace {

struct AccountsTest : ::testing::Test {
    StoreRig rig;
    Store& store = rig.store;
    SessionId root = store.begin_session({0, 0, 1, {}});
    SessionId ada = store.begin_session({1000, 1000, 2, {}});
    SessionId ben = store.begin_session({1001, 1001, 3, {}});

    Account of(uid_t uid, DeviceIndex device = 0) { return store.accounts().of(device, uid); }
};

TEST_F(AccountsTest, AreApartByUserAndDevice) {
    ASSERT_TRUE(rig.create(ada, "a", 1000));
    ASSERT_TRUE(rig.create(ada, "b", 500));
    ASSERT_TRUE(rig.create(ben, CreateSpec{"c", 70, 1, 0600, 0, nullptr, nullptr}));
    EXPECT_EQ(of(1000), (Account{1500, 0, 2, 0}));
    EXPECT_EQ(of(1001), Account{});
    EXPECT_EQ(of(1001, 1), (Account{70, 0, 1, 0}));
    EXPECT_EQ(store.accounts().of(0), (Account{1500, 0, 2, 0}));
    expect_true_accounts(store);
}

TEST_F(AccountsTest, MoveWithTheOwner) {
    ASSERT_TRUE(rig.create(ada, "a", 1000));
    ASSERT_TRUE(store.change(root, "a", {kChangeOwner, 0, 1001, 1001}));
    EXPECT_EQ(of(1000), Account{});
    EXPECT_EQ(of(1001), (Account{1000, 0, 1, 0}));
    EXPECT_FALSE(store.accounts().users(0).contains(1000));
    expect_true_accounts(store);
}

TEST_F(AccountsTest, MoveWithTheOwnerOfAFile) {
    Files files(store);
    auto* root_directory = static_cast<Directory*>(files.find(Files::kRoot));
    Object* object = *files.make_object(*root_directory, "f", {1000, 1000, 0644});
    std::shared_ptr<Extent> memory = *rig.first.allocate(1 << 16, {});
    files.replace_memory(*object, std::move(memory), 1234);
    EXPECT_EQ(of(1000), (Account{1234, 0, 1, 0}));
    files.change(*object, {.mode = {}, .uid = 1001, .gid = {}, .accessed_ns = {}, .modified_ns = {}});
    EXPECT_EQ(of(1000), Account{});
    EXPECT_EQ(of(1001), (Account{1234, 0, 1, 0}));
    expect_true_accounts(store);
}

TEST_F(AccountsTest, TellWhatNoNameLeadsTo) {
    Object* object = *rig.create(ada, "a", 1000);
    ASSERT_TRUE(store.unlink(ada, "a"));
    EXPECT_EQ(of(1000), (Account{1000, 1000, 1, 1}));
    ASSERT_TRUE(store.release(ada, object->id, Access::write));
    EXPECT_EQ(of(1000), Account{});
    expect_true_accounts(store);
}

TEST_F(AccountsTest, KnowMemoryThatAnObjectHadBefore) {
    Object* object = *rig.create(ada, "a", 1000, 0600, kCreateKeep);
    std::shared_ptr<Extent> memory = *rig.first.allocate(1 << 16, {});
    Files(store).replace_memory(*object, std::move(memory), 3000);
    EXPECT_EQ(of(1000), (Account{4000, 1000, 1, 0}));
    expect_true_accounts(store);
    ASSERT_TRUE(store.change(root, "a", {kChangeOwner, 0, 1001, 1001}));
    EXPECT_EQ(of(1001), (Account{4000, 1000, 1, 0}));
    EXPECT_EQ(of(1000), Account{});
    ASSERT_TRUE(store.release(ada, object->id, Access::write));
    EXPECT_EQ(of(1001), (Account{3000, 0, 1, 0}));
    expect_true_accounts(store);
}

TEST_F(AccountsTest, MoveWithTheDevice) {
    Object* object = *rig.create(ada, CreateSpec{"e", 0, 0, 0600, kCreateEmpty | kCreateKeep, nullptr, nullptr});
    EXPECT_EQ(of(1000), (Account{0, 0, 1, 0}));
    store.set_device(object, 1);
    EXPECT_EQ(of(1000), Account{});
    EXPECT_EQ(of(1000, 1), (Account{0, 0, 1, 0}));
    expect_true_accounts(store);
}

}  // namespace
}  // namespace gshm::core::test
