// gshm-maker as gshmd sees it: started once, found again by the next gshmd through the keeper.
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
    // socket: the one to the process that an earlier gshmd has started; empty: none, and a process is started. keep is
    // called in the loop with the socket of every process that is started here.
    MakerProcess(EventLoop& loop, UniqueFd socket, std::function<void(int fd)> keep);

    Result<Made> make(const Wanted& wanted) override EXCLUDES(conversation_, mutex_);
    void release(const FabricHandle& handle) override EXCLUDES(conversation_, mutex_);
    bool holds(const FabricHandle& handle) override EXCLUDES(mutex_);

    // Frees what no extent has: memory that was on its way to an earlier gshmd, or from it, when that died.
    void release_others(const std::set<FabricHandle>& used) EXCLUDES(conversation_, mutex_);
    // -1: there is no process at the moment.
    int socket() const EXCLUDES(mutex_);
    // What gshm-maker has is the next gshmd's, or goes with the keeper's end of the socket: nothing is released any more.
    void close() EXCLUDES(conversation_, mutex_);

private:
    // In the loop.
    void start() EXCLUDES(conversation_, mutex_);
    // An answer of another kind, or none in time, is an error.
    Result<maker::Message> ask(maker::Message request, maker::Kind answer, UniqueFd* ret_fd = nullptr)
        REQUIRES(conversation_) EXCLUDES(mutex_);
    Result<maker::Message> receive(int socket, maker::Kind kind, UniqueFd* ret_fd) REQUIRES(conversation_) EXCLUDES(mutex_);
    Status list() REQUIRES(conversation_) EXCLUDES(mutex_);
    // Memory whose answer was lost.
    void release_unknown() REQUIRES(conversation_) EXCLUDES(mutex_);
    // Ends the process, if it still runs, and has another started.
    void lose(const std::string& why) REQUIRES(conversation_) EXCLUDES(mutex_);

    EventLoop& loop_;
    const std::function<void(int)> keep_;
    // Cleared by close(): a task of the loop may come after the end of this.
    const std::shared_ptr<std::atomic<bool>> open_ = std::make_shared<std::atomic<bool>>(true);

    // A request and its answer, which may take long. Before mutex_. The socket is closed by its holder alone.
    Mutex conversation_;
    uint64_t number_ GUARDED_BY(conversation_) = 0;  // of the last request; those of other daemons are others
    pid_t pid_ GUARDED_BY(conversation_) = 0;
    bool is_child_ GUARDED_BY(conversation_) = false;

    mutable Mutex mutex_;  // never held for long
    UniqueFd socket_ GUARDED_BY(mutex_);
    std::set<FabricHandle> handles_ GUARDED_BY(mutex_);
};

}  // namespace gshm::core
