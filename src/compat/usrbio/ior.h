// The state behind an hf3fs_ior: a ring of gshm, indexes and user data of 3FS, and its files. One thread prepares and
// submits; another may wait meanwhile.
#pragma once

#include <atomic>
#include <condition_variable>
#include <hf3fs_usrbio.h>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "daemon.h"
#include "files.h"
#include "iov.h"

namespace gshm::usrbio {

class Ior {
public:
    struct Options {
        int entries = 0;
        bool for_read = true;
        int io_depth = 0;    // > 0: started in batches of this size
        uint64_t flags = 0;  // HF3FS_IOR_...
    };
    static Result<std::unique_ptr<Ior>> create(std::shared_ptr<Daemon> daemon, const Options& options);
    // Waits for operations in flight.
    ~Ior();

    int entries() const { return options_.entries; }
    // Returns an index >= 0, or -errno as hf3fs_prep_io().
    int prepare(const Iov& iov, uint64_t offset, uint64_t bytes, int fd, uint64_t file_offset, const void* user_data);
    int submit();
    // As hf3fs_wait_for_ios(); `least` is at most the capacity.
    int wait(std::span<hf3fs_cqe> cqes, size_t least, const timespec* deadline);

private:
    struct Slot {
        const void* user_data = nullptr;
        uint64_t file_offset = 0;
        std::shared_ptr<RegisteredFile> file;  // null if it is not needed afterwards
    };
    struct AddedFile {
        std::shared_ptr<RegisteredFile> file;
        uint32_t index = 0;  // in gshm's ring
    };

    Ior(std::shared_ptr<Daemon> daemon, gshm_ring* ring, const Options& options);
    Result<const AddedFile*> find_file(int fd);
    void forget_removed_files();
    int submit_prepared();
    hf3fs_cqe finish(const gshm_completion& completion);
    // Takes completions of gshm's ring: at least that many, unless the time passes. The lock is released meanwhile.
    int take(std::unique_lock<std::mutex>& lock, std::span<hf3fs_cqe> cqes, size_t least, int timeout_ms);
    int wait_in_turn(std::span<hf3fs_cqe> cqes, size_t least, const timespec* deadline);

    const std::shared_ptr<Daemon> daemon_;
    gshm_ring* const ring_;
    const Options options_;

    // One thread prepares and submits while another waits in gshm's ring, which is shared, without mutex_.
    std::timed_mutex waiting_;                  // one waiter at a time; taken before mutex_
    std::vector<gshm_completion> completions_;  // of the waiter
    std::mutex mutex_;                          // guards everything below
    std::condition_variable begun_;
    std::vector<Slot> slots_;
    std::vector<int> free_;                     // indexes of free slots
    size_t prepared_ = 0;                       // and not yet started
    size_t under_way_ = 0;                      // started, and not yet taken
    std::unordered_map<int, AddedFile> files_;  // by descriptor number
    std::vector<uint32_t> removed_;             // deregistered, but still in use by gshm's ring
    uint64_t version_ = 0;                      // of the file table that files_ reflects
};

}  // namespace gshm::usrbio
