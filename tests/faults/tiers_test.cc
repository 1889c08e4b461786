// gshmd is killed at each of its calls while objects leave for a tier and return.
#include <sys/wait.h>

#include "faults/faults_fixture.h"

namespace gshm::core::test {
namespace {

constexpr uint64_t kBytes = (uint64_t{3} << 20) + 100;

class FaultsTiers : public FaultTest {
protected:
    void make(const std::string& name) {
        auto client = connect();
        Object object;
        ASSERT_EQ(create(client.get(), name, kBytes, "cuda:0", GSHM_KEEP | GSHM_NO_MAP | GSHM_EVICTABLE, &object), 0)
            << gshm_last_error();
        const auto bytes = pattern(name, kBytes);
        ASSERT_EQ(gshm_copy_in(object.get(), 0, bytes.data(), bytes.size()), 0) << gshm_last_error();
        ASSERT_EQ(gshm_seal(object.get()), 0) << gshm_last_error();
    }
    // Kills gshmd at a later call each time, until the change is made before that call. Every object has its bytes after
    // each kill, and its memory once.
    void kill_at_each_call(const std::string& name, const std::function<int(gshm_client*)>& prepare,
                           const std::function<int(gshm_client*)>& change) {
        bool killed = true;
        for (uint64_t at = 1; killed && !HasFailure(); at += at < 16 ? 1 : 3) {
            ASSERT_EQ(prepare(connect().get()), 0) << gshm_last_error();
            // In a process of its own: the leases of a client that disconnects while no gshmd runs end with its process.
            const pid_t child = ::fork();
            ASSERT_GE(child, 0);
            if (child == 0) {
                auto client = connect();
                arm(Class::end, at, 1);
                (void)change(client.get());
                _exit(0);
            }
            ASSERT_EQ(::waitpid(child, nullptr, 0), child);
            killed = disarm();
            if (killed) {
                wait_for_end();
                ASSERT_TRUE(start_again()) << log();
            }
            auto client = connect();
            EXPECT_EQ(check_bytes(client.get(), name, pattern(name, kBytes)), "")
                << "killed at call " << at << ", " << last_failed();
        }
    }
};

TEST_F(FaultsTiers, AKillAtEachCallLosesNothing) {
    const std::string folder = scratch() + "/tier";
    start_all({"--tier", "host:4M", "--tier", folder + ":1G", "--tier-free", "0"});
    make("moved");
    make("other");
    auto demote = [](gshm_client* client) { return gshm_demote(client, "moved", 0); };
    auto promote = [](gshm_client* client) { return gshm_promote(client, "moved", 0); };
    auto open_it = [](gshm_client* client) {
        gshm_object* object = nullptr;
        const int code = gshm_open(client, "moved", GSHM_NO_MAP, &object);
        gshm_close(object);
        return code;
    };
    kill_at_each_call("moved", promote, demote);
    kill_at_each_call("moved", demote, open_it);
    // The host is full, so that the next one leaves for the folder, or makes room for itself there.
    {
        auto client = connect();
        ASSERT_EQ(promote(client.get()), 0) << gshm_last_error();
        ASSERT_EQ(gshm_demote(client.get(), "other", 0), 0) << gshm_last_error();
    }
    auto demote_both = [&](gshm_client* client) {
        if (int code = gshm_demote(client, "other", 0); code != 0) return code;
        return demote(client);
    };
    kill_at_each_call("moved", promote, demote_both);
    kill_at_each_call("moved", demote_both, promote);
    auto client = connect();
    EXPECT_EQ(check_bytes(client.get(), "other", pattern("other", kBytes)), "");
    check_kept();
}

}  // namespace
}  // namespace gshm::core::test
