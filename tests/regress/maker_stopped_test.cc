// gshm-maker does not answer, or its answer cannot be received: gshmd goes on, and nothing is left behind.
#include <csignal>
#include <set>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "regress/maker_fixture.h"
#include "support/stopped_thread.h"

namespace gshm::core::test {
namespace {

class Maker : public MakerTest {
protected:
    void SetUp() override {
        MakerTest::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        // The first file starts the driver on both sides.
        ASSERT_TRUE(write_file(at("first"), std::string(kBytes, '1')));
        ASSERT_FALSE(handle_of("first").empty()) << strerror(errno);
        auto pids = makers();
        ASSERT_EQ(pids.size(), 1u);
        maker_ = pids[0];
        socket_ = find_socket();
        if (socket_ < 0) GTEST_SKIP() << "pidfd_getfd(2) is not permitted: a wait for gshm-maker cannot be seen";
    }
    // A copy of another process's descriptor.
    static UniqueFd descriptor_of(pid_t process, int number) {
        const auto pidfd = UniqueFd::adopt(pidfd_of(process));
        return UniqueFd::adopt(static_cast<int>(syscall(SYS_pidfd_getfd, pidfd.get(), number, 0)));
    }
    static std::set<int> descriptors_of(pid_t process) {
        std::set<int> all;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd")) {
            all.insert(atoi(entry.path().filename().c_str()));
        }
        return all;
    }
    // gshmd waits a minute for an answer. Its socket to gshm-maker is the one with that timeout. -1: not permitted.
    int find_socket() const {
        constexpr timeval kUsual{60, 0};
        for (int number : descriptors_of(pid())) {
            const UniqueFd socket = descriptor_of(pid(), number);
            timeval timeout = {};
            socklen_t length = sizeof timeout;
            if (!socket || getsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, &length) != 0) continue;
            if (timeout.tv_sec == kUsual.tv_sec) return number;
        }
        return -1;
    }
    void shorten_wait() const {
        constexpr timeval kShort{0, 100'000};
        const UniqueFd socket = descriptor_of(pid(), socket_);
        ASSERT_EQ(setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &kShort, sizeof kShort), 0);
    }
    // A thread of gshmd waits for an answer.
    bool is_asked() const {
        for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid()) + "/task")) {
            const auto call = SleepingCall::of(pid(), atoi(task.path().filename().c_str()));
            if (call.number == SYS_recvmsg && strtol(call.first.c_str(), nullptr, 16) == socket_) return true;
        }
        return false;
    }
    // Between two requests: gshmd frees memory of the first file some time after it has grown.
    void stop_maker() {
        const std::string path = "/proc/" + std::to_string(maker_) + "/stat";
        for (;;) {
            ASSERT_EQ(::kill(maker_, SIGSTOP), 0);
            for (std::string line; line.find(") T ") == std::string::npos;) {
                ASSERT_TRUE(std::getline(std::ifstream(path), line));
            }
            if (!is_asked()) return;
            ASSERT_EQ(::kill(maker_, SIGCONT), 0);
        }
    }

    static constexpr size_t kBytes = 4 << 20;
    static constexpr int kMakerSocket = 3;
    pid_t maker_ = 0;
    int socket_ = -1;  // of gshmd, to gshm-maker
};

TEST_F(Maker, ThatIsStoppedIsReplaced) {
    ASSERT_NO_FATAL_FAILURE(shorten_wait());
    // Requests wait for each other: the wait of those before this one is over.
    ASSERT_TRUE(write_file(at("between"), std::string(kBytes, '0')));
    const int ended = pidfd_of(maker_);
    ASSERT_NO_FATAL_FAILURE(stop_maker());
    // In memory of gshmd's own.
    ASSERT_TRUE(write_file(at("second"), std::string(kBytes, '2'))) << strerror(errno);
    EXPECT_EQ(read_file(at("second")), std::string(kBytes, '2'));
    EXPECT_EQ(read_file(at("first")), std::string(kBytes, '1'));
    await_end(ended);
    EXPECT_NE(log().find("gshm-maker is replaced"), std::string::npos) << log();
    // Its handles have ended, and are not replaced silently.
    EXPECT_EQ(handle_of("first"), "");
    EXPECT_EQ(errno, EBUSY);
    // The next one makes memory whose handle outlives gshmd.
    while (makers().empty()) ASSERT_TRUE(running()) << log();
    std::string handle;
    for (int i = 0; handle.empty(); ++i) {
        const std::string name = "third" + std::to_string(i);
        ASSERT_TRUE(write_file(at(name), std::string(kBytes, '3'))) << strerror(errno);
        ASSERT_FALSE((handle = handle_of(name)).empty()) << strerror(errno);
        kill();
        ASSERT_TRUE(start_again(Way::cuda)) << log();
        // Not if gshmd had no socket to it yet.
        if (handle_of(name) != handle) handle.clear();
        else EXPECT_EQ(read_file(at(name)), std::string(kBytes, '3'));
        ASSERT_EQ(unlink(at(name).c_str()), 0);
    }
}

// Its answer is waited for by the thread that needs it. Nothing else is.
TEST_F(Maker, ThatIsStoppedDelaysOnlyRequestsToIt) {
    const UniqueFd socket = descriptor_of(maker_, kMakerSocket);
    ASSERT_TRUE(socket);
    ASSERT_NO_FATAL_FAILURE(stop_maker());
    bool written = false;
    std::thread writer([&] { written = write_file(at("second"), std::string(kBytes, '2')); });
    pollfd request{socket.get(), POLLIN, 0};
    EXPECT_EQ(poll(&request, 1, -1), 1);
    EXPECT_EQ(run_cli({"ping"}).exit_code, 0);
    for (const char* device : {"cuda:0", "cuda:1", "host"}) {
        const std::string name = std::string("object-") + device;
        auto created = run_cli({"create", name, "--size", "8M", "--device", device});
        EXPECT_EQ(created.exit_code, 0) << created.err;
        auto removed = run_cli({"rm", name});
        EXPECT_EQ(removed.exit_code, 0) << removed.err;
    }
    EXPECT_EQ(read_file(at("first")), std::string(kBytes, '1'));
    EXPECT_EQ(::kill(maker_, SIGCONT), 0);
    writer.join();
    EXPECT_TRUE(written);
    EXPECT_EQ(read_file(at("second")), std::string(kBytes, '2'));
    EXPECT_FALSE(handle_of("second").empty()) << strerror(errno);
    EXPECT_EQ(makers(), std::vector<pid_t>{maker_});
}

// gshmd has no descriptor left for the one in the answer: the memory goes, gshm-maker and all its other memory stay.
TEST_F(Maker, AnAnswerWithoutRoomForItsDescriptorLeavesNoMemory) {
    const std::string handle = handle_of("first");
    const size_t held = descriptors_of(maker_).size();
    const uint64_t used = used_bytes();
    rlimit usual = {};
    ASSERT_EQ(prlimit(pid(), RLIMIT_NOFILE, nullptr, &usual), 0);
    size_t refused = 0;
    for (rlim_t left = 0; left < 8; ++left) {
        SCOPED_TRACE(left);
        // The first number with so many free ones below it.
        rlim_t end = 0;
        const auto open_now = descriptors_of(pid());
        for (rlim_t unused = 0; unused < left || open_now.contains(static_cast<int>(end)); ++end) {
            if (!open_now.contains(static_cast<int>(end))) ++unused;
        }
        rlimit few = {end, usual.rlim_max};
        ASSERT_EQ(prlimit(pid(), RLIMIT_NOFILE, &few, nullptr), 0);
        const bool written = write_file(at("second"), std::string(kBytes, '2'));
        if (!written) {
            EXPECT_TRUE(errno == EMFILE || errno == ENFILE || errno == EIO || errno == ENOSPC) << strerror(errno);
            ++refused;
        }
        ASSERT_EQ(prlimit(pid(), RLIMIT_NOFILE, &usual, nullptr), 0);
        unlink(at("second").c_str());
        // The memory is freed by another thread.
        while (used_bytes() > used) ASSERT_TRUE(running()) << log();
        while (descriptors_of(maker_).size() > held) ASSERT_TRUE(running()) << log();
        EXPECT_EQ(makers(), std::vector<pid_t>{maker_});
        EXPECT_EQ(handle_of("first"), handle);
    }
    EXPECT_GT(refused, 0u);
    ASSERT_TRUE(write_file(at("second"), std::string(kBytes, '2'))) << strerror(errno);
    EXPECT_EQ(read_file(at("second")), std::string(kBytes, '2'));
}

}  // namespace
}  // namespace gshm::core::test
