// One client: decodes its requests, asks the store and the devices, and answers.
#pragma once

#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/limits.h"
#include "base/mapping.h"
#include "daemon/connection.h"
#include "store/waits.h"

namespace gshm::core {

class ClientRing;
class Server;

// What is told to whoever has changed something, when it could not be written down.
Error made_but_unwritten(const Error& error);

class Session final : private Connection::Handler, public std::enable_shared_from_this<Session> {
public:
    static Result<std::shared_ptr<Session>> create(Server& server, UniqueFd socket) REQUIRES(store_lock);

    SessionId id() const { return id_; }
    Server& server() { return server_; }

    // Answers. A builder is free again when the call returns. unwritten: called under the lock, in place of an answer
    // that says so, if what was changed cannot be written. keeps: what keeps the descriptors open until they are sent; without
    // it the answer is sent under the lock.
    using Unwritten = std::move_only_function<void(const Error& error)>;
    flatbuffers::FlatBufferBuilder& builder();
    void reply(uint64_t request, wire::ReplyBody kind, flatbuffers::Offset<void> body,
               std::span<const int> descriptors = {}, int error = 0, std::string_view message = {},
               Unwritten unwritten = {}, std::shared_ptr<const void> keeps = {});
    void reply_ok(uint64_t request) { reply(request, wire::ReplyBody::NONE, 0); }
    void reply_error(uint64_t request, const Error& error);
    void reply_status(uint64_t request, const Status& status);

    // True if the client does not have the extent in this access, and from now on has: its descriptor must go along.
    bool needs_descriptor(const StoredExtent& extent, Access access) REQUIRES(store_lock);
    // One that it needed was not sent after all.
    void forget_descriptor(ExtentId extent, Access access) { has_.erase(extent << 1 | (access == Access::write ? 1 : 0)); }

    // Calls `rest` again under the lock, a moment later, in the thread of the client's connection.
    void continue_later(std::move_only_function<void()> rest) REQUIRES(store_lock);
    // Work under way for the client in other threads; beyond a bound nothing more is read from it.
    void job_started() REQUIRES(store_lock);
    void job_ended() REQUIRES(store_lock);

    // The server has ended it.
    void set_ended() REQUIRES(store_lock) { ended_ = true; }
    // It waits for no name any more, and gets no answer.
    void forget_waits() REQUIRES(store_lock);
    // Ends what it holds, as if its client had gone; it itself goes on, with nothing.
    void let_go() REQUIRES(store_lock);

    // ---- when another gshmd takes over ----
    void set_reading(bool reading) REQUIRES(store_lock) {
        connection_->hold(!reading || jobs_ >= limits::kSessionJobs);
        pause_rings(!reading);
    }
    // Everything that it asked for and that was read has been answered, and the answers have been taken (unless that
    // does not matter).
    bool is_idle(bool taken_or_not) const REQUIRES(store_lock) {
        return jobs_ == 0 && has_idle_rings() && !connection_->is_busy() && (taken_or_not || connection_->is_flushed());
    }
    // Nothing further is begun for its rings.
    void pause_rings(bool paused) REQUIRES(store_lock);
    bool has_idle_rings() const REQUIRES(store_lock);
    // Ends them, when what is under way has ended.
    void drop_rings() REQUIRES(store_lock);
    // What it asks for from now on, and what it waits for, was not done: it is to ask the next one.
    void say_restart() REQUIRES(store_lock);

private:
    Session(Server& server, const Credentials& who) REQUIRES(store_lock);

    void on_packet(wire::Bytes packet, std::vector<UniqueFd> descriptors) override EXCLUDES(store_lock);
    void on_end(std::string_view why) override EXCLUDES(store_lock);
    // It has ended, or gshmd is about to and leaves everything to the next one.
    bool is_over() const REQUIRES_SHARED(store_lock);
    // Without the store's lock, or under the shared one; false: the request needs it exclusively, and nothing was done.
    bool serve_shared(const wire::Request& request) EXCLUDES(store_lock);
    bool open_shared(uint64_t request, const wire::OpenObjects& open) REQUIRES_SHARED(store_lock);
    bool release_shared(const wire::Release& release) REQUIRES_SHARED(store_lock);
    bool stat_shared(uint64_t request, const wire::Stat& stat) REQUIRES_SHARED(store_lock);
    // A request that was refused because of what others hold is served once more when they have been heard.
    bool try_again_later(const wire::Request& request, wire::Bytes packet) REQUIRES(store_lock);
    // Sends the answers. `recorded`: whether the changes that they speak of are committed.
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
    // False: it has ended already.
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
    void unmount(uint64_t request, const wire::Unmount& unmount) REQUIRES(store_lock);
    void export_object(uint64_t request, const wire::Export& what) REQUIRES(store_lock);
    void move_object(uint64_t request, const wire::Move& move) REQUIRES(store_lock);
    Result<Object*> object_range(uint64_t id, uint64_t offset, uint64_t bytes, Access access) REQUIRES(store_lock);
    // `work`, with the memory and the object's place in it, in the device's thread, then `answer` here, if the session is still there.
    void run_on_object(Object* object, Access access, std::move_only_function<Status(Extent&, uint64_t)> work,
                       std::move_only_function<void(Session&, Status)> answer) REQUIRES(store_lock);

    void send_devices(uint64_t request, bool hello) REQUIRES(store_lock);

    struct Outbox;
    static Outbox& outbox();
    // Sends it, or keeps it back while descriptors that it may rely on are in an outbox.
    void send(wire::Bytes packet, std::span<const int> descriptors) EXCLUDES(outbox_mutex_);
    void end_outbox() EXCLUDES(outbox_mutex_);

    Server& server_;
    // What is not guarded is changed in the connection's thread, under the lock or sharing it.
    SessionId id_;
    bool ended_ GUARDED_BY(store_lock) = false;
    bool trying_again_ = false;  // of the connection's thread
    Store::SessionSecret secret_ GUARDED_BY(store_lock);
    bool greeted_ = false;
    bool resumed_ GUARDED_BY(store_lock) = false;
    std::unordered_map<NodeId, Store::Claim> claims_ GUARDED_BY(store_lock);  // until the last has come
    std::vector<uint64_t> changing_ GUARDED_BY(store_lock);  // requests that change something, and are not answered yet
    size_t jobs_ GUARDED_BY(store_lock) = 0;
    struct NameWait {
        Waits::Id id = 0;
        std::optional<EventLoop::TimerId> timer;
    };
    std::unordered_map<uint64_t, NameWait> waits_ GUARDED_BY(store_lock);
    uint64_t next_wait_ GUARDED_BY(store_lock) = 1;
    uint64_t watching_ GUARDED_BY(store_lock) = 0;  // the WatchNext that is not answered yet; 0: none
    std::unordered_set<uint64_t> has_;  // extents whose descriptors it was sent: id * 2 + writable
    std::shared_ptr<Mapping> staging_ GUARDED_BY(store_lock);
    std::unordered_map<uint32_t, std::shared_ptr<ClientRing>> rings_ GUARDED_BY(store_lock);  // null: not there yet
    std::shared_ptr<Connection> connection_;
    struct KeptBack {
        std::vector<uint8_t> bytes;
        std::vector<UniqueFd> descriptors;
    };
    Mutex outbox_mutex_;  // taken after the store's lock; before that of the connection
    bool in_outbox_ GUARDED_BY(outbox_mutex_) = false;  // descriptors
    std::vector<KeptBack> kept_back_ GUARDED_BY(outbox_mutex_);
};

}  // namespace gshm::core
