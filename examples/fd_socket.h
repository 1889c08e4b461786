// The protocol between producer and consumer: three messages over a Unix socket (SOCK_SEQPACKET keeps messages whole),
// one of them with a file descriptor (SCM_RIGHTS).
//
//   consumer -> producer  Hello   identifies the peer as a consumer
//   producer -> consumer  Offer   the sizes, the device and the descriptor
//   consumer -> producer  Ack     whether the data is correct
//
// Failures throw gshm::Exception: ECONNRESET if the other side is gone, ETIMEDOUT if it is silent, EPROTO if its
// message is invalid, EINTR after Ctrl-C.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <gshm/gshm.hpp>

struct Hello {
    static constexpr uint32_t kMagic = 0x47534848;
    uint32_t magic = kMagic;
    uint32_t version = 1;
};

struct Offer {
    static constexpr uint32_t kMagic = 0x4753484F;
    uint32_t magic = kMagic;
    uint32_t version = 1;
    uint64_t extent_bytes = 0;  // size of the memory behind the descriptor
    uint64_t offset = 0;        // of the numbers
    uint64_t size_bytes = 0;
    uint64_t count = 0;
    char device[16] = {};  // the producer's name for it
    char uuid[48] = {};    // of the GPU, which may have another ordinal in the consumer; "" for host memory
};

struct Ack {
    static constexpr uint32_t kMagic = 0x47534841;
    uint32_t magic = kMagic;
    uint32_t verified = 0;
};

inline constexpr std::chrono::seconds kAnswerTime{30};  // for the reply of a connected peer

using Clock = std::chrono::steady_clock;
using Deadline = std::optional<Clock::time_point>;  // none: no limit

inline Deadline after(std::optional<std::chrono::seconds> time) {
    return time ? Deadline(Clock::now() + *time) : std::nullopt;
}

[[noreturn]] inline void fail(int code, const std::string& message) {
    throw gshm::Exception({code, message});
}
[[noreturn]] inline void fail_errno(const std::string& what, int code = errno) {
    fail(code, what + ": " + std::strerror(code));
}

// Returns when fd is readable. signal_fd: -1, or a signalfd that ends the wait.
inline void wait_readable(int fd, const Deadline& deadline, int signal_fd = -1) {
    pollfd fds[2] = {{fd, POLLIN, 0}, {signal_fd, POLLIN, 0}};
    for (;;) {
        int wait_ms = -1;
        if (deadline) {
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now());
            wait_ms = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000));
        }
        const int ready = ::poll(fds, 2, wait_ms);
        if (ready < 0 && errno != EINTR) fail_errno("poll");
        if (ready > 0 && fds[1].revents) {
            // consumes the signal, so that it does not end the process when signals are unblocked
            signalfd_siginfo taken;
            if (::read(signal_fd, &taken, sizeof taken) > 0) fail(EINTR, "interrupted");
        }
        if (ready > 0 && fds[0].revents) return;
        if (deadline && Clock::now() >= *deadline) fail(ETIMEDOUT, "no answer from the other side in time");
    }
}

// ---- Messages ------------------------------------------------------------------------------------------------------

// passed_fd: -1, or a descriptor to duplicate into the other process.
template <class Message>
void send_message(int socket, const Message& message, int passed_fd = -1) {
    iovec bytes = {const_cast<Message*>(&message), sizeof message};
    msghdr header = {};
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (passed_fd >= 0) {
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        cmsghdr* rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(rights), &passed_fd, sizeof(int));
    }
    if (::sendmsg(socket, &header, MSG_NOSIGNAL) < 0) fail_errno("sending to the other side");
}

struct Received {
    size_t bytes = 0;
    int flags = 0;      // MSG_TRUNC, MSG_CTRUNC
    gshm::UniqueFd fd;  // empty: none came
};

// Receives what has arrived, after wait_readable().
inline Received receive_arrived(int socket, void* ret_bytes, size_t most) {
    iovec bytes = {ret_bytes, most};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};  // the kernel closes descriptors that do not fit
    msghdr header = {};
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    const ssize_t received = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (received < 0) fail_errno("receiving from the other side");
    if (received == 0) fail(ECONNRESET, "the other side has gone");
    Received result;
    result.bytes = static_cast<size_t>(received);
    result.flags = header.msg_flags;
    for (cmsghdr* part = CMSG_FIRSTHDR(&header); part; part = CMSG_NXTHDR(&header, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        int raw = -1;
        std::memcpy(&raw, CMSG_DATA(part), sizeof raw);
        result.fd.reset(raw);
    }
    return result;
}

// ret_fd: null, or the place for the descriptor that must come with the message.
template <class Message>
Message receive_message(int socket, const Deadline& deadline, gshm::UniqueFd* ret_fd = nullptr, int signal_fd = -1) {
    wait_readable(socket, deadline, signal_fd);
    Message message;
    Received received = receive_arrived(socket, &message, sizeof message);
    if (received.bytes != sizeof message || (received.flags & MSG_TRUNC))
        fail(EPROTO, "the message has the wrong size");
    if (message.magic != Message::kMagic) fail(EPROTO, "the message has the wrong magic number");
    if (ret_fd) {
        if (!received.fd || (received.flags & MSG_CTRUNC)) fail(EPROTO, "the message came without its descriptor");
        *ret_fd = std::move(received.fd);
    }
    return message;
}

// ---- Connections ---------------------------------------------------------------------------------------------------

// Only processes of the same user can reach the first path; the second needs the credential check in Listener.
inline std::string default_socket_path() {
    const char* folder = std::getenv("XDG_RUNTIME_DIR");
    if (folder && *folder) return std::string(folder) + "/gshm-example.sock";
    return "/tmp/gshm-example-" + std::to_string(::getuid()) + ".sock";
}

inline sockaddr_un socket_address(const std::string& path) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof address.sun_path)
        fail(ENAMETOOLONG, "a socket path has 1 to " + std::to_string(sizeof address.sun_path - 1) + " bytes: " + path);
    std::memcpy(address.sun_path, path.data(), path.size());
    return address;
}

inline gshm::UniqueFd make_socket(int type = SOCK_SEQPACKET) {
    auto fd = gshm::UniqueFd::adopt(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    if (!fd) fail_errno("socket");
    return fd;
}

// Returns 0 or errno.
inline int try_connect(int socket, const sockaddr_un& address) {
    return ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

inline gshm::UniqueFd connect_to(const std::string& path, int type) {
    auto socket = make_socket(type);
    const int error = try_connect(socket.get(), socket_address(path));
    if (error == ENOENT || error == ECONNREFUSED)
        fail(error, "Connection refused: no producer is listening at " + path + "; start producer first");
    if (error == EPROTOTYPE) fail(error, path + " speaks another protocol; see --wire");
    if (error) fail_errno("connecting to " + path, error);
    return socket;
}

inline gshm::UniqueFd connect_to_producer(const std::string& path) {
    auto socket = connect_to(path, SOCK_SEQPACKET);
    send_message(socket.get(), Hello{});
    return socket;
}

// The producer's end. Replaces the socket file of a killed producer, lets only its own user (and root) connect, and
// removes the file when destroyed. During its lifetime SIGINT, SIGTERM and SIGHUP end accept_consumer() instead of the
// process, so that the file is removed then too.
class Listener {
public:
    explicit Listener(const std::string& path, int type = SOCK_SEQPACKET)
        : path_(path), type_(type), socket_(make_socket(type)) {
        ::fchmod(socket_.get(), 0600);  // bind() creates the file with this mode
        sigset_t mask;
        ::sigemptyset(&mask);
        for (int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&mask, number);
        signals_ = gshm::UniqueFd::adopt(::signalfd(-1, &mask, SFD_CLOEXEC));
        if (!signals_) fail_errno("signalfd");
        ::pthread_sigmask(SIG_BLOCK, &mask, &old_mask_);
        try {
            bind_and_listen();
        } catch (...) {
            ::pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
            throw;
        }
    }
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    ~Listener() {
        ::unlink(path_.c_str());
        ::pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
    }

    // Waits until a process of this user, or of root, has connected; others are disconnected.
    gshm::UniqueFd accept_peer(const Deadline& deadline) {
        for (;;) {
            wait_readable(socket_.get(), deadline, signals_.get());
            auto peer = gshm::UniqueFd::adopt(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
            if (!peer) continue;  // already disconnected
            ucred credentials = {};
            socklen_t length = sizeof credentials;
            ::getsockopt(peer.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length);
            if (credentials.uid == ::getuid() || credentials.uid == 0) return peer;
        }
    }
    // Waits until a consumer has connected and sent Hello; other peers are disconnected.
    gshm::UniqueFd accept_consumer(const Deadline& deadline) {
        for (;;) {
            auto peer = accept_peer(deadline);
            try {
                const auto hello_time = after(std::chrono::seconds(5));
                receive_message<Hello>(peer.get(), hello_time, nullptr, signals_.get());
                return peer;
            } catch (const gshm::Exception& exception) {
                if (exception.error().code == EINTR) throw;
            }
        }
    }

private:
    void bind_and_listen() {
        const auto address = socket_address(path_);
        int error = try_bind(address);
        if (error == EADDRINUSE) {
            remove_stale_file(address);
            error = try_bind(address);
        }
        if (error) fail_errno("binding " + path_, error);
        if (::listen(socket_.get(), 4) != 0) fail_errno("listen");
    }
    int try_bind(const sockaddr_un& address) {
        return ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
    }
    void remove_stale_file(const sockaddr_un& address) {
        struct stat info;
        if (::lstat(path_.c_str(), &info) == 0 && !S_ISSOCK(info.st_mode))
            fail(EEXIST, path_ + " exists and is not a socket; it stays as it is: choose another path with --socket");
        const int error = try_connect(make_socket(type_).get(), address);
        if (error == 0 || error == EPROTOTYPE) fail(EADDRINUSE, "another producer is listening at " + path_);
        if (error != ECONNREFUSED && error != ENOENT) fail_errno("connecting to " + path_, error);
        std::fprintf(stderr, "Removing the socket file of a producer that is gone: %s\n", path_.c_str());
        if (::unlink(path_.c_str()) != 0 && errno != ENOENT) fail_errno("removing " + path_);
    }

    std::string path_;
    int type_;
    gshm::UniqueFd socket_;
    gshm::UniqueFd signals_;
    sigset_t old_mask_;
};
