// Copies and fills through the daemon, for clients that need no pointer of their own, and handles for others.
#include <fcntl.h>
#include <sys/stat.h>

#include "base/limits.h"
#include "daemon/server.h"
#include "daemon/session.h"

namespace gshm {

void Session::attach_staging(uint64_t request, const wire::AttachStaging& attach, std::vector<UniqueFd> descriptors) {
    if (descriptors.size() != 1) return reply_error(request, {EINVAL, "staging memory is one descriptor"});
    if (attach.bytes() == 0 || attach.bytes() > limits::kStagingBytes) {
        return reply_error(request, {EINVAL, fmt::format("staging memory has at most {} bytes", limits::kStagingBytes)});
    }
    int fd = descriptors[0].get();
    struct stat status = {};
    int seals = fcntl(fd, F_GET_SEALS);
    // A file that could shrink under us would be our SIGBUS.
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &status) != 0 ||
        static_cast<uint64_t>(status.st_size) < attach.bytes()) {
        return reply_error(request, {EINVAL, "staging memory must be a memfd of that size, sealed against shrinking"});
    }
    auto mapping = Mapping::create(fd, attach.bytes(), true);
    if (!mapping) return reply_error(request, mapping.error());
    staging_ = std::make_shared<Mapping>(std::move(*mapping));
    reply_ok(request);
}

Result<Object*> Session::object_range(uint64_t id, uint64_t offset, uint64_t bytes, Access access) {
    Object* object = TRY(server_.store().leased(id_, id, access));
    TRY(server_.devices().check(object->extent->device));
    if (offset > object->size_bytes || bytes > object->size_bytes - offset) {
        return fail(EINVAL, "range {}+{} is outside of the object's {} bytes", offset, bytes, object->size_bytes);
    }
    return object;
}

void Session::run_on_object(uint64_t request, Object* object, std::move_only_function<Status(Extent&)> work) {
    server_.store().pin(object);
    job_started();
    server_.devices().submit(
        object->extent->device,
        [memory = object->extent->memory, work = std::move(work)](Device&) mutable { return work(*memory); },
        [&server = server_, self = weak_from_this(), request, object](Status status) {
            if (auto session = self.lock()) {
                session->reply_status(request, status);
                session->job_ended();
            }
            server.store().unpin(object);
        });
}

void Session::copy(uint64_t request, const wire::Copy& copy) {
    auto object =
        object_range(copy.id(), copy.offset(), copy.bytes(), copy.into_object() ? Access::write : Access::read);
    if (!object) return reply_error(request, object.error());
    if (!staging_ || copy.bytes() > staging_->size()) {
        return reply_error(request, {EINVAL, "a copy needs staging memory of its size"});
    }
    uint64_t offset = (*object)->offset + copy.offset();
    std::span<std::byte> bytes(staging_->data(), copy.bytes());
    run_on_object(request, *object, [staging = staging_, bytes, offset, in = copy.into_object()](Extent& extent) {
        return in ? extent.copy_in(offset, bytes) : extent.copy_out(offset, bytes);
    });
}

void Session::fill(uint64_t request, const wire::Fill& fill) {
    auto object = object_range(fill.id(), fill.offset(), fill.bytes(), Access::write);
    if (!object) return reply_error(request, object.error());
    uint64_t offset = (*object)->offset + fill.offset();
    run_on_object(request, *object, [offset, bytes = fill.bytes(), value = fill.value()](Extent& extent) {
        return extent.fill(offset, bytes, value);
    });
}

void Session::export_object(uint64_t request, const wire::Export& what) {
    auto object = object_range(what.id(), 0, 0, Access::read);
    // What has been sealed since is exported for reading, to whomever.
    bool write = object && what.write() && (*object)->state == ObjectState::open;
    if (write) object = object_range(what.id(), 0, 0, Access::write);
    if (!object) return reply_error(request, object.error());
    Access access = write ? Access::write : Access::read;
    StoredExtent& extent = *(*object)->extent;
    std::vector<int> descriptors;
    UniqueFd dmabuf;
    FabricHandle fabric = {};
    auto exported = [&]() -> Status {
        switch (what.kind()) {
            case kHandlePosixFd: descriptors.push_back(TRY(extent.memory->descriptor(access))); return {};
            case kHandleDmaBuf:
                dmabuf = TRY(extent.memory->export_dmabuf());
                descriptors.push_back(dmabuf.get());
                return {};
            case kHandleFabric: fabric = TRY(extent.memory->export_fabric()); return {};
            default: return fail(EINVAL, "unknown handle kind {}", what.kind());
        }
    }();
    if (!exported) return reply_error(request, explain_descriptor_limit(exported.error()));
    auto& out = builder();
    auto bytes = what.kind() == kHandleFabric ? out.CreateVector(fabric.data(), fabric.size())
                                              : out.CreateVector(fabric.data(), size_t{0});
    auto body = wire::CreateExportReply(out, extent.size_bytes, (*object)->offset, bytes);
    reply(request, wire::ReplyBody::ExportReply, body.Union(), descriptors);
}

}  // namespace gshm
