#include "daemon/server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"

namespace gshm {
namespace {

UniqueFd open_spare() {
    return UniqueFd::adopt(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

uint64_t random_instance() {
    uint64_t value = 0;
    while (value == 0) {
        if (getrandom(&value, sizeof value, 0) != sizeof value) value = static_cast<uint64_t>(SystemClock().now_ns());
    }
    return value;
}

}  // namespace

Error explain_descriptor_limit(Error error) {
    // Drivers report it in words of their own, so ask the kernel.
    if (error.code != EMFILE && error.code != ENFILE) {
        int probe = fcntl(0, F_DUPFD_CLOEXEC, 0);
        if (probe >= 0) close(probe);
        if (probe >= 0 || (errno != EMFILE && errno != ENFILE)) return error;
    }
    rlimit limit = {};
    getrlimit(RLIMIT_NOFILE, &limit);
    return Error{EMFILE, fmt::format("gshmd has reached its limit of {} open descriptors (raise it with `ulimit -n` or "
                                     "LimitNOFILE= before gshmd starts)", limit.rlim_cur)};
}

Result<std::unique_ptr<Server>> Server::create(EventLoop& loop, std::unique_ptr<DevicePool> devices,
                                               UniqueFd listener) {
    std::unique_ptr<Server> server(new Server(loop, std::move(devices), std::move(listener)));
    auto* self = server.get();
    TRY(loop.watch(self->listener_.get(), EPOLLIN, [self](uint32_t) { self->on_accept(); }));
    return server;
}

Server::Server(EventLoop& loop, std::unique_ptr<DevicePool> devices, UniqueFd listener)
    : loop_(loop),
      devices_(std::move(devices)),
      listener_(std::move(listener)),
      spare_(open_spare()),
      instance_(random_instance()),
      owner_{geteuid(), getegid(), getpid(), {}},
      store_(clock_, *this, owner_, devices_->infos()),
      waiters_(loop, store_) {}

Server::~Server() {
    // Their threads work on all the rest. The janitor may have a mount in hand, too.
    mount_.reset();
    janitor_.reset();
    loop_.unwatch(listener_.get());
    while (!sessions_.empty()) end_session(sessions_.begin()->first);
}

void Server::on_accept() {
    auto socket = UniqueFd::adopt(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) {
        if (errno == EMFILE || errno == ENFILE) refuse_for_want_of_descriptors();
        return;
    }
    auto session = Session::create(*this, std::move(socket));
    if (!session) {
        log_warning("a client was refused: {}", explain_descriptor_limit(session.error()).message);
        return;
    }
    auto* key = session->get();
    sessions_.emplace(key, std::move(*session));
}

void Server::refuse_for_want_of_descriptors() {
    Error error = explain_descriptor_limit({EMFILE, "too many open descriptors"});
    log_error("a client was refused: {}", error.message);
    spare_.reset();
    auto socket = UniqueFd::adopt(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket) {
        flatbuffers::FlatBufferBuilder builder;
        auto packet = wire::finish_reply(builder, 0, wire::ReplyBody::NONE, 0, error.code, error.message);
        // It is told if it can be; it finds the socket closed in any case.
        [[maybe_unused]] auto told = wire::send_packet(socket.get(), packet, {}, false);
    }
    socket.reset();
    spare_ = open_spare();
}

void Server::end_session(Session* session) {
    auto found = sessions_.find(session);
    if (found == sessions_.end()) return;
    auto keep = std::move(found->second);
    sessions_.erase(found);
    waiters_.forget(session->id());
    store_.end_session(session->id());
}

Status Server::mount(const std::string& path, MountSettings settings) {
    mount_backend_ = std::make_unique<MountBackend>(*this, std::move(settings));
    // Whoever unmounts it, from here or from outside: the daemon goes on without it.
    mount_ = TRY(fuse::Mount::create(*mount_backend_, path, [this] {
        loop_.post([this] {
            janitor_->submit([mount = std::move(mount_)]() mutable { mount.reset(); });
        });
    }));
    return {};
}

void Server::unmount(bool lazily, std::move_only_function<void(Status)> done) {
    if (!mount_) return done(fail(EINVAL, "nothing is mounted"));
    janitor_->submit([this, mount = mount_, lazily, done = std::move(done)]() mutable {
        Status status = mount->unmount(lazily);
        mount.reset();  // here, should it be the last: the loop must not wait for the mount's threads
        loop_.post([status = std::move(status), done = std::move(done)]() mutable { done(std::move(status)); });
    });
}

void Server::close_later(std::vector<UniqueFd> descriptors) {
    if (!descriptors.empty()) janitor_->submit([descriptors = std::move(descriptors)]() mutable { descriptors.clear(); });
}

bool Server::wait_for_slab(const SlabKey& key, EventLoop::Task resume) {
    auto [entry, first] = slabs_under_way_.try_emplace(key);
    if (!first) entry->second.push_back(std::move(resume));
    return !first;
}

std::vector<EventLoop::Task> Server::slab_arrived(const SlabKey& key) {
    return std::move(slabs_under_way_.extract(key).mapped());
}

void Server::zero(DeviceIndex device, ExtentId id, std::shared_ptr<Extent> memory, uint64_t offset, uint64_t bytes) {
    devices_->submit_reclaim(
        device,
        [memory = std::move(memory), offset, bytes](Device&) { return memory->fill(offset, bytes, 0); },
        [this, id, offset, bytes](Status status) {
            // A range that could not be zeroed is never handed out again.
            if (status) store_.extents().zeroed(id, offset, bytes);
        });
}

void Server::release(DeviceIndex device, std::shared_ptr<Extent> memory) {
    // A small file is closed in less time than it takes to wake a thread.
    constexpr uint64_t kSmallBytes = 1 << 20;
    if (memory->file() != nullptr && memory->size() <= kSmallBytes) return;
    devices_->submit_reclaim(
        device,
        [memory = std::move(memory)](Device&) mutable {
            memory.reset();
            return Status{};
        },
        nullptr);
}

}  // namespace gshm
