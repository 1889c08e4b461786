// One client's ring: entries become transfers of an engine, and their results become completions.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/budgets.h"
#include "base/mutex.h"
#include "base/store_lock.h"
#include "io/engine.h"
#include "ring/consumer.h"
#include "store/store.h"

namespace gshm::core {

class Server;

// An object in a slot of a ring. The object and its memory stay pinned until the destructor, which unpins them under
// the store lock.
class RingObject {
public:
    RingObject(Server& server, Object* object, Access access) REQUIRES(store_lock);
    ~RingObject();
    RingObject(const RingObject&) = delete;
    RingObject& operator=(const RingObject&) = delete;

    Gate& gate() const { return *gate_; }
    bool is_writable() const { return access_ == Access::write; }
    DeviceIndex device() const { return device_; }
    void set_written() { written_.store(true, std::memory_order_relaxed); }

private:
    Server& server_;
    Object* object_;
    Access access_;
    DeviceIndex device_;
    std::shared_ptr<Gate> gate_;
    std::atomic<bool> written_ = false;
};

class ClientRing final : private io::Source {
public:
    // all_under_way: counts the transfers of all rings, including rings whose sessions have ended.
    ClientRing(Server& server, ring::Consumer consumer, std::shared_ptr<io::Engine> engine,
               std::shared_ptr<std::atomic<uint64_t>> all_under_way);
    // Waits for started transfers. Must not run in the loop.
    ~ClientRing() override;

    Status start() { return engine_->add(*this); }
    // Given back with the ring.
    void hold_charges(Budgets::Charge ring, Budgets::Charge descriptors) {
        ring_charge_ = std::move(ring);
        descriptor_charge_ = std::move(descriptors);
    }

    // ---- for the loop ----
    // Returns the previous file of the slot. The caller must close it in a thread that may block.
    [[nodiscard]] std::shared_ptr<io::File> set_file(uint32_t slot, std::shared_ptr<io::File> file) EXCLUDES(mutex_);
    size_t file_count() EXCLUDES(mutex_);
    void set_object(uint32_t slot, std::shared_ptr<RingObject> object) EXCLUDES(mutex_);
    // A paused ring starts no transfers.
    void pause(bool paused);
    bool is_idle() const { return under_way_.load(std::memory_order_acquire) == 0; }

private:
    struct Job;

    int doorbell() const override { return consumer_.doorbell(); }
    bool poll() override;
    void sleep(bool asleep) override { consumer_.set_asleep(asleep); }

    // 0 if the transfer was started, else an errno.
    int begin(const ring::Entry& entry) EXCLUDES(mutex_);
    // Sets the address of the transfer from the object's current memory.
    int place(Job& job);
    void end(Job& job, Result<uint64_t> bytes);
    static void count(const Job& job);
    void complete(uint32_t token, int64_t result, uint32_t path);
    std::unique_ptr<Job> take_job();

    Server& server_;
    Budgets::Charge ring_charge_;
    Budgets::Charge descriptor_charge_;
    const std::shared_ptr<io::Engine> engine_;
    ring::Consumer consumer_;  // of the engine's thread
    std::vector<std::unique_ptr<Job>> idle_jobs_;
    std::atomic<uint32_t> under_way_ = 0;
    const std::shared_ptr<std::atomic<uint64_t>> all_under_way_;
    std::atomic<bool> paused_ = false;

    Mutex mutex_;  // a leaf: no lock is taken while it is held
    std::vector<std::shared_ptr<io::File>> files_ GUARDED_BY(mutex_);
    std::vector<std::shared_ptr<RingObject>> objects_ GUARDED_BY(mutex_);
};

}  // namespace gshm::core
