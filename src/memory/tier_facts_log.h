// The file of facts in a tier's folder: records are appended, the last one of a number counts. It is written anew when
// most of it is outdated. For one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "memory/tier_disk.h"
#include "memory/tier_format.h"

namespace gshm::core {

class TierFactsLog {
public:
    using Batch = std::vector<std::pair<uint64_t, std::string>>;  // number and facts

    // Reads the file, or makes it. Damaged records are left out and logged. `path`: of the folder, for messages.
    static Result<std::unique_ptr<TierFactsLog>> open(TierDisk& disk, int folder, const std::string& path,
                                                      uint64_t tier, uint64_t instance);
    static Status remove(TierDisk& disk, int folder);

    // Of the catalog of its last facts; 0: it has none.
    uint64_t instance_of(uint64_t number) const;
    Result<std::string> read(uint64_t number) const;
    // The numbers, in ascending order.
    std::vector<uint64_t> numbers() const;
    uint64_t bytes() const { return end_; }
    static uint64_t bytes_of(const Batch& batch);
    // The facts are of this instance now, and on the disk. On failure those before count.
    Status append(const Batch& batch);
    void forget(uint64_t number);
    // Of records that do not count.
    uint64_t wasted_bytes() const { return end_ - live_bytes_; }
    // Most of it is outdated.
    bool is_wasteful() const;
    // Writes the file anew.
    Status compact();

private:
    TierFactsLog(TierDisk& disk, int folder, const std::string& path, uint64_t tier, uint64_t instance)
        : disk_(disk), folder_(folder), path_(path + "/" + kTierFactsName), tier_(tier), instance_(instance) {}
    Status load();
    void put(const TierFactsHeader& header, uint64_t offset);

    struct Place {
        uint64_t offset = 0;  // of the facts
        uint64_t bytes = 0;
        uint64_t instance = 0;
        Checksum checksum;
        uint64_t record_bytes() const { return TierFactsHeader{.bytes = bytes}.record_bytes(); }
    };

    TierDisk& disk_;
    int folder_;
    std::string path_;
    uint64_t tier_;
    uint64_t instance_;
    UniqueFd file_;
    uint64_t end_ = 0;         // bytes of the file
    uint64_t live_bytes_ = 0;  // of these: records that count
    std::unordered_map<uint64_t, Place> places_;
};

}  // namespace gshm::core
