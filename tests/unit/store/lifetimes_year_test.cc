// A year of ttls, uses and pins. A model says when each object must go. The clock is fake: it goes from event to event, and
// the year takes less than a second.
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "store/lifetimes.h"
#include "store/shared.h"
#include "support/recount.h"
#include "support/store_rig.h"

namespace gshm::core::test {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kHour = 3600 * kSecond;
constexpr int64_t kYear = 365 * 24 * kHour;

class Year final : private NameListener {
public:
    explicit Year(unsigned seed) : random_(seed) { rig_.store.add_listener(this); }
    ~Year() override { rig_.store.remove_listener(this); }

    void pass() {
        const int64_t end = rig_.clock.steady_ns() + kYear;
        constexpr int64_t kBetween = kYear / 30'000;
        while (rig_.clock.steady_ns() < end && !::testing::Test::HasFailure()) {
            go_to(rig_.clock.steady_ns() + 1 + static_cast<int64_t>(random_() % (2 * kBetween)));
            act();
            ASSERT_EQ(names_.size(), model_.size());
        }
        EXPECT_GT(expired_, 2000);
        EXPECT_GT(extended_, 500);
        expect_true_accounts(rig_.store);
    }

private:
    struct Entry {
        NodeId id = 0;
        int64_t ttl = 0;
        bool unused = false;
        int64_t from = 0;
        int held = 0;
        bool pinned = false;
        int64_t unpinned = 0;  // goes at once then, if its time has passed
    };
    static constexpr int64_t kNever = INT64_MAX;

    void removing(const Link& link) override { names_.erase(link.name); }
    void replacing(const Link&) override {}
    void added(const Link& link) override { names_.insert(link.name); }
    void moving(const Link& link, const Directory&, std::string_view) override { names_.erase(link.name); }
    void moved(const Link& link) override { names_.insert(link.name); }
    void exchanging(const Link&, const Link&) override {}
    void exchanged(const Link&, const Link&) override {}
    void sealed(const Object&) override {}
    void expiring(const Link& link) override {
        auto entry = model_.find(link.name);
        ASSERT_NE(entry, model_.end()) << link.name;
        EXPECT_EQ(end_of(entry->second), rig_.clock.steady_ns()) << link.name << " goes early or late";
        names_.erase(link.name);
        forget(entry);
        ++expired_;
    }

    static int64_t end_of(const Entry& entry) {
        const bool stays = entry.ttl == 0 || entry.pinned || (entry.unused && entry.held > 0);
        return stays ? kNever : std::max(entry.from + entry.ttl, entry.unpinned);
    }
    using Model = std::map<std::string, Entry, std::less<>>;
    // Changes an entry, and its place among the ends.
    template <typename Change>
    void update(Model::iterator entry, const Change& change) {
        ends_.erase({end_of(entry->second), entry->first});
        change(entry->second);
        ends_.insert({end_of(entry->second), entry->first});
    }
    void forget(Model::iterator entry) {
        ends_.erase({end_of(entry->second), entry->first});
        if (entry->second.held > 0) unlinked_.insert({entry->second.id, entry->second.held});
        model_.erase(entry);
    }

    // The timer's part.
    void go_to(int64_t until) {
        for (;;) {
            const auto due = rig_.store.lifetimes().next_due();
            const int64_t first = ends_.empty() ? kNever : ends_.begin()->first;
            ASSERT_TRUE(first == kNever || (due && *due <= first)) << "the timer would be late";
            if (!due || *due > until) break;
            const int64_t now = std::max(*due, rig_.clock.steady_ns());
            rig_.clock.advance(now - rig_.clock.steady_ns());
            const int before = expired_;
            while (rig_.store.lifetimes().expire(1 + random_() % 64)) {}
            if (before == expired_) ++extended_;
        }
        rig_.clock.advance(until - rig_.clock.steady_ns());
    }

    int64_t some_ttl() {
        static const int64_t kinds[] = {kSecond, 60 * kSecond, kHour, 24 * kHour, 30 * 24 * kHour};
        return 1 + static_cast<int64_t>(random_() % static_cast<uint64_t>(2 * kinds[random_() % 5]));
    }
    Model::iterator some() { return std::next(model_.begin(), static_cast<int64_t>(random_() % model_.size())); }

    void act() {
        const int64_t now = rig_.clock.steady_ns();
        const unsigned what = model_.size() < 20 ? 0 : random_() % 16;
        if (what < 4) return create();
        auto entry = some();
        const std::string name = entry->first;
        if (what < 7) {  // open, perhaps under the shared lock, and release at once or later
            if (random_() % 2 == 0) ASSERT_NE(shared_.open(session_, name, false), nullptr);
            else ASSERT_TRUE(rig_.store.open(session_, name, Access::read, false));
            update(entry, [&](Entry& changed) {
                ++changed.held;
                if (changed.unused) changed.from = now;
            });
            if (what == 5) release(entry);
        } else if (what < 10) {
            if (entry->second.held > 0) release(entry);
        } else if (what == 10) {
            const bool unused = random_() % 2 == 0;
            const int64_t ttl = random_() % 5 == 0 ? 0 : some_ttl();
            ASSERT_TRUE(rig_.store.change(session_, name, {kChangeTtl, 0, 0, 0, ttl, unused}));
            update(entry, [&](Entry& changed) {
                changed.ttl = ttl;
                changed.unused = unused && ttl != 0;
                changed.from = now;
            });
        } else if (what == 11) {
            ASSERT_TRUE(rig_.store.change(random_() % 2 == 0 ? root_ : session_, name, {.what = kChangePin}));
            update(entry, [](Entry& changed) { changed.pinned = true; });
        } else if (what < 14) {
            ASSERT_TRUE(rig_.store.change(root_, name, {.what = kChangeUnpin}));
            update(entry, [&](Entry& changed) {
                if (std::exchange(changed.pinned, false)) changed.unpinned = now;
            });
            go_to(now);  // its time may have passed
        } else if (what == 14) {
            const std::string to = "n" + std::to_string(++last_);
            Entry moved = entry->second;
            ASSERT_TRUE(rig_.store.rename(session_, name, to, false));
            ends_.erase({end_of(moved), name});
            model_.erase(entry);
            ends_.insert({end_of(moved), to});
            model_.emplace(to, moved);
        } else if (model_.size() > 1000) {
            ASSERT_TRUE(rig_.store.unlink(session_, name));
            forget(entry);
        } else if (!unlinked_.empty()) {
            auto [id, held] = *unlinked_.begin();
            for (int i = 0; i < held; ++i) ASSERT_TRUE(rig_.store.release(session_, id, Access::read));
            ASSERT_EQ(rig_.store.object(id), nullptr);
            unlinked_.erase(unlinked_.begin());
        }
    }

    void release(Model::iterator entry) {
        const NodeId id = entry->second.id;
        if (shared_.can_release(session_, id)) shared_.release(session_, id, Access::read);
        else ASSERT_TRUE(rig_.store.release(session_, id, Access::read));
        // Only the last release is sure to be noted, and the time passes from there.
        update(entry, [&](Entry& changed) {
            if (--changed.held == 0 && changed.unused) changed.from = rig_.clock.steady_ns();
        });
    }

    void create() {
        const std::string name = "n" + std::to_string(++last_);
        Entry entry;
        entry.ttl = random_() % 8 == 0 ? 0 : some_ttl();
        entry.unused = entry.ttl != 0 && random_() % 2 == 0;
        entry.from = rig_.clock.steady_ns();
        CreateSpec spec;
        spec.name = name;
        spec.size_bytes = 100;
        spec.flags = kCreateKeep | (entry.unused ? uint32_t{kCreateTtlUnused} : 0u);
        spec.ttl_ns = entry.ttl;
        auto made = rig_.create(session_, spec);
        ASSERT_TRUE(made);
        entry.id = (*made)->id;
        ASSERT_TRUE(rig_.store.release(session_, entry.id, Access::write));
        ends_.insert({end_of(entry), name});
        model_.emplace(name, entry);
    }

    std::mt19937_64 random_;
    StoreRig rig_;
    SharedStore shared_{rig_.store};
    SessionId root_ = rig_.store.begin_session({0, 0, 1, {}});
    SessionId session_ = rig_.store.begin_session({1000, 1000, 2, {}});
    Model model_;
    std::set<std::pair<int64_t, std::string>> ends_;
    std::map<NodeId, int> unlinked_;
    std::set<std::string, std::less<>> names_;
    uint64_t last_ = 0;
    int expired_ = 0;
    int extended_ = 0;  // looked at, and not expired
};

TEST(Lifetimes, AYearOfTtls) {
    for (unsigned seed = 1; seed <= 2 && !HasFailure(); ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Year(seed).pass();
    }
}

}  // namespace
}  // namespace gshm::core::test
