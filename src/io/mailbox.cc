#include "io/mailbox.h"

#include <sys/eventfd.h>
#include <thread>
#include <utility>

namespace gshm::core::io {

Result<std::unique_ptr<Mailbox>> Mailbox::create() {
    auto made = std::make_unique<Mailbox>();
    made->bell_ = UniqueFd::adopt(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!made->bell_) return fail_errno("eventfd");
    return made;
}

Mailbox::~Mailbox() {
    while (within_copied_.load() != 0) std::this_thread::yield();
}

void Mailbox::ring() {
    if (!rung_.exchange(true)) eventfd_write(bell_.get(), 1);
}

void Mailbox::copied(Piece& piece) {
    within_copied_.fetch_add(1);
    piece.next = copied_.load(std::memory_order_relaxed);
    while (!copied_.compare_exchange_weak(piece.next, &piece)) {}
    ring();
    within_copied_.fetch_sub(1);
}

void Mailbox::chunk_is_back() {
    chunk_is_back_.store(true);
    ring();
}

void Mailbox::post(Command command) {
    {
        MutexLock lock(mutex_);
        commands_.push_back(std::move(command));
    }
    ring();
}

std::vector<Mailbox::Command> Mailbox::take_commands() {
    MutexLock lock(mutex_);
    return std::exchange(commands_, {});
}

}  // namespace gshm::core::io
