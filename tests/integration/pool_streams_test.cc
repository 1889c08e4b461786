// Pools on fake GPUs: frees in stream order.
#include "pool_fixture.h"

namespace gshm::core::test::pools {
namespace {

class PoolStreams : public PoolFixture {
protected:
    void SetUp() override {
        PoolFixture::SetUp();
        // The primary context, as in a program.
        ASSERT_EQ(fake<int(unsigned)>("cuInit")(0), 0);
        cuda::CUdevice ordinal = std::string_view(where()) == "cuda:1" ? 1 : 0;
        ASSERT_EQ(fake<int(cuda::CUcontext*, int)>("cuDevicePrimaryCtxRetain")(&context_, ordinal), 0);
        ASSERT_EQ(fake<int(cuda::CUcontext)>("cuCtxPushCurrent_v2")(context_), 0);
    }
    void TearDown() override {
        cuda::CUcontext popped = nullptr;
        fake<int(cuda::CUcontext*)>("cuCtxPopCurrent_v2")(&popped);
    }
    static cuda::CUstream make_stream() {
        cuda::CUstream stream = nullptr;
        EXPECT_EQ(fake<int(cuda::CUstream*, unsigned)>("cuStreamCreate")(&stream, cuda::kStreamNonBlocking), 0);
        return stream;
    }
    static void fill(void* memory, unsigned char value, size_t bytes, cuda::CUstream stream) {
        EXPECT_EQ(fake<int(cuda::CUdeviceptr, unsigned char, size_t, cuda::CUstream)>("cuMemsetD8Async")(
                      reinterpret_cast<cuda::CUdeviceptr>(memory), value, bytes, stream),
                  0);
    }
    static void hold(cuda::CUstream stream, bool held) {
        EXPECT_EQ(fake<int(cuda::CUstream, int)>("fakecuda_hold")(stream, held ? 1 : 0), 0);
    }
    static void finish(cuda::CUstream stream) {
        EXPECT_EQ(fake<int(cuda::CUstream)>("cuStreamSynchronize")(stream), 0);
    }
    static bool all_are(void* memory, size_t bytes, int value) {
        Bytes data(bytes);
        return wrapped(memory, bytes).copy_out(data) && data == Bytes(bytes, static_cast<std::byte>(value));
    }

    cuda::CUcontext context_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Devices, PoolStreams, ::testing::Values("cuda:0", "cuda:1"), [](const auto& info) {
    std::string name = info.param;
    std::erase(name, ':');
    return name;
});

// Without the wait, the second stream would finish before the first one starts, and the bytes of the first would
// remain.
TEST_P(PoolStreams, AnotherStreamComesAfterTheOneThatFreedIt) {
    auto pool = make({.limit_bytes = 4 * kMiB});
    auto* first = make_stream();
    auto* second = make_stream();
    void* memory = pool.allocate(4 * kMiB, first).value();
    hold(first, true);
    fill(memory, 1, 4 * kMiB, first);
    ASSERT_TRUE(pool.deallocate(memory, 4 * kMiB, first));
    void* again = pool.allocate(4 * kMiB, second).value();
    ASSERT_EQ(again, memory) << "it need not be over";
    EXPECT_EQ(pool.stats().value().stream_waits, 1u);
    fill(again, 2, 4 * kMiB, second);
    std::thread later([&] {
        std::this_thread::sleep_for(20ms);  // enough for a second stream that does not wait
        hold(first, false);
    });
    finish(second);
    later.join();
    finish(first);
    EXPECT_TRUE(all_are(memory, 4 * kMiB, 2));
    EXPECT_TRUE(pool.deallocate(again, 4 * kMiB, second));
}

TEST_P(PoolStreams, TheSameStreamAndWhatIsOverNeedNoWait) {
    auto pool = make({.limit_bytes = 4 * kMiB});
    auto* first = make_stream();
    void* memory = pool.allocate(4 * kMiB, first).value();
    hold(first, true);
    fill(memory, 1, 4 * kMiB, first);
    ASSERT_TRUE(pool.deallocate(memory, 4 * kMiB, first));
    ASSERT_EQ(pool.allocate(4 * kMiB, first).value(), memory);
    fill(memory, 3, 4 * kMiB, first);
    ASSERT_TRUE(pool.deallocate(memory, 4 * kMiB, first));
    hold(first, false);
    finish(first);
    ASSERT_EQ(pool.allocate(4 * kMiB, make_stream()).value(), memory);
    EXPECT_EQ(fake_calls("cuStreamWaitEvent"), 0u);
    EXPECT_TRUE(all_are(memory, 4 * kMiB, 3));
}

TEST_P(PoolStreams, DefaultStreams) {
    auto pool = make({.limit_bytes = 4 * kMiB});
    auto* legacy = reinterpret_cast<cuda::CUstream>(cuda::kStreamLegacy);
    auto* thread = reinterpret_cast<cuda::CUstream>(cuda::kStreamPerThread);
    void* memory = pool.allocate(4 * kMiB).value();
    ASSERT_TRUE(pool.deallocate(memory, 4 * kMiB));
    ASSERT_EQ(pool.allocate(4 * kMiB, legacy).value(), memory) << "the same by another name";
    ASSERT_TRUE(pool.deallocate(memory, 4 * kMiB, thread));
    ASSERT_EQ(pool.allocate(4 * kMiB, thread).value(), memory);
    // The legacy stream waits for blocking streams, and so does a free on it.
    auto* busy = make_stream();
    hold(busy, true);
    fill(memory, 1, 4 * kMiB, busy);
    ASSERT_TRUE(pool.deallocate(memory, 4 * kMiB, busy));
    std::thread later([&] { hold(busy, false); });
    ASSERT_EQ(pool.allocate(4 * kMiB).value(), memory);
    fill(memory, 2, 4 * kMiB, nullptr);
    later.join();
    finish(busy);
    EXPECT_TRUE(all_are(memory, 4 * kMiB, 2));
}

TEST_P(PoolStreams, WithoutAStreamItIsForAll) {
    auto pool = make({.limit_bytes = 4 * kMiB});
    auto* first = make_stream();
    void* memory = pool.allocate(4 * kMiB, first).value();
    hold(first, true);
    fill(memory, 1, 4 * kMiB, first);
    ASSERT_TRUE(pool.deallocate(memory, 4 * kMiB, first));
    std::thread later([&] { hold(first, false); });
    ASSERT_EQ(pool.allocate(4 * kMiB, hpp::Stream::none()).value(), memory);
    EXPECT_TRUE(all_are(memory, 4 * kMiB, 1)) << "the stream is through";
    later.join();
}

TEST_P(PoolStreams, ASlabWaitsForItsStreams) {
    auto pool = make();
    auto* first = make_stream();
    void* memory = pool.allocate(4 * kMiB, first).value();
    const auto there = pool.locate(memory).value();
    auto reader = hpp_.open_id(there.id).value();
    hold(first, true);
    fill(memory, 1, 4 * kMiB, first);
    ASSERT_TRUE(pool.deallocate(memory, 4 * kMiB, first));
    std::thread later([&] { hold(first, false); });
    ASSERT_TRUE(pool.trim());
    later.join();
    Bytes data(4 * kMiB);
    ASSERT_TRUE(reader.copy_out(data, there.offset));
    EXPECT_EQ(data, Bytes(4 * kMiB, std::byte{1})) << "it was written before it went";
    EXPECT_EQ(pool.stats().value().slabs, 0u);
}

TEST_P(PoolStreams, FailuresOfTheDriver) {
    auto pool = make({.limit_bytes = 4 * kMiB});
    auto* first = make_stream();
    auto* second = make_stream();
    void* memory = pool.allocate(4 * kMiB, first).value();
    EXPECT_EQ(code(pool.allocate(1, reinterpret_cast<void*>(4096))), EINVAL) << "no stream";
    EXPECT_EQ(code(pool.deallocate(memory, 0, reinterpret_cast<void*>(4096))), EINVAL);
    inject("cuEventRecord:*:400");
    EXPECT_EQ(code(pool.deallocate(memory, 4 * kMiB, first)), EINVAL);
    inject("");
    EXPECT_EQ(pool.stats().value().allocations, 1u);
    hold(first, true);
    fill(memory, 1, 4 * kMiB, first);
    ASSERT_TRUE(pool.deallocate(memory, 4 * kMiB, first));
    inject("cuStreamWaitEvent:*:1");
    EXPECT_EQ(code(pool.allocate(4 * kMiB, second)), EINVAL);
    inject("");
    EXPECT_EQ(pool.allocate(4 * kMiB, second).value(), memory);
    hold(first, false);
}

}  // namespace
}  // namespace gshm::core::test::pools
