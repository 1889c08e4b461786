// Calls that read and write, and that size and map memory.
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "decide.h"

using gshm::core::faults::Caller;
using gshm::core::faults::caller_at;
using gshm::core::faults::may_end;
using gshm::core::faults::system_error;

namespace {

// Counts files and /dev/fuse. An eventfd cannot fail in its present use, and the standard streams are not counted.
bool counts(int fd) {
    struct stat status = {};
    if (fd <= 2 || ::syscall(SYS_fstat, fd, &status) != 0) return false;
    return S_ISREG(status.st_mode) || (S_ISCHR(status.st_mode) && status.st_rdev == makedev(10, 229));
}

}  // namespace

#define FAULTS_CALL_IF(condition, result, name, parameters, arguments, error, interruptible)   \
    FAULTS_EXPORT result name parameters {                                                     \
        FAULTS_NEXT(name);                                                                     \
        int code = (condition) ? system_error(FAULTS_CALLER, #name, error, interruptible) : 0; \
        if (code != 0) {                                                                       \
            errno = code;                                                                      \
            return static_cast<result>(-1);                                                    \
        }                                                                                      \
        return real arguments;                                                                 \
    }
#define FAULTS_CALL(result, name, parameters, arguments, error, interruptible) \
    FAULTS_CALL_IF(true, result, name, parameters, arguments, error, interruptible)

FAULTS_CALL_IF(counts(fd), ssize_t, read, (int fd, void* into, size_t bytes), (fd, into, bytes), EIO, true)
FAULTS_CALL_IF(counts(fd), ssize_t, write, (int fd, const void* from, size_t bytes), (fd, from, bytes), ENOSPC, true)
FAULTS_CALL_IF(counts(fd), ssize_t, writev, (int fd, const iovec* parts, int count), (fd, parts, count), ENOMEM, true)
FAULTS_CALL(ssize_t, pread, (int fd, void* into, size_t bytes, off_t at), (fd, into, bytes, at), EIO, true)
FAULTS_CALL(ssize_t, pwrite, (int fd, const void* from, size_t bytes, off_t at), (fd, from, bytes, at), ENOSPC, true)
FAULTS_CALL(ssize_t, pread64, (int fd, void* into, size_t bytes, off64_t at), (fd, into, bytes, at), EIO, true)
FAULTS_CALL(ssize_t, pwrite64, (int fd, const void* from, size_t bytes, off64_t at), (fd, from, bytes, at), ENOSPC,
            true)
FAULTS_CALL(int, ftruncate, (int fd, off_t bytes), (fd, bytes), ENOSPC, false)
FAULTS_CALL(int, ftruncate64, (int fd, off64_t bytes), (fd, bytes), ENOSPC, false)
FAULTS_CALL(int, fallocate, (int fd, int mode, off_t at, off_t bytes), (fd, mode, at, bytes), ENOSPC, true)
FAULTS_CALL(int, fstat, (int fd, struct stat* status), (fd, status), ENOMEM, false)
FAULTS_CALL(int, fstat64, (int fd, struct stat64* status), (fd, status), ENOMEM, false)
FAULTS_CALL(int, fstatfs, (int fd, struct statfs* status), (fd, status), ENOMEM, false)
FAULTS_CALL(int, fchmod, (int fd, mode_t mode), (fd, mode), EPERM, false)
FAULTS_CALL(int, futimens, (int fd, const timespec* times), (fd, times), ENOSPC, false)
FAULTS_CALL(int, madvise, (void* address, size_t bytes, int how), (address, bytes, how), ENOMEM, false)
FAULTS_CALL(int, mkdir, (const char* path, mode_t mode), (path, mode), ENOSPC, false)

// Never fails, but gshmd may be killed here.
FAULTS_EXPORT int rename(const char* from, const char* to) {
    FAULTS_NEXT(rename);
    if (caller_at(FAULTS_CALLER) == Caller::gshmd) may_end("rename");
    return real(from, to);
}

FAULTS_EXPORT int unlink(const char* path) {
    FAULTS_NEXT(unlink);
    if (caller_at(FAULTS_CALLER) == Caller::gshmd) may_end("unlink");
    return real(path);
}

FAULTS_EXPORT int posix_fallocate(int fd, off_t at, off_t bytes) {
    FAULTS_NEXT(posix_fallocate);
    if (int code = system_error(FAULTS_CALLER, "posix_fallocate", ENOSPC, true)) return code;
    return real(fd, at, bytes);
}

FAULTS_EXPORT void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t at) {
    FAULTS_NEXT(mmap);
    if (int code = system_error(FAULTS_CALLER, "mmap", ENOMEM, false)) {
        errno = code;
        return MAP_FAILED;
    }
    return real(address, bytes, protection, flags, fd, at);
}

// Only the call that registers a backing file can fail, not the one that unregisters it.
FAULTS_EXPORT int ioctl(int fd, unsigned long request, ...) {
    FAULTS_NEXT(ioctl);
    va_list more;
    va_start(more, request);
    auto* argument = va_arg(more, void*);
    va_end(more);
    constexpr unsigned kBackingOpen = 1;
    if (_IOC_TYPE(request) == 229 && _IOC_NR(request) == kBackingOpen) {
        if (int code = system_error(FAULTS_CALLER, "ioctl", ENOMEM, false)) {
            errno = code;
            return -1;
        }
    }
    return real(fd, request, argument);
}
