// The address ranges of all pool slabs in this process.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "client/pool/pool.h"
#include "gshm/gshm.h"

namespace gshm::core::client {

class Core;

class PoolRegistry {
public:
    struct Slab {
        Pool* pool = nullptr;
        std::shared_ptr<Core> core;
        uint64_t epoch = 0;  // of the session that created it
        uint64_t id = 0;
        uint64_t bytes = 0;
        std::string device;
    };

    // The instance of the process. A forked child has its own, which is empty.
    static PoolRegistry& instance();

    void add(uint64_t address, Slab slab) EXCLUDES(mutex_);
    // Called before the memory and the pool end.
    void remove(uint64_t address) EXCLUDES(mutex_);
    // ret_dir: the runtime folder of the daemon; may be null.
    Result<gshm_location> locate(const void* memory, std::string* ret_dir = nullptr) EXCLUDES(mutex_);

private:
    PoolRegistry();

    const uint64_t generation_;
    Mutex mutex_;                                        // the locks of pools are taken inside
    std::map<uint64_t, Slab> slabs_ GUARDED_BY(mutex_);  // by address
};

}  // namespace gshm::core::client
