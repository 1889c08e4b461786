// What the metrics report of the store, besides the accounts: kept where it changes, so that nothing is counted at a
// scrape.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace gshm::core {

// Why an object has given its memory back.
enum class ReclaimReason : uint8_t {
    unlinked,     // its last name was removed, or another node has got that name
    client_died,  // it ended with the session that created it
    ttl,          // it expired
    evicted,      // its bytes went to a tier
};
inline constexpr size_t kReclaimReasons = 4;

class StoreCounts {
public:
    explicit StoreCounts(size_t devices) : devices_(devices), leases_(kShards) {
        for (auto& shard : leases_) shard.by_device = std::make_unique<Leases[]>(devices);
    }

    // ---- changes under the exclusive store lock, read under the shared one ----
    void reclaimed(size_t device, ReclaimReason reason, uint64_t bytes) {
        devices_[device].reclaimed_bytes[static_cast<size_t>(reason)] += bytes;
    }
    uint64_t reclaimed_bytes(size_t device, ReclaimReason reason) const {
        return devices_[device].reclaimed_bytes[static_cast<size_t>(reason)];
    }
    // The bytes of an object have left the device for the tier: for host memory, or for a folder.
    void evicted(size_t device, bool to_folder, uint64_t bytes) {
        ++devices_[device].evictions[to_folder ? 1 : 0];
        reclaimed(device, ReclaimReason::evicted, bytes);
    }
    uint64_t evictions(size_t device, bool to_folder) const { return devices_[device].evictions[to_folder ? 1 : 0]; }

    // ---- leases of sessions, on objects whose bytes are on the device; also under the shared store lock ----
    void add_leases(uint64_t session, size_t device, int64_t readers, int64_t writers) {
        Leases& leases = leases_[session % kShards].by_device[device];
        if (readers != 0) leases.readers.fetch_add(readers, std::memory_order_relaxed);
        if (writers != 0) leases.writers.fetch_add(writers, std::memory_order_relaxed);
    }
    int64_t readers(size_t device) const { return sum(device, &Leases::readers); }
    int64_t writers(size_t device) const { return sum(device, &Leases::writers); }

private:
    struct OfDevice {
        std::array<uint64_t, kReclaimReasons> reclaimed_bytes = {};
        std::array<uint64_t, 2> evictions = {};
    };
    struct alignas(64) Leases {
        std::atomic<int64_t> readers = 0;
        std::atomic<int64_t> writers = 0;
    };
    // By session, so that threads seldom write the same cache line. The leases of a session are in one shard.
    static constexpr size_t kShards = 16;
    struct Shard {
        std::unique_ptr<Leases[]> by_device;
    };

    int64_t sum(size_t device, std::atomic<int64_t> Leases::* kind) const {
        int64_t all = 0;
        for (const auto& shard : leases_) all += (shard.by_device[device].*kind).load(std::memory_order_relaxed);
        return all;
    }

    std::vector<OfDevice> devices_;
    std::vector<Shard> leases_;
};

}  // namespace gshm::core
