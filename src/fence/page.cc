#include "fence/page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/futex.h"

namespace gshm::core::fence {
namespace {

// A GPU wakes no thread, so its writes are polled, with increasing intervals.
constexpr std::chrono::microseconds kFirstLook{20};
constexpr std::chrono::microseconds kLastLook{1000};
constexpr std::chrono::seconds kDoubt{1};

}  // namespace

Result<UniqueFd> make_page() {
    auto file = UniqueFd::adopt(memfd_create("gshm-fence", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    // Allocates the page now: touching it without memory would raise SIGBUS. Mode 0600: a read-only descriptor cannot
    // be reopened for writing.
    if (!file || fallocate(file.get(), 0, 0, kPageBytes) != 0 || fchmod(file.get(), 0600) != 0 ||
        fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return fail_errno("cannot make a fence");
    }
    return file;
}

Status check_layout(int page) {
    uint32_t layout = 0;
    if (pread(page, &layout, sizeof layout, offsetof(Page, layout)) != sizeof layout) {
        return fail(EPROTO, "the descriptor of a fence is something else");
    }
    if (layout == 0) return {};
    return fail(EPROTO, "the fence has layout {}, of a newer version; this one knows layout 1", uint64_t{layout} + 1);
}

bool View::is_lost(uint64_t generation) const {
    const uint32_t count = std::min(page_->losses.load(std::memory_order_acquire), Page::kLosses);
    return std::any_of(page_->lost, page_->lost + count, [&](const auto& lost) {
        return generation > lost.after.load(std::memory_order_relaxed) &&
               generation <= lost.last.load(std::memory_order_relaxed);
    });
}

void View::change() {
    page_->changes.fetch_add(1, std::memory_order_acq_rel);
    wake(page_->changes);
}

void View::promise(uint64_t generation) {
    page_->published.store(generation, std::memory_order_release);
    change();
}

void View::end(Writer how) {
    page_->writer.store(static_cast<uint32_t>(how), std::memory_order_release);
    change();
}

void View::leave() {
    end(Writer::left);
}

void View::claim(uint64_t session, int32_t pid, uint64_t started) {
    // The writer died after queueing the work and before promising the generation.
    if (done() > published()) page_->published.store(done(), std::memory_order_release);
    page_->session.store(session, std::memory_order_relaxed);
    page_->pid.store(pid, std::memory_order_relaxed);
    page_->started.store(started, std::memory_order_relaxed);
    end(Writer::here);
}

void View::lose() {
    const uint64_t promised = published();
    const uint64_t reached = done();
    if (promised > reached) {
        const uint32_t at = page_->losses.load(std::memory_order_relaxed);
        page_->lost[at % Page::kLosses].after.store(reached, std::memory_order_relaxed);
        page_->lost[at % Page::kLosses].last.store(promised, std::memory_order_relaxed);
        page_->losses.store(at + 1, std::memory_order_release);
        // Last: a reader that sees the generation done must see the loss.
        page_->done.store(promised, std::memory_order_release);
    }
    end(Writer::died);
}

void View::retire() {
    if (writer() == Writer::here) end(Writer::died);
}

Status View::check_lost(uint64_t generation) const {
    if (!is_lost(generation)) return {};
    return fail(EOWNERDEAD, "the writer of generation {} has died", generation);
}

Status View::await_promise(uint64_t generation, Deadline deadline) const {
    for (;;) {
        const Awaited changes = {&page_->changes, page_->changes.load(std::memory_order_acquire)};
        if (published() >= generation || done() >= generation) return {};
        if (writer() == Writer::died) {
            return fail(EOWNERDEAD, "the writer of generation {} has died", generation);
        }
        if (writer() == Writer::left)
            return fail(EPIPE, "the writer has closed the fence after generation {}", published());
        const auto left = deadline - std::chrono::steady_clock::now();
        if (left.count() <= 0) return fail(ETIMEDOUT, "generation {} was not published in time", generation);
        wait_for_any({&changes, 1}, std::min<std::chrono::nanoseconds>(left, kDoubt));
    }
}

Status View::await_done(uint64_t generation, Deadline deadline) const {
    TRY(await_end(generation, deadline));
    return check_lost(generation);
}

Status View::await_end(uint64_t generation, Deadline deadline) const {
    std::chrono::nanoseconds look = kFirstLook;
    for (;;) {
        const Awaited changes = {&page_->changes, page_->changes.load(std::memory_order_acquire)};
        if (done() >= generation) return {};
        const auto left = deadline - std::chrono::steady_clock::now();
        if (left.count() <= 0) return fail(ETIMEDOUT, "generation {} was not complete in time", generation);
        wait_for_any({&changes, 1}, std::min<std::chrono::nanoseconds>(left, look));
        look = std::min<std::chrono::nanoseconds>(look * 2, kLastLook);
    }
}

}  // namespace gshm::core::fence
