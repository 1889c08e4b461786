// Programs of vineyard's beside a daemon with host memory and two fake GPUs; the fake driver is in both processes.
// Everything is done once on a GPU and once on host.
#pragma once

#include <vineyard.h>

#include "compat/peer.h"
#include "integration/library_fixture.h"
#include <gshm/gshm.hpp>

namespace gshm::core::test {

namespace vy = ::vineyard;
using vy::ObjectID;

inline ::testing::AssertionResult is_ok(const vy::Status& status) {
    if (status.ok()) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << status.ToString();
}
#define EXPECT_OK(call) EXPECT_TRUE(is_ok(call))
#define ASSERT_OK(call) ASSERT_TRUE(is_ok(call))

struct Made {
    ObjectID id = 0;
    vy::Payload payload;
    std::shared_ptr<vy::MutableBuffer> buffer;
};

class VineyardTest : public ::testing::Test,
                     public ::testing::WithParamInterface<const char*>,
                     protected DaemonFixture {
protected:
    void SetUp() override {
        setenv("GSHM_VINEYARD_DEVICE", GetParam(), 1);
        unsetenv("GSHM_VINEYARD_MODE");
        ASSERT_TRUE(fake_loaded);
        ASSERT_TRUE(start_again()) << log();
    }
    bool start_again() {
        auto env = fake_cuda_env(2);
        // failures are injected into the test's process only
        env.push_back("FAKECUDA_CONTROL=" + scratch() + "/faults");
        return start({"--device", "host:64M", "--device", "cuda:0:64M", "--device", "cuda:1:64M"}, env);
    }
    static bool is_host() { return std::string_view(GetParam()) == "host"; }

    // Made with a pattern in it, not sealed.
    static Made make(vy::Client& client, size_t size, unsigned seed = 1, const std::string& device = "") {
        Made made;
        EXPECT_OK(client.CreateGPUBuffer(size, made.id, made.payload, made.buffer, device));
        if (made.buffer != nullptr) write(*made.buffer, pattern(size, seed));
        return made;
    }
    static std::string pattern(size_t size, unsigned seed = 1) {
        std::string bytes(size, '\0');
        for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 131 + seed * 17 + (i >> 8));
        return bytes;
    }
    static void write(vy::Buffer& buffer, const std::string& bytes) {
        vy::CUDABufferMirror mirror(buffer);
        ASSERT_NE(mirror.mutable_data(), nullptr);
        memcpy(mirror.mutable_data(), bytes.data(), bytes.size());
        EXPECT_OK(mirror.flush());
    }
    static std::string content(vy::Buffer& buffer) {
        const vy::CUDABufferMirror mirror(buffer, true);
        return {reinterpret_cast<const char*>(mirror.data()), static_cast<size_t>(mirror.size())};
    }
    static std::shared_ptr<vy::Buffer> get(vy::Client& client, ObjectID id, bool unsafe = false) {
        std::shared_ptr<vy::Buffer> buffer;
        EXPECT_OK(client.GetGPUBuffer(id, unsafe, buffer));
        return buffer;
    }
    static vy::Status get_status(vy::Client& client, ObjectID id, bool unsafe = false) {
        std::shared_ptr<vy::Buffer> buffer;
        return client.GetGPUBuffer(id, unsafe, buffer);
    }
    static std::string name_of(ObjectID id) { return "vineyard/" + vy::ObjectIDToString(id); }

    // By gshm's own interface.
    ::gshm::v0::DeviceInfo device(const std::string& name = GetParam()) {
        auto client = ::gshm::v0::Client::connect({.dir = dir()}).value();
        for (const auto& info : client.devices().value()) {
            if (name == info.name) return info;
        }
        ADD_FAILURE() << "no device " << name;
        return {};
    }
    uint64_t objects() { return ::gshm::v0::Client::connect({.dir = dir()}).value().daemon().value().objects; }
    // Effects of other processes are asynchronous to this thread.
    template <typename Condition>
    static bool eventually(Condition condition) {
        for (int i = 0; i < 4000; ++i) {
            if (condition()) return true;
            std::this_thread::sleep_for(5ms);
        }
        return false;
    }
};
#define GSHM_VINEYARD_DEVICES(suite)                                         \
    INSTANTIATE_TEST_SUITE_P(On, suite, ::testing::Values("host", "cuda:0"), \
                             [](const auto& info) { return std::string(info.param).substr(0, 4); })

}  // namespace gshm::core::test
