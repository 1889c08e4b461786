// Programs of 3FS's beside a daemon with host memory and two fake GPUs; the fake driver is in both processes.
// Everything is done once with GPU memory and once with host memory in its place.
#pragma once

#include <fcntl.h>
#include <hf3fs_usrbio_gdr.h>
#include <numeric>
#include <span>

#include "compat/peer.h"
#include "cuda/driver.h"
#include "integration/library_fixture.h"

namespace gshm::core::test {

static_assert(sizeof(hf3fs_iov) == 312 && sizeof(hf3fs_ior) == 600 && sizeof(hf3fs_cqe) == 24);
static_assert(sizeof(hf3fs_gpu_ipc_handle_t) == 80 && offsetof(hf3fs_ior, flags) == 592);

constexpr size_t kMiB = size_t{1} << 20;

class UsrbioTest : public ::testing::Test, protected DaemonFixture {
protected:
    UsrbioTest() { setenv("HF3FS_USRBIO_LIB_LOG", "CRITICAL", 0); }

    void start_daemon(const std::string& host = "host:256M") {
        ASSERT_TRUE(fake_loaded);
        ASSERT_TRUE(start({"--device", host, "--device", "cuda"}, fake_cuda_env(2))) << log();
        folder_ = dir();
    }
    const char* mount_point() const { return folder_.c_str(); }

    // A context of this process's own, as a framework makes it.
    static void start_cuda(int gpu = 0) {
        const auto& driver = **cuda::Driver::get();
        cuda::CUcontext context = nullptr;
        EXPECT_EQ(driver.primary_ctx_retain(&context, gpu), cuda::kSuccess);
        EXPECT_EQ(driver.ctx_push(context), cuda::kSuccess);
    }
    static char* cuda_malloc(size_t bytes) {
        using Allocate = cuda::CUresult (*)(cuda::CUdeviceptr*, size_t);
        auto allocate = reinterpret_cast<Allocate>(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
        cuda::CUdeviceptr pointer = 0;
        EXPECT_EQ(allocate(&pointer, bytes), cuda::kSuccess);
        return reinterpret_cast<char*>(pointer);
    }
    // Whatever kind of memory it is.
    static std::string read(const void* memory, size_t bytes) {
        std::string text(bytes, '\0');
        gshm_object* object = nullptr;
        EXPECT_EQ(gshm_wrap(const_cast<void*>(memory), bytes, &object), 0) << gshm_last_error();
        EXPECT_EQ(gshm_copy_out(object, 0, text.data(), bytes), 0) << gshm_last_error();
        gshm_close(object);
        return text;
    }
    static void write(void* memory, std::string_view text) {
        gshm_object* object = nullptr;
        EXPECT_EQ(gshm_wrap(memory, text.size(), &object), 0) << gshm_last_error();
        EXPECT_EQ(gshm_copy_in(object, 0, text.data(), text.size()), 0) << gshm_last_error();
        gshm_close(object);
    }
    static std::string pattern(size_t bytes, unsigned seed = 1) {
        std::string text(bytes, '\0');
        for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>((i * 2654435761u + seed * 40503u) >> 11);
        return text;
    }
    std::string make_file(const std::string& name, const std::string& bytes) const {
        const std::string path = scratch() + "/" + name;
        std::ofstream(path, std::ios::binary) << bytes;
        return path;
    }
    // No object at the daemon, with or without a name; it hears of a process's end a moment later.
    bool nothing_is_left() {
        for (int i = 0; i < 400; ++i) {
            if (daemon_objects() == 0) return true;
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        return false;
    }
    uint64_t daemon_objects() {
        gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
        options.dir = folder_.c_str();
        gshm_client* client = nullptr;
        gshm_daemon_info info = {};
        info.struct_size = sizeof info;
        EXPECT_EQ(gshm_connect(&options, &client), 0) << gshm_last_error();
        EXPECT_EQ(gshm_daemon(client, &info), 0) << gshm_last_error();
        gshm_disconnect(client);
        return info.objects;
    }

    std::string folder_;
};

// Of every test twice: with the fake GPUs, and with GSHM_USRBIO_DEVICE=host.
class UsrbioGpuTest : public UsrbioTest, public ::testing::WithParamInterface<const char*> {
protected:
    void SetUp() override {
        if (is_host()) setenv("GSHM_USRBIO_DEVICE", "host", 1);
        start_daemon();
    }
    static bool is_host() { return std::string_view(GetParam()) == "host"; }
    // Memory that a framework would have.
    static char* foreign_memory(size_t bytes) {
        static std::vector<std::unique_ptr<char[]>> kept;  // a framework frees it some time
        if (is_host()) return kept.emplace_back(new char[bytes]).get();
        start_cuda();
        return cuda_malloc(bytes);
    }
};
#define GSHM_FOR_GPU_AND_HOST(suite)                                           \
    INSTANTIATE_TEST_SUITE_P(Memory, suite, ::testing::Values("cuda", "host"), \
                             [](const auto& info) { return info.param; })

}  // namespace gshm::core::test
