// The folder 3fs-virt/iovs of the mount, by which programs of 3FS recognise a mount and register their memory: any user
// makes a symbolic link to a file of /dev/shm in it. gshmd does not follow the links. A link goes with the process that
// made it. The links are no nodes of the store: they outlive gshmd in a folder of its runtime folder.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "fuse/call.h"
#include "fuse/entry_buffer.h"

namespace gshm::core::fuse {

// Safe from any thread.
class IovFolder {
public:
    static constexpr std::string_view kName = "3fs-virt";
    // Where the links are kept, below the runtime folder.
    static constexpr char kKeptName[] = "iovs";

    explicit IovFolder(const std::string& runtime_dir) : kept_path_(runtime_dir + "/" + kKeptName) {}
    // Reads the links that an earlier daemon has left.
    void load() EXCLUDES(mutex_);

    // Whether the node is of this folder.
    static bool has(uint64_t node) { return (node & kOwn) != 0; }
    // For the entry kName of the root.
    static fuse_entry_out entry();
    // Answers a request on a node of this folder.
    void handle(Call& call) EXCLUDES(mutex_);

private:
    static constexpr uint64_t kOwn = uint64_t{1} << 62;
    static constexpr uint64_t kTop = kOwn | 1;    // 3fs-virt
    static constexpr uint64_t kLinks = kOwn | 2;  // 3fs-virt/iovs
    static constexpr uint64_t kRoot = 1;          // of the mount
    static constexpr size_t kAtOnce = 128;        // links whose processes are looked up in one request
    struct Link {
        std::string name;
        std::string target;
        int64_t made_ns = 0;
        uid_t uid = 0;
        gid_t gid = 0;
        pid_t pid = 0;  // 0: a process that gshmd cannot see
        uint64_t started = 0;
        uint64_t request = 0;
    };
    // By the node id without kOwn, which ascends with the time.
    using Links = std::map<uint64_t, Link>;

    static fuse_attr folder_attr(uint64_t node);
    static fuse_attr link_attr(uint64_t number, const Link& link);
    static fuse_entry_out to_entry(const fuse_attr& attr);

    void lookup(Call& call) REQUIRES(mutex_);
    void make(Call& call) REQUIRES(mutex_);
    void remove(Call& call) REQUIRES(mutex_);
    void list(Call& call, bool with_attributes) REQUIRES(mutex_);
    // The link, unless its process has ended.
    Links::iterator find(uint64_t node) REQUIRES(mutex_);
    Links::iterator find(std::string_view name) REQUIRES(mutex_);
    Links::iterator add(uint64_t number, Link link) REQUIRES(mutex_);
    void drop(Links::iterator link) REQUIRES(mutex_);
    void drop_of_ended(const std::vector<uint64_t>& numbers) REQUIRES(mutex_);
    // The next links of a listing.
    std::vector<uint64_t> below(uint64_t position, size_t most) const REQUIRES(mutex_);
    void list_links(EntryBuffer& buffer, uint64_t position) REQUIRES(mutex_);
    Status check_room(uid_t uid) REQUIRES(mutex_);
    Status open_kept() REQUIRES(mutex_);

    const std::string kept_path_;
    Mutex mutex_;
    UniqueFd kept_ GUARDED_BY(mutex_);  // empty: not made yet
    Links links_ GUARDED_BY(mutex_);
    std::map<std::string, uint64_t, std::less<>> by_name_ GUARDED_BY(mutex_);
    std::map<uid_t, std::set<uint64_t>> of_user_ GUARDED_BY(mutex_);
    uint64_t last_ GUARDED_BY(mutex_) = kLinks & ~kOwn;
    uint64_t swept_ GUARDED_BY(mutex_) = UINT64_MAX;  // see check_room()
};

}  // namespace gshm::core::fuse
