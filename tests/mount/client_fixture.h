// A mounted gshmd, for each Way, with a client of the library.
#pragma once

#include "mount/mount_fixture.h"
#include <gshm/watch.hpp>

namespace gshm::core::test {

class MountClientTest : public ::testing::TestWithParam<Way>, protected MountFixture {
protected:
    void SetUp() override {
        if (auto missing = missing_for(GetParam()); !missing.empty()) GTEST_SKIP() << missing;
        ASSERT_TRUE(start_mounted(GetParam())) << log();
        auto connected = Client::connect({.dir = dir()});
        ASSERT_TRUE(connected) << connected.error().message;
        client_ = *std::move(connected);
    }
    // The mount of an ordinary user is closed to other users, including root.
    static uid_t mount_user() { return GetParam() == Way::user ? kNobody : 0; }
    static const char* kind_text(EventKind kind) {
        static constexpr const char* kNames[] = {"?",        "created",  "sealed", "deleted", "renamed",
                                                 "replaced", "existing", "ready",  "overflow"};
        return kNames[static_cast<size_t>(kind)];
    }

    Client client_;
};

}  // namespace gshm::core::test
