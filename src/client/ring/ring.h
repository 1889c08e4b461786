// The implementation of gshm_ring: operations of one or several ranges, each moved by gshmd or by this process.
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <span>
#include <unordered_set>
#include <vector>

#include "base/futex.h"
#include "client/object.h"
#include "client/ring/local_ring.h"
#include "client/ring/remote_ring.h"

namespace gshm::core::client {

// For one thread at a time, except release(), wake() and nudge(); SharedRing adds a lock.
class Ring {
public:
    // core may be null, for memory without a daemon only.
    static Result<std::unique_ptr<Ring>> create(std::shared_ptr<Core> core, uint32_t entries);
    // An idle ring, or a new one.
    static Result<std::unique_ptr<Ring>> take(const std::shared_ptr<Core>& core, uint32_t entries);
    // Keeps an idle ring for reuse with the same number of entries. It has no transfers and no files. It does not keep
    // the connection, and ends with it.
    static void put_aside(std::unique_ptr<Ring> ring);
    // Waits for transfers under way.
    ~Ring();
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;

    uint32_t entries() const { return static_cast<uint32_t>(pieces_.size()); }
    Result<uint32_t> add_file(int fd);
    Status remove_file(uint32_t file);
    Status prepare(const gshm_io& io);
    // Returns the number of operations begun.
    Result<size_t> submit();
    Result<size_t> wait(std::span<gshm_completion> ret_completions, size_t least, int timeout_ms);

    // The steps of wait().
    using Clock = std::chrono::steady_clock;
    static Clock::time_point deadline(int timeout_ms);
    // Takes all available completions.
    void collect();
    size_t ready() const { return ready_.size(); }
    size_t under_way() const { return begun_operations_; }
    // Whether wake() was called since the last time.
    bool take_wake() { return woken_.exchange(false); }
    // After a while without a completion: finds the next gshmd if this one is gone, and repeats its transfers.
    Status look_for_daemon();
    // Between fall_asleep() and wake_up(), the ring may be used for everything but submit() and look_for_daemon().
    struct Nap {
        std::array<Awaited, 2> words = {};
        size_t count = 0;
        bool over = false;  // there is something to do already
    };
    Nap fall_asleep(size_t missing);
    static void sleep(const Nap& nap, Clock::time_point until);
    void wake_up(const Nap& nap);
    // Ends a sleep() that is under way or about to begin.
    void nudge();
    size_t take(std::span<gshm_completion> ret_completions);

    // Gives up the transfers of gshmd, without waiting. The ring can then only be destroyed. False: this process has
    // local transfers, whose memory must stay.
    bool abandon();
    // Ends a wait() that is under way, or the next one that would block.
    void wake();
    Status check_use() const { return check_fork_count(generation_); }
    bool is_here() const { return generation_ == fork_count(); }  // not in a forked child

    // Called before the object is closed or sealed: tells gshmd that the rings do not use it any more, unless they do.
    static void release(gshm_object& object);

private:
    static constexpr uint32_t kNone = ~0u;
    enum class State : uint8_t { idle, prepared, begun, done };
    // One range of an operation. Its index is the token of its completion.
    struct Piece {
        gshm_object* object = nullptr;
        ring::Entry entry = {};
        State state = State::idle;
        bool remote = false;
        uint32_t operation = kNone;
        uint32_t next = kNone;  // of the same operation, in file order
        int64_t result = 0;
        uint32_t path = 0;
    };
    struct Operation {
        uint64_t user_data = 0;
        uint32_t first = kNone;
        uint32_t left = 0;  // pieces still to complete
        bool begun = false;
    };
    struct File {
        UniqueFd fd;   // a duplicate, sent to gshmd on first use and again after a restart
        int mode = 0;  // O_ACCMODE
        std::shared_ptr<io::File> local;
        uint32_t pieces = 0;  // of transfers under way
    };

    Ring(std::shared_ptr<Core> core, uint32_t entries);
    Status check(const gshm_io& io) const;
    Result<LocalRing*> local(const gshm_object& object);
    void associate(gshm_object& object);
    void forget_objects();

    // Announces the transfers under way to the current gshmd, and also the prepared ones if `state` says so.
    Status reach_daemon(State state);
    // Pushes the pieces of that state into the remote ring.
    Status push_remote(State state);
    Status begin_local();
    // Sets the ring up again if there is a new connection.
    Status follow();
    void finish(uint32_t token, int64_t result, uint32_t path);
    void finish_operation(uint32_t index);

    std::shared_ptr<Core> core_;  // null while idle
    const uint64_t generation_ = fork_count();
    std::vector<Piece> pieces_;
    std::vector<uint32_t> free_pieces_;
    std::vector<Operation> operations_;
    std::vector<uint32_t> free_operations_;
    std::vector<uint32_t> prepared_;  // tokens
    size_t prepared_operations_ = 0;
    size_t begun_operations_ = 0;
    size_t local_pieces_ = 0;  // under way
    size_t remote_pieces_ = 0;
    std::chrono::steady_clock::time_point heard_;  // the last sign of gshmd; unset: no wait yet
    std::deque<gshm_completion> ready_;
    std::vector<File> files_;
    std::unique_ptr<RemoteRing> remote_;
    bool is_behind_ = false;                // attached, but transfers under way are not announced again yet
    std::atomic<uint32_t> local_word_ = 0;  // changes with local completions and in wake()
    std::atomic<bool> woken_ = false;
    std::unique_ptr<LocalRing> local_[LocalRing::kKinds];
    std::unordered_set<gshm_object*> objects_;  // with this ring in `rings`; guarded by the same lock
};

}  // namespace gshm::core::client
