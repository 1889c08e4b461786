#include "daemon/keeper.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/spawn.h"
#include "daemon/process.h"
#include "keeper/message.h"
#include "wire/message.h"

namespace gshm::core {
namespace {

using keeper::Kind;
using keeper::Message;

Message make_message(Kind kind, std::span<const uint64_t> keys = {}) {
    Message message = {};
    message.kind = kind;
    message.count = static_cast<uint32_t>(keys.size());
    std::ranges::copy(keys, message.keys);
    return message;
}

Status send(int socket, const Message& message, std::span<const int> descriptors = {}) {
    wire::Bytes bytes(reinterpret_cast<const uint8_t*>(&message), bytes_of(message));
    for (int i = 0;; ++i) {
        auto sent = wire::send_packet(socket, bytes, descriptors, true);
        if (sent) return {};
        // The kernel limits the descriptors in flight: the send is repeated until some have been received.
        bool passes = sent.error().code == ETOOMANYREFS || sent.error().code == ENOBUFS;
        if (!passes || i == 1000) return std::unexpected(sent.error());
        usleep(1000);
    }
}

Result<Message> receive(int socket, std::vector<UniqueFd>* ret_descriptors) {
    Message message = {};
    auto bytes = std::span(reinterpret_cast<uint8_t*>(&message), sizeof message);
    auto received = TRY(wire::receive_packet(socket, bytes, true));
    if (received.end) return fail(ECONNRESET, "gshm-keeper has gone");
    if (received.bytes == 0) return fail(ETIMEDOUT, "gshm-keeper does not answer (is it stopped?)");
    if (received.bytes < keeper::kHeadBytes || received.bytes != bytes_of(message)) {
        return fail(EPROTO, "gshm-keeper says something else");
    }
    *ret_descriptors = std::move(received.descriptors);
    return message;
}

Result<UniqueFd> connect_to_keeper(const std::string& dir) {
    auto socket = TRY(wire::connect_to(keeper_socket_path(dir)));
    // A keeper of another user must not get gshmd's memory.
    ucred peer = {};
    socklen_t length = sizeof peer;
    if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.uid != geteuid()) {
        return fail(EPERM, "{} belongs to another user", keeper_socket_path(dir));
    }
    timeval patience{10, 0};  // a stopped keeper must not block gshmd for ever
    setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return socket;
}

Result<Keeper::Kept> take_all(int socket) {
    TRY(send(socket, make_message(Kind::list)));
    Keeper::Kept kept;
    for (;;) {
        std::vector<UniqueFd> descriptors;
        Message message = TRY(receive(socket, &descriptors));
        if (message.kind == Kind::end) {
            const uint64_t version = message.count > 2 ? message.keys[2] : 1;
            if (version > keeper::kVersion) {
                return fail(
                    EPROTO,
                    "gshm-keeper was started by a newer gshmd and speaks version {} of its protocol, this gshmd "
                    "{}: start the newer gshmd; nothing is lost",
                    version, keeper::kVersion);
            }
            kept.instance = message.keys[0];
            if (kept.descriptors.size() != message.keys[1])
                return fail(EMFILE, "not all kept descriptors came through");
            return kept;
        }
        if (descriptors.size() != message.count) {
            return fail(EMFILE, "gshmd may have too few descriptors for what was kept (see `ulimit -n`)");
        }
        for (uint32_t i = 0; i < message.count; ++i) kept.descriptors[message.keys[i]] = std::move(descriptors[i]);
    }
}

class ProcessKeeper final : public Keeper {
public:
    ProcessKeeper(EventLoop& loop, std::string dir, std::function<void()> on_lost)
        : loop_(loop), dir_(std::move(dir)), on_lost_(std::move(on_lost)) {}
    ~ProcessKeeper() override {
        if (socket_) loop_.unwatch(socket_.get());
    }

    // False: no keeper runs.
    Result<bool> find(Kept* ret_kept) {
        auto socket = connect_to_keeper(dir_);
        if (!socket) {
            // After any other error a keeper may run and hold all memory.
            bool none = socket.error().code == ENOENT || socket.error().code == ECONNREFUSED;
            if (none) return false;
            return fail(socket.error().code, "cannot ask gshm-keeper for what it has: {}", socket.error().message);
        }
        auto all = take_all(socket->get());
        // A keeper that was just killed may still accept, and then closes the connection without an answer.
        if (!all && all.error().code == ECONNRESET) return false;
        *ret_kept = TRY(std::move(all));
        ucred peer = {};
        socklen_t length = sizeof peer;
        if (getsockopt(socket->get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0) pid_ = peer.pid;
        TRY(use(std::move(*socket)));
        return true;
    }

    Status start() {
        std::string path = keeper_socket_path(dir_);
        unlink(path.c_str());
        auto listener = TRY(wire::listen_at(path));
        const int descriptors[] = {listener.get()};
        pid_ = TRY(spawn_apart(program_beside("gshm-keeper"), {"gshm-keeper"}, descriptors));
        is_child_ = true;
        auto used = connect_and_use();
        if (!used) end_child();
        return used;
    }

    void put(uint64_t key, int fd) override REQUIRES(store_lock) {
        if (socket_) check(send(socket_.get(), make_message(Kind::put, {&key, 1}), {&fd, 1}));
    }
    void drop(std::span<const uint64_t> keys) override REQUIRES(store_lock) {
        for (; !keys.empty() && socket_; keys = keys.subspan(std::min(keys.size(), keeper::kMostKeys))) {
            check(send(socket_.get(), make_message(Kind::drop, keys.first(std::min(keys.size(), keeper::kMostKeys)))));
        }
    }
    void begin(uint64_t instance) override REQUIRES(store_lock) {
        instance_ = instance;
        if (socket_) check(send(socket_.get(), make_message(Kind::begin, {&instance, 1})));
    }
    void resume(uint64_t instance) override REQUIRES(store_lock) { instance_ = instance; }
    void stop() override REQUIRES(store_lock) {
        if (!socket_) return;
        loop_.unwatch(socket_.get());
        (void)send(socket_.get(), make_message(Kind::stop));
        // gshmd ends after the keeper, so that no process is left behind.
        std::vector<UniqueFd> none;
        auto ended = receive(socket_.get(), &none);
        socket_.reset();
        if (!ended && ended.error().code == ETIMEDOUT) end_process();
        if (is_child_) waitpid(pid_, nullptr, 0);
        unlink(keeper_socket_path(dir_).c_str());
    }
    int pid() const override REQUIRES_SHARED(store_lock) { return socket_ ? pid_ : 0; }

    void sync() override EXCLUDES(store_lock) {
        auto socket = connect_to_keeper(dir_);
        if (!socket || !send(socket->get(), make_message(Kind::sync))) return;  // no keeper, no other holders
        std::vector<UniqueFd> none;
        (void)receive(socket->get(), &none);
    }

private:
    Status connect_and_use() { return use(TRY(connect_to_keeper(dir_))); }

    // Also ends a keeper that an earlier daemon started: it would hold its descriptors for ever.
    void end_process() { kill_if_named(pid_, "gshm-keeper"); }
    void end_child() {
        end_process();
        if (std::exchange(is_child_, false)) waitpid(pid_, nullptr, 0);
        pid_ = 0;
    }

    Status use(UniqueFd socket) {
        TRY(loop_.watch(socket.get(), EPOLLIN, [this](uint32_t) {
            store_lock.assert_held();
            replace("it has ended");
        }));
        socket_ = std::move(socket);
        ++uses_;
        return {};
    }

    void check(const Status& sent) {
        // Not at once: the caller is in the middle of a change. Not for a keeper that was replaced meanwhile.
        if (sent) return;
        loop_.post([this, failed = uses_, why = sent.error().message] {
            store_lock.assert_held();
            if (failed == uses_) replace(why);
        });
    }

    void replace(const std::string& why) REQUIRES(store_lock) {
        if (socket_) loop_.unwatch(socket_.get());
        socket_.reset();
        ++uses_;
        end_child();
        log_warning("gshm-keeper is replaced: {}", why);
        if (auto started = start(); !started) {
            log_error("{}; what is here does not outlive gshmd until there is one", started.error().message);
            loop_.after(std::chrono::seconds(1), [this] {
                store_lock.assert_held();
                if (!socket_) replace("it was not to be had before");
            });
            return;
        }
        begin(instance_);
        on_lost_();
    }

    EventLoop& loop_;
    std::string dir_;
    std::function<void()> on_lost_;
    UniqueFd socket_;  // empty: no keeper at the moment
    pid_t pid_ = 0;
    bool is_child_ = false;
    uint64_t instance_ = 0;
    uint64_t uses_ = 0;  // changes with each keeper
};

}  // namespace

Result<Keeper::Kept> list_kept(const std::string& dir) {
    auto socket = connect_to_keeper(dir);
    if (!socket) {
        bool none = socket.error().code == ENOENT || socket.error().code == ECONNREFUSED;
        if (none) return Keeper::Kept();
        return std::unexpected(socket.error());
    }
    return take_all(socket->get());
}

Result<bool> holds_something(const std::string& dir) {
    return TRY(list_kept(dir)).instance != 0;
}

void stop_keeper(const std::string& dir) {
    auto socket = connect_to_keeper(dir);
    if (!socket || !send(socket->get(), make_message(Kind::stop))) return;
    std::vector<UniqueFd> none;
    (void)receive(socket->get(), &none);
    unlink(keeper_socket_path(dir).c_str());
}

std::string keeper_socket_path(const std::string& dir) {
    return dir + "/keeper.sock";
}

Result<std::unique_ptr<Keeper>> find_or_start_keeper(EventLoop& loop, const std::string& dir,
                                                     std::function<void()> on_lost, Keeper::Kept* ret_kept) {
    auto made = std::make_unique<ProcessKeeper>(loop, dir, std::move(on_lost));
    if (!TRY(made->find(ret_kept))) TRY(made->start());
    return made;
}

}  // namespace gshm::core
