// Pools on the GPU: stream order, and other processes that open allocations of a pool.
#include <cstring>

#include "fixture.h"

namespace gshm::core::test {
namespace {

// A kernel that waits by the GPU's clock, then writes.
constexpr const char* kWriteLater = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry write_later(.param .u64 data, .param .u32 count, .param .u32 value, .param .u64 wait_ns)
{
    .reg .pred %p<3>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [data];
    ld.param.u32 %r1, [count];
    ld.param.u32 %r2, [value];
    ld.param.u64 %rd2, [wait_ns];
    mov.u64 %rd3, %globaltimer;
LATER:
    mov.u64 %rd4, %globaltimer;
    sub.u64 %rd5, %rd4, %rd3;
    setp.lt.u64 %p1, %rd5, %rd2;
    @%p1 bra LATER;
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.u32 %r6, %r3, %r4, %r5;
    setp.ge.u32 %p2, %r6, %r1;
    @%p2 bra DONE;
    cvta.to.global.u64 %rd1, %rd1;
    mul.wide.u32 %rd6, %r6, 4;
    add.u64 %rd7, %rd1, %rd6;
    st.global.u32 [%rd7], %r2;
DONE:
    ret;
}
)";

struct PoolCloser {
    void operator()(gshm_pool* pool) const { gshm_pool_destroy(pool); }
};
using Pool = std::unique_ptr<gshm_pool, PoolCloser>;

class GpuPool : public GpuTest {
protected:
    Pool make(uint64_t slab_bytes, uint64_t limit_bytes) {
        const gshm_pool_options options = {sizeof options, 0600, where().c_str(), nullptr, slab_bytes, limit_bytes};
        gshm_pool* pool = nullptr;
        EXPECT_EQ(gshm_pool_create(client_.get(), &options, &pool), 0) << gshm_last_error();
        return Pool(pool);
    }
    static void* take(const Pool& pool, uint64_t bytes, cuda::CUstream stream) {
        void* memory = nullptr;
        EXPECT_EQ(gshm_pool_allocate(pool.get(), bytes, 0, stream, &memory), 0) << gshm_last_error();
        return memory;
    }
    static void give(const Pool& pool, void* memory, uint64_t bytes, cuda::CUstream stream) {
        EXPECT_EQ(gshm_pool_deallocate(pool.get(), memory, bytes, stream), 0) << gshm_last_error();
    }
    static gshm_pool_stats stats(const Pool& pool) {
        gshm_pool_stats stats = {};
        stats.struct_size = sizeof stats;
        EXPECT_EQ(gshm_pool_get_stats(pool.get(), &stats), 0) << gshm_last_error();
        return stats;
    }
    static gshm_location locate(const void* memory) {
        gshm_location location = {};
        location.struct_size = sizeof location;
        EXPECT_EQ(gshm_pool_locate(memory, &location), 0) << gshm_last_error();
        return location;
    }
    void expect_piece_elsewhere(const void* memory, uint64_t bytes, unsigned seed) {
        const auto there = locate(memory);
        const auto result = run_role("read_piece", {dir(), std::to_string(there.id), std::to_string(there.offset),
                                                    std::to_string(bytes), where(), std::to_string(seed)});
        EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    }
    void TearDown() override {
        GpuTest::TearDown();
        if (module_ == nullptr) return;
        const cuda::ScopedContext current(gpu().driver(), gpu().context());
        FurtherCalls::get().module_unload(module_);
    }

    static constexpr uint64_t kBytes = 2 * kMiB;

    // Writes the first kCount numbers on the stream, 200 ms later. Without kernels it queues many fills, which take
    // some time too. False: they are not reliably slow.
    bool write_later(void* memory, uint8_t byte, cuda::CUstream stream) {
        const cuda::ScopedContext current(gpu().driver(), gpu().context());
        uint32_t count = kCount;
        if (load()) {
            auto data = reinterpret_cast<cuda::CUdeviceptr>(memory);
            uint32_t value = byte * 0x01010101u;
            uint64_t wait_ns = 200'000'000;
            void* parameters[] = {&data, &count, &value, &wait_ns};
            EXPECT_EQ(FurtherCalls::get().launch_kernel(function_, count / 256, 1, 1, 256, 1, 1, 0, stream, parameters,
                                                        nullptr),
                      cuda::kSuccess);
            return true;
        }
        for (int i = 0; i < 100; ++i) fill(memory, byte, kCount * 4, stream);
        return is_fake_driver();  // its fills are slow
    }
    void fill(void* memory, uint8_t byte, uint64_t bytes, cuda::CUstream stream) {
        const cuda::ScopedContext current(gpu().driver(), gpu().context());
        ASSERT_EQ(gpu().driver().memset_d8_async(reinterpret_cast<cuda::CUdeviceptr>(memory), byte, bytes, stream),
                  cuda::kSuccess);
    }
    void finish(cuda::CUstream stream) {
        const cuda::ScopedContext current(gpu().driver(), gpu().context());
        ASSERT_EQ(gpu().driver().stream_synchronize(stream), cuda::kSuccess);
    }
    void expect_all(void* memory, uint64_t bytes, uint8_t byte) {
        std::vector<std::byte> data(bytes);
        ASSERT_EQ(gpu().read(memory, data), cuda::kSuccess);
        EXPECT_TRUE(data == std::vector<std::byte>(bytes, static_cast<std::byte>(byte)));
    }

private:
    bool load() {
        const auto& calls = FurtherCalls::get();
        if (is_fake_driver() || calls.module_load_data == nullptr || calls.launch_kernel == nullptr) return false;
        if (module_ == nullptr && calls.module_load_data(&module_, kWriteLater) != cuda::kSuccess) {
            module_ = nullptr;
            return false;
        }
        return calls.module_get_function(&function_, module_, "write_later") == cuda::kSuccess;
    }

    static constexpr uint32_t kCount = 1 << 16;  // few enough threads to run all at once

    void* module_ = nullptr;
    void* function_ = nullptr;
};
GSHM_FOR_EACH_GPU(GpuPool);

TEST_P(GpuPool, AnotherStreamComesAfterTheOneThatFreedIt) {
    const auto pool = make(kBytes, kBytes);
    auto* first = make_stream();
    auto* second = make_stream();
    for (uint64_t round = 1; round <= 3; ++round) {
        void* memory = take(pool, kBytes, first);
        const bool slow = write_later(memory, 0x11, first);
        give(pool, memory, kBytes, first);
        void* again = take(pool, kBytes, second);
        ASSERT_EQ(again, memory);
        if (slow) {
            EXPECT_EQ(stats(pool).stream_waits, round) << "the kernel still runs";
        }
        fill(again, 0x22, kBytes, second);
        finish(second);
        finish(first);
        expect_all(again, kBytes, 0x22);
        give(pool, again, kBytes, second);
        finish(second);
    }
}

TEST_P(GpuPool, TheSameStreamDoesNotWait) {
    const auto pool = make(kBytes, kBytes);
    auto* stream = make_stream();
    void* memory = take(pool, kBytes, stream);
    write_later(memory, 0x11, stream);
    give(pool, memory, kBytes, stream);
    ASSERT_EQ(take(pool, kBytes, stream), memory);
    fill(memory, 0x33, kBytes, stream);
    give(pool, memory, kBytes, stream);
    finish(stream);
    EXPECT_EQ(take(pool, kBytes, make_stream()), memory) << "it is over";
    EXPECT_EQ(stats(pool).stream_waits, 0u);
    expect_all(memory, kBytes, 0x33);
}

TEST_P(GpuPool, DefaultStreamsHaveAnOrderToo) {
    const auto pool = make(kBytes, kBytes);
    auto* per_thread = reinterpret_cast<cuda::CUstream>(cuda::kStreamPerThread);
    void* memory = take(pool, kBytes, nullptr);
    write_later(memory, 0x11, nullptr);
    give(pool, memory, kBytes, nullptr);
    ASSERT_EQ(take(pool, kBytes, reinterpret_cast<cuda::CUstream>(cuda::kStreamLegacy)), memory);
    EXPECT_EQ(stats(pool).stream_waits, 0u) << "the same stream by another name";
    give(pool, memory, kBytes, nullptr);
    auto* other = make_stream();
    ASSERT_EQ(take(pool, kBytes, other), memory);
    fill(memory, 0x22, kBytes, other);
    finish(other);
    expect_all(memory, kBytes, 0x22);
    give(pool, memory, kBytes, other);
    ASSERT_EQ(take(pool, kBytes, per_thread), memory);
    give(pool, memory, kBytes, per_thread);
}

TEST_P(GpuPool, TrimWaitsForTheGpuAndGivesTheMemoryBack) {
    const auto pool = make(kBytes, 0);
    auto* stream = make_stream();
    void* memory = take(pool, kBytes, stream);
    write_later(memory, 0x11, stream);
    give(pool, memory, kBytes, stream);
    ASSERT_EQ(gshm_pool_trim(pool.get(), 0), 0) << gshm_last_error();
    EXPECT_EQ(stats(pool).reserved_bytes, 0u);
    EXPECT_TRUE(eventually([&] { return info().used_bytes == 0; }));
    finish(stream);  // freed memory under a kernel would have lost the context
}

TEST_P(GpuPool, AnotherProcessReadsWhatWasLocated) {
    const auto pool = make(64 * kMiB, 0);
    take(pool, 12345, nullptr);
    auto* memory = static_cast<std::byte*>(take(pool, 5 * kMiB + 1, nullptr));
    ASSERT_EQ(gpu().write(memory, pattern(5 * kMiB + 1, 40)), cuda::kSuccess);
    expect_piece_elsewhere(memory, 5 * kMiB + 1, 40);
}

TEST_P(GpuPool, ProcessPoolsAreByOrdinal) {
    setenv("GSHM_DIR", dir().c_str(), 1);
    const int ordinal = std::stoi(where().substr(where().find(':') + 1));
    void* memory = gshm_malloc(3 * kMiB, ordinal, nullptr);
    ASSERT_NE(memory, nullptr) << gshm_last_error();
    EXPECT_EQ(std::string(locate(memory).device), where());
    ASSERT_EQ(gpu().write(memory, pattern(3 * kMiB, 41)), cuda::kSuccess);
    expect_piece_elsewhere(memory, 3 * kMiB, 41);
    gshm_free(memory, 3 * kMiB, ordinal, nullptr);
    EXPECT_EQ(gshm_malloc(3 * kMiB, 99, nullptr), nullptr);
    unsetenv("GSHM_DIR");
}

}  // namespace
}  // namespace gshm::core::test
