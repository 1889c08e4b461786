// gshm.h: whole files, and ranges of them.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"
#include "client/api.h"
#include "client/ring/ring.h"

using namespace gshm;
using namespace gshm::client;

namespace {

// Large, so that a round costs nothing; small enough that progress is seen.
constexpr uint64_t kPieceBytes = uint64_t{16} << 20;
constexpr uint32_t kPieces = 32;
constexpr int kTellEveryMs = 100;
// Who stops a transfer is not to wait longer for a file that does not answer.
constexpr std::chrono::milliseconds kPatience{1000};

struct Range {
    uint64_t offset = 0;
    int fd = -1;
    uint64_t file_offset = 0;
    uint64_t bytes = 0;
};

Status check_options(const gshm_transfer_options* options) {
    if (options == nullptr) return {};
    TRY(check_argument(options->struct_size == sizeof *options, "struct_size of the options is wrong"));
    if (options->flags != 0) return fail(EINVAL, "unknown transfer flags {:#x}", options->flags);
    return {};
}

// One transfer, by a ring that it has for itself meanwhile.
class Move {
public:
    Move(gshm_object& object, uint32_t operation, const Range& range, const gshm_transfer_options* options)
        : object_(object), operation_(operation), range_(range), options_(options) {}

    Result<gshm_transfer_info> run() {
        const auto begin = std::chrono::steady_clock::now();
        ring_ = TRY(Ring::take(object_.core, kPieces));
        file_ = TRY(ring_->add_file(range_.fd));
        TRY(tell());
        while ((!stopped_ && next_ < range_.bytes) || under_way_ > 0) {
            fill();
            TRY(take());
            if (!stopped_at_) {
                // Also when it has failed already: what is under way may never end.
                auto told = tell();
                if (told) continue;
                stop(told.error());
                stopped_at_ = std::chrono::steady_clock::now();
            }
            if (std::chrono::steady_clock::now() - *stopped_at_ > kPatience && ring_->abandon()) break;
        }
        if (error_) return std::unexpected(*error_);
        // After an error the next one has a new ring: gshmd may do better by that.
        if (ring_->remove_file(file_)) Ring::put_aside(std::move(ring_));
        const auto took = std::chrono::steady_clock::now() - begin;
        return gshm_transfer_info{sizeof(gshm_transfer_info), path_, done_,
                                  static_cast<uint64_t>(std::chrono::nanoseconds(took).count())};
    }

private:
    void fill() {
        while (!stopped_ && next_ < range_.bytes && under_way_ < kPieces) {
            const uint64_t bytes = std::min(kPieceBytes, range_.bytes - next_);
            const gshm_range range = {&object_, range_.offset + next_, bytes};
            const gshm_io io = {sizeof io, operation_, file_, 0, range_.file_offset + next_, &range, 1, bytes};
            if (auto prepared = ring_->prepare(io); !prepared) return stop(prepared.error());
            next_ += bytes;
            ++under_way_;
        }
        (void)ring_->submit();  // what cannot be begun is completed with the reason
    }
    Status take() {
        if (under_way_ == 0) return {};
        gshm_completion completions[kPieces];
        const size_t count = TRY(ring_->wait(completions, 1, kTellEveryMs));
        for (size_t i = 0; i < count; ++i) {
            --under_way_;
            const auto& one = completions[i];
            path_ |= one.path;
            if (one.result < 0) {
                stop({static_cast<int>(-one.result), failure(static_cast<int>(-one.result))});
            } else {
                done_ += static_cast<uint64_t>(one.result);
                if (static_cast<uint64_t>(one.result) < one.user_data) stop({ENODATA, "the file ends before the range does"});
            }
        }
        return {};
    }
    std::string failure(int code) const {
        const char* what = operation_ == GSHM_IO_READ ? "reading the file into" : "writing the file from";
        return fmt::format("{} the object failed: {}", what, strerror(code));
    }
    void stop(const Error& error) {
        stopped_ = true;
        if (!error_) error_ = error;
    }
    Status tell() {
        if (options_ == nullptr || options_->progress == nullptr) return {};
        if (options_->progress(options_->context, done_, range_.bytes) == 0) return {};
        return fail(ECANCELED, "the transfer was stopped");
    }

    gshm_object& object_;
    const uint32_t operation_;
    const Range range_;
    const gshm_transfer_options* options_;
    std::unique_ptr<Ring> ring_;
    uint32_t file_ = 0;
    uint64_t next_ = 0;
    uint64_t done_ = 0;
    uint32_t under_way_ = 0;
    uint32_t path_ = 0;
    bool stopped_ = false;
    std::optional<std::chrono::steady_clock::time_point> stopped_at_;  // by the caller
    std::optional<Error> error_;
};

int move(gshm_object* object, uint32_t operation, const Range& range, const gshm_transfer_options* options,
         gshm_transfer_info* ret_info) {
    return with_object(object, [&](gshm_object& one) -> Status {
        TRY(check_options(options));
        auto info = TRY(Move(one, operation, range, options).run());
        return ret_info == nullptr ? Status{} : copy_struct(ret_info, info);
    });
}

// The status of a call of this library, as the others see it.
Status as_status(int code) {
    if (code >= 0) return {};
    return std::unexpected(Error{-code, last_error()});
}

struct Closer {
    void operator()(gshm_object* object) const { gshm_close(object); }
};
using Handle = std::unique_ptr<gshm_object, Closer>;

// Whether something has the name; if an id is given, whether that object has.
Result<bool> has_name(gshm_client* client, const char* name, uint64_t id) {
    gshm_stat_info info = {};
    info.struct_size = sizeof info;
    const int code = gshm_stat(client, name, &info);
    if (code == -ENOENT || code == -ENOTDIR) return false;
    TRY(as_status(code));
    return id == 0 || info.id == id;
}

// As gshm_replace(), unless something has the name.
int give_name(gshm_object* object, const char* name) {
    return with_object(object, [&](gshm_object& one) -> Status {
        Ring::release(one);
        TRY(one.core->link().call_on(one.key.epoch, wire::RequestBody::GiveName, [&](auto& builder) {
            return wire::CreateGiveName(builder, one.id, builder.CreateString(name)).Union();
        }));
        one.sealed = true;
        return {};
    });
}

// A file that is not there until it is whole.
class NewFile {
public:
    static Result<NewFile> create(const std::string& path) {
        struct stat status = {};
        const bool exists = stat(path.c_str(), &status) == 0;
        if (exists && S_ISDIR(status.st_mode)) return fail(EISDIR, "{} is a directory", path);
        if (exists && !S_ISREG(status.st_mode)) return fail(EINVAL, "{} is not a regular file", path);
        // What a link leads to is replaced, not the link.
        std::unique_ptr<char, decltype(&free)> real(exists ? realpath(path.c_str(), nullptr) : nullptr, &free);
        std::string target = real ? real.get() : path;
        static std::atomic<unsigned> count = 0;
        std::string part = fmt::format("{}.gshm-{}-{}", target, getpid(), ++count);
        const auto slash = target.rfind('/');
        const std::string folder = slash == std::string::npos ? "." : target.substr(0, slash + 1);
        // Without a name, where the file system can: then a process that is killed leaves nothing.
        auto file = UniqueFd::adopt(open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666));
        const bool is_named = !file;
        if (!file) file = UniqueFd::adopt(open(part.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666));
        if (!file) return fail_errno(path.c_str());
        if (exists) fchmod(file.get(), status.st_mode & 0777);
        return NewFile(std::move(target), std::move(part), std::move(file), is_named);
    }
    NewFile(NewFile&&) = default;
    ~NewFile() {
        if (file_ && is_named_) unlink(part_.c_str());
    }
    int fd() const { return file_.get(); }
    // So that a full disk is known before anything is copied.
    Status reserve(uint64_t bytes) const {
        if (bytes == 0 || fallocate(file_.get(), 0, 0, static_cast<off_t>(bytes)) == 0) return {};
        if (errno != ENOSPC && errno != EDQUOT && errno != EFBIG) return {};  // writing will tell
        return fail(errno, "no room for {} bytes at {}: {}", bytes, path_, strerror(errno));
    }
    Status commit() {
        auto put = [&] {
            const std::string itself = fmt::format("/proc/self/fd/{}", file_.get());
            if (!is_named_ && linkat(AT_FDCWD, itself.c_str(), AT_FDCWD, part_.c_str(), AT_SYMLINK_FOLLOW) != 0) return false;
            is_named_ = true;
            // Some file systems tell of an error only now.
            return close(file_.take()) == 0 && rename(part_.c_str(), path_.c_str()) == 0;
        };
        if (put()) return {};
        auto failed = fail_errno(path_.c_str());
        if (is_named_) unlink(part_.c_str());
        return failed;
    }

private:
    NewFile(std::string path, std::string part, UniqueFd file, bool is_named)
        : path_(std::move(path)), part_(std::move(part)), file_(std::move(file)), is_named_(is_named) {}
    std::string path_;
    std::string part_;  // beside it
    UniqueFd file_;
    bool is_named_;  // by `part_`
};

}  // namespace

extern "C" {

int gshm_read_file(gshm_object* object, uint64_t offset, int fd, uint64_t file_offset, uint64_t bytes,
                   const gshm_transfer_options* options, gshm_transfer_info* ret_info) {
    return move(object, GSHM_IO_READ, {offset, fd, file_offset, bytes}, options, ret_info);
}

int gshm_write_file(gshm_object* object, uint64_t offset, int fd, uint64_t file_offset, uint64_t bytes,
                    const gshm_transfer_options* options, gshm_transfer_info* ret_info) {
    return move(object, GSHM_IO_WRITE, {offset, fd, file_offset, bytes}, options, ret_info);
}

int gshm_put_file(gshm_client* client, const char* path, const gshm_create_spec* spec,
                  const gshm_transfer_options* options, gshm_transfer_info* ret_info) {
    return with_client(client, [&](Core&) -> Status {
        TRY(check_argument(path != nullptr && spec != nullptr, "path or spec is NULL"));
        TRY(check_argument(spec->struct_size == sizeof *spec, "struct_size of the spec is wrong"));
        TRY(check_argument(spec->size_bytes == 0, "the file says how large the object is: size_bytes must be 0"));
        // A fifo would hold us until it has a writer.
        auto file = UniqueFd::adopt(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
        struct stat status = {};
        if (!file || fstat(file.get(), &status) != 0) return fail_errno(path);
        if (!S_ISREG(status.st_mode)) return fail(EINVAL, "{} is not a regular file", path);
        fcntl(file.get(), F_SETFL, 0);  // O_NONBLOCK has served; some file systems would take it at its word
        gshm_create_spec wanted = *spec;
        wanted.size_bytes = static_cast<uint64_t>(status.st_size);
        const bool replace = (wanted.flags & GSHM_REPLACE) != 0;
        // Without a name until it is whole: whatever happens before, there is nothing to be cleared away by name, which
        // might be another's by then. Kept it is when it is sealed, which it is from the moment it has a name.
        wanted.flags = (wanted.flags & ~uint32_t{GSHM_REPLACE | GSHM_KEEP}) | GSHM_NO_MAP | GSHM_UNNAMED;
        if (status.st_size == 0) wanted.flags |= GSHM_EMPTY;
        if (!replace && TRY(has_name(client, wanted.name, 0))) return fail(EEXIST, "\"{}\" exists already", wanted.name);
        gshm_object* made = nullptr;
        TRY(as_status(gshm_create(client, &wanted, &made)));
        const Handle object(made);
        gshm_transfer_info info = {sizeof info, 0, 0, 0};
        TRY(as_status(gshm_read_file(made, 0, file.get(), 0, wanted.size_bytes, options, &info)));
        auto named = as_status(replace ? gshm_replace(made, wanted.name) : give_name(made, wanted.name));
        // Lost on the way: it may have been done.
        const bool in_doubt = !named && named.error().code == ECONNRESET;
        if (in_doubt && has_name(client, wanted.name, gshm_id(made)).value_or(false)) named = {};
        TRY(named);
        return ret_info == nullptr ? Status{} : copy_struct(ret_info, info);
    });
}

int gshm_get_file(gshm_client* client, const char* name, const char* path, const gshm_transfer_options* options,
                  gshm_transfer_info* ret_info) {
    return with_client(client, [&](Core&) -> Status {
        TRY(check_argument(name != nullptr && path != nullptr, "name or path is NULL"));
        gshm_object* opened = nullptr;
        TRY(as_status(gshm_open(client, name, GSHM_NO_MAP, &opened)));
        const Handle object(opened);
        auto file = TRY(NewFile::create(path));
        TRY(file.reserve(gshm_size(opened)));
        gshm_transfer_info info = {sizeof info, 0, 0, 0};
        TRY(as_status(gshm_write_file(opened, 0, file.fd(), 0, gshm_size(opened), options, &info)));
        TRY(file.commit());
        return ret_info == nullptr ? Status{} : copy_struct(ret_info, info);
    });
}

}  // extern "C"
