// The store lock is held for microseconds. A read of the mount used to take it twice.
#include <atomic>
#include <fcntl.h>
#include <regex>
#include <sstream>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "base/lock_report.h"
#include "mount/mount_fixture.h"
#include "support/fuse_rig.h"
#include "support/this_build.h"
#include <gshm/gshm.hpp>

namespace gshm::core::test {
namespace {

// ---- how often ----

class LocksOfARequest : public ::testing::TestWithParam<bool> {
protected:
    void SetUp() override {
        LockReport::start();
        ASSERT_TRUE(made_.is_good());
        ASSERT_TRUE(rig_.write(made_.node(), file(), "bytes").is_good());
        ASSERT_EQ(rig_.read(made_.node(), file()).body, "bytes");  // which notes when it was read, once
    }
    FileId file() const { return made_.open_out().file; }
    static uint64_t holds() {
        uint64_t all = 0;
        for (const auto& line : LockReport::lines()) all += line.holds;
        return all;
    }

    FuseRig rig_{{.files = GetParam(), .passthrough = false}};
    RigAnswer made_ = rig_.create("a");
};

TEST_P(LocksOfARequest, AReadTakesItOnce) {
    const uint64_t before = holds();
    ASSERT_EQ(rig_.read(made_.node(), file()).body, "bytes");
    EXPECT_EQ(holds() - before, 1u);
}

// To find the file, to note the size and the time, and (not of a file of the kernel's) to write these to the catalog.
TEST_P(LocksOfARequest, AWriteTakesItForWhatItChanges) {
    const uint64_t before = holds();
    ASSERT_TRUE(rig_.write(made_.node(), file(), "other").is_good());
    EXPECT_EQ(holds() - before, GetParam() ? 2u : 3u);
}

INSTANTIATE_TEST_SUITE_P(Devices, LocksOfARequest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Host" : "Gpu"; });

// ---- for how long ----

struct Held {
    std::string caller;
    int holds = 0;
    int long_holds = 0;  // longer than 1 ms
    std::string line;
};

std::vector<Held> holds_in(const std::string& log) {
    static const std::regex pattern("store lock: (.*): ([0-9]+) holds, ([0-9]+) longer .*");
    std::vector<Held> found;
    std::istringstream lines(log);
    for (std::string line; std::getline(lines, line);) {
        std::smatch parts;
        if (std::regex_search(line, parts, pattern)) {
            found.push_back({parts[1], std::stoi(parts[2]), std::stoi(parts[3]), parts[0]});
        }
    }
    return found;
}

// Places that may hold it for long.
const std::regex
    kExceptions("src/daemon/(survival|server)\\.cc:[0-9]+ create|"  // the start: nobody else is there yet
                "src/daemon/server\\.cc:[0-9]+ end");  // the end, which waits for the keeper: nobody is served any more

class LockTimes : public ::testing::TestWithParam<Way>, protected MountFixture {
protected:
    void SetUp() override {
        if (is_sanitized()) GTEST_SKIP() << "the times of a sanitized build say nothing";
        if (auto missing = missing_for(GetParam()); !missing.empty()) GTEST_SKIP() << missing;
        setenv("GSHM_LOCK_REPORT", "1", 1);
        ASSERT_TRUE(start_mounted(GetParam())) << log();
    }
    void TearDown() override { unsetenv("GSHM_LOCK_REPORT"); }

    // Objects of a client: made, sealed, opened, listed, renamed and removed.
    void be_a_client(int number) {
        auto client = gshm::Client::connect({.dir = dir()});
        ASSERT_TRUE(client) << client.error().message;
        const std::string directory = "client" + std::to_string(number);
        const std::string folder = directory + "/";
        std::vector<gshm::CreateSpec> batch;
        for (int i = 0; i < kBatch; ++i)
            batch.push_back({.name = folder + "b" + std::to_string(i), .size_bytes = 4096, .map = false});
        for (const auto& object : client->create_batch(batch)) ASSERT_TRUE(object) << object.error().message;
        for (int round = 0; round < kRounds; ++round) {
            for (int i = 0; i < kObjects; ++i) {
                const std::string name = folder + std::to_string(i);
                auto object = client->create({.name = name, .size_bytes = 4096, .map = false});
                ASSERT_TRUE(object) << object.error().message;
                ASSERT_TRUE(object->seal());
            }
            for (int i = 0; i < kObjects; ++i) ASSERT_TRUE(client->open(folder + std::to_string(i), {.map = false}));
            ASSERT_TRUE(client->list(directory));
            for (int i = 0; i < kObjects; ++i) {
                const std::string name = folder + std::to_string(i);
                ASSERT_TRUE(client->rename(name, name + "x"));
                ASSERT_TRUE(client->unlink(name + "x"));
            }
        }
    }
    void use_the_mount() {
        const std::string bytes(100'000, 'x');
        ASSERT_EQ(mkdir(at("files").c_str(), 0755), 0);
        for (int i = 0; i < kObjects; ++i) {
            const std::string path = at("files/" + std::to_string(i));
            ASSERT_TRUE(write_file(path, bytes, O_CREAT));
            ASSERT_EQ(read_file(path).size(), bytes.size());
            ASSERT_EQ(rename(path.c_str(), (path + "x").c_str()), 0);
        }
        for (int i = 0; i < kObjects; ++i) ASSERT_EQ(unlink((at("files/" + std::to_string(i) + "x")).c_str()), 0);
    }

    static constexpr int kClients = 3;
    static constexpr int kRounds = 3;
    static constexpr int kObjects = 300;
    static constexpr int kBatch = 1000;  // served in parts
};

TEST_P(LockTimes, NothingSlowHappensUnderTheLock) {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kClients; ++i) threads.emplace_back([this, i] { be_a_client(i); });
    use_the_mount();
    threads.clear();
    ASSERT_EQ(run_cli({"shutdown"}).exit_code, 0);
    ASSERT_EQ(wait_for_end(std::chrono::seconds(60)), 0);
    const auto all = holds_in(log());
    int holds = 0;
    for (const Held& held : all) {
        holds += held.holds;
        if (std::regex_match(held.caller, kExceptions)) continue;
        // A virtual machine that is not scheduled counts as processor time now and then.
        EXPECT_LE(held.long_holds, 1 + held.holds / 500) << held.line;
    }
    EXPECT_GT(holds, kClients * kRounds * kObjects * 4) << "or this shows nothing";
}

INSTANTIATE_TEST_SUITE_P(Ways, LockTimes, ::testing::Values(Way::through, Way::cuda),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace gshm::core::test
