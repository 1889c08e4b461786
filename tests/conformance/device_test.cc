// The device suite over all devices that need no GPU; CUDA through the fake driver.
#include <dlfcn.h>

#include "device/cuda.h"
#include "device/host.h"
#include "device/limit.h"
#include "device_suite.h"
#include "support/this_build.h"
#include "third_device/file_device.h"

namespace gshm::core::test {
namespace {

// Loaded by path first, the fake has the name libcuda.so.1, so later dlopen("libcuda.so.1") calls find it.
const bool fake_loaded = [] {
    setenv("FAKECUDA_DEVICES", "2", 0);
    setenv("FAKECUDA_FABRIC", "1", 0);
    return dlopen(fakecuda_path().c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr;
}();

Result<std::unique_ptr<Device>> make_host() {
    return TRY(HostDevice::create(uint64_t{1} << 30));
}

Result<std::unique_ptr<Device>> make_cuda() {
    if (!fake_loaded) return fail(ENODEV, "the fake driver is not at {}", fakecuda_path());
    return TRY(CudaDevice::create(0));
}

// A folder for the process. It stays empty.
Result<std::unique_ptr<Device>> make_third() {
    static const struct Folder {
        Folder() { made = mkdtemp(path) != nullptr; }
        ~Folder() {
            if (made) rmdir(path);
        }
        char path[16] = "/tmp/f-XXXXXX";
        bool made = false;
    } folder;
    if (!folder.made) return fail(ENOENT, "no folder for files");
    return TRY(FileDevice::create(folder.path, uint64_t{1} << 30));
}

INSTANTIATE_TEST_SUITE_P(All, DeviceSuite,
                         ::testing::Values(DeviceCase{"host", make_host},
                                           DeviceCase{"limited_host",
                                                      []() -> Result<std::unique_ptr<Device>> {
                                                          return std::make_unique<LimitDevice>(TRY(make_host()),
                                                                                               uint64_t{64} << 20);
                                                      }},
                                           DeviceCase{"fake_cuda", make_cuda}, DeviceCase{"third", make_third}),
                         [](const auto& info) { return info.param.name; });

TEST(LimitDevice, RefusesBeyondItsLimitAndCountsReleases) {
    LimitDevice device(*make_host(), 3 * 4096);
    EXPECT_EQ(device.info().capacity_bytes, 3 * 4096u);
    auto first = device.allocate(2 * 4096, {});
    ASSERT_TRUE(first);
    EXPECT_EQ(device.used_bytes(), 2 * 4096u);
    EXPECT_EQ(device.allocate(2 * 4096, {}).error().code, ENOSPC);
    EXPECT_EQ(device.allocate(~uint64_t{0} - 4095, {}).error().code, ENOSPC);
    first->reset();
    EXPECT_EQ(device.used_bytes(), 0u);
    EXPECT_TRUE(device.allocate(3 * 4096, {}));
}

TEST(HostDevice, ReadOnlyDescriptorCannotBeMadeWritable) {
    auto host = *make_host();
    auto extent = *host->allocate(4096, {});
    auto fd = *extent->export_fd(Access::read);
    EXPECT_EQ(write(fd.get(), "x", 1), -1);
    EXPECT_FALSE(host->import_fd(fd.get(), extent->size(), Access::write));
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
    // Another user, with only the descriptor.
    pid_t child = fork();
    if (child == 0) {
        if (setgid(65534) != 0 || setuid(65534) != 0) _exit(2);
        std::string path = "/proc/self/fd/" + std::to_string(fd.get());
        int writable = open(path.c_str(), O_RDWR);
        int chmodded = fchmod(fd.get(), 0666);
        _exit(writable < 0 && chmodded != 0 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}

TEST(HostDevice, AWriterCannotResizeIt) {
    auto host = *make_host();
    auto extent = *host->allocate(8192, {});
    auto fd = *extent->export_fd(Access::write);
    EXPECT_EQ(ftruncate(fd.get(), 0), -1);
    EXPECT_EQ(ftruncate(fd.get(), 1 << 20), -1);
    EXPECT_EQ(pwrite(fd.get(), "x", 1, 8192), -1);
    EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
    EXPECT_TRUE(extent->fill(0, 8192, 1));
}

TEST(CudaDevice, PeerAccessAndStrangers) {
    ASSERT_TRUE(fake_loaded);
    auto first = CudaDevice::create(0);
    auto second = CudaDevice::create(1);
    ASSERT_TRUE(first && second);
    EXPECT_NE((*first)->info().uuid, (*second)->info().uuid);
    EXPECT_EQ(CudaDevice::create(2).error().code, ENODEV);
    auto extent = *(*first)->allocate(2 << 20, {});
    EXPECT_TRUE(extent->map_peer(**second));
    auto host = *make_host();
    EXPECT_EQ(extent->map_peer(*host).error().code, EOPNOTSUPP);
    auto on_host = *host->allocate(4096, {});
    EXPECT_EQ(on_host->map_peer(**first).error().code, EOPNOTSUPP);
}

}  // namespace
}  // namespace gshm::core::test
