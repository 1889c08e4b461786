#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/copy/copies.h"
#include "cli/copy/put_plan.h"
#include "cli/support/complaints.h"
#include "cli/support/context.h"
#include "cli/support/lifetime.h"
#include "cli/support/progress.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

std::vector<PutItem> take(std::vector<PutItem>& items, PutItem::Kind kind) {
    std::vector<PutItem> taken;
    for (auto& item : items)
        if (item.kind == kind) taken.push_back(std::move(item));
    std::erase_if(items, [&](const PutItem& item) { return item.kind == kind; });
    return taken;
}

void make_directory(Context& context, const std::string& name) {
    const auto made = context.client().make_directory(name);
    if (!made && made.error().code != EEXIST) throw Failure::of_error(made.error(), name);
}

std::string source_text(const PutItem& item) {
    return item.source == "-" ? "standard input" : item.source;
}

UniqueFd open_source(const PutItem& item) {
    const bool standard = item.source == "-";
    const bool stream = item.kind == PutItem::Kind::stream;
    // Opening a fifo waits for its writer, as cat(1) does. O_NONBLOCK avoids this wait for a fifo that has replaced a
    // file.
    const int flags = O_RDONLY | O_CLOEXEC | (stream ? 0 : O_NONBLOCK);
    auto source =
        UniqueFd::adopt(standard ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : ::open(item.source.c_str(), flags));
    struct stat info{};
    if (!source || ::fstat(source.get(), &info) != 0) throw Failure::of_errno(source_text(item));
    if (stream) return source;
    if (!S_ISREG(info.st_mode) && !S_ISBLK(info.st_mode))
        throw Failure(EINVAL, ExitCode::failed, fmt::format("{} is no regular file any more", printable(item.source)));
    // The daemon reads through this descriptor, with blocking reads.
    if (!standard) ::fcntl(source.get(), F_SETFL, ::fcntl(source.get(), F_GETFL) & ~O_NONBLOCK);
    return source;
}

[[noreturn]] void throw_failure(const Error& error, const PutItem& item) {
    const auto what = source_text(item);
    const bool stream = item.kind == PutItem::Kind::stream;
    const auto message = fmt::format("{}: {}", printable(what), error.message);
    switch (error.code) {
        case ECANCELED: throw Stopped{};
        case EBADMSG: throw differs(error);
        case ENODATA:
            if (stream) throw Failure(EIO, message, "nothing was put");
            throw Failure(EIO, fmt::format("{} became shorter while it was read", printable(what)), "put it again");
        case EFBIG:
            if (stream) throw Failure(EFBIG, message, "nothing was put");
            break;
        default: break;
    }
    if (error.message.find("($TMPDIR)") != std::string::npos)
        throw Failure::of_file(error.code, message,
                               "set TMPDIR to a folder with more room, or say with --size how much it is");
    const bool daemon_lost = error.code == ECONNREFUSED || error.code == ECONNRESET;
    if (error.message.starts_with("reading ") && !daemon_lost) throw Failure::of_file(error.code, message);
    throw Failure::of_error(error, item.name);
}

// The library names the object after its last byte is written.
Copied put(const Client& client, const PutItem& item, const PutArgs& args, const gshm::Progress& progress) {
    const auto source = open_source(item);
    const auto put = client.put_fd(source.get(),
                                   {.name = item.name,
                                    .size_bytes = args.size_bytes.value_or(0),
                                    .device = item.device,
                                    .mode = item.mode,
                                    .empty = args.size_bytes == 0u,
                                    .ttl = std::chrono::milliseconds(args.lifetime.ttl_ms),
                                    .ttl_unused = args.lifetime.ttl_unused,
                                    .ephemeral = args.lifetime.ephemeral,
                                    .evictable = args.evictable},
                                   {.replace = args.replace, .verify = args.verify, .progress = progress});
    if (!put) throw_failure(put.error(), item);
    if (!item.acl.empty()) check(client.set_acl(item.name, item.acl), item.name);
    // The attribute is only informative, so errors are ignored: the name may belong to another object by now.
    const auto words = fmt::format("{}", fmt::join(path_words(put->path), "+"));
    if (!words.empty()) (void)client.set_attribute(item.name, "transfer", words);
    return {item.name, item.source, put->bytes, static_cast<double>(put->duration_ns) / 1e9, put->path};
}

// Runs in this thread with default signal handling: there is nothing to clean up, and a signal ends a blocked read at
// once.
Copied put_stream(Context& context, const PutItem& item, const PutArgs& args) {
    Progress line(item.name, args.size_bytes.value_or(0), !context.json());
    return put(context.client(), item, args, [&](uint64_t done_bytes, uint64_t) {
        line.update(done_bytes);
        return true;
    });
}

}  // namespace

int cmd_put(Context& context, const PutArgs& args) {
    Complaints complaints(context);
    auto plan = plan_put(context, args, complaints);
    const auto begin = std::chrono::steady_clock::now();
    std::vector<Copied> done;
    const auto guarded = [&](const auto& body) {
        try {
            body();
        } catch (const Failure& failure) {
            complaints.fail(failure);
        }
    };
    for (const auto& item : take(plan.items, PutItem::Kind::directory))
        guarded([&] { make_directory(context, item.name); });
    for (const auto& item : take(plan.items, PutItem::Kind::stream))
        guarded([&] { done.push_back(put_stream(context, item, args)); });

    std::vector<uint64_t> sizes;
    for (const auto& item : plan.items) sizes.push_back(item.size_bytes);
    Copies copies(context, sizes.size() == 1 ? plan.items[0].name : fmt::format("{} files", sizes.size()), sizes,
                  Job::Clearing::by_ending);
    copies.run([&](const Client& client, size_t index, const gshm::Progress& progress) {
        return put(client, plan.items[index], args, progress);
    });
    complaints.note(copies.exit_code());
    for (const auto& copied : copies.done())
        if (copied) done.push_back(*copied);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    print_copies(context, done, plan.single, seconds.count());
    if (args.lifetime.ephemeral && complaints.exit_code() == 0) {
        std::vector<std::string> names;
        for (const auto& copied : done) names.push_back(copied.name);
        hold_until_interrupted(context, names);
    }
    return complaints.exit_code();
}

}  // namespace gshm::cli
