// A gshmd with files on a GPU, and its gshm-maker.
#pragma once

#include <fstream>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

#include <gtest/gtest.h>

#include "integration/library_fixture.h"
#include "mount/mount_fixture.h"

namespace gshm::core::test {

inline constexpr const char* kHandle = "user.fabric_handle";

class MakerTest : public ::testing::Test, protected MountFixture {
protected:
    void SetUp() override {
        ASSERT_TRUE(fake_loaded || is_real_gpu());
        if (auto missing = missing_for(Way::cuda); !missing.empty()) GTEST_SKIP() << missing;
        ASSERT_TRUE(start_mounted(Way::cuda)) << log();
    }
    // Returns "" and sets errno if it is refused.
    std::string handle_of(const std::string& name) {
        std::string value(GSHM_FABRIC_HANDLE_BYTES, '\0');
        ssize_t length = getxattr(at(name).c_str(), kHandle, value.data(), value.size());
        return length == GSHM_FABRIC_HANDLE_BYTES ? value : std::string();
    }
    // The gshm-maker of this daemon, identified by the environment that it inherits.
    std::vector<pid_t> makers() {
        std::vector<pid_t> found;
        for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
            const pid_t pid = atoi(entry.path().filename().c_str());
            std::string name;
            std::getline(std::ifstream(entry.path() / "comm"), name);
            if (pid <= 0 || name != "gshm-maker") continue;
            std::ifstream file(entry.path() / "environ", std::ios::binary);
            std::string environment((std::istreambuf_iterator<char>(file)), {});
            if (environment.find("GSHM_TEST_TAG=" + scratch()) != std::string::npos) found.push_back(pid);
        }
        return found;
    }
    static void await_end(int pidfd) {
        pollfd ended{pidfd, POLLIN, 0};
        EXPECT_EQ(poll(&ended, 1, 60'000), 1) << "it is still there";
        close(pidfd);
    }
    static int pidfd_of(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

private:
    std::string tag_ = (setenv("GSHM_TEST_TAG", scratch().c_str(), 1), scratch());
};

}  // namespace gshm::core::test
