// Wrapped memory of a program, of every CUDA kind, and 3FS's interface with it.
#include "fixture.h"

namespace gshm::core::test {
namespace {

class GpuWrap : public GpuTest {
protected:
    Object wrap(uint64_t address, uint64_t bytes, int expected = 0) {
        gshm_object* object = nullptr;
        EXPECT_EQ(gshm_wrap(reinterpret_cast<void*>(address), bytes, &object), expected) << gshm_last_error();
        return Object(object);
    }
    // Through the library and through the driver, at an odd offset; bytes beyond the end are rejected.
    void expect_usable(const char* kind, uint64_t address, uint64_t bytes) {
        auto part = wrap(address + 12345, bytes / 2);
        ASSERT_TRUE(part) << kind;
        EXPECT_EQ(gshm_device(part.get()), where()) << kind;
        const auto data = pattern(bytes / 2, 5);
        EXPECT_EQ(gshm_copy_in(part.get(), 0, data.data(), data.size()), 0) << kind << ": " << gshm_last_error();
        EXPECT_EQ(gshm_sync(part.get()), 0) << kind << ": " << gshm_last_error();
        std::vector<std::byte> seen(data.size());
        EXPECT_EQ(gpu().read(gshm_data(part.get()), seen), cuda::kSuccess) << kind;
        EXPECT_EQ(seen, data) << kind;
        gshm_object* beyond = nullptr;
        const int code = gshm_wrap(reinterpret_cast<void*>(address), uint64_t{1} << 42, &beyond);
        EXPECT_EQ(code, -EINVAL) << kind;
        uint8_t handle[GSHM_IPC_HANDLE_BYTES] = {};
        const int ipc = gshm_export_ipc(part.get(), handle, nullptr);
        int fd = -1;
        const int dmabuf = gshm_export_dmabuf(part.get(), &fd, nullptr);
        if (fd >= 0) ::close(fd);
        print_fact(where() + ": memory of " + kind + " is wrapped; IPC handle: " + (ipc == 0 ? "yes" : strerror(-ipc)) +
                   ", dma-buf: " + (dmabuf == 0 ? "yes" : strerror(-dmabuf)));
    }
};
GSHM_FOR_EACH_GPU(GpuWrap);

TEST_P(GpuWrap, EveryKind) {
    const cuda::ScopedContext current(gpu().driver(), gpu().context());
    const auto& calls = FurtherCalls::get();
    cuda::CUdeviceptr pointer = 0;
    ASSERT_EQ(calls.mem_alloc(&pointer, 8 * kMiB), cuda::kSuccess);
    expect_usable("cuMemAlloc", pointer, 8 * kMiB);
    ASSERT_EQ(calls.mem_alloc(&pointer, 100000), cuda::kSuccess);
    expect_usable("a small cuMemAlloc", pointer, 100000);
    if (calls.mem_alloc_async != nullptr && calls.mem_alloc_async(&pointer, 8 * kMiB, nullptr) == cuda::kSuccess) {
        expect_usable("cuMemAllocAsync", pointer, 8 * kMiB);
    }
    constexpr unsigned kGlobal = 1;
    if (calls.mem_alloc_managed != nullptr && calls.mem_alloc_managed(&pointer, 8 * kMiB, kGlobal) == cuda::kSuccess) {
        expect_usable("cuMemAllocManaged", pointer, 8 * kMiB);
    }
    auto object = create("mapped", 8 * kMiB);
    expect_usable("cuMemMap", reinterpret_cast<uint64_t>(gshm_data(object.get())), 8 * kMiB);
    std::vector<char> ordinary(100000);
    EXPECT_STREQ(gshm_device(wrap(reinterpret_cast<uint64_t>(ordinary.data()), ordinary.size()).get()), "host");
    gpu().driver().mem_host_register(ordinary.data(), ordinary.size(), cuda::kMemHostRegisterPortable);
    EXPECT_STREQ(gshm_device(wrap(reinterpret_cast<uint64_t>(ordinary.data()), ordinary.size()).get()), "host");
    // Otherwise the driver would take later allocations there for pinned memory, and reject partly pinned ones.
    gpu().driver().mem_host_unregister(ordinary.data());
}

TEST_P(GpuWrap, IpcHandlesWithAnOffset) {
    const cuda::ScopedContext current(gpu().driver(), gpu().context());
    cuda::CUdeviceptr pointer = 0;
    ASSERT_EQ(FurtherCalls::get().mem_alloc(&pointer, 8 * kMiB), cuda::kSuccess);
    auto part = wrap(pointer + 3 * kMiB + 4096, kMiB);
    const auto data = pattern(kMiB, 77);
    ASSERT_EQ(gshm_copy_in(part.get(), 0, data.data(), data.size()), 0) << gshm_last_error();
    uint8_t handle[GSHM_IPC_HANDLE_BYTES] = {};
    gshm_handle_info info = {};
    info.struct_size = sizeof info;
    ASSERT_EQ(gshm_export_ipc(part.get(), handle, &info), 0) << gshm_last_error();
    EXPECT_EQ(info.offset, 3 * kMiB + 4096);
    gshm_object* again = nullptr;
    EXPECT_EQ(gshm_import_ipc(where().c_str(), handle, &info, 0, &again), -EINVAL) << gshm_last_error();
    std::vector<std::string> arguments = {where(), to_hex(handle), "77"};
    for (const auto& argument : to_arguments(info)) arguments.push_back(argument);
    const auto result = run_role("import_ipc", arguments);
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
}

// 3FS's examples with the runtime folder instead of its mount, in a private mount namespace.
TEST_P(GpuWrap, ExamplesOf3fs) {
    if (geteuid() != 0) GTEST_SKIP() << "only root may mount";
    const std::string script =
        "set -e; mount --make-rprivate /; mount -t tmpfs tmpfs /mnt; mkdir /mnt/hf3fs; mount --bind \"$1\" /mnt/hf3fs;"
        "mkdir -p /mnt/hf3fs/data; head -c 9000000 /dev/urandom >/mnt/hf3fs/data/file.bin;"
        "for program in usrbio_read usrbio_wrap usrbio_share; do \"$2/$program\"; done";
    ChildProcess child;
    const auto folder = std::filesystem::path(bin("gshmd")).parent_path().string();
    ASSERT_TRUE(child.spawn({"/usr/bin/unshare", "-m", "/bin/sh", "-c", script, "sh", dir(), folder}));
    const auto result = child.finish({}, std::chrono::minutes(2));
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
}

}  // namespace
}  // namespace gshm::core::test
