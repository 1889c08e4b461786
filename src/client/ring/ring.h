// What a gshm_ring is: operations of one or several ranges, each of which gshmd or this process moves.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <span>
#include <unordered_set>
#include <vector>

#include "client/ring/local_ring.h"
#include "client/object.h"
#include "client/ring/remote_ring.h"

namespace gshm::core::client {

// For one thread at a time, but release() and wake().
class Ring {
public:
    // core may be null: for memory without a daemon alone.
    static Result<std::unique_ptr<Ring>> create(std::shared_ptr<Core> core, uint32_t entries);
    // One that has been put aside, or a new one.
    static Result<std::unique_ptr<Ring>> take(const std::shared_ptr<Core>& core, uint32_t entries);
    // Puts one aside for the next who wants as many entries: nothing is under way, and it has no files. It does not keep
    // the connection, and goes with it.
    static void put_aside(std::unique_ptr<Ring> ring);
    // Waits for what is under way.
    ~Ring();
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;

    uint32_t entries() const { return static_cast<uint32_t>(pieces_.size()); }
    Result<uint32_t> add_file(int fd);
    Status remove_file(uint32_t file);
    Status prepare(const gshm_io& io);
    // How many operations were begun.
    Result<size_t> submit();
    Result<size_t> wait(std::span<gshm_completion> ret_completions, size_t least, int timeout_ms);
    // What gshmd has under way is given up: nobody waits for it any more, and the ring is good for nothing but to be
    // destroyed. False: this process itself moves something, whose memory cannot be let go of.
    bool abandon();
    // A wait() that is under way, or the next that has to wait, ends at once.
    void wake();
    Status check_use() const { return check_fork_count(generation_); }

    // The object is closed or sealed next: gshmd is told that this ring does not use it any more, if that is so.
    static void release(gshm_object& object);

private:
    static constexpr uint32_t kNone = ~0u;
    enum class State : uint8_t { idle, prepared, begun, done };
    // One range of an operation. Its index is the token by which its completion is known.
    struct Piece {
        gshm_object* object = nullptr;
        ring::Entry entry = {};
        State state = State::idle;
        bool remote = false;
        uint32_t operation = kNone;
        uint32_t next = kNone;  // of the same operation, in the file's order
        int64_t result = 0;
        uint32_t path = 0;
    };
    struct Operation {
        uint64_t user_data = 0;
        uint32_t first = kNone;
        uint32_t left = 0;  // pieces that are not done
        bool begun = false;
    };
    struct File {
        UniqueFd fd;  // a copy: gshmd is handed it when it is first needed, and should it be started anew
        int mode = 0;  // O_ACCMODE
        std::shared_ptr<io::File> local;
        uint32_t pieces = 0;  // under way
    };

    Ring(std::shared_ptr<Core> core, uint32_t entries);
    Status check(const gshm_io& io) const;
    Result<LocalRing*> local(const gshm_object& object);
    void associate(gshm_object& object);
    void forget_objects();

    // Whatever gshmd is there has been told of what is under way, and of what is prepared if that is asked for.
    Status reach_daemon(State state);
    // Those that are to be (or to be again) in the remote ring.
    Status push_remote(State state);
    Status begin_local();
    // Over a new connection, if there is one.
    Status follow();
    // Takes what is there.
    void collect();
    void finish(uint32_t token, int64_t result, uint32_t path);
    void finish_operation(uint32_t index);
    void sleep(size_t missing, std::chrono::steady_clock::time_point until);

    std::shared_ptr<Core> core_;  // null while it is put aside
    const uint64_t generation_ = fork_count();
    std::vector<Piece> pieces_;
    std::vector<uint32_t> free_pieces_;
    std::vector<Operation> operations_;
    std::vector<uint32_t> free_operations_;
    std::vector<uint32_t> prepared_;  // tokens
    size_t prepared_operations_ = 0;
    size_t begun_operations_ = 0;
    size_t local_pieces_ = 0;   // under way
    size_t remote_pieces_ = 0;
    std::chrono::steady_clock::time_point heard_;  // when gshmd last gave a sign; none: not waited for yet
    std::deque<gshm_completion> ready_;
    std::vector<File> files_;
    std::unique_ptr<RemoteRing> remote_;
    bool is_behind_ = false;  // it is attached, and has not been told again of what is under way
    std::atomic<uint32_t> local_word_ = 0;  // changes with local completions, and when it is woken
    std::atomic<bool> woken_ = false;
    std::unique_ptr<LocalRing> local_[LocalRing::kKinds];
    std::unordered_set<gshm_object*> objects_;  // whose `rings` this is among; guarded like those
};

}  // namespace gshm::core::client
