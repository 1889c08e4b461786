// The structs behind the opaque handles of gshm.h.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "client/core.h"
#include "gshm/gshm.h"

namespace gshm::core::client {
class Ring;
}  // namespace gshm::core::client

struct gshm_client {
    std::shared_ptr<gshm::core::client::Core> core;
};

// An object of a daemon (core is set), or memory of this process alone.
struct gshm_object {
    std::shared_ptr<gshm::core::client::Core> core;
    uint64_t id = 0;
    gshm::core::client::ExtentKey key;                   // of a daemon's object
    gshm::core::client::MappedExtent* mapped = nullptr;  // null with GSHM_NO_MAP
    std::unique_ptr<gshm::core::Extent> own;             // without a daemon
    gshm::core::Device* local = nullptr;                 // the device of the memory; null with GSHM_NO_MAP
    gshm::core::Access access = gshm::core::Access::read;
    bool sealed = false;
    uint64_t size_bytes = 0;
    uint64_t offset = 0;  // in the extent
    std::string device;
    gshm_object* next = nullptr;  // in the list of the core
    gshm_object* previous = nullptr;
    uint64_t generation = gshm::core::client::fork_count();
    // The number of transfers and mirrors. kClosing: the object is closed with the last of them.
    static constexpr uint32_t kClosing = 1u << 31;
    std::atomic<uint32_t> transfers = 0;
    std::vector<gshm::core::client::Ring*> rings;  // that know the object; guarded by a lock in ring.cc

    // The memory in this process; null with GSHM_NO_MAP.
    gshm::core::Extent* extent() const { return own ? own.get() : mapped != nullptr ? mapped->extent.get() : nullptr; }
    gshm::core::Status check_use() const { return gshm::core::client::check_fork_count(generation); }
};

// Compact, since there may be very many entries: names one after the other, and records as received.
struct gshm_listing {
    struct Entry {
        size_t name = 0;  // its offset in `names`
        gshm::core::wire::NodeRecord record;
    };
    std::string names;  // each ended by NUL
    std::vector<Entry> entries;
    std::vector<uint32_t> order;  // indices of the entries, sorted by name
    std::shared_ptr<const std::vector<gshm::core::client::RemoteDevice>> devices;
    // For unlinked objects: the end of the holders of each entry in `holders`.
    std::vector<gshm_holder> holders;
    std::vector<size_t> holders_end;

    const char* name(const Entry& entry) const { return names.c_str() + entry.name; }
    void add(std::string_view prefix, std::string_view last, const gshm::core::wire::NodeRecord& record) {
        entries.push_back({names.size(), record});
        names.append(prefix).append(last).push_back('\0');
    }
    // Reserves for so many more. Grows by half at least: a recursive list expects the entries of each directory.
    void expect(size_t more) {
        const size_t wanted = entries.size() + more;
        if (wanted > entries.capacity()) entries.reserve(std::max(wanted, entries.capacity() * 3 / 2));
    }
    void sort();
};

namespace gshm::core::client {

// Ends the leases of these objects (of any daemons) and frees the handles. An object with transfers under way is closed
// after the last of them.
void close_objects(std::span<gshm_object* const> objects);

// A held handle stays valid after the caller closes it, until let_go_of_object().
void hold_object(gshm_object& object);
void let_go_of_object(gshm_object* object);

}  // namespace gshm::core::client
