#include "daemon/server.h"

#include <algorithm>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "base/failure_log.h"
#include "base/limits.h"
#include "base/log.h"

namespace gshm::core {
namespace {

// For a client in another pid namespace, whose end is not seen.
constexpr std::chrono::minutes kUnseenPatience{2};
// For clients that do not read their replies, during a takeover.
constexpr std::chrono::seconds kHandOverPatience{1};

// For transfers between files and objects when gshmd ends.
constexpr std::chrono::seconds kTransferPatience{10};
// The same during a takeover. Shorter, since clients get no replies meanwhile.
constexpr std::chrono::seconds kTakeoverPatience{4};

// For descriptors of clients whose close blocks, when gshmd ends.
constexpr std::chrono::seconds kClosePatience{2};

UniqueFd open_spare() {
    return UniqueFd::adopt(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

}  // namespace

Result<std::unique_ptr<Server>> Server::create(EventLoop& loop, std::unique_ptr<DeviceSet> devices, Survival& survival,
                                               UniqueFd listener, bool with_mount) {
    std::unique_ptr<Server> server(new Server(loop, std::move(devices), survival, std::move(listener)));
    auto* self = server.get();
    StoreLock lock(loop.store_mutex());
    for (const auto& [session, process] : TRY(self->survival_.load(self->store_, *self->devices_, with_mount))) {
        TRY(self->await_session(session, process));
    }
    self->fences_.restore(self->store_);
    self->reserves_.load();
    // Commits changes that no request waits for, such as the end of a client.
    loop.set_after([self] {
        store_lock.assert_held();
        (void)self->commit();
    });
    self->devices_->set_also_wait([self] { self->wait_for_keeper(); });
    TRY(self->commit());
    return server;
}

Status Server::start_clients(unsigned threads, wire::ProtocolRange protocols) {
    protocols_ = protocols;
    client_loops_ = TRY(ClientLoops::create(threads));
    return loop_.watch(listener_.get(), EPOLLIN, [this](uint32_t) {
        store_lock.assert_held();
        on_accept();
    });
}

void Server::wait_for_keeper() {
    if (!loop_.is_running()) return;
    std::shared_ptr<Keeper> keeper;
    {
        StoreLock lock(loop_.store_mutex());
        (void)commit();
        keeper = survival_.keeper();
    }
    if (keeper) keeper->sync();
}

Server::Server(EventLoop& loop, std::unique_ptr<DeviceSet> devices, Survival& survival, UniqueFd listener)
    : loop_(loop),
      devices_(std::move(devices)),
      listener_(std::move(listener)),
      survival_(survival),
      spare_(open_spare()),
      owner_{geteuid(), getegid(), getpid(), {}},
      scheduler_(loop),
      reclaim_(scheduler_, *devices_),
      store_(clock_, reclaim_, owner_, devices_->infos()),
      budgets_(store_.budgets()),
      lifetimes_(store_.lifetimes()),
      departures_(scheduler_, store_),
      allocator_(scheduler_, *devices_, departures_),
      mover_(scheduler_, *devices_, allocator_, store_),
      tiers_(scheduler_, *devices_, allocator_, store_, first_gpu(*devices_),
             [this] {
                 store_lock.assert_held();
                 return commit();
             }),
      watches_(store_),
      waits_(store_),
      fences_(loop, survival, budgets_) {
    reclaim_.use(store_, departures_);
    reclaim_.set_awaits_commit(survival_.can_keep());
    // The keeper also holds the memory, until it has read the drop message.
    reclaim_.set_after_free([this](Scheduler::Task done) {
        keeper_waits_->submit([this, done = std::move(done)]() mutable {
            if (ending_) return;
            wait_for_keeper();
            loop_.post(std::move(done));
        });
    });
    // Posted, since the change that causes the event is still under way, perhaps in a thread of the mount.
    watches_.set_wake([this] {
        loop_.post([this] {
            store_lock.assert_held();
            watches_.deliver();
        });
    });
    waits_.set_wake([this] {
        loop_.post([this] {
            store_lock.assert_held();
            waits_.check_due();
        });
    });
}

void Server::set_machine(const Budgets::Machine& machine) {
    machine_ = machine;
    descriptors_for_users_ = machine.descriptors - machine.descriptors / limits::kDescriptorReserve;
}

Status Server::start_expiry() {
    StoreLock lock(loop_.store_mutex());
    expiry_ = TRY(Expiry::create(loop_, store_.lifetimes(), [this] {
        store_lock.assert_held();
        return commit();
    }));
    expiry_->start();
    (void)commit();  // if it fails, changes are refused until it succeeds
    return {};
}

Server::~Server() {
    metrics_.reset();
    if (client_loops_) client_loops_->stop();
    ending_ = true;
    {
        StoreLock lock(loop_.store_mutex());
        departures_.set_given_up(true);
    }
    mover_.stop();
    tiers_.stop();
    keeper_waits_.reset();
    freed_memory_.reset();
    // Their threads use all other members. The janitor may still have a mount to destroy.
    finish_mounting();
    mount_.reset();
    janitor_.reset();
    reloader_.reset();
    successor_.reset();  // so that the end of its session does not call keep_serving()
    survival_.forget_store();
    fences_.close();
    loop_.set_after({});
    watches_.set_wake({});
    waits_.set_wake({});
    expiry_.reset();
    loop_.unwatch(listener_.get());
    if (mount_table_) loop_.unwatch(mount_table_.get());
    for (const auto& [session, process] : awaited_) loop_.unwatch(process.get());
    {
        StoreLock lock(loop_.store_mutex());
        while (!sessions_.empty()) end_session(sessions_.begin()->first);
    }
    {
        // They may have sessions, such as those of requests that wait for the end of a takeover.
        StoreLock lock(loop_.store_mutex());
        loop_.drop_posted();
    }
    // Rings are destroyed there, too.
    if (!reapers_.finish(kClosePatience)) {
        log_warning("a descriptor of a client cannot be closed; gshmd ends without it");
        _exit(0);
    }
    rings_.reset();  // their threads use the devices
}

Status Server::start_metrics(MetricsListeners listeners, const Metrics::Start& start) {
    metrics_ = TRY(Metrics::create(*this, std::move(listeners), start));
    return {};
}

void Server::start_rings(uint64_t staging_bytes) {
    rings_ = std::make_unique<RingService>(*this, staging_bytes);
    StoreLock lock(loop_.store_mutex());
    (void)rings_->staging();  // pinning takes long, so it starts now
}

void Server::on_accept() {
    auto socket = UniqueFd::adopt(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) {
        if (errno == EMFILE || errno == ENFILE) refuse_for_want_of_descriptors();
        return;
    }
    const auto who = Connection::peer_of(socket.get());
    if (!who) return refuse(std::move(socket), 0, who.error());
    auto session = Session::create(*this, socket, *who);
    if (!session) return refuse(std::move(socket), who->uid, explain_descriptor_limit(session.error()));
    auto* key = session->get();
    sessions_.emplace(key, std::move(*session));
}

namespace {

void tell_refused(int socket, const Error& error) {
    flatbuffers::FlatBufferBuilder builder;
    auto packet = wire::finish_reply(builder, 0, wire::ReplyBody::NONE, 0, error.code, error.message);
    // Best effort: the client sees the closed socket in any case.
    [[maybe_unused]] auto told = wire::send_packet(socket, packet, {}, false);
}

}  // namespace

void Server::refuse(UniqueFd socket, uid_t uid, const Error& error) {
    log_for_user(LogLevel::warning, uid, fmt::format("a client of uid {} was refused: {}", uid, error.message));
    if (!socket) return;
    tell_refused(socket.get(), error);
    // Its packets may have descriptors, so that it is closed in another thread.
    Budgets::Charge charge(budgets_.user(uid), Resource::descriptors);
    charge.add(1);
    std::vector<UniqueFd> last;
    last.push_back(std::move(socket));
    reapers_.close(uid, std::move(last), std::move(charge));
}

void Server::refuse_for_want_of_descriptors() {
    Error error = explain_descriptor_limit({EMFILE, "too many open descriptors"});
    spare_.reset();
    auto socket = UniqueFd::adopt(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket) tell_refused(socket.get(), error);
    if (!socket) {
        spare_ = open_spare();
        return;
    }
    // Closed in another thread, since its packets may have descriptors. Until then no client is accepted.
    loop_.change(listener_.get(), 0);
    const auto who = Connection::peer_of(socket.get());
    log_for_user(LogLevel::error, who ? who->uid : 0, fmt::format("a client was refused: {}", error.message));
    reapers_.submit(who ? who->uid : 0, [this, socket = std::move(socket)]() mutable {
        socket.reset();
        loop_.post([this] {
            spare_ = open_spare();
            loop_.change(listener_.get(), EPOLLIN);
        });
    });
}

void Server::end_session(Session* session) {
    auto found = sessions_.find(session);
    if (found == sessions_.end()) return;
    auto keep = std::move(found->second);
    sessions_.erase(found);
    session->set_ended();
    if (keep == successor_) keep_serving("the gshmd that was to take over has gone");
    session->drop_rings();
    session->forget_waits();
    watches_.forget(session->id());
    forget_session(session->id());
    if (freed_memory_) freed_memory_->session_ended();
}

void Server::forget_session(SessionId session) {
    fences_.end_session(session, store_.credentials(session).pid);
    store_.end_session(session);
    reclaim_.end_session(session);
}

Status Server::await_session(SessionId session, const Restorer::Process& process) {
    auto fd = UniqueFd::adopt(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
    // ESRCH: the process has just ended. Other errors: its end cannot be watched, and it gets a time limit.
    if (!fd && errno == ESRCH) {
        store_.end_session(session);
        return {};
    }
    if (!fd) {
        loop_.after(kUnseenPatience, [this, session] {
            store_lock.assert_held();
            end_awaited(session);
        });
        awaited_[session];
        return {};
    }
    TRY(loop_.watch(fd.get(), EPOLLIN, [this, session](uint32_t) {
        store_lock.assert_held();
        end_awaited(session);
    }));
    awaited_[session] = std::move(fd);
    return {};
}

void Server::end_awaited(SessionId session) {
    auto found = awaited_.find(session);
    if (found == awaited_.end()) return;  // resumed
    if (found->second) loop_.unwatch(found->second.get());
    awaited_.erase(found);
    forget_session(session);
}

std::optional<SessionId> Server::resume_session(const Store::SessionSecret& secret, const Credentials& who) {
    auto session = store_.resume_session(secret, who);
    if (!session) return std::nullopt;
    auto found = awaited_.find(*session);
    if (found->second) loop_.unwatch(found->second.get());
    awaited_.erase(found);
    return session;
}

void Server::hand_over(std::shared_ptr<Session> to, uint64_t request) {
    log_info("another gshmd takes over");
    successor_ = std::move(to);
    takeover_request_ = request;
    keep_ = true;
    loop_.unwatch(listener_.get());  // new clients wait for the next daemon
    for (const auto& [key, session] : sessions_) session->set_reading(false);
    departures_.set_given_up(true);
    stop_when_idle(std::chrono::steady_clock::now() + kHandOverPatience);
}

void Server::stop_when_idle(std::chrono::steady_clock::time_point deadline) {
    if (!successor_) return;  // the takeover was cancelled
    // After the deadline clients that do not read their replies are not waited for.
    const bool late = std::chrono::steady_clock::now() > deadline;
    // Transfers of a dead client may still write to its objects.
    bool idle = rings_->is_idle() && std::ranges::all_of(sessions_, [&](const auto& entry) {
                    store_lock.assert_held();
                    return entry.second->is_idle(late);
                });
    if (!idle && std::chrono::steady_clock::now() > deadline + kTakeoverPatience) {
        // All clients wait meanwhile, so the takeover is refused.
        successor_->reply_error(takeover_request_,
                                {EBUSY, "transfers between files and objects do not end; try again"});
        return keep_serving("cannot be taken over now: transfers do not end");
    }
    if (!idle) {
        loop_.after(std::chrono::milliseconds(1), [this, deadline] {
            store_lock.assert_held();
            stop_when_idle(deadline);
        });
        return;
    }
    for (const auto& [key, session] : sessions_) {
        if (session != successor_) session->say_restart();
    }
    loop_.stop();
}

void Server::keep_serving(std::string_view why) {
    log_warning("{}", why);
    successor_.reset();
    keep_ = false;
    departures_.set_given_up(false);
    for (const auto& [key, session] : sessions_) session->set_reading(true);
    auto watched = loop_.watch(listener_.get(), EPOLLIN, [this](uint32_t) {
        store_lock.assert_held();
        on_accept();
    });
    if (!watched) log_error("{}", watched.error().message);
}

void Server::finish_transfers() {
    {
        StoreLock lock(loop_.store_mutex());
        for (const auto& [key, session] : sessions_) session->pause_rings(true);
    }
    const auto deadline = std::chrono::steady_clock::now() + kTransferPatience;
    while (!rings_->is_idle() && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

bool Server::end(int folder_lock) {
    metrics_.reset();  // before the next gshmd binds the same addresses
    finish_mounting();
    client_loops_->stop();
    {
        StoreLock lock(loop_.store_mutex());
        departures_.set_given_up(true);
    }
    mover_.stop();
    tiers_.stop();
    // Clients repeat incomplete transfers at the next daemon. Both must not write at the same time.
    finish_transfers();
    if (mount_ && keep_ && mount_->can_be_resumed()) mount_->leave_mounted();
    if (!keep_) {
        mount_.reset();
        empty_folder();
        StoreLock lock(loop_.store_mutex());  // devices' threads may be about to commit
        reclaim_.stop();
        survival_.discard();
        return false;
    }
    {
        StoreLock lock(loop_.store_mutex());
        if (successor_) successor_->let_go();  // the next daemon must not wait for its own session
        if (auto committed = commit(); !committed) log_error("{}", committed.error().message);
        // The memory is the next daemon's from now on. It restores the objects of sessions and of removals that were not
        // committed, so none of it may be zeroed.
        reclaim_.stop();
        survival_.close();
    }
    for (DeviceIndex i = 0; i < devices_->size(); ++i) devices_->wait_for_reclaimed(i);
    if (!successor_) return false;
    const int descriptors[] = {listener_.get(), folder_lock};
    StoreLock lock(loop_.store_mutex());
    successor_->builder();
    successor_->reply(takeover_request_, wire::ReplyBody::NONE, 0, descriptors);
    return true;
}

bool Server::wait_for_slab(const SlabKey& key, EventLoop::Task resume) {
    auto [entry, first] = slabs_under_way_.try_emplace(key);
    if (!first) entry->second.push_back(std::move(resume));
    return !first;
}

std::vector<EventLoop::Task> Server::slab_arrived(const SlabKey& key) {
    return std::move(slabs_under_way_.extract(key).mapped());
}

Status Server::commit() {
    if (!survival_.is_pending() && !reclaim_.is_pending()) return {};
    TRY(survival_.commit());
    reclaim_.committed();
    return {};
}

Status Server::commit_pending() {
    // The catalog's thread tries to write again; readers do not wait for that.
    if (!survival_.is_pending() || survival_.is_failing()) return {};
    StoreLock lock(loop_.store_mutex());
    return commit();
}

}  // namespace gshm::core
