// A file of a file system that misbehaves: a FUSE mount of one regular file, served by a thread of the test.
#pragma once

#include <atomic>
#include <cstring>
#include <fcntl.h>
#include <linux/fuse.h>
#include <memory>
#include <string>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace gshm::core::test {

class SilentFile {
public:
    enum class Reads { unanswered, at_end };  // at_end: a read returns no bytes, in spite of the size

    // Mounts it on the path, where a file is made. Null: not permitted here. Requests other than reads are always
    // answered: a process that waits for the reply to an open() cannot be killed.
    static std::unique_ptr<SilentFile> create(const std::string& path, uint64_t size_bytes,
                                              Reads reads = Reads::unanswered) {
        ::close(::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        const int device = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
        if (device < 0) return nullptr;
        const std::string options =
            "fd=" + std::to_string(device) + ",rootmode=100644,user_id=0,group_id=0,allow_other";
        if (::mount("silent", path.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
            ::close(device);
            return nullptr;
        }
        return std::unique_ptr<SilentFile>(new SilentFile(path, device, size_bytes, reads));
    }
    // Waiting processes get an error.
    ~SilentFile() {
        ::umount2(path_.c_str(), MNT_FORCE);
        ::umount2(path_.c_str(), MNT_DETACH);
        server_.join();
        ::close(device_);
    }
    SilentFile(const SilentFile&) = delete;
    SilentFile& operator=(const SilentFile&) = delete;

    // Requests that were not answered.
    unsigned ignored() const { return ignored_; }

private:
    SilentFile(std::string path, int device, uint64_t size_bytes, Reads reads)
        : path_(std::move(path)), device_(device), size_bytes_(size_bytes), reads_(reads), server_([this] {
              serve();
          }) {}

    void serve() {
        std::vector<char> request(1 << 20);
        for (;;) {
            const ssize_t bytes = ::read(device_, request.data(), request.size());
            if (bytes < 0 && (errno == EINTR || errno == ENOENT)) continue;
            if (bytes < static_cast<ssize_t>(sizeof(fuse_in_header))) return;  // unmounted
            fuse_in_header header;
            memcpy(&header, request.data(), sizeof header);
            handle(header, request.data() + sizeof header);
        }
    }

    void handle(const fuse_in_header& header, const char* body) {
        switch (header.opcode) {
            case FUSE_INIT: {
                fuse_init_in in;
                memcpy(&in, body, sizeof in);
                fuse_init_out out = {};
                out.major = FUSE_KERNEL_VERSION;
                out.minor = std::min<uint32_t>(in.minor, FUSE_KERNEL_MINOR_VERSION);
                out.max_background = 64;
                out.max_write = 128 << 10;
                return answer(header, &out, sizeof out);
            }
            case FUSE_GETATTR: {
                fuse_attr_out out = {};
                out.attr_valid = 1000;
                out.attr.ino = 1;
                out.attr.size = size_bytes_;
                out.attr.blocks = (size_bytes_ + 511) / 512;
                out.attr.mode = S_IFREG | 0644;
                out.attr.nlink = 1;
                out.attr.blksize = 4096;
                return answer(header, &out, sizeof out);
            }
            case FUSE_OPEN: {
                fuse_open_out out = {};
                out.open_flags = FOPEN_DIRECT_IO;  // the kernel would fill pages with zeros up to the size
                return answer(header, &out, sizeof out);
            }
            case FUSE_READ:
                if (reads_ == Reads::at_end) return answer(header, nullptr, 0);
                break;
            case FUSE_FLUSH:
            case FUSE_RELEASE: return answer(header, nullptr, 0);
            case FUSE_INTERRUPT:
            case FUSE_FORGET:
            case FUSE_BATCH_FORGET: return;
            default: return answer(header, nullptr, 0, -ENOSYS);
        }
        ++ignored_;
    }

    void answer(const fuse_in_header& header, const void* body, size_t bytes, int error = 0) const {
        fuse_out_header out = {static_cast<uint32_t>(sizeof out + bytes), error, header.unique};
        const iovec parts[] = {{&out, sizeof out}, {const_cast<void*>(body), bytes}};
        (void)!::writev(device_, parts, bytes == 0 ? 1 : 2);
    }

    const std::string path_;
    const int device_;
    const uint64_t size_bytes_;
    const Reads reads_;
    std::atomic<unsigned> ignored_{0};
    std::thread server_;
};

}  // namespace gshm::core::test
