// The memory that tiers keep free, without a create that asks for it.
#include "integration/tiers_fixture.h"

namespace gshm::core::test {
namespace {

class TiersReserve : public TiersTest {
protected:
    void SetUp() override {
        folder_ = scratch() + "/tier";
        begin({"--tier", "host:128M"}, "25");
    }
};

TEST_F(TiersReserve, IsKeptFree) {
    for (unsigned i = 0; i < 3 * kRoom; ++i) {
        make_closed(name(i), i);
        EXPECT_TRUE(
            eventually([&] { return device(client_.get(), "cuda:0").object_bytes <= (kRoom - kRoom / 4) * kObject; }));
    }
    for (unsigned i = 0; i < 3 * kRoom; ++i) EXPECT_TRUE(has_bytes(name(i), i)) << i;
}

// A GPU with room for 16 objects, which has 12.
class TiersWatch : public TiersTest {
protected:
    static constexpr unsigned kObjects = 12;
    void SetUp() override {
        folder_ = scratch() + "/tier";
        configure("0");
        auto env = daemon_env();
        env.push_back("FAKECUDA_MEMORY=" + std::to_string(16 * kObject));
        ASSERT_TRUE(fake_loaded);
        ASSERT_TRUE(start({"--config", scratch() + "/gshm.toml", "--device", "cuda:0", "--device", "host:256M",
                           "--tier", "host:128M"},
                          env))
            << log();
        client_ = connect(kPatience);
        fill(kObjects);
        ASSERT_EQ(stays(), kObjects);
    }
    void configure(const std::string& free) {
        std::ofstream(scratch() + "/gshm.toml") << "tier-free = " << free << '\n';
    }
    void reserve(const std::string& bytes) {
        const auto set = run_cli({"limit", "--device", "cuda:0", "--reserve", bytes});
        ASSERT_EQ(set.exit_code, 0) << set.err;
    }
    void others_take(uint64_t bytes) {
        const std::string file = scratch() + "/faults.others";
        std::ofstream(file + ".new") << bytes;
        std::filesystem::rename(file + ".new", file);
    }
    uint64_t stays() { return device(client_.get(), "cuda:0").object_bytes / kObject; }
    void expect_all() {
        for (unsigned i = 0; i < kObjects; ++i) EXPECT_TRUE(has_bytes(name(i), i)) << i;
    }
};

TEST_F(TiersWatch, AReserveMakesObjectsLeaveAtOnce) {
    reserve("50%");
    EXPECT_TRUE(eventually([&] { return stays() <= 8; }));
    EXPECT_EQ(tier(name(0)), "host");
    reserve("90%");
    EXPECT_TRUE(eventually([&] { return stays() <= 1; }));
    expect_all();
    reserve("none");
    expect_all();
}

TEST_F(TiersWatch, AReloadOfTheWatermarkMakesObjectsLeaveAtOnce) {
    configure("75");
    const auto reload = run_cli({"reload"});
    ASSERT_EQ(reload.exit_code, 0) << reload.err;
    EXPECT_TRUE(eventually([&] { return stays() <= 4; }));
    // The reserve comes on top of it: a quarter for other programs, three for the next objects.
    reserve("25%");
    EXPECT_TRUE(eventually([&] { return stays() == 0; }));
    expect_all();
}

TEST_F(TiersWatch, ObjectsLeaveWhenOtherProgramsTakeMemory) {
    reserve(std::to_string(2 * kObject));
    EXPECT_EQ(stays(), kObjects);
    others_take(6 * kObject);
    EXPECT_TRUE(eventually([&] { return stays() <= 8; }));
    others_take(0);
    expect_all();
}

TEST_F(TiersWatch, HeldObjectsLeaveWhenTheyAreReleased) {
    std::vector<Object> held;
    for (unsigned i = 0; i < kObjects; ++i) held.push_back(open(client_.get(), name(i).c_str(), GSHM_NO_MAP));
    reserve("50%");
    EXPECT_GE(stays(), kObjects);
    held.clear();
    EXPECT_TRUE(eventually([&] { return stays() <= 8; }));
    expect_all();
}

}  // namespace
}  // namespace gshm::core::test
