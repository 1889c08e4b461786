#include "daemon/mount_backend.h"

#include "daemon/server.h"

namespace gshm {

MountBackend::MountBackend(Server& server, MountSettings settings)
    : server_(server), files_(server.store()), settings_(std::move(settings)) {}

fuse::Backend::Turn MountBackend::enter() {
    return server_.loop().enter();
}

Result<std::shared_ptr<Extent>> MountBackend::allocate(DeviceIndex index, uint64_t bytes, bool compressible) {
    Device& memory = device(index);
    auto once = [&]() -> Result<std::shared_ptr<Extent>> {
        std::shared_ptr<Extent> extent = TRY(memory.allocate(bytes, {.compressible = compressible, .resizable = true, .lasting_handle = true}));
        if (extent->file() != nullptr) return extent;
        auto descriptor = extent->descriptor(Access::write);  // the slow part of handing it out
        if (!descriptor) return std::unexpected(explain_descriptor_limit(descriptor.error()));
        return extent;
    };
    auto extent = once();
    if (!extent && extent.error().code == ENOSPC) {
        // Empty slabs are kept for convenience only; and what was given back may be on its way.
        {
            auto turn = enter();
            server_.store().extents().trim(index);
        }
        server_.devices().wait_for_reclaimed(index);
        extent = once();
    }
    if (!extent) {
        report(index, extent.error());
        return std::unexpected(explain_descriptor_limit(extent.error()));
    }
    return extent;
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

void MountBackend::appeared(const Node& node) {
    if (!server_.waiters().empty()) server_.waiters().notify(Tree::path_of(node));
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

}  // namespace gshm
