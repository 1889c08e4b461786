// The threads that serve clients. A connection belongs to one of them. Every user has threads of their own, so that the
// requests of one user do not delay those of another: the kernel shares out the processors among the threads.
#pragma once

#include <memory>
#include <sys/types.h>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "daemon/loop.h"

namespace gshm::core {

class ClientLoops {
    struct Loop;

public:
    // threads: of each user. 0: the default for the machine's cores.
    static Result<std::unique_ptr<ClientLoops>> create(unsigned threads);
    ~ClientLoops();

    // The loop of a connection. The loops must outlive it.
    class Place {
    public:
        Place() = default;
        Place(Place&& other) noexcept : loops_(std::exchange(other.loops_, nullptr)), loop_(other.loop_) {}
        Place& operator=(Place&&) = delete;
        ~Place() {
            if (loops_ != nullptr) loops_->leave(*loop_);
        }
        EventLoop& loop() const;

    private:
        friend class ClientLoops;
        Place(ClientLoops& loops, Loop& loop) : loops_(&loops), loop_(&loop) {}
        ClientLoops* loops_ = nullptr;  // null: none
        Loop* loop_ = nullptr;
    };
    // A place for a new connection of the user. Users share loops only if there are very many users.
    Place place(uid_t uid) EXCLUDES(mutex_);
    // Runs the task in that loop after the loops have read all packets that arrived before this call.
    void after_arrived(EventLoop& loop, EventLoop::Task task) EXCLUDES(mutex_);
    // Ends the threads. Packets already read are answered.
    void stop() EXCLUDES(mutex_);

private:
    // Of one user while it has places. Then it is free, for the next user that needs one.
    struct Loop {
        std::unique_ptr<EventLoop> loop;
        std::thread thread;
        uid_t uid = 0;
        size_t places = 0;
    };
    struct Arrival {
        EventLoop& loop;
        EventLoop::Task task;
    };
    explicit ClientLoops(unsigned threads) : threads_(threads) {}
    Result<Loop*> start_loop() REQUIRES(mutex_);
    Loop* find_loop(uid_t uid) REQUIRES(mutex_);
    void leave(Loop& loop) EXCLUDES(mutex_);
    // Lets all loops read what has arrived, for the tasks in arrivals_.
    void begin_round() REQUIRES(mutex_);
    void pass(EventLoop& through, int turns) EXCLUDES(mutex_);

    const unsigned threads_;
    Mutex mutex_;  // taken after the store lock, before the loops' mutexes
    std::vector<std::unique_ptr<Loop>> loops_ GUARDED_BY(mutex_);
    bool stopped_ GUARDED_BY(mutex_) = false;
    // One round serves all who have asked before it: connections that begin by the thousand cost few turns.
    std::vector<Arrival> arrivals_ GUARDED_BY(mutex_);  // of the next round
    std::vector<Arrival> served_ GUARDED_BY(mutex_);    // by the current round
    size_t in_round_ GUARDED_BY(mutex_) = 0;            // loops that are not yet through; 0: there is no round
};

}  // namespace gshm::core
