// gshm.h: copies of files and streams to objects.
#include <chrono>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/files/stream.h"
#include "client/files/transfer.h"
#include "client/files/verify.h"
#include "io/kernel_interface.h"

using namespace gshm::core;
using namespace gshm::core::client;

namespace {

struct Source {
    int fd = -1;
    std::string path;     // for messages
    uint64_t begin = 0;   // of a file
    uint64_t bytes = 0;   // of a file
    bool is_file = true;  // else a stream
};

// Files of /proc have size 0 and contents.
bool has_bytes(int fd, uint64_t offset) {
    char byte = 0;
    return pread(fd, &byte, 1, static_cast<off_t>(offset)) == 1;
}

Result<Source> look_at(int fd, std::string path) {
    struct stat status = {};
    if (fstat(fd, &status) != 0) return fail_errno(path.c_str());
    if (S_ISDIR(status.st_mode)) return fail(EINVAL, "{} is a directory", path);
    Source source{fd, std::move(path)};
    const off_t position = lseek(fd, 0, SEEK_CUR);
    source.is_file = (S_ISREG(status.st_mode) || S_ISBLK(status.st_mode)) && position >= 0;
    if (io::is_kernel_interface(fd)) source.is_file = false;  // gshmd does not use it for a client
    if (!source.is_file) return source;
    source.begin = static_cast<uint64_t>(position);
    uint64_t end = static_cast<uint64_t>(status.st_size);
    if (S_ISBLK(status.st_mode) && ioctl(fd, BLKGETSIZE64, &end) != 0) return fail_errno(source.path.c_str());
    source.bytes = end > source.begin ? end - source.begin : 0;
    if (end == 0 && has_bytes(fd, source.begin)) source.is_file = false;
    return source;
}

// The path of the file, for messages.
std::string name_of(int fd) {
    std::string name(4096, '\0');
    const ssize_t bytes = readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), name.data(), name.size());
    name.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
    return name.starts_with('/') ? name : "the stream";
}

// Whether the name exists. With an id, whether it refers to that object.
Result<bool> has_name(gshm_client* client, const char* name, uint64_t id) {
    gshm_stat_info info = {};
    info.struct_size = sizeof info;
    const int code = gshm_stat(client, name, &info);
    if (code == -ENOENT || code == -ENOTDIR) return false;
    TRY(as_status(code));
    return id == 0 || info.id == id;
}

// The object has no name until it is complete. So after a failure nothing has to be removed by name, which could belong
// to another object by then. The object is sealed, and therefore kept, when it gets its name.
class Put {
public:
    Put(gshm_client* client, const gshm_create_spec& spec, const gshm_transfer_options& options)
        : client_(client), spec_(spec), progress_(options) {
        replace_ = (spec.flags & GSHM_REPLACE) != 0;
        spec_.flags = (spec.flags & ~uint32_t{GSHM_REPLACE | GSHM_KEEP}) | GSHM_NO_MAP | GSHM_UNNAMED;
    }

    Result<gshm_transfer_info> run(const Source& source) {
        const auto begin = std::chrono::steady_clock::now();
        // Checked before anything is read, and again at the end.
        if (!replace_ && TRY(has_name(client_, spec_.name, 0)))
            return fail(EEXIST, "\"{}\" exists already", spec_.name);
        const bool exact = spec_.size_bytes != 0 || (spec_.flags & GSHM_EMPTY) != 0;
        if (exact || !source.is_file) TRY(put_stream(source, exact));
        else TRY(put_file(source));
        TRY(progress_.finish(spec_.size_bytes));
        TRY(give_name());
        const auto took = std::chrono::steady_clock::now() - begin;
        return gshm_transfer_info{sizeof(gshm_transfer_info), path_, spec_.size_bytes,
                                  static_cast<uint64_t>(std::chrono::nanoseconds(took).count())};
    }

private:
    Status create(uint64_t bytes) {
        spec_.size_bytes = bytes;
        if (bytes == 0) spec_.flags |= GSHM_EMPTY;
        gshm_object* made = nullptr;
        TRY(as_status(gshm_create(client_, &spec_, &made)));
        object_.reset(made);
        return {};
    }

    Status put_file(const Source& source) {
        TRY(create(source.bytes));
        const auto options = progress_.for_transfer();
        path_ = TRY(transfer(*object_, GSHM_IO_READ, {0, source.fd, source.begin, source.bytes}, options)).path;
        if (!progress_.verifies()) return {};
        return compare_with_file(*object_, spec_.name, {source.fd, source.begin, source.path}, progress_);
    }

    Status put_stream(const Source& source, bool exact) {
        StreamReader stream(source.fd, progress_.verifies());
        if (exact) {
            TRY(create(spec_.size_bytes));
            TRY(copy_stream(stream, *object_, progress_));
            path_ = spec_.size_bytes > 0 ? uint32_t{GSHM_PATH_STREAM} : 0;
        } else {
            const auto held = TRY(HeldStream::read_to_end(stream, progress_));
            TRY(create(held.size_bytes()));
            path_ = TRY(held.copy_to(*object_, progress_));
        }
        if (!stream.checksum()) return {};
        return stream.checksum()->compare_with(*object_, spec_.name, progress_);
    }

    Status give_name() {
        auto named = as_status(gshm_publish(object_.get(), spec_.name, replace_ ? uint32_t{GSHM_REPLACE} : 0));
        // The connection was lost before the reply: the object may have its name.
        const bool in_doubt = !named && named.error().code == ECONNRESET;
        if (in_doubt && has_name(client_, spec_.name, gshm_id(object_.get())).value_or(false)) return {};
        return named;
    }

    gshm_client* client_;
    gshm_create_spec spec_;
    TransferProgress progress_;
    bool replace_;
    ObjectHandle object_;
    uint32_t path_ = 0;
};

// Checked before anything is read.
Result<gshm_create_spec> read_put_spec(const gshm_create_spec* spec, const gshm_transfer_info* ret_info) {
    TRY(check_argument(spec != nullptr, "spec is NULL"));
    const auto chosen = TRY(read_struct(spec));
    TRY(check_name_argument(chosen.name));
    TRY(check_flags(chosen.flags, kCreateFlags | GSHM_PUT_REPLACE, "put"));
    TRY(check_output(ret_info));
    return chosen;
}

}  // namespace

extern "C" {

int gshm_put_file(gshm_client* client, const char* path, const gshm_create_spec* spec,
                  const gshm_transfer_options* options, gshm_transfer_info* ret_info) noexcept {
    return with_client(client, [&](Core&) -> Status {
        TRY(check_argument(path != nullptr, "path is NULL"));
        auto wanted = TRY(read_put_spec(spec, ret_info));
        const auto chosen = TRY(read_transfer_options(options, GSHM_TRANSFER_VERIFY));
        TRY(check_argument(wanted.size_bytes == 0, "the object has the size of the file: size_bytes must be 0"));
        // O_NONBLOCK, since the open of a fifo waits for a writer.
        const auto file = UniqueFd::adopt(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
        struct stat status = {};
        if (!file || fstat(file.get(), &status) != 0) return fail_errno(path);
        if (!S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode)) return fail(EINVAL, "{} is not a regular file", path);
        fcntl(file.get(), F_SETFL, 0);  // reads shall block; some file systems honour O_NONBLOCK for files
        wanted.flags &= ~uint32_t{GSHM_EMPTY};
        const auto source = TRY(look_at(file.get(), path));
        const auto info = TRY(Put(client, wanted, chosen).run(source));
        return write_struct(ret_info, info);
    });
}

int gshm_put_fd(gshm_client* client, int fd, const gshm_create_spec* spec, const gshm_transfer_options* options,
                gshm_transfer_info* ret_info) noexcept {
    return with_client(client, [&](Core&) -> Status {
        const auto wanted = TRY(read_put_spec(spec, ret_info));
        const auto chosen = TRY(read_transfer_options(options, GSHM_TRANSFER_VERIFY));
        const auto source = TRY(look_at(fd, name_of(fd)));
        const auto info = TRY(Put(client, wanted, chosen).run(source));
        return write_struct(ret_info, info);
    });
}

}  // extern "C"
