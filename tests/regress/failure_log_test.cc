// The errors of single items of a batch, and all errors of the mount, are numbers to their callers. Their sentences were
// nowhere: the log of an ordinary daemon had none of them.
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/failure_log.h"
#include "base/log.h"
#include "mount/mount_fixture.h"
#include <gshm/gshm.hpp>

namespace gshm::core::test {
namespace {

class FailureLog : public ::testing::Test, protected MountFixture {
protected:
    // The line of the log with all these texts; "": there is none.
    std::string line_with(const std::vector<std::string>& texts) {
        const auto all = log();
        for (size_t begin = 0; begin < all.size();) {
            const size_t end = std::min(all.find('\n', begin), all.size());
            const auto line = all.substr(begin, end - begin);
            bool has_all = true;
            for (const auto& text : texts) has_all = has_all && line.find(text) != std::string::npos;
            if (has_all) return line;
            begin = end + 1;
        }
        return {};
    }
    static std::string caller() { return "pid " + std::to_string(::getpid()) + " uid " + std::to_string(::getuid()); }
};

TEST_F(FailureLog, HasEveryItemOfABatch) {
    ASSERT_TRUE(start({"--device", "host:16M"})) << log();
    auto client = gshm::Client::connect({.dir = dir(), .timeout = {}});
    ASSERT_TRUE(client);
    const std::vector<gshm::CreateSpec> specs = {{.name = "x/../y", .size_bytes = 1, .map = false},
                                                 {.name = "large", .size_bytes = 32 << 20, .map = false},
                                                 {.name = "good", .size_bytes = 1, .map = false}};
    EXPECT_TRUE(client->create_batch(specs)[2]);
    EXPECT_NE(line_with({caller(), "CreateObjects", "component"}), "") << log();
    EXPECT_NE(line_with({caller(), "CreateObjects", "do not fit host"}), "") << log();
    // Programs look for names that do not exist all the time.
    (void)client->stat("no-such-name");
    EXPECT_EQ(line_with({"no-such-name"}), "") << log();
}

TEST_F(FailureLog, HasRequestsOfTheMount) {
    if (auto missing = missing_for(Way::through); !missing.empty()) GTEST_SKIP() << missing;
    ASSERT_TRUE(start_mounted(Way::through, {"--device", "host:16M"})) << log();
    const int fd = ::open(at("f").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    ASSERT_GE(fd, 0);
    EXPECT_NE(::fallocate(fd, 0, 0, 32 << 20), 0);
    EXPECT_EQ(errno, ENOSPC);
    ::close(fd);
    EXPECT_NE(line_with({caller(), "mount: fallocate", "full"}), "") << log();
    EXPECT_NE(::access(at("no-such-name").c_str(), F_OK), 0);
    EXPECT_EQ(line_with({"no-such-name"}), "") << log();
}

TEST_F(FailureLog, IsBoundedForEachUser) {
    ASSERT_TRUE(start({"--device", "host:16M"})) << log();
    auto client = gshm::Client::connect({.dir = dir(), .timeout = {}});
    ASSERT_TRUE(client);
    const size_t before = log().size();
    for (int i = 0; i < 10'000; ++i) (void)client->create({.name = "a//b", .size_bytes = 1, .map = false});
    EXPECT_LT(log().size() - before, 10'000u * 20);
}

TEST(LineBudget, IsOneLineASecondAfterABurst) {
    LineBudget budget;
    const LineBudget::Time begin{};
    uint64_t dropped = 0;
    for (uint64_t i = 0; i < LineBudget::kBurst; ++i) EXPECT_TRUE(budget.take(1, begin, &dropped));
    EXPECT_EQ(dropped, 0u);
    for (int i = 0; i < 100; ++i) EXPECT_FALSE(budget.take(1, begin, &dropped));
    EXPECT_TRUE(budget.take(2, begin, &dropped));  // another user has a budget of its own
    EXPECT_TRUE(budget.take(1, begin + std::chrono::seconds(1), &dropped));
    EXPECT_EQ(dropped, 100u);
    EXPECT_FALSE(budget.take(1, begin + std::chrono::seconds(1), &dropped));
    for (uint64_t i = 0; i < LineBudget::kBurst; ++i)
        EXPECT_TRUE(budget.take(1, begin + std::chrono::hours(1), &dropped));
    EXPECT_FALSE(budget.take(1, begin + std::chrono::hours(1), &dropped));
}

TEST(LineBudget, OfManyUsersIsBounded) {
    LineBudget budget;
    const LineBudget::Time begin{};
    uint64_t dropped = 0;
    uint64_t lines = 0;
    for (int round = 0; round < 100; ++round)
        for (uid_t uid = 0; uid < 1000; ++uid) lines += budget.take(uid, begin, &dropped) ? 1 : 0;
    EXPECT_EQ(lines, (LineBudget::kUsers + 1) * LineBudget::kBurst);
}

TEST(FailureLines, HaveNoControlCharacters) {
    std::string line;
    log_to_function([&](LogLevel, const char* message) { line = message; });
    log_failure({7, 8, "open", "a\nerror b\x1b"}, EACCES, "denied: \"a\nb\"");
    log_to_function({});
    EXPECT_EQ(line, "pid 7 uid 8: open \"a?error b?\" failed: denied: \"a?b\"");
}

}  // namespace
}  // namespace gshm::core::test
