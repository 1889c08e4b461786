#include <vector>

#include <gtest/gtest.h>

#include "base/budgets.h"
#include "base/limits.h"

namespace gshm::core::test {
namespace {

constexpr uid_t kOwner = 5;
constexpr Budgets::Machine kMachine{1 << 20, uint64_t{16} << 30, uint64_t{1} << 30};

class BudgetsTest : public ::testing::Test {
protected:
    uint64_t fill(uid_t uid, Resource kind) {
        auto& charge = held_.emplace_back(budgets_.user(uid), kind);
        while (charge.take(1)) {}
        return charge.amount();
    }
    Budgets budgets_{kOwner};
    std::vector<Budgets::Charge> held_;
};

TEST_F(BudgetsTest, HaveNoLimitsAtFirst) {
    Budgets::Charge charge(budgets_.user(1000), Resource::connections);
    EXPECT_TRUE(charge.take(uint64_t{1} << 40));
    EXPECT_FALSE(budgets_.user(1000)->is_full(Resource::connections));
}

TEST_F(BudgetsTest, OneUserGetsTheShare) {
    budgets_.set_limits(kMachine, 50);
    EXPECT_EQ(fill(1000, Resource::connections), limits::kUserConnections.most / 2);
    EXPECT_TRUE(budgets_.user(1000)->is_full(Resource::connections));
    EXPECT_FALSE(budgets_.user(1001)->is_full(Resource::connections));
    EXPECT_FALSE(budgets_.user(1000)->is_full(Resource::waits));
    budgets_.set_limits(kMachine, 25);
    EXPECT_EQ(fill(1000, Resource::waits), limits::kUserWaits.most / 4);
}

TEST_F(BudgetsTest, SeveralUsersLeaveSomethingForTheNext) {
    budgets_.set_limits(kMachine, 50);
    uint64_t before = UINT64_MAX;
    uint64_t all = 0;
    for (uid_t uid = 1000; uid < 1010; ++uid) {
        const uint64_t got = fill(uid, Resource::connections);
        EXPECT_LT(got, before);
        EXPECT_GE(got, limits::kUserConnections.least);
        before = got;
        all += got;
    }
    EXPECT_LT(all, limits::kUserConnections.most);
    // Also if root has taken everything.
    budgets_.user(0)->add(Resource::connections, limits::kUserConnections.most);
    EXPECT_EQ(fill(2000, Resource::connections), limits::kUserConnections.least);
}

TEST_F(BudgetsTest, RootAndTheOwnerAreCountedAndNotRefused) {
    budgets_.set_limits(kMachine, 50);
    for (uid_t uid : {uid_t{0}, kOwner}) {
        auto user = budgets_.user(uid);
        EXPECT_TRUE(user->take(Resource::waits, 2 * limits::kUserWaits.most));
        EXPECT_FALSE(user->is_full(Resource::waits));
        EXPECT_FALSE(user->is_half_full(Resource::waits));
        EXPECT_EQ(user->held(Resource::waits), 2 * limits::kUserWaits.most);
        user->give(Resource::waits, 2 * limits::kUserWaits.most);
    }
}

TEST_F(BudgetsTest, FollowTheMachine) {
    budgets_.set_limits({1024, uint64_t{1} << 30, 8 << 20}, 50);
    const uint64_t descriptors = 1024 - 1024 / limits::kDescriptorReserve;
    EXPECT_EQ(fill(1000, Resource::descriptors), descriptors / 2);
    EXPECT_EQ(fill(1000, Resource::connections), descriptors / limits::kUserConnections.descriptors_for_one / 2);
    EXPECT_EQ(fill(1000, Resource::leases), (uint64_t{1} << 30) / limits::kUserLeases.memory_bytes_for_one / 2);
    EXPECT_EQ(fill(1000, Resource::name_bytes), (8 << 20) / 4);  // a half of half of the folder
}

TEST_F(BudgetsTest, AChargeIsGivenBack) {
    budgets_.set_limits(kMachine, 50);
    auto user = budgets_.user(1000);
    {
        Budgets::Charge first(user, Resource::rings);
        ASSERT_TRUE(first.take(5));
        Budgets::Charge second = std::move(first);
        EXPECT_EQ(first.amount(), 0u);
        second.add(2);
        second.give(3);
        EXPECT_EQ(user->held(Resource::rings), 4u);
        Budgets::Charge third(user, Resource::rings);
        third.add(10);
        third = std::move(second);
        EXPECT_EQ(user->held(Resource::rings), 4u);
    }
    EXPECT_EQ(user->held(Resource::rings), 0u);
    Budgets::Charge nobody;
    EXPECT_TRUE(nobody.take(100));
}

TEST_F(BudgetsTest, AChargeMayOutliveThem) {
    auto budgets = std::make_unique<Budgets>(0);
    Budgets::Charge charge(budgets->user(1), Resource::rings);
    charge.add(1);
    budgets.reset();
}

TEST_F(BudgetsTest, ARefusalNamesTheUser) {
    budgets_.set_limits(kMachine, 50);
    fill(1000, Resource::watches);
    const auto error = budgets_.user(1000)->refusal(Resource::watches);
    EXPECT_EQ(error.code, ENOSPC);
    EXPECT_EQ(error.message, "user 1000 has 512 watches, and one user may not have more now: end some of them");
}

TEST_F(BudgetsTest, AUserHasOneRecord) {
    auto one = budgets_.user(7);
    for (uid_t uid = 100; uid < 10'000; ++uid) (void)budgets_.user(uid);  // records of users that hold nothing end
    EXPECT_EQ(one, budgets_.user(7));
}

}  // namespace
}  // namespace gshm::core::test
