// The daemon's end of a ring. It believes nothing that it reads there: what cannot be breaks the ring, and nothing else.
// For one thread.
#pragma once

#include "base/fd.h"
#include "base/mapping.h"
#include "ring/layout.h"

namespace gshm::ring {

class Consumer {
public:
    // EINVAL unless the descriptor is a memfd that cannot shrink, of the right size and with the right header, and the
    // doorbell an eventfd.
    static Result<Consumer> create(UniqueFd memory, UniqueFd doorbell);

    int doorbell() const { return doorbell_.get(); }
    uint32_t entries() const { return view_.entries(); }

    // A copy of the next entry, if there is one and there will be room for its completion.
    bool take(Entry* ret_entry);
    // Of one that was taken. The client sees it, but sleeps on.
    void post(const Completion& completion);
    // Wakes it if it waits for what was posted: once for all of that, so that it finds many when it comes.
    void flush();
    // Whether the client has to ring. After true: look once more.
    void set_asleep(bool asleep);
    // The client has written what cannot be; nothing more is taken.
    bool is_broken() const { return broken_; }

private:
    Consumer(UniqueFd doorbell, Mapping mapping, uint32_t entries)
        : doorbell_(std::move(doorbell)), mapping_(std::move(mapping)), view_(mapping_.data(), entries) {}

    UniqueFd doorbell_;
    Mapping mapping_;
    View view_;
    // What the header says of these is for the client; here only these count.
    uint32_t accepted_ = 0;
    uint32_t completed_ = 0;
    bool posted_ = false;  // since flush()
    uint32_t taken_ = 0;  // what the client has said last
    bool broken_ = false;
};

}  // namespace gshm::ring
