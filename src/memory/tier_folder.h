// The folder of a tier on disk: each evicted object is one file of checksummed chunks. docs/tier-format.md has the layout
// and what happens when the disk is full, fails or vanishes.
//
// The folder knows files by their numbers and nothing of objects: with `keep`, the facts of an object (tier_facts.h) are
// bytes beside its file. Several threads read and write each large file at once, past the page cache.
//
// Safe from any thread. write(), read() and open() use the disk and may take long: not to be called under the store lock.
// All others return at once, unless they say so.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/worker.h"
#include "device/device.h"
#include "memory/tier_disk.h"
#include "memory/tier_facts_log.h"
#include "memory/tier_format.h"
#include "memory/tier_lanes.h"

namespace gshm::core {

struct TierFolderSpec {
    std::string path;
    uint64_t capacity_bytes = UINT64_MAX;  // of all files on the disk; the disk itself may have less
    bool keep = false;                     // objects outlive the machine's restart
    int compression_level = 0;             // of zstd; 0: none, which is fastest
    // Objects of the catalog are in it: it must be the folder with the number `tier` (0: not known), and is not made.
    bool has_objects = false;
    uint64_t tier = 0;
    std::string text;  // that brings back what it keeps, for messages: "/nvme/gshm:1T:keep"; "": not known
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
    // its marker is damaged. ENODEV: it is missing or another one, and has objects of the catalog.
    using OnWait = std::function<void(const std::string& what)>;
    static Result<std::unique_ptr<TierFolder>> open(const TierFolderSpec& spec, uint64_t instance,
                                                    const OnWait& on_wait = {}, TierDisk& disk = TierDisk::kernel());
    // What open() checks and another gshmd that uses the folder does not change. Makes, changes and locks nothing.
    static Status check(const TierFolderSpec& spec, TierDisk& disk = TierDisk::kernel());
    // No call is under way. Waits for the removals.
    ~TierFolder();
    TierFolder(const TierFolder&) = delete;
    TierFolder& operator=(const TierFolder&) = delete;

    // Once, after open() and before all others: the numbers that the catalog names. Removes all other files, which a kill
    // has left behind; with `keep` not those of an earlier instance, see kept().
    // Returns the named numbers that have no complete file.
    std::vector<Number> begin(const std::unordered_set<Number>& named) EXCLUDES(mutex_);

    // ---- bytes ----
    // A new file with these bytes. It is on the disk when this returns, and until then it does not exist for a later
    // gshmd. On an error nothing stays behind. ENOSPC: over the capacity, or the disk is full, with the figures.
    // ECANCELED: stop() was called. EIO: any other error of the disk, which marks the tier as failed.
    // over_bytes: that the capacity may be exceeded by.
    Result<Number> write(const Extent& from, uint64_t offset, uint64_t size_bytes, const Check& check = {},
                         uint64_t over_bytes = 0) EXCLUDES(mutex_);
    // Brings all bytes back, each chunk verified before it is copied. `size_bytes` is the size of the object: another one
    // is EIO. EIO also for a file that is missing or damaged, with the chunk. Bytes of `to` are undefined on an error.
    Status read(Number number, Extent& to, uint64_t offset, uint64_t size_bytes, const Check& check = {});
    // A range of a file, for one who reads the object where it is. Reads and verifies whole chunks. EINVAL: beyond the
    // end.
    Status read_range(Number number, uint64_t offset, std::span<std::byte> destination);
    // Removes the file and its facts in another thread; its bytes are free afterwards. A reader that has it open reads
    // on. A file that cannot be removed marks the tier as failed, stays counted, and is removed by a later gshmd.
    // Unknown numbers are ignored.
    void remove(Number number) EXCLUDES(mutex_);
    // Waits for the removals so far.
    void wait_for_removals() EXCLUDES(mutex_);
    // Ends the writes and reads under way, and all later ones, at their next chunk.
    void stop() { stopped_ = true; }

    // ---- state ----
    const std::string& path() const { return spec_.path; }
    bool keeps() const { return spec_.keep; }
    // Its number, in the marker.
    uint64_t tier() const { return tier_; }
    uint64_t capacity_bytes() const EXCLUDES(mutex_);
    // With less than is used, there is no room until enough is removed.
    void set_capacity(uint64_t bytes) EXCLUDES(mutex_);
    // On the disk, with all overhead and with what the writes under way will need: never above the capacity.
    uint64_t used_bytes() const EXCLUDES(mutex_);
    uint64_t objects() const EXCLUDES(mutex_);
    // The largest object for which there is room now, by the capacity and by the disk. Asks the disk.
    uint64_t free_bytes() const EXCLUDES(mutex_);
    // The bytes that a file of an object takes on the disk, uncompressed.
    static uint64_t file_bytes(uint64_t size_bytes);
    // Why the tier takes no further objects; "": it does. Existing ones may still be readable.
    std::string failure() const EXCLUDES(mutex_);

    // Makes the copies of read() and write() fast for all GPUs of the process. The device must outlive the folder. May
    // fail, which costs speed only.
    Status pin(Device& device);

    // ---- facts, with `keep` only ----
    // Stores them beside the file in another thread, on the disk soon after (within about a second). The last one wins.
    void set_facts(Number number, std::string facts) EXCLUDES(mutex_);
    // Waits until all facts so far are on the disk. ENOSPC: there is no room for them; they are tried again after the next
    // removal.
    Status wait_for_facts() EXCLUDES(mutex_);
    // Calls `each` for the files of an earlier instance, in the order of their numbers, with the facts of each. To be
    // called after begin(). The caller adopts a file with set_facts(), after which it is as if this instance had written
    // it, or removes it. Files without readable facts are removed, and logged.
    using Each = std::function<void(Number number, const std::string& facts)>;
    void kept(const Each& each) EXCLUDES(mutex_);

private:
    struct File {
        uint64_t bytes = 0;  // on the disk
        bool kept = false;   // of an earlier instance, and not adopted yet
    };
    struct Table;
    TierFolder(const TierFolderSpec& spec, uint64_t instance, TierDisk& disk);

    // tier_folder_open.cc
    Status lock(const OnWait& on_wait);
    Status open_checked();
    Status mark();
    Status check_others() const;
    Status check_kept();
    Result<bool> read_marker();
    Status make_marker();
    Status scan() EXCLUDES(mutex_);
    Status scan_facts() EXCLUDES(mutex_);

    std::string path_of(Number number) const { return spec_.path + "/" + tier_file_name(number); }
    Result<Number> reserve(uint64_t bytes, uint64_t over_bytes) EXCLUDES(mutex_);
    Result<uint64_t> write_file(const TierHead& head, const Extent& from, uint64_t offset, const Check& check,
                                bool* ret_left);
    Status write_chunks(int file, const TierHead& head, const Extent& from, uint64_t offset, const Check& check);
    Result<Table> open_table(Number number, uint64_t first, uint64_t count);
    Result<std::span<const std::byte>> read_chunk(const Table& table, uint64_t chunk, TierLanes::Lane& lane);
    // Marks the tier as failed if the error, of the disk, means that. Returns the error for the caller.
    std::unexpected<Error> disk_error(Error error) EXCLUDES(mutex_);
    void note_failure(const std::string& why) EXCLUDES(mutex_);

    // tier_folder_tidy.cc: removals and facts, in a thread of their own
    void schedule() REQUIRES(mutex_);
    void tidy() EXCLUDES(mutex_);
    void remove_files(const std::vector<std::pair<Number, uint64_t>>& leaving) EXCLUDES(mutex_);
    Status write_facts(const TierFactsLog::Batch& batch) EXCLUDES(mutex_);

    const TierFolderSpec spec_;
    const uint64_t instance_;
    TierDisk& disk_;
    uint64_t tier_ = 0;
    UniqueFd folder_;  // locked
    std::atomic<bool> stopped_ = false;

    mutable Mutex mutex_;
    std::condition_variable tidied_;
    uint64_t capacity_bytes_ GUARDED_BY(mutex_);
    uint64_t used_bytes_ GUARDED_BY(mutex_) = 0;
    Number next_ GUARDED_BY(mutex_) = 1;
    std::string failure_ GUARDED_BY(mutex_);
    std::unordered_map<Number, File> files_ GUARDED_BY(mutex_);             // complete, and not removed
    std::vector<std::pair<Number, uint64_t>> leaving_ GUARDED_BY(mutex_);   // with their bytes
    std::unordered_map<Number, std::string> new_facts_ GUARDED_BY(mutex_);  // to be written
    bool tidying_ GUARDED_BY(mutex_) = false;                               // the thread is at work
    uint64_t asked_ GUARDED_BY(mutex_) = 0;                                 // removals and facts so far
    uint64_t answered_ GUARDED_BY(mutex_) = 0;                              // of these
    Status facts_status_ GUARDED_BY(mutex_);                                // of the last ones

    Mutex facts_mutex_;                                             // locked before mutex_
    std::unique_ptr<TierFactsLog> facts_ GUARDED_BY(facts_mutex_);  // null: without keep
    TierLanes lanes_;
    Worker worker_;  // last: its thread uses the rest
};

}  // namespace gshm::core
