#include "daemon/loop.h"

#include <algorithm>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace gshm::core {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

Result<std::unique_ptr<EventLoop>> EventLoop::create(Locking locking) {
    auto epoll = UniqueFd::adopt(epoll_create1(EPOLL_CLOEXEC));
    if (!epoll) return fail_errno("epoll_create");
    auto wake = UniqueFd::adopt(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake) return fail_errno("eventfd");
    std::unique_ptr<EventLoop> loop(new EventLoop(std::move(epoll), std::move(wake), locking));
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u64 = static_cast<uint32_t>(loop->wake_.get());  // an id of 0, which no watch has
    if (epoll_ctl(loop->epoll_.get(), EPOLL_CTL_ADD, loop->wake_.get(), &event) != 0) return fail_errno("epoll_ctl");
    return loop;
}

Status EventLoop::watch(int fd, uint32_t events, Callback callback, std::source_location caller) {
    MutexLock lock(mutex_);
    return add(fd, events, std::move(callback), caller, nullptr);
}

Status EventLoop::watch_in_group(uint64_t number, int fd, uint32_t events, Callback callback,
                                 std::source_location caller) {
    MutexLock lock(mutex_);
    auto& group = groups_[number];
    if (!group) {
        auto made = std::make_shared<Group>(number, UniqueFd::adopt(epoll_create1(EPOLL_CLOEXEC)));
        auto added =
            made->epoll ? add(
                              made->epoll.get(), EPOLLIN, [this, made](uint32_t) { run_group(*made); }, caller, nullptr)
                        : fail_errno("epoll_create");
        if (!added) {
            groups_.erase(number);
            return added;
        }
        group = std::move(made);
    }
    return add(fd, events, std::move(callback), caller, group);
}

Status EventLoop::add(int fd, uint32_t events, Callback callback, std::source_location caller,
                      std::shared_ptr<Group> group) {
    auto watch = std::make_shared<Watch>(Watch{next_id_++, std::move(callback), caller, std::move(group)});
    epoll_event event = {};
    event.events = events;
    event.data.u64 = watch->id << 32 | static_cast<uint32_t>(fd);
    const int epoll = watch->group ? watch->group->epoll.get() : epoll_.get();
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) return fail_errno("epoll_ctl");
    if (watch->group) ++watch->group->watches;
    watches_[fd] = std::move(watch);
    return {};
}

void EventLoop::change(int fd, uint32_t events) {
    MutexLock lock(mutex_);
    auto found = watches_.find(fd);
    if (found == watches_.end()) return;
    epoll_event event = {};
    event.events = events;
    event.data.u64 = found->second->id << 32 | static_cast<uint32_t>(fd);
    const Group* group = found->second->group.get();
    epoll_ctl(group == nullptr ? epoll_.get() : group->epoll.get(), EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::unwatch(int fd) {
    std::shared_ptr<Watch> ended;  // destroyed after the lock is released, with its callback
    std::shared_ptr<Watch> of_group;
    MutexLock lock(mutex_);
    auto found = watches_.find(fd);
    if (found == watches_.end()) return;
    ended = std::move(found->second);
    watches_.erase(found);
    Group* group = ended->group.get();
    epoll_ctl(group == nullptr ? epoll_.get() : group->epoll.get(), EPOLL_CTL_DEL, fd, nullptr);
    if (group == nullptr || --group->watches > 0) return;
    of_group = std::move(watches_.extract(group->epoll.get()).mapped());
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, group->epoll.get(), nullptr);
    groups_.erase(group->number);
}

EventLoop::TimerId EventLoop::after(milliseconds delay, Task task, std::source_location caller) {
    TimerId id;
    bool first = false;
    {
        MutexLock lock(mutex_);
        id = {steady_clock::now() + delay, next_id_++};
        timers_.emplace(id, Posted{std::move(task), caller});
        first = timers_.begin()->first == id;
    }
    if (first) wake();  // the loop may sleep until a later timer
    return id;
}

void EventLoop::cancel(const TimerId& timer) {
    Posted cancelled;
    MutexLock lock(mutex_);
    auto found = timers_.find(timer);
    if (found == timers_.end()) return;
    cancelled = std::move(found->second);
    timers_.erase(found);
}

void EventLoop::post(Task task, std::source_location caller) {
    {
        MutexLock lock(mutex_);
        posted_.push_back({std::move(task), caller});
        if (posted_.size() > 1) return;  // the first one has woken the loop
    }
    wake();
}

void EventLoop::drop_posted() {
    std::vector<Posted> dropped;  // destroyed after the lock is released, as the next ones
    std::map<TimerId, Posted> timers;
    MutexLock lock(mutex_);
    dropped.swap(posted_);
    timers.swap(timers_);
}

void EventLoop::wake() {
    uint64_t one = 1;
    [[maybe_unused]] ssize_t put = write(wake_.get(), &one, sizeof one);
}

void EventLoop::stop() {
    stopped_.store(true, std::memory_order_release);
    wake();
}

void EventLoop::run_posted() {
    uint64_t count = 0;
    [[maybe_unused]] ssize_t got = read(wake_.get(), &count, sizeof count);
    std::vector<Posted> posted;
    {
        MutexLock lock(mutex_);
        posted.swap(posted_);
    }
    for (auto& [task, caller] : posted) {
        under_lock([&] {
            describe_hold(caller);
            task();
            if (after_) after_();
            task = nullptr;  // destroyed under the lock
        });
    }
}

int EventLoop::next_timeout_ms() {
    MutexLock lock(mutex_);
    if (timers_.empty()) return -1;
    auto wait = std::chrono::ceil<milliseconds>(timers_.begin()->first.first - steady_clock::now());
    return static_cast<int>(std::clamp<int64_t>(wait.count(), 0, 60'000));
}

void EventLoop::run_timer() {
    Posted due;
    {
        MutexLock lock(mutex_);
        if (timers_.empty() || timers_.begin()->first.first > steady_clock::now()) return;
        due = std::move(timers_.begin()->second);
        timers_.erase(timers_.begin());
    }
    describe_hold(due.caller);
    due.task();
    if (after_) after_();
}

void EventLoop::describe_hold(const std::source_location& caller) {
    if (locking_ == Locking::none) return;
    store_lock.assert_held();
    store_mutex_.describe_hold(caller);
}

void EventLoop::under_lock(auto&& action) {
    if (locking_ == Locking::none) return action();
    StoreLock lock(store_mutex_);
    action();
}

void EventLoop::run_watched(int fd, uint64_t id, uint32_t events) {
    std::shared_ptr<Watch> watch;
    {
        MutexLock lock(mutex_);
        if (auto found = watches_.find(fd); found != watches_.end()) watch = found->second;
    }
    if (!watch || (watch->id & 0xFFFFFFFF) != id) return;
    describe_hold(watch->caller);
    watch->callback(events);
    if (after_) after_();
}

void EventLoop::run_group(const Group& group) {
    constexpr int kRound = 32;
    epoll_event events[kRound];
    const int count = epoll_wait(group.epoll.get(), events, kRound, 0);
    for (int i = 0; i < count; ++i) {
        const uint64_t data = events[i].data.u64;
        run_watched(static_cast<int>(static_cast<uint32_t>(data)), data >> 32, events[i].events);
    }
}

void EventLoop::run() {
    epoll_event events[64];
    under_lock([&] { running_.store(true, std::memory_order_release); });
    while (!stopped_.load(std::memory_order_acquire)) {
        const int count = epoll_wait(epoll_.get(), events, 64, next_timeout_ms());
        // The lock is taken for each event, so that other threads do not wait for the whole batch.
        for (int i = 0; i < count && !stopped_.load(std::memory_order_acquire); ++i) {
            const uint64_t data = events[i].data.u64;
            const int fd = static_cast<int>(static_cast<uint32_t>(data));
            if (fd == wake_.get()) run_posted();
            else under_lock([&] { run_watched(fd, data >> 32, events[i].events); });
        }
        while (!stopped_.load(std::memory_order_acquire) && next_timeout_ms() == 0) under_lock([&] { run_timer(); });
    }
}

}  // namespace gshm::core
