// The part of a ring that gshmd serves: its shared memory, and what gshmd was told of files and objects. Made anew, with
// all that, over every new connection.
#pragma once

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "client/core.h"
#include "ring/producer.h"

struct gshm_object;

namespace gshm::core::client {

class RemoteRing {
public:
    static Result<std::unique_ptr<RemoteRing>> create(std::shared_ptr<Core> core, uint32_t entries);
    ~RemoteRing();

    // Null: nobody uses it for now, and its connection may end.
    void set_core(std::shared_ptr<Core> core) { core_ = std::move(core); }
    ring::Producer& producer() { return producer_; }
    // gshmd has not been replaced since attach(), as far as is known.
    bool is_attached() const { return connection_number_ == core_->connection().number(); }
    // Asks gshmd whether it is there; waits for the next one if not.
    Status look_for_daemon();
    // Begins anew with the gshmd that is there now: an empty ring that knows nothing.
    Status attach() EXCLUDES(mutex_);

    // The slot that stands for the object. Held, as often as it is asked for, until it is let go of.
    uint32_t hold(gshm_object& object, bool write, bool* ret_is_new) EXCLUDES(mutex_);
    void let_go(uint32_t slot) EXCLUDES(mutex_);
    // Tells gshmd of these slots, as far as it does not know them. Where that fails: ret_errors, by slot.
    Status announce(std::span<const uint32_t> slots, std::unordered_map<uint32_t, Error>& ret_errors) EXCLUDES(mutex_);
    // The same for a file.
    Status announce_file(uint32_t slot, int fd);
    void forget_file(uint32_t slot);
    // Its slot is free again, and gshmd is told so. False: it is held. From any thread.
    bool release(const gshm_object& object) EXCLUDES(mutex_);

private:
    struct Slot {
        gshm_object* object = nullptr;
        uint32_t held = 0;
        bool write = false;
        bool known = false;  // to gshmd
    };

    RemoteRing(std::shared_ptr<Core> core, ring::Producer producer, uint32_t entries)
        : core_(std::move(core)), entries_(entries), producer_(std::move(producer)) {}
    struct Wanted {
        uint32_t slot;
        uint64_t id;
        uint64_t epoch;
        bool write;
    };
    Status announce_batch(std::span<const Wanted> wanted, std::unordered_map<uint32_t, Error>& ret_errors)
        EXCLUDES(mutex_);

    std::shared_ptr<Core> core_;
    const uint32_t entries_;
    ring::Producer producer_;
    uint32_t number_ = 0;
    uint64_t connection_number_ = 0;  // 0: not attached yet
    std::vector<bool> files_known_;

    Mutex mutex_;
    std::vector<Slot> slots_ GUARDED_BY(mutex_);
    std::vector<uint32_t> free_slots_ GUARDED_BY(mutex_);
    std::unordered_map<const gshm_object*, uint32_t> by_object_ GUARDED_BY(mutex_);
};

}  // namespace gshm::core::client
