#include "client/connection.h"

#include <algorithm>
#include <chrono>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "base/limits.h"
#include "wire/protocol_range.h"
#include "wire/records.h"

namespace gshm::core::client {
namespace {

// Enough to keep both sides busy, and few enough that unread answers fit into the socket.
constexpr size_t kWindow = 4;
constexpr int kGoodbyeTimeoutMs = 5000;

Result<Answer> to_answer(wire::Bytes packet, std::vector<UniqueFd> descriptors, uint64_t epoch) {
    Answer answer;
    answer.bytes.assign(packet.begin(), packet.end());
    answer.descriptors = std::move(descriptors);
    answer.epoch = epoch;
    answer.reply = TRY(wire::decode_reply(answer.bytes));
    return answer;
}

bool may_ask_again(const Error& error, Lost lost) {
    return error.code == ERESTART || (error.code == ECONNRESET && lost == Lost::retry);
}

Error error_of(const wire::Reply& reply) {
    return {reply.error(), std::string(wire::view(reply.message()))};
}

}  // namespace

DaemonConnection::DaemonConnection(std::string dir, int timeout_ms)
    : dir_(std::move(dir)), timeout_ms_(timeout_ms), buffer_(limits::kMessageBytes) {}

Result<std::unique_ptr<DaemonConnection>> DaemonConnection::create(std::string dir, int timeout_ms) {
    std::unique_ptr<DaemonConnection> connection(new DaemonConnection(std::move(dir), timeout_ms));
    MutexLock lock(connection->mutex_);
    TRY(connection->ensure_connected());
    return connection;
}

DaemonConnection::~DaemonConnection() {
    if (!check_fork_count(generation_)) return;  // a forked child: the mutex may be held forever
    MutexLock lock(mutex_);
    // If gshmd is killed before it reads the Goodbye, the next gshmd keeps the leases of this session until the process
    // ends. So this waits for the reply, and tells the next gshmd if necessary.
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        if (!socket_ && ((secret_.low | secret_.high) == 0 || !connect_once())) return;
        if (say_goodbye()) return;
        socket_.reset();
    }
}

bool DaemonConnection::say_goodbye() {
    flatbuffers::FlatBufferBuilder builder;
    const uint64_t id = next_id_++;
    auto body = wire::CreateGoodbye(builder);
    auto packet = wire::finish_request(builder, id, wire::RequestBody::Goodbye, body.Union());
    // Times out only if gshmd is stopped.
    auto ready = [&](short events) REQUIRES(mutex_) {
        pollfd wanted = {socket_->get(), events, 0};
        return poll(&wanted, 1, kGoodbyeTimeoutMs) != 0;
    };
    for (;;) {
        auto sent = wire::send_packet(socket_->get(), packet, {}, false);
        if (!sent) return false;
        if (*sent == wire::SendOutcome::sent) break;
        if (!ready(POLLOUT)) return true;
    }
    for (;;) {
        if (!ready(POLLIN)) return true;
        auto received = wire::receive_packet(socket_->get(), buffer_, true);
        if (!received || received->end) return false;
        auto reply = wire::decode_reply({buffer_.data(), received->bytes});
        if (!reply || (*reply)->id() == 0) return false;
        if ((*reply)->id() == id) return true;
    }
}

void DaemonConnection::set_count_held(CountHeld count) {
    MutexLock lock(mutex_);
    count_held_ = std::move(count);
}

uint32_t DaemonConnection::protocol() {
    MutexLock lock(mutex_);
    return protocol_;
}

uint64_t DaemonConnection::number() {
    MutexLock lock(mutex_);
    return number_;
}

void DaemonConnection::abandon_in_child() NO_THREAD_SAFETY_ANALYSIS {
    // No lock: this is the only thread of the child.
    if (socket_) ::close(socket_->take());
}

Status DaemonConnection::ensure_connected() {
    if (socket_) return {};
    using std::chrono::milliseconds;
    auto deadline = std::chrono::steady_clock::now() + milliseconds(timeout_ms_);
    for (milliseconds pause{1};; pause = std::min(pause * 2, milliseconds(50))) {
        auto connected = connect_once();
        if (connected) return {};
        if (!may_come(connected.error()) || std::chrono::steady_clock::now() + pause > deadline) return connected;
        std::this_thread::sleep_for(pause);
    }
}

Status DaemonConnection::connect_once() {
    auto greeting = TRY(greet(dir_, timeout_ms_, next_id_++, secret_));
    devices_ = std::move(greeting.devices);
    instance_ = greeting.instance;
    protocol_ = greeting.protocol;
    secret_ = greeting.secret;
    if (greeting.resumed) TRY(reconcile(greeting.socket.get()));
    else ++epoch_;
    ++number_;
    socket_ = std::make_shared<UniqueFd>(std::move(greeting.socket));
    return {};
}

Status DaemonConnection::reconcile(int socket) {
    HeldObjects held;
    if (count_held_) {
        ++counted_;
        count_held_(epoch_, held);
    }
    for (const auto& [ticket, granted] : granted_) {
        if (granted.epoch != epoch_) continue;
        for (uint64_t id : granted.ids) ++(granted.access == Access::write ? held[id].writers : held[id].readers);
    }
    flatbuffers::FlatBufferBuilder builder;
    auto next = held.begin();
    do {
        std::vector<uint64_t> ids;
        std::vector<uint32_t> readers;
        std::vector<uint32_t> writers;
        for (; next != held.end() && ids.size() < 4096; ++next) {
            ids.push_back(next->first);
            readers.push_back(next->second.readers);
            writers.push_back(next->second.writers);
        }
        builder.Clear();
        auto id_list = builder.CreateVector(ids);
        auto reader_list = builder.CreateVector(readers);
        auto body =
            wire::CreateReconcile(builder, id_list, reader_list, builder.CreateVector(writers), next == held.end());
        auto packet = wire::finish_request(builder, next_id_++, wire::RequestBody::Reconcile, body.Union());
        TRY(wire::send_packet(socket, packet, {}, true));
    } while (next != held.end());
    return {};
}

void DaemonConnection::lose(const std::shared_ptr<UniqueFd>& socket, const Error& error) {
    if (socket != socket_) return;
    shutdown(socket->get(), SHUT_RDWR);  // wakes the reader
    socket_.reset();
    for (auto& [id, pending] : pending_) {
        if (pending.done) continue;
        pending.done = true;
        // ERESTART: gshmd was replaced, and requests without a reply have had no effect.
        pending.answer = std::unexpected(Error{error.code == ERESTART ? ERESTART : ECONNRESET,
                                               "the connection to gshmd was lost: " + error.message});
    }
    changed_.notify_all();
}

Result<DaemonConnection::Ticket> DaemonConnection::start(wire::RequestBody kind, const Build& build,
                                                         const Sending& sending) {
    static thread_local flatbuffers::FlatBufferBuilder builder(16 << 10);
    MutexLock lock(mutex_);
    for (int attempt = 0;; ++attempt) {
        if (!sending.expect && !socket_) TRY(connect_once());
        TRY(ensure_connected());
        if (wire::first_protocol_of(kind) > protocol_) return std::unexpected(wire::too_old_for(kind, protocol_));
        if (sending.only_epoch != 0 && epoch_ != sending.only_epoch) {
            return fail(ESTALE, "the connection to gshmd was lost since this object was opened; open it again");
        }
        if (sending.only_counted && counted_ != *sending.only_counted) {
            return fail(ESTALE, "gshmd has been told of the held leases since");
        }
        Ticket ticket{next_id_++, epoch_};
        builder.Clear();
        auto packet = wire::finish_request(builder, ticket.id, kind, build(builder));
        if (sending.expect) pending_[ticket.id].grants = sending.grants;
        for (auto socket = socket_;;) {
            auto outcome = wire::send_packet(socket->get(), packet, sending.descriptors, false);
            if (outcome && *outcome == wire::SendOutcome::sent) return ticket;
            if (!outcome) {
                pending_.erase(ticket.id);
                const int code = outcome.error().code;
                if (code == EMSGSIZE) return std::unexpected(outcome.error());
                // The connection is closed. Replies that gshmd sent before are read first, since other threads may wait
                // for them.
                while (socket_ == socket && (code == EPIPE || code == ECONNRESET)) {
                    if (reading_) lock.wait(changed_);
                    else read_one();
                }
                lose(socket, outcome.error());
                if (attempt >= kAttempts) return std::unexpected(outcome.error());
                break;  // nothing was sent: try again on a new connection
            }
            wait_until_writable();
            if (socket_ != socket) {
                pending_.erase(ticket.id);
                break;
            }
        }
    }
}

// The socket may be full because gshmd waits for this client to read. So this reads, unless another thread does.
void DaemonConnection::wait_until_writable() {
    bool reader = !reading_;
    auto socket = socket_;
    pollfd events = {socket->get(), static_cast<short>(reader ? POLLIN | POLLOUT : POLLOUT), 0};
    if (reader) reading_ = true;
    mutex_.unlock();
    poll(&events, 1, 20);
    mutex_.lock();
    if (!reader) return;
    reading_ = false;
    if ((events.revents & POLLIN) != 0 && socket_ == socket) read_one();
    changed_.notify_all();
}

void DaemonConnection::read_one() {
    reading_ = true;
    uint64_t epoch = epoch_;
    auto socket = socket_;
    mutex_.unlock();
    auto received = wire::receive_packet(socket->get(), buffer_, true);
    mutex_.lock();
    reading_ = false;
    changed_.notify_all();  // another thread may have to read now
    // The connection was lost meanwhile: its waiting requests have failed, and its leases are gone.
    if (socket != socket_) return;
    if (!received) return lose(socket, received.error());
    if (received->end) return lose(socket, {ECONNRESET, "gshmd has gone"});
    auto answer = to_answer({buffer_.data(), received->bytes}, std::move(received->descriptors), epoch);
    if (!answer) return lose(socket, answer.error());
    answer->devices = devices_;
    uint64_t id = answer->reply->id();
    if (id == 0) return lose(socket, error_of(*answer->reply));
    auto pending = pending_.find(id);
    if (pending == pending_.end()) return;
    if (const auto* opened = answer->reply->body_as_OpenReply(); opened != nullptr && pending->second.grants) {
        Granted& granted = granted_[id];
        granted.epoch = epoch;
        granted.access = *pending->second.grants;
        const auto records = wire::records_of(*opened);
        for (size_t i = 0; i < records.size(); ++i) {
            const wire::OpenRecord record = records[i];
            if (record.status() == 0) granted.ids.push_back(record.id());
        }
    }
    pending->second.done = true;
    pending->second.answer = std::move(answer);
}

Result<Answer> DaemonConnection::finish(Ticket ticket) {
    MutexLock lock(mutex_);
    for (;;) {
        auto pending = pending_.find(ticket.id);
        if (pending->second.done) {
            auto answer = std::move(pending->second.answer);
            pending_.erase(pending);
            return answer;
        }
        if (reading_) lock.wait(changed_);
        else read_one();
    }
}

Result<Answer> DaemonConnection::call_on(uint64_t epoch, wire::RequestBody kind, const Build& build, Lost lost,
                                         std::span<const int> descriptors) {
    for (int attempt = 0;; ++attempt) {
        Ticket ticket = TRY(start(kind, build, {.descriptors = descriptors, .only_epoch = epoch}));
        auto answer = finish(ticket);
        if (!answer && attempt < kAttempts && may_ask_again(answer.error(), lost)) continue;
        if (!answer) return answer;
        const auto& reply = *answer->reply;
        if (reply.error() != 0 && reply.body_type() == wire::ReplyBody::NONE) return std::unexpected(error_of(reply));
        return answer;
    }
}

void DaemonConnection::call_all(wire::RequestBody kind, const std::vector<Build>& builds, Lost lost, Access grants,
                                const OnAnswer& on_answer) {
    auto begin = [&](size_t i) { return start(kind, builds[i], {.descriptors = {}, .grants = grants}); };
    std::vector<Result<Ticket>> tickets;
    for (size_t i = 0; i < builds.size(); ++i) {
        while (tickets.size() < builds.size() && tickets.size() < i + kWindow) tickets.push_back(begin(tickets.size()));
        for (int attempt = 0;; ++attempt) {
            auto answer = tickets[i] ? finish(*tickets[i]) : Result<Answer>(std::unexpected(tickets[i].error()));
            if (!answer && attempt < kAttempts && may_ask_again(answer.error(), lost)) {
                tickets[i] = begin(i);
                continue;
            }
            if (answer && answer->reply->error() != 0 && answer->reply->body_type() == wire::ReplyBody::NONE) {
                answer = std::unexpected(error_of(*answer->reply));
            }
            on_answer(i, std::move(answer));
            break;
        }
        if (!tickets[i]) continue;
        MutexLock lock(mutex_);
        granted_.erase(tickets[i]->id);
    }
}

void DaemonConnection::post(wire::RequestBody kind, const Build& build, uint64_t epoch,
                            std::optional<uint64_t> counted) {
    (void)start(kind, build, {.descriptors = {}, .only_epoch = epoch, .expect = false, .only_counted = counted});
}

}  // namespace gshm::core::client
