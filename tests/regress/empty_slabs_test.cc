// One empty slab was kept for each combination of owner, mode and directories, so that a user could leave hundreds of
// slabs and their descriptors behind.
#include <gtest/gtest.h>

#include "base/limits.h"
#include "integration/library_fixture.h"

namespace gshm::core::test {
namespace {

class EmptySlabs : public LibraryTest {
protected:
    uint64_t extents() {
        gshm_daemon_info info = GSHM_DAEMON_INFO_INIT;
        EXPECT_EQ(gshm_daemon(client_.get(), &info), 0) << gshm_last_error();
        return info.extents;
    }
};

TEST_F(EmptySlabs, AUserKeepsAFewOnly) {
    start_all();
    for (uint32_t mode = 0400; mode < 0600; ++mode) {
        auto object = create(client_.get(), "small", 256, "host", GSHM_NO_MAP, mode);
        ASSERT_TRUE(object);
        object.reset();
        ASSERT_EQ(gshm_unlink(client_.get(), "small"), 0) << gshm_last_error();
    }
    EXPECT_LE(extents(), limits::kEmptySlabs);
}

// A slab with objects is not freed when it was empty before.
TEST_F(EmptySlabs, ASlabInUseStays) {
    start_all();
    const auto make = [&](const std::string& name, uint32_t mode) {
        return create(client_.get(), name.c_str(), 256, "host", GSHM_NO_MAP | GSHM_KEEP, mode);
    };
    for (int i = 0; i < 2; ++i) {
        make("kept", 0600).reset();
        if (i == 0) ASSERT_EQ(gshm_unlink(client_.get(), "kept"), 0) << gshm_last_error();
    }
    for (uint32_t mode = 0400; mode < 0500; ++mode) {
        make("small", mode).reset();
        ASSERT_EQ(gshm_unlink(client_.get(), "small"), 0) << gshm_last_error();
    }
    auto kept = open(client_.get(), "kept", GSHM_NO_MAP);
    ASSERT_TRUE(kept);
    char bytes[256];
    EXPECT_EQ(gshm_copy_out(kept.get(), 0, bytes, sizeof bytes), 0) << gshm_last_error();
}

}  // namespace
}  // namespace gshm::core::test
