// The connection to gshm-maker, which is started once. The next gshmd gets its socket from the keeper.
#pragma once

#include <atomic>
#include <functional>
#include <set>

#include "base/mutex.h"
#include "daemon/loop.h"
#include "device/fabric_maker.h"
#include "maker/message.h"

namespace gshm::core {

class MakerProcess final : public FabricMaker {
public:
    // socket: connected to the process that an earlier gshmd started; empty: a process is started. keep is called in
    // the loop with the socket of every process that is started here. EPROTO: a newer gshmd has started the process,
    // which is left as it is.
    static Result<std::shared_ptr<MakerProcess>> create(EventLoop& loop, UniqueFd socket,
                                                        std::function<void(int fd)> keep);

    Result<Made> make(const Wanted& wanted) override EXCLUDES(conversation_, mutex_);
    void release(const FabricHandle& handle) override EXCLUDES(conversation_, mutex_);
    bool holds(const FabricHandle& handle) override EXCLUDES(mutex_);

    // Frees memory that no extent uses: an earlier gshmd died while it was creating or releasing it.
    void release_others(const std::set<FabricHandle>& used) EXCLUDES(conversation_, mutex_);
    // -1: no process at the moment.
    int socket() const EXCLUDES(mutex_);
    // Releases no memory from now on: it belongs to the next gshmd, or ends with the keeper's copy of the socket.
    void close() EXCLUDES(conversation_, mutex_);

private:
    MakerProcess(EventLoop& loop, std::function<void(int fd)> keep);
    // Uses the process of an earlier gshmd, or starts one.
    Status begin(UniqueFd socket) EXCLUDES(conversation_, mutex_);
    // In the loop.
    void start() EXCLUDES(conversation_, mutex_);
    // An answer of another kind, or a timeout, is an error.
    Result<maker::Message> ask(maker::Message request, maker::Kind answer, UniqueFd* ret_fd = nullptr)
        REQUIRES(conversation_) EXCLUDES(mutex_);
    Result<maker::Message> receive(int socket, maker::Kind kind, UniqueFd* ret_fd) REQUIRES(conversation_)
        EXCLUDES(mutex_);
    Status list() REQUIRES(conversation_) EXCLUDES(mutex_);
    // Releases memory whose answer was lost.
    void release_unknown() REQUIRES(conversation_) EXCLUDES(mutex_);
    // Kills the process, if it still runs, and starts a new one after a delay.
    void lose(const std::string& why) REQUIRES(conversation_) EXCLUDES(mutex_);

    EventLoop& loop_;
    const std::function<void(int)> keep_;
    // Cleared by close(): a task of the loop may run after the destructor.
    const std::shared_ptr<std::atomic<bool>> open_ = std::make_shared<std::atomic<bool>>(true);

    // Held from a request to its answer, which may take long. Taken before mutex_. Only its holder closes the socket.
    Mutex conversation_;
    uint64_t number_ GUARDED_BY(conversation_) = 0;  // of the last request; the first is random
    pid_t pid_ GUARDED_BY(conversation_) = 0;
    bool is_child_ GUARDED_BY(conversation_) = false;

    mutable Mutex mutex_;  // never held for long
    UniqueFd socket_ GUARDED_BY(mutex_);
    std::set<FabricHandle> handles_ GUARDED_BY(mutex_);
};

}  // namespace gshm::core
