#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>

#include <fmt/core.h>

#include "commands.h"
#include "context.h"
#include "progress.h"
#include "streams.h"
#include "text.h"

namespace gshm::cli {
namespace {

FileDescriptor open_source(const std::string& path, uint64_t& ret_size) {
    if (path == "-")
        throw Failure::usage("put needs a file, whose size is known",
                             "for standard input use `gshm create NAME --size SIZE` and `gshm write NAME`");
    // A fifo would hold us here until it has a writer; a file does not care.
    FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.get() < 0) throw Failure::of_errno(path);
    struct stat info {};
    if (::fstat(file.get(), &info) != 0) throw Failure::of_errno(path);
    if (S_ISDIR(info.st_mode)) throw Failure(EISDIR, printable(path) + " is a directory", "put its files one by one");
    if (!S_ISREG(info.st_mode))
        throw Failure::usage(
            printable(path) + " is not a regular file",
            "use `gshm create NAME --size SIZE` and `gshm write NAME` for what has no size of its own");
    if (info.st_size == 0) throw Failure::usage(printable(path) + " is empty: an object has one byte at least");
    ret_size = static_cast<uint64_t>(info.st_size);
    return file;
}

// What a new version has from the old one unless it is told otherwise: its mode and its device.
void take_over(Context& context, const PutArgs& args, uint32_t& ret_mode, std::string& ret_device) {
    auto old = sized<gshm_stat_info>();
    const int status = gshm_stat(context.client(), args.name.c_str(), &old);
    if (status == -ENOENT || status == -ENOTDIR) return;  // nothing there, or no way there: creating it will tell
    check(status, args.name);
    if (old.kind != GSHM_KIND_OBJECT) return;
    if (!args.mode && (old.mode & 0777) != 0) ret_mode = old.mode & 0777;
    if (args.device.empty()) ret_device = old.device;
}

}  // namespace

// The object is not kept until it is sealed: if this fails or is killed on the way, it goes with the session.
int cmd_put(Context& context, const PutArgs& args) {
    uint64_t size = 0;
    const auto file = open_source(args.file, size);

    uint32_t mode = args.mode.value_or(0600);
    std::string device = args.device;
    if (args.replace) take_over(context, args, mode, device);
    gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
    spec.name = args.name.c_str();
    spec.size_bytes = size;
    spec.mode = mode;
    spec.device = device.empty() ? nullptr : device.c_str();
    spec.flags = GSHM_NO_MAP | (args.replace ? uint32_t{GSHM_UNNAMED} : 0);
    gshm_object* handle = nullptr;
    check(gshm_create(context.client(), &spec, &handle), args.name);
    const Object object(handle);

    Progress progress(args.name, size, !context.json());
    std::string chunk(static_cast<size_t>(std::min<uint64_t>(kChunkBytes, size)), '\0');
    for (uint64_t offset = 0; offset < size;) {
        const auto wanted = static_cast<size_t>(std::min<uint64_t>(chunk.size(), size - offset));
        if (read_all(file.get(), chunk.data(), wanted, args.file) < wanted)
            throw Failure(EIO, fmt::format("{} became shorter while it was read", printable(args.file)),
                          "put it again");
        check(gshm_copy_in(handle, offset, chunk.data(), wanted), args.name);
        offset += wanted;
        progress.update(offset);
    }
    check(args.replace ? gshm_replace(handle, args.name.c_str()) : gshm_seal(handle), args.name);
    if (context.json()) {
        Record record;
        record.add("name", args.name).add("file", args.file).add("bytes", size).add("seconds", progress.seconds());
        context.print(record);
    }
    return 0;
}

}  // namespace gshm::cli
