// What an hf3fs_ior's handle stands for: a ring of gshm's, the indexes and user data of 3FS's, and the files it has
// been handed. One thread prepares and submits; another may wait meanwhile.
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
        int io_depth = 0;    // > 0: so many are begun at once
        uint64_t flags = 0;  // HF3FS_IOR_...
    };
    static Result<std::unique_ptr<Ior>> create(std::shared_ptr<Daemon> daemon, const Options& options);
    // Waits for what is under way.
    ~Ior();

    int entries() const { return options_.entries; }
    // An index >= 0, or -errno as hf3fs_prep_io() has them.
    int prepare(const Iov& iov, uint64_t offset, uint64_t bytes, int fd, uint64_t file_offset, const void* user_data);
    int submit();
    // As hf3fs_wait_for_ios(); `least` is no more than there is room for.
    int wait(std::span<hf3fs_cqe> cqes, size_t least, const timespec* deadline);

private:
    struct Slot {
        const void* user_data = nullptr;
        uint64_t file_offset = 0;
        std::shared_ptr<RegisteredFile> file;  // null where nothing is asked of it afterwards
    };
    struct AddedFile {
        std::shared_ptr<RegisteredFile> file;
        uint32_t index = 0;  // in gshm's ring
    };

    Ior(std::shared_ptr<Daemon> daemon, gshm_ring* ring, const Options& options);
    Result<const AddedFile*> find_file(int fd);
    std::unique_lock<std::mutex> enter();
    void let_others_go_first(std::unique_lock<std::mutex>& lock);
    void forget_removed_files();
    int submit_prepared();
    hf3fs_cqe finish(const gshm_completion& completion);
    // What gshm's ring has, at least so many unless the time passes or somebody else wants it.
    int take(std::span<hf3fs_cqe> cqes, size_t least, int timeout_ms);
    int wait_in_turn(std::span<hf3fs_cqe> cqes, size_t least, const timespec* deadline);

    const std::shared_ptr<Daemon> daemon_;
    gshm_ring* const ring_;
    const Options options_;

    // Gshm's ring is for one thread at a time, and 3FS's are not: whoever prepares while another waits in the ring
    // wakes that one, who lets it go first and waits on.
    std::timed_mutex waiting_;     // one waits at a time; taken before mutex_
    std::mutex mutex_;             // of all below, and of gshm's ring
    std::atomic<int> wanted_ = 0;  // threads that want mutex_ from who waits in the ring
    std::condition_variable begun_;
    std::vector<gshm_completion> completions_;
    std::vector<Slot> slots_;
    std::vector<int> free_;                     // indexes of slots that nothing is under way in
    size_t prepared_ = 0;                       // and not yet begun
    size_t under_way_ = 0;                      // begun, and not yet taken
    std::unordered_map<int, AddedFile> files_;  // by descriptor number
    std::vector<uint32_t> removed_;             // deregistered, but still in use in gshm's ring
    uint64_t generation_ = 0;                   // of the table that files_ is of
};

}  // namespace gshm::usrbio
