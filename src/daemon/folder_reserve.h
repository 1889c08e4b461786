// Space of the runtime folder that gshmd keeps back, as a file without contents. It is given up when the folder is full,
// so that the catalog can still be written: names can then be removed, and no new ones made, until there is space again.
// For any thread.
#pragma once

#include <atomic>
#include <string>

#include "base/mutex.h"
#include "base/result.h"

namespace gshm::core {

class FolderReserve {
public:
    explicit FolderReserve(const std::string& dir) : path_(path(dir)), dir_(dir) {}

    static std::string path(const std::string& dir) { return dir + "/gshm.reserve"; }
    // Before a gshmd starts: gives up that of an earlier one if the folder is full.
    static void make_room(const std::string& dir);

    // Keeps the space back, if there is enough.
    void keep() EXCLUDES(mutex_);
    // The folder is full.
    void give_up() EXCLUDES(mutex_);
    // The folder is or was full, and there is not enough space yet to keep some back.
    bool is_needed() const { return needed_.load(std::memory_order_relaxed); }
    // Removes the file.
    void remove() EXCLUDES(mutex_);

private:
    void set_needed(bool needed) REQUIRES(mutex_);

    const std::string path_;
    const std::string dir_;
    std::atomic<bool> needed_ = false;
    Mutex mutex_;
    bool kept_ GUARDED_BY(mutex_) = false;
};

}  // namespace gshm::core
