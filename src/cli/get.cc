#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/support/complaints.h"
#include "cli/support/context.h"
#include "cli/copy/copies.h"
#include "cli/copy/destination.h"
#include "cli/copy/get_plan.h"
#include "cli/support/progress.h"
#include "cli/support/streams.h"
#include "cli/support/text.h"
#include "cli/copy/verify.h"

namespace gshm::cli {
namespace {

Object open_object(gshm_client* client, const std::string& name) {
    gshm_object* object = nullptr;
    check(gshm_open(client, name.c_str(), GSHM_NO_MAP, &object), name);
    return Object(object);
}

Copied get_file(gshm_client* client, const GetItem& item, CopyWatch& watch) {
    const auto begin = std::chrono::steady_clock::now();
    const auto object = open_object(client, item.name);
    const uint64_t size = gshm_size(object.get());
    auto destination = Destination::create(item.file, size);
    auto info = sized<gshm_transfer_info>();
    if (size > 0) {
        const auto options = watch.options();
        const int status = gshm_write_file(object.get(), 0, destination.fd(), 0, size, &options, &info);
        if (status == -ECANCELED) throw Stopped{};
        if (status == -ENOSPC || status == -EDQUOT || status == -EFBIG) throw destination.failure(-status);
        check(status, item.name);
        if (watch.verify()) compare_with_file(object.get(), item.name, {destination.fd(), 0, item.file}, watch);
    }
    watch.throw_if_stopping();
    destination.commit();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    return {item.name, destination.path(), size, seconds.count(), info.path};
}

// Calls write(bytes) for all of an object, in order. By this thread and with signals as they are: what is written to
// directly has nothing to clear away, and a write that waits ends at once.
template <typename Write>
Copied get_directly(Context& context, const std::string& name, const std::string& file, Write write) {
    const auto object = open_object(context.client(), name);
    const uint64_t size = gshm_size(object.get());
    Progress progress(name, size, !context.json() && size > 0 && !::isatty(STDOUT_FILENO));
    std::string chunk(static_cast<size_t>(std::min<uint64_t>(kChunkBytes, size)), '\0');
    for (uint64_t offset = 0; offset < size;) {
        const auto bytes = static_cast<size_t>(std::min<uint64_t>(chunk.size(), size - offset));
        check(gshm_copy_out(object.get(), offset, chunk.data(), bytes), name);
        write(std::string_view(chunk.data(), bytes));
        offset += bytes;
        progress.update(offset);
    }
    return {name, file, size, progress.seconds(), size > 0 ? kPathStream : 0};
}

int get_to_standard_output(Context& context, const GetArgs& args) {
    if (args.verify) throw Failure::usage("--verify needs a file that can be read again");
    if (args.recursive) throw Failure::usage("-r needs a folder to write to");
    const auto& all = args.names_and_file;
    const std::vector<std::string> names(all.begin(), all.end() - 1);
    return context.for_each(names, [&](const std::string& name) { get_directly(context, name, "-", write_stdout); });
}

// /dev/null, a fifo: what exists and is no regular file is not replaced.
bool is_written_directly(const std::string& file) {
    struct stat info {};
    return ::stat(file.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

Copied get_to_special(Context& context, const GetItem& item, bool verify) {
    if (verify)
        throw Failure::usage(fmt::format("--verify needs a file that can be read again, not {}", printable(item.file)));
    FileDescriptor output(::open(item.file.c_str(), O_WRONLY | O_CLOEXEC));
    if (output.get() < 0) throw Failure::of_errno(item.file);
    const auto copied = get_directly(context, item.name, item.file, [&](std::string_view bytes) {
        write_all(output.get(), bytes.data(), bytes.size(), item.file);
    });
    if (!output.close()) throw Failure::of_errno(item.file);
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
    Copies copies(context, sizes.size() == 1 ? items[0].name : fmt::format("{} files", sizes.size()), sizes,
                  args.verify);
    copies.run(
        [&](gshm_client* client, size_t index, CopyWatch& watch) { return get_file(client, items[index], watch); });
    complaints.note(copies.exit_code());
    for (const auto& copied : copies.done())
        if (copied) done.push_back(*copied);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    print_copies(context, done, plan.single, seconds.count());
    return complaints.exit_code();
}

}  // namespace gshm::cli
