#include "daemon/mount_backend.h"

#include <algorithm>
#include <future>

#include "daemon/server.h"

namespace gshm {

MountBackend::MountBackend(Server& server, MountSettings settings)
    : server_(server), files_(server.store()), settings_(std::move(settings)) {}

fuse::Backend::Turn MountBackend::enter() {
    return server_.loop().enter();
}

Result<std::shared_ptr<Extent>> MountBackend::allocate(DeviceIndex index, uint64_t bytes, bool compressible) {
    auto extent = server_.devices().allocate(index, bytes, {.compressible = compressible,
                                                            .resizable = true,
                                                            .shared = !device(index).info().files,
                                                            .lasting_handle = true});
    if (extent) return extent;
    report(index, extent.error());
    return std::unexpected(explain_descriptor_limit(extent.error()));
}

namespace {

class RoomWait final : public fuse::Backend::Wait {
public:
    RoomWait(Server& server, DeviceIndex device, NodeId waiting)
        : server_(server), device_(device), waiting_(waiting) {}

    bool next() override {
        if (server_.room().has_given_up()) return false;
        // The loop may have ended, and then nobody answers.
        auto answer = std::make_shared<std::promise<bool>>();
        auto answered = answer->get_future();
        server_.loop().post([&room = server_.room(), state = state_, device = device_, waiting = waiting_, answer] {
            if (!*state) *state = room.wait(device, waiting);
            room.next(*state, [answer](bool freed) { answer->set_value(freed); });
        });
        if (answered.wait_for(Room::kPatience + std::chrono::seconds(1)) != std::future_status::ready) return false;
        if (!answered.get()) return false;
        server_.devices().wait_for_reclaimed(device_);
        return true;
    }

private:
    Server& server_;
    DeviceIndex device_;
    NodeId waiting_;
    std::shared_ptr<std::shared_ptr<Room::Wait>> state_ = std::make_shared<std::shared_ptr<Room::Wait>>();
};

}  // namespace

std::unique_ptr<fuse::Backend::Wait> MountBackend::wait_for_room(DeviceIndex device, NodeId waiting) {
    return std::make_unique<RoomWait>(server_, device, waiting);
}

bool MountBackend::is_worth_waiting(DeviceIndex index) {
    const uint64_t capacity = device(index).info().capacity_bytes;
    return server_.room().is_worth_waiting(index, capacity - std::min(capacity, used_bytes(index)));
}

uint64_t MountBackend::begin_move(DeviceIndex device, uint64_t bytes) {
    return server_.room().begin(device, Room::Kind::move, bytes);
}

void MountBackend::end_move(DeviceIndex device, uint64_t move, bool freed) {
    server_.room().end(device, move, freed);
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

}  // namespace gshm
