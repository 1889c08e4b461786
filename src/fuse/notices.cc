#include "fuse/notices.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <future>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "base/log.h"
#include "base/spawn.h"
#include "fuse/kernel.h"

namespace gshm::core::fuse {
namespace {

constexpr int kMountFd = 3;
constexpr int kSocketFd = 4;
constexpr size_t kPacketBytes = 32 << 10;
// For a process that does not answer, perhaps because it is stopped, after finish() was called.
constexpr int kPatienceS = 10;

// 0, or the error. ENOENT: the kernel has no such entry or node.
int write_notice(int mount, const char* message, size_t bytes) {
    for (int tries = 0;; ++tries) {
        if (write(mount, message, bytes) >= 0) return 0;
        const bool passes = errno == EINTR || errno == EAGAIN || errno == ENOMEM;
        if (!passes || tries == 1000) return errno;
        if (errno == ENOMEM) usleep(1000);
    }
}

}  // namespace

Notices::Notices(int mount) : mount_(mount) {
    worker_.submit([this] { (void)start(); });
}

Notices::~Notices() {
    finish();
    end();
}

void Notices::tell(std::string message) {
    add({std::move(message), nullptr, 0});
}

void Notices::ask(std::vector<std::string> messages, std::function<void(const std::vector<int>&)> on_told) {
    auto asked = std::make_shared<Asked>();
    asked->errors.resize(messages.size());
    asked->left = messages.size();
    asked->on_told = std::move(on_told);
    for (size_t i = 0; i < messages.size(); ++i) add({std::move(messages[i]), asked, i});
}

void Notices::add(Item item) {
    MutexLock lock(mutex_);
    if (finished_) return;
    queue_.push_back(std::move(item));
    if (std::exchange(draining_, true)) return;
    worker_.submit([this] { drain(); });
}

void Notices::finish() {
    {
        MutexLock lock(mutex_);
        if (std::exchange(finished_, true)) return;
    }
    std::promise<void> reached;
    worker_.submit([&] { reached.set_value(); });
    reached.get_future().wait();
}

std::vector<Notices::Item> Notices::take() {
    MutexLock lock(mutex_);
    std::vector<Item> items;
    size_t bytes = 0;
    while (!queue_.empty() && bytes + queue_.front().message.size() <= kPacketBytes) {
        bytes += queue_.front().message.size();
        items.push_back(std::move(queue_.front()));
        queue_.pop_front();
    }
    if (items.empty()) draining_ = false;
    return items;
}

void Notices::drain() {
    for (;;) {
        const auto items = take();
        if (items.empty()) return;
        const auto errors = tell_all(items);
        for (size_t i = 0; i < items.size(); ++i) {
            auto& asked = items[i].asked;
            if (!asked) continue;
            asked->errors[items[i].index] = errors[i];
            if (--asked->left == 0) asked->on_told(asked->errors);
        }
    }
}

std::vector<int> Notices::tell_all(const std::vector<Item>& items) {
    std::vector<int> errors(items.size());
    // A notice may be sent twice.
    for (int attempt = 0; attempt < 2 && start(); ++attempt) {
        if (tell_through(items, &errors)) return errors;
        end();
        if (is_finished()) return std::vector<int>(items.size(), EINTR);
    }
    for (size_t i = 0; i < items.size(); ++i) {
        errors[i] = write_notice(mount_, items[i].message.data(), items[i].message.size());
    }
    return errors;
}

bool Notices::start() {
    if (socket_) return true;
    auto started = [&]() -> Status {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return fail_errno("socketpair");
        auto ours = UniqueFd::adopt(ends[0]);
        auto theirs = UniqueFd::adopt(ends[1]);
        timeval patience{1, 0};
        setsockopt(ours.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        // The running program, even if an upgrade has replaced its file.
        const int descriptors[] = {mount_, theirs.get()};
        process_ = TRY(spawn_apart("/proc/self/exe", {"gshm-notices", kOption}, descriptors));
        socket_ = std::move(ours);
        return {};
    }();
    if (!started) log_warning("{}; gshmd itself tells the kernel what has changed", started.error().message);
    return started.has_value();
}

void Notices::end() {
    if (!socket_) return;
    socket_.reset();  // the process then ends at once
    for (int i = 0; i < 100 && waitpid(process_, nullptr, WNOHANG) == 0; ++i) usleep(1000);
    // Unless it is stopped, or blocked by a call that gshmd will not answer any more.
    if (waitpid(process_, nullptr, WNOHANG) == 0) kill(process_, SIGKILL);
    process_ = 0;
}

bool Notices::tell_through(const std::vector<Item>& items, std::vector<int>* ret_errors) {
    std::string packet;
    for (const Item& item : items) packet += item.message;
    ssize_t done = -1;
    while ((done = send(socket_.get(), packet.data(), packet.size(), MSG_NOSIGNAL)) < 0 && errno == EINTR) {}
    if (done != static_cast<ssize_t>(packet.size())) return false;
    const auto bytes = static_cast<ssize_t>(ret_errors->size() * sizeof(int));
    for (int seconds = 0;; ++seconds) {
        done = recv(socket_.get(), ret_errors->data(), static_cast<size_t>(bytes), 0);
        if (done >= 0) return done == bytes;
        if (errno != EINTR && errno != EAGAIN) return false;
        if (seconds >= kPatienceS && is_finished()) return false;
    }
}

int Notices::serve() {
    int type = 0;
    socklen_t length = sizeof type;
    if (getsockopt(kSocketFd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_SEQPACKET) {
        fprintf(stderr, "gshmd: %s is for gshmd itself\n", kOption);
        return 2;
    }
    prctl(PR_SET_NAME, "gshm-notices");
    // The process ends with gshmd, and not by signals to a terminal or session.
    for (int ignored : {SIGHUP, SIGINT, SIGTERM, SIGPIPE}) signal(ignored, SIG_IGN);
    std::vector<char> packet(kPacketBytes);
    for (;;) {
        const ssize_t got = recv(kSocketFd, packet.data(), packet.size(), 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return 0;
        std::vector<int> errors;
        for (size_t at = 0; at < static_cast<size_t>(got);) {
            fuse_out_header header = {};
            const size_t left = static_cast<size_t>(got) - at;
            if (left < sizeof header) return 1;
            memcpy(&header, packet.data() + at, sizeof header);
            if (header.len < sizeof header || header.len > left) return 1;
            errors.push_back(write_notice(kMountFd, packet.data() + at, header.len));
            at += header.len;
        }
        if (send(kSocketFd, errors.data(), errors.size() * sizeof(int), MSG_NOSIGNAL) < 0) return 0;
    }
}

}  // namespace gshm::core::fuse
