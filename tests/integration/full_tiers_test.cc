// Full tiers of a full GPU: objects swap their places.
#include "integration/tiers_fixture.h"

namespace gshm::core::test {
namespace {

// The GPU and its tier, or tiers, are full.
class FullTiers : public TiersTest {
protected:
    void SetUp() override { folder_ = scratch() + "/tier"; }
    // As many objects as there is room for; the next one does not fit.
    unsigned fill_all() {
        unsigned made = 0;
        while (made < 64 && try_make(made)) ++made;
        return made;
    }
    bool try_make(unsigned i) {
        auto wanted = spec(name(i).c_str(), kObject, "cuda:0", GSHM_EVICTABLE | GSHM_KEEP | GSHM_NO_MAP);
        gshm_object* object = nullptr;
        if (gshm_create(client_.get(), &wanted, &object) != 0) {
            why_ = gshm_last_error();
            return false;
        }
        put(object, i);
        EXPECT_EQ(gshm_seal(object), 0) << gshm_last_error();
        gshm_close(object);
        pass_tick();
        return true;
    }
    void expect_all(unsigned made) {
        for (int round = 0; round < 3; ++round)
            for (unsigned i = 0; i < made; ++i) EXPECT_TRUE(has_bytes(name(i), i)) << i << ": " << gshm_last_error();
        for (unsigned i = made; i-- > 0;) EXPECT_TRUE(has_bytes(name(i), i)) << i << ": " << gshm_last_error();
    }
    std::string why_;
};

TEST_F(FullTiers, OfTheHostSwapObjects) {
    begin({"--tier", "host:" + std::to_string(4 * kObject)});
    ASSERT_EQ(fill_all(), kRoom + 4) << why_;
    EXPECT_NE(why_.find("of evictable objects could not leave it: the tier host is full"), std::string::npos) << why_;
    EXPECT_NE(log().find("should leave cuda:0 stay there: the tier host is full"), std::string::npos) << log();
    expect_all(kRoom + 4);
    EXPECT_EQ(tiers()[0].used_bytes, 4 * kObject);
    EXPECT_FALSE(try_make(63));
}

TEST_F(FullTiers, OfAFolderSwapObjects) {
    begin({"--tier", folder_ + ":18M"});
    ASSERT_EQ(fill_all(), kRoom + 4) << why_;
    EXPECT_NE(why_.find("the tier " + folder_ + " is full"), std::string::npos) << why_;
    expect_all(kRoom + 4);
    EXPECT_FALSE(try_make(63));
}

TEST_F(FullTiers, OfBothSwapObjects) {
    begin({"--tier", "host:" + std::to_string(2 * kObject), "--tier", folder_ + ":9M"});
    ASSERT_EQ(fill_all(), kRoom + 4) << why_;
    expect_all(kRoom + 4);
    EXPECT_FALSE(try_make(63));
}

TEST_F(FullTiers, SwapObjectsOfSeveralOpeners) {
    begin({"--tier", "host:" + std::to_string(4 * kObject)});
    ASSERT_EQ(fill_all(), kRoom + 4) << why_;
    std::vector<std::thread> openers;
    std::atomic<unsigned> good = 0;
    for (unsigned first = 0; first < 4; ++first) {
        openers.emplace_back([&, first] {
            auto client = connect(kPatience);
            for (unsigned i = 0; i < kRoom + 4; ++i) {
                const unsigned at = (i + first * 3) % (kRoom + 4);
                Object object = open(client.get(), name(at).c_str(), GSHM_NO_MAP);
                good += object && holds(object.get(), at) ? 1 : 0;
            }
        });
    }
    for (auto& opener : openers) opener.join();
    EXPECT_EQ(good, 4 * (kRoom + 4));
    EXPECT_EQ(tiers()[0].used_bytes, 4 * kObject);
}

// Those in slabs leave together, large ones alone.
TEST_F(FullTiers, SwapObjectsOfSeveralSizes) {
    begin({"--tier", "host:" + std::to_string(4 * kObject)});
    struct Made {
        std::string name;
        uint64_t seed = 0;
    };
    std::vector<Made> made;
    constexpr uint64_t kSizes[] = {100'000, kObject, 17, 2 * kObject, kMiB, 3 * kMiB + 5};
    for (unsigned i = 0;; ++i) {
        auto wanted = spec(name(i).c_str(), kSizes[i % 6], "cuda:0", GSHM_EVICTABLE | GSHM_KEEP | GSHM_NO_MAP);
        gshm_object* object = nullptr;
        if (gshm_create(client_.get(), &wanted, &object) != 0) break;
        put(object, i);
        gshm_close(object);
        made.push_back({name(i), i});
    }
    EXPECT_GE(made.size(), 12u);
    for (int round = 0; round < 2; ++round)
        for (const auto& [name, seed] : made) EXPECT_TRUE(has_bytes(name, seed)) << name << ": " << gshm_last_error();
}

TEST_F(FullTiers, OfAFullDeviceSayWhatIsFull) {
    const std::string room = std::to_string(kRoom * kObject);
    ASSERT_TRUE(fake_loaded);
    ASSERT_TRUE(start({"--device", "cuda:0:" + room, "--device", "host:" + std::to_string(2 * kObject), "--tier-free",
                       "0", "--tier", "host:1G"},
                      daemon_env()))
        << log();
    client_ = connect(kPatience);
    const unsigned made = fill_all();
    ASSERT_GE(made, kRoom + 1);
    EXPECT_NE(why_.find("of evictable objects could not leave it"), std::string::npos) << why_;
    EXPECT_EQ(open_code(client_.get(), name(0).c_str(), GSHM_NO_MAP), -ENOSPC);
    EXPECT_NE(std::string(gshm_last_error()).find("host"), std::string::npos) << gshm_last_error();
    // Nothing is lost: with room, it returns.
    ASSERT_EQ(gshm_unlink(client_.get(), name(made - 1).c_str()), 0);
    for (unsigned i = 0; i + 1 < made; ++i) EXPECT_TRUE(has_bytes(name(i), i)) << i;
}

}  // namespace
}  // namespace gshm::core::test
