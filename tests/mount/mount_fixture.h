// A gshmd with a mount, for each Way.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "integration/daemon_fixture.h"

namespace gshm::core::test {

enum class Way {
    passthrough,  // host memory, root: the kernel reads and writes without gshmd
    through,      // host memory, root: bytes go through gshmd
    user,         // host memory, an ordinary user
    cuda,         // GPU memory: of the fake driver, or of a real one if GSHM_TEST_GPU is set
};

std::string name_of(Way way);
inline void PrintTo(Way way, std::ostream* out) {
    *out << name_of(way);
}

class MountFixture : public DaemonFixture {
public:
    MountFixture();
    ~MountFixture();

    const std::string& mount() const { return mount_; }
    std::string at(const std::string& name) const { return mount_ + "/" + name; }
    // A missing feature of this machine; "" if nothing is missing.
    static std::string missing_for(Way way);
    // `options` replace the default devices; `further` are added in any case.
    bool start_mounted(Way way, const std::vector<std::string>& options = {},
                       const std::vector<std::string>& further = {});
    // After a kill: starts with the options of the killed daemon and `options`.
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
    // Of the first device, as in `gshm df`.
    uint64_t used_bytes();

private:
    static std::vector<std::string> environment_of(Way way);
    static std::vector<std::string> by(Way way);
    std::string mount_;
};

// An ordinary tmpfs, for comparison.
const std::string& standard_folder();

}  // namespace gshm::core::test
