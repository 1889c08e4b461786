// A start that migrates the catalog is killed at any of its calls: the file is of the old version or of the new one, and
// the next start has all objects.
#include "catalog/migrations.h"
#include "faults/faults_fixture.h"
#include "support/former_gshmd.h"

namespace gshm::core::test {
namespace {

class FaultsMigration : public FaultTest {
protected:
    void leave_former() {
        kill();
        kill_keeper();
        ASSERT_NO_FATAL_FAILURE(FormerGshmd::leave_version_1(dir()));
    }
    void expect_all() {
        auto client = connect();
        const auto bytes = FormerGshmd::bytes_of_extent;
        EXPECT_EQ(check_bytes(client.get(), "models/a", bytes(1, 8893)), "");
        EXPECT_EQ(check_bytes(client.get(), "models/big", bytes(2, 3000000)), "");
        EXPECT_EQ(check_bytes(client.get(), "open/kept", bytes(3, 5000)), "");
        EXPECT_EQ(check_bytes(client.get(), "host/dir/sub/hard", bytes(5, 6)), "");
    }
    void sweep_start(Class kind, size_t most) {
        leave_former();
        uint64_t calls = 0;
        arm(kind, UINT64_MAX, 1);
        ASSERT_TRUE(start({"--device", "host:64M"}, environment())) << log();
        disarm(&calls);
        ASSERT_GT(calls, 20u);
        int old = 0;
        int migrated = 0;
        for (uint64_t n : choose(calls, most)) {
            leave_former();
            if (HasFailure()) return;
            arm(kind, n, 1);
            bool started = start({"--device", "host:64M"}, environment());
            // The kill may come when it already serves.
            if (disarm() && kind == Class::end) started = false;
            SCOPED_TRACE(name_of(kind) + " call " + std::to_string(n) + " of " + std::to_string(calls) + ", " +
                         last_failed());
            if (!started) {
                wait_for_end();
                const int version = version_in_file(dir() + "/gshm.db");
                EXPECT_TRUE(version == 1 || version == newest_version(migrations())) << version;
                ++(version == 1 ? old : migrated);
                ASSERT_TRUE(start({"--device", "host:64M"}, environment())) << log();
            }
            expect_all();
            EXPECT_EQ(version_in_file(dir() + "/gshm.db"), newest_version(migrations()));
            if (HasFailure()) return;
        }
        std::cout << "  " << name_of(kind) << ": " << calls << " calls; left the old version " << old
                  << " times, the new one " << migrated << " times\n";
    }
};

TEST_F(FaultsMigration, KilledAtAnyCall) {
    sweep_start(Class::end, 40);
}

TEST_F(FaultsMigration, CallsThatFail) {
    sweep_start(Class::sqlite, 25);
    sweep_start(Class::catalog, 15);
    sweep_start(Class::system, 15);
}

}  // namespace
}  // namespace gshm::core::test
