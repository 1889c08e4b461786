#include "ring/consumer.h"

#include <cstring>
#include <fcntl.h>
#include <linux/magic.h>
#include <string>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/futex.h"
#include "base/limits.h"

namespace gshm::core::ring {
namespace {

bool is_eventfd(int fd) {
    char link[64] = {};
    const std::string path = fmt::format("/proc/self/fd/{}", fd);
    return readlink(path.c_str(), link, sizeof link - 1) > 0 && strcmp(link, "anon_inode:[eventfd]") == 0;
}

}  // namespace

Result<Consumer> Consumer::create(const UniqueFd& memory, UniqueFd&& doorbell) {
    struct stat status = {};
    struct statfs kind = {};
    const int seals = fcntl(memory.get(), F_GET_SEALS);
    // A file that can shrink, or huge pages that may run out, would raise SIGBUS here.
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(memory.get(), &status) != 0 ||
        fstatfs(memory.get(), &kind) != 0 || kind.f_type != TMPFS_MAGIC) {
        return fail(EINVAL, "a ring must be a memfd, sealed against shrinking");
    }
    const auto size = static_cast<uint64_t>(status.st_size);
    if (size < kHeaderBytes || size > memory_bytes(limits::kRingEntries))
        return fail(EINVAL, "invalid ring size: {} bytes", size);
    // All pages must be allocated: a hole without memory for it would raise SIGBUS here.
    if (static_cast<uint64_t>(status.st_blocks) * 512 < size)
        return fail(EINVAL, "the memory of a ring must be allocated");
    if (!is_eventfd(doorbell.get())) return fail(EINVAL, "a ring's doorbell must be an eventfd");
    // A read of it must not block.
    if (fcntl(doorbell.get(), F_SETFL, O_NONBLOCK) != 0) return fail_errno("F_SETFL");
    auto mapping = TRY(Mapping::create(memory.get(), size, true));
    // Read once, like all shared values.
    uint32_t head[3];
    memcpy(head, mapping.data(), sizeof head);
    const uint32_t entries = head[2];
    if (head[0] != kMagic) return fail(EINVAL, "this memory is not a ring");
    if (head[1] != kVersion) {
        return fail(EINVAL, "the ring has version {} of the layout, gshmd knows {}: upgrade {}", head[1], kVersion,
                    head[1] > kVersion ? "gshmd" : "the client's libgshm");
    }
    if (!std::has_single_bit(entries) || entries > limits::kRingEntries || memory_bytes(entries) > size) {
        return fail(EINVAL, "invalid ring: {} entries in {} bytes", entries, size);
    }
    return Consumer(std::move(doorbell), std::move(mapping), entries);
}

bool Consumer::take(Entry* ret_entry) {
    if (broken_) return false;
    Header& header = view_.header();
    const uint32_t waiting = header.submitted.load(std::memory_order_acquire) - accepted_;
    if (waiting == 0) return false;
    // Completions are taken in order, and not before they are posted.
    const uint32_t taken = header.taken.load(std::memory_order_acquire);
    if (waiting > entries() || taken - taken_ > completed_ - taken_) {
        broken_ = true;
        return false;
    }
    taken_ = taken;
    if (accepted_ - taken_ == entries()) return false;
    memcpy(ret_entry, &view_.entry(accepted_), sizeof *ret_entry);
    // From here on only the copy is used, since the client may overwrite the entry.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    header.accepted.store(++accepted_, std::memory_order_release);
    return true;
}

void Consumer::post(const Completion& completion) {
    view_.completion(completed_) = completion;
    view_.header().completed.store(++completed_, std::memory_order_release);
    posted_ = true;
}

void Consumer::flush() {
    if (!std::exchange(posted_, false)) return;
    Header& header = view_.header();
    // Either this side sees that the client waits, or the client sees the completions in its second check.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (header.waiting.load(std::memory_order_relaxed) == 0) return;
    if (static_cast<int32_t>(completed_ - header.wake_at.load(std::memory_order_relaxed)) < 0) return;
    // One wake-up suffices until it waits again.
    header.waiting.store(0, std::memory_order_relaxed);
    wake(header.completed);
}

void Consumer::set_asleep(bool asleep) {
    view_.header().asleep.store(asleep ? 1 : 0, std::memory_order_relaxed);
    if (asleep) std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace gshm::core::ring
