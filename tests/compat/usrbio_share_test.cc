// 3FS's interface: GPU memory between processes, by handle and by id.
#include "usrbio_fixture.h"

namespace gshm::core::test {
namespace {

class UsrbioShare : public UsrbioGpuTest {};
GSHM_FOR_GPU_AND_HOST(UsrbioShare);

TEST_P(UsrbioShare, CreatedMemoryOutlivesItsExporter) {
    Peer owner([&](Peer& self) {
        hf3fs_iov iov = {};
        hf3fs_gpu_ipc_handle_t handle = {};
        ASSERT_EQ(hf3fs_iovcreate_gpu(&iov, mount_point(), 3 * kMiB, 0, 1), 0);
        write(iov.base + kMiB, "question");
        ASSERT_EQ(hf3fs_iov_export_gpu(&iov, &handle), 0);
        self.send(handle);
        self.send(iov);
        self.wait();
        EXPECT_EQ(read(iov.base + 2 * kMiB, 6), "answer");
    });
    const auto handle = owner.receive<hf3fs_gpu_ipc_handle_t>();
    const auto theirs = owner.receive<hf3fs_iov>();
    hf3fs_iov iov = {};
    ASSERT_EQ(hf3fs_iov_import_gpu(&iov, &handle, mount_point()), 0);
    EXPECT_EQ(iov.size, 3 * kMiB);
    EXPECT_EQ(memcmp(iov.id, theirs.id, 16), 0);
    EXPECT_TRUE(hf3fs_iov_is_gpu(&iov));
    EXPECT_EQ(hf3fs_iov_gpu_device(&iov), 1);
    EXPECT_EQ(read(iov.base + kMiB, 8), "question");
    write(iov.base + 2 * kMiB, "answer");
    hf3fs_gpu_ipc_handle_t again = {};
    EXPECT_EQ(hf3fs_iov_export_gpu(&iov, &again), 0);
    EXPECT_EQ(memcmp(&again, &handle, sizeof handle), 0);
    owner.go_on();
    EXPECT_EQ(owner.finish(), 0);
    EXPECT_EQ(read(iov.base + 2 * kMiB, 6), "answer") << "the owner is gone";
    hf3fs_iovdestroy_gpu(&iov);
    EXPECT_TRUE(nothing_is_left());
    EXPECT_EQ(hf3fs_iov_import_gpu(&iov, &handle, mount_point()), -ENOENT);
}

TEST_P(UsrbioShare, AHandleWorksWhenNobodyFindsTheIdAnyMore) {
    Peer owner([&](Peer& self) {
        hf3fs_iov iov = {};
        hf3fs_gpu_ipc_handle_t handle = {};
        ASSERT_EQ(hf3fs_iovcreate_gpu(&iov, mount_point(), 3 * kMiB, 0, 0), 0);
        write(iov.base, "unlinked");
        ASSERT_EQ(hf3fs_iov_export_gpu(&iov, &handle), 0);
        hf3fs_iovunlink_gpu(&iov);
        self.send(handle);
        self.wait();
    });
    const auto handle = owner.receive<hf3fs_gpu_ipc_handle_t>();
    hf3fs_iov iov = {};
    ASSERT_EQ(hf3fs_iov_import_gpu(&iov, &handle, mount_point()), 0);
    EXPECT_EQ(read(iov.base, 8), "unlinked");
    owner.go_on();
    EXPECT_EQ(owner.finish(), 0);
    hf3fs_iovdestroy_gpu(&iov);
}

TEST_P(UsrbioShare, HandlesThatMakeNoSense) {
    hf3fs_iov iov = {};
    hf3fs_gpu_ipc_handle_t handle = {};
    ASSERT_EQ(hf3fs_iovcreate_gpu(&iov, mount_point(), kMiB, 0, 0), 0);
    ASSERT_EQ(hf3fs_iov_export_gpu(&iov, &handle), 0);
    EXPECT_EQ(hf3fs_iov_export_gpu(&iov, nullptr), -EINVAL);
    hf3fs_iov other = {};
    EXPECT_EQ(hf3fs_iov_import_gpu(&other, nullptr, mount_point()), -EINVAL);
    EXPECT_EQ(hf3fs_iov_import_gpu(nullptr, &handle, mount_point()), -EINVAL);
    EXPECT_EQ(hf3fs_iov_import_gpu(&other, &handle, "/proc"), -EINVAL);
    auto wrong = handle;
    wrong.data[8] ^= 1;  // of another daemon
    EXPECT_EQ(hf3fs_iov_import_gpu(&other, &wrong, mount_point()), -EINVAL);
    wrong = handle;
    wrong.data[64] ^= 1;  // another size
    EXPECT_EQ(hf3fs_iov_import_gpu(&other, &wrong, mount_point()), -EINVAL);
    wrong = handle;
    wrong.data[16] ^= 0x80;  // no such object
    EXPECT_EQ(hf3fs_iov_import_gpu(&other, &wrong, mount_point()), -ENOENT);
    for (size_t at = 0; at < sizeof handle.data; ++at) {  // whatever comes of it, it is no crash
        wrong = handle;
        wrong.data[at] = static_cast<uint8_t>(~wrong.data[at]);
        if (hf3fs_iov_import_gpu(&other, &wrong, mount_point()) == 0) hf3fs_iovdestroy_gpu(&other);
    }
    memset(&wrong, 0, sizeof wrong);
    EXPECT_EQ(hf3fs_iov_import_gpu(&other, &wrong, mount_point()), -EINVAL);
    hf3fs_iovdestroy_gpu(&iov);
}

// The driver's handle stands for the allocation; the place in it comes along.
TEST_P(UsrbioShare, WrappedMemoryIsSharedWithItsOffset) {
    const uint8_t id[16] = {0xaa, 0xbb};
    Peer owner([&](Peer& self) {
        hf3fs_iov iov = {};
        hf3fs_gpu_ipc_handle_t handle = {};
        char* memory = foreign_memory(6 * kMiB);
        ASSERT_EQ(hf3fs_iovwrap_gpu(&iov, memory + 5 * kMiB + 3, id, mount_point(), 1000, 0, 0), 0);
        EXPECT_EQ(hf3fs_iov_export_gpu(&iov, &handle), is_host() ? -ENOTSUP : 0);
        write(iov.base, "mine");
        self.send(handle);
        self.wait();
        EXPECT_EQ(read(iov.base + 996, 4), is_host() ? read(iov.base + 996, 4) : "done");
        hf3fs_iovdestroy_gpu(&iov);
        self.go_on();
        self.wait();
    });
    const auto handle = owner.receive<hf3fs_gpu_ipc_handle_t>();
    if (is_host()) {
        owner.go_on();
        owner.wait();
        owner.go_on();
        EXPECT_EQ(owner.finish(), 0);
        GTEST_SKIP() << "a program's own ordinary memory cannot be shared afterwards";
    }
    hf3fs_iov iov = {};
    ASSERT_EQ(hf3fs_iov_import_gpu(&iov, &handle, mount_point()), 0);
    EXPECT_EQ(iov.size, 1000u);
    EXPECT_EQ(hf3fs_iov_gpu_device(&iov), 0);
    EXPECT_EQ(read(iov.base, 4), "mine");
    hf3fs_gpu_ipc_handle_t again = {};
    EXPECT_EQ(hf3fs_iov_export_gpu(&iov, &again), 0);
    EXPECT_EQ(memcmp(&again, &handle, sizeof handle), 0);

    hf3fs_iov by_id = {};
    EXPECT_EQ(hf3fs_iovopen_gpu(&by_id, id, mount_point(), 1001, 0, 0), -EINVAL);
    EXPECT_EQ(hf3fs_iovopen_gpu(&by_id, id, mount_point(), 1000, 0, 1), -EINVAL);
    ASSERT_EQ(hf3fs_iovopen_gpu(&by_id, id, mount_point(), 1000, 0, 0), 0);
    EXPECT_EQ(memcmp(by_id.id, id, 16), 0);
    write(by_id.base + 996, "done");
    hf3fs_iovdestroy_gpu(&by_id);
    EXPECT_EQ(read(iov.base + 996, 4), "done") << "opened twice, closed once";
    hf3fs_iovdestroy_gpu(&iov);
    owner.go_on();
    owner.wait();
    EXPECT_EQ(hf3fs_iovopen_gpu(&by_id, id, mount_point(), 1000, 0, 0), -ENOENT) << "its owner has destroyed it";
    owner.go_on();
    EXPECT_EQ(owner.finish(), 0);
}

// The exporter's GPU 1 is GPU 0 of the importer.
TEST_F(UsrbioTest, NumbersOfGpusMayDifferBetweenProcesses) {
    start_daemon();
    struct Handles {
        hf3fs_gpu_ipc_handle_t created;
        hf3fs_gpu_ipc_handle_t wrapped;
    };
    Peer owner([&](Peer& self) {
        Handles handles = {};
        hf3fs_iov created = {};
        hf3fs_iov wrapped = {};
        const uint8_t id[16] = {3};
        start_cuda(1);
        ASSERT_EQ(hf3fs_iovcreate_gpu(&created, mount_point(), kMiB, 0, 1), 0);
        ASSERT_EQ(hf3fs_iovwrap_gpu(&wrapped, cuda_malloc(2 * kMiB) + kMiB, id, mount_point(), kMiB, 0, 1), 0);
        write(created.base, "created");
        write(wrapped.base, "wrapped");
        ASSERT_EQ(hf3fs_iov_export_gpu(&created, &handles.created), 0);
        ASSERT_EQ(hf3fs_iov_export_gpu(&wrapped, &handles.wrapped), 0);
        self.send(handles);
        self.wait();
    });
    const auto handles = owner.receive<Handles>();
    {
        Peer blind([&](Peer&) {
            setenv("CUDA_VISIBLE_DEVICES", "0", 1);
            hf3fs_iov iov = {};
            EXPECT_EQ(hf3fs_iov_import_gpu(&iov, &handles.created, mount_point()), -ENODEV);
            EXPECT_EQ(hf3fs_iov_import_gpu(&iov, &handles.wrapped, mount_point()), -ENODEV);
        });
        EXPECT_EQ(blind.finish(), 0);
    }
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    for (const auto& [handle, text] : {std::pair{handles.created, "created"}, std::pair{handles.wrapped, "wrapped"}}) {
        hf3fs_iov iov = {};
        ASSERT_EQ(hf3fs_iov_import_gpu(&iov, &handle, mount_point()), 0) << text;
        EXPECT_EQ(hf3fs_iov_gpu_device(&iov), 0);
        EXPECT_EQ(read(iov.base, 7), text);
        hf3fs_iovdestroy_gpu(&iov);
    }
    owner.go_on();
    EXPECT_EQ(owner.finish(), 0);
}

}  // namespace
}  // namespace gshm::core::test
