// Copies and fills through the daemon, for clients that map no memory, and exported handles.
#include <fcntl.h>
#include <linux/magic.h>
#include <shared_mutex>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/limits.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "memory/transfer_counters.h"
#include "store/account_limits.h"
#include "store/gate.h"

namespace gshm::core {

void Session::attach_staging(uint64_t request, const wire::AttachStaging& attach,
                             const std::vector<UniqueFd>& descriptors) {
    if (descriptors.size() != 1) return reply_error(request, {EINVAL, "staging memory is one descriptor"});
    if (attach.bytes() == 0 || attach.bytes() > limits::kStagingBytes) {
        return reply_error(request,
                           {EINVAL, fmt::format("staging memory has at most {} bytes", limits::kStagingBytes)});
    }
    int fd = descriptors[0].get();
    struct stat status = {};
    struct statfs kind = {};
    int seals = fcntl(fd, F_GET_SEALS);
    // A file that can shrink, or huge pages that run out, would raise SIGBUS in gshmd.
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &status) != 0 || fstatfs(fd, &kind) != 0 ||
        kind.f_type != TMPFS_MAGIC || static_cast<uint64_t>(status.st_size) < attach.bytes()) {
        return reply_error(request, {EINVAL, "staging memory must be a memfd of that size, sealed against shrinking"});
    }
    auto mapping = Mapping::create(fd, attach.bytes(), true);
    if (!mapping) return reply_error(request, mapping.error());
    staging_ = std::make_shared<Mapping>(std::move(*mapping));
    reply_ok(request);
}

Result<Object*> Session::object_range(uint64_t id, uint64_t offset, uint64_t bytes, Access access) {
    Object* object = TRY(server_.store().leased(id_, id, access));
    TRY(server_.devices().check(object->device));
    if (offset > object->size_bytes || bytes > object->size_bytes - offset) {
        return fail(EINVAL, "range {}+{} is outside of the object's {} bytes", offset, bytes, object->size_bytes);
    }
    return object;
}

void Session::run_on_object(Object* object, Access access, std::move_only_function<Status(Extent&, uint64_t)> work,
                            std::move_only_function<void(Session&, Status)> answer) {
    server_.store().pin(object, access);
    job_started();
    server_.devices().submit(
        object->device,
        [gate = Store::gate(object), work = std::move(work)](Device&) mutable -> Status {
            // The current memory: a growing file of the mount may have moved.
            std::shared_lock lock(gate->mutex);
            if (!gate->memory) return fail(ENODATA, "the object is empty and has no memory");
            return work(*gate->memory, gate->offset);
        },
        [&server = server_, self = weak_from_this(), object, access,
         answer = std::move(answer)](Status status) mutable {
            store_lock.assert_held();
            if (access == Access::write) server.store().modified(object);
            server.store().unpin(object, access);
            if (auto session = self.lock()) {
                answer(*session, std::move(status));
                session->job_ended();
            }
        });
}

void Session::copy(uint64_t request, const wire::Copy& copy) {
    auto object =
        object_range(copy.id(), copy.offset(), copy.bytes(), copy.into_object() ? Access::write : Access::read);
    if (!object) return reply_error(request, object.error());
    if (!staging_ || copy.bytes() > staging_->size()) {
        return reply_error(request, {EINVAL, "a copy needs staging memory of its size"});
    }
    if (copy.bytes() == 0) return reply_ok(request);
    uint64_t at = copy.offset();
    std::span<std::byte> bytes(staging_->data(), copy.bytes());
    run_on_object(
        *object, copy.into_object() ? Access::write : Access::read,
        [staging = staging_, bytes, at, in = copy.into_object(), device = (*object)->device](Extent& extent,
                                                                                             uint64_t offset) {
            const uint64_t since_ns = steady_now_ns();
            auto copied = in ? extent.copy_in(offset + at, bytes) : extent.copy_out(offset + at, bytes);
            if (!copied) return copied;
            const auto direction = in ? TransferDirection::in : TransferDirection::out;
            TransferCounters::note_bytes(device, direction, TransferPath::staged, bytes.size());
            TransferCounters::note_duration(device, direction, steady_now_ns() - since_ns);
            return copied;
        },
        [request](Session& session, Status status) { session.reply_status(request, status); });
}

void Session::fill(uint64_t request, const wire::Fill& fill) {
    auto object = object_range(fill.id(), fill.offset(), fill.bytes(), Access::write);
    if (!object) return reply_error(request, object.error());
    if (fill.bytes() == 0) return reply_ok(request);
    run_on_object(
        *object, Access::write,
        [at = fill.offset(), bytes = fill.bytes(), value = fill.value()](Extent& extent, uint64_t offset) {
            return extent.fill(offset + at, bytes, value);
        },
        [request](Session& session, Status status) { session.reply_status(request, status); });
}

void Session::move_object(uint64_t request, const wire::Move& move) {
    auto object = server_.store().find_movable(id_, wire::view(move.name()));
    if (!object) return reply_error(request, object.error());
    auto device = server_.devices().find(std::string(wire::view(move.device())));
    if (!device) return reply_error(request, device.error());
    if ((*object)->is_evicted()) {
        // It returns first. A move from the tier would be faster for some, and another way to lose bytes.
        auto returned = needs_return(**object, false);
        if (!returned) return reply_error(request, returned.error());
        return bring_back({*object}, {*object});
    }
    job_started();
    const auto holders = move.keep_holders() ? Mover::Holders::keep : Mover::Holders::refuse;
    server_.mover().move(**object, *device, holders, [self = weak_from_this(), request](Status status) {
        store_lock.assert_held();
        auto session = self.lock();
        if (!session) return;
        session->reply_status(request, status);
        session->job_ended();
    });
}

void Session::export_object(uint64_t request, const wire::Export& what) {
    auto object = object_range(what.id(), 0, 0, Access::read);
    // An object sealed meanwhile is exported read-only.
    bool write = object && what.write() && (*object)->state == ObjectState::open;
    if (write) object = object_range(what.id(), 0, 0, Access::write);
    if (!object) return reply_error(request, object.error());
    if ((*object)->extent == nullptr) return reply_error(request, {ENODATA, "the object is empty and has no memory"});
    const Access access = write ? Access::write : Access::read;
    auto needs = needs_own_memory(**object, true);
    if (!needs) return reply_error(request, needs.error());
    if (*needs) return give_own_memory({*object});
    if (write && server_.store().limits().may_outgrow(**object)) {
        return reply_error(request,
                           {EBUSY, "the file could be made larger than a limit of its owner allows; open it with a "
                                   "mapping, when no other process has it open"});
    }
    if (auto mappable = server_.store().begin_mapping(id_, *object, access); !mappable) {
        return reply_error(request, mappable.error());
    }
    Extents::reach_anywhere((*object)->extent);
    struct Exported {
        UniqueFd descriptor;
        FabricHandle fabric = {};
    };
    auto exported = std::make_shared<Exported>();
    uint64_t extent_bytes = (*object)->extent->size_bytes;
    auto answer = [request, exported, kind = what.kind(), extent_bytes, offset = (*object)->offset](Session& session,
                                                                                                    Status status) {
        if (!status) return session.reply_error(request, explain_descriptor_limit(status.error()));
        auto& out = session.builder();
        auto fabric = out.CreateVector(exported->fabric.data(), kind == kHandleFabric ? exported->fabric.size() : 0);
        auto body = wire::CreateExportReply(out, extent_bytes, offset, fabric);
        int fd = exported->descriptor.get();
        session.reply(request, wire::ReplyBody::ExportReply, body.Union(), {&fd, exported->descriptor ? 1u : 0u});
    };
    switch (what.kind()) {
        case kHandlePosixFd: {
            // Exported when the extent was allocated: no driver call, so no need for the device's thread.
            auto descriptor = (*object)->extent->memory->export_fd(access);
            if (descriptor) exported->descriptor = std::move(*descriptor);
            return answer(*this, descriptor ? Status{} : std::unexpected(descriptor.error()));
        }
        case kHandleDmaBuf:
            return run_on_object(
                *object, Access::read,
                [exported](Extent& extent, uint64_t) -> Status {
                    exported->descriptor = TRY(extent.export_dmabuf());
                    return {};
                },
                answer);
        case kHandleFabric:
            // Recorded before the export: a needless record costs a copy, a missing one exposes memory of other
            // objects.
            server_.store().extents().give_handle((*object)->extent);
            if (auto recorded = server_.commit(); !recorded) return reply_error(request, recorded.error());
            return run_on_object(
                *object, Access::read,
                [exported](Extent& extent, uint64_t) -> Status {
                    exported->fabric = TRY(extent.export_fabric());
                    return {};
                },
                answer);
        default: return reply_error(request, {EINVAL, fmt::format("unknown handle kind {}", what.kind())});
    }
}

}  // namespace gshm::core
