// A watch: a session with gshmd that always has one request for events pending. After a lost connection it subscribes
// again and reports an overflow event.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "client/fork.h"
#include "client/greeting.h"
#include "gshm/gshm.h"

namespace gshm::core::client {

class Watch final : public ForkSensitive {
public:
    static Result<std::unique_ptr<Watch>> create(std::string dir, int connect_timeout_ms, std::string prefix,
                                                 bool existing);
    ~Watch() override;

    // The names of the event are valid until the next call. ETIMEDOUT, EINTR, ECANCELED.
    Result<gshm_event> next(int timeout_ms) EXCLUDES(mutex_);
    // Wakes a waiting thread and returns when no thread is in next().
    void cancel() EXCLUDES(mutex_);
    // An epoll descriptor, since the socket changes when gshmd restarts.
    int fd() const { return poll_.get(); }
    Status check_fork() const { return check_fork_count(generation_); }
    bool is_here() const { return generation_ == fork_count(); }  // not in a forked child

private:
    struct Event {
        gshm_event event = {};
        std::string name;
        std::string old_name;
    };

    Watch(std::string dir, int connect_timeout_ms, std::string prefix);
    void abandon_in_child() override;
    Status connect(bool existing) REQUIRES(mutex_);
    // Retries within the connection timeout and until `until`.
    Status connect_in_time(bool existing, std::chrono::steady_clock::time_point until) REQUIRES(mutex_);
    Status send(wire::RequestBody kind, flatbuffers::FlatBufferBuilder& builder, flatbuffers::Offset<void> body)
        REQUIRES(mutex_);
    Status ask() REQUIRES(mutex_);
    // Receives a packet, if there is one.
    Status receive() REQUIRES(mutex_);
    Status add(const wire::WatchReply& reply) REQUIRES(mutex_);
    void lose() REQUIRES(mutex_);
    // Makes the descriptor readable without a packet.
    void set_signal(bool on) REQUIRES(mutex_);

    const std::string dir_;
    const int connect_timeout_ms_;
    const std::string prefix_;
    const uint64_t generation_ = fork_count();
    UniqueFd poll_;
    UniqueFd signal_;  // readable while events are queued or the connection is lost
    std::atomic<bool> cancelled_ = false;

    Mutex mutex_;  // held during next()
    UniqueFd socket_ GUARDED_BY(mutex_);
    bool asked_ GUARDED_BY(mutex_) = false;  // a request is pending
    bool signalled_ GUARDED_BY(mutex_) = false;
    Secret secret_ GUARDED_BY(mutex_);
    uint64_t next_id_ GUARDED_BY(mutex_) = 1;
    std::shared_ptr<const std::vector<RemoteDevice>> devices_ GUARDED_BY(mutex_);
    std::deque<Event> events_ GUARDED_BY(mutex_);
    Event current_ GUARDED_BY(mutex_);
    std::vector<uint8_t> buffer_ GUARDED_BY(mutex_);
};

}  // namespace gshm::core::client

struct gshm_watch {
    std::unique_ptr<gshm::core::client::Watch> watch;
};
