// Messages of other threads to the engine's thread: copied pieces, returned chunks, and requests of the engine's users.
// They write one eventfd, and only if the engine was not notified since its last check.
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "io/piece.h"

namespace gshm::core::io {

class Mailbox final : public Staging::Listener {
public:
    using Command = std::move_only_function<void()>;

    static Result<std::unique_ptr<Mailbox>> create();
    ~Mailbox();
    int fd() const { return bell_.get(); }

    // From any thread.
    void copied(Piece& piece);
    void chunk_is_back() override;
    void post(Command command) EXCLUDES(mutex_);

    // Called in the engine's thread after the eventfd, before it takes messages.
    void heard() { rung_.store(false); }
    Piece* take_copied() { return copied_.exchange(nullptr); }
    bool take_chunk_is_back() { return chunk_is_back_.exchange(false); }
    std::vector<Command> take_commands() EXCLUDES(mutex_);

private:
    void ring();

    UniqueFd bell_;
    std::atomic<bool> rung_{false};
    std::atomic<Piece*> copied_{nullptr};
    std::atomic<int> within_copied_{0};  // threads that may still access the mailbox although their piece is taken
    std::atomic<bool> chunk_is_back_{false};
    Mutex mutex_;
    std::vector<Command> commands_ GUARDED_BY(mutex_);
};

}  // namespace gshm::core::io
