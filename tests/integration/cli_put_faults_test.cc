// `gshm put` with interrupts, a full device, a changing file: no name is left, and the reason is reported.
#include <atomic>
#include <fcntl.h>
#include <optional>
#include <pty.h>

#include "cli_copy_fixture.h"
#include "support/silent_file.h"

namespace gshm::core::test {
namespace {

using CliPutFaults = CliCopyTest;

bool process_has_open(pid_t pid, const std::string& path) {
    std::error_code gone;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", gone))
        if (std::filesystem::read_symlink(entry.path(), gone) == path) return true;
    return false;
}

// A thread that repeatedly writes new bytes to a file.
class ChangingFile {
public:
    ChangingFile(const std::string& path, off_t offset) : fd_(::open(path.c_str(), O_WRONLY | O_CLOEXEC)) {
        writer_ = std::thread([this, offset] {
            for (uint64_t i = 0; !ended_; ++i) EXPECT_EQ(::pwrite(fd_, &i, sizeof i, offset), 8);
        });
    }
    ~ChangingFile() {
        ended_ = true;
        writer_.join();
        ::close(fd_);
    }

private:
    int fd_;
    std::atomic<bool> ended_ = false;
    std::thread writer_;
};

TEST_F(CliPutFaults, AFullDevice) {
    stop();
    ASSERT_TRUE(start({"--device", "host", "--limit", "32M"})) << log();
    const auto large = write_large("large", 40 << 20), medium = write_large("medium", 20 << 20);
    const auto small = write("small", "small");
    fails(7, {"put", large, "x"}, {"41943040 bytes", "33554432", "gshm df"});
    ok({"put", medium, "m"});
    fails(7, {"put", medium, "n"}, {"20 MiB requested", "in use", "gshm df"});
    fails(7, {"put", "--replace", medium, "m"}, {"in use"});  // both versions exist for a moment
    EXPECT_EQ(stat("m")["size_bytes"], 20 << 20);
    fails(7, {"put", "-", "s"}, {"gshm df"}, noise(14 << 20, 1));
    fails(7, {"put", large, medium, small, "d"}, {"d/large", "d/medium"});
    EXPECT_EQ(ok({"ls", "-r"}), "d/small\nm\n");
}

TEST_F(CliPutFaults, NoRoomForWhatStandardInputBrings) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to mount a small file system";
    if (!mount_small(file("tmp"), "16m")) GTEST_SKIP() << "mounting is not permitted here";
    const auto input = noise(100 << 20, 1);
    fails(7, {"put", "-", "x"}, {"No space left", "standard input", "TMPDIR", "--size"}, input,
          {"TMPDIR=" + file("tmp")});
    fails(4, {"put", "-", "x"}, {"nowhere"}, input, {"TMPDIR=/nowhere"});
    EXPECT_EQ(files_in(file("tmp")), 0u);
    EXPECT_EQ(ok({"ls", "-r"}), "");
    ok({"put", "-", "x", "--size", std::to_string(input.size())}, input);  // needs no temporary file
}

// Its size is known before the first read. The reads then find its end.
TEST_F(CliPutFaults, AFileThatBecomesShorter) {
    const auto shorter = SilentFile::create(file("in"), 200 << 20, SilentFile::Reads::at_end);
    if (!shorter) GTEST_SKIP() << "mounting is not permitted here";
    fails(1, {"put", file("in"), "w"}, {"became shorter while it was read"});
    EXPECT_FALSE(exists("w"));
    EXPECT_TRUE(eventually([&] { return object_bytes() == 0; }));
}

TEST_F(CliPutFaults, VerificationFindsWhatChanged) {
    const auto path = write("in", noise(24 << 20, 1));
    for (const off_t offset : {off_t{0}, off_t{(12 << 20) + 8}, off_t{(24 << 20) - 8}}) {
        const ChangingFile changing(path, offset);
        // Two reads may agree by chance.
        int failed = 0;
        while (failed == 0 && !HasFailure()) {
            const auto result = run_cli({"put", "--verify", path, "w"});
            if (result.exit_code == 0) {
                ok({"rm", "w"});
                continue;
            }
            ++failed;
            EXPECT_EQ(result.exit_code, 1);
            EXPECT_NE(result.err.find("verification failed"), std::string::npos) << result.err;
            EXPECT_NE(result.err.find("at byte " + std::to_string(offset).substr(0, 1)), std::string::npos)
                << result.err;
        }
        EXPECT_EQ(failed, 1);
        EXPECT_FALSE(exists("w"));
    }
    EXPECT_EQ(run_cli({"put", "--verify", path, "w"}).err, "") << "nothing changes it any more";
}

TEST_F(CliPutFaults, AFailedVerificationLeavesTheOldVersion) {
    const auto path = write("in", noise(24 << 20, 1));
    ok({"put", write("old", "old"), "w"});
    const ChangingFile changing(path, 12 << 20);
    // Two reads in the same instant may agree.
    while (run_cli({"put", "--verify", "--replace", path, "w"}).exit_code == 0) {
        ok({"put", "--replace", file("old"), "w"});
        ASSERT_FALSE(HasFailure());
    }
    EXPECT_EQ(ok({"cat", "w"}), "old");
    EXPECT_EQ(ok({"ls"}), "w\n");
}

// A file system that is gone does not respond. One signal ends a put that waits for it, and nothing is left behind.
TEST_F(CliPutFaults, AFileThatDoesNotAnswer) {
    for (const int number : {SIGINT, SIGTERM}) {
        auto hung = SilentFile::create(file("hung"), 40 << 20);
        if (!hung) GTEST_SKIP() << "mounting is not permitted here";
        ChildProcess child;
        ASSERT_TRUE(child.spawn(cli_argv({"put", file("hung"), "d/w"})));
        ASSERT_TRUE(eventually([&] { return hung->ignored() > 0; }));
        child.signal(number);
        EXPECT_EQ(child.finish().exit_code, 128 + number);
        EXPECT_TRUE(eventually([&] { return ok({"ls", "-r"}) == ""; }));
        // Other files of the same user continue, and are closed.
        const auto other = write("other", noise(300'000, 1));
        ok({"put", other, "o"});
        ok({"rm", "o"});
        EXPECT_TRUE(eventually([&] { return !process_has_open(pid(), other); }));
        hung.reset();
        EXPECT_TRUE(eventually([&] { return object_bytes() == 0; }));
    }
}

// After an interruption at any time, there is a complete object or none.
TEST_F(CliPutFaults, InterruptedAtRandomMoments) {
    const auto path = write("in", noise(120 << 20, 1));
    std::mt19937 random(1);
    int interrupted = 0;
    unsigned latest_us = 80'000;  // shorter on a faster machine
    for (int round = 0; round < 24; ++round) {
        const int number = std::array{SIGINT, SIGTERM, SIGKILL, SIGHUP}[round % 4];
        const bool from_pipe = round % 3 == 2;
        ChildProcess child;
        ASSERT_TRUE(child.spawn(cli_argv(from_pipe ? Args{"put", "/dev/fd/0", "w"} : Args{"put", path, "w"})));
        const std::chrono::microseconds delay(random() % latest_us);
        if (from_pipe) child.feed(std::string(random() % 100'000, 'p'));
        std::this_thread::sleep_for(delay);
        child.signal(number);
        const int code = child.finish().exit_code;
        if (code == 0) {
            latest_us = latest_us * 2 / 3;
            EXPECT_EQ(stat("w")["state"], "sealed");
            ok({"rm", "w"});
            continue;
        }
        EXPECT_EQ(code, 128 + number) << from_pipe << " " << delay.count();
        ++interrupted;
        EXPECT_TRUE(eventually([&] {
            const auto entries = json({"ls"})["entries"];
            // A put that was complete when it was interrupted may not have reported it.
            return entries.empty() || entries[0]["state"] == "sealed";
        }));
        run_cli({"rm", "-f", "w"});
    }
    EXPECT_GT(interrupted, 4);
    EXPECT_TRUE(eventually([&] { return object_bytes() == 0; }));
}

TEST_F(CliPutFaults, AFolderInterruptedHasWholeFilesAlone) {
    for (int i = 0; i < 300; ++i) write("tree/" + std::to_string(i), noise(100'000, static_cast<unsigned>(i)));
    for (const int number : {SIGINT, SIGKILL}) {
        ChildProcess child;
        ASSERT_TRUE(child.spawn(cli_argv({"put", "-r", file("tree"), "t"})));
        EXPECT_TRUE(eventually([&] { return !child.running() || ok({"ls"}) == "t/\n"; }));
        child.signal(number);
        child.finish();
        EXPECT_TRUE(eventually([&] {
            const auto listed = run_cli({"--json", "ls", "-r"});
            const auto entries = Json::parse(listed.out)["entries"];
            return std::ranges::all_of(entries, [](const auto& entry) { return entry["state"] == "sealed"; });
        }));
        const auto entries = json({"ls", "-r"})["entries"];
        for (const auto& entry : entries) EXPECT_EQ(entry["size_bytes"], 100'000);
        run_cli({"rm", "-rf", "t"});
    }
}

// A put that loses its daemon ends with an error. The next daemon has the complete object or none.
TEST_F(CliPutFaults, TheDaemonIsKilledMeanwhile) {
    const auto path = write("in", noise(120 << 20, 1));
    std::mt19937 random(1);
    int lost = 0;
    for (int round = 0; round < 8; ++round) {
        ChildProcess child;
        ASSERT_TRUE(child.spawn(cli_argv({"put", path, "w"})));
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
        kill();
        const auto result = child.finish();
        lost += result.exit_code == 3;
        EXPECT_TRUE(result.exit_code == 3 || result.exit_code == 0) << result.exit_code << result.err;
        EXPECT_EQ(result.err.empty(), result.exit_code == 0) << result.err;
        ASSERT_TRUE(start({"--device", "host:512M"})) << log();
        EXPECT_TRUE(eventually([&] {
            const auto entries = json({"ls"})["entries"];
            return entries.empty() || entries[0]["state"] == "sealed";
        }));
        if (!exists("w")) continue;
        EXPECT_EQ(stat("w")["size_bytes"], 120 << 20);
        ok({"rm", "w"});
    }
    EXPECT_GT(lost, 2);
    EXPECT_TRUE(eventually([&] { return object_bytes() == 0; }));
}

// The output of a program with a terminal as standard error. nullopt: there are no terminals, and errno has the reason.
std::optional<std::string> on_terminal(const std::vector<std::string>& argv, int* ret_status) {
    int master = -1;
    const pid_t child = ::forkpty(&master, nullptr, nullptr, nullptr);
    if (child < 0) return std::nullopt;
    if (child == 0) {
        std::vector<char*> pointers;
        for (const auto& argument : argv) pointers.push_back(const_cast<char*>(argument.c_str()));
        pointers.push_back(nullptr);
        ::execv(pointers[0], pointers.data());
        ::_exit(127);
    }
    std::string shown;
    char block[4096];
    for (ssize_t count = 0; (count = ::read(master, block, sizeof block)) > 0;)
        shown.append(block, static_cast<size_t>(count));
    ::waitpid(child, ret_status, 0);
    ::close(master);
    return shown;
}

TEST_F(CliPutFaults, ProgressIsForTerminalsAlone) {
    int ended = -1;
    if (!on_terminal({"/bin/true"}, &ended)) GTEST_SKIP() << "needs a terminal of /dev/pts: " << strerror(errno);
    const auto path = write("in", noise(100 << 20, 1));
    // Reads from a slow pipe, so that progress is shown.
    const auto slow = [&](const std::string& options) {
        const auto script = "(head -c 40M " + path + "; sleep 0.5; tail -c +41943041 " + path + ") | " + bin("gshm") +
                            " --dir " + dir() + " put --replace " + options;
        int status = -1;
        const auto shown = on_terminal({"/bin/bash", "-c", script}, &status);
        EXPECT_EQ(status, 0) << shown.value_or("no terminal");
        return shown.value_or("no terminal");
    };
    const auto shown = slow("--size 100M - w");
    EXPECT_NE(shown.find("w: ["), std::string::npos) << shown;
    EXPECT_NE(shown.find("%, "), std::string::npos) << shown;
    EXPECT_NE(shown.find(" of 100M, "), std::string::npos) << shown;
    EXPECT_NE(shown.find(" GB/s, "), std::string::npos) << shown;
    EXPECT_NE(shown.find(" left"), std::string::npos) << shown;
    EXPECT_TRUE(shown.ends_with("\r\x1b[K")) << "the line is cleared: " << shown;
    EXPECT_EQ(slow("--json --size 100M - w > /dev/null"), "");
    EXPECT_EQ(slow("--size 100M - w 2> /dev/null"), "");
}

}  // namespace
}  // namespace gshm::core::test
