// What the opaque handles of gshm.h are.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "client/core.h"
#include "gshm/gshm.h"

namespace gshm::core::client {
class Ring;
}

struct gshm_client {
    std::shared_ptr<gshm::core::client::Core> core;
};

// Of a daemon (core is set), or memory of this process alone.
struct gshm_object {
    std::shared_ptr<gshm::core::client::Core> core;
    uint64_t id = 0;
    gshm::core::client::ExtentKey key;                 // of a daemon's object
    gshm::core::client::MappedExtent* mapped = nullptr;  // null with GSHM_NO_MAP
    std::unique_ptr<gshm::core::Extent> own;           // without a daemon
    gshm::core::Device* local = nullptr;               // that the memory is on, here; null with GSHM_NO_MAP
    gshm::core::Access access = gshm::core::Access::read;
    bool sealed = false;
    uint64_t size_bytes = 0;
    uint64_t offset = 0;  // in the extent
    std::string device;
    gshm_object* next = nullptr;  // of the core's
    gshm_object* previous = nullptr;
    uint64_t generation = gshm::core::client::fork_count();
    // Transfers under way and mirrors, and kClosing once it is to be closed with the last of them.
    static constexpr uint32_t kClosing = 1u << 31;
    std::atomic<uint32_t> transfers = 0;
    std::vector<gshm::core::client::Ring*> rings;  // that know it; guarded by a lock of ring.cc

    // The memory as this process has it; null with GSHM_NO_MAP.
    gshm::core::Extent* extent() const { return own ? own.get() : mapped != nullptr ? mapped->extent.get() : nullptr; }
    gshm::core::Status check_use() const { return gshm::core::client::check_fork_count(generation); }
};

// Kept small, since there may be very many: names one after the other, and records as they came.
struct gshm_listing {
    struct Entry {
        size_t name = 0;  // where it begins in `names`
        gshm::core::wire::NodeRecord record;
    };
    std::string names;  // each ended by NUL
    std::vector<Entry> entries;
    std::vector<uint32_t> order;  // of the entries, by name
    std::shared_ptr<const std::vector<gshm::core::client::RemoteDevice>> devices;
    // Of what is unlinked: those of each entry end in `holders` where `holders_end` says.
    std::vector<gshm_holder> holders;
    std::vector<size_t> holders_end;

    const char* name(const Entry& entry) const { return names.c_str() + entry.name; }
    void add(std::string_view prefix, std::string_view last, const gshm::core::wire::NodeRecord& record) {
        entries.push_back({names.size(), record});
        names.append(prefix).append(last).push_back('\0');
    }
    void sort();
};

namespace gshm::core::client {

// Ends the leases of these objects (of any daemons) and frees the handles; of those that transfers are under way with,
// when these have ended.
void close_objects(std::span<gshm_object* const> objects);

// Keeps a handle that the caller closes until it is let go of.
void hold_object(gshm_object& object);
void let_go_of_object(gshm_object* object);

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

}  // namespace gshm::core::client
