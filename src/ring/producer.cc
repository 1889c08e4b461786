#include "ring/producer.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

namespace gshm::core::ring {

Result<Producer> Producer::create(uint32_t entries) {
    const size_t bytes = memory_bytes(entries);
    auto file = UniqueFd::adopt(memfd_create("gshm-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file) return fail_errno("memfd_create");
    if (int code = posix_fallocate(file.get(), 0, static_cast<off_t>(bytes)); code != 0) {
        if (code == ENOSPC || code == ENOMEM) return fail(ENOSPC, "no shared memory for a ring of {} bytes", bytes);
        return fail_errno("posix_fallocate", code);
    }
    if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) return fail_errno("sealing a ring");
    auto mapping = TRY(Mapping::create(file.get(), bytes, true));
    auto doorbell = UniqueFd::adopt(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!doorbell) return fail_errno("eventfd");
    Producer producer(std::move(file), std::move(doorbell), std::move(mapping), entries);
    Header& header = producer.view_.header();
    header.magic = kMagic;
    header.version = kVersion;
    header.entries = entries;
    return producer;
}

void Producer::push(const Entry& entry) {
    view_.entry(submitted_++) = entry;
}

void Producer::publish() {
    Header& header = view_.header();
    header.submitted.store(submitted_, std::memory_order_release);
    // Either this side sees that the daemon sleeps, or the daemon sees the entries in its second check.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (header.asleep.load(std::memory_order_relaxed) == 0) return;
    const uint64_t one = 1;
    // It fails only if the eventfd counter is full, and then the daemon is woken anyway.
    (void)!write(doorbell_.get(), &one, sizeof one);
}

uint32_t Producer::available() const {
    return view_.header().completed.load(std::memory_order_acquire) - taken_;
}

bool Producer::take(Completion* ret_completion) {
    const uint32_t there = available();
    if (there == 0) return false;
    if (there > entries()) {
        broken_ = true;
        return false;
    }
    *ret_completion = view_.completion(taken_);
    view_.header().taken.store(++taken_, std::memory_order_release);
    return true;
}

void Producer::announce(uint32_t least) {
    Header& header = view_.header();
    header.wake_at.store(taken_ + least, std::memory_order_relaxed);
    header.waiting.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

void Producer::withdraw() {
    view_.header().waiting.store(0, std::memory_order_relaxed);
}

}  // namespace gshm::core::ring
