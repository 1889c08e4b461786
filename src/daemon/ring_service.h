// Who serves the rings: engines, and the memory that they pass bytes through. Every user has engines and a thread of their
// own, so that a file of a file system that does not answer holds up nobody but those who have opened it.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <sys/types.h>
#include <vector>

#include "base/worker.h"
#include "daemon/client_ring.h"
#include "io/engine.h"

namespace gshm {

class RingService {
public:
    // In the loop's thread, as all calls but engine().
    RingService(Server& server, uint64_t staging_bytes);
    ~RingService();

    // Makes and pins the staging memory, in the thread of the first GPU; nothing without one.
    void start();

    class User {
    public:
        // What may wait for a file, in the user's thread.
        void submit(Worker::Task task) { worker_.submit(std::move(task)); }
        // In the user's thread: an engine that nobody uses, or that few do. One that has worked before has its threads
        // already.
        Result<std::shared_ptr<io::Engine>> engine();

    private:
        friend class RingService;
        explicit User(RingService& service) : service_(service) {}

        RingService& service_;
        std::vector<std::shared_ptr<io::Engine>> engines_;  // shared with the rings that they serve
        Worker worker_;  // ends first: what it still has to do needs the engines
    };
    User& user(uid_t uid);
    // Ends it when what is under way has ended, in its user's thread.
    void dispose(uid_t uid, std::shared_ptr<ClientRing> ring);

private:
    using Pool = std::shared_ptr<io::Staging>;

    Server& server_;
    const uint64_t staging_bytes_;
    std::shared_ptr<std::promise<Pool>> promise_ = std::make_shared<std::promise<Pool>>();
    std::shared_future<Pool> staging_ = promise_->get_future().share();
    std::map<uid_t, std::unique_ptr<User>> users_;
};

}  // namespace gshm
