// A client of the library and a daemon with host memory and two fake GPUs. Both processes use the fake driver.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <functional>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "daemon_fixture.h"
#include "gshm/gshm.h"

namespace gshm::core::test {

using namespace std::chrono_literals;

// The fake driver for this process too. Loaded by path, it serves later loads of "libcuda.so.1".
inline const bool fake_loaded = [] {
    setenv("FAKECUDA_DEVICES", "2", 1);
    setenv("FAKECUDA_FABRIC", "1", 1);
    return dlopen(fakecuda_path().c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr;
}();

struct Closer {
    void operator()(gshm_client* client) const { gshm_disconnect(client); }
    void operator()(gshm_object* object) const { gshm_close(object); }
    void operator()(gshm_listing* listing) const { gshm_listing_free(listing); }
};
using Client = std::unique_ptr<gshm_client, Closer>;
using Object = std::unique_ptr<gshm_object, Closer>;

class LibraryTest : public ::testing::Test, protected DaemonFixture {
protected:
    std::vector<std::string> daemon_env() const {
        auto env = fake_cuda_env(2);
        env.push_back("FAKECUDA_FABRIC=1");
        env.push_back("FAKECUDA_CONTROL=" + scratch() + "/faults");
        return env;
    }
    void start_all() {
        ASSERT_TRUE(fake_loaded);
        ASSERT_TRUE(start({"--device", "host:256M", "--device", "cuda"}, daemon_env())) << log();
        client_ = connect();
    }
    Client connect(int timeout_ms = 2000) {
        gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
        std::string folder = dir();
        options.dir = folder.c_str();
        options.timeout_ms = timeout_ms;
        gshm_client* client = nullptr;
        EXPECT_EQ(gshm_connect(&options, &client), 0) << gshm_last_error();
        return Client(client);
    }
    static gshm_create_spec spec(const char* name, uint64_t size, const char* device, uint32_t flags = 0) {
        gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
        spec.name = name;
        spec.size_bytes = size;
        spec.device = device;
        spec.flags = flags;
        return spec;
    }
    Object create(gshm_client* client, const char* name, uint64_t size, const char* device, uint32_t flags = 0,
                  uint32_t mode = 0600) {
        auto wanted = spec(name, size, device, flags);
        wanted.mode = mode;
        gshm_object* object = nullptr;
        EXPECT_EQ(gshm_create(client, &wanted, &object), 0) << gshm_last_error();
        return Object(object);
    }
    static Object open(gshm_client* client, const char* name, uint32_t flags = 0) {
        gshm_object* object = nullptr;
        EXPECT_EQ(gshm_open(client, name, flags, &object), 0) << gshm_last_error();
        return Object(object);
    }
    static int open_code(gshm_client* client, const char* name, uint32_t flags = 0) {
        gshm_object* object = nullptr;
        int code = gshm_open(client, name, flags, &object);
        if (code == 0) gshm_close(object);
        return code;
    }
    static gshm_stat_info stat(gshm_client* client, const char* name, int expected = 0) {
        gshm_stat_info info = {};
        info.struct_size = sizeof info;
        EXPECT_EQ(gshm_stat(client, name, &info), expected) << name;
        return info;
    }
    gshm_device_info device(gshm_client* client, const std::string& name) {
        gshm_device_info devices[8] = {};
        devices[0].struct_size = sizeof devices[0];
        size_t count = 0;
        EXPECT_EQ(gshm_devices(client, devices, 8, &count), 0);
        for (size_t i = 0; i < count; ++i) {
            if (name == devices[i].name) return devices[i];
        }
        ADD_FAILURE() << "no device " << name;
        return {};
    }
    // Runs a body in a child process and returns its exit code. The child must not use handles of the parent.
    static int in_child(const std::function<int()>& body, uid_t uid = 0) { return end_of(begin_child(body, uid)); }
    // Several at the same time. Not in threads: a child would inherit locks that another thread has.
    static std::vector<int> in_children(int count, const std::function<int(int)>& body, uid_t uid = 0) {
        std::vector<pid_t> children;
        for (int i = 0; i < count; ++i) children.push_back(begin_child([&] { return body(i); }, uid));
        std::vector<int> codes;
        for (pid_t child : children) codes.push_back(end_of(child));
        return codes;
    }
    static pid_t begin_child(const std::function<int()>& body, uid_t uid) {
        const pid_t child = fork();
        if (child == 0) {
            if (uid != 0 && (setgid(uid) != 0 || setuid(uid) != 0)) _exit(99);
            _exit(body());
        }
        return child;
    }
    static int end_of(pid_t child) {
        int status = 0;
        waitpid(child, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    // Flags for forked children, which must not use CUDA after their parent: on a GPU the daemon does the work.
    static uint32_t map_in_child(std::string_view device) { return device == "host" ? 0 : uint32_t{GSHM_NO_MAP}; }
    // Polls until a condition holds; effects of other processes are asynchronous to this thread. Two minutes, for a busy
    // machine with a sanitizer.
    template <typename Condition>
    static bool eventually(Condition condition) {
        for (int i = 0; i < 24'000; ++i) {
            if (condition()) return true;
            std::this_thread::sleep_for(5ms);
        }
        return false;
    }

    Client client_;
};

}  // namespace gshm::core::test
