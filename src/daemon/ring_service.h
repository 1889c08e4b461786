// The engines that serve rings, and their staging memory. Every user has engines and a thread of their own, so that a
// file system that does not answer delays only the users of its files.
#pragma once

#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <sys/types.h>
#include <vector>

#include "base/file_rights.h"
#include "base/worker.h"
#include "daemon/client_ring.h"
#include "daemon/reapers.h"
#include "io/engine.h"

namespace gshm::core {

class RingService {
public:
    using SharedStaging = std::shared_ptr<io::Staging>;

    RingService(Server& server, uint64_t staging_bytes);
    ~RingService();

    // The staging memory, created and pinned in a GPU's thread; null without a GPU. If that has failed, it is tried
    // again.
    std::shared_future<SharedStaging> staging() REQUIRES(store_lock);

    class User {
    public:
        // Runs a task that may block on a file, in the user's thread.
        void submit(Worker::Task task) { worker_.submit(std::move(task)); }
        // Destroys an object whose destructor may block on a file.
        void let_go(std::shared_ptr<void> what) { reapers_.let_go(uid_, std::move(what)); }
        // In the user's thread: an unused engine with these rights, or the one with the fewest rings. A used engine
        // already has its threads. Engines without staging memory are given out only until there is some.
        Result<std::shared_ptr<io::Engine>> engine(const SharedStaging& staging,
                                                   const std::optional<FileRights>& rights);

    private:
        friend class RingService;
        User(uid_t uid, Reapers& reapers) : uid_(uid), reapers_(reapers) {}

        struct Served {
            std::optional<FileRights> rights;    // a user's processes may have different groups
            std::shared_ptr<io::Engine> engine;  // shared with the rings that it serves
        };
        const uid_t uid_;
        Reapers& reapers_;
        std::vector<Served> engines_;
        bool have_staging_ = false;  // the engines have staging memory
        Worker worker_;              // destroyed first: its tasks use the engines
    };
    User& user(uid_t uid) REQUIRES(store_lock);
    // The rights with which files of a client are used. None: those of gshmd, which a client of root has in any case.
    // A gshmd of an ordinary user cannot take the rights of its clients.
    static std::optional<FileRights> rights_of(const Credentials& client);
    // Destroys the ring after its transfers have ended, in a thread of its user.
    void dispose(uid_t uid, std::shared_ptr<ClientRing> ring) REQUIRES(store_lock) {
        user(uid).let_go(std::move(ring));
    }
    // No transfer is in flight, including those of rings whose sessions have ended.
    bool is_idle() const { return under_way_->load(std::memory_order_acquire) == 0; }
    const std::shared_ptr<std::atomic<uint64_t>>& under_way() const { return under_way_; }

private:
    void make_staging() REQUIRES(store_lock);
    void pin_staging(const SharedStaging& staging) REQUIRES(store_lock);

    Server& server_;
    const uint64_t staging_bytes_;
    std::shared_future<SharedStaging> staging_ GUARDED_BY(store_lock);
    DeviceIndex staging_device_ GUARDED_BY(store_lock) = 0;  // its thread creates and pins it
    bool has_warned_ GUARDED_BY(store_lock) = false;
    bool is_pinning_ GUARDED_BY(store_lock) = false;
    std::shared_ptr<std::atomic<uint64_t>> under_way_ = std::make_shared<std::atomic<uint64_t>>(0);
    std::map<uid_t, std::unique_ptr<User>> users_ GUARDED_BY(store_lock);
};

}  // namespace gshm::core
