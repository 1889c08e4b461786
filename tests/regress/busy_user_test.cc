// A user who keeps gshmd busy does not delay the others.
#include <future>
#include <latch>
#include <regex>
#include <set>
#include <sys/syscall.h>

#include "catalog/rows.h"
#include "daemon/client_loops.h"
#include "daemon/journal_shares.h"
#include "daemon/reapers.h"
#include "integration/library_fixture.h"

namespace gshm::core::test {
namespace {

// ---- threads ----

TEST(ClientThreadsOfAUser, AreNotThoseOfAnother) {
    constexpr unsigned kThreads = 2;
    auto loops = ClientLoops::create(kThreads).value();
    auto connect = [&](uid_t uid, std::vector<ClientLoops::Place>& places) {
        std::set<EventLoop*> used;
        for (int i = 0; i < 10; ++i) {
            places.push_back(loops->place(uid));
            used.insert(&places.back().loop());
        }
        return used;
    };
    std::vector<ClientLoops::Place> of_first, of_second, of_third;
    const auto first = connect(1, of_first);
    const auto second = connect(2, of_second);
    EXPECT_EQ(first.size(), kThreads);
    EXPECT_EQ(second.size(), kThreads);
    for (EventLoop* loop : second) EXPECT_FALSE(first.contains(loop));
    // When a user has no session any more, the next user gets its threads.
    of_first.clear();
    EXPECT_EQ(connect(3, of_third), first);
}

TEST(ClientThreadsOfAUser, ReadWhatHasArrivedForAllWhoAsk) {
    auto loops = ClientLoops::create(2).value();
    const auto place = loops->place(1);
    constexpr int kAsking = 1000;
    std::latch left(kAsking);
    for (int i = 0; i < kAsking; ++i) loops->after_arrived(place.loop(), [&] { left.count_down(); });
    left.wait();
}

class Slices : public LibraryTest {};

TEST_F(Slices, OfClientThreadsAreShort) {
    start_all();
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } attributes = {};
    ASSERT_EQ(syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0), 0);
    if (attributes.runtime_ns == 0) GTEST_SKIP() << "this kernel has no slices of threads (Linux 6.12)";
    const uint64_t usual = attributes.runtime_ns;
    int threads = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid()) + "/task")) {
        std::string name;
        std::ifstream(task.path() / "comm") >> name;
        if (name != "gshm-clients") continue;
        ++threads;
        const pid_t thread = atoi(task.path().filename().c_str());
        ASSERT_EQ(syscall(SYS_sched_getattr, thread, &attributes, sizeof attributes, 0), 0);
        EXPECT_LT(attributes.runtime_ns, usual);
    }
    EXPECT_GT(threads, 0);
}

// ---- long requests, and the catalog ----

class BusyUser : public LibraryTest {
protected:
    void end() {
        ASSERT_EQ(run_cli({"shutdown"}).exit_code, 0);
        ASSERT_EQ(wait_for_end(), 0);
    }
};

TEST_F(BusyUser, OthersGetTheLockBetweenTheNamesOfALongUnlink) {
    setenv("GSHM_LOCK_REPORT", "1", 1);
    const bool started = start({"--device", "host:64M"});
    unsetenv("GSHM_LOCK_REPORT");
    ASSERT_TRUE(started) << log();
    constexpr int kNames = 1000;
    std::vector<std::string> names;
    std::vector<const char*> texts;
    auto client = connect();
    for (int i = 0; i < kNames; ++i) names.push_back("n" + std::to_string(i));
    for (const auto& name : names) texts.push_back(name.c_str());
    std::vector<gshm_create_spec> specs;
    for (const char* text : texts)
        specs.push_back(spec(text, 0, "host", GSHM_CREATE_EMPTY | GSHM_CREATE_KEEP | GSHM_CREATE_NO_MAP));
    std::vector<gshm_object*> objects(kNames);
    std::vector<int> status(kNames, -1);
    ASSERT_EQ(gshm_create_batch(client.get(), specs.data(), kNames, objects.data(), status.data()), 0);
    gshm_close_batch(objects.data(), kNames);
    ASSERT_EQ(gshm_unlink_batch(client.get(), texts.data(), kNames, status.data()), 0) << gshm_last_error();
    for (int code : status) ASSERT_EQ(code, 0);
    client.reset();
    end();
    int holds = 0;
    const std::string said = log();
    const std::regex pattern("on_packet Unlink: ([0-9]+) holds");
    for (std::sregex_iterator found(said.begin(), said.end(), pattern), none; found != none; ++found)
        holds += std::stoi((*found)[1]);
    EXPECT_GE(holds, kNames / 128);
}

// A commit waits for the catalog's file, under the store lock, if the journal is full. One user does not fill it.
TEST_F(BusyUser, DoesNotFillTheJournal) {
    ASSERT_TRUE(start({"--device", "host:64M", "--debug"})) << log();
    auto client = connect();
    auto object = spec("large", 0, "host", GSHM_CREATE_EMPTY | GSHM_CREATE_KEEP | GSHM_CREATE_NO_MAP);
    gshm_object* made = nullptr;
    ASSERT_EQ(gshm_create(client.get(), &object, &made), 0) << gshm_last_error();
    gshm_close(made);
    const std::string value(64'000, 'v');
    for (int i = 0; i < 200; ++i) {  // the row has all attributes
        const std::string name = "a" + std::to_string(i % 10);
        ASSERT_EQ(gshm_set_attribute(client.get(), "large", name.c_str(), value.data(), value.size()), 0)
            << gshm_last_error();
    }
    EXPECT_EQ(log().find("journal is full"), std::string::npos) << log();
}

TEST(JournalShares, AreLargeFromHalfOfTheJournal) {
    std::vector<uint64_t> memory(1024);
    Journal journal(std::as_writable_bytes(std::span(memory)));
    JournalShares shares;
    const std::string rows(journal.capacity() / 5, 'r');
    auto add = [&](uid_t uid) {
        const uint64_t place = journal.end();
        EXPECT_TRUE(journal.append(rows));
        shares.add(journal, uid, place);
    };
    add(1);
    add(2);
    add(1);
    EXPECT_FALSE(shares.is_large(journal, 1));
    const uint64_t before = journal.end();
    add(1);
    EXPECT_TRUE(shares.is_large(journal, 1));
    EXPECT_FALSE(shares.is_large(journal, 2));
    // As after a transaction that began before the last entry.
    journal.drop(before);
    EXPECT_FALSE(shares.is_large(journal, 1));
    add(1);
    add(1);
    EXPECT_TRUE(shares.is_large(journal, 1)) << "the entry that was left counts";
}

TEST(RowsOfTheCatalog, GiveTheMemoryOfALargeCommitBack) {
    constexpr size_t kLarge = 16 << 20;
    Rows rows;
    rows.add(0).bind_blob(std::string(kLarge, 'x'));
    EXPECT_GE(rows.reserved_bytes(), kLarge);
    rows.clear();
    EXPECT_LT(rows.reserved_bytes(), kLarge / 2);
}

// ---- descriptors ----

TEST(DescriptorsOfAUser, AreClosedBesidesThoseWhoseCloseBlocks) {
    Reapers reapers;
    std::promise<void> end;
    auto ends = end.get_future().share();
    constexpr int kBlocked = 10;
    for (int i = 0; i < kBlocked; ++i) reapers.submit(1, [ends] { ends.wait(); });
    std::promise<void> closed;
    reapers.submit(1, [&] { closed.set_value(); });
    closed.get_future().wait();
    end.set_value();
}

}  // namespace
}  // namespace gshm::core::test
