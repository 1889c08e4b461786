// A mount whose daemon is killed and restarted.
#pragma once

#include <sys/stat.h>

#include "mount/mount_fixture.h"
#include "support/eventually.h"
#include "support/pattern.h"
#include "support/workers.h"
#include <gshm/gshm.hpp>

namespace gshm::core::test {

class SurvivalTest : public ::testing::TestWithParam<Way>, protected MountFixture {
protected:
    static constexpr size_t kMiB = 1 << 20;

    void SetUp() override {
        if (auto missing = missing_for(GetParam()); !missing.empty()) GTEST_SKIP() << missing;
    }
    void TearDown() override {
        // No process may wait for ever for a daemon that did not start.
        if (!running()) kill_keeper();
    }
    // In Way::user the mount is closed to other users.
    static uid_t user() { return GetParam() == Way::user ? kNobody : 0; }
    bool again(const std::vector<std::string>& options = {}) { return start_again(GetParam(), options); }
    // Kills the daemon, and starts it after a random delay.
    bool kill_once(Random& random) {
        kill();
        usleep(static_cast<useconds_t>(random.below(30'000)));
        return again();
    }
    // Memory held without a name, on all devices, and the number of its open files.
    uint64_t unlinked_bytes() {
        auto client = gshm::Client::connect({.dir = dir()});
        uint64_t bytes = 0;
        if (!client) return UINT64_MAX;
        auto devices = client->devices();
        if (!devices) return UINT64_MAX;
        for (const auto& device : *devices) bytes += device.unlinked_bytes;
        return bytes;
    }
    // Memory that the kernel forgets is freed asynchronously.
    bool frees_all() {
        return eventually([&] { return unlinked_bytes() == 0; });
    }
    static ino_t inode_of(const std::string& path) {
        struct stat info = {};
        return lstat(path.c_str(), &info) == 0 ? info.st_ino : 0;
    }
    static std::string failed(const std::string& what) { return what + ": " + strerror(errno); }
};

inline std::string way_of(const ::testing::TestParamInfo<Way>& info) {
    return name_of(info.param);
}

}  // namespace gshm::core::test
