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
    static Result<std::shared_ptr<Session>> create(Server& server, UniqueFd socket);

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
    bool needs_descriptor(const StoredExtent& extent, Access access);
    // One that it needed was not sent after all.
    void forget_descriptor(ExtentId extent, Access access) { has_.erase(extent << 1 | (access == Access::write ? 1 : 0)); }

    // Work under way for the client in other threads; beyond a bound nothing more is read from it.
    void job_started();
    void job_ended();

    // The server has ended it.
    void set_ended() { ended_ = true; }
    // It waits for no name any more, and gets no answer.
    void forget_waits();
    // Ends what it holds, as if its client had gone; it itself goes on, with nothing.
    void let_go();

    // ---- when another gshmd takes over ----
    void set_reading(bool reading) {
        connection_->hold(!reading || jobs_ >= limits::kSessionJobs);
        pause_rings(!reading);
    }
    // Everything that it asked for and that was read has been answered, and the answers have been taken (unless that
    // does not matter).
    bool is_idle(bool taken_or_not) const {
        return jobs_ == 0 && has_idle_rings() && !connection_->is_busy() && (taken_or_not || connection_->is_flushed());
    }
    // Nothing further is begun for its rings.
    void pause_rings(bool paused);
    bool has_idle_rings() const;
    // Ends them, when what is under way has ended.
    void drop_rings();
    // What it asks for from now on, and what it waits for, was not done: it is to ask the next one.
    void say_restart();

private:
    Session(Server& server, const Credentials& who);

    void on_packet(wire::Bytes packet, std::vector<UniqueFd> descriptors) override;
    void on_end(std::string_view why) override;
    // Under the lock: it has ended, or gshmd is about to and leaves everything to the next one.
    bool is_over() const;
    // Without the store's lock, or under the shared one; false: the request needs it exclusively, and nothing was done.
    bool serve_shared(const wire::Request& request);
    bool open_shared(uint64_t request, const wire::OpenObjects& open);
    bool release_shared(const wire::Release& release);
    bool stat_shared(uint64_t request, const wire::Stat& stat);
    // Under the lock: a request that was refused because of what others hold is served once more when they have been heard.
    bool try_again_later(const wire::Request& request, wire::Bytes packet);
    // Sends the answers. `recorded`: whether the changes that they speak of are committed.
    void finish_replies(const Status& recorded);
    void end_with(const Error& error);
    void dispatch(const wire::Request& request, std::vector<UniqueFd>& descriptors);

    // requests.cc: answered at once
    void hello(uint64_t request, const wire::Hello& hello);
    void reconcile(const wire::Reconcile& reconcile);
    void goodbye(uint64_t request);
    void daemon_info(uint64_t request);
    void devices(uint64_t request);
    void shutdown(uint64_t request, const wire::Shutdown& shutdown);
    void takeover(uint64_t request);
    void open(uint64_t request, const wire::OpenObjects& open);
    void release(const wire::Release& release);
    void stat(uint64_t request, const wire::Stat& stat);
    void list(uint64_t request, const wire::List& list);
    void seal(uint64_t request, const wire::Seal& seal);
    void unlink(uint64_t request, const wire::Unlink& unlink);
    void rename(uint64_t request, const wire::Rename& rename);
    void give_name(uint64_t request, NodeId id, const flatbuffers::String* wanted, bool replace);
    void make(uint64_t request, const wire::Make& make);
    void read_link(uint64_t request, const wire::ReadLink& read);
    void add_name(uint64_t request, const wire::AddName& add);
    void get_attribute(uint64_t request, const wire::GetAttribute& get);
    void list_attributes(uint64_t request, const wire::ListAttributes& list);
    void wait(uint64_t request, const wire::Wait& wait);
    // False: it has ended already.
    bool end_wait(uint64_t wait);
    void answer_wait(uint64_t request, const Result<std::optional<wire::NodeRecord>>& found);
    void watch_create(uint64_t request, const wire::WatchCreate& create);
    void watch_next(uint64_t request);
    void send_events();
    // holders.cc
    void holders(uint64_t request, const wire::Holders& holders);
    void unlinked(uint64_t request, const wire::Unlinked& unlinked);
    // ring_requests.cc
    void ring_create(uint64_t request, const wire::RingCreate& create, std::vector<UniqueFd>& descriptors);
    void ring_destroy(uint64_t request, const wire::RingDestroy& destroy);
    void ring_file(uint64_t request, const wire::RingFile& file, std::vector<UniqueFd>& descriptors);
    void ring_objects(uint64_t request, const wire::RingObjects& objects);
    void ring_release(const wire::RingRelease& release);
    ClientRing* find_ring(uint32_t number);
    // fence_requests.cc
    void open_fence(uint64_t request, const wire::OpenFence& open);
    // create.cc, transfer.cc: may take a while
    void create_objects(uint64_t request, const wire::CreateObjects& create);
    void attach_staging(uint64_t request, const wire::AttachStaging& attach, const std::vector<UniqueFd>& descriptors);
    void copy(uint64_t request, const wire::Copy& copy);
    void fill(uint64_t request, const wire::Fill& fill);
    void unmount(uint64_t request, const wire::Unmount& unmount);
    void export_object(uint64_t request, const wire::Export& what);
    void move_object(uint64_t request, const wire::Move& move);
    Result<Object*> object_range(uint64_t id, uint64_t offset, uint64_t bytes, Access access);
    // `work`, with the memory and the object's place in it, in the device's thread, then `answer` here, if the session is still there.
    void run_on_object(Object* object, Access access, std::move_only_function<Status(Extent&, uint64_t)> work,
                       std::move_only_function<void(Session&, Status)> answer);

    void send_devices(uint64_t request, bool hello);

    struct Outbox;
    static Outbox& outbox();
    // Sends it, or keeps it back while descriptors that it may rely on are in an outbox.
    void send(wire::Bytes packet, std::span<const int> descriptors) EXCLUDES(outbox_mutex_);
    void end_outbox() EXCLUDES(outbox_mutex_);

    Server& server_;
    // What follows is changed under the store's lock alone, or under the shared one in the thread of the connection's loop.
    SessionId id_;
    bool ended_ = false;
    bool trying_again_ = false;  // of the connection's thread
    Store::SessionSecret secret_;
    bool greeted_ = false;
    bool resumed_ = false;
    std::unordered_map<NodeId, Store::Claim> claims_;  // until the last has come
    std::vector<uint64_t> changing_;  // requests that change something, and are not answered yet
    size_t jobs_ = 0;
    struct NameWait {
        Waits::Id id = 0;
        std::optional<EventLoop::TimerId> timer;
    };
    std::unordered_map<uint64_t, NameWait> waits_;
    uint64_t next_wait_ = 1;
    uint64_t watching_ = 0;  // the WatchNext that is not answered yet; 0: none
    std::unordered_set<uint64_t> has_;  // extents whose descriptors it was sent: id * 2 + writable
    std::shared_ptr<Mapping> staging_;
    std::unordered_map<uint32_t, std::shared_ptr<ClientRing>> rings_;  // null: not there yet
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
