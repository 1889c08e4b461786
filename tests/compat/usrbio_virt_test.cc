// The calls by which foreign programs register memory in MOUNT/3fs-virt/iovs: those of 3FS's hf3fs_fuse/io.py
// (make_iovec, make_ioring, read_file) and of NIXL's plugin hf3fs with mem_config=dram_zc.
#include <fcntl.h>
#include <hf3fs_usrbio.h>
#include <sys/mman.h>

#include "mount/mount_fixture.h"

namespace gshm::core::test {
namespace {

constexpr size_t kBytes = 1 << 20;
constexpr char kUuid[] = "123e4567-e89b-42d3-a456-426614174000";
constexpr uint8_t kId[16] = {0x12, 0x3e, 0x45, 0x67, 0xe8, 0x9b, 0x42, 0xd3, 0xa4, 0x56, 0x42, 0x66, 0x14, 0x17, 0x40};

class UsrbioVirt : public ::testing::Test, protected MountFixture {
protected:
    void SetUp() override {
        if (auto missing = missing_for(Way::passthrough); !missing.empty()) GTEST_SKIP() << missing;
        setenv("HF3FS_USRBIO_LIB_LOG", "ERR", 0);
        ASSERT_TRUE(start_mounted(Way::passthrough)) << log();
        for (size_t i = 0; i < kBytes; ++i) bytes_.push_back(static_cast<char>(i * 31 >> 3));
        ASSERT_TRUE(write_file(at("file"), bytes_, O_CREAT));
    }
    // Reads the file into the memory of the iov, as read_file() does.
    void read_into(hf3fs_iov& iov, const std::string& mount_point) {
        const int fd = open(at("file").c_str(), O_RDONLY);
        ASSERT_GE(fd, 0);
        ASSERT_LE(hf3fs_reg_fd(fd, 0), 0);
        hf3fs_ior ior = {};
        ASSERT_EQ(hf3fs_iorcreate4(&ior, mount_point.c_str(), 1, true, 0, 0, -1, 0), 0);
        ASSERT_GE(hf3fs_prep_io(&ior, &iov, true, iov.base, fd, 0, kBytes, nullptr), 0);
        ASSERT_EQ(hf3fs_submit_ios(&ior), 0);
        hf3fs_cqe cqe = {};
        ASSERT_EQ(hf3fs_wait_for_ios(&ior, &cqe, 1, 1, nullptr), 1);
        EXPECT_EQ(cqe.result, static_cast<int64_t>(kBytes));
        hf3fs_dereg_fd(fd);
        close(fd);
        hf3fs_iordestroy(&ior);
    }
    std::string bytes_;
};

TEST_F(UsrbioVirt, CallsOfThePythonBinding) {
    char mount_point[256] = {};
    ASSERT_GT(hf3fs_extract_mount_point(mount_point, sizeof mount_point, at("file").c_str()), 0);
    // multiprocessing.shared_memory.SharedMemory(size=..., create=True)
    const std::string name = "psm_gshm" + std::to_string(getpid());
    const int shm = shm_open(("/" + name).c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
    ASSERT_GE(shm, 0) << strerror(errno);
    ASSERT_EQ(ftruncate(shm, kBytes), 0);
    void* base = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, shm, 0);
    ASSERT_NE(base, MAP_FAILED);
    const std::string link = std::string(mount_point) + "/3fs-virt/iovs/" + kUuid + ".b65536";
    ASSERT_EQ(symlink(("/dev/shm/" + name).c_str(), link.c_str()), 0) << strerror(errno);
    hf3fs_iov iov = {};
    ASSERT_EQ(hf3fs_iovwrap(&iov, base, kId, mount_point, kBytes, 65536, -1), 0);
    // 3FS's own iorcreate opens the folder.
    const int folder = open((std::string(mount_point) + "/3fs-virt/iovs").c_str(), O_DIRECTORY);
    EXPECT_GE(folder, 0);
    close(folder);
    read_into(iov, mount_point);
    EXPECT_EQ(memcmp(base, bytes_.data(), kBytes), 0);
    EXPECT_EQ(unlink(link.c_str()), 0) << strerror(errno);  // iovec.__del__
    hf3fs_iovdestroy(&iov);
    munmap(base, kBytes);
    close(shm);
    EXPECT_EQ(shm_unlink(("/" + name).c_str()), 0);
}

TEST_F(UsrbioVirt, CallsOfNixl) {
    auto* memory =
        static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(static_cast<void*>(memory), MAP_FAILED);
    memset(memory, 5, kBytes);
    // nixlHf3fsDramZCMetadata: the program's memory becomes shared memory in place.
    const std::string name = std::string("/nixl_hf3fs.") + kUuid;
    const int shm = shm_open(name.c_str(), O_CREAT | O_RDWR, 0666);
    ASSERT_GE(shm, 0) << strerror(errno);
    ASSERT_EQ(ftruncate(shm, kBytes), 0);
    ASSERT_EQ(pwrite(shm, memory, kBytes, 0), static_cast<ssize_t>(kBytes));
    ASSERT_EQ(mmap(memory, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, shm, 0), memory);
    const std::string link = mount() + "/3fs-virt/iovs/" + kUuid;
    ASSERT_EQ(symlink(("/dev/shm" + name).c_str(), link.c_str()), 0) << strerror(errno);
    close(shm);
    hf3fs_iov iov = {};
    ASSERT_EQ(hf3fs_iovwrap(&iov, memory, kId, mount().c_str(), kBytes, 0, -1), 0);
    read_into(iov, mount());
    EXPECT_EQ(memcmp(memory, bytes_.data(), kBytes), 0);
    hf3fs_iovdestroy(&iov);
    EXPECT_EQ(unlink(link.c_str()), 0) << strerror(errno);
    EXPECT_EQ(shm_unlink(name.c_str()), 0);
    munmap(memory, kBytes);
}

}  // namespace
}  // namespace gshm::core::test
