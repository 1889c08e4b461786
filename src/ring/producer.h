// The client's end of a ring. For one thread at a time.
#pragma once

#include "base/fd.h"
#include "base/mapping.h"
#include "ring/layout.h"

namespace gshm::ring {

class Producer {
public:
    // entries is a power of two. ENOSPC where there is no shared memory for it: its pages are taken now, not when they are
    // touched.
    static Result<Producer> create(uint32_t entries);

    // What the other end is given.
    int memory() const { return file_.get(); }
    int doorbell() const { return doorbell_.get(); }
    uint32_t entries() const { return view_.entries(); }

    // Never more than entries() that are not completed and taken. Nobody sees it before publish().
    void push(const Entry& entry);
    void publish();
    // The next completion, if there is one. False also if what the other end says cannot be: is_broken() then.
    bool take(Completion* ret_completion);
    bool is_broken() const { return broken_; }

    // ---- sleeping until there are `least` to take: announce(), look again, sleep on word(), withdraw() ----
    uint32_t available() const;
    void announce(uint32_t least);
    void withdraw();
    const std::atomic<uint32_t>& word() const { return view_.header().completed; }

private:
    Producer(UniqueFd file, UniqueFd doorbell, Mapping mapping, uint32_t entries)
        : file_(std::move(file)),
          doorbell_(std::move(doorbell)),
          mapping_(std::move(mapping)),
          view_(mapping_.data(), entries) {}

    UniqueFd file_;
    UniqueFd doorbell_;
    Mapping mapping_;
    View view_;
    uint32_t submitted_ = 0;
    uint32_t taken_ = 0;
    bool broken_ = false;
};

}  // namespace gshm::ring
