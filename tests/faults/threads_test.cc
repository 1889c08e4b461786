// Several threads make changes at the same time while the catalog's file cannot be written. A change that is
// acknowledged, or reported as made, outlives gshmd; a refused change has no effect.
#include <barrier>
#include <thread>

#include "faults/faults_fixture.h"

namespace gshm::core::test {
namespace {

class FaultsThreads : public FaultTest {
protected:
    static constexpr size_t kThreads = 8;
    static constexpr int kRounds = 10;

    struct Change {
        std::string name;
        Outcome outcome;
    };
    // All threads begin a round together, and each creates one object in it.
    std::vector<Change> create_at_once(const std::string& folder, std::vector<Client>& clients) {
        std::vector<std::vector<Change>> made(kThreads);
        std::barrier together(kThreads);
        std::vector<std::thread> threads;
        for (size_t i = 0; i < kThreads; ++i) {
            threads.emplace_back([&, i] {
                for (int round = 0; round < kRounds; ++round) {
                    const std::string name = folder + "/" + std::to_string(i) + "-" + std::to_string(round);
                    together.arrive_and_wait();
                    Object object;
                    const int code = create(clients[i].get(), name, 100, "host", GSHM_KEEP | GSHM_NO_MAP, &object);
                    made[i].push_back({name, outcome(code)});
                }
            });
        }
        for (auto& thread : threads) thread.join();
        std::vector<Change> all;
        for (const auto& of_thread : made) all.insert(all.end(), of_thread.begin(), of_thread.end());
        return all;
    }
    void check(const std::vector<Change>& changes) {
        auto client = connect();
        for (const auto& [name, outcome] : changes) {
            EXPECT_NE(outcome, Outcome::unknown) << name;
            EXPECT_EQ(exists(client.get(), name), outcome == Outcome::done) << name;
        }
    }
};

TEST_F(FaultsThreads, WhatIsAcknowledgedIsThere) {
    start_all({"--threads", "4"});
    std::vector<Client> clients;
    for (size_t i = 0; i < kThreads; ++i) clients.push_back(connect());
    std::vector<Change> all = create_at_once("before", clients);
    for (int i = 0; i < 5; ++i) {
        arm(Class::sqlite, 1, kAll);
        auto failed = create_at_once("while" + std::to_string(i), clients);
        disarm();
        all.insert(all.end(), failed.begin(), failed.end());
        check(all);
        auto after = create_at_once("after" + std::to_string(i), clients);
        for (const Change& change : after) EXPECT_EQ(change.outcome, Outcome::done) << change.name;
        all.insert(all.end(), after.begin(), after.end());
        if (HasFailure()) return;
    }
    clients.clear();
    check_restart();
    check(all);
}

}  // namespace
}  // namespace gshm::core::test
