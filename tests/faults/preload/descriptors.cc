// Calls that make descriptors, and calls on sockets.
#include <cerrno>
#include <cstdarg>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "decide.h"

using gshm::core::faults::system_error;

// A call that returns -1 and sets errno.
#define FAULTS_CALL(result, name, parameters, arguments, error, interruptible)     \
    FAULTS_EXPORT result name parameters {                                         \
        FAULTS_NEXT(name);                                                         \
        if (int code = system_error(FAULTS_CALLER, #name, error, interruptible)) { \
            errno = code;                                                          \
            return static_cast<result>(-1);                                        \
        }                                                                          \
        return real arguments;                                                     \
    }

FAULTS_CALL(int, memfd_create, (const char* name, unsigned flags), (name, flags), EMFILE, false)
FAULTS_CALL(int, socket, (int domain, int type, int protocol), (domain, type, protocol), EMFILE, false)
FAULTS_CALL(int, socketpair, (int domain, int type, int protocol, int* ends), (domain, type, protocol, ends), EMFILE,
            false)
FAULTS_CALL(int, pipe2, (int* ends, int flags), (ends, flags), EMFILE, false)
FAULTS_CALL(int, eventfd, (unsigned value, int flags), (value, flags), EMFILE, false)
FAULTS_CALL(int, signalfd, (int fd, const sigset_t* mask, int flags), (fd, mask, flags), EMFILE, false)
FAULTS_CALL(int, epoll_create1, (int flags), (flags), EMFILE, false)
FAULTS_CALL(int, accept4, (int fd, sockaddr* address, socklen_t* length, int flags), (fd, address, length, flags),
            EMFILE, true)
// Not ECONNREFUSED, which means that no daemon runs.
FAULTS_CALL(int, connect, (int fd, const sockaddr* address, socklen_t length), (fd, address, length), ENOMEM, true)
FAULTS_CALL(int, bind, (int fd, const sockaddr* address, socklen_t length), (fd, address, length), ENOSPC, false)
FAULTS_CALL(ssize_t, sendmsg, (int fd, const msghdr* message, int flags), (fd, message, flags), ENOMEM, true)
FAULTS_CALL(ssize_t, recvmsg, (int fd, msghdr* message, int flags), (fd, message, flags), ENOMEM, true)
FAULTS_CALL(ssize_t, send, (int fd, const void* bytes, size_t count, int flags), (fd, bytes, count, flags), ENOMEM,
            true)
FAULTS_CALL(ssize_t, recv, (int fd, void* bytes, size_t count, int flags), (fd, bytes, count, flags), ENOMEM, true)
FAULTS_CALL(int, fsopen, (const char* name, unsigned flags), (name, flags), EMFILE, false)
FAULTS_CALL(int, fsmount, (int fd, unsigned flags, unsigned attributes), (fd, flags, attributes), EMFILE, false)
FAULTS_CALL(int, fsconfig, (int fd, unsigned command, const char* key, const void* value, int more),
            (fd, command, key, value, more), ENOMEM, false)
FAULTS_CALL(int, mount,
            (const char* source, const char* target, const char* type, unsigned long flags, const void* data),
            (source, target, type, flags, data), ENOMEM, false)

FAULTS_EXPORT int open(const char* path, int flags, ...) {
    FAULTS_NEXT(open);
    va_list more;
    va_start(more, flags);
    auto mode = va_arg(more, mode_t);
    va_end(more);
    if (int code = system_error(FAULTS_CALLER, "open", EMFILE, false)) {
        errno = code;
        return -1;
    }
    return real(path, flags, mode);
}

FAULTS_EXPORT int open64(const char* path, int flags, ...) {
    FAULTS_NEXT(open64);
    va_list more;
    va_start(more, flags);
    auto mode = va_arg(more, mode_t);
    va_end(more);
    if (int code = system_error(FAULTS_CALLER, "open64", EMFILE, false)) {
        errno = code;
        return -1;
    }
    return real(path, flags, mode);
}

FAULTS_EXPORT int openat(int folder, const char* path, int flags, ...) {
    FAULTS_NEXT(openat);
    va_list more;
    va_start(more, flags);
    auto mode = va_arg(more, mode_t);
    va_end(more);
    if (int code = system_error(FAULTS_CALLER, "openat", ENFILE, false)) {
        errno = code;
        return -1;
    }
    return real(folder, path, flags, mode);
}

FAULTS_EXPORT int fcntl(int fd, int command, ...) {
    FAULTS_NEXT(fcntl);
    va_list more;
    va_start(more, command);
    auto* argument = va_arg(more, void*);
    va_end(more);
    int error = 0;
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) error = EMFILE;
    if (command == F_ADD_SEALS) error = EBUSY;
    // Locks do not fail: SQLite would wait and try again.
    if (int code = error == 0 ? 0 : system_error(FAULTS_CALLER, "fcntl", error, false)) {
        errno = code;
        return -1;
    }
    return real(fd, command, argument);
}

// Only EPOLL_CTL_ADD can fail.
FAULTS_EXPORT int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) {
    FAULTS_NEXT(epoll_ctl);
    if (operation == EPOLL_CTL_ADD) {
        if (int code = system_error(FAULTS_CALLER, "epoll_ctl", ENOSPC, false)) {
            errno = code;
            return -1;
        }
    }
    return real(epoll, operation, fd, event);
}

FAULTS_EXPORT int epoll_wait(int epoll, epoll_event* events, int count, int timeout) {
    FAULTS_NEXT(epoll_wait);
    bool own = gshm::core::faults::caller_at(FAULTS_CALLER) == gshm::core::faults::Caller::gshmd;
    if (own && gshm::core::faults::fails(gshm::core::faults::Class::interrupted, "epoll_wait")) {
        errno = EINTR;
        return -1;
    }
    return real(epoll, events, count, timeout);
}

FAULTS_EXPORT long syscall(long number, ...) {
    FAULTS_NEXT(syscall);
    va_list more;
    va_start(more, number);
    long a[6];
    for (long& argument : a) argument = va_arg(more, long);
    va_end(more);
    if (number == SYS_pidfd_open) {
        if (int code = system_error(FAULTS_CALLER, "pidfd_open", EMFILE, false)) {
            errno = code;
            return -1;
        }
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

FAULTS_EXPORT int posix_spawnp(pid_t* pid, const char* file, const posix_spawn_file_actions_t* actions,
                               const posix_spawnattr_t* attributes, char* const* argv, char* const* env) {
    FAULTS_NEXT(posix_spawnp);
    if (int code = system_error(FAULTS_CALLER, "posix_spawnp", EAGAIN, false)) return code;
    return real(pid, file, actions, attributes, argv, env);
}
