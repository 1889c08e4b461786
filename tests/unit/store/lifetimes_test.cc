// Ttls, pins and ephemeral objects in the store.
#include <gtest/gtest.h>

#include "base/limits.h"
#include "store/evictables.h"
#include "store/files.h"
#include "store/lifetimes.h"
#include "store/shared.h"
#include "store/watches.h"
#include "support/recount.h"
#include "support/store_rig.h"

namespace gshm::core::test {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kHour = 3600 * kSecond;
constexpr int64_t kYear = 365 * 24 * kHour;

class LifetimesTest : public ::testing::Test {
protected:
    static constexpr uid_t kUser = 1000;
    static constexpr uid_t kOther = 1001;
    static constexpr uid_t kDaemon = 900;

    SessionId begin(uid_t uid) { return rig.store.begin_session({uid, uid, 10, {}}); }
    // Held by the session.
    Object* make(std::string_view name, int64_t ttl_ns, uint32_t flags = kCreateKeep, uint64_t bytes = 1000) {
        CreateSpec spec;
        spec.name = name;
        spec.size_bytes = bytes;
        spec.flags = flags;
        spec.ttl_ns = ttl_ns;
        auto made = rig.create(session, spec);
        EXPECT_TRUE(made) << made.error().message;
        return made ? *made : nullptr;
    }
    // Held by no one.
    Object* put(std::string_view name, int64_t ttl_ns, uint32_t flags = kCreateKeep, uint64_t bytes = 1000) {
        Object* object = make(name, ttl_ns, flags, bytes);
        EXPECT_TRUE(rig.store.release(session, object->id, Access::write));
        return object;
    }
    void let_pass(int64_t ns) {
        rig.clock.advance(ns);
        while (lifetimes.expire(limits::kExpiredAtOnce)) {}
    }
    bool exists(std::string_view name) { return rig.store.stat(root, name).has_value(); }
    Status change(SessionId by, std::string_view name, ChangeSpec what) { return rig.store.change(by, name, what); }
    Status set_ttl(SessionId by, std::string_view name, int64_t ttl_ns, bool unused = false) {
        return change(by, name, {kChangeTtl, 0, 0, 0, ttl_ns, unused});
    }
    Status pin(SessionId by, std::string_view name) { return change(by, name, {.what = kChangePin}); }
    Status unpin(SessionId by, std::string_view name) { return change(by, name, {.what = kChangeUnpin}); }
    uint64_t pinned(uid_t uid = kUser, DeviceIndex device = 0) { return lifetimes.pinned_bytes(device, uid); }

    StoreRig rig{kDaemon};
    Lifetimes& lifetimes = rig.store.lifetimes();
    SessionId root = begin(0);
    SessionId daemon = begin(kDaemon);
    SessionId session = begin(kUser);
    SessionId other = begin(kOther);
};

// ---- ttls ----

TEST_F(LifetimesTest, AnObjectExpiresAfterItsTtlAndNotBefore) {
    put("a", kHour);
    put("b", 2 * kHour);
    put("c", 0);
    let_pass(kHour - 1);
    EXPECT_TRUE(exists("a"));
    let_pass(1);
    EXPECT_FALSE(exists("a"));
    EXPECT_TRUE(exists("b"));
    let_pass(kHour);
    EXPECT_FALSE(exists("b"));
    let_pass(kYear);
    EXPECT_TRUE(exists("c"));
    EXPECT_FALSE(lifetimes.next_due().has_value());
    expect_true_accounts(rig.store);
}

TEST_F(LifetimesTest, HoldersKeepTheMemoryOfAnExpiredObject) {
    Object* object = make("a", kHour);
    const NodeId id = object->id;
    let_pass(kHour);
    EXPECT_FALSE(exists("a"));
    ASSERT_EQ(rig.store.object(id), object);
    EXPECT_EQ(rig.store.use(0).unlinked_objects, 1u);
    ASSERT_TRUE(rig.store.leased(session, id, Access::write));
    ASSERT_TRUE(rig.store.release(session, id, Access::write));
    EXPECT_EQ(rig.store.object(id), nullptr);
}

TEST_F(LifetimesTest, AStepOfTheTimeOfDayRemovesNothing) {
    Object* object = put("a", kHour);
    const int64_t before = expires_ns(*object, rig.clock);
    rig.clock.jump(2 * kYear);
    while (lifetimes.expire(100)) {}
    EXPECT_TRUE(exists("a"));
    EXPECT_NEAR(static_cast<double>(expires_ns(*object, rig.clock) - before), 2.0 * kYear, kSecond)
        << "shown by the new time of day";
    rig.clock.jump(-4 * kYear);
    let_pass(kHour);
    EXPECT_FALSE(exists("a"));
}

TEST_F(LifetimesTest, ATtlSinceTheLastUseBeginsWithEachUse) {
    Object* object = put("a", kHour, kCreateKeep | kCreateTtlUnused);
    SharedStore shared(rig.store);
    for (int i = 0; i < 5; ++i) {
        let_pass(kHour - 1);
        ASSERT_NE(shared.open(session, "a", false), nullptr);
        ASSERT_TRUE(shared.can_release(session, object->id));
        shared.release(session, object->id, Access::read);
    }
    let_pass(kHour - 1);
    EXPECT_TRUE(exists("a"));
    EXPECT_NE(expires_ns(*object, rig.clock), 0);
    let_pass(1);
    EXPECT_FALSE(exists("a"));
}

TEST_F(LifetimesTest, AHeldObjectDoesNotExpireByDisuse) {
    for (int64_t ttl : {kSecond, 5 * kHour}) {
        Object* object = make("a", ttl, kCreateKeep | kCreateTtlUnused);
        for (int i = 0; i < 10; ++i) let_pass(ttl);
        EXPECT_EQ(lifetimes.queued(), 0u) << "it costs no time";
        EXPECT_TRUE(exists("a"));
        EXPECT_EQ(expires_ns(*object, rig.clock), 0);
        ASSERT_TRUE(rig.store.release(session, object->id, Access::write));
        let_pass(ttl - 1);
        EXPECT_TRUE(exists("a"));
        let_pass(1);
        EXPECT_FALSE(exists("a")) << ttl;
    }
}

TEST_F(LifetimesTest, EveryWayToLetGoCounts) {
    Files files(rig.store);
    auto fresh = [&] { return put("a", kSecond, kCreateKeep | kCreateTtlUnused); };
    auto ends = [&](const auto& let_go) {
        for (int i = 0; i < 3; ++i) let_pass(kSecond);
        EXPECT_TRUE(exists("a"));
        let_go();
        let_pass(kSecond - 1);
        EXPECT_TRUE(exists("a"));
        let_pass(1);
        EXPECT_FALSE(exists("a"));
    };
    Object* object = fresh();
    auto file = files.open(*object, Access::read, {1, 1, 10, {}}, 1);
    ends([&] { files.close(*file); });
    object = fresh();
    const SessionId brief = begin(kUser);
    ASSERT_TRUE(rig.store.open(brief, "a", Access::read, false));
    ends([&] { rig.store.end_session(brief); });
    object = fresh();
    SharedStore shared(rig.store);
    ASSERT_NE(shared.open(session, "a", false), nullptr);
    ends([&] {
        // It is queued again, which needs the exclusive lock.
        EXPECT_FALSE(shared.can_release(session, object->id));
        EXPECT_TRUE(rig.store.release(session, object->id, Access::read));
    });
    // A thread at work is no use, and defers the end.
    object = fresh();
    rig.store.pin(object, Access::read);
    let_pass(5 * kSecond);
    EXPECT_TRUE(exists("a"));
    rig.store.unpin(object, Access::read);
    let_pass(0);
    EXPECT_FALSE(exists("a"));
}

TEST_F(LifetimesTest, ATtlCountsFromTheFirstName) {
    Object* object = make("a", kHour, kCreateUnnamed);
    let_pass(10 * kHour);
    ASSERT_TRUE(rig.store.give_name(session, object->id, "a", false));
    EXPECT_NE(expires_ns(*object, rig.clock), 0);
    let_pass(kHour - 1);
    EXPECT_TRUE(exists("a"));
    ASSERT_TRUE(rig.store.rename(session, "a", "b", false));
    ASSERT_TRUE(rig.store.add_name(session, "b", "d/c"));
    let_pass(1);
    EXPECT_FALSE(exists("b"));
    EXPECT_FALSE(exists("d/c")) << "all its names go";
    EXPECT_FALSE(exists("d"));
}

TEST_F(LifetimesTest, TheOwnerAndRootSetATtl) {
    Object* object = put("a", 0);
    EXPECT_EQ(code_of(set_ttl(other, "a", kHour)), EPERM);
    EXPECT_EQ(code_of(set_ttl(session, "a", -1)), EINVAL);
    EXPECT_EQ(code_of(set_ttl(session, "a", INT64_MAX)), EINVAL);
    EXPECT_EQ(code_of(set_ttl(session, "none", kHour)), ENOENT);
    ASSERT_TRUE(rig.store.make(session, {.name = "d", .flags = kCreateKeep}));
    EXPECT_EQ(code_of(set_ttl(session, "d", kHour)), EISDIR);
    EXPECT_EQ(code_of(change(session, "a", {kChangeTtl | kChangeMode, 0600, 0, 0, kHour})), EINVAL);
    EXPECT_EQ(object->lifetime, nullptr);
    ASSERT_TRUE(set_ttl(session, "a", kHour));
    let_pass(kHour - 1);
    ASSERT_TRUE(set_ttl(root, "a", 2 * kHour)) << "from now on";
    let_pass(2 * kHour - 1);
    EXPECT_TRUE(exists("a"));
    ASSERT_TRUE(set_ttl(session, "a", 0));
    EXPECT_EQ(object->lifetime, nullptr);
    let_pass(kYear);
    EXPECT_TRUE(exists("a"));
    ASSERT_TRUE(set_ttl(session, "a", kHour, true));
    EXPECT_NE(object->flags & kCreateTtlUnused, 0u);
    ASSERT_TRUE(set_ttl(session, "a", kHour));
    EXPECT_EQ(object->flags & kCreateTtlUnused, 0u);
}

TEST_F(LifetimesTest, TheLongestTtlIsAHundredYears) {
    put("a", static_cast<int64_t>(limits::kTtlMs) * 1'000'000, kCreateKeep | kCreateTtlUnused);
    let_pass(99 * kYear);
    EXPECT_TRUE(exists("a"));
    let_pass(2 * kYear);
    EXPECT_FALSE(exists("a"));
}

TEST_F(LifetimesTest, ATtlIsCheckedAtTheCreation) {
    CreateSpec spec;
    spec.name = "a";
    spec.size_bytes = 10;
    spec.flags = kCreateTtlUnused;
    EXPECT_EQ(code_of(rig.create(session, spec)), EINVAL);
    spec.flags = 0;
    spec.ttl_ns = -1;
    EXPECT_EQ(code_of(rig.create(session, spec)), EINVAL);
    spec.ttl_ns = static_cast<int64_t>(limits::kTtlMs) * 1'000'000 + 1'000'000;
    EXPECT_EQ(code_of(rig.create(session, spec)), EINVAL);
    EXPECT_FALSE(exists("a"));
}

TEST_F(LifetimesTest, ManyExpireInParts) {
    constexpr int kMany = 1000;
    for (int i = 0; i < kMany; ++i) put("d/" + std::to_string(i), kHour);
    for (int i = 0; i < 300; ++i) ASSERT_TRUE(rig.store.add_name(session, "d/7", "e/" + std::to_string(i)));
    rig.clock.advance(kHour);
    int turns = 0;
    auto names = [&] {
        uint64_t end = 0;
        size_t count = 0;
        for (const char* directory : {"d", "e"}) {
            if (auto listed = rig.store.list(root, directory, 0, SIZE_MAX, &end)) count += listed->size();
        }
        return count;
    };
    size_t before = names();
    EXPECT_EQ(before, static_cast<size_t>(kMany) + 300);
    for (bool more = true; more; ++turns) {
        more = lifetimes.expire(100);
        EXPECT_LE(before - names(), 100u);
        before = names();
    }
    EXPECT_EQ(before, 0u);
    EXPECT_GE(turns, 13);
    EXPECT_EQ(rig.store.object_count(), 0u);
}

TEST_F(LifetimesTest, TheTimerHearsOfEarlierTimesAlone) {
    std::vector<int64_t> told;
    lifetimes.set_wake([&](int64_t due) { told.push_back(due); });
    const int64_t now = rig.clock.steady_ns();
    put("a", kHour);
    put("b", 2 * kHour);
    put("c", kSecond);
    EXPECT_EQ(told, (std::vector<int64_t>{now + kHour, now + kSecond}));
    told.clear();
    let_pass(kSecond);
    EXPECT_EQ(*lifetimes.next_due(), now + kHour);
    EXPECT_TRUE(told.empty()) << "the timer asks after expire()";
    put("d", kSecond);
    EXPECT_EQ(told.size(), 1u);
}

TEST_F(LifetimesTest, WatchesAreTold) {
    Watches watches(rig.store);
    const SessionId watcher = begin(0);
    ASSERT_TRUE(watches.add(watcher, "", false, [] {}));
    Object* object = put("d/a", kHour);
    const NodeId id = object->id;
    ASSERT_TRUE(rig.store.add_name(session, "d/a", "b"));
    (void)watches.take(watcher, 1 << 20);
    let_pass(kHour);
    std::vector<std::pair<EventKind, std::string>> events;
    for (const auto& event : watches.take(watcher, 1 << 20)) {
        events.emplace_back(event.event, event.name);
        if (event.event == EventKind::expired) EXPECT_EQ(event.id, id);
    }
    ASSERT_EQ(events.size(), 3u);
    EXPECT_EQ(std::ranges::count(events, EventKind::expired, &std::pair<EventKind, std::string>::first), 2);
    EXPECT_EQ(std::ranges::count(events, std::pair{EventKind::deleted, std::string("d")}), 1);
    put("c", 0);
    ASSERT_TRUE(rig.store.unlink(session, "c"));
    EXPECT_EQ(watches.take(watcher, 1 << 20).back().event, EventKind::deleted);
}

// ---- pins ----

TEST_F(LifetimesTest, APinnedObjectDoesNotExpire) {
    Object* object = put("a", kHour);
    ASSERT_TRUE(pin(session, "a"));
    EXPECT_EQ(expires_ns(*object, rig.clock), 0);
    EXPECT_EQ(pinned(), 1000u);
    let_pass(kYear);
    EXPECT_TRUE(exists("a"));
    ASSERT_TRUE(unpin(session, "a"));
    EXPECT_EQ(pinned(), 0u);
    let_pass(0);
    EXPECT_FALSE(exists("a")) << "its time has passed meanwhile";
    put("b", kHour);
    ASSERT_TRUE(pin(session, "b"));
    ASSERT_TRUE(set_ttl(session, "b", kSecond));
    let_pass(kSecond);
    EXPECT_TRUE(exists("b"));
    ASSERT_TRUE(set_ttl(session, "b", 2 * kSecond));
    ASSERT_TRUE(unpin(session, "b"));
    let_pass(2 * kSecond - 1);
    EXPECT_TRUE(exists("b"));
    let_pass(1);
    EXPECT_FALSE(exists("b"));
}

TEST_F(LifetimesTest, RightsToPin) {
    Object* object = put("a", 0);
    EXPECT_EQ(code_of(pin(other, "a")), EPERM);
    EXPECT_EQ(code_of(unpin(other, "a")), EPERM);
    EXPECT_TRUE(unpin(session, "a")) << "no effect";
    for (SessionId admin : {root, daemon}) {
        ASSERT_TRUE(pin(session, "a"));
        EXPECT_TRUE(pin(session, "a")) << "twice";
        EXPECT_EQ(pinned(), 1000u);
        ASSERT_TRUE(pin(admin, "a"));
        EXPECT_EQ(pinned(), 0u) << "not in the owner's budget any more";
        EXPECT_TRUE(pin(session, "a"));
        EXPECT_EQ(pinned(), 0u);
        EXPECT_EQ(code_of(unpin(session, "a")), EPERM);
        EXPECT_NE(object->flags & kPinned, 0u);
        ASSERT_TRUE(unpin(admin, "a"));
        EXPECT_EQ(object->flags & (kPinned | kPinnedByAdmin), 0u);
    }
    ASSERT_TRUE(pin(session, "a"));
    ASSERT_TRUE(unpin(root, "a"));
    EXPECT_EQ(pinned(), 0u);
    EXPECT_EQ(object->lifetime, nullptr);
}

TEST_F(LifetimesTest, TheBudgetIsExact) {
    lifetimes.set_pin_share(1);
    const uint64_t budget = lifetimes.pin_budget(0);
    EXPECT_EQ(budget, (uint64_t{1} << 30) / 100);
    put("a", 0, kCreateKeep, budget - 1000);
    put("b", 0, kCreateKeep, 1000);
    put("c", 0, kCreateKeep, 1);
    ASSERT_TRUE(pin(session, "a"));
    ASSERT_TRUE(pin(session, "b"));
    auto refused = pin(session, "c");
    EXPECT_EQ(code_of(refused), EDQUOT);
    EXPECT_NE(refused.error().message.find("10 MiB on memory:0"), std::string::npos) << refused.error().message;
    EXPECT_EQ(pinned(), budget);
    ASSERT_TRUE(pin(root, "c")) << "root has no budget";
    ASSERT_TRUE(unpin(session, "b"));
    put("d", 0, kCreateKeep, 1000);
    ASSERT_TRUE(pin(session, "d"));
    ASSERT_TRUE(rig.store.unlink(session, "a"));
    EXPECT_EQ(pinned(), 1000u) << "without a name it is not pinned";
    lifetimes.set_pin_share(100);
    EXPECT_EQ(lifetimes.pin_budget(1), uint64_t{16} << 20);
}

TEST_F(LifetimesTest, AnUnlinkedObjectThatIsHeldIsNotPinned) {
    Object* object = make("a", 0);
    ASSERT_TRUE(pin(session, "a"));
    ASSERT_TRUE(rig.store.unlink(session, "a"));
    EXPECT_EQ(pinned(), 0u);
    EXPECT_EQ(object->flags & kPinned, 0u);
    Object* second = make("b", 0);
    ASSERT_TRUE(pin(root, "b"));
    ASSERT_TRUE(rig.store.unlink(session, "b"));
    EXPECT_EQ(second->flags & (kPinned | kPinnedByAdmin), 0u);
}

TEST_F(LifetimesTest, AGiftOfRootIsPinnedByRoot) {
    Object* object = put("a", kHour);
    ASSERT_TRUE(pin(session, "a"));
    ASSERT_TRUE(change(root, "a", {kChangeOwner, 0, kOther, kOther}));
    EXPECT_EQ(pinned(kUser), 0u);
    EXPECT_EQ(pinned(kOther), 0u);
    EXPECT_EQ(code_of(unpin(other, "a")), EPERM);
    let_pass(kYear);
    EXPECT_TRUE(exists("a"));
    EXPECT_NE(object->flags & kPinnedByAdmin, 0u);
    ASSERT_TRUE(unpin(root, "a"));
    let_pass(0);
    EXPECT_FALSE(exists("a"));
}

TEST_F(LifetimesTest, AFileThatOutgrowsTheBudgetIsNotPinned) {
    lifetimes.set_pin_share(1);
    const uint64_t budget = lifetimes.pin_budget(0);
    Object* object = put("a", kHour, kCreateKeep | kCreateDedicated);
    ASSERT_TRUE(pin(session, "a"));
    Files files(rig.store);
    auto grow = [&](uint64_t bytes) {
        std::shared_ptr<Extent> memory = *rig.first.allocate(bytes, {});
        files.replace_memory(*object, std::move(memory), bytes);
    };
    grow(budget);
    EXPECT_EQ(pinned(), budget);
    grow(500);
    EXPECT_EQ(pinned(), 500u);
    grow(budget);
    let_pass(2 * kHour);
    EXPECT_TRUE(exists("a"));
    grow(budget + 1);
    EXPECT_EQ(pinned(), 0u);
    EXPECT_EQ(object->flags & kPinned, 0u);
    let_pass(0);
    EXPECT_FALSE(exists("a"));
}

TEST_F(LifetimesTest, AMoveTakesItsPinAlongIfThereIsRoom) {
    lifetimes.set_pin_share(1);
    const uint64_t budget = lifetimes.pin_budget(1);
    Object* object = put("a", 0, kCreateKeep, budget);
    put("b", 0, kCreateKeep, budget + 1);
    ASSERT_TRUE(pin(session, "a"));
    ASSERT_TRUE(pin(session, "b"));
    EXPECT_TRUE(rig.store.check_move(*object, 1, false));
    Object* second = *rig.store.find_movable(session, "b");
    EXPECT_EQ(code_of(rig.store.check_move(*second, 1, false)), EDQUOT);
    std::shared_ptr<Extent> memory = *rig.second.allocate(budget, {});
    auto* extent = rig.store.extents().add({1, memory->size(), memory->size(), false, std::nullopt}, memory);
    rig.store.move(object, 1, {extent, 0}, false);
    EXPECT_EQ(pinned(kUser, 1), budget);
    EXPECT_EQ(pinned(), budget + 1);
    ASSERT_TRUE(unpin(session, "b"));
    EXPECT_TRUE(rig.store.check_move(*second, 1, false));
}

TEST_F(LifetimesTest, APinnedObjectDoesNotLeaveItsDevice) {
    put("a", 0, kCreateKeep | kCreateEvictable | kCreateDedicated);
    auto victims = [&] { return rig.store.evictables().next(0, 1).objects.size(); };
    for (SessionId by : {session, root}) {
        ASSERT_TRUE(pin(by, "a"));
        EXPECT_EQ(victims(), 0u);
        EXPECT_EQ(rig.store.use(0).evictable_bytes, 0u);
        ASSERT_TRUE(unpin(by, "a"));
        EXPECT_EQ(rig.store.use(0).evictable_bytes, 1000u);
        EXPECT_EQ(victims(), 1u);
    }
    expect_true_accounts(rig.store);
}

// ---- ephemeral objects ----

TEST_F(LifetimesTest, AnEphemeralObjectEndsWithItsSession) {
    const SessionId maker = begin(kUser);
    auto create = [&](std::string_view name, uint32_t flags) {
        CreateSpec spec;
        spec.name = name;
        spec.size_bytes = 1000;
        spec.flags = flags;
        return rig.create(maker, spec);
    };
    EXPECT_EQ(code_of(create("a", kCreateEphemeral | kCreateKeep)), EINVAL);
    ASSERT_TRUE(create("a", kCreateEphemeral));
    ASSERT_TRUE(rig.store.seal(maker, "a"));
    ASSERT_TRUE(rig.store.add_name(maker, "a", "d/b"));
    ASSERT_TRUE(rig.store.rename(maker, "a", "a2", false));
    auto unnamed = create("c", kCreateEphemeral | kCreateUnnamed);
    ASSERT_TRUE(unnamed);
    ASSERT_TRUE(rig.store.give_name(maker, (*unnamed)->id, "c", false));
    auto replacing = create("a2", kCreateEphemeral | kCreateUnnamed);
    ASSERT_TRUE(rig.store.give_name(maker, (*replacing)->id, "a2", true));
    ASSERT_TRUE(create("kept", kCreateEphemeral));
    ASSERT_TRUE(change(maker, "kept", {.what = kChangeKeep}));
    ASSERT_TRUE(create("plain", 0));
    ASSERT_TRUE(rig.store.seal(maker, "plain"));
    auto held = rig.store.open(session, "c", Access::read, true);
    ASSERT_TRUE(held);
    const NodeId id = (*held)->id;
    rig.store.end_session(maker);
    for (const char* gone : {"a", "a2", "d/b", "d", "c"}) EXPECT_FALSE(exists(gone)) << gone;
    for (const char* there : {"kept", "plain"}) EXPECT_TRUE(exists(there)) << there;
    ASSERT_NE(rig.store.object(id), nullptr) << "holders keep it";
    ASSERT_TRUE(rig.store.release(session, id, Access::read));
    EXPECT_EQ(rig.store.object(id), nullptr);
    EXPECT_EQ(rig.store.object_count(), 2u);
    expect_true_accounts(rig.store);
}

TEST_F(LifetimesTest, APinKeepsNoEphemeralObject) {
    const SessionId maker = begin(kUser);
    ASSERT_TRUE(rig.create(maker, "a", 1000, 0600, kCreateEphemeral));
    ASSERT_TRUE(pin(session, "a"));
    rig.store.end_session(maker);
    EXPECT_FALSE(exists("a"));
    EXPECT_EQ(pinned(), 0u);
}

TEST_F(LifetimesTest, VeryManyEphemeralObjectsGoInParts) {
    const SessionId maker = begin(kUser);
    const size_t many = limits::kReclaimedAtOnce + 500;
    for (size_t i = 0; i < many; ++i) {
        ASSERT_TRUE(rig.create(maker, "d/" + std::to_string(i), 1000, 0600, kCreateEphemeral));
    }
    bool woken = false;
    lifetimes.set_wake([&](int64_t) { woken = true; });
    rig.store.end_session(maker);
    EXPECT_TRUE(woken);
    EXPECT_EQ(rig.store.object_count(), 500u);
    // Those that remain can be changed meanwhile.
    ASSERT_TRUE(change(session, "d/0", {.what = kChangeKeep}));
    ASSERT_TRUE(rig.store.unlink(session, "d/1"));
    EXPECT_TRUE(lifetimes.expire(400));
    EXPECT_EQ(rig.store.object_count(), 99u);
    while (lifetimes.expire(400)) {}
    EXPECT_EQ(rig.store.object_count(), 1u);
    EXPECT_TRUE(exists("d/0"));
    EXPECT_FALSE(lifetimes.next_due().has_value());
    expect_true_accounts(rig.store);
}

}  // namespace
}  // namespace gshm::core::test
