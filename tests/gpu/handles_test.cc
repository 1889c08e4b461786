// Handles for other processes: descriptors, fabric handles, dma-bufs, with and without a daemon.
#include "fixture.h"

namespace gshm::core::test {
namespace {

class GpuHandles : public GpuTest {
protected:
    static gshm_handle_info empty_info() {
        gshm_handle_info info = {};
        info.struct_size = sizeof info;
        return info;
    }
    Object create_and_open(const std::string& name, uint64_t bytes, unsigned seed) {
        create_filled(name, bytes, seed).reset();
        return open(name);
    }
    std::vector<std::string> import_arguments(const std::string& handle, unsigned seed, const gshm_handle_info& info) {
        std::vector<std::string> arguments = {where(), handle, std::to_string(seed)};
        for (const auto& argument : to_arguments(info)) arguments.push_back(argument);
        return arguments;
    }
    void expect_fd_imports_elsewhere(gshm_object* object, unsigned seed) {
        auto info = empty_info();
        int fd = -1;
        ASSERT_EQ(gshm_export_fd(object, &fd, &info), 0) << gshm_last_error();
        EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
        const int inherited = fcntl(fd, F_DUPFD, 100);
        ::close(fd);
        const auto result = run_role("import_fd", import_arguments(std::to_string(inherited), seed, info));
        EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
        ::close(inherited);
    }
    void expect_fabric_imports_elsewhere(gshm_object* object, unsigned seed) {
        auto info = empty_info();
        uint8_t handle[GSHM_FABRIC_HANDLE_BYTES] = {};
        const int code = gshm_export_fabric(object, handle, &info);
        if (code == -EOPNOTSUPP) GTEST_SKIP() << gshm_last_error();
        ASSERT_EQ(code, 0) << gshm_last_error();
        const auto result = run_role("import_fabric", import_arguments(to_hex(handle), seed, info));
        EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    }
};
GSHM_FOR_EACH_GPU(GpuHandles);

TEST_P(GpuHandles, TheDaemonSaysWhatTheGpuCanDo) {
    const auto gpu = info();
    EXPECT_NE(gpu.handle_kinds & GSHM_HANDLE_POSIX_FD, 0u);
    EXPECT_GT(gpu.capacity_bytes, 0u);
    EXPECT_EQ(gpu.failed, 0u) << gpu.failure;
    EXPECT_TRUE(std::string(gpu.uuid).starts_with("GPU-") || std::string(gpu.uuid).starts_with("MIG-")) << gpu.uuid;
    std::string kinds = "POSIX fd";
    if (gpu.handle_kinds & GSHM_HANDLE_FABRIC) kinds += ", fabric";
    if (gpu.handle_kinds & GSHM_HANDLE_DMABUF) kinds += ", dma-buf";
    int version = 0;
    this->gpu().driver().driver_get_version(&version);
    print_fact(where() + ": " + gpu.model + ", CUDA " + std::to_string(version / 1000) + "." +
               std::to_string(version % 1000 / 10) + ", " + std::to_string(gpu.capacity_bytes / kMiB) +
               " MiB, granularity " + std::to_string(gpu.granularity_bytes >> 10) + " KiB, handles: " + kinds +
               (gpu.compressible ? ", compressible" : ", not compressible"));
}

TEST_P(GpuHandles, DescriptorsOfSmallAndLargeObjects) {
    const auto neighbour = create_filled("a", 1000, 30);
    const auto small = create_and_open("b", 1000, 31);
    const auto large = create_and_open("c", 8 * kMiB, 32);
    expect_fd_imports_elsewhere(small.get(), 31);
    expect_fd_imports_elsewhere(large.get(), 32);
}

TEST_P(GpuHandles, FabricHandles) {
    const auto object = create_and_open("fabric", 8 * kMiB, 33);
    expect_fabric_imports_elsewhere(object.get(), 33);
}

TEST_P(GpuHandles, DmaBufs) {
    const auto object = create_and_open("dmabuf", 8 * kMiB, 34);
    auto info = empty_info();
    int fd = -1;
    const int code = gshm_export_dmabuf(object.get(), &fd, &info);
    if (code == -EOPNOTSUPP) GTEST_SKIP() << "no dma-buf export: " << gshm_last_error();
    ASSERT_EQ(code, 0) << gshm_last_error();
    EXPECT_GE(info.extent_bytes, 8 * kMiB);
    gshm_object* imported = nullptr;
    const int import_code = gshm_import_dmabuf(where().c_str(), fd, &info, 0, &imported);
    ::close(fd);
    print_fact("dma-buf export works; its import into CUDA: " +
               std::string(import_code == 0 ? "works" : gshm_last_error()));
    if (import_code == -EOPNOTSUPP) GTEST_SKIP() << "the driver imports no dma-bufs: " << gshm_last_error();
    ASSERT_EQ(import_code, 0) << gshm_last_error();
    EXPECT_EQ(copy_of(Object(imported).get()), pattern(8 * kMiB, 34));
}

TEST_P(GpuHandles, MemoryWithoutADaemon) {
    client_.reset();
    stop();
    gshm_object* made = nullptr;
    ASSERT_EQ(gshm_allocate(where().c_str(), 5 * kMiB + 1, 0, &made), 0) << gshm_last_error();
    const Object object(made);
    EXPECT_EQ(gshm_size(made), 5 * kMiB + 1);
    EXPECT_EQ(copy_of(made), std::vector<std::byte>(5 * kMiB + 1));
    const auto data = pattern(5 * kMiB + 1, 35);
    ASSERT_EQ(gshm_copy_in(made, 0, data.data(), data.size()), 0) << gshm_last_error();
    expect_fd_imports_elsewhere(made, 35);
    expect_fabric_imports_elsewhere(made, 35);
}

TEST_P(GpuHandles, GarbageIsRefused) {
    const auto object = create_and_open("good", 4 * kMiB, 36);
    auto info = empty_info();
    int fd = -1;
    ASSERT_EQ(gshm_export_fd(object.get(), &fd, &info), 0) << gshm_last_error();
    gshm_object* imported = nullptr;
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    EXPECT_NE(gshm_import_fd(where().c_str(), null, &info, 0, &imported), 0);
    ::close(null);
    auto larger = info;
    larger.extent_bytes *= 2;
    EXPECT_NE(gshm_import_fd(where().c_str(), fd, &larger, 0, &imported), 0) << "larger than it is";
    const uint8_t zeros[GSHM_FABRIC_HANDLE_BYTES] = {};
    EXPECT_NE(gshm_import_fabric(where().c_str(), zeros, &info, 0, &imported), 0);
    EXPECT_EQ(gshm_import_fd(where().c_str(), fd, &info, 0, &imported), 0) << gshm_last_error();
    EXPECT_EQ(copy_of(Object(imported).get()), pattern(4 * kMiB, 36)) << "and the context is as good as before";
    ::close(fd);
}

}  // namespace
}  // namespace gshm::core::test
