// The connection to gshmd. Any thread may have requests in flight, matched by id. A lost connection is opened again.
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

// The leases that this process has on an object.
struct Held {
    uint32_t readers = 0;
    uint32_t writers = 0;
};
using HeldObjects = std::unordered_map<uint64_t, Held>;  // by id

// A verified reply. `epoch` identifies the session that sent it: leases and extent ids belong to that session. A
// session outlives its connection if a restarted gshmd resumes it.
struct Answer {
    std::vector<uint8_t> bytes;
    std::vector<UniqueFd> descriptors;
    uint64_t epoch = 0;
    const wire::Reply* reply = nullptr;
    std::shared_ptr<const std::vector<RemoteDevice>> devices;  // indexed by the device number of a record

    Result<const RemoteDevice*> device(size_t index) const {
        if (index < devices->size()) return &(*devices)[index];
        return fail(EPROTO, "gshmd named a device it does not have");
    }
};

// The reaction to a connection that is lost between request and reply.
enum class Lost { retry, report };

class DaemonConnection final : public ForkSensitive {
public:
    // Bounds the retries against a gshmd that dies at every request.
    static constexpr int kAttempts = 20;
    using Build = std::function<flatbuffers::Offset<void>(flatbuffers::FlatBufferBuilder&)>;

    static Result<std::unique_ptr<DaemonConnection>> create(std::string dir, int timeout_ms);
    // Ends the session, even if the connection is lost.
    ~DaemonConnection() override;

    // Called when a session is resumed, to count the leases still held. Must not call the connection.
    using CountHeld = std::function<void(uint64_t epoch, HeldObjects& held)>;
    void set_count_held(CountHeld count) EXCLUDES(mutex_);

    // Returns any reply that has a body. Returns an Error if there is no reply, or for an error reply without a body.
    Result<Answer> call(wire::RequestBody kind, const Build& build, Lost lost) EXCLUDES(mutex_) {
        return call_on(0, kind, build, lost);
    }
    // The same, but only in the session of that epoch (else ESTALE), since ids and leases belong to a session.
    Result<Answer> call_on(uint64_t epoch, wire::RequestBody kind, const Build& build, Lost lost = Lost::report,
                           std::span<const int> descriptors = {}) EXCLUDES(mutex_);
    // Keeps several requests in flight and passes the answers on in the order of the requests. Leases that an answer
    // grants (OpenReply) count as held until on_answer returns.
    using OnAnswer = std::function<void(size_t index, Result<Answer> answer)>;
    void call_all(wire::RequestBody kind, const std::vector<Build>& builds, Lost lost, Access grants,
                  const OnAnswer& on_answer) EXCLUDES(mutex_);
    // Whether ids of that session are still valid, as far as is known.
    bool is_current(uint64_t epoch) EXCLUDES(mutex_) {
        MutexLock lock(mutex_);
        return epoch == epoch_;
    }
    // A number that changes with every connection. State that gshmd keeps per connection must be sent again when it
    // changes.
    uint64_t number() EXCLUDES(mutex_);
    // The protocol of the connection. The next gshmd may speak another one. A request that the protocol does not have
    // is EOPNOTSUPP, without a round trip.
    uint32_t protocol() EXCLUDES(mutex_);
    // Sends without a reply, only in the session of that epoch. Does not wait for an absent gshmd. With `counted`, it
    // sends only if the leases have been counted that many times: a later count has already told gshmd.
    void post(wire::RequestBody kind, const Build& build, uint64_t epoch,
              std::optional<uint64_t> counted = std::nullopt) EXCLUDES(mutex_);

    const std::string& dir() const { return dir_; }
    int timeout_ms() const { return timeout_ms_; }

private:
    struct Pending {
        bool done = false;
        std::optional<Access> grants;  // leases of this kind
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
    // False: the connection was lost before the reply.
    bool say_goodbye() REQUIRES(mutex_);
    // Tells a gshmd that has resumed the session which leases are still held.
    Status reconcile(int socket) REQUIRES(mutex_);
    // Closes the connection of this socket, unless a new one has replaced it.
    void lose(const std::shared_ptr<UniqueFd>& socket, const Error& error) REQUIRES(mutex_);
    // Sends a request. Connects first, and again if the connection fails before anything was sent.
    struct Sending {
        std::span<const int> descriptors;
        uint64_t only_epoch = 0;
        bool expect = true;
        std::optional<Access> grants = std::nullopt;
        std::optional<uint64_t> only_counted = std::nullopt;
    };
    Result<Ticket> start(wire::RequestBody kind, const Build& build, const Sending& sending) EXCLUDES(mutex_);
    Result<Answer> finish(Ticket ticket) EXCLUDES(mutex_);
    // Reads one packet with the lock released. The caller has ensured that no other thread reads.
    void read_one() REQUIRES(mutex_);
    void wait_until_writable() REQUIRES(mutex_);

    const std::string dir_;
    const int timeout_ms_;
    const uint64_t generation_ = fork_count();

    Mutex mutex_;
    std::condition_variable changed_;
    // Shared with threads that read or poll without the lock, so that its descriptor is not closed and reused
    // meanwhile.
    std::shared_ptr<UniqueFd> socket_ GUARDED_BY(mutex_);
    uint64_t epoch_ GUARDED_BY(mutex_) = 0;
    uint64_t number_ GUARDED_BY(mutex_) = 0;
    uint32_t protocol_ GUARDED_BY(mutex_) = 0;
    uint64_t instance_ GUARDED_BY(mutex_) = 0;
    Secret secret_ GUARDED_BY(mutex_);  // of the session; none: it cannot be resumed
    CountHeld count_held_ GUARDED_BY(mutex_);
    uint64_t counted_ GUARDED_BY(mutex_) = 0;  // number of calls
    // Leases of answers that have not become objects yet.
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
    std::vector<uint8_t> buffer_;  // of the thread that reads
};

}  // namespace gshm::core::client
