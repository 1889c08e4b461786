// The test double of the driver: failures that a test injects.
#include <cstdio>
#include <fstream>
#include <string>
#include <unistd.h>

#include "harness.h"

namespace fakecuda_test {
namespace {

CUresult try_create(int device = 0) {
    CUmemGenericAllocationHandle handle = 0;
    auto wanted = properties(kMemHandleTypePosixFd, device);
    CUresult result = cuda().mem_create(&handle, kUnit, &wanted, 0);
    if (result == kSuccess) cuda().mem_release(handle);
    return result;
}

CUresult try_info() {
    size_t free = 0;
    return cuda().mem_get_info(&free, nullptr);
}

CUresult try_reserve() {
    CUdeviceptr pointer = 0;
    return cuda().mem_address_reserve(&pointer, kUnit, 0, 0, 0);
}

TEST(FakeCudaFaults, NthCall) {
    if (!in_child({"FAKECUDA_FAIL=cuMemCreate:3:2,cuMemGetInfo:1:802,cuMemGetInfo_v2:2:801"})) return;
    start();
    EXPECT_EQ(try_create(), kSuccess);
    EXPECT_EQ(try_create(), kSuccess);
    EXPECT_EQ(try_create(), kErrorOutOfMemory);
    EXPECT_EQ(try_create(), kSuccess);
    EXPECT_EQ(try_info(), kErrorSystemNotReady);
    EXPECT_EQ(try_info(), kErrorNotSupported);
    EXPECT_EQ(try_info(), kSuccess);
}

TEST(FakeCudaFaults, EveryCall) {
    if (!in_child({"FAKECUDA_FAIL=cuMemCreate:*:2"})) return;
    start();
    for (int i = 0; i < 5; ++i) EXPECT_EQ(try_create(), kErrorOutOfMemory);
    EXPECT_EQ(free_bytes(), size_t{1} << 30) << "a call that fails does nothing";
}

TEST(FakeCudaFaults, Init) {
    if (!in_child({"FAKECUDA_FAIL=cuInit:1:999"})) return;
    EXPECT_EQ(cuda().init(0), kErrorUnknown);
    EXPECT_EQ(try_create(), kErrorNotInitialized);
    start();
    EXPECT_EQ(try_create(), kSuccess);
}

TEST(FakeCudaFaults, OneDevice) {
    if (!in_child({"FAKECUDA_DEVICES=2", "FAKECUDA_FAIL=cuMemCreate@1:2:2,cuMemSetAccess@1:*:801",
                   "CUDA_VISIBLE_DEVICES=1,0"})) {
        return;
    }
    start();  // ordinal 0 is the physical device 1
    EXPECT_EQ(try_create(1), kSuccess);
    EXPECT_EQ(try_create(1), kSuccess);
    EXPECT_EQ(try_create(0), kSuccess);
    EXPECT_EQ(try_create(0), kErrorOutOfMemory);
    EXPECT_EQ(try_create(0), kSuccess);
    CUdeviceptr pointer = reserve();
    EXPECT_EQ(map(pointer, create(kUnit, kMemHandleTypePosixFd, 1)), kSuccess);
    EXPECT_EQ(set_access(pointer, kUnit, kMemAccessProtReadWrite, 1), kSuccess);
    EXPECT_EQ(set_access(pointer, kUnit, kMemAccessProtReadWrite, 0), kErrorNotSupported);
}

// As after an illegal access of a kernel on the H200: the context is lost for good, the VMM calls work.
TEST(FakeCudaFaults, LostContext) {
    if (!in_child({"FAKECUDA_FAIL=cuStreamSynchronize:2:719"})) return;
    start();
    auto handle = create();
    CUdeviceptr pointer = map_new(handle);
    CUstream stream = nullptr;
    CUcontext context = nullptr;
    int active = 0;
    unsigned flags = 0;
    EXPECT_EQ(cuda().stream_create(&stream, 0), kSuccess);
    EXPECT_EQ(cuda().stream_synchronize(stream), kSuccess);
    EXPECT_EQ(cuda().stream_synchronize(stream), kErrorLaunchFailed);

    EXPECT_EQ(cuda().stream_synchronize(stream), kErrorLaunchFailed);
    EXPECT_EQ(cuda().stream_destroy(stream), kErrorLaunchFailed);
    EXPECT_EQ(try_info(), kErrorLaunchFailed);
    EXPECT_EQ(write(pointer, "x"), kErrorLaunchFailed);
    EXPECT_EQ(cuda().memset_d8_async(pointer, 0, 1, nullptr), kErrorLaunchFailed);
    int fd = -1;
    EXPECT_EQ(cuda().mem_get_range_handle(&fd, pointer, kUnit, 1, 0), kErrorLaunchFailed);

    EXPECT_EQ(try_create(), kSuccess);
    EXPECT_GE(export_fd(handle), 0);
    EXPECT_EQ(cuda().mem_unmap(pointer, kUnit), kSuccess);
    EXPECT_EQ(cuda().mem_address_free(pointer, kUnit), kSuccess);
    EXPECT_EQ(cuda().mem_release(handle), kSuccess);
    EXPECT_EQ(cuda().primary_ctx_get_state(0, &flags, &active), kSuccess);
    EXPECT_EQ(active, 1);
    EXPECT_EQ(cuda().primary_ctx_release(0), kSuccess);
    EXPECT_EQ(cuda().primary_ctx_retain(&context, 0), kErrorLaunchFailed) << "there will be no other";
}

TEST(FakeCudaFaults, LostContextTakesAll) {
    if (!in_child({"FAKECUDA_FAIL=cuStreamSynchronize:1:719", "FAKECUDA_STICKY=all"})) return;
    start();
    EXPECT_EQ(try_create(), kSuccess);
    EXPECT_EQ(cuda().stream_synchronize(nullptr), kErrorLaunchFailed);
    EXPECT_EQ(try_create(), kErrorLaunchFailed);
    EXPECT_EQ(try_reserve(), kErrorLaunchFailed);
    EXPECT_EQ(try_info(), kErrorLaunchFailed);
}

TEST(FakeCudaFaults, LostDevice) {
    if (!in_child({"FAKECUDA_DEVICES=2", "FAKECUDA_FAIL=cuMemCreate@1:1:214"})) return;
    start(0);
    auto handle = create();
    EXPECT_EQ(try_create(1), kErrorEccUncorrectable);
    EXPECT_EQ(try_create(1), kErrorEccUncorrectable) << "it stays lost";
    CUcontext context = nullptr;
    EXPECT_EQ(cuda().primary_ctx_retain(&context, 1), kErrorEccUncorrectable);
    EXPECT_EQ(try_create(0), kSuccess) << "the other device works";
    CUdeviceptr pointer = map_new(handle);
    EXPECT_EQ(write(pointer, "fine"), kSuccess);
    EXPECT_EQ(set_access(pointer, kUnit, kMemAccessProtRead, 1), kErrorEccUncorrectable);
    int number = 0;
    EXPECT_EQ(cuda().device_get_attribute(&number, kAttributeVmmSupported, 1), kSuccess) << "can still be asked";
}

TEST(FakeCudaFaults, AllDevicesLost) {
    if (!in_child({"FAKECUDA_FAIL=cuMemAddressReserve:2:999"})) return;
    start();
    CUdeviceptr pointer = reserve();
    EXPECT_EQ(try_reserve(), kErrorUnknown);
    EXPECT_EQ(try_reserve(), kErrorUnknown);
    EXPECT_EQ(cuda().mem_address_free(pointer, kUnit), kErrorUnknown);
    EXPECT_EQ(try_create(), kErrorUnknown);
    EXPECT_EQ(try_info(), kErrorUnknown);
}

void put(const std::string& path, const std::string& rules) {
    const std::string draft = path + ".new";
    std::ofstream(draft) << rules;
    rename(draft.c_str(), path.c_str());
}

TEST(FakeCudaFaults, ControlFile) {
    const std::string path = testing::TempDir() + "fakecuda_control_" +
                             std::to_string(getenv("FAKECUDA_CONTROL") != nullptr ? getppid() : getpid());
    if (!in_child({"FAKECUDA_CONTROL=" + path, "FAKECUDA_FAIL=cuMemCreate:6:1"})) return;
    start();
    EXPECT_EQ(try_create(), kSuccess) << "no file yet";
    put(path, "cuMemCreate:*:2\n");
    EXPECT_EQ(try_create(), kErrorOutOfMemory);
    EXPECT_EQ(try_create(), kErrorOutOfMemory);
    put(path, "cuMemCreate:2:802 cuMemAddressReserve:1:2\n");
    EXPECT_EQ(try_create(), kSuccess) << "counted from when the file was read";
    EXPECT_EQ(try_create(), kErrorSystemNotReady);
    EXPECT_EQ(try_reserve(), kErrorOutOfMemory);
    EXPECT_EQ(try_create(), kErrorInvalidValue) << "the sixth: the environment's rule goes on counting";
    put(path, "cuMemCreate:1:2 nonsense");
    EXPECT_EQ(try_create(), kErrorOutOfMemory) << "what can be read holds";
    put(path, "cuMemCreate:*:2");
    unlink(path.c_str());
    EXPECT_EQ(try_create(), kSuccess);
    put(path, "cuMemsetD8Async@0:*:700");
    EXPECT_EQ(cuda().memset_d8_async(0, 0, 0, nullptr), kErrorIllegalAddress);
    unlink(path.c_str());
    EXPECT_EQ(try_info(), kErrorIllegalAddress) << "what is lost stays lost";
}

}  // namespace
}  // namespace fakecuda_test
