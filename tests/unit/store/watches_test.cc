#include <algorithm>
#include <set>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "base/limits.h"
#include "base/name.h"
#include "store/files.h"
#include "store/watches.h"
#include "support/store_rig.h"

namespace gshm::core {
namespace {

using test::code_of;
using test::StoreRig;

constexpr size_t kAll = size_t{1} << 30;

std::string describe(const WatchEvent& event) {
    static constexpr const char* kNames[] = {"?",        "created",  "sealed", "deleted", "renamed",
                                             "replaced", "existing", "ready",  "overflow"};
    std::string text = kNames[static_cast<size_t>(event.event)];
    if (!event.name.empty()) text += " " + event.name;
    if (!event.old_name.empty()) text += " from " + event.old_name;
    if (event.state == ObjectState::sealed && event.event != EventKind::sealed) text += " (sealed)";
    return text;
}

using Texts = std::vector<std::string>;

class WatchesTest : public ::testing::Test {
protected:
    WatchesTest() {
        watches_.set_wake([this] { ++wakes_; });
    }
    SessionId watch(std::string_view prefix, bool existing = false, uid_t uid = 0) {
        SessionId session = rig_.store.begin_session({uid, uid, 7, {}});
        EXPECT_EQ(code_of(watches_.add(session, prefix, existing, [this, session] { ready_.insert(session); })), 0);
        return session;
    }
    Texts take(SessionId session, size_t most_bytes = kAll) {
        Texts texts;
        for (const auto& event : watches_.take(session, most_bytes)) texts.push_back(describe(event));
        return texts;
    }
    // Takes events until the walk is complete.
    Texts take_all(SessionId session) {
        Texts all;
        for (;;) {
            auto some = take(session);
            if (some.empty()) return all;
            all.insert(all.end(), some.begin(), some.end());
        }
    }
    void create(std::string_view name, uint32_t flags = 0) {
        EXPECT_EQ(code_of(rig_.create(maker_, name, 1000, 0600, flags)), 0) << name;
    }
    Directory* directory(std::string_view name) {
        auto node = rig_.store.stat(maker_, name);
        return node ? as_directory(const_cast<Node*>(*node)) : nullptr;
    }

    StoreRig rig_;
    SessionId maker_ = rig_.store.begin_session({0, 0, 1, {}});
    int wakes_ = 0;
    std::set<SessionId> ready_;
    Watches watches_{rig_.store};
};

TEST_F(WatchesTest, EventsAreBoundedForEachUser) {
    constexpr uint64_t kMemory = uint64_t{1} << 30;
    rig_.store.budgets().set_limits({1 << 20, kMemory, 1 << 30}, 50);
    const uint64_t most = kMemory / limits::kUserEventBytes.memory_bytes_for_one / 2;
    std::vector<SessionId> many;
    for (int i = 0; i < 20; ++i) many.push_back(watch("", false, 1000));
    ASSERT_GT(many.size() * limits::kWatchQueueBytes, 2 * most);
    ASSERT_TRUE(rig_.store.make(maker_, {.name = "d", .mode = 0755, .flags = kCreateKeep}));
    const std::string part(200, 'x');
    auto user = rig_.store.budgets().user(1000);
    for (int i = 0; i < 3000; ++i) create(fmt::format("d/{}{}", part, i));
    const uint64_t overflows = many.size() * WatchEvent().cost();
    EXPECT_LE(user->held(Resource::event_bytes), most + overflows);
    EXPECT_GE(user->held(Resource::event_bytes), most / 2);
    // Others are told everything.
    const auto other = watch("", false, 1001);
    create("d/last");
    EXPECT_EQ(take(other), (Texts{"created d/last"}));
    size_t overflowed = 0;
    for (SessionId session : many) overflowed += take(session).back() == "overflow" ? 1u : 0u;
    EXPECT_GT(overflowed, 0u);
    EXPECT_EQ(user->held(Resource::event_bytes), 0u);
    create("d/next");
    EXPECT_EQ(take(many[0]), (Texts{"created d/next"}));
}

TEST_F(WatchesTest, AreBoundedForEachUser) {
    rig_.store.budgets().set_limits({1 << 20, uint64_t{16} << 30, 1 << 30}, 50);
    std::vector<SessionId> many;
    for (uint64_t i = 0; i < limits::kUserWatches.most / 2; ++i) many.push_back(watch("a", false, 1000));
    const SessionId next = rig_.store.begin_session({1000, 1000, 7, {}});
    EXPECT_EQ(code_of(watches_.add(next, "a", false, [] {})), ENOSPC);
    EXPECT_FALSE(watches_.has(next));
    watch("a", false, 1001);
    watch("a");
    for (int i = 0; i < 3; ++i) watches_.forget(many[static_cast<size_t>(i)]);
    EXPECT_EQ(code_of(watches_.add(next, "a", false, [] {})), 0);
}

TEST_F(WatchesTest, TellsOfEveryKindOfChange) {
    auto session = watch("m/");
    create("m/a");
    create("other");
    EXPECT_EQ(take(session), (Texts{"created m/a"}));
    ASSERT_TRUE(rig_.store.seal(maker_, "m/a"));
    ASSERT_TRUE(rig_.store.seal(maker_, "m/a")) << "sealing twice is nothing new";
    EXPECT_EQ(take(session), (Texts{"sealed m/a"}));
    ASSERT_TRUE(rig_.store.rename(maker_, "m/a", "m/b", false));
    EXPECT_EQ(take(session), (Texts{"renamed m/b from m/a (sealed)"}));
    ASSERT_TRUE(rig_.store.rename(maker_, "other", "m/b", true));
    EXPECT_EQ(take(session), (Texts{"replaced m/b"}));
    create("m/c");
    ASSERT_TRUE(rig_.store.rename(maker_, "m/c", "m/b", true));
    EXPECT_EQ(take(session), (Texts{"created m/c", "replaced m/b from m/c"}));
    ASSERT_TRUE(rig_.store.add_name(maker_, "m/b", "m/d/link"));
    ASSERT_TRUE(rig_.store.seal(maker_, "m/b"));
    EXPECT_EQ(take(session), (Texts{"created m/d", "created m/d/link", "sealed m/b", "sealed m/d/link"}));
    ASSERT_TRUE(rig_.store.unlink(maker_, "m/d/link"));
    EXPECT_EQ(take(session), (Texts{"deleted m/d/link (sealed)", "deleted m/d"}));
    ASSERT_TRUE(rig_.store.rename(maker_, "m/b", "away", false));
    EXPECT_EQ(take(session), (Texts{"deleted m/b (sealed)"}));
    EXPECT_EQ(take(session), Texts{});
}

TEST_F(WatchesTest, AnObjectThatGetsItsNameSealedIsToldOfOnce) {
    auto session = watch("");
    auto made = rig_.create(maker_, "v", 100, 0600, kCreateUnnamed);
    ASSERT_TRUE(made);
    EXPECT_EQ(take(session), Texts{});
    ASSERT_TRUE(rig_.store.give_name(maker_, (*made)->id, "v", true));
    EXPECT_EQ(take(session), (Texts{"created v (sealed)"}));
    auto next = rig_.create(maker_, "v", 100, 0600, kCreateUnnamed);
    ASSERT_TRUE(next);
    const NodeId first = (*made)->id;
    ASSERT_TRUE(rig_.store.give_name(maker_, (*next)->id, "v", true));
    auto events = watches_.take(session, kAll);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(describe(events[0]), "replaced v (sealed)");
    EXPECT_EQ(events[0].replaced, first);
    EXPECT_EQ(events[0].id, (*next)->id);
    // An object that already has the name: only the seal is new.
    create("own");
    auto own = rig_.store.open(maker_, "own", Access::write, false);
    ASSERT_TRUE(own);
    take(session);
    ASSERT_TRUE(rig_.store.give_name(maker_, (*own)->id, "own", true));
    EXPECT_EQ(take(session), (Texts{"sealed own"}));
    // A refused publication does not seal, and has no event.
    auto refused = rig_.create(maker_, "free", 100, 0600, kCreateUnnamed);
    ASSERT_TRUE(refused);
    EXPECT_EQ(code_of(rig_.store.give_name(maker_, (*refused)->id, "own", false)), EEXIST);
    EXPECT_EQ((*refused)->state, ObjectState::open);
    EXPECT_EQ(take(session), Texts{});
}

TEST_F(WatchesTest, WhatASessionLeavesUnsealedIsDeleted) {
    auto session = watch("");
    SessionId dies = rig_.store.begin_session({0, 0, 9, {}});
    ASSERT_TRUE(rig_.create(dies, "tmp/x"));
    ASSERT_TRUE(rig_.create(dies, "tmp/sealed"));
    ASSERT_TRUE(rig_.store.seal(dies, "tmp/sealed"));
    take(session);
    rig_.store.end_session(dies);
    EXPECT_EQ(take(session), (Texts{"deleted tmp/x"}));
}

TEST_F(WatchesTest, ADirectoryThatMovesTakesItsNamesAlong) {
    auto all = watch("");
    auto in_b = watch("b/");
    auto partly = watch("a/x");
    create("a/x/1");
    create("a/y");
    for (auto session : {all, in_b, partly}) take(session);
    ASSERT_TRUE(rig_.store.rename(maker_, "a", "b", false));
    EXPECT_EQ(take(all),
              (Texts{"renamed b from a", "renamed b/x from a/x", "renamed b/y from a/y", "renamed b/x/1 from a/x/1"}));
    EXPECT_EQ(take(in_b), (Texts{"created b/x", "created b/y", "created b/x/1"}));
    EXPECT_EQ(take(partly), (Texts{"deleted a/x", "deleted a/x/1"}));
}

TEST_F(WatchesTest, TheMountsChangesAreToldAlike) {
    Files files(rig_.store);
    create("d/keep");
    Directory* d = directory("d");
    ASSERT_NE(d, nullptr);
    auto session = watch("d/");
    const Maker maker{0, 0, 0644};
    auto object = files.make_object(*d, "f", maker);
    ASSERT_TRUE(object);
    ASSERT_TRUE(files.make_directory(*d, "sub", {0, 0, 0755}));
    ASSERT_TRUE(files.make_symlink(*d, "s", maker, "f"));
    EXPECT_EQ(take(session), (Texts{"created d/f", "created d/sub", "created d/s"}));
    ASSERT_TRUE(files.link(**object, *d, "hard"));
    ASSERT_TRUE(files.seal(**object));
    EXPECT_EQ(take(session), (Texts{"created d/hard", "sealed d/f", "sealed d/hard"}));
    ASSERT_TRUE(files.rename(*d, "hard", *d, "s", 0));
    EXPECT_EQ(take(session), (Texts{"replaced d/s from d/hard (sealed)"}));
    create("d/sub/in");
    take(session);
    ASSERT_TRUE(files.rename(*d, "sub", *d, "keep", 2 /* RENAME_EXCHANGE */));
    EXPECT_EQ(take(session), (Texts{"deleted d/sub/in", "replaced d/keep", "created d/keep/in", "replaced d/sub"}));
    ASSERT_TRUE(files.unlink(*d, "f"));
    ASSERT_TRUE(files.unlink(*directory("d/keep"), "in"));
    ASSERT_TRUE(files.remove_directory(*d, "keep"));
    EXPECT_EQ(take(session), (Texts{"deleted d/f (sealed)", "deleted d/keep/in", "deleted d/keep"}));
}

TEST_F(WatchesTest, PrefixesAreTextAndMustBeginNames) {
    auto text = watch("models/ll");
    create("models/llama/w");
    create("models/lla");
    create("models/mistral");
    EXPECT_EQ(take(text), (Texts{"created models/llama", "created models/llama/w", "created models/lla"}));
    auto refuses = [&](std::string_view prefix) {
        SessionId session = rig_.store.begin_session({0, 0, 7, {}});
        return code_of(watches_.add(session, prefix, false, [] {}));
    };
    EXPECT_EQ(refuses("/"), EINVAL);
    EXPECT_EQ(refuses("/a"), EINVAL);
    EXPECT_EQ(refuses("a//"), EINVAL);
    EXPECT_EQ(refuses("a//b"), EINVAL);
    EXPECT_EQ(refuses("a/../b"), EINVAL);
    EXPECT_EQ(refuses("\xff"), EILSEQ);
    EXPECT_EQ(refuses(std::string_view("a\0b", 3)), EINVAL);
    EXPECT_EQ(refuses(std::string(256, 'a')), ENAMETOOLONG);
    std::string longest;
    while (longest.size() < limits::kNameBytes - 1) longest += longest.size() % 200 == 199 ? '/' : 'a';
    EXPECT_EQ(refuses(longest + "a"), 0);
    EXPECT_EQ(refuses(longest + "aa"), ENAMETOOLONG);
    EXPECT_EQ(refuses("a/."), 0) << "of a/.cache";
    EXPECT_EQ(refuses(""), 0);
    EXPECT_EQ(code_of(watches_.add(text, "again", false, [] {})), EBUSY);
}

TEST_F(WatchesTest, OnlyWhatMayBeListedIsSeen) {
    auto make = [&](std::string_view name, uint32_t mode) {
        ASSERT_TRUE(rig_.store.make(maker_, {name, NodeKind::directory, {}, {}, mode, kCreateKeep})) << name;
    };
    make("open", 0755);
    make("closed", 0700);
    make("passage", 0711);
    make("passage/open", 0755);
    auto other = watch("", false, 1000);
    auto in_passage = watch("passage/", false, 1000);
    auto beyond = watch("passage/open/", false, 1000);
    auto root = watch("");
    for (auto name : {"open/a", "closed/b", "passage/c", "passage/open/d"}) create(name);
    EXPECT_EQ(take(other), (Texts{"created open/a"}));
    EXPECT_EQ(take(in_passage), Texts{}) << "who may not list it does not learn its names";
    EXPECT_EQ(take(beyond), (Texts{"created passage/open/d"})) << "who knows the way may list what is there";
    EXPECT_EQ(take(root).size(), 4u);
    ASSERT_TRUE(rig_.store.rename(maker_, "open/a", "closed/a", false));
    EXPECT_EQ(take(other), (Texts{"deleted open/a"})) << "where it went is not for them to know";
    ASSERT_TRUE(rig_.store.unlink(maker_, "closed/a"));
    ASSERT_TRUE(rig_.store.rename(maker_, "closed/b", "open/b", false));
    EXPECT_EQ(take(other), (Texts{"created open/b"}));
    auto existing = watch("", true, 1000);
    EXPECT_EQ(take_all(existing),
              (Texts{"existing open", "existing open/b", "existing closed", "existing passage", "ready"}));
}

TEST_F(WatchesTest, AQueueIsBoundedAndSaysSo) {
    auto session = watch("");
    size_t made = 0;
    while (watches_.queued_bytes(session) + 200 < limits::kWatchQueueBytes) create("n" + std::to_string(made++));
    for (int i = 0; i < 1000; ++i) create("more" + std::to_string(i));
    EXPECT_LE(watches_.queued_bytes(session), limits::kWatchQueueBytes + sizeof(WatchEvent));
    auto events = take(session);
    EXPECT_GE(events.size(), made);
    EXPECT_EQ(events.back(), "overflow");
    EXPECT_EQ(std::ranges::count(events, "overflow"), 1);
    EXPECT_EQ(watches_.queued_bytes(session), 0u);
    create("after");
    EXPECT_EQ(take(session), (Texts{"created after"}));
}

TEST_F(WatchesTest, WhoHasNothingIsWokenOnce) {
    auto session = watch("");
    create("a");
    EXPECT_EQ(wakes_, 0) << "nobody has asked yet";
    EXPECT_EQ(take(session).size(), 1u);
    EXPECT_EQ(take(session), Texts{});
    create("b");
    create("c");
    EXPECT_EQ(wakes_, 1);
    watches_.deliver();
    EXPECT_EQ(ready_, std::set<SessionId>{session});
    EXPECT_EQ(take(session, 1), (Texts{"created b"})) << "one at least";
    EXPECT_EQ(take(session, 1), (Texts{"created c"}));
    watches_.forget(session);
    create("d");
    EXPECT_EQ(wakes_, 1);
}

// Without a watch, a change costs only the test for one: nothing is looked up, written or allocated.
TEST_F(WatchesTest, NobodyListensWithoutNeed) {
    EXPECT_FALSE(rig_.store.has_listener());
    auto session = watch("");
    EXPECT_TRUE(rig_.store.has_listener());
    watches_.forget(session);
    EXPECT_FALSE(rig_.store.has_listener());
}

// Names change during the walk over existing names: all events together give the final state.
TEST_F(WatchesTest, ExistingNamesAreToldWithoutGapOrRepetition) {
    for (unsigned seed = 1; seed <= 200; ++seed) {
        StoreRig rig;
        Watches watches(rig.store);
        SessionId maker = rig.store.begin_session({0, 0, 1, {}});
        unsigned state = seed * 2654435761u;
        auto random = [&](unsigned below) { return (state = state * 1664525u + 1013904223u) / 65536 % below; };
        auto name = [&] {
            std::string made;
            for (unsigned depth = random(3) + 1; depth > 0; --depth)
                made += (made.empty() ? "" : "/") + std::string(1, static_cast<char>('a' + random(4)));
            return made;
        };
        auto change = [&] {
            std::string a = name();
            std::string b = name();
            switch (random(5)) {
                case 0:
                case 1: (void)rig.create(maker, a, 10); break;
                case 2: (void)rig.store.unlink(maker, a); break;
                case 3: (void)rig.store.rename(maker, a, b, random(2) == 0); break;
                case 4: (void)rig.store.add_name(maker, a, b); break;
            }
        };
        for (int i = 0; i < 60; ++i) change();
        const std::string prefix = random(3) == 0 ? "" : random(2) == 0 ? "a/" : "a/b";
        SessionId session = rig.store.begin_session({0, 0, 7, {}});
        ASSERT_TRUE(watches.add(session, prefix, true, [] {}));
        std::map<std::string, NodeId> known;
        bool ready = false;
        for (int empty = 0; empty < 2;) {
            auto events = watches.take(session, 1);
            empty = events.empty() ? empty + 1 : 0;
            for (const auto& event : events) {
                auto context = [&] { return describe(event) + ", seed " + std::to_string(seed); };
                switch (event.event) {
                    case EventKind::existing: ASSERT_FALSE(ready) << context(); [[fallthrough]];
                    case EventKind::created:
                        ASSERT_TRUE(known.emplace(event.name, event.id).second) << context();
                        break;
                    case EventKind::deleted: ASSERT_EQ(known.erase(event.name), 1u) << context(); break;
                    case EventKind::renamed:
                        ASSERT_EQ(known.erase(event.old_name), 1u) << context();
                        ASSERT_TRUE(known.emplace(event.name, event.id).second) << context();
                        break;
                    case EventKind::replaced:
                        if (!event.old_name.empty()) {
                            ASSERT_EQ(known.erase(event.old_name), 1u) << context();
                        }
                        ASSERT_EQ(known[event.name], event.replaced) << context();
                        known[event.name] = event.id;
                        break;
                    case EventKind::ready: ready = true; break;
                    default: FAIL() << context();
                }
            }
            if (!ready) change();
        }
        EXPECT_TRUE(ready);
        std::map<std::string, NodeId> there;
        std::vector<std::pair<const Directory*, std::string>> left{{&rig.store.root(), ""}};
        while (!left.empty()) {
            auto [at, path] = left.back();
            left.pop_back();
            uint64_t end = 0;
            for (const Link* link : at->order.after(0, SIZE_MAX, &end)) {
                std::string full = path + link->name;
                if (full.starts_with(prefix)) there.emplace(full, link->node->id);
                if (const auto* below = as_directory(link->node)) left.emplace_back(below, full + "/");
            }
        }
        ASSERT_EQ(known, there) << "seed " << seed;
    }
}

TEST(NamePrefix, IsCheckedAsANameIs) {
    EXPECT_TRUE(check_name_prefix("a/b/"));
    EXPECT_TRUE(check_name_prefix(".."));
    EXPECT_EQ(code_of(check_name_prefix("../")), EINVAL);
}

}  // namespace
}  // namespace gshm::core
