// Requests that mount and unmount, by root and the daemon's own user.
#include "base/limits.h"
#include "base/name.h"
#include "daemon/server.h"

namespace gshm::core {
namespace {

Result<MountRecord> to_record(const wire::Mount& mount) {
    MountRecord record{std::string(wire::view(mount.path()))};
    if (!record.path.starts_with('/') || record.path.size() > limits::kNameBytes)
        return fail(EINVAL, "\"{}\" is not an absolute path", record.path);
    record.options.read_only = mount.read_only();
    if (mount.subdirectory() != nullptr) record.options.subdirectory = wire::view(mount.subdirectory());
    if (!record.options.subdirectory.empty()) TRY(check_name(record.options.subdirectory));
    if (mount.source() != nullptr && mount.source()->size() > 0) record.options.source = wire::view(mount.source());
    if (record.options.source.size() > limits::kNamePartBytes)
        return fail(EINVAL, "a source has at most {} bytes", limits::kNamePartBytes);
    return record;
}

}  // namespace

bool Session::may_mount(uint64_t request) {
    const Credentials& who = server_.store().credentials(id_);
    if (who.is_root() || who.uid == server_.owner().uid) return true;
    reply_error(request, {EPERM, "only root and the user who runs gshmd may mount and unmount"});
    return false;
}

void Session::mount(uint64_t request, const wire::Mount& mount) {
    if (!may_mount(request)) return;
    auto record = to_record(mount);
    if (!record) return reply_error(request, record.error());
    server_.mount(std::move(*record), [request, self = weak_from_this()](Status status) {
        if (auto session = self.lock()) session->reply_status(request, status);
    });
}

void Session::unmount(uint64_t request, const wire::Unmount& unmount) {
    if (!may_mount(request)) return;
    std::string path(unmount.path() == nullptr ? std::string_view() : wire::view(unmount.path()));
    server_.unmount(std::move(path), unmount.lazily(), [request, self = weak_from_this()](Status status) {
        if (auto session = self.lock()) session->reply_status(request, status);
    });
}

void Session::list_mounts(uint64_t request) {
    auto& out = builder();
    std::vector<flatbuffers::Offset<wire::MountRecord>> records;
    for (const auto& [path, options] : server_.mounts()) {
        const auto path_text = out.CreateString(path);
        const auto subdirectory = out.CreateString(options.subdirectory);
        const auto source = out.CreateString(options.source);
        records.push_back(wire::CreateMountRecord(out, path_text, options.read_only, subdirectory, source));
    }
    auto body = wire::CreateMountList(out, out.CreateVector(records));
    reply(request, wire::ReplyBody::MountList, body.Union());
}

}  // namespace gshm::core
