#include "cli/copy/put_object.h"

#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "cli/support/streams.h"
#include "cli/support/text.h"
#include "cli/copy/verify.h"

namespace gshm::cli {
namespace {

constexpr const char* kTransferAttribute = "transfer";

struct Source {
    FileDescriptor file;
    uint64_t begin = 0;
    uint64_t size_bytes = 0;
};

// What has become of it since it was looked at counts, not what it was then.
Source open_source(const std::string& path) {
    // A fifo that has come in its place would hold us until it has a writer; a file does not care.
    const bool standard = path == "-";
    Source source{FileDescriptor(standard ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                                          : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK))};
    const int fd = source.file.get();
    struct stat info {};
    if (fd < 0 || ::fstat(fd, &info) != 0) throw Failure::of_errno(path);
    if (!S_ISREG(info.st_mode) && !S_ISBLK(info.st_mode))
        throw Failure(EINVAL, ExitCode::failed, fmt::format("{} is no regular file any more", printable(path)));
    const off_t end = S_ISBLK(info.st_mode) ? ::lseek(fd, 0, SEEK_END) : info.st_size;
    const off_t begin = standard ? ::lseek(fd, 0, SEEK_CUR) : 0;
    if (end < 0 || begin < 0) throw Failure::of_errno(path);
    // The daemon reads through this descriptor, and is to wait for the disk.
    if (!standard) ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    source.begin = static_cast<uint64_t>(begin);
    source.size_bytes = end > begin ? static_cast<uint64_t>(end - begin) : 0;
    return source;
}

}  // namespace

PutObject::PutObject(gshm_client* client, const PutItem& item, uint64_t size_bytes, bool replace)
    : client_(client), item_(item), replace_(replace) {
    gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
    spec.name = item.name.c_str();
    spec.size_bytes = size_bytes;
    spec.mode = item.mode;
    spec.device = item.device.empty() ? nullptr : item.device.c_str();
    spec.flags = GSHM_NO_MAP;
    if (replace) spec.flags |= GSHM_UNNAMED;
    if (size_bytes == 0) spec.flags |= GSHM_EMPTY;
    gshm_object* object = nullptr;
    check(gshm_create(client, &spec, &object), item.name);
    object_.reset(object);
}

void PutObject::finish(uint32_t path) {
    check(replace_ ? gshm_replace(object_.get(), item_.name.c_str()) : gshm_seal(object_.get()), item_.name);
    // Good to know, but nothing that a put fails for: another may have the name by now, or have sealed it off.
    const auto words = fmt::format("{}", fmt::join(path_words(path), "+"));
    if (!words.empty())
        (void)gshm_set_attribute(client_, item_.name.c_str(), kTransferAttribute, words.data(), words.size());
}

Copied put_file(gshm_client* client, const PutItem& item, bool replace, CopyWatch& watch) {
    const auto begin = std::chrono::steady_clock::now();
    const auto source = open_source(item.source);
    PutObject object(client, item, source.size_bytes, replace);
    auto info = sized<gshm_transfer_info>();
    if (source.size_bytes > 0) {
        const auto options = watch.options();
        const int status =
            gshm_read_file(object.get(), 0, source.file.get(), source.begin, source.size_bytes, &options, &info);
        if (status == -ECANCELED) throw Stopped{};
        if (status == -ENODATA)
            throw Failure(EIO, fmt::format("{} became shorter while it was read", printable(item.source)),
                          "put it again");
        if (status < 0) throw Failure::of_status(status, item.source);
        if (watch.verify())
            compare_with_file(object.get(), item.name, {source.file.get(), source.begin, item.source}, watch);
    }
    watch.throw_if_stopping();
    object.finish(info.path);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    return {item.name, item.source, source.size_bytes, seconds.count(), info.path};
}

}  // namespace gshm::cli
