// Frees or zeroes memory in the reclaiming threads of the devices, after the catalog has recorded that it is free. Some
// of it is kept for the next object.
#pragma once

#include <atomic>
#include <deque>
#include <vector>

#include "memory/departures.h"
#include "memory/devices.h"

namespace gshm::core {

class Reclaim final : public Reclaimer {
public:
    Reclaim(Scheduler& scheduler, Devices& devices) : scheduler_(scheduler), devices_(devices) {}

    // Called before anything is reclaimed.
    void use(Store& store, Departures& departures) {
        store_ = &store;
        departures_ = &departures;
    }
    // With a catalog, memory is zeroed only after the catalog has recorded that it is free. If the daemon is killed
    // before that, the next one must find the bytes of all objects in the catalog.
    void set_awaits_commit(bool awaits) { awaits_commit_ = awaits; }
    // The catalog has all changes of the store.
    void committed() REQUIRES(store_lock);
    bool is_pending() const REQUIRES(store_lock) { return !zeroing_.empty() || !files_.empty() || !stored_.empty(); }
    // Called when large memory has been freed here. Calls `done` under the lock when the other processes of gshm have closed it.
    using AfterFree = std::function<void(Scheduler::Task done)>;
    void set_after_free(AfterFree after_free) { after_free_ = std::move(after_free); }
    // Removes a file of a tier's folder, in another thread.
    using RemoveStored = std::function<void(uint64_t file)>;
    void set_remove_stored(RemoveStored remove) { remove_stored_ = std::move(remove); }
    // Stops zeroing: the memory now belongs to the next daemon.
    void stop() REQUIRES(store_lock) { stopped_ = true; }
    // Frees the memory that is reserved for this session.
    void end_session(SessionId session) REQUIRES(store_lock);

    void zero(DeviceIndex device, ExtentId id, std::shared_ptr<Extent> memory, uint64_t offset, uint64_t bytes,
              uid_t uid) override;
    void release(DeviceIndex device, std::shared_ptr<Extent> memory, const FormerUse& former) override;
    void remove_stored(uint64_t file) override;

private:
    struct Zeroing {
        DeviceIndex device = 0;
        ExtentId id = 0;  // of the slab; 0: the whole extent has been freed
        std::shared_ptr<Extent> memory;
        uint64_t offset = 0;
        uint64_t bytes = 0;
        FormerUse former;
    };
    // A file with a name. The next daemon finds it, so it is removed only when the catalog does not name it any more.
    struct FreedFile {
        DeviceIndex device = 0;
        std::shared_ptr<Extent> memory;
        uid_t uid = 0;
        Departures::Ticket ticket = 0;
    };
    void release_file(DeviceIndex device, std::shared_ptr<Extent> memory, uid_t uid) REQUIRES(store_lock);
    void remove_now(std::vector<FreedFile> freed) REQUIRES(store_lock);
    void zero_now(std::vector<Zeroing> freed) REQUIRES(store_lock);
    void zero_whole(Zeroing whole) REQUIRES(store_lock);
    void free(DeviceIndex device, std::shared_ptr<Extent> memory, uid_t uid) REQUIRES(store_lock);
    void free_all(DeviceIndex device, std::vector<std::shared_ptr<Extent>> memory) REQUIRES(store_lock);
    void drop_idle_later() REQUIRES(store_lock);

    Scheduler& scheduler_;
    Devices& devices_;
    Store* store_ = nullptr;
    Departures* departures_ = nullptr;
    AfterFree after_free_;
    std::vector<Zeroing> zeroing_ GUARDED_BY(store_lock);
    std::vector<FreedFile> files_ GUARDED_BY(store_lock);
    std::vector<uint64_t> stored_ GUARDED_BY(store_lock);
    RemoveStored remove_stored_;
    bool awaits_commit_ = false;
    bool stopped_ GUARDED_BY(store_lock) = false;
    bool drops_idle_ GUARDED_BY(store_lock) = false;  // a timer is set
};

}  // namespace gshm::core
