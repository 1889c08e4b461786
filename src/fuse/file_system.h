// Handles the kernel's requests by calls of the store, and answers them. Safe from any thread.
#pragma once

#include <deque>
#include <functional>
#include <unordered_map>

#include "fuse/backend.h"
#include "fuse/call.h"
#include "fuse/iov_folder.h"
#include "fuse/kernel_requests.h"
#include "fuse/known_nodes.h"

namespace gshm::core::fuse {

class FileSystem final : private TreeObserver, private Recording {
public:
    // The most bytes of data in one request.
    static constexpr size_t kMostBytes = size_t{1} << 20;

    FileSystem(Backend& backend, KernelRequests& kernel)
        : backend_(backend), kernel_(kernel), iovs_(backend.runtime_dir()) {}
    ~FileSystem() override;

    // Answers the kernel's first request. EPROTO if the kernel is too old, or if the request is not INIT. make_uring is
    // called if the kernel can send requests through io_uring, and returns whether it shall. The kernel then sends none
    // until the queues are registered.
    Status start(Call& call, const std::function<bool()>& make_uring);
    // Negotiated with the kernel when the mount begins, for as long as it lasts.
    struct Features {
        bool passthrough = false;
        // The kernel decides by ACLs, leaves the umask to the mount, and sends the longer form of SETXATTR.
        bool acls = false;
    };
    // Continues the mount of an earlier daemon, and the requests that it has executed and perhaps not answered.
    void resume(Features features, std::unordered_map<uint64_t, NodeId> done) EXCLUDES(store_lock);
    // Invalidates all cached names and attributes in the kernel.
    void forget_all_remembered() EXCLUDES(store_lock);
    void handle(Call& call) EXCLUDES(store_lock);
    // `waiting` is called without the store lock before (true) and after (false) a thread waits for other requests to
    // be handled. It returns false if no other thread can handle them: then the thread must not wait. By default none
    // waits.
    void set_waiting(std::function<bool(bool)> waiting) { waiting_ = std::move(waiting); }
    // Called when the mount has ended in the kernel: closes its open files, and forgets all lookups.
    void end() EXCLUDES(store_lock);

    const Features& features() const { return features_; }
    // Another daemon can continue the mount, if it has the descriptor.
    bool can_be_resumed() const { return resumable_; }

private:
    // ---- nodes.cc: lookup and metadata ----
    void lookup(Call& call);
    // For the handle of a file: a lookup of "." or ".." in a node of any kind.
    void lookup_by_id(Call& call, bool parent);
    void forget(Call& call);
    void forget_many(Call& call);
    void get_attributes(Call& call);
    void set_attributes(Call& call);
    // EDQUOT: the new owner or group has no room for the object.
    Status check_new_owner(Node& node, const fuse_setattr_in& wanted) REQUIRES(store_lock);
    void stat_device(Call& call);
    // The mode without the set-id bits that a write by that user clears; `by` null: an unknown user.
    static uint32_t without_set_id(const Node& node, const fuse_in_header* by);
    // For how long the kernel may cache the attributes of a node.
    static uint64_t remembered_s(Node& node) REQUIRES(store_lock);
    void drop_set_id(Node& node, const fuse_in_header& by) REQUIRES(store_lock);
    fuse_attr to_attr(Node& node) REQUIRES(store_lock);
    // As the kernel is to use it for its checks.
    uint32_t shown_mode(const Node& node) const REQUIRES(store_lock);
    fuse_entry_out to_entry(Node& node) REQUIRES(store_lock);
    // The entry of the root that is not in the store, and not in listings.
    static bool is_iov_folder(NodeId parent, std::string_view name) {
        return parent == Files::kRoot && name == IovFolder::kName;
    }
    // Answers with the node, and counts the lookup.
    void reply_entry(Call& call, Node& node) REQUIRES(store_lock);

    // ---- names.cc ----
    void make_directory(Call& call);
    void make_node(Call& call);
    void make_symlink(Call& call);
    void read_symlink(Call& call);
    void link(Call& call);
    void unlink(Call& call);
    void remove_directory(Call& call);
    void rename(Call& call, bool with_flags);
    void read_directory(Call& call, bool with_attributes);

    // ---- attributes.cc: extended attributes ----
    void set_attribute(Call& call);
    void get_attribute(Call& call);
    void list_attributes(Call& call);
    void remove_attribute(Call& call);
    Result<std::string> attribute_value(NodeId node, std::string_view name);
    Result<std::string> fabric_handle(NodeId node);
    Status set_device(NodeId node, std::string_view name);
    Status set_state(NodeId node, std::string_view state);
    // Null: not the name of an ACL.
    static std::optional<AclKind> acl_kind(std::string_view name);
    Status set_acl(NodeId node, AclKind kind, std::string_view value, bool drop_set_group);
    Result<std::string> acl_value(NodeId node, AclKind kind);
    Status remove_acl(NodeId node, AclKind kind);

    // ---- files.cc ----
    void open(Call& call);
    void create(Call& call);
    void make_unnamed(Call& call);
    void close(Call& call);
    void read(Call& call);
    void write(Call& call);
    void allocate(Call& call);
    void seek(Call& call);
    void copy_range(Call& call);
    // Opens the object, and returns the answer. For passthrough it first gives the object a file, if possible.
    Result<OpenOut> open_object(StoreLock& lock, Object* object, uint32_t flags, const fuse_in_header& who)
        REQUIRES(store_lock);
    // Makes an object. At a limit, files without a name that count until the kernel has forgotten them are awaited for a
    // moment. The lock is released meanwhile, so the parent is looked up by `make`.
    Result<Object*> make_counted(StoreLock& lock, uid_t uid, const std::function<Result<Object*>()>& make)
        REQUIRES(store_lock);
    // is_new: the object is removed if it cannot be opened.
    void reply_created(Call& call, StoreLock& lock, Object* object, uint32_t flags, bool is_new = false)
        REQUIRES(store_lock);
    // EBADF: the file is not open, or belongs to another node.
    Result<Object*> opened(NodeId node, FileId file) const REQUIRES(store_lock);

    // ---- memory.cc: the bytes of a file ----
    // Keeps an object alive during work on its bytes.
    class Work;
    class Growth;
    // The bytes of a file in a mapping of gshmd, without a copy. The caller holds the gate. Null: use read_bytes().
    static std::shared_ptr<Mapping> mapped_bytes(Work& work, uint64_t offset, uint64_t bytes,
                                                 std::span<const std::byte>* ret_bytes);
    Result<size_t> read_bytes(Work& work, uint64_t offset, std::span<std::byte> into) EXCLUDES(store_lock);
    Status write_file(Work& work, ExtentFile& file, uint64_t offset, std::span<const std::byte> from)
        EXCLUDES(store_lock);
    Status write_bytes(Work& work, uint64_t offset, std::span<const std::byte> from) EXCLUDES(store_lock);
    // The same after its growth was counted.
    Status write_at(Work& work, uint64_t offset, std::span<const std::byte> from) EXCLUDES(store_lock);
    Status resize(Work& work, uint64_t size_bytes) EXCLUDES(store_lock);
    Status allocate_bytes(Work& work, int mode, uint64_t offset, uint64_t bytes) EXCLUDES(store_lock);
    Status check_keeps_size(const Work& work, uint64_t end) EXCLUDES(store_lock);
    // A file without a name counts until the kernel has closed it, in one of the accounts of the object.
    bool gets_room_soon(const Work& work) EXCLUDES(store_lock);
    // Moves the object from its slab into memory of its own.
    Status make_dedicated(Work& work) EXCLUDES(store_lock);
    // Moves the object into memory with a fabric handle, which outlives gshmd if there is a process that makes such
    // memory. Does nothing if a process uses the present memory.
    Status make_exportable(Work& work) EXCLUDES(store_lock);
    // Frees memory beyond the object's size, if no process writes to the object any more.
    Status settle(Work& work) EXCLUDES(store_lock);
    Status drop_empty(Work& work) EXCLUDES(store_lock);
    Status copy_bytes(Work& from, uint64_t from_offset, Work& to, uint64_t to_offset, uint64_t bytes,
                      std::span<std::byte> scratch, uint64_t* ret_copied) EXCLUDES(store_lock);
    // Moves the object into memory of at least capacity_bytes, with its first kept_bytes. The caller holds the gate
    // exclusively. A move with a condition is cancelled (ECANCELED): `unless_opened`
    // when a client opens the object meanwhile, `tidy` also when the object loses its last name. `needed` and `tidy` may
    // choose a place in a slab that no process maps, if capacity_bytes is size_bytes; the others give it memory of its
    // own.
    enum class Move { needed, own, unless_opened, tidy };
    Status move_to(Work& work, uint64_t capacity_bytes, uint64_t kept_bytes, uint64_t size_bytes,
                   Move reason = Move::needed) EXCLUDES(store_lock);
    // Repeats an operation that a full device refuses, when memory has been freed. The caller holds no gate.
    // Brings its bytes back from a tier, if one has them. The lock is released meanwhile.
    Status bring_back(StoreLock& lock, Object* object) REQUIRES(store_lock);
    Status with_room(const Work& work, const std::function<Status()>& operation) EXCLUDES(store_lock);
    uint64_t free_bytes(DeviceIndex device);
    // See Store::may_share().
    bool may_share(const Work& work, uint64_t size_bytes) EXCLUDES(store_lock);
    // Waits until the memory that is being freed is small compared with the free memory.
    void wait_for_departures(const Work& work, uid_t uid) EXCLUDES(store_lock);
    // Answers with the status, and reports an error to the daemon, since the device may be lost.
    void finish(Call& call, const Work& work, const Status& status) EXCLUDES(store_lock);

    bool has_gpu() const;
    KnownNodes known_nodes() REQUIRES(store_lock) { return KnownNodes(backend_.files()); }

    void begin() REQUIRES(store_lock);
    // close(2) returns before gshmd gets RELEASE: waits for that for a moment. False: it has not come.
    static bool closes_soon(StoreLock& lock, const std::function<bool()>& closed) REQUIRES(store_lock);
    // ESTALE: the node is gone, but the kernel still knows it. The kernel then looks up the path again, and does not
    // return ENOENT to its caller: another node may have the name.
    Result<Node*> find(NodeId id) const REQUIRES(store_lock);
    Result<Directory*> find_directory(NodeId id) const REQUIRES(store_lock);
    Result<Object*> find_object(NodeId id) const REQUIRES(store_lock);
    // The backing file of the object's memory, opened if necessary; 0: none.
    int32_t backing_of(Object& object) REQUIRES(store_lock);
    void close_unnoted_backing() REQUIRES(store_lock);
    // Closes the backing file if the kernel no longer has the inode.
    void drop_backing_if_unknown(NodeId node) REQUIRES(store_lock);
    // Lookup counts from the previous daemon are unknown: asks the kernel about the nodes, and forgets those that it
    // does not know.
    void ask_about(const std::vector<NodeId>& nodes) REQUIRES(store_lock);

    // ---- requests that must not be repeated ----
    // Undoes the lookup and the open of an answer that was not sent.
    void take_back_refused();
    int before_answer(const fuse_in_header& request, int code, std::span<const std::byte> body) override;
    // If the request takes the store lock several times: called under the one that covers the change.
    void mark(const fuse_in_header& request, NodeId node);
    // True: an earlier daemon has executed the request, and it is answered now.
    bool answer_again(Call& call);
    void dispatch(Call& call);

    // TreeObserver: changes that the mount did not make.
    void entry_added(const Directory& parent, std::string_view name) override;
    void entry_removed(const Directory& parent, std::string_view name, const Node& node) override;
    void node_changed(const Node& node) override;

    Backend& backend_;
    KernelRequests& kernel_;
    IovFolder iovs_;
    std::function<bool(bool)> waiting_ = [](bool) { return false; };
    Features features_;
    bool resumable_ = false;
    std::unordered_map<uint64_t, NodeId> done_ GUARDED_BY(store_lock);  // by an earlier daemon; request -> node
    // Empty files that keep their memory for a while, since the next open needs it.
    static constexpr size_t kEmptyFiles = 1024;
    std::deque<NodeId> empty_files_ GUARDED_BY(store_lock);  // oldest first; some may no longer be empty
    bool ended_ GUARDED_BY(store_lock) = false;
};

}  // namespace gshm::core::fuse
