// The mount's requests: each is turned into calls of the store, and answered. Safe from any thread.
#pragma once

#include <deque>
#include <functional>
#include <unordered_map>

#include "fuse/backend.h"
#include "fuse/call.h"
#include "fuse/kernel_requests.h"
#include "fuse/known_nodes.h"

namespace gshm::core::fuse {

class FileSystem final : private TreeObserver, private Recording {
public:
    // Bytes that one request carries at most.
    static constexpr size_t kMostBytes = size_t{1} << 20;

    FileSystem(Backend& backend, KernelRequests& kernel) : backend_(backend), kernel_(kernel) {}
    ~FileSystem() override;

    // Answers the kernel's first request. EPROTO if it is too old for us, or if that is no first request. make_uring is
    // called where the kernel can send requests through io_uring, and says whether it shall: it then sends none until
    // that is registered.
    Status start(Call& call, const std::function<bool()>& make_uring);
    // Goes on with a mount that an earlier daemon has started, with what it had agreed upon with the kernel, and with
    // the requests that it has done and perhaps not answered.
    void resume(bool passthrough, std::unordered_map<uint64_t, NodeId> done) EXCLUDES(store_lock);
    // The kernel believes nothing that it remembers.
    void forget_all_remembered() EXCLUDES(store_lock);
    void handle(Call& call) EXCLUDES(store_lock);
    // Called without the store lock before (true) and after (false) a thread waits for other requests to be handled. False:
    // there is no other thread to handle them, and it must not; so it is unless this is called.
    void set_waiting(std::function<bool(bool)> waiting) { waiting_ = std::move(waiting); }
    // The kernel has let go of the mount: files that were open there are closed, what was looked up is forgotten.
    void end() EXCLUDES(store_lock);

    bool has_passthrough() const { return passthrough_; }
    // Another daemon can go on with the mount, if it has the descriptor.
    bool can_be_resumed() const { return resumable_; }

private:
    // ---- nodes.cc: what is known of a node ----
    void lookup(Call& call);
    void forget(Call& call);
    void forget_many(Call& call);
    void get_attributes(Call& call);
    void set_attributes(Call& call);
    void stat_device(Call& call);
    // The mode after somebody without the right to keep them has written; `by` null: whoever it was.
    static uint32_t without_set_id(const Node& node, const fuse_in_header* by);
    // For how long the kernel may believe what it is told of a node.
    static uint64_t remembered_s(Node& node) REQUIRES(store_lock);
    void drop_set_id(Node& node, const fuse_in_header& by) REQUIRES(store_lock);
    fuse_attr to_attr(Node& node) REQUIRES(store_lock);
    fuse_entry_out to_entry(Node& node) REQUIRES(store_lock);
    // Answers with the node, which the kernel thereby knows.
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

    // ---- attributes.cc: those that have names ----
    void set_attribute(Call& call);
    void get_attribute(Call& call);
    void list_attributes(Call& call);
    void remove_attribute(Call& call);
    Result<std::string> attribute_value(NodeId node, std::string_view name);
    Result<std::string> fabric_handle(NodeId node);
    Status set_device(NodeId node, std::string_view name);
    Status set_state(NodeId node, std::string_view state);

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
    // Opens it and says how; the object has memory to be opened with afterwards.
    Result<OpenOut> open_object(StoreLock& lock, Object* object, uint32_t flags, const fuse_in_header& who)
        REQUIRES(store_lock);
    // is_new: it has no effect if it cannot be opened.
    void reply_created(Call& call, StoreLock& lock, Object* object, uint32_t flags, bool is_new = false)
        REQUIRES(store_lock);
    // EBADF: the file is not open, or is another node's.
    Result<Object*> opened(NodeId node, FileId file) const REQUIRES(store_lock);

    // ---- memory.cc: the bytes of a file, wherever they are ----
    // Keeps an object while somebody works on its bytes.
    class Work;
    // Where the bytes of a file are in our memory, without a copy, for whoever holds the gate; null: read_bytes() has
    // them.
    static std::shared_ptr<Mapping> mapped_bytes(Work& work, uint64_t offset, uint64_t bytes,
                                                 std::span<const std::byte>* ret_bytes);
    Result<size_t> read_bytes(Work& work, uint64_t offset, std::span<std::byte> into) EXCLUDES(store_lock);
    Status write_file(Work& work, ExtentFile& file, uint64_t offset, std::span<const std::byte> from)
        EXCLUDES(store_lock);
    Status write_bytes(Work& work, uint64_t offset, std::span<const std::byte> from) EXCLUDES(store_lock);
    Status resize(Work& work, uint64_t size_bytes) EXCLUDES(store_lock);
    Status allocate_bytes(Work& work, int mode, uint64_t offset, uint64_t bytes) EXCLUDES(store_lock);
    // Moves the object into memory of its own.
    Status make_dedicated(Work& work) EXCLUDES(store_lock);
    // Into memory that has a fabric handle, and one that outlives gshmd where there is a process that makes such memory,
    // unless a process uses the memory that it has.
    Status make_exportable(Work& work) EXCLUDES(store_lock);
    // When nobody writes to it any more: gives back what it does not fill.
    Status settle(Work& work) EXCLUDES(store_lock);
    Status drop_empty(Work& work) EXCLUDES(store_lock);
    Status copy_bytes(Work& from, uint64_t from_offset, Work& to, uint64_t to_offset, uint64_t bytes,
                      std::span<std::byte> scratch, uint64_t* ret_copied) EXCLUDES(store_lock);
    // The caller holds the gate alone. Memory of so many bytes at least, with the first `kept` bytes in it. A move for
    // tidiness alone is given up (ECANCELED) when the object loses its last name.
    enum class Move { needed, unless_opened, tidy };  // tidy: unless it is opened or removed meanwhile
    Status move_to(Work& work, uint64_t capacity_bytes, uint64_t kept_bytes, uint64_t size_bytes,
                   Move reason = Move::needed) EXCLUDES(store_lock);
    // An operation that a full device refuses is tried again when memory has been freed. The caller holds no gate.
    Status with_room(const Work& work, const std::function<Status()>& operation) EXCLUDES(store_lock);
    uint64_t free_bytes(DeviceIndex device);
    // Until not much memory is on its way out, compared with what is free.
    void wait_for_departures(const Work& work, uid_t uid) EXCLUDES(store_lock);
    // Answers with how it went, and tells the daemon if the device is lost.
    void finish(Call& call, const Work& work, const Status& status) EXCLUDES(store_lock);

    bool has_gpu() const;
    KnownNodes known_nodes() REQUIRES(store_lock) { return KnownNodes(backend_.files()); }

    void begin() REQUIRES(store_lock);
    // close() returns before we learn of it: waits a moment until that is so. False: it is not.
    static bool closes_soon(StoreLock& lock, const std::function<bool()>& closed) REQUIRES(store_lock);
    // ESTALE: the node is gone, and the kernel has yet to learn that. It then looks the path up again, and does not tell
    // its caller that there is no such name: another node may have it.
    Result<Node*> find(NodeId id) const REQUIRES(store_lock);
    Result<Directory*> find_directory(NodeId id) const REQUIRES(store_lock);
    Result<Object*> find_object(NodeId id) const REQUIRES(store_lock);
    // The backing file of the object's memory; 0: none.
    int32_t backing_of(Object& object) REQUIRES(store_lock);
    void close_unnoted_backing() REQUIRES(store_lock);
    // The kernel has its inode no more, so that it needs no backing file.
    void drop_backing_if_unknown(NodeId node) REQUIRES(store_lock);
    // Nobody has counted how often the kernel was told of them: what it does not know any more is forgotten here, too.
    void ask_about(const std::vector<NodeId>& nodes) REQUIRES(store_lock);

    // ---- requests that must not be done twice ----
    // What was made for an answer that could not be given.
    void take_back_refused();
    int before_answer(const fuse_in_header& request, int code, std::span<const std::byte> body) override;
    // Under the lock under which it was done, if it takes several.
    void mark(const fuse_in_header& request, NodeId node);
    // True: an earlier daemon has done it, and it is answered.
    bool answer_again(Call& call);
    void dispatch(Call& call);

    // TreeObserver: somebody else has changed something.
    void entry_added(const Directory& parent, std::string_view name) override;
    void entry_removed(const Directory& parent, std::string_view name, const Node& node) override;
    void node_changed(const Node& node) override;

    Backend& backend_;
    KernelRequests& kernel_;
    std::function<bool(bool)> waiting_ = [](bool) { return false; };
    bool passthrough_ = false;
    bool resumable_ = false;
    std::unordered_map<uint64_t, NodeId> done_ GUARDED_BY(store_lock);  // by an earlier daemon, by the number of the request
    // Files that are empty, and keep their memory for a while: the next to open one will need it.
    static constexpr size_t kEmptyFiles = 1024;
    std::deque<NodeId> empty_files_ GUARDED_BY(store_lock);  // oldest first, and perhaps not empty any more
    bool ended_ GUARDED_BY(store_lock) = false;
};

}  // namespace gshm::core::fuse
