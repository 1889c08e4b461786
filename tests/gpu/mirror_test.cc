// Mirrors on the GPU: pinned memory, stream order, kernels, and another process that sees flushed bytes.
#include <cstring>

#include "fixture.h"

namespace gshm::core::test {
namespace {

struct MirrorCloser {
    void operator()(gshm_mirror* mirror) const { EXPECT_EQ(gshm_mirror_destroy(mirror), 0) << gshm_last_error(); }
};
using Mirror = std::unique_ptr<gshm_mirror, MirrorCloser>;

class GpuMirror : public GpuTest {
protected:
    Mirror make(const Object& object, uint32_t flags, uint64_t offset = 0, uint64_t bytes = 0, void* stream = nullptr) {
        const gshm_mirror_options options = {sizeof options, flags, offset, bytes, stream};
        gshm_mirror* mirror = nullptr;
        EXPECT_EQ(gshm_mirror_create(object.get(), &options, &mirror), 0) << gshm_last_error();
        return Mirror(mirror);
    }
    static std::vector<std::byte> bytes_of(const Mirror& mirror) {
        const auto* data = static_cast<const std::byte*>(gshm_mirror_data(mirror.get()));
        return {data, data + gshm_mirror_size(mirror.get())};
    }
    static void write(const Mirror& mirror, const std::vector<std::byte>& bytes) {
        ASSERT_EQ(gshm_mirror_mark(mirror.get(), 0, bytes.size()), 0) << gshm_last_error();
        std::memcpy(gshm_mirror_data(mirror.get()), bytes.data(), bytes.size());
    }
    std::vector<std::byte> on_gpu(const Object& object) {
        std::vector<std::byte> bytes(gshm_size(object.get()));
        EXPECT_EQ(gpu().read(gshm_data(object.get()), bytes), cuda::kSuccess);
        return bytes;
    }
    static cuda::CUdeviceptr address(const Object& object) {
        return reinterpret_cast<cuda::CUdeviceptr>(gshm_data(object.get()));
    }

    static constexpr uint32_t kLoad = GSHM_MIRROR_LOAD;
    static constexpr uint32_t kWrite = GSHM_MIRROR_WRITE;
};
GSHM_FOR_EACH_GPU(GpuMirror);

TEST_P(GpuMirror, BytesGoThereAndBack) {
    for (uint64_t bytes : {uint64_t{1}, uint64_t{4096}, uint64_t{70001}, 4 * kMiB + 3, 256 * kMiB}) {
        const std::string name = "o" + std::to_string(bytes);
        const auto object = create(name, bytes);
        const auto data = pattern(bytes, 30);
        {
            const auto mirror = make(object, kWrite);
            write(mirror, data);
        }  // the destructor writes back
        ASSERT_TRUE(on_gpu(object) == data) << bytes;
        ASSERT_EQ(gpu().write(gshm_data(object.get()), pattern(bytes, 31)), cuda::kSuccess);
        ASSERT_TRUE(bytes_of(make(object, kLoad)) == pattern(bytes, 31)) << bytes;
        unlink(name);
    }
}

TEST_P(GpuMirror, AnotherProcessSeesWhatWasFlushed) {
    const auto object = create("shared", 8 * kMiB);
    const auto mirror = make(object, kWrite);
    write(mirror, pattern(8 * kMiB, 32));
    ASSERT_EQ(gshm_mirror_flush(mirror.get()), 0) << gshm_last_error();
    ASSERT_EQ(gshm_seal(object.get()), 0) << gshm_last_error();
    expect_read_elsewhere("shared", 32);
    EXPECT_EQ(gshm_mirror_flush_range(mirror.get(), 0, 1), -EPERM) << "sealed";
    gshm_mirror* none = nullptr;
    const gshm_mirror_options options = {sizeof options, kWrite, 0, 0, nullptr};
    EXPECT_EQ(gshm_mirror_create(object.get(), &options, &none), -EPERM);
}

TEST_P(GpuMirror, OnlyWhatIsMarkedIsWritten) {
    const auto object = create_filled("o", 4 * kMiB, 33, GSHM_DEDICATED);
    const auto open = create("p", 4 * kMiB);
    const auto mirror = make(open, kLoad | kWrite);
    auto* data = static_cast<std::byte*>(gshm_mirror_data(mirror.get()));
    std::memset(data, 0x77, 4 * kMiB);
    auto expected = std::vector<std::byte>(4 * kMiB);
    for (uint64_t at = 1000; at < 4 * kMiB; at += 300000) {
        ASSERT_EQ(gshm_mirror_mark(mirror.get(), at, 5), 0);
        std::fill_n(expected.begin() + static_cast<long>(at), 5, std::byte{0x77});
    }
    ASSERT_EQ(gshm_mirror_flush(mirror.get()), 0) << gshm_last_error();
    EXPECT_TRUE(on_gpu(open) == expected);
    EXPECT_TRUE(on_gpu(object) == pattern(4 * kMiB, 33)) << "and nowhere else";
}

TEST_P(GpuMirror, TheMemoryIsPinned) {
    const auto object = create("o", 4 * kMiB);
    for (uint64_t bytes : {uint64_t{4096}, uint64_t{100000}, 4 * kMiB}) {
        const auto mirror = make(object, kLoad, 0, bytes);
        unsigned type = 0;
        int asked[] = {cuda::kPointerMemoryType};
        void* values[] = {&type};
        const cuda::ScopedContext current(gpu().driver(), gpu().context());
        const auto result = gpu().driver().pointer_get_attributes(
            1, asked, values, reinterpret_cast<cuda::CUdeviceptr>(gshm_mirror_data(mirror.get())));
        ASSERT_EQ(result, cuda::kSuccess);
        if (is_fake_driver()) continue;  // it does not report the memory type
        EXPECT_EQ(type, cuda::kMemoryTypeHost) << bytes;
    }
}

TEST_P(GpuMirror, KernelsAndMirrorsTakeTurns) {
    constexpr uint32_t kCount = 1 << 20;
    const auto object = create("numbers", kCount * 4);
    const auto mirror = make(object, kLoad | kWrite);
    auto* numbers = static_cast<uint32_t*>(gshm_mirror_data(mirror.get()));
    for (uint32_t round = 0; round < 5; ++round) {
        for (uint32_t i = 0; i < kCount; ++i) numbers[i] = i * 3 + round;
        ASSERT_EQ(gshm_mirror_flush_range(mirror.get(), 0, kCount * 4), 0) << gshm_last_error();
        const std::string why =
            is_fake_driver() ? "skip: it does not compute" : gpu().add_one(gshm_data(object.get()), kCount);
        if (why.starts_with("skip: ")) GTEST_SKIP() << why;
        ASSERT_EQ(why, "");
        ASSERT_EQ(gshm_mirror_load(mirror.get(), 0, kCount * 4), 0) << gshm_last_error();
        for (uint32_t i = 0; i < kCount; ++i) ASSERT_EQ(numbers[i], i * 3 + round + 1);
    }
}

TEST_P(GpuMirror, ALoadComesAfterWhatIsOnItsStream) {
    const auto object = create("o", 256 * kMiB);
    auto* stream = make_stream();
    for (uint8_t round = 1; round <= 5; ++round) {
        {
            const cuda::ScopedContext current(gpu().driver(), gpu().context());
            for (uint8_t i = 0; i < 20; ++i) {
                ASSERT_EQ(gpu().driver().memset_d8_async(address(object), i == 19 ? round : 0xFF, 256 * kMiB, stream),
                          cuda::kSuccess);
            }
        }
        const auto mirror = make(object, kLoad, 256 * kMiB - 4096, 4096, stream);
        ASSERT_TRUE(bytes_of(mirror) == std::vector<std::byte>(4096, static_cast<std::byte>(round)));
    }
}

TEST_P(GpuMirror, OtherStreamsAreNotWaitedFor) {
    if (is_fake_driver()) GTEST_SKIP() << "tests/integration has this for the test double";
    const auto work = create("work", 1024 * kMiB);
    const auto object = create("o", 4096);
    auto* busy = make_stream();
    auto* stream = make_stream();
    make(object, kLoad, 0, 0, stream).reset();  // one-time initialisation
    cuda::CUevent event = nullptr;
    {
        const cuda::ScopedContext current(gpu().driver(), gpu().context());
        for (int i = 0; i < 1000; ++i) {  // a few hundred milliseconds
            ASSERT_EQ(gpu().driver().memset_d8_async(address(work), 1, 1024 * kMiB, busy), cuda::kSuccess);
        }
        ASSERT_EQ(gpu().driver().event_create(&event, cuda::kEventDisableTiming), cuda::kSuccess);
        ASSERT_EQ(gpu().driver().event_record(event, busy), cuda::kSuccess);
    }
    {
        const auto mirror = make(object, kLoad | kWrite, 0, 0, stream);
        write(mirror, pattern(4096, 34));
    }
    const cuda::ScopedContext current(gpu().driver(), gpu().context());
    EXPECT_EQ(gpu().driver().event_query(event), cuda::kErrorNotReady) << "the whole GPU was waited for";
    EXPECT_EQ(gpu().driver().event_synchronize(event), cuda::kSuccess);
    gpu().driver().event_destroy(event);
    EXPECT_TRUE(on_gpu(object) == pattern(4096, 34));
}

TEST_P(GpuMirror, OutlivesItsHandleAndTheDaemon) {
    auto object = create("o", 4 * kMiB, GSHM_KEEP);
    auto mirror = make(object, kWrite);
    object.reset();
    kill();
    write(mirror, pattern(4 * kMiB, 35));
    ASSERT_EQ(gshm_mirror_flush(mirror.get()), 0) << gshm_last_error();
    ASSERT_TRUE(start({})) << log();
    mirror.reset();
    client_ = connect();
    EXPECT_TRUE(copy_of(open("o").get()) == pattern(4 * kMiB, 35));
}

}  // namespace
}  // namespace gshm::core::test
