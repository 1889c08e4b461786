#include "daemon/connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/limits.h"

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif

namespace gshm {

Result<Credentials> Connection::peer_of(int socket) {
    ucred peer = {};
    socklen_t length = sizeof peer;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return fail_errno("SO_PEERCRED");
    Credentials who{peer.uid, peer.gid, peer.pid, std::vector<gid_t>(64)};
    for (;;) {
        length = static_cast<socklen_t>(who.groups.size() * sizeof(gid_t));
        if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, who.groups.data(), &length) == 0) break;
        if (errno != ERANGE) return fail_errno("SO_PEERGROUPS");
        who.groups.resize(length / sizeof(gid_t));
    }
    who.groups.resize(length / sizeof(gid_t));
    return who;
}

Result<std::unique_ptr<Connection>> Connection::create(EventLoop& loop, UniqueFd socket, pid_t pid, Handler& handler) {
    std::unique_ptr<Connection> made(new Connection(loop, std::move(socket), handler));
    auto* self = made.get();
    self->interest_ = EPOLLIN;
    TRY(loop.watch(self->socket_.get(), EPOLLIN, [self](uint32_t events) { self->on_events(events); }));
    // Without pidfds (Linux < 5.3), or across pid namespaces, the socket alone tells.
    self->process_ = UniqueFd::adopt(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (!self->process_ && errno == ESRCH && pid > 0) return fail(ESRCH, "the client's process has ended already");
    if (self->process_) {
        TRY(loop.watch(self->process_.get(), EPOLLIN, [self](uint32_t) {
            self->loop_.unwatch(self->process_.get());
            if ((self->interest_ & EPOLLIN) == 0) return self->end_later("the client's process has ended");
            // What it said before it died still counts: read on to the end of the socket, but wait for no more.
            shutdown(self->socket_.get(), SHUT_RD);
        }));
    }
    return made;
}

Connection::~Connection() {
    *alive_ = false;
    loop_.unwatch(socket_.get());
    if (process_) loop_.unwatch(process_.get());
}

void Connection::on_events(uint32_t events) {
    auto alive = alive_;
    if ((events & EPOLLOUT) != 0) flush();
    // A hang-up while nothing may be read would wake us for ever.
    if ((events & (EPOLLHUP | EPOLLERR)) != 0 && (interest_ & EPOLLIN) == 0) return end_later("the client went away");
    if (*alive && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) read_one();
}

void Connection::read_one() {
    // One for the whole loop: a packet is done with when its handler returns.
    static thread_local std::vector<uint8_t> buffer(limits::kMessageBytes);
    auto received = wire::receive_packet(socket_.get(), buffer, false);
    if (!received) return end_later(received.error().message);
    if (received->end) return end_later("the client has disconnected");
    if (received->bytes > 0 && !ended_) {
        handler_.on_packet({buffer.data(), received->bytes}, std::move(received->descriptors));
    }
}

void Connection::send(wire::Bytes packet, std::span<const int> descriptors) {
    if (ended_) return;
    if (queue_.empty()) {
        auto outcome = wire::send_packet(socket_.get(), packet, descriptors, false);
        if (!outcome) return end_later(outcome.error().message);
        if (*outcome == wire::SendOutcome::sent) return;
    }
    Outgoing outgoing{{packet.begin(), packet.end()}, {}};
    for (int fd : descriptors) {
        auto copy = UniqueFd::clone(fd);
        if (!copy) return end_later(copy.error().message);
        outgoing.descriptors.push_back(std::move(*copy));
    }
    queued_bytes_ += outgoing.bytes.size();
    queued_descriptors_ += outgoing.descriptors.size();
    queue_.push_back(std::move(outgoing));
    update_interest();
}

void Connection::flush() {
    while (!queue_.empty()) {
        Outgoing& next = queue_.front();
        std::vector<int> descriptors;
        for (const auto& fd : next.descriptors) descriptors.push_back(fd.get());
        auto outcome = wire::send_packet(socket_.get(), next.bytes, descriptors, false);
        if (!outcome) return end_later(outcome.error().message);
        if (*outcome == wire::SendOutcome::would_block) return;
        queued_bytes_ -= next.bytes.size();
        queued_descriptors_ -= next.descriptors.size();
        queue_.pop_front();
    }
    update_interest();
}

void Connection::hold(bool held) {
    held_ = held;
    update_interest();
}

void Connection::update_interest() {
    uint32_t wanted = 0;
    bool full = queued_bytes_ >= limits::kSessionQueueBytes || queued_descriptors_ >= limits::kMessageDescriptors;
    if (!held_ && !full) wanted |= EPOLLIN;
    if (!queue_.empty()) wanted |= EPOLLOUT;
    if (wanted == interest_) return;
    interest_ = wanted;
    loop_.change(socket_.get(), wanted);
}

void Connection::end_later(std::string why) {
    if (ended_) return;
    ended_ = true;
    loop_.unwatch(socket_.get());
    loop_.post([this, alive = alive_, why = std::move(why)] {
        if (*alive) handler_.on_end(why);
    });
}

}  // namespace gshm
