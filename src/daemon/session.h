// One client: decodes its requests, runs them on the store and the devices, and replies.
#pragma once

#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/limits.h"
#include "base/mapping.h"
#include "daemon/connection.h"
#include "daemon/device_set.h"
#include "store/waits.h"
#include "wire/version.h"

namespace gshm::core {

class ClientRing;
class Server;

// The reply to a request whose change was made but could not be written.
Error made_but_unwritten(const Error& error);

class Session final : private Connection::Handler, public std::enable_shared_from_this<Session> {
public:
    // EUSERS, EMFILE: its user has too many connections or descriptors. The socket is not taken then.
    static Result<std::shared_ptr<Session>> create(Server& server, UniqueFd& socket, const Credentials& who)
        REQUIRES(store_lock);

    SessionId id() const { return id_; }
    // The protocol of the session.
    uint32_t protocol() const { return protocol_; }
    Server& server() { return server_; }

    // Replies. The builder can be reused when reply() returns. unwritten: called under the lock, instead of the default
    // error reply, if the change cannot be written. keeps: keeps the descriptors open until they are sent; without it a
    // reply with descriptors is sent under the lock.
    using Unwritten = std::move_only_function<void(const Error& error)>;
    flatbuffers::FlatBufferBuilder& builder();
    void reply(uint64_t request, wire::ReplyBody kind, flatbuffers::Offset<void> body,
               std::span<const int> descriptors = {}, int error = 0, std::string_view message = {},
               Unwritten unwritten = {}, std::shared_ptr<const void> keeps = {});
    void reply_ok(uint64_t request) { reply(request, wire::ReplyBody::NONE, 0); }
    void reply_error(uint64_t request, const Error& error);
    void reply_status(uint64_t request, const Status& status);
    // The same for a change of names or objects: the refusal of a directory's limit tells the users of the directory.
    void reply_change(uint64_t request, const Status& status) REQUIRES(store_lock);
    // The refusal of a directory's limit, with the users of the directory.
    Error explained(Error error) const REQUIRES(store_lock);
    // To the log, with the client.
    void note_failure(std::string_view operation, const Error& error) const;

    // True if the client does not have a descriptor of the extent for this access. The caller must then send it.
    bool needs_descriptor(const StoredExtent& extent, Access access) REQUIRES(store_lock);
    // The descriptor was not sent.
    void forget_descriptor(ExtentId extent, Access access) {
        has_.erase(extent << 1 | (access == Access::write ? 1 : 0));
    }

    // Calls `rest` again under the lock, a moment later, in the thread of the client's connection.
    void continue_later(std::move_only_function<void()> rest) REQUIRES(store_lock);
    // Counts the client's work in other threads. At the limit of the client, or of its user, no requests are read from the
    // client.
    void job_started() REQUIRES(store_lock);
    void job_ended() REQUIRES(store_lock);

    // Called by the server.
    void set_ended() REQUIRES(store_lock) {
        ended_ = true;
        end_greeting();
    }
    // Cancels the client's waits for names, without replies.
    void forget_waits() REQUIRES(store_lock);
    // Ends leases, waits, watches, rings and fences, as at the end of the client. The session continues as a new, empty
    // one.
    void let_go() REQUIRES(store_lock);

    // ---- when another gshmd takes over ----
    void set_reading(bool reading) REQUIRES(store_lock) {
        held_for_jobs_ = has_too_many_jobs();
        connection_->hold(!reading || held_for_jobs_);
        pause_rings(!reading);
    }
    // All requests that were read are answered, and the client has read the replies (not checked with `taken_or_not`).
    bool is_idle(bool taken_or_not) const REQUIRES(store_lock) {
        return jobs_.amount() == 0 && has_idle_rings() && !connection_->is_busy() &&
               (taken_or_not || connection_->is_flushed());
    }
    // Paused rings start no transfers.
    void pause_rings(bool paused) REQUIRES(store_lock);
    bool has_idle_rings() const REQUIRES(store_lock);
    // Destroys the rings after their transfers have ended.
    void drop_rings() REQUIRES(store_lock);
    // Tells the client that its open and further requests are not executed, and must be sent to the next daemon.
    void say_restart() REQUIRES(store_lock);

private:
    Session(Server& server, const Credentials& who, std::shared_ptr<Budgets::User> user) REQUIRES(store_lock);

    void on_packet(wire::Bytes packet, std::vector<UniqueFd>& descriptors) override EXCLUDES(store_lock);
    void on_refused(const Error& error) override EXCLUDES(store_lock);
    void on_end(std::string_view why) override EXCLUDES(store_lock);
    // The Hello has come, or is no longer waited for.
    void end_greeting() REQUIRES(store_lock);
    bool has_too_many_jobs() const REQUIRES(store_lock) {
        return jobs_.amount() >= limits::kSessionJobs || (jobs_.amount() > 0 && user_->is_full(Resource::jobs));
    }
    // The session has ended, or gshmd is ending and leaves all requests to the next daemon.
    bool is_over() const REQUIRES_SHARED(store_lock);
    // Serves the request without the store lock, or with the shared lock. False: it needs the exclusive lock, and was
    // not executed.
    bool serve_shared(const wire::Request& request) EXCLUDES(store_lock);
    bool open_shared(uint64_t request, const wire::OpenObjects& open) REQUIRES_SHARED(store_lock);
    bool release_shared(const wire::Release& release) REQUIRES_SHARED(store_lock);
    bool stat_shared(uint64_t request, const wire::Stat& stat) REQUIRES_SHARED(store_lock);
    // A request refused because of leases of other clients is served again after the pending packets of the others are
    // read. True: it will be.
    bool try_again_later(const wire::Request& request, wire::Bytes packet) REQUIRES(store_lock);
    // The objects get memory of their own, see Mover::give_own_memory(). Then the request is served again. Called
    // instead of a reply.
    void give_own_memory(std::vector<Object*> objects) REQUIRES(store_lock);
    // Whether the object must get other memory before a process uses its memory, or, with to_map, maps it. An error: it
    // could not be had.
    Result<bool> needs_own_memory(const Object& object, bool to_map) const REQUIRES(store_lock);
    // The same for a file that the session has just opened, and that a process could make larger than a limit allows.
    Result<bool> needs_fixed_memory(const Object& object, Access access) const REQUIRES(store_lock);
    // tier_requests.cc. The objects return from their tiers, while `all` stay where they are. Then the request is served
    // again. Called instead of a reply.
    void bring_back(std::vector<Object*> away, std::vector<Object*> all) REQUIRES(store_lock);
    // Whether the object must return before the request uses it. An error: it could not.
    Result<bool> needs_return(const Object& object, bool any_device) const REQUIRES(store_lock);
    // Sends the replies. `recorded`: the result of the commit of their changes.
    void finish_replies(const Status& recorded) EXCLUDES(store_lock);
    void end_with(const Error& error) REQUIRES(store_lock);
    void dispatch(const wire::Request& request, std::vector<UniqueFd>& descriptors) REQUIRES(store_lock);

    // requests.cc: answered at once
    void hello(uint64_t request, const wire::Hello& hello) REQUIRES(store_lock);
    void reconcile(const wire::Reconcile& reconcile) REQUIRES(store_lock);
    void goodbye(uint64_t request) REQUIRES(store_lock);
    void daemon_info(uint64_t request) REQUIRES(store_lock);
    void devices(uint64_t request) REQUIRES(store_lock);
    void shutdown(uint64_t request, const wire::Shutdown& shutdown) REQUIRES(store_lock);
    void takeover(uint64_t request) REQUIRES(store_lock);
    void open(uint64_t request, const wire::OpenObjects& open) REQUIRES(store_lock);
    void release(const wire::Release& release) REQUIRES(store_lock);
    void stat(uint64_t request, const wire::Stat& stat) REQUIRES(store_lock);
    void list(uint64_t request, const wire::List& list) REQUIRES(store_lock);
    void seal(uint64_t request, const wire::Seal& seal) REQUIRES(store_lock);
    void unlink(uint64_t request, const wire::Unlink& unlink) REQUIRES(store_lock);
    void rename(uint64_t request, const wire::Rename& rename) REQUIRES(store_lock);
    void give_name(uint64_t request, NodeId id, const flatbuffers::String* wanted, bool replace) REQUIRES(store_lock);
    void make(uint64_t request, const wire::Make& make) REQUIRES(store_lock);
    void read_link(uint64_t request, const wire::ReadLink& read) REQUIRES(store_lock);
    void add_name(uint64_t request, const wire::AddName& add) REQUIRES(store_lock);
    void get_attribute(uint64_t request, const wire::GetAttribute& get) REQUIRES(store_lock);
    void list_attributes(uint64_t request, const wire::ListAttributes& list) REQUIRES(store_lock);
    void wait(uint64_t request, const wire::Wait& wait) REQUIRES(store_lock);
    // False: the wait has already ended.
    bool end_wait(uint64_t wait) REQUIRES(store_lock);
    void answer_wait(uint64_t request, const Result<std::optional<wire::NodeRecord>>& found) REQUIRES(store_lock);
    void watch_create(uint64_t request, const wire::WatchCreate& create) REQUIRES(store_lock);
    void watch_next(uint64_t request) REQUIRES(store_lock);
    void send_events() REQUIRES(store_lock);
    // holders.cc
    void holders(uint64_t request, const wire::Holders& holders) REQUIRES(store_lock);
    void unlinked(uint64_t request, const wire::Unlinked& unlinked) REQUIRES(store_lock);
    // ring_requests.cc
    void ring_create(uint64_t request, const wire::RingCreate& create, std::vector<UniqueFd>& descriptors)
        REQUIRES(store_lock);
    void ring_destroy(uint64_t request, const wire::RingDestroy& destroy) REQUIRES(store_lock);
    void ring_file(uint64_t request, const wire::RingFile& file, std::vector<UniqueFd>& descriptors)
        REQUIRES(store_lock);
    void ring_objects(uint64_t request, const wire::RingObjects& objects) REQUIRES(store_lock);
    void ring_release(const wire::RingRelease& release) REQUIRES(store_lock);
    ClientRing* find_ring(uint32_t number) REQUIRES(store_lock);
    // fence_requests.cc
    void open_fence(uint64_t request, const wire::OpenFence& open) REQUIRES(store_lock);
    // create.cc, transfer.cc: may take a while
    void create_objects(uint64_t request, const wire::CreateObjects& create) REQUIRES(store_lock);
    void attach_staging(uint64_t request, const wire::AttachStaging& attach, const std::vector<UniqueFd>& descriptors)
        REQUIRES(store_lock);
    void copy(uint64_t request, const wire::Copy& copy) REQUIRES(store_lock);
    void fill(uint64_t request, const wire::Fill& fill) REQUIRES(store_lock);
    // mount_requests.cc
    // False: it is not permitted, and the request is answered.
    bool may_mount(uint64_t request) REQUIRES(store_lock);
    void mount(uint64_t request, const wire::Mount& mount) REQUIRES(store_lock);
    void unmount(uint64_t request, const wire::Unmount& unmount) REQUIRES(store_lock);
    void change_tier(uint64_t request, const wire::ChangeTier& change) REQUIRES(store_lock);
    void list_mounts(uint64_t request) REQUIRES(store_lock);
    // acl_requests.cc
    void get_acl(uint64_t request, const wire::GetAcl& get) REQUIRES(store_lock);
    void change_acl(uint64_t request, const wire::ChangeAcl& change) REQUIRES(store_lock);
    // reload_requests.cc
    void reload(uint64_t request) REQUIRES(store_lock);
    // limit_requests.cc
    void set_limit(uint64_t request, const wire::SetLimit& set) REQUIRES(store_lock);
    Result<Directory*> find_limited(std::string_view path) REQUIRES(store_lock);
    bool is_admin() const REQUIRES(store_lock);
    void list_limits(uint64_t request, const wire::Limits& which) REQUIRES(store_lock);
    void export_object(uint64_t request, const wire::Export& what) REQUIRES(store_lock);
    void move_object(uint64_t request, const wire::Move& move) REQUIRES(store_lock);
    Result<Object*> object_range(uint64_t id, uint64_t offset, uint64_t bytes, Access access) REQUIRES(store_lock);
    // Runs `work` in the device's thread, with the memory and the object's offset in it. Then calls `answer` under the
    // store lock, if the session still exists.
    void run_on_object(Object* object, Access access, std::move_only_function<Status(Extent&, uint64_t)> work,
                       std::move_only_function<void(Session&, Status)> answer) REQUIRES(store_lock);

    void send_devices(uint64_t request, bool hello, const std::vector<DeviceSet::Space>& spaces) REQUIRES(store_lock);

    struct Outbox;
    static Outbox& outbox();
    // For the metrics. Each request is counted once: the current one by finish_replies(), others by their reply.
    void await_reply() REQUIRES(store_lock);
    void count_reply(uint64_t request, int error) REQUIRES(store_lock);
    // When the current request came. It is served again, and counted then.
    static uint64_t counted_later();
    void serve_again(wire::Bytes packet, uint64_t since_ns) EXCLUDES(store_lock);
    // Sends the packet, or defers it while an outbox has descriptors that it may depend on.
    void send(wire::Bytes packet, std::span<const int> descriptors) EXCLUDES(outbox_mutex_);
    void end_outbox() EXCLUDES(outbox_mutex_);

    Server& server_;
    // Unguarded members change only in the connection's thread, with the store lock held exclusively or shared.
    SessionId id_;
    const pid_t pid_;
    const uid_t uid_;
    const std::shared_ptr<Budgets::User> user_;
    Budgets::Charge connection_charge_;
    Budgets::Charge greeting_charge_ GUARDED_BY(store_lock);  // until the Hello
    std::optional<EventLoop::TimerId> greeting_timer_ GUARDED_BY(store_lock);
    bool ended_ GUARDED_BY(store_lock) = false;
    // The rest of a long request: true while there is more. The lock is released before each part. Set by dispatch().
    std::move_only_function<bool()> next_part_ GUARDED_BY(store_lock);
    bool trying_again_ = false;                                               // of the connection's thread
    wire::Bytes packet_ GUARDED_BY(store_lock);                               // the request that is being served
    std::unordered_map<NodeId, Error> no_own_memory_ GUARDED_BY(store_lock);  // during a request that is served again
    Store::SessionSecret secret_ GUARDED_BY(store_lock);
    bool greeted_ = false;
    uint32_t protocol_ = wire::kProtocolLowest;
    bool resumed_ GUARDED_BY(store_lock) = false;
    std::unordered_map<NodeId, Store::Claim> claims_ GUARDED_BY(store_lock);  // until the last part of the request
    std::vector<uint64_t> changing_ GUARDED_BY(store_lock);                   // unanswered requests that make changes
    struct Unanswered {
        wire::RequestBody kind;
        uint64_t since_ns;
    };
    std::unordered_map<uint64_t, Unanswered> unanswered_ GUARDED_BY(store_lock);  // that go on in other threads
    Budgets::Charge jobs_ GUARDED_BY(store_lock);
    bool held_for_jobs_ GUARDED_BY(store_lock) = false;
    struct NameWait {
        Waits::Id id = 0;
        std::optional<EventLoop::TimerId> timer;
    };
    std::unordered_map<uint64_t, NameWait> waits_ GUARDED_BY(store_lock);
    Budgets::Charge waits_charge_ GUARDED_BY(store_lock);
    uint64_t next_wait_ GUARDED_BY(store_lock) = 1;
    uint64_t watching_ GUARDED_BY(store_lock) = 0;  // the unanswered WatchNext; 0: none
    std::unordered_set<uint64_t> has_;              // extents whose descriptors the client has: id * 2 + writable
    Budgets::Charge has_charge_;                    // for them, as for leases
    std::shared_ptr<Mapping> staging_ GUARDED_BY(store_lock);
    std::unordered_map<uint32_t, std::shared_ptr<ClientRing>> rings_ GUARDED_BY(store_lock);  // null: being created
    std::shared_ptr<Connection> connection_;
    struct KeptBack {
        std::vector<uint8_t> bytes;
        std::vector<UniqueFd> descriptors;
    };
    Mutex outbox_mutex_;                                // taken after the store lock, before the connection's mutex
    bool in_outbox_ GUARDED_BY(outbox_mutex_) = false;  // an outbox has descriptors for this client
    std::vector<KeptBack> kept_back_ GUARDED_BY(outbox_mutex_);
};

}  // namespace gshm::core
