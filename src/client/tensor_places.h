// The memory of objects that tensors refer to, by address.
#pragma once

#include <map>

#include "base/mutex.h"
#include "client/object.h"

namespace gshm::core::client {

class TensorPlaces {
public:
    // The instance of the process. A forked child has its own, which is empty.
    static TensorPlaces& instance();

    // The caller holds the object until it removes it.
    void add(const gshm_object& object) EXCLUDES(mutex_);
    void remove(const gshm_object& object) EXCLUDES(mutex_);
    // The place of the address in a daemon's object, and the runtime folder of the daemon.
    Result<gshm_location> locate(const void* memory, std::string* ret_dir) EXCLUDES(mutex_);

private:
    TensorPlaces() : generation_(fork_count()) {}

    const uint64_t generation_;
    Mutex mutex_;
    // By the address of the object: several handles of one object have the same.
    std::multimap<uint64_t, const gshm_object*> objects_ GUARDED_BY(mutex_);
};

}  // namespace gshm::core::client
