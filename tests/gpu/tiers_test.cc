// Evictable objects leave a full GPU and return, while kernels of this and other processes use the objects that stay.
#include <filesystem>

#include "fixture.h"

namespace gshm::core::test {
namespace {

constexpr uint64_t kObject = 32 * kMiB;
constexpr unsigned kObjects = 16;  // twice as many as the GPU's share has room for

class GpuTiers : public GpuTest {
protected:
    void SetUp() override {
        std::string why;
        if (gpu_names(&why).empty()) GTEST_SKIP() << "no GPU: " << why;
        folder_ = dir() + "-tier";
        std::filesystem::create_directories(folder_);
        std::filesystem::permissions(folder_, std::filesystem::perms::owner_all);
        std::vector<std::string> options = {"--device", where() + ":" + std::to_string(8 * kObject), "--device",
                                            "host:512M"};
        // The host has room for four, the folder for the rest.
        for (const auto& tier : {"host:" + std::to_string(4 * kObject), folder_ + ":2G"}) {
            options.insert(options.end(), {"--tier", tier});
        }
        ASSERT_TRUE(start(options)) << log();
        client_ = connect();
    }
    void TearDown() override {
        GpuTest::TearDown();
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }
    static std::string name(unsigned i) { return "w" + std::to_string(i); }
    std::string tier(const std::string& of) { return stat(of).tier; }

    std::string folder_;
};
GSHM_FOR_EACH_GPU(GpuTiers);

TEST_P(GpuTiers, EvictsAndReturnsWhileKernelsRun) {
    // Held by this process for writing, and used by kernels all the time: it never moves.
    auto held = create("held", kObject, GSHM_EVICTABLE | GSHM_KEEP);
    ASSERT_EQ(gshm_fill(held.get(), 0, kObject, 0), 0) << gshm_last_error();
    const void* const address = gshm_data(held.get());
    uint32_t kernels = 0;
    auto work = [&] {
        const std::string why = gpu().add_one(gshm_data(held.get()), kObject / sizeof(uint32_t));
        ASSERT_TRUE(why.empty() || why.starts_with("skip")) << why;
        kernels += why.empty() ? 1 : 0;
    };
    for (unsigned i = 0; i < kObjects; ++i) {
        create_filled(name(i), kObject, i, GSHM_EVICTABLE).reset();
        work();
    }
    unsigned on_host = 0;
    unsigned on_disk = 0;
    for (unsigned i = 0; i < kObjects; ++i) {
        on_host += tier(name(i)) == "host" ? 1 : 0;
        on_disk += tier(name(i)) == "disk" ? 1 : 0;
    }
    EXPECT_GT(on_host, 0u);
    EXPECT_GT(on_disk, 0u);
    // Every one returns, in an order that evicts others each time; this and another process read the bytes.
    for (unsigned round = 0; round < 2; ++round) {
        for (unsigned i = 0; i < kObjects; ++i) {
            const unsigned which = (i * 5 + round) % kObjects;
            {
                auto object = open(name(which));
                ASSERT_TRUE(object);
                EXPECT_TRUE(copy_of(object.get()) == pattern(kObject, which)) << name(which);
            }
            EXPECT_EQ(tier(name(which)), "");
            work();
        }
        expect_read_elsewhere(name(round), round);
    }
    EXPECT_EQ(tier("held"), "");
    EXPECT_EQ(gshm_data(held.get()), address);
    if (kernels > 0) {
        uint32_t first = 0;
        ASSERT_EQ(gshm_copy_out(held.get(), kObject - sizeof first, &first, sizeof first), 0) << gshm_last_error();
        EXPECT_EQ(first, kernels);
    }
}

TEST_P(GpuTiers, AKillWhileObjectsLeaveAndReturnLosesNothing) {
    for (unsigned i = 0; i < kObjects; ++i) create_filled(name(i), kObject, i, GSHM_EVICTABLE).reset();
    for (unsigned round = 0; round < 4; ++round) {
        // An open of one that has left is under way when gshmd is killed; it succeeds with the next one.
        std::thread opener([&] {
            auto client = connect();
            for (unsigned i = 0; i < 4; ++i) (void)open_object(client.get(), name((round * 4 + i) % kObjects));
        });
        kill();
        ASSERT_TRUE(start({})) << log();
        opener.join();
        for (unsigned i = 0; i < kObjects; ++i) {
            auto object = open(name(i));
            ASSERT_TRUE(object) << name(i);
            EXPECT_TRUE(copy_of(object.get()) == pattern(kObject, i)) << name(i);
        }
    }
}

TEST_P(GpuTiers, AFullOfPinnedObjectsIsFull) {
    for (unsigned i = 0; i < 8; ++i) {
        create_filled(name(i), kObject, i, GSHM_EVICTABLE).reset();
        ASSERT_EQ(gshm_pin(client_.get(), name(i).c_str()), 0) << gshm_last_error();
    }
    Object more;
    EXPECT_EQ(try_create("more", kObject, 0, more), -ENOSPC);
    ASSERT_EQ(gshm_unpin(client_.get(), name(3).c_str()), 0) << gshm_last_error();
    EXPECT_EQ(try_create("more", kObject, 0, more), 0) << gshm_last_error();
    EXPECT_EQ(tier(name(3)), "host");
    for (unsigned i : {0u, 7u}) EXPECT_EQ(tier(name(i)), "");
}

}  // namespace
}  // namespace gshm::core::test
