// One client's socket: packets in, replies out, with bounds on both. Knows nothing of what they mean.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "daemon/loop.h"
#include "store/credentials.h"
#include "wire/message.h"

namespace gshm {

class Connection {
public:
    struct Handler {
        virtual ~Handler() = default;
        virtual void on_packet(wire::Bytes packet, std::vector<UniqueFd> descriptors) = 0;
        // The peer is gone, or what it sent cannot be read. Called once, and never from inside send().
        virtual void on_end(std::string_view why) = 0;
    };

    // Asks the kernel who the peer is.
    static Result<Credentials> peer_of(int socket);

    // Both the loop and the handler must outlive it. pid is watched too: a session ends with its process even if a
    // forked child still has the socket.
    static Result<std::unique_ptr<Connection>> create(EventLoop& loop, UniqueFd socket, pid_t pid, Handler& handler);
    ~Connection();

    // Queues what the socket does not take; while much is queued, or `held` is set, nothing more is read.
    void send(wire::Bytes packet, std::span<const int> descriptors);
    void hold(bool held);
    bool is_flushed() const { return queue_.empty() || ended_; }

private:
    struct Outgoing {
        std::vector<uint8_t> bytes;
        std::vector<UniqueFd> descriptors;
    };

    Connection(EventLoop& loop, UniqueFd socket, Handler& handler)
        : loop_(loop), socket_(std::move(socket)), handler_(handler) {}
    void on_events(uint32_t events);
    void read_one();
    void flush();
    void update_interest();
    void end_later(std::string why);

    EventLoop& loop_;
    UniqueFd socket_;
    UniqueFd process_;
    Handler& handler_;
    std::deque<Outgoing> queue_;
    size_t queued_bytes_ = 0;
    size_t queued_descriptors_ = 0;
    bool held_ = false;
    bool ended_ = false;
    uint32_t interest_ = 0;
    // Tells posted tasks that the connection has gone.
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace gshm
