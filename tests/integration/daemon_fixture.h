// Starts a separate gshmd in a separate folder, and runs the programs of this build against it.
//
//   class MyTest : public ::testing::Test, protected DaemonFixture {};
//   TEST_F(MyTest, Answers) {
//       ASSERT_TRUE(start()) << log();                 // --device host:256M unless told otherwise
//       EXPECT_EQ(run_cli({"ping"}).exit_code, 0);
//   }                                                  // the destructor stops the daemon and removes the folder
//
// It does not derive from ::testing::Test, so that a test may have two daemons. It is for one thread. The kernel ends
// the daemon with the thread that called start(), so that an aborted test leaves none behind. That thread must
// therefore live as long as the daemon.
//
// gshmd and gshm are those of the test's build, unless GSHM_BIN in the environment names another folder.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string>
#include <string_view>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "support/this_build.h"

namespace gshm::core::test {

struct RunResult {
    int exit_code = -1;  // 128 + signal if a signal ended it; -1 if it was killed after the timeout
    std::string out;
    std::string err;
};

// A child process with pipes on its three standard streams. Killed when this goes out of scope.
class ChildProcess {
public:
    ChildProcess() = default;
    ChildProcess(const ChildProcess&) = delete;
    ChildProcess& operator=(const ChildProcess&) = delete;
    ~ChildProcess() { reset(); }

    // env: "NAME=value" entries that are added to ours. output_path: standard output and error are appended to that
    // file instead of written to pipes.
    bool spawn(const std::vector<std::string>& args, const std::vector<std::string>& env = {},
               const std::string& output_path = {}) {
        reset();
        ::signal(SIGPIPE, SIG_IGN);
        std::vector<char*> argv;
        for (const auto& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
        argv.push_back(nullptr);
        std::vector<char*> envp;
        for (char** entry = environ; *entry; ++entry)
            if (!is_replaced(*entry, env)) envp.push_back(*entry);
        for (const auto& entry : env) envp.push_back(const_cast<char*>(entry.c_str()));
        envp.push_back(nullptr);

        int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1};
        if (::pipe2(in, O_CLOEXEC) != 0) return false;
        if (output_path.empty()) {
            if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) return false;
        } else {
            out[1] = ::open(output_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
            err[1] = ::fcntl(out[1], F_DUPFD_CLOEXEC, 3);
        }
        const pid_t parent = ::getpid();
        pid_ = ::fork();
        if (pid_ == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (::getppid() != parent) ::_exit(127);
            ::signal(SIGPIPE, SIG_DFL);
            ::dup2(in[0], 0);
            ::dup2(out[1], 1);
            ::dup2(err[1], 2);
            // The signal may be ignored in the process that runs this test.
            ::signal(SIGINT, SIG_DFL);
            ::execve(argv[0], argv.data(), envp.data());
            ::_exit(127);
        }
        ::close(in[0]);
        ::close(out[1]);
        ::close(err[1]);
        in_ = in[1];
        out_ = out[0];
        err_ = err[0];
        return pid_ > 0;
    }

    void swap(ChildProcess& other) {
        std::swap(pid_, other.pid_);
        std::swap(exit_code_, other.exit_code_);
        std::swap(in_, other.in_);
        std::swap(out_, other.out_);
        std::swap(err_, other.err_);
    }

    pid_t pid() const { return pid_; }
    bool running() { return pid_ > 0 && !poll_exit(); }
    void signal(int number) {
        if (running()) ::kill(pid_, number);
    }
    // Blocks until all data is in the pipe. False if the child has closed its end.
    bool feed(std::string_view data) {
        while (!data.empty()) {
            const ssize_t n = ::write(in_, data.data(), data.size());
            if (n < 0 && errno != EINTR) return false;
            if (n > 0) data.remove_prefix(static_cast<size_t>(n));
        }
        return true;
    }
    void close_stdin() { close_fd(in_); }
    void close_stdout() { close_fd(out_); }

    // Writes the rest of its input, closes it, collects its output, and waits for its end.
    RunResult finish(std::string_view input = {}, std::chrono::milliseconds timeout = std::chrono::seconds(120)) {
        const auto deadline = std::chrono::steady_clock::now() + timeout;
        RunResult result;
        if (in_ >= 0) ::fcntl(in_, F_SETFL, O_NONBLOCK);
        if (input.empty()) close_fd(in_);
        while (in_ >= 0 || out_ >= 0 || err_ >= 0) {
            pollfd fds[3] = {{in_, POLLOUT, 0}, {out_, POLLIN, 0}, {err_, POLLIN, 0}};
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
            if (left.count() <= 0) break;
            if (::poll(fds, 3, static_cast<int>(left.count())) < 0 && errno != EINTR) break;
            if (fds[0].revents) {
                const ssize_t n = ::write(in_, input.data(), input.size());
                if (n > 0) input.remove_prefix(static_cast<size_t>(n));
                if (input.empty() || (n < 0 && errno != EAGAIN && errno != EINTR)) close_fd(in_);
            }
            if (fds[1].revents) drain(out_, result.out);
            if (fds[2].revents) drain(err_, result.err);
        }
        while (!poll_exit() && std::chrono::steady_clock::now() < deadline)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (poll_exit()) result.exit_code = exit_code_;
        reset();
        return result;
    }

    // Exit status as in RunResult, or -1 if it is still running after timeout.
    int wait(std::chrono::milliseconds timeout) {
        const auto deadline = std::chrono::steady_clock::now() + timeout;
        while (!poll_exit()) {
            if (std::chrono::steady_clock::now() >= deadline) return -1;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return exit_code_;
    }

    void reset() {
        if (pid_ > 0 && !poll_exit()) {
            ::kill(pid_, SIGKILL);
            ::waitpid(pid_, nullptr, 0);
        }
        pid_ = -1;
        exit_code_ = -1;
        close_fd(in_);
        close_fd(out_);
        close_fd(err_);
    }

private:
    static bool is_replaced(std::string_view ours, const std::vector<std::string>& env) {
        const auto prefix = ours.substr(0, ours.find('=') + 1);
        for (const auto& entry : env)
            if (entry.starts_with(prefix)) return true;
        return false;
    }
    static void close_fd(int& fd) {
        if (fd >= 0) ::close(std::exchange(fd, -1));
    }
    static void drain(int& fd, std::string& text) {
        char block[65536];
        const ssize_t n = ::read(fd, block, sizeof block);
        if (n > 0) text.append(block, static_cast<size_t>(n));
        if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) close_fd(fd);
    }
    bool poll_exit() {
        if (pid_ <= 0 || exit_code_ >= 0) return true;
        int status = 0;
        if (::waitpid(pid_, &status, WNOHANG) != pid_) return false;
        exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        return true;
    }

    pid_t pid_ = -1;
    int exit_code_ = -1;
    int in_ = -1, out_ = -1, err_ = -1;
};

class DaemonFixture {
public:
    DaemonFixture() {
        std::string pattern = (std::filesystem::temp_directory_path() / "gshm-test-XXXXXX").string();
        if (::mkdtemp(pattern.data())) scratch_ = pattern;
        ::chmod(scratch_.c_str(), 0755);  // tests of access rights connect as other users
    }
    DaemonFixture(const DaemonFixture&) = delete;
    DaemonFixture& operator=(const DaemonFixture&) = delete;
    ~DaemonFixture() {
        stop();
        kill_keeper();  // of a daemon that was killed and not restarted
        std::error_code ignored;
        if (!scratch_.empty()) std::filesystem::remove_all(scratch_, ignored);
    }

    // Starts `gshmd --dir DIR -f ARGS…` and waits until it accepts connections. False if it ends or takes longer than two
    // minutes; log() then has the reason. May be called again after stop() or kill(), on the same folder. `by` is a
    // command that runs gshmd, for example as another user.
    bool start(const std::vector<std::string>& args = {"--device", "host:256M"},
               const std::vector<std::string>& env = {}, const std::vector<std::string>& by = {}) {
        const size_t said_before = log().size();
        return spawn_daemon(daemon_, args, env, by) && becomes_ready(daemon_, said_before);
    }
    // Starts it without waiting.
    bool begin_to_start(const std::vector<std::string>& args = {}, const std::vector<std::string>& env = {},
                        const std::vector<std::string>& by = {}) {
        return spawn_daemon(daemon_, args, env, by);
    }
    // Starts a second one with --takeover, which replaces the first one here. False if it fails, or if the first one
    // does not exit with 0.
    bool take_over(const std::vector<std::string>& args = {}, const std::vector<std::string>& env = {},
                   const std::vector<std::string>& by = {}) {
        std::vector<std::string> all = {"--takeover"};
        all.insert(all.end(), args.begin(), args.end());
        ChildProcess next;
        const size_t said_before = log().size();
        if (!spawn_daemon(next, all, env, by) || !becomes_ready(next, said_before)) return false;
        daemon_.swap(next);
        return next.wait(std::chrono::seconds(120)) == 0;
    }
    // The environment that makes gshmd (and clients) find the fake driver with `devices` GPUs.
    static std::vector<std::string> fake_cuda_env(int devices) {
        const auto folder = std::filesystem::path(fakecuda_path()).parent_path().string();
        return {"LD_LIBRARY_PATH=" + folder, "FAKECUDA_DEVICES=" + std::to_string(devices)};
    }

    // SIGTERM, and SIGKILL after two minutes. Its exit status; -1 if it had to be killed or was not running.
    int stop() {
        if (!daemon_.running()) return -1;
        daemon_.signal(SIGTERM);
        const int code = daemon_.wait(std::chrono::seconds(120));
        daemon_.reset();
        return code;
    }
    void kill() {  // SIGKILL, now
        daemon_.signal(SIGKILL);
        daemon_.wait(std::chrono::seconds(120));
        daemon_.reset();
    }
    // The keeper of this folder, whichever daemon started it; 0: none. The daemon makes the socket, and is its owner
    // until the keeper runs: that is waited for.
    pid_t keeper_pid() const {
        for (;;) {
            const pid_t owner = owner_of(dir() + "/keeper.sock");
            if (owner != pid() || !is_alive(owner)) return owner;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    void kill_keeper() const {  // SIGKILL; returns when it has gone
        const pid_t keeper = keeper_pid();
        if (keeper <= 0 || keeper == pid()) return;
        ::kill(keeper, SIGKILL);
        while (keeper_pid() == keeper) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    // Exit status of a daemon that ends by itself; -1 if it does not.
    int wait_for_end(std::chrono::milliseconds timeout = std::chrono::seconds(120)) { return daemon_.wait(timeout); }
    bool running() { return daemon_.running(); }
    pid_t pid() const { return daemon_.pid(); }

    const std::string& scratch() const { return scratch_; }  // for the test's own files; removed at the end
    std::string dir() const { return scratch_ + "/run"; }    // the runtime folder
    std::string socket_path() const { return dir() + "/gshm.sock"; }
    std::string log() const {  // the daemon's output
        std::ifstream file(log_path());
        return {std::istreambuf_iterator<char>(file), {}};
    }
    static std::string bin(const std::string& program) {
        const char* folder = std::getenv("GSHM_BIN");
        return (folder && *folder ? folder : build_path("bin")) + "/" + program;
    }

    // Runs `gshm --dir DIR ARGS…`.
    RunResult run_cli(const std::vector<std::string>& args, std::string_view input = {},
                      const std::vector<std::string>& env = {}) {
        ChildProcess child;
        if (!child.spawn(cli_argv(args), env)) return {};
        return child.finish(input);
    }
    std::vector<std::string> cli_argv(const std::vector<std::string>& args) const {
        std::vector<std::string> argv = {bin("gshm"), "--dir", dir()};
        argv.insert(argv.end(), args.begin(), args.end());
        return argv;
    }

private:
    bool spawn_daemon(ChildProcess& daemon, const std::vector<std::string>& args, const std::vector<std::string>& env,
                      const std::vector<std::string>& by) {
        std::vector<std::string> argv = by;
        argv.insert(argv.end(), {bin("gshmd"), "--dir", dir(), "-f"});
        argv.insert(argv.end(), args.begin(), args.end());
        return daemon.spawn(argv, env, log_path());
    }
    bool becomes_ready(ChildProcess& daemon, size_t said_before) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
        while (daemon.running() && std::chrono::steady_clock::now() < deadline) {
            // It listens before it mounts, and answers only afterwards, so the log is checked too.
            if (accepts_connections() && log().find("is ready at", said_before) != std::string::npos) return true;
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
        return false;
    }
    std::string log_path() const { return scratch_ + "/gshmd.log"; }
    bool accepts_connections() const {
        const int fd = open_socket(socket_path());
        if (fd >= 0) ::close(fd);
        return fd >= 0;
    }
    static bool is_alive(pid_t process) {
        std::string line;
        std::getline(std::ifstream("/proc/" + std::to_string(process) + "/stat"), line);
        return !line.empty() && line.find(") Z ") == std::string::npos;
    }
    // The process that listens there; 0: none.
    static pid_t owner_of(const std::string& path) {
        const int fd = open_socket(path);
        if (fd < 0) return 0;
        ucred peer{};
        socklen_t length = sizeof peer;
        const bool known = ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
        ::close(fd);
        return known ? peer.pid : 0;
    }
    static int open_socket(const std::string& path) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        if (path.size() >= sizeof address.sun_path) return -1;
        std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
        const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (fd < 0 || ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
        ::close(fd);
        return -1;
    }

    std::string scratch_;
    ChildProcess daemon_;
};

}  // namespace gshm::core::test
