#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/copy/copies.h"
#include "cli/copy/get_plan.h"
#include "cli/support/complaints.h"
#include "cli/support/context.h"
#include "cli/support/progress.h"
#include "cli/support/streams.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

// The failure belongs to the file or to the object.
[[noreturn]] void throw_failure(const Error& error, const GetItem& item) {
    switch (error.code) {
        case ECANCELED: throw Stopped{};
        case EBADMSG: throw differs(error);
        case ENOSPC:
        case EDQUOT:
        case EFBIG: throw Failure::of_file(error.code, error.message, "nothing was written");
        default: break;
    }
    // Object names never begin with a slash.
    if (error.message.starts_with(item.file) || error.message.starts_with('/'))
        throw Failure::of_file(error.code, error.message);
    throw Failure::of_error(error, item.name);
}

Copied get(const Client& client, const GetItem& item, bool verify, const gshm::Progress& progress) {
    const auto got = client.get_file(item.name, item.file, {.verify = verify, .progress = progress});
    if (!got) throw_failure(got.error(), item);
    return {item.name, item.file, got->bytes, static_cast<double>(got->duration_ns) / 1e9, got->path};
}

// Calls write(bytes) for all bytes of an object, in order. It runs in this thread with default signal handling: a
// direct write leaves nothing to clean up, and a signal ends a blocked write at once.
template <typename Write>
Copied get_directly(Context& context, const std::string& name, const std::string& file, Write write) {
    auto object = context.open(name);
    const uint64_t size = object.size();
    Progress progress(name, size, !context.json() && size > 0 && !::isatty(STDOUT_FILENO));
    std::string chunk(static_cast<size_t>(std::min<uint64_t>(kChunkBytes, size)), '\0');
    for (uint64_t offset = 0; offset < size;) {
        const auto bytes = static_cast<size_t>(std::min<uint64_t>(chunk.size(), size - offset));
        check(object.copy_out(std::span(chunk).first(bytes), offset), name);
        write(std::string_view(chunk.data(), bytes));
        offset += bytes;
        progress.update(offset);
    }
    return {name, file, size, progress.seconds(), size > 0 ? uint32_t{GSHM_PATH_STREAM} : 0};
}

int get_to_standard_output(Context& context, const GetArgs& args) {
    if (args.verify) throw Failure::usage("--verify needs a file that can be read again");
    if (args.recursive) throw Failure::usage("-r needs a folder to write to");
    const auto& all = args.names_and_file;
    const std::vector<std::string> names(all.begin(), all.end() - 1);
    return context.for_each(names, [&](const std::string& name) { get_directly(context, name, "-", write_stdout); });
}

// Special files such as /dev/null and fifos are written to, not replaced.
bool is_written_directly(const std::string& file) {
    struct stat info{};
    return ::stat(file.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

Copied get_to_special(Context& context, const GetItem& item, bool verify) {
    if (verify)
        throw Failure::usage(fmt::format("--verify needs a file that can be read again, not {}", printable(item.file)));
    auto output = UniqueFd::adopt(::open(item.file.c_str(), O_WRONLY | O_CLOEXEC));
    if (!output) throw Failure::of_errno(item.file);
    const auto copied = get_directly(context, item.name, item.file, [&](std::string_view bytes) {
        write_all(output.get(), bytes.data(), bytes.size(), item.file);
    });
    if (::close(output.take()) != 0) throw Failure::of_errno(item.file);
    return copied;
}

}  // namespace

int cmd_get(Context& context, const GetArgs& args) {
    if (args.names_and_file.back() == "-") return get_to_standard_output(context, args);
    Complaints complaints(context);
    auto plan = plan_get(context, args, complaints);
    const auto begin = std::chrono::steady_clock::now();
    for (const auto& folder : plan.folders)
        if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) complaints.fail(Failure::of_errno(folder));

    std::vector<Copied> done;
    std::vector<GetItem> items;
    for (auto& item : plan.items) {
        if (!is_written_directly(item.file)) {
            items.push_back(std::move(item));
            continue;
        }
        try {
            done.push_back(get_to_special(context, item, args.verify));
        } catch (const Failure& failure) {
            complaints.fail(failure);
        }
    }
    std::vector<uint64_t> sizes;
    for (const auto& item : items) sizes.push_back(item.size_bytes);
    Copies copies(context, sizes.size() == 1 ? items[0].name : fmt::format("{} files", sizes.size()), sizes);
    copies.run([&](const Client& client, size_t index, const gshm::Progress& progress) {
        return get(client, items[index], args.verify, progress);
    });
    complaints.note(copies.exit_code());
    for (const auto& copied : copies.done())
        if (copied) done.push_back(*copied);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    print_copies(context, done, plan.single, seconds.count());
    return complaints.exit_code();
}

}  // namespace gshm::cli
