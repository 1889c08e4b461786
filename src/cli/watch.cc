#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/support/context.h"
#include "cli/support/interrupt.h"
#include "cli/support/json.h"
#include "cli/support/streams.h"
#include "cli/support/text.h"
#include <gshm/watch.hpp>

namespace gshm::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(30);  // for a gshmd that restarts
constexpr auto kPause = milliseconds(50);

const char* event_text(const Event& event) {
    switch (event.kind) {
        case EventKind::kCreated: return "created";
        case EventKind::kSealed: return "sealed";
        case EventKind::kDeleted: return "deleted";
        case EventKind::kRenamed: return "renamed";
        case EventKind::kReplaced: return "replaced";
        case EventKind::kExisting: return "existing";
        case EventKind::kReady: return "ready";
        case EventKind::kOverflow: return "overflow";
        case EventKind::kExpired: return "expired";
        default: return "unknown";
    }
}

const char* kind_text(const Event& event) {
    switch (event.node_kind) {
        case GSHM_KIND_DIRECTORY: return "directory";
        case GSHM_KIND_SYMLINK: return "symlink";
        case GSHM_KIND_SPECIAL: return "special";
        default: return "object";
    }
}

std::string line_of(const Event& event, bool exact_bytes) {
    const bool object = event.node_kind == GSHM_KIND_OBJECT;
    std::string line = fmt::format("{}  {:<8}", time_text(event.time_ns), event_text(event));
    if (!event.name.empty()) {
        line += fmt::format("  {:>8}  {:<7}  {:<6}  {}", object ? size_text(event.size_bytes, exact_bytes) : "-",
                            object ? event.device : "-",
                            !object                            ? "-"
                            : event.state == GSHM_STATE_SEALED ? "sealed"
                                                               : "open",
                            printable(event.name));
        if (event.node_kind == GSHM_KIND_DIRECTORY) line += '/';
        if (!event.old_name.empty()) line += fmt::format("  (was {})", printable(event.old_name));
    }
    return line + '\n';
}

Record record_of(const Event& event) {
    Record record;
    record.add("event", event_text(event)).add("time_ns", event.time_ns).add("time", time_text(event.time_ns));
    if (event.name.empty()) return record;
    record.add("name", event.name).add("kind", kind_text(event)).add("id", event.id);
    if (event.node_kind == GSHM_KIND_OBJECT) {
        record.add("state", event.state == GSHM_STATE_SEALED ? "sealed" : "open")
            .add("size_bytes", event.size_bytes)
            .add("device", event.device);
    }
    if (!event.old_name.empty()) record.add("old_name", event.old_name);
    if (event.replaced_id != 0) record.add("replaced_id", event.replaced_id);
    return record;
}

// Signals are blocked except during the wait, so that none is lost between a check and the wait.
class Waiter {
public:
    explicit Waiter(int fd) : fds_{{fd, POLLIN, 0}, {STDOUT_FILENO, 0, 0}} {
        sigset_t ending;
        sigemptyset(&ending);
        for (int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ending, signal);
        sigprocmask(SIG_BLOCK, &ending, &before_);
    }
    ~Waiter() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

    // Waits for an event, or only for the timeout if for_events is false. Returns false if the reader of standard
    // output is gone.
    bool wait(std::optional<steady_clock::time_point> until, bool for_events) {
        timespec left = {};
        if (until) {
            const auto ns = std::chrono::nanoseconds(std::max(*until - steady_clock::now(), steady_clock::duration{}));
            left = {ns.count() / 1'000'000'000, ns.count() % 1'000'000'000};
        }
        fds_[0].events = for_events ? POLLIN : 0;
        for (auto& fd : fds_) fd.revents = 0;
        if (::ppoll(fds_, 2, until ? &left : nullptr, &before_) < 0 && errno != EINTR) throw Failure::of_errno("ppoll");
        return (fds_[1].revents & (POLLERR | POLLHUP)) == 0;
    }

private:
    pollfd fds_[2];
    sigset_t before_;
};

}  // namespace

int cmd_watch(Context& context, const WatchArgs& args) {
    const auto until = args.timeout_ms < 0 ? std::optional<steady_clock::time_point>{}
                                           : std::optional(steady_clock::now() + milliseconds(args.timeout_ms));
    auto watch = check(Watch::create(context.client(), args.prefix, {.existing = args.existing}), args.prefix);
    context.disconnect();
    const InterruptGuard interrupt;
    Waiter waiter(watch.fd());
    auto lost = steady_clock::time_point::max();  // since when there is no daemon
    for (unsigned told = 0; args.count == 0 || told < args.count;) {
        auto event = watch.next(milliseconds(0));
        interrupt.throw_if_interrupted();
        const auto now = steady_clock::now();
        if (event) {
            lost = steady_clock::time_point::max();
            context.print(context.json() ? to_json(record_of(*event), false) + '\n'
                                         : line_of(*event, args.exact_bytes));
            if (event->kind != EventKind::kReady) ++told;
            continue;
        }
        if (until && now >= *until) {
            if (args.count == 0) return 0;
            throw Failure(ETIMEDOUT,
                          fmt::format("{} of {} events within {:g} s", told, args.count, args.timeout_ms / 1000.0));
        }
        bool read = true;
        if (event.error().code == ETIMEDOUT) {
            read = waiter.wait(until, true);
        } else {
            // A restarting daemon is waited for.
            lost = std::min(lost, now);
            if (event.error().code != ECONNREFUSED || now - lost > kPatience)
                throw Failure::of_error(event.error(), args.prefix);
            read = waiter.wait(now + kPause, false);
        }
        if (!read) write_stdout("\n");  // ends the program with SIGPIPE
        interrupt.throw_if_interrupted();
    }
    return 0;
}

}  // namespace gshm::cli
