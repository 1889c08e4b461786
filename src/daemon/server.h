// The daemon: accepts clients and connects the store, the devices and the sessions. Runs in the loop's thread.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>

#include "base/clock.h"
#include "daemon/client_loops.h"
#include "daemon/configuration.h"
#include "daemon/device_set.h"
#include "daemon/expiry.h"
#include "daemon/fences.h"
#include "daemon/freed_memory.h"
#include "daemon/kept_objects.h"
#include "daemon/loop.h"
#include "daemon/loop_scheduler.h"
#include "daemon/metrics.h"
#include "daemon/mount_backend.h"
#include "daemon/mount_records.h"
#include "daemon/reapers.h"
#include "daemon/reserves.h"
#include "daemon/ring_service.h"
#include "daemon/session.h"
#include "daemon/survival.h"
#include "fuse/mount.h"
#include "memory/move.h"
#include "memory/reclaim.h"
#include "memory/tiers.h"
#include "store/shared.h"
#include "store/waits.h"
#include "store/watches.h"
#include "wire/protocol_range.h"

namespace gshm::core {

class Server final {
public:
    // Loads the objects of an earlier daemon. Accepts clients from the listener. Survival must outlive the server.
    // with_mount: also loads the open files of its mount, which the caller resumes with resume_mount().
    static Result<std::unique_ptr<Server>> create(EventLoop& loop, std::unique_ptr<DeviceSet> devices,
                                                  Survival& survival, UniqueFd listener, bool with_mount);
    ~Server();

    EventLoop& loop() { return loop_; }
    ClientLoops& client_loops() { return *client_loops_; }
    Store& store() REQUIRES(store_lock) { return store_; }
    const Store& store_to_read() const REQUIRES_SHARED(store_lock) { return store_; }
    SharedStore shared_store() REQUIRES_SHARED(store_lock) { return SharedStore(store_); }
    const Clock& clock() const { return clock_; }
    DeviceSet& devices() { return *devices_; }
    Allocator& allocator() { return allocator_; }
    Mover& mover() { return mover_; }
    Tiers& tiers() { return tiers_; }
    const Tiers& tiers_to_read() const REQUIRES_SHARED(store_lock) { return tiers_; }
    Fences& fences() REQUIRES(store_lock) { return fences_; }
    Watches& watches() REQUIRES(store_lock) { return watches_; }
    Waits& waits() REQUIRES(store_lock) { return waits_; }
    Survival& survival() { return survival_; }
    Budgets& budgets() { return budgets_; }
    RingService& rings() { return *rings_; }
    Reapers& reapers() { return reapers_; }
    // False: transfers are blocked on a file that does not answer, and their threads cannot be joined.
    bool can_end() const { return rings_->is_idle(); }
    // Those that clients may speak.
    wire::ProtocolRange protocols() const { return protocols_; }
    uint64_t instance() const { return survival_.instance(); }
    const Credentials& owner() const { return owner_; }
    Reserves& reserves() REQUIRES(store_lock) { return reserves_; }

    // One slab of a key is allocated at a time. True: an allocation is in progress, and `resume` is called when it has
    // succeeded or failed. False: the caller must allocate, call slab_arrived() and run the tasks that it returns.
    bool wait_for_slab(const SlabKey& key, EventLoop::Task resume) REQUIRES(store_lock);
    std::vector<EventLoop::Task> slab_arrived(const SlabKey& key) REQUIRES(store_lock);

    // The session is destroyed before this returns.
    void end_session(Session* session) REQUIRES(store_lock);
    // Ends the session in the store, and wakes waiters for its fences.
    void forget_session(SessionId session) REQUIRES(store_lock);
    // Resumes a session of an earlier daemon, if there is one with that secret.
    std::optional<SessionId> resume_session(const Store::SessionSecret& secret, const Credentials& who)
        REQUIRES(store_lock);

    // All changes so far outlive gshmd when this returns.
    Status commit() REQUIRES(store_lock);
    // The same in a thread without the lock. Takes the lock only if there are uncommitted changes.
    Status commit_pending() EXCLUDES(store_lock);

    // What there is for all users. Before set_budgets().
    void set_machine(const Budgets::Machine& machine);
    // A single user may hold that share of what gshmd has for all users. First before start_clients(), then at any time.
    void set_budgets(unsigned share_percent, const Budgets::Totals& totals) {
        budgets_.set_limits(machine_, share_percent, totals);
    }
    // See DeviceSet::set_limits().
    void set_device_limits(const std::vector<std::string>& specs, uint64_t limit_bytes) REQUIRES(store_lock);
    // The last descriptors are kept back for root and the user who runs gshmd. `fd` is a new one.
    bool is_short_of_descriptors(int fd, const Budgets::User& user) const {
        return !user.is_exempt() && static_cast<uint64_t>(fd) >= descriptors_for_users_;
    }
    // server_tiers.cc. What can be checked of tiers while another gshmd still serves, see start_tiers(). former_folder:
    // that of its tiers, if it has objects.
    static Status check_tiers(const std::vector<std::string>& specs, const DeviceSet& devices,
                              const std::string& former_folder);
    // server_tiers.cc. Before the clients. specs: as of parse_tiers(). An error if objects are in a folder that is none of the
    // tiers.
    Status start_tiers(const std::vector<std::string>& specs, unsigned free_percent, const TierFolder::OnWait& on_wait)
        EXCLUDES(store_lock);
    // Starts the threads that serve clients. Before the loop runs.
    Status start_clients(unsigned threads, wire::ProtocolRange protocols);
    // Objects expire from now on. Before the loop runs, and after the mount is resumed, which is told of removals.
    Status start_expiry() EXCLUDES(store_lock);
    // Percent of each device with evictable objects, kept free for new ones.
    void set_tier_free(unsigned percent) REQUIRES(store_lock) { tiers_.set_free_percent(percent); }
    // The part of each device that an owner may pin, in percent.
    void set_pin_share(unsigned percent) { lifetimes_.set_pin_share(percent); }
    // Before the loop runs.
    void start_rings(uint64_t staging_bytes) EXCLUDES(store_lock);

    // Serves metrics until the end. After start_rings().
    Status start_metrics(MetricsListeners listeners, const Metrics::Start& start);

    // ---- server_reload.cc ----
    // For reload(), until the server is destroyed.
    void set_configuration(Configuration* configuration) { configuration_ = configuration; }
    // Reads the configuration again in another thread, takes up what can change, and logs that. `done` is called under
    // the lock. EBADMSG: the file is wrong, and nothing has changed. `asker` is for the log.
    using Reloaded = Result<std::vector<OptionChange>>;
    void reload(std::string asker, std::move_only_function<void(Reloaded)> done) REQUIRES(store_lock);

    // ---- server_mount.cc ----
    // Before the first mount. Clients find the daemon by its runtime folder.
    void set_mount_settings(MountSettings settings) { mount_settings_ = std::move(settings); }
    // Mounts, also at a further place. Not in the loop's thread while it runs.
    Status mount(const MountRecord& record) EXCLUDES(store_lock);
    // The same in another thread. `done` is called under the lock.
    void mount(MountRecord record, std::move_only_function<void(Status)> done) REQUIRES(store_lock);
    // Resumes the mounts of an earlier daemon. Before the loop runs. `path` is one of their places.
    Status resume_mount(const std::string& path, UniqueFd fd) EXCLUDES(store_lock);
    // As of the last change that gshmd has noticed.
    const std::vector<MountRecord>& mounts() const REQUIRES(store_lock) { return mounts_; }
    // "": none.
    std::string mountpoint() const REQUIRES(store_lock) { return mounts_.empty() ? std::string() : mounts_[0].path; }
    // path "": all mounts. `done` is called under the lock. EINVAL if nothing is mounted there.
    void unmount(std::string path, bool lazily, std::move_only_function<void(Status)> done) REQUIRES(store_lock);

    // Whether the memory stays for the next daemon when the loop has ended.
    void set_keep(bool keep) { keep_ = keep; }
    bool keeps() const { return keep_; }
    // Another gshmd, the client of that session, takes this one's place. No new work is started. When all work has
    // ended, the loop stops, and end() answers the request.
    void hand_over(std::shared_ptr<Session> to, uint64_t request) REQUIRES(store_lock);
    bool is_handing_over() const { return successor_ != nullptr; }
    // After the loop: leaves the memory to the next daemon, or frees it. In a takeover, folder_lock is sent to the
    // successor. True: the successor has it.
    bool end(int folder_lock) EXCLUDES(store_lock);

private:
    Server(EventLoop& loop, std::unique_ptr<DeviceSet> devices, Survival& survival, UniqueFd listener);
    void on_accept() REQUIRES(store_lock);
    Reloaded take_configuration(Result<Configuration> next, const std::string& asker) REQUIRES(store_lock);
    // Tells a client that its connection was refused.
    void refuse(UniqueFd socket, uid_t uid, const Error& error);
    // Keeps a session of an earlier daemon until its client resumes it or its process ends.
    Status await_session(SessionId session, const Restorer::Process& process) REQUIRES(store_lock);
    void end_awaited(SessionId session) REQUIRES(store_lock);
    std::function<void()> on_unmounted();
    Result<uint32_t> mount_generation();
    // The present mount; null: none. An ended one is destroyed first.
    std::shared_ptr<fuse::Mount> find_mount() EXCLUDES(store_lock);
    void use_mount(std::unique_ptr<fuse::Mount> mount) EXCLUDES(store_lock);
    void forget_mount() REQUIRES(store_lock);
    // Records the places of the mount, for the next daemon.
    Status keep_mount() EXCLUDES(store_lock);
    void watch_mounts();
    void refresh_mounts() EXCLUDES(store_lock);
    // Returns when no mount is being made or removed; none begins afterwards.
    void finish_mounting() EXCLUDES(store_lock);
    void finish_transfers() EXCLUDES(store_lock);
    static Device* first_gpu(DeviceSet& devices);
    // Takes up the objects that the folder has kept.
    Status start_keeping(TierFolder& folder) EXCLUDES(store_lock);
    // Removes the files of objects that end with gshmd.
    void empty_folder() EXCLUDES(store_lock);
    void stop_when_idle(std::chrono::steady_clock::time_point deadline) REQUIRES(store_lock);
    // Cancels the takeover.
    void keep_serving(std::string_view why) REQUIRES(store_lock);
    void refuse_for_want_of_descriptors();
    // Returns when the keeper has closed all dropped descriptors. In any thread but the loop's.
    void wait_for_keeper() EXCLUDES(store_lock);

    EventLoop& loop_;
    Reapers reapers_;  // destroyed last
    std::unique_ptr<DeviceSet> devices_;
    UniqueFd listener_;
    Survival& survival_;
    Reserves reserves_ GUARDED_BY(store_lock) = {*devices_, survival_};
    UniqueFd spare_;  // closed for a moment to accept and refuse a client when no descriptors are left
    Credentials owner_;
    SystemClock clock_;
    LoopScheduler scheduler_;
    Reclaim reclaim_;
    Store store_ GUARDED_BY(store_lock);
    Budgets& budgets_;      // of the store; for any thread
    Lifetimes& lifetimes_;  // likewise
    Budgets::Machine machine_;
    uint64_t descriptors_for_users_ = UINT64_MAX;
    Departures departures_ GUARDED_BY(store_lock);
    Allocator allocator_;
    Mover mover_;
    Tiers tiers_;
    std::unique_ptr<KeptObjects> kept_objects_ GUARDED_BY(store_lock);  // null: no tier keeps any
    Watches watches_ GUARDED_BY(store_lock);
    Waits waits_ GUARDED_BY(store_lock);
    Fences fences_ GUARDED_BY(store_lock);
    std::map<SlabKey, std::vector<EventLoop::Task>> slabs_under_way_ GUARDED_BY(store_lock);
    std::unique_ptr<Expiry> expiry_;
    std::unique_ptr<ClientLoops> client_loops_;
    wire::ProtocolRange protocols_;
    std::unordered_map<Session*, std::shared_ptr<Session>> sessions_ GUARDED_BY(store_lock);
    std::unique_ptr<RingService> rings_;
    std::unordered_map<SessionId, UniqueFd> awaited_ GUARDED_BY(store_lock);  // with their processes
    std::unique_ptr<MountBackend> mount_backend_;
    std::unique_ptr<FreedMemory> freed_memory_ = std::make_unique<FreedMemory>(loop_);
    std::unique_ptr<Worker> janitor_ = std::make_unique<Worker>();
    std::unique_ptr<Worker> reloader_ = std::make_unique<Worker>();
    Configuration* configuration_ = nullptr;
    std::unique_ptr<Worker> keeper_waits_ = std::make_unique<Worker>();
    std::shared_ptr<fuse::Mount> mount_;  // null: none, or unmounted
    std::weak_ptr<fuse::Mount> last_mount_;
    uint64_t mount_number_ = 0;  // of mount_
    MountSettings mount_settings_;
    std::vector<MountRecord> mounts_ GUARDED_BY(store_lock);
    UniqueFd mount_table_;  // readable when any mount of this machine has changed
    std::atomic<bool> mounts_changed_ = false;
    std::atomic<bool> refuses_mounts_ = false;
    bool keep_ = false;
    std::atomic<bool> ending_ = false;
    std::shared_ptr<Session> successor_;  // null: no takeover
    uint64_t takeover_request_ = 0;
    std::unique_ptr<Metrics> metrics_;  // destroyed first: its thread uses other members
};

}  // namespace gshm::core
