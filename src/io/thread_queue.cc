// Requests executed by threads, one system call each, for systems without io_uring.
#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "io/queue.h"

namespace gshm::core::io {
namespace {

class ThreadQueue final : public Queue {
public:
    static Result<std::unique_ptr<Queue>> create(unsigned threads, const std::optional<FileRights>& rights) {
        std::unique_ptr<ThreadQueue> made(new ThreadQueue(std::max(threads, 1U), rights));
        made->epoll_ = UniqueFd::adopt(epoll_create1(EPOLL_CLOEXEC));
        if (!made->epoll_) return fail_errno("epoll_create1");
        made->done_ = UniqueFd::adopt(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        if (!made->done_) return fail_errno("eventfd");
        TRY(made->watch(made->done_.get(), kOwnTag));
        TRY(made->add_thread());
        return made;
    }
    ~ThreadQueue() override {
        {
            MutexLock lock(mutex_);
            ending_ = true;
        }
        came_.notify_all();
        for (std::thread& thread : threads_) thread.join();
    }

    void submit(const Request& request) override {
        {
            MutexLock lock(mutex_);
            (request.bytes > kSmallBytes ? large_ : small_).push_back(request);
            if (idle_ >= small_.size() + large_.size() || threads_.size() == most_) {
                came_.notify_one();
                return;
            }
        }
        (void)add_thread();  // on failure the existing threads do the work
        came_.notify_one();
    }

    // Edge triggered: every write to the eventfd is an event, even if it is never read.
    Status watch(int fd, uint64_t tag) override {
        epoll_event event = {};
        event.events = EPOLLIN | EPOLLET;
        event.data.u64 = tag;
        if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return fail_errno("cannot watch a doorbell");
        return {};
    }
    void unwatch(int fd, uint64_t) override { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

    size_t wait(std::span<Event> events, bool block) override {
        size_t taken = take(events);
        if (taken == events.size()) return taken;
        epoll_event rings[kRings];
        const int count = epoll_wait(epoll_.get(), rings, kRings, block && taken == 0 ? -1 : 0);
        for (int i = 0; i < count && taken < events.size(); ++i) {
            if (rings[i].data.u64 != kOwnTag) events[taken++] = {rings[i].data.u64, 0};
        }
        return taken + take(events.subspan(taken));
    }

    bool is_uring() const override { return false; }

private:
    static constexpr uint64_t kOwnTag = ~uint64_t{0};
    static constexpr int kRings = 64;
    static constexpr uint32_t kSmallBytes = 64 << 10;

    ThreadQueue(unsigned most, const std::optional<FileRights>& rights) : most_(most), rights_(rights) {}

    Status add_thread() {
        // The new thread inherits the rights of this one, and keeps them.
        std::optional<BorrowedFileRights> borrowed;
        if (rights_) borrowed.emplace(TRY(BorrowedFileRights::create(*rights_)));
        // These threads block signals of the process, in particular SIGXFSZ.
        sigset_t all;
        sigset_t before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        Status made;
        try {
            threads_.emplace_back([this] { work(); });
        } catch (const std::system_error& error) {
            made = fail_errno("cannot start a thread", error.code().value());
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        return made;
    }

    size_t take(std::span<Event> events) EXCLUDES(mutex_) {
        if (events.empty()) return 0;
        MutexLock lock(mutex_);
        const size_t taken = std::min(events.size(), finished_.size());
        std::copy_n(finished_.begin(), taken, events.begin());
        finished_.erase(finished_.begin(), finished_.begin() + static_cast<std::ptrdiff_t>(taken));
        return taken;
    }

    void work() EXCLUDES(mutex_) {
        MutexLock lock(mutex_);
        for (;;) {
            ++idle_;
            while (small_.empty() && !may_take_large() && !ending_) lock.wait(came_);
            --idle_;
            const bool is_large = small_.empty();
            if (is_large && large_.empty()) return;
            auto& requests = is_large ? large_ : small_;
            const Request request = requests.front();
            requests.pop_front();
            if (is_large) ++doing_large_;
            lock.unlock();
            const int32_t result = perform(request);
            lock.lock();
            if (is_large) --doing_large_;
            finished_.push_back({request.tag, result});
            if (finished_.size() == 1) eventfd_write(done_.get(), 1);
        }
    }

    // Small requests go first, and one thread is reserved for them: large ones to one file may all block each other.
    bool may_take_large() const REQUIRES(mutex_) { return !large_.empty() && (doing_large_ + 1 < most_ || most_ == 1); }

    static int32_t perform(const Request& request) {
        const auto offset = static_cast<off_t>(request.offset);
        const ssize_t moved = request.is_write ? pwrite(request.fd, request.memory, request.bytes, offset)
                                               : pread(request.fd, request.memory, request.bytes, offset);
        return moved < 0 ? -errno : static_cast<int32_t>(moved);
    }

    const unsigned most_;
    const std::optional<FileRights> rights_;
    UniqueFd epoll_;
    UniqueFd done_;
    std::vector<std::thread> threads_;
    Mutex mutex_;
    std::condition_variable came_;
    std::deque<Request> small_ GUARDED_BY(mutex_);
    std::deque<Request> large_ GUARDED_BY(mutex_);
    size_t doing_large_ GUARDED_BY(mutex_) = 0;
    std::deque<Event> finished_ GUARDED_BY(mutex_);
    size_t idle_ GUARDED_BY(mutex_) = 0;
    bool ending_ GUARDED_BY(mutex_) = false;
};

}  // namespace

Result<std::unique_ptr<Queue>> make_thread_queue(unsigned threads, const std::optional<FileRights>& rights) {
    return ThreadQueue::create(threads, rights);
}

}  // namespace gshm::core::io
