// A test with a gshmd on the real GPUs. Runs once for each GPU; skipped with the reason if there is none.
#pragma once

#include <gtest/gtest.h>

#include "gpu.h"
#include "integration/daemon_fixture.h"
#include "roles.h"

namespace gshm::core::test {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;

class GpuTest : public ::testing::TestWithParam<std::string>, protected DaemonFixture {
protected:
    void SetUp() override {
        std::string why;
        if (gpu_names(&why).empty()) GTEST_SKIP() << "no GPU: " << why;
        ASSERT_TRUE(start({"--device", "cuda", "--device", "host:64M"})) << log();
        client_ = connect();
    }

    void TearDown() override {
        if (streams_.empty()) return;
        const cuda::ScopedContext current(gpu().driver(), gpu().context());
        for (auto* stream : streams_) gpu().driver().stream_destroy(stream);
    }

    const std::string& where() const { return GetParam(); }
    const Gpu& gpu() {
        if (!gpu_) gpu_ = std::make_unique<Gpu>(where());
        return *gpu_;
    }
    // Not ordered by the default stream; destroyed with the test.
    cuda::CUstream make_stream() {
        const cuda::ScopedContext current(gpu().driver(), gpu().context());
        cuda::CUstream stream = nullptr;
        EXPECT_EQ(gpu().driver().stream_create(&stream, cuda::kStreamNonBlocking), cuda::kSuccess);
        streams_.push_back(stream);
        return stream;
    }
    Client connect() {
        auto client = connect_to(dir());
        EXPECT_TRUE(client) << gshm_last_error() << log();
        return client;
    }
    // The result of gshm_create; sets the object on success.
    int try_create(const std::string& name, uint64_t bytes, uint32_t flags, Object& ret_object) {
        gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
        spec.name = name.c_str();
        spec.size_bytes = bytes;
        spec.device = where().c_str();
        spec.flags = flags;
        gshm_object* object = nullptr;
        const int code = gshm_create(client_.get(), &spec, &object);
        ret_object.reset(object);
        return code;
    }
    Object create(const std::string& name, uint64_t bytes, uint32_t flags = 0) {
        Object object;
        EXPECT_EQ(try_create(name, bytes, flags, object), 0) << gshm_last_error();
        return object;
    }
    // Sealed, and filled with pattern(bytes, seed).
    Object create_filled(const std::string& name, uint64_t bytes, unsigned seed, uint32_t flags = 0) {
        auto object = create(name, bytes, flags);
        const auto data = pattern(bytes, seed);
        EXPECT_EQ(gshm_copy_in(object.get(), 0, data.data(), data.size()), 0) << gshm_last_error();
        EXPECT_EQ(gshm_seal(object.get()), 0) << gshm_last_error();
        return object;
    }
    Object open(const std::string& name, uint32_t flags = 0) {
        auto object = open_object(client_.get(), name, flags);
        EXPECT_TRUE(object) << gshm_last_error();
        return object;
    }
    void unlink(const std::string& name) {
        EXPECT_EQ(gshm_unlink(client_.get(), name.c_str()), 0) << gshm_last_error();
    }
    gshm_stat_info stat(const std::string& name) {
        gshm_stat_info info = {};
        info.struct_size = sizeof info;
        EXPECT_EQ(gshm_stat(client_.get(), name.c_str(), &info), 0) << gshm_last_error();
        return info;
    }
    bool exists(const std::string& name) {
        gshm_stat_info info = {};
        info.struct_size = sizeof info;
        return gshm_stat(client_.get(), name.c_str(), &info) == 0;
    }
    // The daemon's information about the GPU.
    gshm_device_info info() {
        std::vector<gshm_device_info> devices(64);
        devices[0].struct_size = sizeof devices[0];
        size_t count = 0;
        EXPECT_EQ(gshm_devices(client_.get(), devices.data(), devices.size(), &count), 0) << gshm_last_error();
        for (size_t i = 0; i < count && i < devices.size(); ++i) {
            if (where() == devices[i].name) return devices[i];
        }
        ADD_FAILURE() << "gshmd has no " << where();
        return {};
    }
    // Another process opens the object and finds pattern(size, seed) in it.
    void expect_read_elsewhere(const std::string& name, unsigned seed) {
        const auto result = run_role("read", {dir(), name, where(), std::to_string(seed)});
        EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    }
    // Effects of other processes are asynchronous to this thread, so the condition is polled. False after a number of
    // polls that only a broken product reaches.
    template <typename Condition>
    static bool eventually(Condition condition) {
        for (int looks = 0; looks < 12000; ++looks) {
            if (condition()) return true;
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        return false;
    }

    Client client_;

private:
    std::unique_ptr<Gpu> gpu_;
    std::vector<cuda::CUstream> streams_;
};

inline std::vector<std::string> gpu_parameters() {
    auto names = gpu_names();
    if (names.empty()) names.push_back("none");
    return names;
}

// Each file instantiates its own suites with this.
#define GSHM_FOR_EACH_GPU(suite)                                                                        \
    INSTANTIATE_TEST_SUITE_P(Gpus, suite, ::testing::ValuesIn(gpu_parameters()), [](const auto& info) { \
        std::string name = info.param;                                                                  \
        std::erase(name, ':');                                                                          \
        return name;                                                                                    \
    })

}  // namespace gshm::core::test
