// A fence is a page shared by the processes that share an object. Its writer increments a count when its data becomes
// readable. On a GPU the stream writes the count, and a reader's stream waits for it there.
//
// Any process with the page can write any value to it: the code here trusts the values as numbers only.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/fd.h"
#include "base/mapping.h"

namespace gshm::core::fence {

inline constexpr size_t kPageBytes = 4096;

enum class Writer : uint32_t {
    none = 0,  // none yet
    here = 1,
    left = 2,  // closed the fence
    died = 3,
};

// Generations count from 1. Those up to `done` are complete, those up to `published` are promised.
struct Page {
    // In a cache line of its own, since a GPU polls it.
    alignas(64) std::atomic<uint64_t> done;
    alignas(64) std::atomic<uint64_t> published;
    std::atomic<uint64_t> session;  // of the writer, at gshmd
    std::atomic<uint64_t> started;  // start time of its process, as gshmd records it
    std::atomic<int32_t> pid;
    std::atomic<uint32_t> writer;   // Writer
    std::atomic<uint32_t> changes;  // futex for sleepers
    // Generations promised by dead writers: intervals (after, last]. The newest replaces the oldest.
    static constexpr uint32_t kLosses = 16;
    std::atomic<uint32_t> losses;  // total number
    struct {
        std::atomic<uint64_t> after;
        std::atomic<uint64_t> last;
    } lost[kLosses];
    std::byte reserved[3732];
    // Number of the layout, less 1. Always the last word: processes of different versions share the page.
    std::atomic<uint32_t> layout;
};
static_assert(sizeof(Page) == kPageBytes && offsetof(Page, layout) == kPageBytes - sizeof(uint32_t));
static_assert(offsetof(Page, published) == 64 && offsetof(Page, losses) == 100 && offsetof(Page, lost) == 104);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// A zeroed page without a writer.
Result<UniqueFd> make_page();

// EPROTO: the page has a layout that this build does not know.
Status check_layout(int page);

// Operations on the page. Does not own the mapping.
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
    // The writer that promised it died before completing it.
    bool is_lost(uint64_t generation) const;

    // ---- the writer ----
    // The next generation.
    uint64_t next() const { return std::max(published(), done()) + 1; }
    void promise(uint64_t generation);  // after the work is queued
    void leave();

    // ---- gshmd ----
    void claim(uint64_t session, int32_t pid, uint64_t started);
    int32_t pid() const { return page_->pid.load(std::memory_order_relaxed); }
    uint64_t started() const { return page_->started.load(std::memory_order_relaxed); }
    // The writer is gone, and its queued work too: completes its promised generations and marks them as lost.
    void lose();
    // The writer is gone and has completed all its promised generations.
    void retire();

    // ---- waiters ----
    using Deadline = std::chrono::steady_clock::time_point;
    // Waits until it is promised or done. EOWNERDEAD: the writer died. EPIPE: the writer closed the fence. ETIMEDOUT.
    Status await_promise(uint64_t generation, Deadline deadline) const;
    // Waits until it is done or lost.
    Status await_end(uint64_t generation, Deadline deadline) const;
    // EOWNERDEAD: it is lost.
    Status await_done(uint64_t generation, Deadline deadline) const;
    Status check_lost(uint64_t generation) const;

private:
    void change();  // wakes sleepers
    void end(Writer how);

    Page* page_ = nullptr;
};

}  // namespace gshm::core::fence
