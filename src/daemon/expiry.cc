#include "daemon/expiry.h"

#include <algorithm>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"

namespace gshm::core {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
// At a start, before clients are served.
constexpr size_t kExpiredAtStart = 16384;

}  // namespace

Result<std::unique_ptr<Expiry>> Expiry::create(EventLoop& loop, Lifetimes& lifetimes, std::function<Status()> commit) {
    // As SystemClock::steady_ns().
    auto timer = UniqueFd::adopt(timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK));
    if (!timer) return fail_errno("timerfd_create");
    std::unique_ptr<Expiry> expiry(new Expiry(loop, lifetimes, std::move(commit), std::move(timer)));
    TRY(loop.watch(expiry->timer_.get(), EPOLLIN, [self = expiry.get()](uint32_t) {
        store_lock.assert_held();
        self->on_timer();
    }));
    return expiry;
}

Expiry::~Expiry() {
    loop_.unwatch(timer_.get());
    lifetimes_.set_wake({});
}

void Expiry::start() {
    lifetimes_.set_wake([this](int64_t due_ns) { arm(due_ns); });
    (void)lifetimes_.expire(kExpiredAtStart);
    arm(lifetimes_.next_due());
}

void Expiry::on_timer() {
    uint64_t times = 0;
    [[maybe_unused]] ssize_t got = read(timer_.get(), &times, sizeof times);
    // Removals that the catalog cannot take would come back with the next gshmd.
    if (!commit_()) return arm(SystemClock().steady_ns() + kSecondNs);
    // The rest in the next turn of the loop, so that requests get the lock in between.
    (void)lifetimes_.expire(limits::kExpiredAtOnce);
    arm(lifetimes_.next_due());
}

void Expiry::arm(std::optional<int64_t> due_ns) {
    itimerspec when = {};
    if (due_ns) {
        const int64_t at = std::max<int64_t>(*due_ns, 1);  // 0 would stop the timer
        when.it_value = {at / kSecondNs, at % kSecondNs};
    }
    timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

}  // namespace gshm::core
