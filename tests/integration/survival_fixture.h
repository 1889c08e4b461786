// A daemon with host memory and two fake GPUs that is killed and restarted, and clients that continue.
#pragma once

#include "integration/library_fixture.h"
#include "support/pattern.h"
#include "support/workers.h"

namespace gshm::core::test {

class LibrarySurvivalTest : public LibraryTest {
protected:
    static constexpr uint64_t kMiB = 1 << 20;
    static constexpr int kPatience = 60'000;  // of clients: a busy machine may start a daemon late

    void SetUp() override {
        start_all();
        client_ = connect(kPatience);
    }
    bool again(const std::vector<std::string>& args = {}) { return start(args, daemon_env()); }
    void kill_it() {
        kill();
        ASSERT_TRUE(again()) << log();
    }
    Object make(const std::string& name, uint64_t bytes, const char* device, uint64_t seed, bool seal = true,
                uint32_t flags = 0, uint32_t mode = 0600) {
        Object object = create(client_.get(), name.c_str(), bytes, device, flags, mode);
        if (object) put(object.get(), seed);
        if (object && seal) {
            EXPECT_EQ(gshm_seal(object.get()), 0) << gshm_last_error();
        }
        return object;
    }
    static void put(gshm_object* object, uint64_t seed) {
        const std::string bytes = pattern(gshm_size(object), seed);
        EXPECT_EQ(gshm_copy_in(object, 0, bytes.data(), bytes.size()), 0) << gshm_last_error();
    }
    static bool holds(gshm_object* object, uint64_t seed) {
        std::string bytes(gshm_size(object), '\0');
        if (gshm_copy_out(object, 0, bytes.data(), bytes.size()) != 0) return false;
        return first_wrong(bytes, seed) == bytes.size();
    }
    bool has(const std::string& name, uint64_t seed, uint32_t flags = 0) {
        Object object = open(client_.get(), name.c_str(), flags);
        return object && holds(object.get(), seed);
    }
    std::string attribute(const std::string& name, const std::string& key) {
        char value[1024];
        size_t bytes = 0;
        const int code = gshm_get_attribute(client_.get(), name.c_str(), key.c_str(), value, sizeof value, &bytes);
        return code == 0 ? std::string(value, bytes) : gshm_last_error();
    }
    // The sums over all devices.
    gshm_device_info total(gshm_client* client) {
        gshm_device_info sum = {};
        for (const char* name : {"host", "cuda:0", "cuda:1"}) {
            const gshm_device_info info = device(client, name);
            sum.object_bytes += info.object_bytes;
            sum.unlinked_bytes += info.unlinked_bytes;
            sum.used_bytes += info.used_bytes;
        }
        return sum;
    }
    gshm_daemon_info daemon_info() {
        gshm_daemon_info info = {};
        info.struct_size = sizeof info;
        EXPECT_EQ(gshm_daemon(client_.get(), &info), 0) << gshm_last_error();
        return info;
    }
};

// The same on host memory and on a GPU.
class SurvivalOn : public LibrarySurvivalTest, public ::testing::WithParamInterface<const char*> {
protected:
    static const char* where() { return GetParam(); }
};

inline std::string device_of(const ::testing::TestParamInfo<const char*>& info) {
    return std::string(info.param) == "host" ? "host" : "cuda";
}

}  // namespace gshm::core::test
