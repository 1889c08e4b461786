// A watch: a session of its own with gshmd, which has one question for events open at all times. Made again, with an
// event that says so, when it is lost.
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

    // The event's names are the watch's, until the next call. ETIMEDOUT, EINTR, ECANCELED.
    Result<gshm_event> next(int timeout_ms) EXCLUDES(mutex_);
    // Who waits returns, and nobody is in next() any more when this returns.
    void cancel() EXCLUDES(mutex_);
    // An epoll descriptor, since the socket is another after gshmd was started anew.
    int fd() const { return poll_.get(); }
    Status check_fork() const { return check_fork_count(generation_); }

private:
    struct Event {
        gshm_event event = {};
        std::string name;
        std::string old_name;
    };

    Watch(std::string dir, int connect_timeout_ms, std::string prefix);
    void abandon_in_child() override;
    Status connect(bool existing) REQUIRES(mutex_);
    // Tries for as long as the connection's timeout and `until` allow.
    Status connect_in_time(bool existing, std::chrono::steady_clock::time_point until) REQUIRES(mutex_);
    Status send(wire::RequestBody kind, flatbuffers::FlatBufferBuilder& builder, flatbuffers::Offset<void> body)
        REQUIRES(mutex_);
    Status ask() REQUIRES(mutex_);
    // What has come, if anything.
    Status receive() REQUIRES(mutex_);
    Status add(const wire::WatchReply& reply) REQUIRES(mutex_);
    void lose() REQUIRES(mutex_);
    // Whether the descriptor is readable though nothing has come.
    void set_signal(bool on) REQUIRES(mutex_);

    const std::string dir_;
    const int connect_timeout_ms_;
    const std::string prefix_;
    const uint64_t generation_ = fork_count();
    UniqueFd poll_;
    UniqueFd signal_;  // readable as long as there are events here, or the connection is lost
    std::atomic<bool> cancelled_ = false;

    Mutex mutex_;  // held by who is in next()
    UniqueFd socket_ GUARDED_BY(mutex_);
    bool asked_ GUARDED_BY(mutex_) = false;  // and not answered yet
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
