#include "daemon/mount_backend.h"

#include "daemon/server.h"

namespace gshm::core {

MountBackend::MountBackend(Server& server, MountSettings settings)
    : server_(server), files_(server.store()), settings_(std::move(settings)) {}

StoreMutex& MountBackend::store_mutex() {
    return server_.loop().store_mutex();
}

Allocator& MountBackend::allocator() {
    return server_.allocator();
}

Mover& MountBackend::mover() {
    return server_.mover();
}

Tiers* MountBackend::tiers() {
    return &server_.tiers();
}

size_t MountBackend::device_count() {
    return server_.devices().size();
}

Device& MountBackend::device(DeviceIndex index) {
    return server_.devices().device(index);
}

uint64_t MountBackend::used_bytes(DeviceIndex index) {
    return server_.devices().used_bytes(index);
}

uint64_t MountBackend::available_bytes(DeviceIndex index) {
    return server_.devices().real_space(index).available_bytes;
}

Status MountBackend::check(DeviceIndex index) {
    return server_.devices().check(index);
}

void MountBackend::report(DeviceIndex index, const Error& error) {
    if (!error.device_lost) return;
    server_.loop().post([&devices = server_.devices(), index, error] {
        store_lock.assert_held();
        devices.report(index, error);
    });
}

void MountBackend::mark(const Done& done) {
    auto note = [&] {
        store_lock.assert_held();
        server_.survival().mark_done(done.request, done.node, done.answered);
    };
    if (store_mutex().is_mine()) return note();
    StoreLock lock(store_mutex());
    note();
}

namespace {

thread_local uid_t caller = 0;  // of the request of this thread

}  // namespace

void MountBackend::begin(uid_t uid) {
    caller = uid;
    server_.survival().make_room_for(uid);
}

Status MountBackend::record() {
    if (!server_.survival().is_pending()) return {};
    auto commit = [&] {
        store_lock.assert_held();
        const uint64_t place = server_.survival().journal_place();
        auto recorded = server_.commit();
        server_.survival().count_rows(caller, place);
        return recorded;
    };
    if (store_mutex().is_mine()) return commit();
    if (server_.survival().is_failing()) return {};  // as Server::commit_pending()
    StoreLock lock(store_mutex());
    return commit();
}

bool MountBackend::can_record() const {
    return server_.survival().can_keep();
}

}  // namespace gshm::core
