// The private tmpfs of host memory. Each file has a name in it and is opened on demand, so that descriptors are needed
// for the files in use, not for those that exist. Thread-safe.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/mapping.h"
#include "base/mutex.h"

namespace gshm::core {

// An open file of host memory, and its mapping.
struct OpenHostFile {
    explicit OpenHostFile(UniqueFd opened) : fd(std::move(opened)) {}

    const UniqueFd fd;
    Mutex mutex;
    std::shared_ptr<Mapping> mapping GUARDED_BY(mutex);  // null: not mapped yet
};

class HostFolder {
public:
    // Files that stay open after their use, for the next one.
    static constexpr size_t kMostOpen = 64;

    // EPERM: mounting is not permitted.
    static Result<std::shared_ptr<HostFolder>> create(uint64_t capacity_bytes);
    // That of an earlier process.
    static Result<std::shared_ptr<HostFolder>> adopt(UniqueFd folder);

    int fd() const { return fd_.get(); }
    // The size of the file system; at least what its files use now.
    void set_size(uint64_t bytes) const;
    // Bytes of all its files, also of those that have no name any more.
    uint64_t used_bytes() const;

    struct Made {
        std::string name;
        UniqueFd fd;
    };
    // A new file, with a name that no other process uses.
    Result<Made> make();
    // The name of a file that outlives the process.
    static std::string name_of(uint64_t key);
    Status rename(const std::string& name, const std::string& new_name) const;
    // Names a file that has none. False: the file is in another file system.
    Result<bool> link(int file, const std::string& name) const;
    void unlink(const std::string& name) const;
    // ENOENT: no such file.
    Result<struct stat> stat(const std::string& name) const;
    Status set_times(const std::string& name, const timespec (&times)[2]) const;
    // A descriptor for the caller.
    Result<UniqueFd> open(const std::string& name, int access) EXCLUDES(mutex_);
    // Removes all files but those whose name is of a key that is in use.
    void clean(const std::function<bool(uint64_t key)>& is_used) const;

    // The place of an open file in the folder's list. Owned by the user of the file, and given to forget() before it is
    // destroyed.
    class Slot {
        friend class HostFolder;
        std::shared_ptr<OpenHostFile> file;  // null: not open
        std::list<Slot*>::iterator place;
    };
    // Opens the file, unless it is open. The file stays open while the result exists, and for as long as it is among
    // the kMostOpen files that were used last.
    Result<std::shared_ptr<OpenHostFile>> use(Slot& slot, const std::string& name) EXCLUDES(mutex_);
    // The file is open already.
    void add(Slot& slot, std::shared_ptr<OpenHostFile> file) EXCLUDES(mutex_);
    void forget(Slot& slot) EXCLUDES(mutex_);

private:
    explicit HostFolder(UniqueFd folder, std::string prefix) : fd_(std::move(folder)), prefix_(std::move(prefix)) {}
    // The oldest files beyond that number, for the caller to close without the mutex.
    std::list<std::shared_ptr<OpenHostFile>> take_oldest(size_t most) REQUIRES(mutex_);

    const UniqueFd fd_;
    const std::string prefix_;  // of the names of new files
    Mutex mutex_;
    uint64_t next_name_ GUARDED_BY(mutex_) = 1;
    std::list<Slot*> open_ GUARDED_BY(mutex_);  // the last used first
};

}  // namespace gshm::core
