// A fence is a page that the processes which share an object share, too. Its writer counts up when what it has written can be
// read; on a GPU the count is written by the stream itself, and a reader's stream waits for it there.
//
// Whoever has the page can write anything to it: nothing here may trust what it reads further than a number goes.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/fd.h"
#include "base/mapping.h"

namespace gshm::fence {

inline constexpr size_t kPageBytes = 4096;

enum class Writer : uint32_t {
    none = 0,  // yet
    here = 1,
    left = 2,  // it has closed the fence
    died = 3,
};

// Generations count from 1. Those up to `done` are done, those up to `published` have been promised.
struct Page {
    // By itself, since a GPU looks at it all the time.
    alignas(64) std::atomic<uint64_t> done;
    alignas(64) std::atomic<uint64_t> published;
    std::atomic<uint64_t> session;  // at gshmd, of the writer
    std::atomic<uint64_t> started;  // when its process was, as gshmd has it
    std::atomic<int32_t> pid;
    std::atomic<uint32_t> writer;   // Writer
    std::atomic<uint32_t> changes;  // whoever sleeps sleeps here
    // Promised by writers that died: (after, last] each. The oldest makes room for the newest.
    static constexpr uint32_t kLosses = 16;
    std::atomic<uint32_t> losses;  // how many there were
    struct {
        std::atomic<uint64_t> after;
        std::atomic<uint64_t> last;
    } lost[kLosses];
};
static_assert(sizeof(Page) <= kPageBytes && std::atomic<uint64_t>::is_always_lock_free);

// A page of zeros, which nobody has promised anything in.
Result<UniqueFd> make_page();

// What is done with it. Not the owner of the mapping.
class View {
public:
    View() = default;
    explicit View(const Mapping& mapping) : page_(reinterpret_cast<Page*>(mapping.data())) {}

    Writer writer() const { return static_cast<Writer>(page_->writer.load(std::memory_order_acquire)); }
    uint64_t session() const { return page_->session.load(std::memory_order_relaxed); }
    uint64_t published() const { return page_->published.load(std::memory_order_acquire); }
    uint64_t done() const { return page_->done.load(std::memory_order_acquire); }
    std::atomic<uint64_t>& done_word() const { return page_->done; }
    bool is_settled() const { return done() >= published(); }
    // It was promised by a writer that died before it was done.
    bool is_lost(uint64_t generation) const;

    // ---- the writer ----
    // The one that comes next.
    uint64_t next() const { return std::max(published(), done()) + 1; }
    void promise(uint64_t generation);  // after it was put on its way
    void leave();

    // ---- gshmd ----
    void claim(uint64_t session, int32_t pid, uint64_t started);
    int32_t pid() const { return page_->pid.load(std::memory_order_relaxed); }
    uint64_t started() const { return page_->started.load(std::memory_order_relaxed); }
    // The writer is gone, and so is whatever it had on its way: what it promised is released, and lost.
    void lose();
    // The writer is gone, and all it promised is done.
    void retire();

    // ---- whoever waits ----
    using Deadline = std::chrono::steady_clock::time_point;
    // Until it is promised, or done. EOWNERDEAD: the writer has died, EPIPE: it has left. ETIMEDOUT.
    Status await_promise(uint64_t generation, Deadline deadline) const;
    // Until it is done, or was lost.
    Status await_end(uint64_t generation, Deadline deadline) const;
    // EOWNERDEAD: it is lost.
    Status await_done(uint64_t generation, Deadline deadline) const;
    Status check_lost(uint64_t generation) const;

private:
    void change();  // and whoever sleeps looks again
    void end(Writer how);

    Page* page_ = nullptr;
};

}  // namespace gshm::fence
