// The connection to gshmd: requests in flight by id, from any thread; made again when it is lost.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "client/fork.h"
#include "client/greeting.h"
#include "device/device.h"
#include "wire/message.h"

namespace gshm::core::client {

// What this process holds of an object, in leases.
struct Held {
    uint32_t readers = 0;
    uint32_t writers = 0;
};
using HeldObjects = std::unordered_map<uint64_t, Held>;  // by id

// A verified reply. `epoch` tells which session it came from: leases and extent ids are that session's. A session
// outlives its connection if gshmd is started anew and takes it up.
struct Answer {
    std::vector<uint8_t> bytes;
    std::vector<UniqueFd> descriptors;
    uint64_t epoch = 0;
    const wire::Reply* reply = nullptr;
    std::shared_ptr<const std::vector<RemoteDevice>> devices;  // what a record's device index means

    Result<const RemoteDevice*> device(size_t index) const {
        if (index < devices->size()) return &(*devices)[index];
        return fail(EPROTO, "gshmd named a device it does not have");
    }
};

// What to do when the connection is lost between request and reply.
enum class Lost { retry, report };

class DaemonConnection final : public ForkSensitive {
public:
    // A gshmd that dies at every request is not asked for ever.
    static constexpr int kAttempts = 20;
    using Build = std::function<flatbuffers::Offset<void>(flatbuffers::FlatBufferBuilder&)>;

    static Result<std::unique_ptr<DaemonConnection>> create(std::string dir, int timeout_ms);
    // Ends the session, also if the connection is lost.
    ~DaemonConnection() override;

    // Asked when a session is taken up again: what is held of it. Calls nothing of the connection.
    using CountHeld = std::function<void(uint64_t epoch, HeldObjects& held)>;
    void set_count_held(CountHeld count) EXCLUDES(mutex_);

    // The reply, whatever it says; an Error if there is none, or if the reply is an error without a body.
    Result<Answer> call(wire::RequestBody kind, const Build& build, Lost lost) EXCLUDES(mutex_) {
        return call_on(0, kind, build, lost);
    }
    // The same, but in the session of that epoch or not at all (ESTALE): ids and leases are a session's own.
    Result<Answer> call_on(uint64_t epoch, wire::RequestBody kind, const Build& build, Lost lost = Lost::report,
                           std::span<const int> descriptors = {}) EXCLUDES(mutex_);
    // Several requests in flight, a few at a time; hands over the answers in the order of the requests. If they grant
    // leases (an OpenReply), these count as held until on_answer has returned.
    using OnAnswer = std::function<void(size_t index, Result<Answer> answer)>;
    void call_all(wire::RequestBody kind, const std::vector<Build>& builds, Lost lost, Access grants,
                  const OnAnswer& on_answer) EXCLUDES(mutex_);
    // As far as is known: ids of that session still mean the same.
    bool is_current(uint64_t epoch) EXCLUDES(mutex_) {
        MutexLock lock(mutex_);
        return epoch == epoch_;
    }
    // A number that changes with every connection: what is known to gshmd by connection must be told again.
    uint64_t number() EXCLUDES(mutex_);
    // Without a reply, in the session of that epoch or not at all. Does not wait for a gshmd that is away. `counted`:
    // only if what is held was counted so many times; since then gshmd has been told of it.
    void post(wire::RequestBody kind, const Build& build, uint64_t epoch, std::optional<uint64_t> counted = std::nullopt)
        EXCLUDES(mutex_);

    const std::string& dir() const { return dir_; }
    int timeout_ms() const { return timeout_ms_; }

private:
    struct Pending {
        bool done = false;
        std::optional<Access> grants;  // leases of that kind
        Result<Answer> answer = std::unexpected(Error{ECONNRESET, {}});
    };
    struct Ticket {
        uint64_t id = 0;
        uint64_t epoch = 0;
    };

    DaemonConnection(std::string dir, int timeout_ms);
    void abandon_in_child() override;

    Status ensure_connected() REQUIRES(mutex_);
    Status connect_once() REQUIRES(mutex_);
    // False: the connection was lost before the answer.
    bool say_goodbye() REQUIRES(mutex_);
    // Tells a gshmd that has taken the session up what is still held.
    Status reconcile(int socket) REQUIRES(mutex_);
    // Ends the connection that this socket is, unless another has taken its place.
    void lose(const std::shared_ptr<UniqueFd>& socket, const Error& error) REQUIRES(mutex_);
    // Sends; connects first, and again if the connection turns out to be dead before anything went out.
    struct Sending {
        std::span<const int> descriptors;
        uint64_t only_epoch = 0;
        bool expect = true;
        std::optional<Access> grants = std::nullopt;
        std::optional<uint64_t> only_counted = std::nullopt;
    };
    Result<Ticket> start(wire::RequestBody kind, const Build& build, const Sending& sending) EXCLUDES(mutex_);
    Result<Answer> finish(Ticket ticket) EXCLUDES(mutex_);
    // Reads one packet, with the lock let go meanwhile. The caller has made sure that nobody else does.
    void read_one() REQUIRES(mutex_);
    void wait_until_writable() REQUIRES(mutex_);

    const std::string dir_;
    const int timeout_ms_;
    const uint64_t generation_ = fork_count();

    Mutex mutex_;
    std::condition_variable changed_;
    // Shared with whoever reads or polls without the lock, so that its number is not reused under them.
    std::shared_ptr<UniqueFd> socket_ GUARDED_BY(mutex_);
    uint64_t epoch_ GUARDED_BY(mutex_) = 0;
    uint64_t number_ GUARDED_BY(mutex_) = 0;
    uint64_t instance_ GUARDED_BY(mutex_) = 0;
    Secret secret_ GUARDED_BY(mutex_);  // of the session; none: it cannot be taken up again
    CountHeld count_held_ GUARDED_BY(mutex_);
    uint64_t counted_ GUARDED_BY(mutex_) = 0;  // how many times it was called
    // By answers that nobody has made objects of yet.
    struct Granted {
        uint64_t epoch = 0;
        Access access = Access::read;
        std::vector<uint64_t> ids;
    };
    std::unordered_map<uint64_t, Granted> granted_ GUARDED_BY(mutex_);
    uint64_t next_id_ GUARDED_BY(mutex_) = 1;
    bool reading_ GUARDED_BY(mutex_) = false;
    std::unordered_map<uint64_t, Pending> pending_ GUARDED_BY(mutex_);
    std::shared_ptr<const std::vector<RemoteDevice>> devices_ GUARDED_BY(mutex_);
    std::vector<uint8_t> buffer_;  // the reader's
};

}  // namespace gshm::core::client
