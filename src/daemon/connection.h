// One client's socket: reads packets and sends replies, with bounds on both. Does not decode them.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/budgets.h"
#include "base/mutex.h"
#include "daemon/client_loops.h"
#include "daemon/reapers.h"
#include "store/credentials.h"
#include "wire/message.h"

namespace gshm::core {

class Connection : public std::enable_shared_from_this<Connection> {
public:
    // Called in the thread of the connection's loop.
    struct Handler {
        virtual ~Handler() = default;
        // Descriptors that are not taken are closed afterwards, in another thread.
        virtual void on_packet(wire::Bytes packet, std::vector<UniqueFd>& descriptors) = 0;
        // The peer has sent descriptors, and its user has too many. They were not received.
        virtual void on_refused(const Error& error) = 0;
        // The peer is gone, or its packets cannot be received. Called once, and never from inside send().
        virtual void on_end(std::string_view why) = 0;
    };

    // The peer's credentials, from the kernel.
    static Result<Credentials> peer_of(int socket);

    // Held at first. The loops and the reapers must outlive the connection. The handler is called only while the handler
    // is alive. The process of the peer is watched too: a session ends with its process even if a forked child still has
    // the socket.
    static Result<std::shared_ptr<Connection>> create(ClientLoops::Place place, Reapers& reapers, UniqueFd socket,
                                                      const Credentials& peer, std::shared_ptr<Budgets::User> user,
                                                      std::weak_ptr<Handler> handler);
    // Number of descriptors that a connection takes: the socket and the peer's process.
    static constexpr uint64_t kDescriptors = 2;
    ~Connection();

    EventLoop& loop() { return loop_; }

    // ---- from any thread ----
    // Queues packets that the socket does not take. While the queue is over its bound, or `held` is set, no packet is
    // read. The connection ends if its user has too many bytes in all such queues.
    void send(wire::Bytes packet, std::span<const int> descriptors) EXCLUDES(mutex_);
    void hold(bool held) EXCLUDES(mutex_);
    bool is_flushed() EXCLUDES(mutex_);
    // A handler is running.
    bool is_busy() EXCLUDES(mutex_);

private:
    struct Outgoing {
        std::vector<uint8_t> bytes;
        std::vector<UniqueFd> descriptors;
    };

    Connection(ClientLoops::Place place, Reapers& reapers, UniqueFd socket, std::shared_ptr<Budgets::User> user,
               std::weak_ptr<Handler> handler)
        : place_(std::move(place)),
          loop_(place_.loop()),
          reapers_(reapers),
          user_(std::move(user)),
          socket_(std::move(socket)),
          handler_(std::move(handler)),
          descriptors_(user_, Resource::descriptors),
          queued_bytes_(user_, Resource::reply_bytes),
          queued_descriptors_(user_, Resource::descriptors) {
        descriptors_.add(kDescriptors);
    }
    void on_events(uint32_t events) EXCLUDES(mutex_);
    void on_process_end() EXCLUDES(mutex_);
    // False: reading is held, or the connection has ended.
    bool begin_reading() EXCLUDES(mutex_);
    void read_one() EXCLUDES(mutex_);
    void flush() REQUIRES(mutex_);
    void update_interest() REQUIRES(mutex_);
    void end_later(std::string why) REQUIRES(mutex_);

    const ClientLoops::Place place_;
    EventLoop& loop_;  // of place_
    Reapers& reapers_;
    const std::shared_ptr<Budgets::User> user_;  // of the peer
    UniqueFd socket_;                            // constant until the destructor
    UniqueFd process_;
    const std::weak_ptr<Handler> handler_;
    Budgets::Charge descriptors_;

    Mutex mutex_;  // taken after the store lock, before the loop's mutex
    std::deque<Outgoing> queue_ GUARDED_BY(mutex_);
    Budgets::Charge queued_bytes_ GUARDED_BY(mutex_);
    Budgets::Charge queued_descriptors_ GUARDED_BY(mutex_);
    bool held_ GUARDED_BY(mutex_) = true;
    bool ended_ GUARDED_BY(mutex_) = false;
    bool busy_ GUARDED_BY(mutex_) = false;
    uint32_t interest_ GUARDED_BY(mutex_) = 0;
};

}  // namespace gshm::core
