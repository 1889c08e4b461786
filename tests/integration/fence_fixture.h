// Fences with a real daemon, on host and on fake GPUs: streams that can be blocked, and another process.
#pragma once

#include <csignal>
#include <cstdio>
#include <filesystem>

#include "cuda/api.h"
#include "fake_driver.h"
#include "survival_fixture.h"
#include <gshm/fence.hpp>

namespace gshm::core::test {

namespace hpp = ::gshm::v0;
using hpp::Fence;

// A stream that is blocked until a word releases it, independently of fences.
class Stream {
public:
    explicit Stream(int ordinal = 0) {
        cuda::CUcontext context = nullptr;
        fake<cuda::CUresult(cuda::CUcontext*, cuda::CUdevice)>("cuDevicePrimaryCtxRetain")(&context, ordinal);
        fake<cuda::CUresult(cuda::CUcontext)>("cuCtxPushCurrent_v2")(context);
        fake<cuda::CUresult(cuda::CUstream*, unsigned)>("cuStreamCreate")(&stream_, cuda::kStreamNonBlocking);
        fake<cuda::CUresult(void*, size_t, unsigned)>("cuMemHostRegister_v2")(&gate_, sizeof gate_, 0);
    }
    ~Stream() {
        go_on();
        synchronize();
        fake<cuda::CUresult(cuda::CUstream)>("cuStreamDestroy_v2")(stream_);
        fake<cuda::CUresult(void*)>("cuMemHostUnregister")(&gate_);
    }
    void stop() {
        gate_ = 0;
        EXPECT_EQ(fake<cuda::CUresult(cuda::CUstream, cuda::CUdeviceptr, uint64_t, unsigned)>("cuStreamWaitValue64_v2")(
                      stream_, reinterpret_cast<cuda::CUdeviceptr>(&gate_), 1, 0),
                  cuda::kSuccess);
    }
    void go_on() { gate_ = 1; }
    void fill(void* memory, unsigned char value, size_t bytes) {
        EXPECT_EQ(fake<cuda::CUresult(cuda::CUdeviceptr, unsigned char, size_t, cuda::CUstream)>("cuMemsetD8Async")(
                      reinterpret_cast<cuda::CUdeviceptr>(memory), value, bytes, stream_),
                  cuda::kSuccess);
    }
    void synchronize() { fake<cuda::CUresult(cuda::CUstream)>("cuStreamSynchronize")(stream_); }
    void* get() const { return stream_; }

private:
    cuda::CUstream stream_ = nullptr;
    alignas(8) std::atomic<uint64_t> gate_ = 1;
};

// A forked process that proceeds step by step and is killed with the test. If it uses CUDA, it must be forked before
// this process does.
class Other {
public:
    template <typename Body>
    explicit Other(Body body) {
        if (pipe(up_) != 0 || pipe(down_) != 0) abort();
        pid_ = fork();
        if (pid_ == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(up_[0]);
            close(down_[1]);
            try {
                if constexpr (std::is_void_v<decltype(body(*this))>) body(*this);
                else _exit(body(*this));
            } catch (const std::exception& error) {
                fprintf(stderr, "the other process: %s\n", error.what());
            }
            _exit(96);
        }
        close(up_[1]);
        close(down_[0]);
    }
    ~Other() {
        kill();
        close(up_[0]);
        close(down_[1]);
    }
    void kill() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
        pid_ = 0;
    }
    int wait() {
        int status = 0;
        waitpid(pid_, &status, 0);
        pid_ = 0;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    // In the parent: waits until the child calls its next say().
    void hear() const {
        char byte = 0;
        ASSERT_EQ(read(up_[0], &byte, 1), 1);
    }
    void tell() const { ASSERT_EQ(write(down_[1], "", 1), 1); }
    // In the child.
    void say() const {
        if (write(up_[1], "", 1) != 1) _exit(98);
    }
    void listen() const {
        char byte = 0;
        if (read(down_[0], &byte, 1) != 1) _exit(97);
    }

private:
    pid_t pid_ = 0;
    int up_[2] = {-1, -1};
    int down_[2] = {-1, -1};
};

class FenceTest : public LibrarySurvivalTest, public ::testing::WithParamInterface<const char*> {
protected:
    void SetUp() override {
        ASSERT_NO_FATAL_FAILURE(start_all());
        hpp_ = connect_hpp();
    }
    hpp::Client connect_hpp() const {
        return hpp::Client::connect({.dir = dir(), .timeout = std::chrono::milliseconds(kPatience)}).value();
    }
    static const char* where() { return GetParam(); }
    static bool on_host() { return std::string_view(where()) == "host"; }
    static hpp::Object make(const hpp::Client& client, const std::string& name, uint32_t mode = 0600) {
        return client.create({.name = name, .size_bytes = 4096, .device = where(), .mode = mode, .keep = true}).value();
    }
    // Without CUDA, which cannot be used in processes that are forked later.
    void make_for_others(const std::string& name) const {
        hpp_.create({.name = name, .size_bytes = 4096, .device = where(), .keep = true, .map = false}).value();
    }
    static int code(const auto& result) { return result ? 0 : result.error().code; }
    // The number of fence pages that gshmd and its keeper have open.
    int pages(pid_t of) const {
        int count = 0;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(of) + "/fd")) {
            std::error_code ignored;
            count += std::filesystem::read_symlink(entry, ignored).string().starts_with("/memfd:gshm-fence");
        }
        return count;
    }

    hpp::Client hpp_;
};

}  // namespace gshm::core::test
