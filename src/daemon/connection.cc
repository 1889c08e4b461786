#include "daemon/connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/limits.h"

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif

namespace gshm::core {

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

Result<std::shared_ptr<Connection>> Connection::create(ClientLoops::Place place, Reapers& reapers, UniqueFd socket,
                                                       const Credentials& peer, std::shared_ptr<Budgets::User> user,
                                                       std::weak_ptr<Handler> handler) {
    const pid_t pid = peer.pid;
    std::shared_ptr<Connection> made(
        new Connection(std::move(place), reapers, std::move(socket), std::move(user), std::move(handler)));
    // Without pidfds (Linux < 5.3), or across pid namespaces, only the end of the socket is seen.
    made->process_ = UniqueFd::adopt(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (!made->process_ && errno == ESRCH && pid > 0) return fail(ESRCH, "the client's process has ended already");
    auto calls = [weak = std::weak_ptr(made)](auto&& call) {
        return [weak, call](uint32_t events) {
            if (auto self = weak.lock()) call(*self, events);
        };
    };
    EventLoop& loop = made->loop_;
    auto watch = [&](int fd, uint32_t events, EventLoop::Callback callback) {
        if (made->user_->is_exempt()) return loop.watch(fd, events, std::move(callback));
        return loop.watch_in_group(made->user_->uid(), fd, events, std::move(callback));
    };
    if (made->process_) {
        TRY(watch(made->process_.get(), EPOLLIN, calls([](Connection& self, uint32_t) { self.on_process_end(); })));
    }
    TRY(watch(made->socket_.get(), 0, calls([](Connection& self, uint32_t events) { self.on_events(events); })));
    return made;
}

Connection::~Connection() {
    loop_.unwatch(socket_.get());
    if (process_) loop_.unwatch(process_.get());
    // The descriptors of unread packets are closed with the socket.
    std::vector<UniqueFd> last;
    last.push_back(std::move(socket_));
    reapers_.close(user_->uid(), std::move(last), std::move(descriptors_));
}

void Connection::on_process_end() {
    loop_.unwatch(process_.get());
    MutexLock lock(mutex_);
    if ((interest_ & EPOLLIN) == 0) return end_later("the client's process has ended");
    // Packets sent before the end are still served: the socket is read to its end.
    shutdown(socket_.get(), SHUT_RD);
}

void Connection::on_events(uint32_t events) {
    {
        MutexLock lock(mutex_);
        if ((events & EPOLLOUT) != 0) flush();
        // A hang-up is level-triggered, and would wake the loop without end while reading is held.
        if ((events & (EPOLLHUP | EPOLLERR)) != 0 && (interest_ & EPOLLIN) == 0)
            return end_later("the client went away");
    }
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) read_one();
}

bool Connection::begin_reading() {
    MutexLock lock(mutex_);
    if (ended_ || (interest_ & EPOLLIN) == 0) return false;
    busy_ = true;
    return true;
}

void Connection::read_one() {
    if (!begin_reading()) return;
    // One buffer for each loop: a handler does not use the packet after it returns.
    static thread_local std::vector<uint8_t> buffer(limits::kMessageBytes);
    std::vector<UniqueFd> descriptors;
    auto handler = handler_.lock();
    // Unread, they are closed with the socket. Received with none free, they would be closed by the kernel in this thread.
    if (user_->is_full(Resource::descriptors) && wire::next_has_descriptors(socket_.get())) {
        if (handler) handler->on_refused(user_->refusal(Resource::descriptors));
        MutexLock lock(mutex_);
        busy_ = false;
        return;
    }
    auto received = wire::receive_packet(socket_.get(), buffer, false, &descriptors);
    if (received) descriptors = std::move(received->descriptors);
    Budgets::Charge charge;
    if (!descriptors.empty()) {
        charge = {user_, Resource::descriptors};
        charge.add(descriptors.size());
    }
    if (received && !received->end && received->bytes > 0) {
        if (handler) handler->on_packet({buffer.data(), received->bytes}, descriptors);
    }
    reapers_.close(user_->uid(), std::move(descriptors), std::move(charge));
    MutexLock lock(mutex_);
    busy_ = false;
    if (!received) end_later(received.error().message);
    else if (received->end) end_later("the client has disconnected");
}

void Connection::send(wire::Bytes packet, std::span<const int> descriptors) {
    MutexLock lock(mutex_);
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
    if (!queued_bytes_.take(outgoing.bytes.size())) return end_later(queued_bytes_.refusal().message);
    if (!queued_descriptors_.take(outgoing.descriptors.size())) return end_later(queued_descriptors_.refusal().message);
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
        queued_bytes_.give(next.bytes.size());
        queued_descriptors_.give(next.descriptors.size());
        queue_.pop_front();
    }
    update_interest();
}

void Connection::hold(bool held) {
    MutexLock lock(mutex_);
    held_ = held;
    update_interest();
}

bool Connection::is_flushed() {
    MutexLock lock(mutex_);
    return queue_.empty() || ended_;
}

bool Connection::is_busy() {
    MutexLock lock(mutex_);
    return busy_;
}

void Connection::update_interest() {
    uint32_t wanted = 0;
    const bool full = queued_bytes_.amount() >= limits::kSessionQueueBytes ||
                      queued_descriptors_.amount() >= limits::kMessageDescriptors ||
                      (!queue_.empty() && user_->is_half_full(Resource::reply_bytes));
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
    loop_.post([handler = handler_, why = std::move(why)] {
        if (auto alive = handler.lock()) alive->on_end(why);
    });
}

}  // namespace gshm::core
