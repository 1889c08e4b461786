#include "daemon/session.h"

#include "base/failure_log.h"
#include "base/limits.h"
#include "base/log.h"
#include "daemon/records.h"
#include "daemon/request_counters.h"
#include "daemon/server.h"
#include "store/account_limits.h"

namespace gshm::core {
namespace {

bool changes_something(wire::RequestBody kind) {
    using wire::RequestBody;
    switch (kind) {
        case RequestBody::CreateObjects:
        case RequestBody::Seal:
        case RequestBody::Unlink:
        case RequestBody::Rename:
        case RequestBody::Move:
        case RequestBody::ChangeTier:
        case RequestBody::Replace:
        case RequestBody::GiveName:
        case RequestBody::Make:
        case RequestBody::AddName:
        case RequestBody::Change:
        case RequestBody::ChangeAcl:
        case RequestBody::SetLimit:
        case RequestBody::SetAttribute:
        case RequestBody::RemoveAttribute: return true;
        default: return false;
    }
}

}  // namespace

Result<std::shared_ptr<Session>> Session::create(Server& server, UniqueFd& socket, const Credentials& who) {
    auto user = server.budgets().user(who.uid);
    Budgets::Charge connections(user, Resource::connections);
    Budgets::Charge greetings(user, Resource::greetings);
    if (!connections.take(1)) return std::unexpected(connections.refusal());
    if (!greetings.take(1)) return std::unexpected(greetings.refusal());
    if (user->is_full(Resource::descriptors)) return std::unexpected(user->refusal(Resource::descriptors));
    if (server.is_short_of_descriptors(socket.get(), *user)) {
        return fail(EMFILE, "gshmd has few descriptors left, which are kept back for root");
    }
    std::shared_ptr<Session> session(new Session(server, who, user));
    session->connection_charge_ = std::move(connections);
    session->greeting_charge_ = std::move(greetings);
    auto connection = Connection::create(server.client_loops().place(who.uid), server.reapers(), std::move(socket), who,
                                         user, std::shared_ptr<Connection::Handler>(session, session.get()));
    if (!connection) {
        server.store().end_session(session->id_);
        return std::unexpected(connection.error());
    }
    session->connection_ = std::move(*connection);
    // A process that has ended may have left requests in its socket. They come before those of its successor.
    server.client_loops().after_arrived(session->connection_->loop(), [weak = std::weak_ptr(session->connection_)] {
        if (auto begun = weak.lock()) begun->hold(false);
    });
    session->greeting_timer_ =
        server.loop().after(std::chrono::seconds(limits::kGreetingSeconds), [weak = std::weak_ptr(session)] {
            store_lock.assert_held();
            auto late = weak.lock();
            if (!late || late->greeted_) return;
            late->greeting_timer_.reset();
            late->end_with({ETIMEDOUT, fmt::format("no Hello has come for {} seconds", limits::kGreetingSeconds)});
        });
    log_debug("session {}: begins, pid {} uid {}", session->id_, who.pid, who.uid);
    return session;
}

Session::Session(Server& server, const Credentials& who, std::shared_ptr<Budgets::User> user)
    : server_(server),
      id_(server.store().begin_session(who)),
      pid_(who.pid),
      uid_(who.uid),
      user_(std::move(user)),
      jobs_(user_, Resource::jobs),
      waits_charge_(user_, Resource::waits),
      has_charge_(user_, Resource::leases) {}

void Session::end_greeting() {
    greeting_charge_.clear();
    if (greeting_timer_) server_.loop().cancel(*greeting_timer_);
    greeting_timer_.reset();
}

void Session::on_refused(const Error& error) {
    StoreLock lock(server_.loop().store_mutex());
    if (!is_over()) end_with(error);
}

// The replies to the current request of this thread. They are sent after the store lock is released.
struct Session::Outbox {
    struct Reply {
        size_t begin;
        size_t bytes;
        uint64_t request;
        int error;
        bool changes;
        Unwritten unwritten;
        std::vector<int> descriptors;
        std::shared_ptr<const void> keeps;
    };
    std::vector<uint8_t> bytes;
    std::vector<Reply> replies;
    const Session* session = nullptr;  // null: no current request
    // Of the current request.
    wire::RequestBody kind = wire::RequestBody::NONE;
    uint64_t request = 0;
    uint64_t since_ns = 0;
    uint64_t first_since_ns = 0;  // of a request that is about to be served again; 0: none
    enum class Counted { not_yet, at_end, later } counted = Counted::later;
    int error = 0;  // of its reply
};

Session::Outbox& Session::outbox() {
    static thread_local Outbox outbox;
    return outbox;
}

bool Session::is_over() const {
    return ended_ || server_.loop().is_stopping();
}

void Session::on_packet(wire::Bytes packet, std::vector<UniqueFd>& descriptors) {
    auto request = wire::decode_request(packet);
    const bool good = request && (greeted_ || (*request)->body_type() == wire::RequestBody::Hello);
    Outbox& out = outbox();
    out.session = this;
    out.kind = request ? (*request)->body_type() : wire::RequestBody::NONE;
    out.request = request ? (*request)->id() : 0;
    out.since_ns = std::exchange(out.first_since_ns, 0);
    if (out.since_ns == 0) out.since_ns = steady_now_ns();
    out.counted = Outbox::Counted::not_yet;
    out.error = 0;
    if (good && serve_shared(**request)) {
        if (out.counted == Outbox::Counted::not_yet) out.counted = Outbox::Counted::at_end;  // it has no reply
        // The reply may contain a change of a mount's thread that has released the lock before its commit.
        return finish_replies(out.replies.empty() ? Status{} : server_.commit_pending());
    }
    Status recorded;
    if (good && changes_something(out.kind)) server_.survival().make_room_for(uid_);
    {
        StoreLock lock(server_.loop().store_mutex());
        if (is_over()) {
            out.session = nullptr;
            return;
        }
        const uint64_t place = server_.survival().journal_place();
        if (good) {
            server_.loop().store_mutex().describe_hold(std::source_location::current(),
                                                       wire::EnumNameRequestBody((*request)->body_type()));
        }
        packet_ = packet;
        if (good) dispatch(**request, descriptors);
        while (next_part_) {
            (void)server_.commit();  // if it fails, the last one includes its changes
            lock.unlock();           // for others
            lock.lock();
            server_.loop().store_mutex().describe_hold(std::source_location::current(),
                                                       wire::EnumNameRequestBody(out.kind));
            if (is_over()) {
                next_part_ = nullptr;
                out.session = nullptr;
                return;
            }
            if (!next_part_()) next_part_ = nullptr;
        }
        packet_ = {};
        no_own_memory_.clear();
        if (good && try_again_later(**request, packet)) return;
        if (good) await_reply();
        if (!good) end_with(request ? Error{EPROTO, "the first message must be Hello"} : request.error());
        recorded = server_.commit();
        server_.survival().count_rows(uid_, place);
    }
    finish_replies(recorded);
}

void Session::continue_later(std::move_only_function<void()> rest) {
    job_started();
    connection_->loop().post([self = shared_from_this(), rest = std::move(rest)]() mutable {
        outbox().session = self.get();
        outbox().kind = wire::RequestBody::NONE;
        outbox().counted = Outbox::Counted::later;
        Status recorded;
        self->server_.survival().make_room_for(self->uid_);
        {
            StoreLock lock(self->server_.loop().store_mutex());
            if (self->is_over()) {
                outbox().session = nullptr;
                return;
            }
            const uint64_t place = self->server_.survival().journal_place();
            self->job_ended();
            rest();
            recorded = self->server_.commit();
            self->server_.survival().count_rows(self->uid_, place);
        }
        self->finish_replies(recorded);
    });
}

// Another client may have released a lease and told this client of it, while its thread has not read the packet yet.
bool Session::try_again_later(const wire::Request& request, wire::Bytes packet) {
    using wire::RequestBody;
    const auto kind = request.body_type();
    if (kind != RequestBody::Seal && kind != RequestBody::GiveName && kind != RequestBody::Replace &&
        kind != RequestBody::Move && kind != RequestBody::ChangeTier) {
        return false;
    }
    Outbox& out = outbox();
    if (trying_again_ || out.replies.size() != 1 || out.replies.front().error != EBUSY) return false;
    out.replies.clear();
    out.bytes.clear();
    out.session = nullptr;
    job_started();
    server_.client_loops().after_arrived(connection_->loop(),
                                         [self = shared_from_this(), since_ns = counted_later(),
                                          copy = std::vector<uint8_t>(packet.begin(), packet.end())] {
                                             {
                                                 StoreLock lock(self->server_.loop().store_mutex());
                                                 self->job_ended();
                                                 self->trying_again_ = true;
                                             }
                                             self->serve_again(copy, since_ns);
                                             self->trying_again_ = false;
                                         });
    return true;
}

void Session::give_own_memory(std::vector<Object*> objects) {
    job_started();
    auto again = [self = shared_from_this(), since_ns = counted_later(),
                  copy = std::vector<uint8_t>(packet_.begin(), packet_.end())](
                     std::unordered_map<NodeId, Error> failed) mutable {
        store_lock.assert_held();
        if (self->is_over()) return;
        self->connection_->loop().post([self, since_ns, copy = std::move(copy), failed = std::move(failed)]() mutable {
            {
                StoreLock lock(self->server_.loop().store_mutex());
                if (self->is_over()) return;
                self->job_ended();
                self->no_own_memory_ = std::move(failed);
            }
            self->serve_again(copy, since_ns);
        });
    };
    server_.mover().give_own_memory(std::move(objects), std::move(again));
}

Result<bool> Session::needs_own_memory(const Object& object, bool to_map) const {
    if (object.extent == nullptr) return false;
    const bool leaves = to_map && server_.store().leaves_closed_slab(id_, object);
    if (!object.extent->unmapped && !leaves) return false;
    auto failed = no_own_memory_.find(object.id);
    if (failed != no_own_memory_.end()) return std::unexpected(failed->second);
    return true;
}

Result<bool> Session::needs_fixed_memory(const Object& object, Access access) const {
    if (!server_.store().limits().may_outgrow(object)) return false;
    auto failed = no_own_memory_.find(object.id);
    if (failed != no_own_memory_.end() && access == Access::write) return std::unexpected(failed->second);
    // One lease is that of this request.
    if (object.open_files == 0 && object.session_leases == 1 && failed == no_own_memory_.end()) return true;
    if (access == Access::read) return false;
    return fail(EBUSY,
                "the file could be made larger than a limit of its owner allows, and gets other memory when no process "
                "has it open (see `gshm holders`)");
}

bool Session::serve_shared(const wire::Request& request) {
    using wire::RequestBody;
    switch (request.body_type()) {
        case RequestBody::Ping: return reply_ok(request.id()), true;
        case RequestBody::OpenObjects:
        case RequestBody::Release:
        case RequestBody::Stat: break;
        default: return false;
    }
    SharedStoreLock lock(server_.loop().store_mutex());
    if (is_over()) return true;
    switch (request.body_type()) {
        case RequestBody::OpenObjects: return open_shared(request.id(), *request.body_as_OpenObjects());
        case RequestBody::Release: return release_shared(*request.body_as_Release());
        default: return stat_shared(request.id(), *request.body_as_Stat());
    }
}

void Session::finish_replies(const Status& recorded) {
    Outbox& out = outbox();
    out.session = nullptr;
    for (auto& [begin, bytes, id, error, changes, unwritten, descriptors, keeps] : out.replies) {
        if (!recorded && changes) {
            StoreLock lock(server_.loop().store_mutex());
            if (is_over()) break;
            if (unwritten) unwritten(recorded.error());
            else reply_error(id, made_but_unwritten(recorded.error()));
            out.error = recorded.error().code;
            continue;
        }
        connection_->send({out.bytes.data() + begin, bytes}, descriptors);
    }
    out.replies.clear();
    out.bytes.clear();
    end_outbox();
    if (out.counted == Outbox::Counted::at_end)
        RequestCounters::note(out.kind, out.error, steady_now_ns() - out.since_ns);
    out.counted = Outbox::Counted::later;
}

void Session::await_reply() {
    Outbox& out = outbox();
    if (out.counted != Outbox::Counted::not_yet) return;
    if (!RequestCounters::has_reply(out.kind)) {
        out.counted = Outbox::Counted::at_end;
        return;
    }
    out.counted = Outbox::Counted::later;
    unanswered_.insert_or_assign(out.request, Unanswered{out.kind, out.since_ns});
}

void Session::count_reply(uint64_t request, int error) {
    auto found = unanswered_.find(request);
    if (found == unanswered_.end()) return;
    const auto [kind, since_ns] = found->second;
    unanswered_.erase(found);
    RequestCounters::note(kind, error, steady_now_ns() - since_ns);
}

uint64_t Session::counted_later() {
    outbox().counted = Outbox::Counted::later;
    return outbox().since_ns;
}

void Session::serve_again(wire::Bytes packet, uint64_t since_ns) {
    outbox().first_since_ns = since_ns;
    std::vector<UniqueFd> none;
    on_packet(packet, none);
}

void Session::send(wire::Bytes packet, std::span<const int> descriptors) {
    MutexLock lock(outbox_mutex_);
    if (!in_outbox_) return connection_->send(packet, descriptors);
    KeptBack& kept = kept_back_.emplace_back();
    kept.bytes.assign(packet.begin(), packet.end());
    for (int fd : descriptors) {
        auto copy = UniqueFd::clone(fd);
        if (!copy) log_error("session {}: an answer goes without its descriptors: {}", id_, copy.error().message);
        else kept.descriptors.push_back(std::move(*copy));
    }
}

void Session::end_outbox() {
    MutexLock lock(outbox_mutex_);
    if (!in_outbox_) return;
    in_outbox_ = false;
    for (const KeptBack& kept : kept_back_) {
        std::vector<int> descriptors;
        for (const auto& fd : kept.descriptors) descriptors.push_back(fd.get());
        connection_->send(kept.bytes, descriptors);
    }
    kept_back_.clear();
}

void Session::on_end(std::string_view why) {
    StoreLock lock(server_.loop().store_mutex());
    if (is_over()) return;
    log_debug("session {}: ends: {}", id_, why);
    server_.end_session(this);
    (void)server_.commit();
}

void Session::end_with(const Error& error) {
    log_for_user(LogLevel::warning, uid_, fmt::format("session {}: dropped: {}", id_, error.message));
    reply(0, wire::ReplyBody::NONE, 0, {}, error.code, error.message);
    connection_->hold(true);
    // Posted, so that the reply is sent first.
    connection_->loop().post([this, self = weak_from_this()] {
        auto alive = self.lock();
        if (!alive) return;
        StoreLock lock(server_.loop().store_mutex());
        if (is_over()) return;
        server_.end_session(this);
        (void)server_.commit();
    });
}

namespace {

// One builder for each thread: a reply is finished before the next one is begun.
flatbuffers::FlatBufferBuilder& shared_builder() {
    static thread_local flatbuffers::FlatBufferBuilder builder(64 << 10);
    return builder;
}

}  // namespace

flatbuffers::FlatBufferBuilder& Session::builder() {
    shared_builder().Clear();
    return shared_builder();
}

Error made_but_unwritten(const Error& error) {
    return {error.code,
            fmt::format("{}: the change was made, but does not outlive gshmd until it can be written", error.message)};
}

void Session::reply(uint64_t request, wire::ReplyBody kind, flatbuffers::Offset<void> body,
                    std::span<const int> descriptors, int error, std::string_view message, Unwritten unwritten,
                    std::shared_ptr<const void> keeps) {
    Outbox& out = outbox();
    const bool later = out.session == this && (descriptors.empty() || keeps != nullptr);
    // Requests served without the exclusive lock change no objects.
    bool changes = false;
    if (server_.loop().store_mutex().is_mine()) {
        store_lock.assert_held();
        changes = !changing_.empty() && std::erase(changing_, request) > 0;
    }
    // A batch may have changed something in spite of its error.
    const bool changed = changes && (error == 0 || !body.IsNull());
    if (!later) {
        store_lock.assert_held();
        // A change is committed before its reply. Replies to other requests are sent even if the commit fails.
        if (auto recorded = server_.commit(); !recorded && changed) {
            if (unwritten) return unwritten(recorded.error());
            return reply_error(request, made_but_unwritten(recorded.error()));
        }
    }
    if (out.session == this && out.kind != wire::RequestBody::NONE && request == out.request) {
        if (out.counted == Outbox::Counted::not_yet) out.counted = Outbox::Counted::at_end;
        out.error = error;
    } else if (server_.loop().store_mutex().is_mine()) {
        store_lock.assert_held();
        count_reply(request, error);
    }
    if (body.IsNull()) builder();
    auto packet = wire::finish_reply(shared_builder(), request, kind, body, error, message);
    if (packet.size() > limits::kMessageBytes) {
        builder();
        packet = wire::finish_reply(shared_builder(), request, wire::ReplyBody::NONE, 0, E2BIG,
                                    "the answer is larger than a message");
        descriptors = {};
    }
    if (!later) return send(packet, descriptors);
    if (!descriptors.empty()) {
        MutexLock lock(outbox_mutex_);
        in_outbox_ = true;
    }
    out.replies.push_back({out.bytes.size(),
                           packet.size(),
                           request,
                           error,
                           changed,
                           std::move(unwritten),
                           {descriptors.begin(), descriptors.end()},
                           std::move(keeps)});
    out.bytes.insert(out.bytes.end(), packet.begin(), packet.end());
}

void Session::reply_error(uint64_t request, const Error& error) {
    const Outbox& out = outbox();
    const bool current = out.session == this && out.kind != wire::RequestBody::NONE;
    note_failure(current ? wire::EnumNameRequestBody(out.kind) : "a request", error);
    reply(request, wire::ReplyBody::NONE, 0, {}, error.code, error.message);
}

void Session::note_failure(std::string_view operation, const Error& error) const {
    log_failure({pid_, uid_, operation, {}}, error.code, error.message);
}

void Session::reply_status(uint64_t request, const Status& status) {
    if (status) return reply_ok(request);
    reply_error(request, status.error());
}

void Session::reply_change(uint64_t request, const Status& status) {
    if (!status && status.error().code == EDQUOT) return reply_error(request, explained(status.error()));
    reply_status(request, status);
}

bool Session::needs_descriptor(const StoredExtent& extent, Access access) {
    // Bounds the memory for a client that never reports unmapped extents. After clear() descriptors may be sent twice.
    constexpr size_t kMost = 1 << 16;
    constexpr uint64_t kStep = 64;
    if (has_.size() >= kMost) has_.clear();
    if (has_.size() >= has_charge_.amount() && !has_charge_.take(kStep)) has_.clear();
    return has_.insert(extent.id << 1 | (access == Access::write ? 1 : 0)).second;
}

void Session::job_started() {
    jobs_.add(1);
    if (!held_for_jobs_ && has_too_many_jobs()) connection_->hold(held_for_jobs_ = true);
}

void Session::job_ended() {
    jobs_.give(1);
    if (!held_for_jobs_ || has_too_many_jobs()) return;
    held_for_jobs_ = false;
    if (!server_.is_handing_over()) connection_->hold(false);
}

void Session::say_restart() {
    reply(0, wire::ReplyBody::NONE, 0, {}, ERESTART, "gshmd is being replaced");
}

void Session::dispatch(const wire::Request& request, std::vector<UniqueFd>& descriptors) {
    using wire::RequestBody;
    const uint64_t id = request.id();
    Store& store = server_.store();
    // Changes are refused while the last one cannot be written.
    if (changes_something(request.body_type())) {
        if (auto recorded = server_.survival().is_failing() ? server_.commit() : Status{}; !recorded) {
            return reply_error(id, {recorded.error().code, fmt::format("{}: nothing is changed until it can be written",
                                                                       recorded.error().message)});
        }
        changing_.push_back(id);
    }
    switch (request.body_type()) {
        case RequestBody::Hello: return hello(id, *request.body_as_Hello());
        case RequestBody::Ping: return reply_ok(id);
        case RequestBody::DaemonInfo: return daemon_info(id);
        case RequestBody::Devices: return devices(id);
        case RequestBody::Shutdown: return shutdown(id, *request.body_as_Shutdown());
        case RequestBody::Reconcile: return reconcile(*request.body_as_Reconcile());
        case RequestBody::Takeover: return takeover(id);
        case RequestBody::Goodbye: return goodbye(id);
        case RequestBody::CreateObjects: return create_objects(id, *request.body_as_CreateObjects());
        case RequestBody::OpenObjects: return open(id, *request.body_as_OpenObjects());
        case RequestBody::Release: return release(*request.body_as_Release());
        case RequestBody::Stat: return stat(id, *request.body_as_Stat());
        case RequestBody::List: return list(id, *request.body_as_List());
        case RequestBody::Seal: return seal(id, *request.body_as_Seal());
        case RequestBody::Unlink: return unlink(id, *request.body_as_Unlink());
        case RequestBody::Rename: return rename(id, *request.body_as_Rename());
        case RequestBody::Move: return move_object(id, *request.body_as_Move());
        case RequestBody::ChangeTier: return change_tier(id, *request.body_as_ChangeTier());
        case RequestBody::SetAttribute: {
            const auto& set = *request.body_as_SetAttribute();
            return reply_change(id, store.set_attribute(id_, wire::view(set.name()), wire::view(set.attribute()),
                                                        wire::view(set.value())));
        }
        case RequestBody::GetAttribute: return get_attribute(id, *request.body_as_GetAttribute());
        case RequestBody::RemoveAttribute: {
            const auto& remove = *request.body_as_RemoveAttribute();
            return reply_change(id,
                                store.remove_attribute(id_, wire::view(remove.name()), wire::view(remove.attribute())));
        }
        case RequestBody::ListAttributes: return list_attributes(id, *request.body_as_ListAttributes());
        case RequestBody::Wait: return wait(id, *request.body_as_Wait());
        case RequestBody::Holders: return holders(id, *request.body_as_Holders());
        case RequestBody::AttachStaging: return attach_staging(id, *request.body_as_AttachStaging(), descriptors);
        case RequestBody::Copy: return copy(id, *request.body_as_Copy());
        case RequestBody::Fill: return fill(id, *request.body_as_Fill());
        case RequestBody::Export: return export_object(id, *request.body_as_Export());
        case RequestBody::Unmount: return unmount(id, *request.body_as_Unmount());
        case RequestBody::Mount: return mount(id, *request.body_as_Mount());
        case RequestBody::Mounts: return list_mounts(id);
        case RequestBody::Reload: return reload(id);
        case RequestBody::SetLimit: return set_limit(id, *request.body_as_SetLimit());
        case RequestBody::Limits: return list_limits(id, *request.body_as_Limits());
        case RequestBody::Replace:
            return give_name(id, request.body_as_Replace()->id(), request.body_as_Replace()->name(), true);
        case RequestBody::GiveName:
            return give_name(id, request.body_as_GiveName()->id(), request.body_as_GiveName()->name(), false);
        case RequestBody::Unlinked: return unlinked(id, *request.body_as_Unlinked());
        case RequestBody::Make: return make(id, *request.body_as_Make());
        case RequestBody::ReadLink: return read_link(id, *request.body_as_ReadLink());
        case RequestBody::AddName: return add_name(id, *request.body_as_AddName());
        case RequestBody::Change: {
            const auto& change = *request.body_as_Change();
            const auto ttl_ns = ttl_ns_of(change.ttl_ms());
            if (!ttl_ns) return reply_error(id, ttl_ns.error());
            return reply_change(id, store.change(id_, wire::view(change.name()),
                                                 {change.what(), change.mode(), change.uid(), change.gid(), *ttl_ns,
                                                  change.ttl_unused()}));
        }
        case RequestBody::GetAcl: return get_acl(id, *request.body_as_GetAcl());
        case RequestBody::ChangeAcl: return change_acl(id, *request.body_as_ChangeAcl());
        case RequestBody::RingCreate: return ring_create(id, *request.body_as_RingCreate(), descriptors);
        case RequestBody::RingDestroy: return ring_destroy(id, *request.body_as_RingDestroy());
        case RequestBody::RingFile: return ring_file(id, *request.body_as_RingFile(), descriptors);
        case RequestBody::RingObjects: return ring_objects(id, *request.body_as_RingObjects());
        case RequestBody::RingRelease: return ring_release(*request.body_as_RingRelease());
        case RequestBody::OpenFence: return open_fence(id, *request.body_as_OpenFence());
        case RequestBody::WatchCreate: return watch_create(id, *request.body_as_WatchCreate());
        case RequestBody::WatchNext: return watch_next(id);
        case RequestBody::NONE: break;
    }
    reply_error(id,
                {EOPNOTSUPP, "this gshmd is older than the program and does not know the request; replace it with a "
                             "newer one (`gshmd --takeover` keeps all objects)"});
}

}  // namespace gshm::core
