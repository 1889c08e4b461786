// The mount behaves as tmpfs does: the same calls on both, the same results.
#include <algorithm>
#include <map>
#include <set>

#include "mount/fsx.h"
#include "mount/mount_fixture.h"
#include "mount/posix_scenarios.h"
#include "mount/stress.h"

namespace gshm::core::test {
namespace {

// Known differences with their reasons; docs/mount.md has the same list for users.
const std::map<std::string, std::set<Way>>& known_differences() {
    static const std::set<Way> all = {Way::passthrough, Way::through, Way::user, Way::cuda};
    static const std::map<std::string, std::set<Way>> known = {
        // Passthrough: the backing file keeps O_APPEND of the open when F_SETFL clears it.
        {"open_appending", {Way::passthrough}},
        // chown(-1, -1) of an unrelated user reaches gshmd as a request without changes.
        {"owners_set_id_on_empty_chown", all},
        // read() of 0 bytes never reaches gshmd.
        {"times_of_reads_of_nothing", all},
        // Times are 64-bit nanoseconds: up to the year 2262.
        {"times_setting_strange", all},
        // Holes have the granularity of pages, which may be huge pages, and a read may fill them. GPU memory has no
        // holes.
        {"space_seeking_holes", all},
        // Mapped pages are first read through the mount.
        {"mapping_times", {Way::through, Way::user, Way::cuda}},
    };
    return known;
}

class PosixTest : public ::testing::TestWithParam<Way>, protected MountFixture {
protected:
    void SetUp() override {
        if (auto missing = missing_for(GetParam()); !missing.empty()) GTEST_SKIP() << missing;
        ASSERT_TRUE(start_mounted(GetParam())) << log();
    }
    uid_t user() const { return GetParam() == Way::user ? kNobody : 0; }
};

TEST_P(PosixTest, DoesWhatTmpfsDoes) {
    for (const Scenario& scenario : scenarios()) {
        if (scenario.needs_root && user() != 0) continue;
        auto known = known_differences().find(scenario.name);
        if (known != known_differences().end() && known->second.contains(GetParam())) continue;
        EXPECT_EQ(run_as(user(), [&] { return compare(scenario, standard_folder(), mount()); }), "") << scenario.name;
    }
}

TEST_P(PosixTest, KeepsBytesThroughWhateverIsDoneToAFile) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
        EXPECT_EQ(run_as(user(), [&] { return run_fsx(at("fsx"), seed, 800); }), "") << "seed " << seed;
    }
}

TEST_P(PosixTest, ManyProcessesAtOnce) {
    EXPECT_EQ(run_as(user(), [&] { return run_stress(mount(), {.operations = 400}); }), "");
}

INSTANTIATE_TEST_SUITE_P(Ways, PosixTest, ::testing::Values(Way::passthrough, Way::through, Way::user, Way::cuda),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace gshm::core::test
