// A second process of a test.
#pragma once

#include <fcntl.h>
#include <functional>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <gtest/gtest.h>

namespace gshm::core::test {

// A separate process, forked before either side starts CUDA, and a pipe in each direction.
class Peer {
public:
    explicit Peer(const std::function<void(Peer&)>& body) {
        int down[2] = {-1, -1};
        int up[2] = {-1, -1};
        if (pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0) abort();
        child_ = fork();
        in_ = child_ == 0 ? down[0] : up[0];
        out_ = child_ == 0 ? up[1] : down[1];
        ::close(child_ == 0 ? down[1] : up[1]);  // so that a read ends with the other side
        ::close(child_ == 0 ? up[0] : down[0]);
        if (child_ != 0) return;
        body(*this);
        _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    ~Peer() {
        if (child_ > 0) finish();
    }
    template <typename T>
    void send(const T& value) {
        EXPECT_EQ(::write(out_, &value, sizeof value), static_cast<ssize_t>(sizeof value));
    }
    template <typename T>
    T receive() {
        T value = {};
        EXPECT_EQ(::read(in_, &value, sizeof value), static_cast<ssize_t>(sizeof value));
        return value;
    }
    void go_on() { send('!'); }
    void wait() { receive<char>(); }
    void kill() { ::kill(child_, SIGKILL); }
    // Its exit status; 128 + the signal if one ended it.
    int finish() {
        ::close(std::exchange(out_, -1));
        int status = -1;
        waitpid(std::exchange(child_, -1), &status, 0);
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }

private:
    pid_t child_ = -1;
    int in_ = -1;
    int out_ = -1;
};

}  // namespace gshm::core::test
