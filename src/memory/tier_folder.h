// The folder of a tier on disk: each evicted object is one file of checksummed chunks. docs/tier-format.md has the layout
// and what happens when the disk is full, fails or vanishes.
//
// The folder knows files by their numbers and nothing of objects: with `keep`, the facts of an object (tier_facts.h) are
// bytes beside its file. Several threads read and write each large file at once, past the page cache.
//
// Safe from any thread. write(), read() and open() use the disk and may take long: not to be called under the store lock.
// All others return at once, unless they say so.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "device/device.h"

namespace gshm::core {

struct TierFolderSpec {
    std::string path;
    uint64_t capacity_bytes = UINT64_MAX;  // of all files on the disk; the disk itself may have less
    bool keep = false;                     // objects outlive the machine's restart
    int compression_level = 0;             // of zstd; 0: none, which is fastest
};

class TierFolder {
public:
    // A number of a file. Never used again, not even by a later gshmd. 0: no file.
    using Number = uint64_t;
    // Called before each chunk, from several threads; an error ends the call with that error.
    using Check = std::function<Status()>;

    // `instance` is that of the catalog (Survival::instance()). Makes a missing folder (not those above it: a disk that
    // is not mounted must not become a folder of the root disk), checks it, and locks it. `on_wait` gets the reason of a
    // wait for a gshmd that is ending.
    // EPERM: another user could write to it or replace it. EBUSY: another gshmd uses it. ENOTEMPTY: it has other files
    // than those of a tier, or, without `keep`, objects that were kept. EXDEV: the folder of another machine. EBADMSG:
    // its marker is damaged.
    using OnWait = std::function<void(const std::string& what)>;
    static Result<std::unique_ptr<TierFolder>> open(const TierFolderSpec& spec, uint64_t instance,
                                                    const OnWait& on_wait = {});
    // No call is under way. Waits for the removals.
    ~TierFolder();
    TierFolder(const TierFolder&) = delete;
    TierFolder& operator=(const TierFolder&) = delete;

    // Once, after open() and before all others: the numbers that the catalog names. Removes all other files, which a kill
    // has left behind; with `keep` not those of an earlier instance, see kept().
    // Returns the named numbers that have no complete file.
    std::vector<Number> begin(const std::unordered_set<Number>& named);

    // ---- bytes ----
    // A new file with these bytes. It is on the disk when this returns, and until then it does not exist for a later
    // gshmd. On an error nothing stays behind. ENOSPC: over the capacity, or the disk is full, with the figures.
    // ECANCELED: stop() was called. EIO or another error of the disk marks the tier as failed.
    Result<Number> write(const Extent& from, uint64_t offset, uint64_t size_bytes, const Check& check = {});
    // Brings all bytes back, each chunk verified before it is copied. `size_bytes` is the size of the object: another one
    // is EIO. EIO also for a file that is missing or damaged, with the chunk. Bytes of `to` are undefined on an error.
    Status read(Number number, Extent& to, uint64_t offset, uint64_t size_bytes, const Check& check = {});
    // A range of a file, for one who reads the object where it is. Reads and verifies whole chunks. EINVAL: beyond the
    // end.
    Status read_range(Number number, uint64_t offset, std::span<std::byte> destination);
    // Removes the file and its facts in another thread; its bytes are free afterwards. A reader that has it open reads
    // on. A file that cannot be removed marks the tier as failed, stays counted, and is removed by a later gshmd.
    void remove(Number number);
    // Waits for the removals so far.
    void wait_for_removals();
    // Ends the writes under way, and all later ones, at their next chunk.
    void stop();

    // ---- state ----
    const std::string& path() const;
    bool keeps() const;
    uint64_t capacity_bytes() const;
    // On the disk, with all overhead and with what the writes under way will need: never above the capacity.
    uint64_t used_bytes() const;
    uint64_t objects() const;
    // The largest object for which there is room now, by the capacity and by the disk. Asks the disk.
    uint64_t free_bytes() const;
    // The bytes that a file of an object takes on the disk, uncompressed.
    static uint64_t file_bytes(uint64_t size_bytes);
    // Why the tier takes no further objects; "": it does. Existing ones may still be readable.
    std::string failure() const;

    // Makes the copies of read() and write() fast for all GPUs of the process. The device must outlive the folder. May
    // fail, which costs speed only.
    Status pin(Device& device);

    // ---- facts, with `keep` only ----
    // Stores them beside the file in another thread, on the disk soon after (within about a second). The last one wins.
    void set_facts(Number number, std::string facts);
    // Waits until all facts so far are on the disk.
    void wait_for_facts();
    // The complete files of an earlier instance that have facts, in the order of their numbers. To be called after
    // begin(). The caller adopts each with set_facts(), after which it is as if this instance had written it, or removes
    // it.
    struct Kept {
        Number number = 0;
        uint64_t size_bytes = 0;
        std::string facts;
    };
    std::vector<Kept> kept();

private:
    class Disk;
    explicit TierFolder(std::unique_ptr<Disk> disk);
    std::unique_ptr<Disk> disk_;
};

}  // namespace gshm::core
