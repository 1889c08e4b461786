// Waits are notified of every change that makes their name refer to something else.
#include <linux/fs.h>

#include <gtest/gtest.h>

#include "base/limits.h"
#include "store/files.h"
#include "store/waits.h"
#include "store/watches.h"
#include "support/store_rig.h"

namespace gshm::core::test {
namespace {

class WaitsTest : public ::testing::Test {
protected:
    WaitsTest() {
        waits.set_wake([this] { woken = true; });
    }
    // "" during the wait; then the outcome.
    struct Waiting {
        std::string text;
        Waits::Id id = 0;
    };
    std::shared_ptr<Waiting> wait(std::string name, Waits::Until until = Waits::Until::exists, NodeId node = 0) {
        auto waiting = std::make_shared<Waiting>();
        auto note = [waiting](const Waits::Outcome& outcome) {
            EXPECT_EQ(waiting->text, "") << "told twice";
            if (!outcome) waiting->text = fmt::format("error {}", outcome.error().code);
            else waiting->text = *outcome == nullptr ? "gone" : Tree::path_of(**outcome);
        };
        if (auto now = waits.add(session, {std::move(name), until, node}, note, &waiting->id)) note(*now);
        return waiting;
    }
    std::shared_ptr<Waiting> wait_sealed(std::string name) { return wait(std::move(name), Waits::Until::sealed); }
    std::shared_ptr<Waiting> wait_gone(const std::string& name) {
        return wait(name, Waits::Until::gone, (*rig.store.stat(session, name))->id);
    }
    void make_symlink(const char* name, const char* target) {
        ASSERT_TRUE(rig.store.make(session, {.name = name, .kind = NodeKind::symlink, .target = target}));
    }
    void check_due() {
        while (std::exchange(woken, false)) waits.check_due();
    }
    Directory& directory(std::string_view name) {
        return *as_directory(const_cast<Node*>(*rig.store.stat(session, name)));
    }

    StoreRig rig;
    Files files{rig.store};
    Waits waits{rig.store};
    bool woken = false;
    SessionId session = rig.store.begin_session({0, 0, 1, {}});
};

TEST_F(WaitsTest, WhatIsThereIsFoundAtOnce) {
    ASSERT_TRUE(rig.create(session, "a"));
    EXPECT_EQ(wait("a")->text, "a");
    EXPECT_EQ(wait("a/b/c")->text, "");
    EXPECT_EQ(wait("")->text, "/");
    EXPECT_EQ(wait_sealed("")->text, fmt::format("error {}", EISDIR));
    EXPECT_EQ(wait("..")->text, fmt::format("error {}", EINVAL));
    EXPECT_EQ(wait("gone", Waits::Until::gone, 17)->text, "gone");
    EXPECT_EQ(waits.count(), 1u);
}

TEST_F(WaitsTest, ANameAppearsByEveryWay) {
    auto created = wait("d/created"), given = wait("d/given"), renamed = wait("d/renamed"), linked = wait("d/linked"),
         file = wait("d/file"), below = wait("moved/below/x"), folder = wait("d/folder"), soft = wait("d/soft");
    EXPECT_EQ(waits.count(), 8u);
    ASSERT_TRUE(rig.create(session, "d/created"));
    EXPECT_EQ(created->text, "d/created");
    const NodeId unnamed = (*rig.create(session, "d/given", 10, 0600, kCreateUnnamed))->id;
    EXPECT_EQ(given->text, "");
    ASSERT_TRUE(rig.store.give_name(session, unnamed, "d/given", true));
    EXPECT_EQ(given->text, "d/given");
    ASSERT_TRUE(rig.create(session, "x/y"));
    ASSERT_TRUE(rig.store.add_name(session, "x/y", "d/linked"));
    EXPECT_EQ(linked->text, "x/y");  // one object with two names
    ASSERT_TRUE(rig.store.rename(session, "x/y", "d/renamed", false));
    EXPECT_EQ(renamed->text, "d/renamed");
    ASSERT_TRUE(files.make_object(directory("d"), "file", {0, 0, 0600}));
    EXPECT_EQ(file->text, "d/file");
    ASSERT_TRUE(files.make_directory(directory("d"), "folder", {0, 0, 0700}));
    EXPECT_EQ(folder->text, "d/folder");
    ASSERT_TRUE(files.make_symlink(directory("d"), "soft", {}, "nowhere"));
    EXPECT_EQ(soft->text, "d/soft");
    ASSERT_TRUE(rig.create(session, "elsewhere/below/x"));
    EXPECT_EQ(below->text, "");
    ASSERT_TRUE(rig.store.rename(session, "elsewhere", "moved", false));
    EXPECT_EQ(below->text, "moved/below/x");
    EXPECT_FALSE(rig.store.has_listener()) << "nobody waits any more";
}

TEST_F(WaitsTest, ASymbolicLinkOnTheWayIsFollowed) {
    make_symlink("link", "real/deep");
    auto early = wait("link/x");
    ASSERT_TRUE(rig.store.make(session, {.name = "real/deep", .flags = kCreateKeep}));
    auto late = wait("link/x");
    auto sealed = wait_sealed("link/x");
    ASSERT_TRUE(rig.create(session, "real/deep/x"));
    EXPECT_EQ(early->text, "real/deep/x");
    EXPECT_EQ(late->text, "real/deep/x");
    EXPECT_EQ(sealed->text, "");
    ASSERT_TRUE(rig.store.seal(session, "real/deep/x"));
    EXPECT_EQ(sealed->text, "real/deep/x");
    // The link comes last, or is replaced by one with that target.
    auto by_link = wait("later/x"), by_other = wait("link/y");
    make_symlink("later", "link");
    EXPECT_EQ(by_link->text, "real/deep/x");
    ASSERT_TRUE(rig.create(session, "other/y"));
    make_symlink("new", "other");
    EXPECT_EQ(by_other->text, "");
    ASSERT_TRUE(rig.store.rename(session, "new", "link", true));
    EXPECT_EQ(by_other->text, "other/y");
}

TEST_F(WaitsTest, AnExchangeTellsBothSides) {
    ASSERT_TRUE(rig.create(session, "a/x"));
    ASSERT_TRUE(rig.create(session, "b/y"));
    auto first = wait("a/y"), second = wait("b/x");
    auto gone_first = wait_gone("a/x"), gone_second = wait_gone("b/y");
    Watches watches(rig.store);
    ASSERT_TRUE(watches.add(session, "", false, [] {}));
    auto& root = *as_directory(files.find(Files::kRoot));
    ASSERT_TRUE(files.rename(root, "a", root, "b", RENAME_EXCHANGE));
    EXPECT_EQ(first->text, "a/y");
    EXPECT_EQ(second->text, "b/x");
    EXPECT_EQ(gone_first->text, "gone");
    EXPECT_EQ(gone_second->text, "gone");
    std::set<std::string> told;
    for (const auto& event : watches.take(session, SIZE_MAX)) {
        told.insert(fmt::format("{} {}", static_cast<int>(event.event), event.name));
    }
    const auto of = [](EventKind kind, const char* name) { return fmt::format("{} {}", static_cast<int>(kind), name); };
    EXPECT_EQ(told,
              (std::set{of(EventKind::deleted, "a/x"), of(EventKind::deleted, "b/y"), of(EventKind::replaced, "a"),
                        of(EventKind::replaced, "b"), of(EventKind::created, "a/y"), of(EventKind::created, "b/x")}));
}

TEST_F(WaitsTest, SealedByEveryWay) {
    ASSERT_TRUE(rig.create(session, "o"));
    auto by_name = wait_sealed("o");
    ASSERT_TRUE(rig.store.seal(session, "o"));
    EXPECT_EQ(by_name->text, "o");
    auto* file = *files.make_object(directory(""), "f", {0, 0, 0600});
    auto by_mount = wait_sealed("f");
    ASSERT_TRUE(files.seal(*file));
    EXPECT_EQ(by_mount->text, "f");
    // Another object gets the name during the wait for its seal.
    ASSERT_TRUE(rig.create(session, "p"));
    auto replaced = wait_sealed("p");
    const NodeId unnamed = (*rig.create(session, "p", 10, 0600, kCreateUnnamed))->id;
    ASSERT_TRUE(rig.store.give_name(session, unnamed, "p", true));
    EXPECT_EQ(replaced->text, "p");
    ASSERT_TRUE(rig.store.make(session, {.name = "directory"}));
    EXPECT_EQ(wait_sealed("directory")->text, fmt::format("error {}", EISDIR));
    auto disappoints = wait_sealed("q");
    ASSERT_TRUE(rig.store.make(session, {.name = "q"}));
    EXPECT_EQ(disappoints->text, fmt::format("error {}", EISDIR));
}

TEST_F(WaitsTest, GoneByEveryWay) {
    for (const char* name : {"d/deleted", "d/renamed", "d/replaced", "e/below", "f/below", "kept"}) {
        ASSERT_TRUE(rig.create(session, name));
    }
    make_symlink("link", "f");
    auto deleted = wait_gone("d/deleted"), renamed = wait_gone("d/renamed"), replaced = wait_gone("d/replaced"),
         below = wait_gone("e/below"), by_link = wait_gone("link/below"), kept = wait_gone("kept");
    ASSERT_TRUE(rig.store.unlink(session, "d/deleted"));
    EXPECT_EQ(deleted->text, "gone");
    ASSERT_TRUE(rig.store.rename(session, "d/renamed", "d/replaced", true));
    EXPECT_EQ(renamed->text, "gone");
    EXPECT_EQ(replaced->text, "gone");
    ASSERT_TRUE(rig.store.rename(session, "e", "elsewhere", false));
    EXPECT_EQ(below->text, "gone");
    EXPECT_EQ(by_link->text, "");
    // A link with the same target.
    make_symlink("second", "f");
    ASSERT_TRUE(rig.store.rename(session, "second", "link", true));
    EXPECT_EQ(by_link->text, "");
    ASSERT_TRUE(rig.store.unlink(session, "link"));
    EXPECT_EQ(by_link->text, "gone");
    ASSERT_TRUE(rig.store.add_name(session, "kept", "further"));
    ASSERT_TRUE(rig.store.seal(session, "kept"));
    EXPECT_EQ(kept->text, "");
    ASSERT_TRUE(rig.store.unlink(session, "kept"));
    EXPECT_EQ(kept->text, "gone");
}

// Entries on the path change without resolving the name: the wait follows the new entries.
TEST_F(WaitsTest, AWayThatChangesIsFollowedAnew) {
    auto waiting = wait("a/b/x");
    ASSERT_TRUE(rig.store.make(session, {.name = "a/b", .flags = kCreateKeep}));
    ASSERT_TRUE(rig.store.rename(session, "a/b", "a/c", false));
    ASSERT_TRUE(rig.create(session, "a/c/x"));
    EXPECT_EQ(waiting->text, "");
    ASSERT_TRUE(rig.store.unlink(session, "a/c/x"));
    ASSERT_TRUE(rig.store.make(session, {.name = "a/b", .flags = kCreateKeep}));
    ASSERT_TRUE(rig.store.unlink(session, "a/b"));
    make_symlink("a/b", "c");
    ASSERT_TRUE(rig.create(session, "a/c/x"));
    EXPECT_EQ(waiting->text, "a/c/x");
}

TEST_F(WaitsTest, ACancelledWaitHearsNothing) {
    auto waiting = wait("a");
    EXPECT_TRUE(rig.store.has_listener());
    waits.cancel(waiting->id);
    EXPECT_FALSE(rig.store.has_listener());
    ASSERT_TRUE(rig.create(session, "a"));
    EXPECT_EQ(waiting->text, "");
    waits.cancel(waiting->id);
}

TEST_F(WaitsTest, WaysOfAnyLengthTakeBoundedMemory) {
    std::string deep = "d";
    while (deep.size() < 3990) deep += "/d";
    ASSERT_TRUE(rig.store.make(session, {.name = deep, .flags = kCreateKeep}));
    const size_t parts = deep.size() / 2 + 2;
    size_t taken = 0;
    for (std::string refused; refused.empty(); ++taken) refused = wait(fmt::format("{}/{}", deep, taken))->text;
    EXPECT_EQ(taken - 1, limits::kSessionWaitSteps / parts);
    EXPECT_EQ(waits.count(), taken - 1);
    EXPECT_EQ(wait("short")->text, "") << "there is room for one step";
    // Other sessions are not affected.
    Waits::Id id = 0;
    const SessionId other = rig.store.begin_session({0, 0, 2, {}});
    EXPECT_FALSE(waits.add(other, {deep + "/x"}, [](const Waits::Outcome&) {}, &id));
    waits.cancel(id);
}

// A change of a name only affects waits for that name.
TEST_F(WaitsTest, ManyWaitsAreFoundByTheirNames) {
    constexpr int kMany = 20'000;
    std::vector<std::shared_ptr<Waiting>> waiting;
    for (int i = 0; i < kMany; ++i) waiting.push_back(wait(fmt::format("d/{}/ready", i)));
    for (int i = 0; i < kMany; ++i) {
        ASSERT_TRUE(rig.create(session, fmt::format("d/{}/ready", i)));
        check_due();
        ASSERT_NE(waiting[static_cast<size_t>(i)]->text, "");
    }
    EXPECT_EQ(waits.count(), 0u);
}

// A change must not take longer because a user waits for the name very often.
TEST_F(WaitsTest, OneUserHasAPartOfTheWaitsCheckedAtOnce) {
    constexpr size_t kMany = Waits::kAtOnce + 1000;
    const SessionId other = rig.store.begin_session({1000, 1000, 2, {}});
    size_t told = 0;
    size_t told_gone = 0;
    Waits::Id id = 0;
    auto begin = [&](Waits::Until until, NodeId node, size_t& counter) {
        for (size_t i = 0; i < kMany; ++i) {
            EXPECT_FALSE(waits.add(other, {"d/x", until, node}, [&](const Waits::Outcome&) { ++counter; }, &id));
        }
    };
    begin(Waits::Until::exists, 0, told);
    auto own = wait("d/x");
    ASSERT_TRUE(rig.create(session, "d/x"));
    EXPECT_EQ(own->text, "d/x");
    EXPECT_LE(told, Waits::kAtOnce);
    check_due();
    EXPECT_EQ(told, kMany);
    begin(Waits::Until::gone, (*rig.store.stat(session, "d/x"))->id, told_gone);
    ASSERT_TRUE(rig.store.unlink(session, "d/x"));
    EXPECT_LE(told_gone, 2 * Waits::kAtOnce);  // the directory goes too
    ASSERT_TRUE(rig.create(session, "d/x"));   // another object of that name
    check_due();
    EXPECT_EQ(told_gone, kMany);
    EXPECT_EQ(waits.count(), 0u);
}

TEST_F(WaitsTest, StepsAreBoundedForEachUser) {
    rig.store.budgets().set_limits({1 << 20, 64 << 20, 1 << 30}, 50);
    const uint64_t most = (64 << 20) / limits::kUserWaitSteps.memory_bytes_for_one / 2;
    size_t taken = 0;
    for (bool refused = false; !refused; ++taken) {
        const SessionId of_user = rig.store.begin_session({1000, 1000, 2, {}});
        Waits::Id id = 0;
        auto now = waits.add(of_user, {fmt::format("x{}", taken)}, [](const Waits::Outcome&) {}, &id);
        refused = now.has_value();
        if (refused) EXPECT_EQ(code_of(*now), EAGAIN);
    }
    EXPECT_EQ(taken - 1, most);
    EXPECT_EQ(wait("y")->text, "") << "root waits on";
    for (Waits::Id id = 1; id <= most; ++id) waits.cancel(id);
    EXPECT_EQ(rig.store.budgets().user(1000)->held(Resource::wait_steps), 0u);
}

}  // namespace
}  // namespace gshm::core::test
