#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <memory>
#include <unistd.h>

#include <fmt/core.h>

#include "cli/copy/put_object.h"
#include "cli/support/streams.h"
#include "cli/support/text.h"
#include "cli/copy/verify.h"

namespace gshm::cli {
namespace {

// Up to here what a pipe brings is held in memory.
constexpr size_t kHeldBytes = size_t{64} << 20;

class StreamPut {
public:
    StreamPut(gshm_client* client, const PutItem& item, bool replace, CopyWatch& watch)
        : client_(client),
          item_(item),
          replace_(replace),
          watch_(watch),
          what_(item.source == "-" ? "standard input" : item.source),
          // A fifo is opened when it has a writer, as it is for cat(1).
          input_(item.source == "-" ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                                    : ::open(item.source.c_str(), O_RDONLY | O_CLOEXEC)) {
        if (input_.get() < 0) throw Failure::of_errno(what_);
        if (watch.verify()) checksum_.emplace();
    }

    uint64_t put_known(uint64_t size_bytes) {
        PutObject object(client_, item_, size_bytes, replace_);
        std::string chunk(kChunkBytes, '\0');
        uint64_t done = 0;
        for (size_t bytes = chunk.size(); bytes == chunk.size();) {
            bytes = read(chunk.data(), chunk.size());
            if (bytes > size_bytes - done)
                throw Failure(EFBIG,
                              fmt::format("{} brings more than the {} bytes of --size", printable(what_), size_bytes),
                              "nothing was put");
            copy_in(object, done, {chunk.data(), bytes});
            done += bytes;
        }
        if (done < size_bytes)
            throw Failure(
                EIO, fmt::format("{} ended after {} of the {} bytes of --size", printable(what_), done, size_bytes),
                "nothing was put");
        finish(object, kPathStream);
        return done;
    }

    uint64_t put_unknown() {
        std::string held;
        // Grows with what comes, so that few bytes take little memory.
        for (size_t bytes = kChunkBytes; bytes == kChunkBytes && held.size() < kHeldBytes;) {
            const size_t before = held.size();
            held.resize(before + kChunkBytes);
            bytes = read(held.data() + before, kChunkBytes);
            held.resize(before + bytes);
        }
        if (held.size() >= kHeldBytes) return put_through_file(std::move(held));
        PutObject object(client_, item_, held.size(), replace_);
        for (size_t offset = 0; offset < held.size(); offset += kChunkBytes)
            copy_in(object, offset, std::string_view(held).substr(offset, kChunkBytes));
        finish(object, held.empty() ? 0 : kPathStream);
        return held.size();
    }

    uint32_t path() const { return path_; }

private:
    size_t read(char* ret_bytes, size_t capacity) {
        const size_t bytes = read_all(input_.get(), ret_bytes, capacity, what_);
        if (checksum_) checksum_->add({ret_bytes, bytes});
        return bytes;
    }

    void copy_in(const PutObject& object, uint64_t offset, std::string_view bytes) {
        if (bytes.empty()) return;
        check(gshm_copy_in(object.get(), offset, bytes.data(), bytes.size()), item_.name);
        watch_.moved(offset + bytes.size());
    }

    void finish(PutObject& object, uint32_t path) {
        if (checksum_) checksum_->compare_with(object.get(), item_.name, what_, watch_);
        object.finish(path);
        path_ = path;
    }

    uint64_t put_through_file(std::string held) {
        std::string folder;
        const auto file = open_nameless_file(folder);
        uint64_t size = 0;
        while (!held.empty()) {
            try {
                write_all(file.get(), held.data(), held.size(), folder);
            } catch (const Failure& failure) {
                throw Failure(failure.code(), failure.exit_code(),
                              fmt::format("{}, after {} of {}", failure.what(), size_text(size), what_),
                              "set TMPDIR to a folder with more room, or say with --size how much it is");
            }
            size += held.size();
            held.resize(kChunkBytes);
            held.resize(read(held.data(), kChunkBytes));
        }
        held.shrink_to_fit();
        PutObject object(client_, item_, size, replace_);
        auto info = sized<gshm_transfer_info>();
        const auto options = watch_.options();
        const int status = gshm_read_file(object.get(), 0, file.get(), 0, size, &options, &info);
        if (status == -ECANCELED) throw Stopped{};
        if (status < 0) throw Failure::of_status(status, item_.source);
        finish(object, info.path | kPathStream);
        return size;
    }

    // Where large temporary files belong: /tmp may be memory.
    static FileDescriptor open_nameless_file(std::string& ret_folder) {
        const char* chosen = std::getenv("TMPDIR");
        ret_folder = chosen && *chosen ? chosen : "/var/tmp";
        const int fd = ::open(ret_folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (fd >= 0) return FileDescriptor(fd);
        auto path = ret_folder + "/gshm-put-XXXXXX";
        FileDescriptor file(::mkostemp(path.data(), O_CLOEXEC));
        if (file.get() < 0) throw Failure::of_errno(ret_folder);
        ::unlink(path.c_str());
        return file;
    }

    gshm_client* client_;
    const PutItem& item_;
    bool replace_;
    CopyWatch& watch_;
    std::string what_;
    FileDescriptor input_;
    std::optional<StreamChecksum> checksum_;
    uint32_t path_ = 0;
};

}  // namespace

Copied put_stream(gshm_client* client, const PutItem& item, bool replace, std::optional<uint64_t> size_bytes,
                  CopyWatch& watch) {
    const auto begin = std::chrono::steady_clock::now();
    StreamPut put(client, item, replace, watch);
    const uint64_t bytes = size_bytes ? put.put_known(*size_bytes) : put.put_unknown();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    return {item.name, item.source, bytes, seconds.count(), put.path()};
}

}  // namespace gshm::cli
