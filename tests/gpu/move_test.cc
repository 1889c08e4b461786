// Objects that move between the host and a GPU, with kernels that read and write them before and after.
#include "fixture.h"

namespace gshm::core::test {
namespace {

class GpuMove : public GpuTest {
protected:
    int move(const std::string& name, const std::string& device, uint32_t flags = 0) {
        return gshm_move(client_.get(), name.c_str(), device.c_str(), flags);
    }
    static std::vector<uint32_t> numbers_of(gshm_object* object) {
        std::vector<uint32_t> numbers(gshm_size(object) / sizeof(uint32_t));
        EXPECT_EQ(gshm_copy_out(object, 0, numbers.data(), gshm_size(object)), 0) << gshm_last_error();
        return numbers;
    }
};
GSHM_FOR_EACH_GPU(GpuMove);

TEST_P(GpuMove, KernelsFindWhatWasMoved) {
    for (uint32_t count : {1000u, 1'000'000u}) {  // in a slab, and in an extent of its own
        const std::string name = "numbers" + std::to_string(count);
        auto object = create(name, count * sizeof(uint32_t), GSHM_KEEP);
        std::vector<uint32_t> numbers(count);
        for (uint32_t i = 0; i < count; ++i) numbers[i] = i * 7;
        ASSERT_EQ(gshm_copy_in(object.get(), 0, numbers.data(), count * sizeof(uint32_t)), 0) << gshm_last_error();
        const auto problem = gpu().add_one(gshm_data(object.get()), count);
        if (problem.starts_with("skip: ")) GTEST_SKIP() << problem;
        ASSERT_EQ(problem, "");
        object.reset();

        // On the host the CPU reads the numbers that the kernel wrote.
        ASSERT_EQ(move(name, "host"), 0) << gshm_last_error();
        EXPECT_STREQ(stat(name).device, "host");
        for (auto& number : numbers) ++number;
        object = open(name, GSHM_WRITE);
        EXPECT_TRUE(std::equal(numbers.begin(), numbers.end(), static_cast<const uint32_t*>(gshm_data(object.get()))));
        for (uint32_t i = 0; i < count; ++i) static_cast<uint32_t*>(gshm_data(object.get()))[i] += 5;
        object.reset();

        // Back on the GPU a kernel reads the numbers that the CPU wrote.
        ASSERT_EQ(move(name, where()), 0) << gshm_last_error();
        EXPECT_EQ(stat(name).device, where());
        object = open(name, GSHM_WRITE);
        ASSERT_EQ(gpu().add_one(gshm_data(object.get()), count), "");
        for (auto& number : numbers) number += 6;
        EXPECT_EQ(numbers_of(object.get()), numbers);
        object.reset();
        unlink(name);
    }
}

TEST_P(GpuMove, AHolderReadsTheOldMemoryOnTheGpu) {
    create_filled("sealed", 4 * kMiB, 3, GSHM_KEEP);
    auto held = open("sealed");
    EXPECT_EQ(move("sealed", "host"), -EBUSY);
    ASSERT_EQ(move("sealed", "host", GSHM_MOVE_KEEP_HOLDERS), 0) << gshm_last_error();
    std::vector<std::byte> seen(4 * kMiB);
    ASSERT_EQ(gpu().read(gshm_data(held.get()), seen), cuda::kSuccess);
    EXPECT_EQ(seen, pattern(4 * kMiB, 3));
    EXPECT_EQ(copy_of(open("sealed").get()), pattern(4 * kMiB, 3));
    held.reset();
    // The GPU's memory is freed, or kept for reuse, which counts as free.
    EXPECT_TRUE(eventually([&] { return info().object_bytes == 0; }));
    unlink("sealed");
}

TEST_P(GpuMove, ALargeObject) {
    // The device `host` of this suite has 64 MiB.
    constexpr uint64_t kBytes = 48 * kMiB;
    create_filled("large", kBytes, 5, GSHM_KEEP);
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_EQ(move("large", "host"), 0) << gshm_last_error();
    ASSERT_EQ(move("large", where()), 0) << gshm_last_error();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    print_fact("48 MiB to the host and back take " + std::to_string(took.count() * 1000) + " ms");
    EXPECT_EQ(copy_of(open("large").get()), pattern(kBytes, 5));
    expect_read_elsewhere("large", 5);
    unlink("large");
}

}  // namespace
}  // namespace gshm::core::test
