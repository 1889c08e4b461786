// What other threads tell an engine's: pieces that a copier has copied, chunks that came back, and requests of those who
// use the engine. They write one eventfd, and only where the engine has not been told since it last looked.
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "io/piece.h"

namespace gshm::io {

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

    // The engine's thread, when the bell has rung: before it takes anything.
    void heard() { rung_.store(false); }
    Piece* take_copied() { return copied_.exchange(nullptr); }
    bool take_chunk_is_back() { return chunk_is_back_.exchange(false); }
    std::vector<Command> take_commands() EXCLUDES(mutex_);

private:
    void ring();

    UniqueFd bell_;
    std::atomic<bool> rung_{false};
    std::atomic<Piece*> copied_{nullptr};
    std::atomic<int> within_copied_{0};  // threads that may still touch the mailbox though their piece is taken
    std::atomic<bool> chunk_is_back_{false};
    Mutex mutex_;
    std::vector<Command> commands_ GUARDED_BY(mutex_);
};

}  // namespace gshm::io
