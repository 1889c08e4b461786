// Fences on the GPU: streams of two processes, a long kernel, and a kernel that is killed with its process.
#include "fixture.h"

namespace gshm::core::test {
namespace {

struct FenceCloser {
    void operator()(gshm_fence* fence) const { gshm_fence_close(fence); }
};
using Fence = std::unique_ptr<gshm_fence, FenceCloser>;

class GpuFence : public GpuTest {
protected:
    void SetUp() override {
        GpuTest::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        stream_ = make_stream();
        if (auto why = gpu().spin(stream_, std::chrono::nanoseconds(1)); why.starts_with("skip")) GTEST_SKIP() << why;
    }
    Fence open_fence(const Object& object, uint32_t flags = 0) {
        gshm_fence* fence = nullptr;
        EXPECT_EQ(gshm_fence_open(object.get(), flags, &fence), 0) << gshm_last_error();
        return Fence(fence);
    }
    // Reads on stream_, after the work that the stream waits for.
    std::vector<std::byte> read(const Object& object) {
        std::vector<std::byte> bytes(gshm_size(object.get()));
        const cuda::ScopedContext current(gpu().driver(), gpu().context());
        EXPECT_EQ(gpu().driver().memcpy_dtoh_async(bytes.data(),
                                                   reinterpret_cast<cuda::CUdeviceptr>(gshm_data(object.get())),
                                                   bytes.size(), stream_),
                  cuda::kSuccess);
        EXPECT_EQ(gpu().driver().stream_synchronize(stream_), cuda::kSuccess);
        return bytes;
    }

    cuda::CUstream stream_ = nullptr;
};
GSHM_FOR_EACH_GPU(GpuFence);

TEST_P(GpuFence, AStreamWaitsForAKernelOfAnotherProcess) {
    const auto object = create("o", 4 * kMiB);
    ChildProcess writer;
    ASSERT_TRUE(writer.spawn(role("publish", {dir(), "o", where(), "700", "90"})));
    const auto fence = open_fence(object);
    uint64_t generation = 0;
    ASSERT_EQ(gshm_fence_wait(fence.get(), stream_, 1, 60000, &generation), 0) << gshm_last_error();
    EXPECT_EQ(gshm_fence_check(fence.get(), 1), -EAGAIN) << "this has returned before the kernel was done";
    EXPECT_TRUE(read(object) == std::vector(4 * kMiB, std::byte{90}));
    EXPECT_EQ(gshm_fence_check(fence.get(), 1), 0);
    ASSERT_EQ(gshm_fence_wait(fence.get(), stream_, 0, 0, &generation), 0) << gshm_last_error();
    EXPECT_EQ(generation, 1u);
}

TEST_P(GpuFence, AStreamThatWaitsForAKilledProcessGoesOn) {
    const auto object = create("o", 4 * kMiB);
    ChildProcess writer;
    ASSERT_TRUE(writer.spawn(role("publish", {dir(), "o", where(), "20000", "91"})));
    const auto fence = open_fence(object);
    ASSERT_EQ(gshm_fence_wait(fence.get(), stream_, 1, 60000, nullptr), 0) << gshm_last_error();
    EXPECT_EQ(gshm_fence_check(fence.get(), 1), -EAGAIN);
    writer.signal(SIGKILL);
    read(object);  // hangs if the stream is never released
    EXPECT_EQ(gshm_fence_check(fence.get(), 1), -EOWNERDEAD);
    EXPECT_EQ(gshm_fence_wait(fence.get(), stream_, 1, 0, nullptr), -EOWNERDEAD);
    EXPECT_EQ(gshm_fence_wait(fence.get(), stream_, 2, 60000, nullptr), -EOWNERDEAD);
    // This process becomes the writer.
    const auto mine = open_fence(object, GSHM_WRITE);
    uint64_t generation = 0;
    ASSERT_EQ(gshm_fence_publish(mine.get(), stream_, &generation), 0) << gshm_last_error();
    EXPECT_EQ(generation, 2u);
    ASSERT_EQ(gshm_fence_wait(fence.get(), stream_, 2, 0, nullptr), 0) << gshm_last_error();
    read(object);
    EXPECT_EQ(gshm_fence_check(fence.get(), 2), 0);
}

TEST_P(GpuFence, StreamsOfOneProcessKeepTheirOrder) {
    const auto object = create("o", 4096);
    const auto fence = open_fence(object, GSHM_WRITE);
    const cuda::ScopedContext current(gpu().driver(), gpu().context());
    const auto slow = make_stream();
    ASSERT_EQ(gpu().spin(slow, std::chrono::milliseconds(300)), "");
    ASSERT_EQ(gshm_fence_publish(fence.get(), slow, nullptr), 0) << gshm_last_error();
    ASSERT_EQ(gshm_fence_publish(fence.get(), stream_, nullptr), 0) << gshm_last_error();
    EXPECT_EQ(gshm_fence_check(fence.get(), 2), -EAGAIN) << "the first is not done";
    ASSERT_EQ(gpu().driver().stream_synchronize(stream_), cuda::kSuccess);
    EXPECT_EQ(gshm_fence_check(fence.get(), 1), 0);
    EXPECT_EQ(gshm_fence_check(fence.get(), 2), 0);
}

}  // namespace
}  // namespace gshm::core::test
