// What the opaque handles of gshm.h are.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "client/core.h"
#include "gshm/gshm.h"

struct gshm_client {
    std::shared_ptr<gshm::client::Core> core;
};

// Of a daemon (core is set), or memory of this process alone.
struct gshm_object {
    std::shared_ptr<gshm::client::Core> core;
    uint64_t id = 0;
    gshm::client::ExtentKey key;                 // of a daemon's object
    gshm::client::MappedExtent* mapped = nullptr;  // null with GSHM_NO_MAP
    std::unique_ptr<gshm::Extent> own;           // without a daemon
    gshm::Access access = gshm::Access::read;
    bool sealed = false;
    uint64_t size_bytes = 0;
    uint64_t offset = 0;  // in the extent
    std::string device;
    uint64_t generation = gshm::client::fork_generation();

    // The memory as this process has it; null with GSHM_NO_MAP.
    gshm::Extent* extent() const { return own ? own.get() : mapped != nullptr ? mapped->extent.get() : nullptr; }
    gshm::Status check_use() const { return gshm::client::check_generation(generation); }
};

struct gshm_listing {
    std::vector<std::pair<std::string, gshm_stat_info>> entries;
};

namespace gshm::client {

// Ends the leases of these objects (of any daemons) and frees the handles.
void close_objects(std::span<gshm_object* const> objects);

gshm_stat_info to_stat_info(const wire::NodeRecord& record, const std::string& device);
// Copies as much of a struct as the caller knows of. EINVAL if the caller's size is no size of it.
template <typename T>
Status copy_struct(T* destination, const T& source) {
    uint32_t size = destination->struct_size;
    if (size < 8 || size > sizeof(T)) {
        return fail(EINVAL, "struct_size is {}: set it to sizeof before the call", size);
    }
    memcpy(destination, &source, size);
    destination->struct_size = size;
    return {};
}

}  // namespace gshm::client
