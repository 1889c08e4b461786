// Commands of a user who is neither root nor the one that runs the tests.
#pragma once

#include "integration/daemon_fixture.h"

namespace gshm::core::test {

inline RunResult run_as_nobody(const std::vector<std::string>& command) {
    std::vector<std::string> argv = {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
    argv.insert(argv.end(), command.begin(), command.end());
    ChildProcess child;
    EXPECT_TRUE(child.spawn(argv));
    return child.finish();
}

// "" if there can be such commands.
inline std::string missing_for_nobody() {
    if (::geteuid() != 0) return "needs root, to become another user";
    if (::access("/usr/bin/setpriv", X_OK) != 0) return "needs setpriv";
    if (run_as_nobody({DaemonFixture::bin("gshm"), "--version"}).exit_code != 0)
        return "another user cannot run the programs of this build";
    return {};
}

}  // namespace gshm::core::test
