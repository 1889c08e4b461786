// Makes gshmd's memory outlive it. The keeper holds the descriptor of every extent, the catalog has the nodes of the
// store, and the ledger has leases and sessions. Without a keeper none of them exist.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "catalog/catalog.h"
#include "daemon/catalog_writer.h"
#include "daemon/device_set.h"
#include "daemon/folder_reserve.h"
#include "daemon/journal_shares.h"
#include "daemon/keeper.h"
#include "daemon/kept_memory.h"
#include "daemon/maker.h"

namespace gshm::core {

class KeptObjects;

enum class KeeperKind { none, process, systemd };

class Survival final : private Recorder {
public:
    // Takes up the state of an earlier daemon in the folder, or begins anew if there is none.
    // begin: discards the earlier state. resume: fails if there is none. salvage: takes up the readable part.
    // EUCLEAN: it is damaged. It is unchanged then, and the message describes the kept memory and the user's options.
    enum class Earlier { any, begin, resume, salvage };
    static Result<std::unique_ptr<Survival>> create(EventLoop& loop, const std::string& dir, KeeperKind kind,
                                                    Earlier earlier);
    ~Survival() override;
    // For a takeover, while the other gshmd serves. EPROTO: create() would refuse the format of its state.
    static Status check_formats(const std::string& dir);
    // The files in the runtime folder whose size depends on the number of objects.
    static std::vector<std::string> files(const std::string& dir) { return Catalog::files(catalog_path(dir)); }

    uint64_t instance() const { return instance_; }
    int keeper_pid() const REQUIRES_SHARED(store_lock) { return keeper_ ? keeper_->pid() : 0; }
    KeeperKind kind() const { return kind_; }
    bool can_keep() const { return keeper_ != nullptr; }
    // Continues the state of an earlier daemon.
    bool is_resuming() const { return resuming_; }
    // The earlier state is damaged and rebuilt. Open files of its mount are not restored.
    bool is_salvaging() const { return salvaging_; }
    // The prefix of the keys of reserves.
    static constexpr std::string_view kReserves = "reserve of ";
    // A setting of the earlier daemon; "": none.
    std::string setting(std::string_view key) const;
    Status set_setting(std::string_view key, std::string_view value);
    // The private tmpfs of the earlier daemon's device `host`; empty: none.
    UniqueFd take_host_folder() { return take(kHostFolder); }
    // The mount's descriptor; empty: none.
    UniqueFd take_mount() { return take(kMount); }
    // The pages of fences, by object.
    std::vector<std::pair<NodeId, UniqueFd>> take_fences() { return std::move(fences_); }
    // Identify the earlier mounts, even if their descriptor was not kept. See fuse::MountPoint.
    const std::vector<std::string>& noted_mounts() const { return noted_mounts_; }
    void note_mounts(const std::vector<std::string>& notes);

    // Uses the earlier daemon's gshm-maker, or starts one, if a device has fabric handles. Handles of its memory
    // outlive gshmd. EPROTO: the earlier daemon was newer.
    Status start_maker(DeviceSet& devices) REQUIRES(store_lock);

    // Loads the earlier state into the store, and records changes from then on. Returns the sessions of living
    // processes.
    // with_mount: also restores the open files of the mount.
    using Sessions = std::vector<std::pair<SessionId, Restorer::Process>>;
    Result<Sessions> load(Store& store, DeviceSet& devices, bool with_mount) REQUIRES(store_lock);

    // Null: none. Shared with threads that call Keeper::sync() without the lock.
    std::shared_ptr<Keeper> keeper() const REQUIRES(store_lock) { return keeper_; }
    void keep_mount(int fd) REQUIRES(store_lock);
    void drop_mount() REQUIRES(store_lock);
    void keep_fence(NodeId object, int fd) REQUIRES(store_lock);
    void drop_fence(NodeId object) REQUIRES(store_lock);
    void mark_done(uint64_t request, NodeId node, uint64_t answered) REQUIRES(store_lock);
    Result<std::unordered_map<uint64_t, NodeId>> done() REQUIRES(store_lock) {
        return catalog_ ? catalog_->done() : decltype(catalog_->done()){};
    }
    // All changes so far outlive gshmd when this returns. Called before replies that depend on them.
    Status commit() REQUIRES(store_lock);

    // Entries of the journal after that place are of the user.
    uint64_t journal_place() const REQUIRES(store_lock) { return memory_ ? memory_->journal().end() : 0; }
    void count_rows(uid_t uid, uint64_t place) REQUIRES(store_lock) {
        if (memory_) shares_.add(memory_->journal(), uid, place);
    }

    // Told of all changes from now on, and after each commit. Null: no longer.
    void set_kept_objects(KeptObjects* kept) REQUIRES(store_lock) { kept_objects_ = kept; }

    // ---- from any thread ----
    // A user whose rows fill half of the journal moves them to the file here. Else a commit would find the journal full,
    // and wait for the file under the store lock.
    void make_room_for(uid_t uid) EXCLUDES(store_lock);
    // There are uncommitted changes. False: there were none at some moment of the call.
    bool is_pending() const { return pending_.load(std::memory_order_acquire); }
    // The catalog's file could not be written.
    bool is_failing() const { return failing_.load(std::memory_order_relaxed); }

    // At the end: frees all memory, ends the keeper and removes all files.
    void discard() REQUIRES(store_lock);
    // Called before the store is destroyed: its changes are not recorded any more.
    void forget_store() REQUIRES(store_lock);
    // Leaves the state to the next daemon. This object is not used any more.
    void close() REQUIRES(store_lock);

private:
    static constexpr uint64_t kSpecial = uint64_t{1} << 63;
    static constexpr uint64_t kMount = kSpecial | 1;
    static constexpr uint64_t kHostFolder = kSpecial | 2;
    static constexpr uint64_t kMaker = kSpecial | 3;
    static constexpr uint64_t kLedger = kSpecial | 4;
    static constexpr uint64_t kUnmappedSlab = 2;                      // in the ledger; of other slabs 1
    static constexpr uint64_t kFence = kSpecial | uint64_t{1} << 62;  // with the object's id

    Survival(EventLoop& loop, std::string dir) : loop_(loop), dir_(std::move(dir)), reserve_(dir_) {}
    static std::string catalog_path(const std::string& dir) { return dir + "/gshm.db"; }
    std::string catalog_path() const { return catalog_path(dir_); }
    std::string mount_note_path() const { return dir_ + "/gshm.mount"; }
    void remove_files();
    // Discards the earlier state.
    Status begin_anew() REQUIRES(store_lock);
    Status make_catalog();
    Status take_up(bool salvage) REQUIRES(store_lock);
    // State of a gshmd whose ledger was a file. Its catalog has version 1.
    Status take_up_former() REQUIRES(store_lock);
    Status load_former_numbers();
    Status load_former_ledger(const Store& store) REQUIRES(store_lock);
    UniqueFd take(uint64_t key);
    void note_extent(const StoredExtent& extent) REQUIRES(store_lock);
    void find_extent_notes() REQUIRES(store_lock);
    void forget_notes(const std::vector<uint64_t>& keys) REQUIRES(store_lock);
    // Moves committed rows to the catalog's file. From any thread.
    Status drain();
    // Keeps space of the folder back, and tells the store whether there is enough for further names. From any thread.
    void keep_space();

    // survival_salvage.cc
    // EUCLEAN for EUCLEAN and ENOENT, with the kept memory and the user's options in the message. Other errors are
    // unchanged.
    Error damaged(Error error) const REQUIRES(store_lock);
    std::string describe_kept() const REQUIRES(store_lock);
    Status begin_salvage() REQUIRES(store_lock);
    // The new catalog is complete.
    void end_salvage();
    Status move_damaged_files();
    Status load_salvaged(Restorer& restorer, DeviceSet& devices) REQUIRES(store_lock);
    void report_salvaged(const Restorer& restorer) const REQUIRES(store_lock);
    Result<std::shared_ptr<Extent>> take_extent(const Catalog::Kept& kept, DeviceSet& devices) REQUIRES(store_lock);
    void put_all() REQUIRES(store_lock);
    // Gives host files of an earlier version names, so that their descriptors need not be kept.
    void name_files() REQUIRES(store_lock);
    void keep_host_folder() REQUIRES(store_lock);
    void release_unused_makes();

    void changed(Node& node) override;
    void erased(const Node& node) override;
    void changed(StoredExtent& extent) override;
    void erased(const StoredExtent& extent) override;
    void set(std::string_view name, std::string_view value) override;
    // Those of users and groups. Of directories they are in the nodes.
    Status load_limits(const Catalog& source, Store& store) REQUIRES(store_lock);

    EventLoop& loop_;
    std::string dir_;
    FolderReserve reserve_;
    Budgets* budgets_ = nullptr;  // set by load()
    std::atomic<bool> looks_for_space_ = false;
    KeeperKind kind_ = KeeperKind::none;
    std::shared_ptr<Keeper> keeper_;                   // null: none; the other members are then unused
    Keeper::Kept kept_;                                // descriptors not yet taken
    std::vector<std::pair<NodeId, UniqueFd>> fences_;  // fences not yet taken
    std::unordered_map<NodeId, int> kept_fences_ GUARDED_BY(store_lock);  // descriptors are owned by Fences
    std::unique_ptr<Catalog> catalog_;
    std::unique_ptr<Catalog> damaged_;  // the source of a salvage; null: none, or unreadable
    std::optional<KeptMemory> memory_;
    JournalShares shares_;
    std::unordered_map<uint64_t, Ledger::Slot> extent_notes_ GUARDED_BY(store_lock);  // by key
    bool former_ = false;  // memory_ is new: the earlier gshmd had a file
    bool salvaging_ = false;
    size_t left_out_ = 0;  // damaged entries of the ledger, dropped by a salvage
    uint64_t instance_ = 0;
    bool resuming_ = false;
    void note_change() { pending_.store(true, std::memory_order_release); }
    std::atomic<bool> pending_ = false;
    std::atomic<bool> failing_ = false;
    std::vector<uint64_t> dropped_ GUARDED_BY(store_lock);  // keys that the keeper drops after the next commit
    std::vector<uint64_t> removed_ GUARDED_BY(store_lock);  // keys of files, which the keeper does not have
    // Descriptors of dropped extents, for a new keeper: until the commit the catalog still has their rows.
    std::unordered_map<uint64_t, UniqueFd> leaving_ GUARDED_BY(store_lock);
    Store* store_ GUARDED_BY(store_lock) = nullptr;  // set by load()
    KeptObjects* kept_objects_ GUARDED_BY(store_lock) = nullptr;
    DeviceSet* devices_ = nullptr;
    std::vector<std::string> noted_mounts_;
    int mount_fd_ GUARDED_BY(store_lock) = -1;
    bool host_folder_kept_ GUARDED_BY(store_lock) = false;
    std::set<FabricHandle> handles_;         // of the catalog's extents, during load()
    std::shared_ptr<MakerProcess> maker_;    // null: no device has fabric handles
    std::unique_ptr<CatalogWriter> writer_;  // last: its thread uses the catalog
};

}  // namespace gshm::core
