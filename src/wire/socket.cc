#include <cstring>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <thread>
#include <utility>

#include "base/descriptors.h"
#include "base/limits.h"
#include "wire/message.h"

namespace gshm::core::wire {
namespace {

// The kernel's limit.
using PacketDescriptors = Descriptors<253>;

Result<sockaddr_un> address_of(const std::string& path) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) {
        return fail(ENAMETOOLONG, "the socket path {} is too long ({} bytes at most): choose a shorter --dir", path,
                    sizeof address.sun_path - 1);
    }
    memcpy(address.sun_path, path.c_str(), path.size() + 1);
    return address;
}

Result<UniqueFd> make_socket() {
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) return fail_errno("socket");
    auto made = UniqueFd::adopt(fd);
    // Room for several of the largest messages; the system's minimum suffices for one.
    int bytes = 8 * static_cast<int>(limits::kMessageBytes);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    return made;
}

}  // namespace

Result<SendOutcome> send_packet(int socket, Bytes packet, std::span<const int> descriptors, bool wait) {
    if (packet.size() > limits::kMessageBytes)
        return fail(EMSGSIZE, "a message of {} bytes is too long", packet.size());
    iovec data = {const_cast<uint8_t*>(packet.data()), packet.size()};
    PacketDescriptors control;
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    control.attach(message, descriptors);
    for (;;) {
        if (sendmsg(socket, &message, MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT)) >= 0) return SendOutcome::sent;
        if (errno == EINTR) continue;
        // ETOOMANYREFS: descriptors in flight; ENOBUFS: no memory for the packet. Both are temporary.
        bool later = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ETOOMANYREFS;
        if (!wait && later) return SendOutcome::would_block;
        return fail_errno("sendmsg");
    }
}

Result<Received> receive_packet(int socket, std::span<uint8_t> buffer, bool wait, std::vector<UniqueFd>* ret_refused) {
    iovec data = {buffer.data(), buffer.size()};
    PacketDescriptors control;
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    control.prepare(message);
    Received received;
    bool reset = false;
    for (;;) {
        ssize_t bytes = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
        if (bytes >= 0) {
            received.bytes = static_cast<size_t>(bytes);
            break;
        }
        if (errno == EINTR) continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK) return received;
        if (errno == ECONNRESET) {
            // The peer closed with unread data of ours, which the kernel reports once and first. Its earlier messages
            // can still be read.
            if (!std::exchange(reset, true)) continue;
            received.end = true;
            return received;
        }
        return fail_errno("recvmsg");
    }
    // Adopted first, so that none leaks whatever the message is.
    control.for_each(message, [&](int fd) { received.descriptors.push_back(UniqueFd::adopt(fd)); });
    received.end = received.bytes == 0 && received.descriptors.empty();
    const bool is_whole = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
    if (!is_whole && ret_refused != nullptr) *ret_refused = std::move(received.descriptors);
    if ((message.msg_flags & MSG_TRUNC) != 0) return fail(EMSGSIZE, "a message longer than {} bytes", buffer.size());
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
        return fail(EMFILE, "descriptors were lost: this process has too many open (raise `ulimit -n`)");
    }
    return received;
}

bool next_has_descriptors(int socket) {
    // Without room for control data the kernel only says that there is some.
    char byte = 0;
    iovec data = {&byte, 1};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    return recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT) >= 0 && (message.msg_flags & MSG_CTRUNC) != 0;
}

Result<UniqueFd> connect_to(const std::string& path) {
    auto address = TRY(address_of(path));
    auto socket = TRY(make_socket());
    while (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
        if (errno != EINTR) return fail_errno("connect");
    }
    return socket;
}

Result<UniqueFd> listen_at(const std::string& path, mode_t mode) {
    auto address = TRY(address_of(path));
    auto socket = TRY(make_socket());
    // The file has its mode from the beginning: a client that connects meanwhile is refused because nobody listens yet,
    // and tries again, never for want of rights. The umask, which would take bits away, is that of this thread alone.
    int error = 0;
    std::jthread([&] {
        const bool apart = unshare(CLONE_FS) == 0;
        if (apart) umask(0);
        const bool bound = apart && fchmod(socket.get(), mode) == 0 &&
                           bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
        if (!bound) error = errno;
    }).join();
    if (error != 0) return fail(error, "cannot bind {}: {}", path, strerror(error));
    if (listen(socket.get(), 1024) != 0) return fail_errno("listen");
    return socket;
}

}  // namespace gshm::core::wire
