// Clients, keepers and daemons die while calls of gshmd fail.
#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

#include "faults/faults_fixture.h"

namespace gshm::core::test {
namespace {

class FaultsLifetime : public FaultTest {
protected:
    void start_sweeps(const std::vector<std::pair<Class, uint64_t>>& kinds, const FaultTest::Sweep& like) {
        start_all();
        for (auto [kind, count] : kinds) {
            if (HasFailure()) return;
            auto one = like;
            one.kind = kind;
            one.count = count;
            sweep(one);
        }
        if (!HasFailure()) check_restart();
    }

    // Starts a process that holds objects, and kills it.
    void live_and_die() {
        int ends[2];
        ASSERT_EQ(pipe(ends), 0);
        pid_t child = fork();
        if (child == 0) {
            close(ends[0]);
            if (auto client = connect()) {
                std::vector<Object> objects(6);
                for (size_t i = 0; i < objects.size(); ++i) {
                    uint32_t flags = GSHM_NO_MAP | (i < 3 ? uint32_t{GSHM_DEDICATED} : 0u);
                    outcome(create(client.get(), "tried/mine" + std::to_string(i), 50'000, kDevices[i % 2], flags,
                                   &objects[i]));
                }
                gshm_object* held = nullptr;
                outcome(gshm_open(client.get(), "kept/large-cuda", 0, &held));
                (void)!write(ends[1], "", 1);
                close(ends[1]);
                for (;;) pause();
            }
            _exit(0);
        }
        close(ends[1]);
        char byte = 0;
        (void)!read(ends[0], &byte, 1);
        close(ends[0]);
        kill_process(child);
        // The daemon cleans up before it answers the ping, so failures of the cleanup happen within this function.
        if (auto client = connect()) gshm_ping(client.get());
    }
    static void kill_process(pid_t child) {
        ::kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
    }
};

TEST_F(FaultsLifetime, Client) {
    start_sweeps(
        {{Class::system, 1},
         {Class::interrupted, 1},
         {Class::sqlite, 1},
         {Class::sqlite, kAll},
         {Class::catalog, kAll},
         {Class::device, 1},
         {Class::device, kAll}},
        {.kind = Class::none, .body = [&] { live_and_die(); }, .clean = [&] { remove_all("tried"); }, .most = 12});
}

TEST_F(FaultsLifetime, Keeper) {
    auto replaced = [&](pid_t before) {
        for (int i = 0; i < 3000; ++i) {
            pid_t now = keeper_pid();
            if (now > 0 && now != before) return true;
            usleep(2000);
        }
        return false;
    };
    start_sweeps({{Class::system, 1}, {Class::interrupted, 1}, {Class::sqlite, kAll}},
                 {.kind = Class::none,
                  .body =
                      [&] {
                          auto client = connect();
                          pid_t keeper = keeper_pid();
                          if (!client || keeper <= 0) return;
                          Object object;
                          outcome(create(client.get(), "tried/kept", 50'000, "host", GSHM_NO_MAP, &object));
                          kill_keeper();
                          EXPECT_TRUE(replaced(keeper));
                          outcome(gshm_unlink(client.get(), "tried/kept"));
                      },
                  .clean = [&] { remove_all("tried"); },
                  .most = 12,
                  .after =
                      [&] {
                          // Only the current keeper stays. The previous one may take a second to end.
                          for (int i = 0; i < 3000 && children_of_daemon("gshm-keeper") != 1; ++i) usleep(1000);
                          EXPECT_EQ(children_of_daemon("gshm-keeper"), 1u);
                          EXPECT_LE(children_of_daemon("gshm-maker"), 1u);
                      }});
}

}  // namespace
}  // namespace gshm::core::test
