// Who serves the rings: engines, and the memory that they pass bytes through. Every user has engines and a thread of their
// own, so that a file of a file system that does not answer holds up nobody but those who have opened it.
#pragma once

#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <sys/types.h>
#include <vector>

#include "base/worker.h"
#include "daemon/client_ring.h"
#include "io/engine.h"

namespace gshm::core {

// Threads that end things, each of which may have to wait for a file: the others do not wait with it, unless there are
// very many such. Used under the store lock.
class Reapers {
public:
    void submit(Worker::Task task);

private:
    static constexpr size_t kMost = 16;
    struct Reaper {
        std::atomic<size_t> tasks = 0;
        Worker worker;  // ends first
    };
    std::vector<std::unique_ptr<Reaper>> reapers_;
};

class RingService {
public:
    using Pool = std::shared_ptr<io::Staging>;

    RingService(Server& server, uint64_t staging_bytes);
    ~RingService();

    // The staging memory, which is made and pinned in the thread of the first GPU; null without one. What has failed of
    // that is tried once more.
    std::shared_future<Pool> staging() REQUIRES(store_lock);

    class User {
    public:
        // What may wait for a file, in the user's thread.
        void submit(Worker::Task task) { worker_.submit(std::move(task)); }
        // Likewise, but nobody waits for it.
        void let_go(std::shared_ptr<void> what) REQUIRES(store_lock) {
            reapers_.submit([what = std::move(what)]() mutable { what.reset(); });
        }
        // In the user's thread: an engine that nobody uses, or that few do. One that has worked before has its threads
        // already. Without staging memory only until there is some.
        Result<std::shared_ptr<io::Engine>> engine(const Pool& staging);

    private:
        friend class RingService;
        explicit User(uid_t uid) : uid_(uid) {}

        const uid_t uid_;
        std::vector<std::shared_ptr<io::Engine>> engines_;  // shared with the rings that they serve
        bool have_staging_ = false;                         // those
        Reapers reapers_;
        Worker worker_;  // ends first: what it still has to do needs the engines
    };
    User& user(uid_t uid) REQUIRES(store_lock);
    // Ends it when what is under way has ended, in a thread of its user's.
    void dispose(uid_t uid, std::shared_ptr<ClientRing> ring)
        REQUIRES(store_lock) { user(uid).let_go(std::move(ring)); }
    // Nothing is under way, neither for rings that somebody has nor for those that nobody has any more.
    bool is_idle() const { return under_way_->load(std::memory_order_acquire) == 0; }
    const std::shared_ptr<std::atomic<uint64_t>>& under_way() const { return under_way_; }

private:
    void make_staging() REQUIRES(store_lock);
    void pin_staging(const Pool& staging) REQUIRES(store_lock);

    Server& server_;
    const uint64_t staging_bytes_;
    std::shared_future<Pool> staging_ GUARDED_BY(store_lock);
    DeviceIndex staging_device_ GUARDED_BY(store_lock) = 0;  // whose thread makes it
    bool has_warned_ GUARDED_BY(store_lock) = false;
    bool is_pinning_ GUARDED_BY(store_lock) = false;
    std::shared_ptr<std::atomic<uint64_t>> under_way_ = std::make_shared<std::atomic<uint64_t>>(0);
    std::map<uid_t, std::unique_ptr<User>> users_ GUARDED_BY(store_lock);
};

}  // namespace gshm::core
