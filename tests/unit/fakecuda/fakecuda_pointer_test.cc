// The test double of the driver: pointer attributes, and IPC handles of memory from cuMemAlloc.
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include "harness.h"

namespace fakecuda_test {
namespace {

CUdeviceptr allocate(size_t bytes) {
    Dl_info library = {};
    dladdr(reinterpret_cast<const void*>(cuda().init), &library);
    void* handle = dlopen(library.dli_fname, RTLD_NOW | RTLD_LOCAL);
    auto call = reinterpret_cast<CUresult (*)(CUdeviceptr*, size_t)>(dlsym(handle, "cuMemAlloc_v2"));
    CUdeviceptr pointer = 0;
    EXPECT_EQ(call(&pointer, bytes), kSuccess);
    return pointer;
}

struct Attributes {
    unsigned type = 99;
    int ordinal = 99;
    CUcontext context = nullptr;
};

Attributes attributes(CUdeviceptr pointer) {
    Attributes found;
    int asked[] = {kPointerMemoryType, kPointerDeviceOrdinal, kPointerContext};
    void* values[] = {&found.type, &found.ordinal, &found.context};
    EXPECT_EQ(cuda().pointer_get_attributes(3, asked, values, pointer), kSuccess);
    return found;
}

TEST(FakeCudaPointer, WhatAnAddressIs) {
    if (!in_child()) return;
    int count = 0;
    EXPECT_EQ(cuda().device_get_count(&count), kErrorNotInitialized) << "how to tell that nobody has started it";
    start();
    CUcontext primary = nullptr;
    EXPECT_EQ(cuda().primary_ctx_retain(&primary, 0), kSuccess);
    CUdeviceptr plain = allocate(2 * kUnit);
    EXPECT_EQ(attributes(plain + 12345).type, kMemoryTypeDevice);
    EXPECT_EQ(attributes(plain + 12345).ordinal, 0);
    EXPECT_EQ(attributes(plain + 12345).context, primary);
    CUdeviceptr mapped = map_new(create());
    EXPECT_EQ(attributes(mapped + 1).type, kMemoryTypeDevice);
    EXPECT_EQ(attributes(mapped + 1).ordinal, 0);
    EXPECT_EQ(attributes(mapped + 1).context, nullptr) << "VMM memory belongs to no context";
    int ordinary = 0;
    EXPECT_EQ(attributes(reinterpret_cast<CUdeviceptr>(&ordinary)).type, 0u);

    CUdeviceptr base = 0;
    size_t size = 0;
    EXPECT_EQ(cuda().mem_get_address_range(&base, &size, plain + 2 * kUnit - 1), kSuccess);
    EXPECT_EQ(base, plain);
    EXPECT_EQ(size, 2 * kUnit);
    EXPECT_EQ(cuda().mem_get_address_range(&base, &size, mapped + kUnit - 1), kSuccess);
    EXPECT_EQ(base, mapped);
    EXPECT_EQ(size, kUnit);
    EXPECT_NE(cuda().mem_get_address_range(&base, &size, reinterpret_cast<CUdeviceptr>(&ordinary)), kSuccess);
}

// Two handles in one reservation: the range is that of one handle.
TEST(FakeCudaPointer, RangesOfPiecesSideBySide) {
    if (!in_child()) return;
    start();
    CUdeviceptr start = reserve(2 * kUnit);
    ASSERT_EQ(map(start, create()), kSuccess);
    ASSERT_EQ(map(start + kUnit, create()), kSuccess);
    ASSERT_EQ(set_access(start, 2 * kUnit), kSuccess);
    CUdeviceptr base = 0;
    size_t size = 0;
    EXPECT_EQ(cuda().mem_get_address_range(&base, &size, start + kUnit + 5), kSuccess);
    EXPECT_EQ(base, start + kUnit);
    EXPECT_EQ(size, kUnit);
}

TEST(FakeCudaPointer, IpcHandles) {
    if (!in_child()) return;
    CUipcMemHandle handle = {};
    CUdeviceptr opened = 0;
    if (part() == "importer") {
        start();
        ASSERT_EQ(::read(argument("FD"), &handle, sizeof handle), static_cast<ssize_t>(sizeof handle));
        ASSERT_EQ(cuda().ipc_open_mem_handle(&opened, handle, kIpcLazyEnablePeerAccess), kSuccess);
        EXPECT_EQ(read(opened + 1000, 8), "question");
        EXPECT_EQ(write(opened + 1000, "answer"), kSuccess);
        CUdeviceptr again = 0;
        EXPECT_EQ(cuda().ipc_open_mem_handle(&again, handle, kIpcLazyEnablePeerAccess), kSuccess);
        EXPECT_EQ(again, opened);
        EXPECT_EQ(cuda().ipc_close_mem_handle(opened), kSuccess);
        EXPECT_EQ(read(opened + 1000, 6), "answer") << "opened twice, closed once";
        EXPECT_EQ(cuda().ipc_close_mem_handle(opened), kSuccess);
        return;
    }
    start();
    CUdeviceptr pointer = allocate(kUnit);
    EXPECT_EQ(write(pointer + 1000, "question"), kSuccess);
    EXPECT_EQ(cuda().ipc_get_mem_handle(&handle, map_new(create())), kErrorInvalidValue) << "VMM memory has none";
    ASSERT_EQ(cuda().ipc_get_mem_handle(&handle, pointer), kSuccess);
    EXPECT_EQ(cuda().ipc_open_mem_handle(&opened, handle, kIpcLazyEnablePeerAccess), kErrorInvalidContext)
        << "not in the process that has exported it";
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    ASSERT_EQ(::write(ends[1], &handle, sizeof handle), static_cast<ssize_t>(sizeof handle));
    std::string output;
    EXPECT_EQ(run_part("importer", {"FD=" + std::to_string(ends[0])}, &output), 0) << output;
    EXPECT_EQ(read(pointer + 1000, 6), "answer");
}

}  // namespace
}  // namespace fakecuda_test
