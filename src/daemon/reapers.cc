#include "daemon/reapers.h"

#include <csignal>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <utility>

#include "base/log.h"

namespace gshm::core {
namespace {

// A thread that waits longer for a task ends.
constexpr std::chrono::seconds kIdle{10};
// A task that waits longer behind others gets a thread of its own.
constexpr std::chrono::milliseconds kBlocked{5};

}  // namespace

Reapers::~Reapers() {
    while (!finish(std::chrono::hours(1))) {}
}

void Reapers::submit(uid_t uid, Worker::Task task) {
    MutexLock lock(mutex_);
    User& user = users_[uid];
    user.queue.push_back({std::move(task), Clock::now()});
    call_thread(uid, user);
}

void Reapers::call_thread(uid_t uid, User& user) {
    // The busy one takes the task, or the one that stands by if that takes too long.
    if (user.busy > 0 && user.standing_by > 0) return;
    if (user.threads > user.busy) user.wake.notify_one();
    else if (user.threads < kThreadsPerUser) start(uid, user);
}

bool Reapers::needs_thread(const User& user, Clock::time_point now) const {
    if (user.queue.empty()) return false;
    return user.busy == 0 || ending_ || now - user.queue.front().since >= kBlocked;
}

void Reapers::start(uid_t uid, User& user) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);  // signals are handled by the main thread
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        std::thread([this, uid] { run(uid); }).detach();
        ++user.threads;
    } catch (const std::system_error& error) {
        // The other threads, or the next task, take what is queued.
        log_warning("no thread to close descriptors of uid {}: {}", uid, error.what());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Reapers::run(uid_t uid) {
    pthread_setname_np(pthread_self(), "gshm-reaper");
    MutexLock lock(mutex_);
    User& user = users_[uid];
    auto since = Clock::now();
    for (;;) {
        const auto now = Clock::now();
        if (needs_thread(user, now)) {
            ++user.busy;
            do {
                Worker::Task task = std::move(user.queue.front().task);
                user.queue.pop_front();
                if (!user.queue.empty()) call_thread(uid, user);
                lock.unlock();
                task();
                task = nullptr;  // destroys the captures outside of the lock
                lock.lock();
            } while (!user.queue.empty());
            --user.busy;
            since = Clock::now();
        } else if (!user.queue.empty() && user.standing_by == 0) {
            ++user.standing_by;
            lock.wait_until(user.wake, user.queue.front().since + kBlocked);
            --user.standing_by;
        } else if (ending_ || now - since >= kIdle) {
            break;
        } else {
            lock.wait_until(user.wake, since + kIdle);
        }
    }
    if (--user.threads == 0) users_.erase(uid);
    if (users_.empty()) none_left_.notify_all();  // under the lock: the destructor may run next
}

void Reapers::close(uid_t uid, std::vector<UniqueFd> descriptors, Budgets::Charge charge) {
    if (descriptors.empty()) return;
    submit(uid, [charge = std::move(charge), descriptors = std::move(descriptors)]() mutable {
        for (const auto& fd : descriptors) {
            // Else the close of a socket waits until its peer has read everything. The wait would only cost a thread.
            const linger off = {};
            setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &off, sizeof off);
        }
        descriptors.clear();
    });
}

bool Reapers::finish(std::chrono::milliseconds patience) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    MutexLock lock(mutex_);
    ending_ = true;
    for (auto& [uid, user] : users_) {
        if (user.threads == 0) start(uid, user);
        user.wake.notify_all();
    }
    while (!users_.empty() && std::chrono::steady_clock::now() < deadline) lock.wait_until(none_left_, deadline);
    return users_.empty();
}

}  // namespace gshm::core
