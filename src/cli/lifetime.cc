#include "cli/support/lifetime.h"

#include <csignal>
#include <cstdio>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/support/context.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

int wake_fd = -1;

int change_each(Context& context, const NamesArgs& args, const char* done,
                Result<void> (Client::*change)(const std::string&) const) {
    std::vector<std::string> changed;
    const int exit_code = context.for_each(args.names, [&](const std::string& name) {
        check((context.client().*change)(name), name);
        changed.push_back(name);
    });
    if (context.json()) {
        Record record;
        record.add(done, std::move(changed));
        context.print(record);
    }
    return exit_code;
}

// As on the command line; `off`: none.
int show_ttl(Context& context, const std::string& name) {
    const auto info = context.stat(name);
    const bool unused = (info.flags & GSHM_STAT_TTL_UNUSED) != 0;
    if (context.json()) {
        Record record;
        record.add("name", name).add("ttl_ms", info.ttl_ms).add("unused", unused);
        if (info.expires_ns != 0) record.add("expires_ns", info.expires_ns);
        context.print(record);
        return 0;
    }
    std::string text = "off";
    if (info.ttl_ms != 0) {
        text = duration_text(info.ttl_ms) + (unused ? " --unused" : "");
        if (info.expires_ns != 0) text += ", until " + time_text(info.expires_ns);
    }
    context.print(text + "\n");
    return 0;
}

}  // namespace

int cmd_pin(Context& context, const NamesArgs& args) {
    return change_each(context, args, "pinned", &Client::pin);
}

int cmd_unpin(Context& context, const NamesArgs& args) {
    return change_each(context, args, "unpinned", &Client::unpin);
}

int cmd_ttl(Context& context, const TtlArgs& args) {
    if (args.unused && args.ttl_ms.value_or(0) == 0) throw Failure::usage("--unused needs a time");
    if (!args.ttl_ms) return show_ttl(context, args.name);
    check(context.client().set_ttl(args.name, std::chrono::milliseconds(*args.ttl_ms), args.unused), args.name);
    if (context.json()) {
        Record record;
        record.add("name", args.name).add("ttl_ms", *args.ttl_ms).add("unused", args.unused);
        context.print(record);
    }
    return 0;
}

void hold_until_interrupted(Context& context, const std::vector<std::string>& names) {
    constexpr int kBetweenMs = 2000;  // gshmd may be killed and started again: the session is resumed by the ping
    std::fflush(stdout);
    if (::isatty(STDERR_FILENO) != 0 && !context.json()) {
        const bool one = names.size() == 1;
        fmt::print(stderr, "{} {} there until ^C\n",
                   one ? printable(names[0]) : fmt::format("{} objects", names.size()), one ? "is" : "are");
    }
    // Any thread may get the signal.
    wake_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_fd < 0) throw Failure::of_errno("eventfd");
    struct sigaction action{};
    action.sa_handler = [](int) {
        const uint64_t one = 1;
        [[maybe_unused]] const ssize_t written = ::write(wake_fd, &one, sizeof one);
    };
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
        struct sigaction before{};
        ::sigaction(signal, nullptr, &before);
        if (before.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
    }
    pollfd wake{wake_fd, POLLIN, 0};
    while (::poll(&wake, 1, kBetweenMs) <= 0) check(context.client().ping(), {});
}

}  // namespace gshm::cli
