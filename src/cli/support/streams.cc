#include "cli/support/streams.h"

#include <cerrno>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "cli/support/failure.h"

namespace gshm::cli {

size_t read_all(int fd, void* ret_bytes, size_t capacity, std::string_view what) {
    size_t done = 0;
    while (done < capacity) {
        const ssize_t n = ::read(fd, static_cast<char*>(ret_bytes) + done, capacity - done);
        if (n == 0) break;
        if (n < 0 && errno != EINTR) throw Failure::of_errno(what);
        if (n > 0) done += static_cast<size_t>(n);
    }
    return done;
}

void write_all(int fd, const void* bytes, size_t count, std::string_view what) {
    size_t done = 0;
    while (done < count) {
        const ssize_t n = ::write(fd, static_cast<const char*>(bytes) + done, count - done);
        if (n < 0 && errno != EINTR) throw Failure::of_errno(what);
        if (n > 0) done += static_cast<size_t>(n);
    }
}

void write_stdout(std::string_view bytes) {
    try {
        write_all(STDOUT_FILENO, bytes.data(), bytes.size(), "standard output");
    } catch (const Failure& failure) {
        if (failure.code() != EPIPE) throw;
        ::signal(SIGPIPE, SIG_DFL);
        ::raise(SIGPIPE);
        ::_exit(128 + SIGPIPE);  // SIGPIPE was blocked
    }
}

void ensure_standard_descriptors() {
    for (int fd = 0; fd <= 2; ++fd) {
        // Opened with the wrong access mode, so that its use is still an error. open() returns the lowest free
        // descriptor, which is this one.
        if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
    }
}

}  // namespace gshm::cli
