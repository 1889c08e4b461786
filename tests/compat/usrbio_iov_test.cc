// 3FS's interface: memory is created, opened, wrapped and destroyed.
#include <sys/mman.h>

#include "usrbio_fixture.h"

namespace gshm::core::test {
namespace {

using UsrbioIov = UsrbioTest;

TEST_F(UsrbioIov, HostMemoryIsCreatedOpenedAndDestroyed) {
    start_daemon();
    hf3fs_iov iov;
    memset(&iov, 0xee, sizeof iov);
    ASSERT_EQ(hf3fs_iovcreate(&iov, mount_point(), 3 * kMiB + 5, 4096, 0), 0);
    EXPECT_EQ(iov.size, 3 * kMiB + 5);
    EXPECT_EQ(iov.block_size, 4096u);
    EXPECT_EQ(iov.numa, 0);
    EXPECT_STREQ(iov.mount_point, mount_point());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(iov.base) % 4096, 0u);
    EXPECT_EQ(iov.base[0], 0);
    EXPECT_FALSE(hf3fs_iov_is_gpu(&iov));
    EXPECT_EQ(hf3fs_iovsync(&iov, 0), 0);
    EXPECT_EQ(hf3fs_iovsync_gpu(&iov, 0), -EINVAL);
    hf3fs_gpu_ipc_handle_t handle;
    EXPECT_EQ(hf3fs_iov_export_gpu(&iov, &handle), -EINVAL);

    const auto* id = reinterpret_cast<const uint8_t*>(iov.id);
    hf3fs_iov other = {};
    EXPECT_EQ(hf3fs_iovopen(&other, id, mount_point(), 4 * kMiB, 0, -1), -EINVAL) << "more than it has";
    EXPECT_EQ(hf3fs_iovopen(&other, nullptr, mount_point(), 1, 0, -1), -EINVAL);
    ASSERT_EQ(hf3fs_iovopen(&other, id, mount_point(), 3 * kMiB + 5, 0, -1), 0);
    EXPECT_EQ(memcmp(other.id, iov.id, 16), 0);
    iov.base[3 * kMiB + 4] = 77;
    EXPECT_EQ(other.base[3 * kMiB + 4], 77);
    hf3fs_iovunlink(&iov);
    hf3fs_iovunlink(&iov);
    hf3fs_iov late = {};
    EXPECT_EQ(hf3fs_iovopen(&late, id, mount_point(), 1, 0, -1), -ENOENT);
    hf3fs_iovdestroy(&iov);
    EXPECT_EQ(iov.base, nullptr);
    hf3fs_iovdestroy(&iov);
    EXPECT_EQ(other.base[3 * kMiB + 4], 77) << "lives while one has it";
    hf3fs_iovdestroy(&other);
    EXPECT_TRUE(nothing_is_left());
}

TEST_F(UsrbioIov, DestroyingUnlinksWhatWasCreatedAndNotWhatWasOpened) {
    start_daemon();
    hf3fs_iov iov = {};
    hf3fs_iov other = {};
    ASSERT_EQ(hf3fs_iovcreate(&iov, mount_point(), kMiB, 0, -1), 0);
    const auto* id = reinterpret_cast<const uint8_t*>(iov.id);
    ASSERT_EQ(hf3fs_iovopen(&other, id, mount_point(), kMiB, 0, -1), 0);
    hf3fs_iovunlink(&other);
    hf3fs_iovdestroy(&other);
    ASSERT_EQ(hf3fs_iovopen(&other, id, mount_point(), kMiB, 0, -1), 0);
    hf3fs_iovdestroy(&other);
    hf3fs_iovdestroy(&iov);
    EXPECT_TRUE(nothing_is_left());
}

TEST_F(UsrbioIov, TooMuchIsAnErrorAndNoSignal) {
    start_daemon("host:8M");
    hf3fs_iov iov = {};
    EXPECT_EQ(hf3fs_iovcreate(&iov, mount_point(), 64 * kMiB, 0, -1), -ENOSPC);
    EXPECT_EQ(hf3fs_iovcreate(&iov, mount_point(), size_t{1} << 50, 0, -1), -ENOSPC);
    EXPECT_EQ(iov.iovh, nullptr);
    ASSERT_EQ(hf3fs_iovcreate(&iov, mount_point(), 8 * kMiB, 0, -1), 0);
    memset(iov.base, 1, iov.size);
    hf3fs_iov gpu = {};
    EXPECT_EQ(hf3fs_iovcreate_gpu(&gpu, mount_point(), size_t{1} << 40, 0, 0), -ENOMEM);
    hf3fs_iovdestroy(&iov);
}

TEST_F(UsrbioIov, HostMemoryIsWrapped) {
    start_daemon();
    std::vector<char> memory(100000, 'm');
    const uint8_t id[16] = {1, 2, 3};
    hf3fs_iov iov = {};
    ASSERT_EQ(hf3fs_iovwrap(&iov, memory.data() + 1, id, mount_point(), 99999, 512, -1), 0);
    EXPECT_EQ(iov.base, reinterpret_cast<uint8_t*>(memory.data() + 1));
    EXPECT_EQ(memcmp(iov.id, id, 16), 0);
    EXPECT_EQ(iov.size, 99999u);
    EXPECT_FALSE(hf3fs_iov_is_gpu(&iov));
    hf3fs_iovdestroy(&iov);
    EXPECT_EQ(memory[1], 'm');
    EXPECT_EQ(hf3fs_iovwrap(&iov, nullptr, id, mount_point(), 1, 0, -1), -EINVAL);
    EXPECT_EQ(hf3fs_iovwrap(&iov, memory.data(), nullptr, mount_point(), 1, 0, -1), -EINVAL);
    EXPECT_EQ(hf3fs_iovwrap(&iov, memory.data(), id, mount_point(), size_t{1} << 46, 0, -1), -EINVAL) << "not there";
    auto* page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_EQ(hf3fs_iovwrap(&iov, page, id, mount_point(), 4096, 0, -1), -EINVAL);
}

class UsrbioGpuIov : public UsrbioGpuTest {};
GSHM_FOR_GPU_AND_HOST(UsrbioGpuIov);

TEST_P(UsrbioGpuIov, IsCreatedOpenedAndDestroyed) {
    EXPECT_TRUE(hf3fs_gdr_available());
    EXPECT_EQ(hf3fs_gdr_device_count(), is_host() ? 1 : 2);
    hf3fs_iov iov = {};
    ASSERT_EQ(hf3fs_iovcreate_gpu(&iov, mount_point(), 5 * kMiB, 0, 1), 0);
    EXPECT_EQ(iov.size, 5 * kMiB);
    EXPECT_TRUE(hf3fs_iov_is_gpu(&iov));
    EXPECT_EQ(hf3fs_iov_gpu_device(&iov), 1);
    EXPECT_EQ(hf3fs_iov_device_id(&iov), 1);
    EXPECT_EQ(hf3fs_iov_mem_type(&iov), HF3FS_MEM_DEVICE);
    EXPECT_EQ(read(iov.base, 3), std::string(3, '\0'));
    write(iov.base + 4 * kMiB, "far");
    EXPECT_EQ(hf3fs_iovsync_gpu(&iov, 0), 0);
    EXPECT_EQ(hf3fs_iovsync_gpu(&iov, 1), 0);
    EXPECT_EQ(hf3fs_iovsync(&iov, 1), 0);
    EXPECT_EQ(hf3fs_iovsync_gpu(&iov, 2), -EINVAL);
    EXPECT_EQ(hf3fs_iovsync_gpu(&iov, -1), -EINVAL);

    const auto* id = reinterpret_cast<const uint8_t*>(iov.id);
    hf3fs_iov other = {};
    EXPECT_EQ(hf3fs_iovopen_gpu(&other, id, mount_point(), kMiB, 0, 1), -EINVAL) << "another size";
    EXPECT_EQ(hf3fs_iovopen_gpu(&other, nullptr, mount_point(), 5 * kMiB, 0, 1), -EINVAL);
    if (!is_host()) {
        EXPECT_EQ(hf3fs_iovopen_gpu(&other, id, mount_point(), 5 * kMiB, 0, 0), -EINVAL) << "another GPU";
        EXPECT_EQ(hf3fs_iovopen(&other, id, mount_point(), 5 * kMiB, 0, 0), -EINVAL) << "no host memory";
    }
    ASSERT_EQ(hf3fs_iovopen_device(&other, id, mount_point(), 5 * kMiB, 0, 1), 0);
    EXPECT_EQ(read(other.base + 4 * kMiB, 3), "far");
    EXPECT_EQ(hf3fs_iov_gpu_device(&other), 1);
    hf3fs_iovunlink_gpu(&iov);
    hf3fs_iov late = {};
    EXPECT_EQ(hf3fs_iovopen_gpu(&late, id, mount_point(), 5 * kMiB, 0, 1), -ENOENT);
    hf3fs_iovdestroy_gpu(&iov);
    EXPECT_EQ(read(other.base + 4 * kMiB, 3), "far");
    hf3fs_iovdestroy_gpu(&other);
    EXPECT_FALSE(hf3fs_iov_is_gpu(&other));
    EXPECT_TRUE(nothing_is_left());
}

TEST_P(UsrbioGpuIov, WrongNumbers) {
    hf3fs_iov iov = {};
    const uint8_t id[16] = {9};
    EXPECT_EQ(hf3fs_iovcreate_gpu(&iov, mount_point(), kMiB, 0, -1), -EINVAL);
    EXPECT_EQ(hf3fs_iovcreate_gpu(nullptr, mount_point(), kMiB, 0, 0), -EINVAL);
    EXPECT_EQ(hf3fs_iovcreate_gpu(&iov, mount_point(), 0, 0, 0), -EINVAL);
    EXPECT_EQ(hf3fs_iovopen_gpu(&iov, id, mount_point(), kMiB, 0, 0), -ENOENT);
    EXPECT_EQ(hf3fs_iovwrap_gpu(&iov, nullptr, id, mount_point(), kMiB, 0, 0), -EINVAL);
    if (is_host()) {
        EXPECT_EQ(hf3fs_iovcreate_device(&iov, mount_point(), kMiB, 0, 7), 0) << "host memory is everywhere";
        EXPECT_EQ(hf3fs_iov_gpu_device(&iov), 7);
        hf3fs_iovdestroy(&iov);
    } else {
        EXPECT_EQ(hf3fs_iovcreate_device(&iov, mount_point(), kMiB, 0, 2), -ENODEV);
        EXPECT_EQ(hf3fs_iovopen_device(&iov, id, mount_point(), kMiB, 0, 2), -ENODEV);
        EXPECT_EQ(hf3fs_iovwrap_device(&iov, &iov, id, mount_point(), 8, 0, 2), -ENODEV);
        EXPECT_EQ(hf3fs_iovwrap_device(&iov, &iov, id, mount_point(), 8, 0, 0), -EINVAL) << "no memory of a GPU";
    }
}

TEST_P(UsrbioGpuIov, ForeignMemoryIsWrappedAnywhereInside) {
    char* memory = foreign_memory(4 * kMiB);
    const uint8_t id[16] = {5, 6, 7};
    hf3fs_iov iov = {};
    ASSERT_EQ(hf3fs_iovwrap_gpu(&iov, memory + 333, id, mount_point(), kMiB, 0, 0), 0);
    EXPECT_EQ(iov.base, reinterpret_cast<uint8_t*>(memory + 333));
    EXPECT_EQ(memcmp(iov.id, id, 16), 0);
    EXPECT_TRUE(hf3fs_iov_is_gpu(&iov));
    EXPECT_EQ(hf3fs_iov_gpu_device(&iov), 0);
    EXPECT_EQ(hf3fs_iovsync_gpu(&iov, 0), 0);
    hf3fs_iov second = {};
    if (!is_host()) {
        EXPECT_EQ(hf3fs_iovwrap_gpu(&second, memory, id, mount_point(), 10, 0, 0), -EEXIST);
        EXPECT_EQ(hf3fs_iovwrap_gpu(&second, memory, id, mount_point(), 10, 0, 1), -EINVAL) << "another GPU's";
        EXPECT_EQ(hf3fs_iovwrap_gpu(&second, memory + 3 * kMiB, id, mount_point(), 2 * kMiB, 0, 0), -EINVAL);
    }
    hf3fs_iovdestroy_gpu(&iov);
    EXPECT_TRUE(nothing_is_left());
    ASSERT_EQ(hf3fs_iovwrap_device(&iov, memory, id, mount_point(), kMiB, 0, 0), 0) << "the id is free again";
    write(memory, "still the caller's");
    hf3fs_iovdestroy_gpu(&iov);
    EXPECT_EQ(read(memory, 5), "still");
}

TEST_P(UsrbioGpuIov, AKilledProcessLeavesNothing) {
    Peer peer([&](Peer& self) {
        hf3fs_iov iovs[4] = {};
        const uint8_t id[16] = {4};
        EXPECT_EQ(hf3fs_iovcreate(&iovs[0], mount_point(), kMiB, 0, -1), 0);
        EXPECT_EQ(hf3fs_iovcreate_gpu(&iovs[1], mount_point(), 4 * kMiB, 0, 0), 0);
        EXPECT_EQ(hf3fs_iovcreate_gpu(&iovs[2], mount_point(), 4 * kMiB, 0, 0), 0);
        hf3fs_iovunlink_gpu(&iovs[2]);
        EXPECT_EQ(hf3fs_iovwrap_gpu(&iovs[3], foreign_memory(kMiB), id, mount_point(), kMiB, 0, 0), 0);
        self.go_on();
        pause();
    });
    peer.wait();
    EXPECT_GE(daemon_objects(), 3u);
    EXPECT_NE(run_cli({"ls"}).out, "");
    peer.kill();
    EXPECT_EQ(peer.finish(), 128 + SIGKILL);
    EXPECT_TRUE(nothing_is_left());
    EXPECT_EQ(run_cli({"ls"}).out, "");
}

TEST_F(UsrbioIov, WithoutAGpuItIsNotSupported) {
    setenv("FAKECUDA_DEVICES", "0", 1);
    start_daemon();
    hf3fs_iov iov = {};
    EXPECT_FALSE(hf3fs_gdr_available());
    EXPECT_EQ(hf3fs_gdr_device_count(), 0);
    EXPECT_EQ(hf3fs_iovcreate_gpu(&iov, mount_point(), kMiB, 0, 0), -ENOTSUP);
    EXPECT_EQ(hf3fs_iovcreate(&iov, mount_point(), kMiB, 0, -1), 0);
    hf3fs_iovdestroy(&iov);
}

// The daemon has one GPU; this process sees two, of which that one is the second.
TEST_F(UsrbioIov, GpusHaveTheNumbersOfThisProcess) {
    ASSERT_TRUE(fake_loaded);
    auto env = fake_cuda_env(2);
    env.push_back("CUDA_VISIBLE_DEVICES=1");
    ASSERT_TRUE(start({"--device", "cuda"}, env)) << log();
    folder_ = dir();
    hf3fs_iov iov = {};
    EXPECT_EQ(hf3fs_iovcreate_gpu(&iov, mount_point(), kMiB, 0, 0), -ENODEV) << "not the daemon's";
    ASSERT_EQ(hf3fs_iovcreate_gpu(&iov, mount_point(), kMiB, 0, 1), 0);
    EXPECT_EQ(hf3fs_iov_gpu_device(&iov), 1);
    hf3fs_iovdestroy_gpu(&iov);
}

}  // namespace
}  // namespace gshm::core::test
