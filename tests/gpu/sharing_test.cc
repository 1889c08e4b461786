// The bytes of one process in another: objects, pointers, batches, kernels, further GPUs.
#include "fixture.h"

namespace gshm::core::test {
namespace {

class GpuSharing : public GpuTest {};
GSHM_FOR_EACH_GPU(GpuSharing);

TEST_P(GpuSharing, AnotherProcessReadsByCopyAndByPointer) {
    for (uint64_t bytes : {uint64_t{1}, uint64_t{4097}, kMiB, 3 * kMiB + 1, 64 * kMiB}) {
        const std::string name = "shared/" + std::to_string(bytes);
        const auto object = create_filled(name, bytes, 1);
        ASSERT_TRUE(object);
        expect_read_elsewhere(name, 1);
        // This process reads by pointer and through the daemon.
        std::vector<std::byte> seen(bytes);
        ASSERT_EQ(gpu().read(gshm_data(object.get()), seen), cuda::kSuccess);
        EXPECT_EQ(seen, pattern(bytes, 1));
        EXPECT_EQ(copy_of(open(name, GSHM_NO_MAP).get()), seen) << "through the daemon";
    }
}

TEST_P(GpuSharing, WhatAnotherProcessWroteOutlivesIt) {
    const auto result = run_role("write", {dir(), "left/behind", where(), std::to_string(8 * kMiB), "2", "seal"});
    ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
    EXPECT_EQ(copy_of(open("left/behind").get()), pattern(8 * kMiB, 2));
    expect_read_elsewhere("left/behind", 2);
}

TEST_P(GpuSharing, WritesAreSeenThroughEveryMapping) {
    const auto writer = create("live", kMiB);
    const auto second = connect();
    const auto reader = open_object(second.get(), "live");
    ASSERT_TRUE(reader) << gshm_last_error();
    for (unsigned seed : {3u, 4u}) {
        ASSERT_EQ(gpu().write(gshm_data(writer.get()), pattern(kMiB, seed)), cuda::kSuccess);
        EXPECT_EQ(copy_of(reader.get()), pattern(kMiB, seed));
        EXPECT_EQ(copy_of(open("live", GSHM_NO_MAP).get()), pattern(kMiB, seed)) << "through the daemon";
    }
    ASSERT_EQ(gshm_fill(writer.get(), 0, kMiB, 0x5C), 0) << gshm_last_error();
    EXPECT_EQ(copy_of(reader.get()), std::vector<std::byte>(kMiB, std::byte{0x5C}));
}

TEST_P(GpuSharing, KernelsComputeOnAnObject) {
    constexpr uint32_t kCount = 100'000;
    const auto object = create("numbers", kCount * sizeof(uint32_t));
    std::vector<uint32_t> numbers(kCount);
    for (uint32_t i = 0; i < kCount; ++i) numbers[i] = i * 7;
    ASSERT_EQ(gshm_copy_in(object.get(), 0, numbers.data(), numbers.size() * sizeof(uint32_t)), 0) << gshm_last_error();
    const auto problem = gpu().add_one(gshm_data(object.get()), kCount);
    if (problem.starts_with("skip: ")) GTEST_SKIP() << problem;
    ASSERT_EQ(problem, "");
    std::vector<uint32_t> after(kCount);
    ASSERT_EQ(gshm_copy_out(object.get(), 0, after.data(), after.size() * sizeof(uint32_t)), 0) << gshm_last_error();
    for (auto& number : numbers) ++number;
    EXPECT_EQ(after, numbers);
}

TEST_P(GpuSharing, ThreeThousandAtOnce) {
    constexpr uint32_t kCount = 3000;
    std::vector<std::string> names;
    std::vector<gshm_create_spec> specs;
    for (uint32_t i = 0; i < kCount; ++i) names.push_back("many/" + std::to_string(i));
    for (const auto& name : names) {
        specs.push_back(GSHM_CREATE_SPEC_INIT);
        specs.back().name = name.c_str();
        specs.back().size_bytes = 64 << 10;
        specs.back().device = where().c_str();
    }
    std::vector<gshm_object*> objects(kCount);
    std::vector<int> status(kCount);
    ASSERT_EQ(gshm_create_batch(client_.get(), specs.data(), kCount, objects.data(), status.data()), 0)
        << gshm_last_error();
    for (uint32_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(gshm_copy_in(objects[i], 0, &i, sizeof i), 0) << names[i] << ": " << gshm_last_error();
    }
    ASSERT_EQ(gshm_seal_batch(objects.data(), kCount, status.data()), 0) << gshm_last_error();
    gshm_close_batch(objects.data(), kCount);
    const auto result = run_role("read_batch", {dir(), "many/", where(), std::to_string(kCount)});
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
}

TEST_P(GpuSharing, AFurtherGpuReachesIt) {
    const auto all = gpu_names();
    if (all.size() < 2) GTEST_SKIP() << "this machine has one GPU";
    const auto& other = all[0] == where() ? all[1] : all[0];
    const auto object = create_filled("peer", 4 * kMiB, 5);
    const int code = gshm_map_peer(object.get(), other.c_str());
    if (code == -EOPNOTSUPP) GTEST_SKIP() << gshm_last_error();
    ASSERT_EQ(code, 0) << gshm_last_error();
    std::vector<std::byte> seen(4 * kMiB);
    ASSERT_EQ(Gpu(other).read(gshm_data(object.get()), seen), cuda::kSuccess);
    EXPECT_EQ(seen, pattern(4 * kMiB, 5));
}

TEST_P(GpuSharing, AProcessThatCannotSeeTheGpuIsToldSo) {
    const auto object = create_filled("hidden", kMiB, 6);
    const auto result = run_role("be_blind", {dir(), "hidden"}, {"CUDA_VISIBLE_DEVICES="});
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    print_fact("with CUDA_VISIBLE_DEVICES empty, an open says: " + result.out.substr(0, result.out.find('\n')));
}

}  // namespace
}  // namespace gshm::core::test
