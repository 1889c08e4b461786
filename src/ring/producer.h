// The client's end of a ring. For one thread at a time.
#pragma once

#include "base/fd.h"
#include "base/mapping.h"
#include "ring/layout.h"

namespace gshm::core::ring {

class Producer {
public:
    // entries is a power of two. ENOSPC: not enough shared memory; its pages are allocated here.
    static Result<Producer> create(uint32_t entries);

    // Descriptors for the other end.
    int memory() const { return file_.get(); }
    int doorbell() const { return doorbell_.get(); }
    uint32_t entries() const { return view_.entries(); }

    // At most entries() may be incomplete or untaken. Invisible to the daemon before publish().
    void push(const Entry& entry);
    void publish();
    // The next completion, if any. Also false if the other end has written an impossible value: see is_broken().
    bool take(Completion* ret_completion);
    bool is_broken() const { return broken_; }

    // ---- to sleep until `least` completions are available: announce(), check again, sleep on word(), withdraw() ----
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

}  // namespace gshm::core::ring
