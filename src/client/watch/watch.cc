#include "client/watch/watch.h"

#include <algorithm>
#include <cstring>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "wire/records.h"

namespace gshm::core::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

int remaining_ms(steady_clock::time_point until) {
    auto left = std::chrono::ceil<milliseconds>(until - steady_clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
}

Error error_of(const wire::Reply& reply) {
    return {reply.error(), std::string(wire::view(reply.message()))};
}

}  // namespace

Watch::Watch(std::string dir, int connect_timeout_ms, std::string prefix)
    : dir_(std::move(dir)),
      connect_timeout_ms_(connect_timeout_ms),
      prefix_(std::move(prefix)),
      poll_(UniqueFd::adopt(epoll_create1(EPOLL_CLOEXEC))),
      signal_(UniqueFd::adopt(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))),
      buffer_(limits::kMessageBytes) {}

Result<std::unique_ptr<Watch>> Watch::create(std::string dir, int connect_timeout_ms, std::string prefix,
                                             bool existing) {
    std::unique_ptr<Watch> watch(new Watch(std::move(dir), connect_timeout_ms, std::move(prefix)));
    if (!watch->poll_ || !watch->signal_) return fail_errno("cannot make a descriptor for a watch");
    epoll_event event = {};
    event.events = EPOLLIN;
    if (epoll_ctl(watch->poll_.get(), EPOLL_CTL_ADD, watch->signal_.get(), &event) != 0) return fail_errno("epoll_ctl");
    MutexLock lock(watch->mutex_);
    TRY(watch->connect_in_time(existing, steady_clock::time_point::max()));
    return watch;
}

Watch::~Watch() = default;

void Watch::abandon_in_child() NO_THREAD_SAFETY_ANALYSIS {
    // No lock: this is the only thread of the child. The epoll instance is shared with the parent, and stays unchanged.
    for (UniqueFd* fd : {&socket_, &poll_, &signal_}) {
        if (*fd) ::close(fd->take());
    }
}

Status Watch::send(wire::RequestBody kind, flatbuffers::FlatBufferBuilder& builder, flatbuffers::Offset<void> body) {
    TRY(wire::send_packet(socket_.get(), wire::finish_request(builder, next_id_++, kind, body), {}, true));
    return {};
}

Status Watch::ask() {
    flatbuffers::FlatBufferBuilder builder;
    TRY(send(wire::RequestBody::WatchNext, builder, wire::CreateWatchNext(builder).Union()));
    asked_ = true;
    return {};
}

Status Watch::connect(bool existing) {
    auto greeting = TRY(greet(dir_, connect_timeout_ms_, next_id_++, secret_));
    socket_ = std::move(greeting.socket);
    secret_ = greeting.secret;
    devices_ = std::move(greeting.devices);
    auto subscribe = [&]() REQUIRES(mutex_) -> Status {
        flatbuffers::FlatBufferBuilder builder;
        if (greeting.resumed) {
            auto nothing = wire::CreateReconcile(builder, 0, 0, 0, true);  // no leases are held
            TRY(send(wire::RequestBody::Reconcile, builder, nothing.Union()));
            builder.Clear();
        }
        auto create = wire::CreateWatchCreate(builder, builder.CreateString(prefix_), existing);
        TRY(send(wire::RequestBody::WatchCreate, builder, create.Union()));
        auto received = TRY(wire::receive_packet(socket_.get(), buffer_, true));
        if (received.end) return fail(ECONNRESET, "gshmd has gone");
        const auto* reply = TRY(wire::decode_reply({buffer_.data(), received.bytes}));
        if (reply->error() != 0) return std::unexpected(error_of(*reply));
        TRY(ask());
        epoll_event event = {};
        event.events = EPOLLIN;
        if (epoll_ctl(poll_.get(), EPOLL_CTL_ADD, socket_.get(), &event) != 0) return fail_errno("epoll_ctl");
        return {};
    };
    auto subscribed = subscribe();
    if (!subscribed) socket_.reset();
    return subscribed;
}

Status Watch::connect_in_time(bool existing, steady_clock::time_point until) {
    until = std::min(until, steady_clock::now() + milliseconds(connect_timeout_ms_));
    for (milliseconds pause{1};; pause = std::min(pause * 2, milliseconds(50))) {
        auto connected = connect(existing);
        if (connected) return {};
        const Error& error = connected.error();
        if (cancelled_) return fail(ECANCELED, "the watch is being destroyed");
        if (!may_come(error) || steady_clock::now() + pause > until) return connected;
        std::this_thread::sleep_for(pause);
    }
}

void Watch::lose() {
    epoll_ctl(poll_.get(), EPOLL_CTL_DEL, socket_.get(), nullptr);
    socket_.reset();
    asked_ = false;
    set_signal(true);
}

void Watch::set_signal(bool on) {
    if (signalled_ == on) return;
    signalled_ = on;
    uint64_t count = 1;
    [[maybe_unused]] ssize_t done =
        on ? ::write(signal_.get(), &count, sizeof count) : ::read(signal_.get(), &count, sizeof count);
}

Status Watch::add(const wire::WatchReply& reply) {
    const auto records = wire::records_of(reply);
    if (reply.names()->size() != records.size() || reply.old_names()->size() != records.size()) {
        return fail(EPROTO, "gshmd told of events without names");
    }
    for (unsigned i = 0; i < records.size(); ++i) {
        const wire::EventRecord record = records[i];
        Event event;
        event.name = wire::view(reply.names()->Get(i));
        event.old_name = wire::view(reply.old_names()->Get(i));
        event.event.event = record.event();
        event.event.kind = record.kind();
        event.event.state = record.state();
        event.event.id = record.id();
        event.event.replaced_id = record.replaced();
        event.event.size_bytes = record.size_bytes();
        event.event.time_ns = record.time_ns();
        if (record.kind() == GSHM_KIND_OBJECT) {
            if (record.device() >= devices_->size()) return fail(EPROTO, "gshmd named a device it does not have");
            const std::string& device = (*devices_)[record.device()].name;
            memcpy(event.event.device, device.data(), std::min(device.size(), sizeof event.event.device - 1));
        }
        events_.push_back(std::move(event));
    }
    return {};
}

Status Watch::receive() {
    auto received = wire::receive_packet(socket_.get(), buffer_, false);
    if (!received || received->end) {
        lose();
        return {};
    }
    if (received->bytes == 0) return {};
    auto reply = wire::decode_reply({buffer_.data(), received->bytes});
    // A reply with id 0 ends the session.
    if (!reply || (*reply)->id() == 0) {
        lose();
        return {};
    }
    asked_ = false;
    if ((*reply)->error() != 0) return std::unexpected(error_of(**reply));
    const auto* events = (*reply)->body_as_WatchReply();
    if (events == nullptr) return fail(EPROTO, "gshmd answered something else than WatchReply");
    return add(*events);
}

Result<gshm_event> Watch::next(int timeout_ms) {
    const bool for_ever = timeout_ms < 0;
    const auto until = for_ever ? steady_clock::time_point::max() : steady_clock::now() + milliseconds(timeout_ms);
    MutexLock lock(mutex_);
    for (;;) {
        if (cancelled_) return fail(ECANCELED, "the watch is being destroyed");
        if (!events_.empty()) {
            current_ = std::move(events_.front());
            events_.pop_front();
            set_signal(!events_.empty() || !socket_);
            // Asks for more only when all events are taken, so that further ones stay at the daemon, which bounds them.
            // Asks at once then, since a poll of the descriptor waits for the answer.
            if (events_.empty() && socket_ && !asked_ && !ask()) lose();
            current_.event.name = current_.name.c_str();
            current_.event.old_name = current_.old_name.c_str();
            return current_.event;
        }
        if (!socket_) {
            TRY(connect_in_time(false, until));
            // Events since the loss of the connection are unknown.
            Event missed;
            missed.event.event = GSHM_EVENT_OVERFLOW;
            missed.event.time_ns = SystemClock().now_ns();
            events_.push_back(std::move(missed));
            continue;
        }
        if (!asked_ && !ask()) {
            lose();
            continue;
        }
        pollfd fds[] = {{socket_.get(), POLLIN, 0}, {signal_.get(), POLLIN, 0}};
        const int ready = poll(fds, 2, for_ever ? -1 : remaining_ms(until));
        if (ready < 0 && errno == EINTR) return fail(EINTR, "interrupted by a signal");
        if (ready < 0) return fail_errno("poll");
        if (ready == 0) return fail(ETIMEDOUT, "nothing has happened in time");
        if (fds[0].revents != 0) TRY(receive());
    }
}

void Watch::cancel() {
    cancelled_ = true;
    uint64_t one = 1;
    [[maybe_unused]] ssize_t put = ::write(signal_.get(), &one, sizeof one);
    MutexLock lock(mutex_);
}

}  // namespace gshm::core::client
