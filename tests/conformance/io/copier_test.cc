// The GPU copier over the fake driver, whose copies are asynchronous.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <future>
#include <latch>

#include "device/cuda.h"
#include "device/limit.h"
#include "device/unavailable.h"
#include "rig.h"

namespace gshm::core::io::test {
namespace {

constexpr uint64_t kMiB = 1 << 20;

unsigned long calls(const char* symbol) {
    (void)cuda_device();
    using Count = unsigned long (*)(const char*);
    static const auto count = reinterpret_cast<Count>(dlsym(RTLD_DEFAULT, "fakecuda_calls"));
    return count(symbol);
}

Status wait_for(std::move_only_function<void(Copier::Done)> call) {
    std::promise<Status> promise;
    call([&](Status status) { promise.set_value(std::move(status)); });
    return promise.get_future().get();
}

TEST(CudaCopier, BothWays) {
    auto extent = *cuda_device().allocate(8 * kMiB, {});
    Copier* copier = extent->copier();
    ASSERT_NE(copier, nullptr);
    EXPECT_EQ(copier, extent->copier());
    std::string text = pattern(3 * kMiB, 1);
    auto* bytes = reinterpret_cast<std::byte*>(text.data());
    ASSERT_TRUE(
        wait_for([&](auto done) { copier->copy_in(extent->address() + 7, bytes, text.size(), std::move(done)); }));
    ASSERT_TRUE(wait_for([&](auto done) { copier->fill(extent->address() + 100, 50, 0xAB, std::move(done)); }));
    std::string back(text.size(), '\0');
    ASSERT_TRUE(wait_for([&](auto done) {
        copier->copy_out(reinterpret_cast<std::byte*>(back.data()), extent->address() + 7, back.size(),
                         std::move(done));
    }));
    text.replace(93, 50, 50, '\xAB');
    EXPECT_TRUE(back == text);
}

// Many copies are in flight, and none waits for the device or the legacy stream.
TEST(CudaCopier, ManyUnderWay) {
    auto extent = *cuda_device().allocate(8 * kMiB, {});
    Copier* copier = extent->copier();
    std::string text = pattern(4 * kMiB, 2);
    const auto synchronized = calls("cuStreamSynchronize");
    std::latch left(1024);
    std::atomic<int> failed = 0;
    for (int i = 0; i < 1024; ++i) {
        copier->copy_in(extent->address() + i * 4096, reinterpret_cast<std::byte*>(text.data()) + i * 4096, 4096,
                        [&](Status status) {
                            if (!status) ++failed;
                            left.count_down();
                        });
    }
    left.wait();
    EXPECT_EQ(failed, 0);
    EXPECT_EQ(calls("cuStreamSynchronize"), synchronized);
    EXPECT_LT(calls("cuEventCreate"), 2000u);
    std::string back(text.size(), '\0');
    ASSERT_TRUE(extent->copy_out(0, std::as_writable_bytes(std::span(back))));
    EXPECT_TRUE(back == text);
}

TEST(CudaCopier, WrongAddresses) {
    auto extent = *cuda_device().allocate(2 * kMiB, {});
    std::byte bytes[16] = {};
    auto status = wait_for([&](auto done) { extent->copier()->copy_in(4096, bytes, sizeof bytes, std::move(done)); });
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, EINVAL);
    EXPECT_FALSE(status.error().device_lost);
    EXPECT_TRUE(wait_for([&](auto done) {
        extent->copier()->copy_in(extent->address(), bytes, sizeof bytes, std::move(done));
    })) << "others go on";
}

TEST(CudaCopier, PassesThroughAdaptors) {
    LimitDevice limited(*CudaDevice::create(1), 64 * kMiB);
    auto extent = *limited.allocate(2 * kMiB, {});
    EXPECT_NE(extent->copier(), nullptr);
    EXPECT_NE(extent->copier(), static_cast<CudaDevice&>(cuda_device()).copier().value()) << "each device has its own";
    EXPECT_EQ(host_device().allocate(4096, {}).value()->copier(), nullptr);
    UnavailableExtent gone(UniqueFd(), 4096, Error{ENODEV, "lost", true});
    std::byte byte = {};
    ASSERT_NE(gone.copier(), nullptr) << "it is not ordinary memory";
    auto status = wait_for([&](auto done) { gone.copier()->copy_out(&byte, 0, 1, std::move(done)); });
    EXPECT_EQ(status.error().code, ENODEV);
}

TEST(CudaCopier, GoesWithItsDevice) {
    auto device = *CudaDevice::create(1);
    auto extent = *device->allocate(2 * kMiB, {});
    ASSERT_NE(extent->copier(), nullptr);
    device.reset();
    std::byte byte = {};
    auto status =
        wait_for([&](auto done) { extent->copier()->copy_out(&byte, extent->address(), 1, std::move(done)); });
    EXPECT_EQ(status.error().code, ENODEV);
}

// A later failure of the device is an error of the transfer and reports that the device is lost. In a separate process:
// the device stays lost.
TEST(CudaCopierDeathTest, DeviceLost) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            setenv("FAKECUDA_FAIL", "cuEventSynchronize:3:700", 1);
            auto extent = *cuda_device().allocate(32 * kMiB, {});
            auto staging = *Staging::create(cuda_device(), 16 * kMiB);
            auto engine = *Engine::create(staging, {});
            int code = 1;
            {
                TestSource source(*engine);
                TestFile file(pattern(30 * kMiB, 1));
                TestTransfer transfer(Direction::read, file.file(), 0, extent->address(), extent->copier(), 30 * kMiB);
                auto got = source.run(transfer);
                code = !got && got.error().code == EIO && got.error().device_lost ? 0 : 2;
            }
            engine.reset();
            exit(code);
        },
        ::testing::ExitedWithCode(0), "");
}

TEST(Staging, IsPinnedOnceAndUnpinned) {
    const auto pinned = calls("cuMemHostRegister");
    const auto unpinned = calls("cuMemHostUnregister");
    {
        auto staging = *Staging::create(cuda_device(), 20 * kMiB);
        EXPECT_TRUE(staging->is_pinned());
        EXPECT_EQ(staging->size(), 24 * kMiB);
    }
    EXPECT_EQ(calls("cuMemHostRegister"), pinned + 1);
    EXPECT_EQ(calls("cuMemHostUnregister"), unpinned + 1);
}

TEST(Staging, Chunks) {
    struct Listener final : Staging::Listener {
        int heard = 0;
        void chunk_is_back() override { ++heard; }
    } listener;
    auto staging = *Staging::create(host_device(), 16 * kMiB);
    std::vector<Chunk> small;
    for (int i = 0; i < 128; ++i) {
        small.push_back(staging->take(4096, false, listener));
        ASSERT_TRUE(small.back());
        ASSERT_EQ(small.back().bytes, Staging::kSmallChunkBytes);
        memset(small.back().data, i, small.back().bytes);
    }
    Chunk large = staging->take(100 * kMiB, false, listener);
    ASSERT_TRUE(large) << "128 small ones fit where one large one does";
    EXPECT_EQ(large.bytes, Staging::kLargeChunkBytes);
    memset(large.data, 0xff, large.bytes);
    for (int i = 0; i < 128; ++i) ASSERT_EQ(small[i].data[77], std::byte(i));
    EXPECT_FALSE(staging->take(1, true, listener));
    EXPECT_EQ(listener.heard, 0);
    staging->give(small.back());
    small.pop_back();
    EXPECT_EQ(listener.heard, 1);
    EXPECT_FALSE(staging->take(kMiB, false, listener));
    Chunk any = staging->take(kMiB, true, listener);
    EXPECT_EQ(any.bytes, Staging::kSmallChunkBytes);
    staging->give(any);
    EXPECT_EQ(listener.heard, 2);
    staging->give(large);
    EXPECT_EQ(listener.heard, 2) << "told once";
    for (Chunk chunk : small) staging->give(chunk);
    Chunk one = staging->take(8 * kMiB, false, listener);
    Chunk two = staging->take(8 * kMiB, false, listener);
    EXPECT_TRUE(one && two) << "what was cut is whole again";
    EXPECT_FALSE(staging->take(1, true, listener));
    staging->forget(listener);
    staging->give(one);
    staging->give(two);
    EXPECT_EQ(listener.heard, 2);
}

}  // namespace
}  // namespace gshm::core::io::test
