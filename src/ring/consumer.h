// The daemon's end of a ring. It trusts nothing in the shared memory: an impossible value breaks the ring and nothing
// else. For one thread.
#pragma once

#include "base/fd.h"
#include "base/mapping.h"
#include "ring/layout.h"

namespace gshm::core::ring {

class Consumer {
public:
    // EINVAL unless the descriptor is a memfd sealed against shrinking, with the right size and header, and the
    // doorbell is an eventfd. Takes the doorbell, but not on failure: closing another kind of file may block.
    static Result<Consumer> create(const UniqueFd& memory, UniqueFd&& doorbell);

    int doorbell() const { return doorbell_.get(); }
    uint32_t entries() const { return view_.entries(); }

    // A copy of the next entry, if there is one and its completion has room.
    bool take(Entry* ret_entry);
    // Completes a taken entry. Visible to the client, but does not wake it.
    void post(const Completion& completion);
    // Wakes the client if it waits for posted completions: once for all of them.
    void flush();
    // Whether the client has to ring the doorbell. After true, check for entries once more.
    void set_asleep(bool asleep);
    // The client has written an impossible value; no more entries are taken.
    bool is_broken() const { return broken_; }

private:
    Consumer(UniqueFd doorbell, Mapping mapping, uint32_t entries)
        : doorbell_(std::move(doorbell)), mapping_(std::move(mapping)), view_(mapping_.data(), entries) {}

    UniqueFd doorbell_;
    Mapping mapping_;
    View view_;
    // The authoritative counters; those in the header are for the client.
    uint32_t accepted_ = 0;
    uint32_t completed_ = 0;
    bool posted_ = false;  // since flush()
    uint32_t taken_ = 0;   // last value written by the client
    bool broken_ = false;
};

}  // namespace gshm::core::ring
