// A gshmd with a mount, in each of the ways there are.
#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "integration/daemon_fixture.h"

namespace gshm::core::test {

enum class Way {
    passthrough,  // host memory, by root: the kernel reads and writes by itself
    through,      // host memory, by root: bytes go through gshmd
    user,         // host memory, by an ordinary user
    cuda,         // GPU memory: the fake driver's, or a real one's if GSHM_TEST_GPU is set
};

std::string name_of(Way way);

class MountFixture : public DaemonFixture {
public:
    MountFixture();
    ~MountFixture();

    const std::string& mount() const { return mount_; }
    std::string at(const std::string& name) const { return mount_ + "/" + name; }
    // A missing feature of this machine; "" if nothing is missing.
    static std::string missing_for(Way way);
    // `options` instead of the devices that it usually has; `further` in any case.
    bool start_mounted(Way way, const std::vector<std::string>& options = {},
                       const std::vector<std::string>& further = {});
    // After a kill: with its remembered options, and `options`.
    bool start_again(Way way, const std::vector<std::string>& options = {});
    bool take_over_mounted(Way way);
    static bool is_real_gpu();

    // Runs `body` in a separate process as the user of the mount (root, except in Way::user); it returns "" on success.
    static std::string run_as(uid_t user, const std::function<std::string()>& body);
    static constexpr uid_t kNobody = 65534;

    static std::string read_file(const std::string& path);
    static bool write_file(const std::string& path, const std::string& bytes, int flags = 0);
    // "" and errno if there is none.
    static std::string attribute(const std::string& path, const std::string& name);
    static int set_attribute(const std::string& path, const std::string& name, const std::string& value);
    static bool is_mounted(const std::string& path);
    // Of the first device, as `gshm df` has it.
    uint64_t used_bytes();

private:
    static std::vector<std::string> environment_of(Way way);
    static std::vector<std::string> by(Way way);
    std::string mount_;
};

// An ordinary tmpfs, for comparison.
const std::string& standard_folder();

}  // namespace gshm::core::test
