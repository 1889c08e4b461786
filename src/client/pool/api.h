// The handle of a pool, whose slabs are objects of the daemon.
#pragma once

#include <atomic>
#include <map>
#include <string>

#include "client/object.h"
#include "client/pool/pool.h"

struct gshm_pool final : gshm::core::client::SlabSource {
    uint64_t generation = gshm::core::client::fork_count();
    gshm_client client;  // a further handle of the connection
    std::string device;  // its name at the daemon
    std::string prefix;  // of the slab names
    uint32_t mode = 0600;
    bool keep = false;  // slabs outlive the pool
    std::atomic<uint64_t> next_name = 0;
    std::atomic<bool> closing = false;  // a slab is dropped even if the daemon does not take it back
    std::unique_ptr<gshm::core::client::Pool> pool;
    // The handle and the objects of gshm_pool_allocate_object(). The last of them destroys the pool.
    std::atomic<uint64_t> users = 1;
    void drop_user();
    // Seals the slabs with allocations.
    gshm::core::Status seal() EXCLUDES(sealing, mutex);

    gshm::core::Result<uint64_t> make(uint64_t bytes) override EXCLUDES(mutex);
    // A sealed slab keeps its name.
    gshm::core::Status give_back(uint64_t address) override EXCLUDES(sealing, mutex);

    struct Slab {
        gshm_object* object = nullptr;
        std::string name;
        bool sealed = false;
    };
    gshm::core::Mutex sealing;                         // during seal() and give_back(): no slab goes while it is sealed
    gshm::core::Mutex mutex;                           // no calls are made under it
    std::map<uint64_t, Slab> slabs GUARDED_BY(mutex);  // by address
};

namespace gshm::core::client {

// Checked options, with defaults for fields that an older caller does not know.
Result<gshm_pool_options> read_pool_options(const gshm_pool_options* options);
Result<std::unique_ptr<gshm_pool>> make_pool(const std::shared_ptr<Core>& core, const gshm_pool_options& options);

}  // namespace gshm::core::client
