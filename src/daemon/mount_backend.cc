#include "daemon/mount_backend.h"

#include "daemon/server.h"

namespace gshm::core {

MountBackend::MountBackend(Server& server, MountSettings settings)
    : server_(server), files_(server.store()), settings_(std::move(settings)) {}

fuse::Backend::Turn MountBackend::enter() {
    return server_.loop().enter();
}

Allocator& MountBackend::allocator() {
    return server_.allocator();
}

Mover& MountBackend::mover() {
    return server_.mover();
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

Status MountBackend::check(DeviceIndex index) {
    return server_.devices().check(index);
}

void MountBackend::report(DeviceIndex index, const Error& error) {
    if (!error.device_lost) return;
    server_.loop().post([&devices = server_.devices(), index, error] { devices.report(index, error); });
}

void MountBackend::mark(const Done& done) {
    Turn turn;
    if (!server_.loop().is_entered()) turn = enter();
    server_.survival().mark_done(done.request, done.node, done.answered);
}

Status MountBackend::record() {
    if (!server_.survival().is_pending()) return {};
    if (server_.loop().is_entered()) return server_.commit();
    auto turn = enter();
    return server_.commit();
}

bool MountBackend::can_record() const {
    return server_.survival().can_keep();
}

}  // namespace gshm::core
