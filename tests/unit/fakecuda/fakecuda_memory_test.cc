// The test double of the driver: physical memory, addresses, copies.
#include <algorithm>
#include <csignal>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "harness.h"

namespace fakecuda_test {
namespace {

CUresult try_create(size_t size, const CUmemAllocationProp& wanted, unsigned long long flags = 0) {
    CUmemGenericAllocationHandle handle = 0;
    CUresult result = cuda().mem_create(&handle, size, &wanted, flags);
    return result != kSuccess ? result : cuda().mem_release(handle);
}

TEST(FakeCudaMemory, CreateRefusals) {
    if (!in_child()) return;
    ASSERT_EQ(cuda().init(0), kSuccess);
    auto wanted = properties();
    size_t granularity = 0;
    EXPECT_EQ(cuda().mem_granularity(&granularity, &wanted, kMemGranularityMinimum), kSuccess);
    EXPECT_EQ(granularity, kUnit);
    EXPECT_EQ(cuda().mem_granularity(&granularity, &wanted, 2), kErrorInvalidValue);
    EXPECT_EQ(cuda().mem_granularity(&granularity, nullptr, 0), kErrorInvalidValue);

    EXPECT_EQ(try_create(kUnit, wanted), kSuccess);
    EXPECT_EQ(try_create(0, wanted), kErrorInvalidValue);
    EXPECT_EQ(try_create(kMiB, wanted), kErrorInvalidValue);
    EXPECT_EQ(try_create(3 * kMiB, wanted), kErrorInvalidValue);
    EXPECT_EQ(try_create((size_t{1} << 40) + kMiB, wanted), kErrorInvalidValue);
    EXPECT_EQ(try_create(size_t{1} << 40, wanted), kErrorOutOfMemory);
    EXPECT_EQ(try_create(kUnit, wanted, 1), kErrorInvalidValue);
    EXPECT_EQ(cuda().mem_create(nullptr, kUnit, &wanted, 0), kErrorInvalidValue);
    EXPECT_EQ(try_create(kUnit, properties(0)), kSuccess);
    EXPECT_EQ(try_create(kUnit, properties(2)), kErrorInvalidValue);
    EXPECT_EQ(try_create(kUnit, properties(kMemHandleTypePosixFd, 99)), kErrorInvalidDevice);
    EXPECT_EQ(try_create(kUnit, properties(kMemHandleTypePosixFd, -1)), kErrorInvalidDevice);
    auto odd = wanted;
    odd.type = 0;
    EXPECT_EQ(try_create(kUnit, odd), kErrorInvalidValue);
    odd = wanted;
    odd.location.type = 0;
    EXPECT_EQ(try_create(kUnit, odd), kErrorInvalidValue);
    odd = wanted;
    odd.allocFlags.compressionType = 7;
    EXPECT_EQ(try_create(kUnit, odd), kErrorInvalidValue);
    EXPECT_EQ(cuda().mem_release(0), kErrorInvalidValue);
}

TEST(FakeCudaMemory, CapacityIsTheProcesss) {
    if (!in_child({"FAKECUDA_MEMORY=16M", "FAKECUDA_DEVICES=2"})) return;
    start();
    EXPECT_EQ(free_bytes(), 16 * kMiB);
    auto big = create(14 * kMiB);
    EXPECT_EQ(free_bytes(), 2 * kMiB);
    EXPECT_EQ(try_create(4 * kMiB, properties()), kErrorOutOfMemory);
    EXPECT_EQ(try_create(16 * kMiB, properties(kMemHandleTypePosixFd, 1)), kSuccess);  // separate memory
    CUdeviceptr pointer = map_new(big, 14 * kMiB);
    EXPECT_EQ(cuda().mem_release(big), kSuccess);
    EXPECT_EQ(free_bytes(), 2 * kMiB) << "the mapping keeps it";
    EXPECT_EQ(write(pointer, "alive"), kSuccess);
    EXPECT_EQ(cuda().mem_unmap(pointer, 14 * kMiB), kSuccess);
    EXPECT_EQ(free_bytes(), 16 * kMiB);
    EXPECT_EQ(try_create(16 * kMiB, properties()), kSuccess);
}

TEST(FakeCudaMemory, ImportCountsOnce) {
    if (!in_child_of_fake()) return;
    start();
    const size_t before = free_bytes();
    auto made = create();
    CUmemGenericAllocationHandle imported = 0;
    EXPECT_EQ(import_fd(export_fd(made), &imported), kSuccess);
    EXPECT_EQ(before - free_bytes(), kUnit);
    EXPECT_EQ(cuda().mem_release(made), kSuccess);
    EXPECT_EQ(before - free_bytes(), kUnit);
    EXPECT_EQ(cuda().mem_release(imported), kSuccess);
    EXPECT_EQ(before, free_bytes());
}

TEST(FakeCudaMemory, NewMemoryIsPoisoned) {
    if (!in_child_of_fake()) return;
    start();
    CUdeviceptr small = map_new(create(4 * kMiB), 4 * kMiB);
    EXPECT_TRUE(read(small, 4 * kMiB) == std::string(4 * kMiB, '\xa5'));
    CUdeviceptr large = map_new(create(128 * kMiB), 128 * kMiB);
    EXPECT_TRUE(read(large, kUnit) == std::string(kUnit, '\xa5'));
    EXPECT_TRUE(read(large + 126 * kMiB, kUnit) == std::string(kUnit, '\xa5'));
}

TEST(FakeCudaMemory, FillIsExact) {
    if (!in_child()) return;
    start();
    const size_t size = 8 * kMiB;
    CUdeviceptr pointer = map_new(create(size), size);
    EXPECT_EQ(cuda().memset_d8_async(pointer, 0x11, size, nullptr), kSuccess);
    EXPECT_EQ(cuda().memset_d8_async(pointer + 5, 0, 5 * kMiB, nullptr), kSuccess);
    std::string expected(size, '\x11');
    std::fill_n(expected.begin() + 5, 5 * kMiB, '\0');
    EXPECT_TRUE(read(pointer, size) == expected);
}

// Runs in a forked process, since the access is fatal.
int signal_of_reading(CUdeviceptr pointer) {
    const pid_t child = fork();
    if (child == 0) {
        const rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGSEGV, SIG_DFL);
        _exit(*reinterpret_cast<volatile char*>(pointer));
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST(FakeCudaMemory, CpuCannotTouchDevicePointers) {
    if (!in_child()) return;
    start();
    CUdeviceptr pointer = map_new(create());
    EXPECT_EQ(write(pointer, "not yours"), kSuccess);
    EXPECT_EQ(signal_of_reading(pointer), SIGSEGV);
    EXPECT_EQ(signal_of_reading(reserve()), SIGSEGV);
}

TEST(FakeCudaMemory, ReserveAndFree) {
    if (!in_child()) return;
    ASSERT_EQ(cuda().init(0), kSuccess);
    CUdeviceptr pointer = 0;
    EXPECT_EQ(cuda().mem_address_reserve(&pointer, 0, 0, 0, 0), kErrorInvalidValue);
    EXPECT_EQ(cuda().mem_address_reserve(&pointer, kMiB, 0, 0, 0), kErrorInvalidValue);
    EXPECT_EQ(cuda().mem_address_reserve(&pointer, kUnit, 3, 0, 0), kErrorInvalidValue);
    EXPECT_EQ(cuda().mem_address_reserve(&pointer, kUnit, 0, 12345, 0), kErrorInvalidValue);
    EXPECT_EQ(cuda().mem_address_reserve(&pointer, kUnit, 0, 0, 1), kErrorInvalidValue);
    EXPECT_EQ(cuda().mem_address_reserve(&pointer, size_t{1} << 50, 0, 0, 0), kErrorOutOfMemory);
    EXPECT_EQ(cuda().mem_address_reserve(&pointer, kUnit, size_t{1} << 30, 0, 0), kSuccess);
    EXPECT_EQ(pointer % (size_t{1} << 30), 0U);
    pointer = reserve(2 * kUnit);
    EXPECT_EQ(map(pointer, create()), kSuccess);
    EXPECT_EQ(cuda().mem_address_free(pointer, 2 * kUnit), kErrorInvalidValue) << "still mapped";
    EXPECT_EQ(cuda().mem_unmap(pointer, kUnit), kSuccess);
    EXPECT_EQ(cuda().mem_address_free(pointer, kUnit), kErrorInvalidValue);
    EXPECT_EQ(cuda().mem_address_free(pointer + kUnit, kUnit), kErrorInvalidValue);
    EXPECT_EQ(cuda().mem_address_free(pointer, 3 * kUnit), kErrorInvalidValue);
    EXPECT_EQ(cuda().mem_address_free(pointer, 2 * kUnit), kSuccess);
    EXPECT_EQ(cuda().mem_address_free(pointer, 2 * kUnit), kErrorInvalidValue);
}

TEST(FakeCudaMemory, MapRefusals) {
    if (!in_child()) return;
    ASSERT_EQ(cuda().init(0), kSuccess);
    CUdeviceptr pointer = reserve(4 * kUnit);
    auto one = create();
    auto two = create(2 * kUnit);
    EXPECT_EQ(cuda().mem_map(pointer, kUnit, kUnit, two, 0), kErrorNotSupported) << "an offset";
    EXPECT_EQ(cuda().mem_map(pointer, kUnit, 0, two, 0), kErrorNotSupported) << "a part";
    EXPECT_EQ(cuda().mem_map(pointer, 2 * kUnit, 0, one, 0), kErrorNotSupported) << "more than there is";
    EXPECT_EQ(cuda().mem_map(pointer, 0, 0, one, 0), kErrorInvalidValue);
    EXPECT_EQ(cuda().mem_map(pointer, kUnit, 0, one, 1), kErrorInvalidValue);
    EXPECT_EQ(map(pointer + 4096, one), kErrorInvalidValue);
    EXPECT_EQ(map(0x123400000000, one), kErrorInvalidValue);
    EXPECT_EQ(set_access(pointer), kErrorInvalidValue) << "nothing there";
    EXPECT_EQ(map(pointer, one), kSuccess);
    EXPECT_EQ(map(pointer, one), kErrorInvalidValue) << "taken";
    EXPECT_EQ(map(pointer + kUnit, two, 2 * kUnit), kSuccess);
    EXPECT_EQ(map(pointer + 2 * kUnit, one), kErrorInvalidValue) << "taken by its second half";
    EXPECT_EQ(map(pointer + 3 * kUnit, one), kSuccess) << "the same memory twice";

    CUmemAccessDesc access = {{kMemLocationTypeDevice, 0}, kMemAccessProtReadWrite};
    EXPECT_EQ(cuda().mem_set_access(pointer, kUnit, &access, 0), kErrorInvalidValue);
    EXPECT_EQ(cuda().mem_set_access(pointer, kUnit, nullptr, 1), kErrorInvalidValue);
    EXPECT_EQ(set_access(pointer, kUnit, 2), kErrorInvalidValue);
    EXPECT_EQ(set_access(pointer, kUnit, kMemAccessProtRead, 99), kErrorInvalidValue);
    EXPECT_EQ(set_access(pointer, kMiB), kErrorInvalidValue);
    EXPECT_EQ(set_access(pointer + kUnit, kUnit), kErrorInvalidValue) << "half a mapping";
    EXPECT_EQ(set_access(pointer, 5 * kUnit), kErrorInvalidValue);
    EXPECT_EQ(set_access(pointer, 4 * kUnit), kSuccess) << "all three mappings";

    EXPECT_EQ(cuda().mem_unmap(pointer + kUnit, kUnit), kErrorInvalidValue) << "half a mapping";
    EXPECT_EQ(cuda().mem_unmap(pointer, 0), kErrorInvalidValue);
    EXPECT_EQ(cuda().mem_unmap(pointer, 3 * kUnit), kSuccess) << "two at once";
    EXPECT_EQ(cuda().mem_unmap(pointer + 3 * kUnit, kUnit), kSuccess);
    EXPECT_EQ(cuda().mem_address_free(pointer, 4 * kUnit), kSuccess);
}

// The driver accepts these calls, or crashes. They show a bug of the caller.
TEST(FakeCudaMemory, StricterThanTheDriver) {
    if (!in_child_of_fake()) return;
    start();
    CUdeviceptr pointer = reserve(2 * kUnit);
    auto handle = create();
    EXPECT_EQ(map(pointer, handle), kSuccess);
    EXPECT_EQ(cuda().mem_unmap(pointer, 2 * kUnit), kErrorInvalidValue) << "more than is mapped";
    EXPECT_EQ(cuda().mem_unmap(pointer + kUnit, kUnit), kErrorInvalidValue) << "nothing there";
    EXPECT_EQ(map(pointer + kUnit, create(2 * kUnit), 2 * kUnit), kErrorInvalidValue) << "over the end";
    EXPECT_EQ(map(pointer + kUnit, 12345), kErrorInvalidValue);
    EXPECT_EQ(cuda().mem_release(handle), kSuccess);
    EXPECT_EQ(cuda().mem_release(handle), kErrorInvalidValue);
    int fd = -1;
    EXPECT_EQ(cuda().mem_export(&fd, handle, kMemHandleTypePosixFd, 0), kErrorInvalidValue);
    EXPECT_EQ(cuda().ctx_push(reinterpret_cast<CUcontext>(&fd)), kErrorInvalidContext);
    EXPECT_EQ(cuda().stream_synchronize(reinterpret_cast<CUstream>(&fd)), kErrorInvalidHandle);
    CUstream stream = nullptr;
    CUcontext context = nullptr;
    EXPECT_EQ(cuda().stream_create(&stream, 0), kSuccess);
    EXPECT_EQ(cuda().primary_ctx_release(0), kSuccess);
    EXPECT_EQ(cuda().primary_ctx_retain(&context, 0), kSuccess);
    EXPECT_EQ(cuda().stream_synchronize(stream), kErrorInvalidHandle) << "it went with its context";
}

void expect_copies(CUdeviceptr pointer, size_t bytes, CUresult in, CUresult out) {
    std::string host(bytes, 'x');
    EXPECT_EQ(cuda().memcpy_htod_async(pointer, host.data(), bytes, nullptr), in);
    EXPECT_EQ(cuda().memset_d8_async(pointer, 1, bytes, nullptr), in);
    EXPECT_EQ(cuda().memcpy_dtoh_async(host.data(), pointer, bytes, nullptr), out);
    EXPECT_EQ(cuda().stream_synchronize(nullptr), kSuccess) << "a refusal does no harm";
}

TEST(FakeCudaMemory, CopyRefusals) {
    if (!in_child()) return;
    start();
    CUdeviceptr pointer = reserve(4 * kUnit);
    expect_copies(0, 4, kErrorInvalidValue, kErrorInvalidValue);
    expect_copies(0x123400000000, 4, kErrorInvalidValue, kErrorInvalidValue);
    expect_copies(pointer, 4, kErrorInvalidValue, kErrorInvalidValue);
    EXPECT_EQ(map(pointer, create()), kSuccess);
    expect_copies(pointer, 4, kErrorInvalidValue, kErrorInvalidValue);
    EXPECT_EQ(set_access(pointer, kUnit, kMemAccessProtRead), kSuccess);
    expect_copies(pointer, 4, kErrorInvalidValue, kSuccess);
    EXPECT_EQ(set_access(pointer), kSuccess);
    expect_copies(pointer, 4, kSuccess, kSuccess);
    expect_copies(pointer + kUnit - 4, 4, kSuccess, kSuccess);
    expect_copies(pointer + kUnit - 4, 8, kErrorInvalidValue, kErrorInvalidValue);
    EXPECT_EQ(map(pointer + kUnit, create()), kSuccess);
    expect_copies(pointer + kUnit - 4, 8, kErrorInvalidValue, kErrorInvalidValue);
    EXPECT_EQ(set_access(pointer + kUnit), kSuccess);
    expect_copies(pointer + kUnit - 4, 8, kSuccess, kSuccess);  // adjacent
    EXPECT_EQ(cuda().memcpy_htod_async(pointer, nullptr, 4, nullptr), kErrorInvalidValue);
    EXPECT_EQ(cuda().memcpy_htod_async(12345, nullptr, 0, nullptr), kSuccess) << "nothing is asked";
    EXPECT_EQ(cuda().mem_unmap(pointer, kUnit), kSuccess);
    expect_copies(pointer, 4, kErrorInvalidValue, kErrorInvalidValue);
}

TEST(FakeCudaMemory, CopiesGoOverMappings) {
    if (!in_child()) return;
    start();
    CUdeviceptr pointer = reserve(2 * kUnit);
    EXPECT_EQ(map(pointer, create()), kSuccess);
    EXPECT_EQ(map(pointer + kUnit, create()), kSuccess);
    EXPECT_EQ(set_access(pointer, 2 * kUnit), kSuccess);
    EXPECT_EQ(write(pointer + kUnit - 3, "abcdef"), kSuccess);
    EXPECT_EQ(read(pointer + kUnit - 3, 3), "abc");
    EXPECT_EQ(read(pointer + kUnit, 3), "def");
    EXPECT_EQ(read(pointer + kUnit - 3, 6), "abcdef");
}

TEST(FakeCudaMemory, AccessIsPerDevice) {
    if (!in_child({"FAKECUDA_DEVICES=2"})) return;
    start(0);
    CUdeviceptr pointer = map_new(create());
    EXPECT_EQ(write(pointer, "abc"), kSuccess);
    CUcontext other = nullptr;
    EXPECT_EQ(cuda().primary_ctx_retain(&other, 1), kSuccess);
    EXPECT_EQ(cuda().ctx_push(other), kSuccess);
    EXPECT_EQ(read(pointer, 3), "");
    EXPECT_EQ(set_access(pointer, kUnit, kMemAccessProtRead, 1), kSuccess);
    EXPECT_EQ(read(pointer, 3), "abc");
    EXPECT_EQ(write(pointer, "x"), kErrorInvalidValue);
    EXPECT_EQ(cuda().ctx_pop(nullptr), kSuccess);
    EXPECT_EQ(write(pointer, "x"), kSuccess) << "the first keeps its access";
}

TEST(FakeCudaMemory, PeersCanBeRefused) {
    if (!in_child({"FAKECUDA_DEVICES=2", "FAKECUDA_PEER=0"})) return;
    start(0);
    int can = -1;
    EXPECT_EQ(cuda().device_can_access_peer(&can, 0, 1), kSuccess);
    EXPECT_EQ(can, 0);
    EXPECT_EQ(set_access(map_new(create()), kUnit, kMemAccessProtReadWrite, 1), kErrorInvalidDevice);
}

// For the thread sanitizer, and for the lock that is released while bytes move.
TEST(FakeCudaMemory, ManyThreads) {
    if (!in_child()) return;
    start();
    const size_t before = free_bytes();
    std::vector<std::thread> threads;
    for (int number = 0; number < 8; ++number) {
        threads.emplace_back([number] {
            start();
            for (int round = 0; round < 20; ++round) {
                auto handle = create();
                CUdeviceptr pointer = map_new(handle);
                std::string text(65536, static_cast<char>('a' + number));
                EXPECT_EQ(write(pointer + 100, text), kSuccess);
                EXPECT_EQ(cuda().mem_release(handle), kSuccess);
                EXPECT_TRUE(read(pointer + 100, text.size()) == text);
                EXPECT_EQ(cuda().mem_unmap(pointer, kUnit), kSuccess);
                EXPECT_EQ(cuda().mem_address_free(pointer, kUnit), kSuccess);
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(free_bytes(), before);
}

}  // namespace
}  // namespace fakecuda_test
