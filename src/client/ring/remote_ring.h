// The part of a ring that gshmd serves: its shared memory, and the files and objects announced to gshmd. All of it is
// set up again on a new connection.
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

    // Null while the ring is idle, so that its connection may end.
    void set_core(std::shared_ptr<Core> core) { core_ = std::move(core); }
    ring::Producer& producer() { return producer_; }
    // Whether gshmd is still the one of attach(), as far as is known.
    bool is_attached() const { return connection_number_ == core_->connection().number(); }
    // Pings gshmd. If it is gone, waits for the next one.
    Status look_for_daemon();
    // Starts an empty ring with the current gshmd.
    Status attach() EXCLUDES(mutex_);

    // The slot of the object. Each hold() needs a let_go().
    uint32_t hold(gshm_object& object, bool write, bool* ret_is_new) EXCLUDES(mutex_);
    void let_go(uint32_t slot) EXCLUDES(mutex_);
    // Announces these slots to gshmd unless it knows them. Failures are in ret_errors, by slot.
    Status announce(std::span<const uint32_t> slots, std::unordered_map<uint32_t, Error>& ret_errors) EXCLUDES(mutex_);
    // The same for a file.
    Status announce_file(uint32_t slot, int fd);
    void forget_file(uint32_t slot);
    // Frees the slot of the object and tells gshmd. False: it is held. From any thread.
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
