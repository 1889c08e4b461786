#include "daemon/client_loops.h"

#include <algorithm>
#include <csignal>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>

#include "base/failure_log.h"
#include "base/log.h"

namespace gshm::core {
namespace {

// struct sched_attr of the kernel, whose header cannot be used beside <sched.h>.
struct SchedulingAttributes {
    uint32_t size;
    uint32_t policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns;
    uint64_t deadline_ns;
    uint64_t period_ns;
};
static_assert(sizeof(SchedulingAttributes) == 48);

// The thread wants little time at once, so that the kernel (6.12 or later) runs it as soon as it is woken. Others have
// the processor for up to 4 ms before it is their turn.
void want_short_slices() {
    constexpr uint64_t kSliceNs = 100'000;
    SchedulingAttributes attributes = {};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
    if (attributes.policy != SCHED_OTHER) return;
    attributes.flags = 0;
    attributes.runtime_ns = kSliceNs;
    syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace

Result<std::unique_ptr<ClientLoops>> ClientLoops::create(unsigned threads) {
    constexpr unsigned kMost = 12;
    // Leaves cores to the clients.
    if (threads == 0) threads = std::clamp(std::thread::hardware_concurrency() * 3 / 4, 2u, kMost);
    std::unique_ptr<ClientLoops> made(new ClientLoops(threads));
    MutexLock lock(made->mutex_);
    for (unsigned i = 0; i < threads; ++i) TRY(made->start_loop());
    return made;
}

ClientLoops::~ClientLoops() {
    stop();
    // Tasks may have connections with places in other loops.
    std::vector<Arrival> dropped[2];
    std::vector<EventLoop*> all;
    {
        MutexLock lock(mutex_);
        dropped[0].swap(arrivals_);
        dropped[1].swap(served_);
        for (const auto& each : loops_) all.push_back(each->loop.get());
    }
    for (EventLoop* each : all) each->drop_posted();
}

EventLoop& ClientLoops::Place::loop() const {
    return *loop_->loop;
}

Result<ClientLoops::Loop*> ClientLoops::start_loop() {
    auto made = std::make_unique<Loop>();
    made->loop = TRY(EventLoop::create(EventLoop::Locking::none));
    sigset_t all;
    sigset_t before;
    sigfillset(&all);  // signals are handled by the main thread
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        made->thread = std::thread([&loop = *made->loop] {
            pthread_setname_np(pthread_self(), "gshm-clients");
            want_short_slices();
            loop.run();
        });
    } catch (const std::system_error& error) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        return fail(error.code().value(), "no thread for clients: {}", error.what());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    loops_.push_back(std::move(made));
    return loops_.back().get();
}

ClientLoops::Loop* ClientLoops::find_loop(uid_t uid) {
    // That have all their loops at the same time. Threads and descriptors of the loops are kept.
    constexpr size_t kUsers = 4;
    constexpr size_t kLeast = 16;
    const size_t most = std::max(kUsers * threads_, kLeast);
    size_t of_user = 0;
    Loop* own = nullptr;
    Loop* free = nullptr;
    Loop* any = nullptr;
    for (const auto& each : loops_) {
        auto take_emptier = [&](Loop*& best) {
            if (best == nullptr || each->places < best->places) best = each.get();
        };
        take_emptier(any);
        if (each->places == 0) {
            free = each.get();
        } else if (each->uid == uid) {
            ++of_user;
            take_emptier(own);
        }
    }
    if (of_user < threads_ && free == nullptr && loops_.size() < most && !stopped_) {
        if (auto started = start_loop()) free = *started;
        else log_for_user(LogLevel::warning, uid, started.error().message);
    }
    if (of_user < threads_ && free != nullptr) return free;
    return own != nullptr ? own : any;
}

ClientLoops::Place ClientLoops::place(uid_t uid) {
    MutexLock lock(mutex_);
    Loop* found = find_loop(uid);
    if (found->places++ == 0) found->uid = uid;
    return {*this, *found};
}

void ClientLoops::leave(Loop& loop) {
    MutexLock lock(mutex_);
    --loop.places;
}

void ClientLoops::after_arrived(EventLoop& loop, EventLoop::Task task) {
    MutexLock lock(mutex_);
    arrivals_.push_back({loop, std::move(task)});
    if (in_round_ == 0) begin_round();
}

void ClientLoops::begin_round() {
    // A client may have sent several packets, and its end takes three turns.
    constexpr int kTurns = 4;
    served_ = std::exchange(arrivals_, {});
    in_round_ = loops_.size();
    for (const auto& each : loops_) {
        each->loop->post([this, &loop = *each->loop] { pass(loop, kTurns - 1); });
    }
}

void ClientLoops::pass(EventLoop& through, int turns) {
    if (turns > 0) return through.post([this, &through, turns] { pass(through, turns - 1); });
    MutexLock lock(mutex_);
    if (--in_round_ > 0) return;
    for (auto& [loop, task] : served_) loop.post(std::move(task));
    served_.clear();
    if (!arrivals_.empty()) begin_round();
}

void ClientLoops::stop() {
    std::vector<Loop*> all;
    {
        MutexLock lock(mutex_);
        stopped_ = true;
        for (const auto& each : loops_) all.push_back(each.get());
    }
    for (Loop* each : all) each->loop->stop();
    for (Loop* each : all) {
        if (each->thread.joinable()) each->thread.join();
    }
}

}  // namespace gshm::core
