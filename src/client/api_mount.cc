// gshm.h: mounts.
#include "client/requests.h"
#include "wire/protocol_range.h"

using namespace gshm::core;
using namespace gshm::core::client;

namespace {

Status unmount(Core& core, const char* path, uint32_t flags) {
    TRY(check_flags(flags, GSHM_UNMOUNT_LAZY, "unmount"));
    TRY(core.connection().call(
        wire::RequestBody::Unmount,
        [&](auto& builder) {
            const auto text = path == nullptr ? flatbuffers::Offset<flatbuffers::String>() : builder.CreateString(path);
            return wire::CreateUnmount(builder, (flags & GSHM_UNMOUNT_LAZY) != 0, text).Union();
        },
        Lost::report));
    return {};
}

}  // namespace

extern "C" {

int gshm_unmount(gshm_client* client, uint32_t flags) noexcept {
    return with_client(client, [&](Core& core) { return unmount(core, nullptr, flags); });
}

int gshm_unmount_at(gshm_client* client, const char* path, uint32_t flags) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_argument(path != nullptr && *path != '\0', "path is NULL or empty"));
        // An older gshmd would ignore the path, and end its mount wherever it is.
        TRY(wire::check_request(wire::RequestBody::Mount, core.connection().protocol()));
        return unmount(core, path, flags);
    });
}

int gshm_mount(gshm_client* client, const char* path, const gshm_mount_options* options) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_argument(path != nullptr && *path == '/', "path is not an absolute path"));
        const auto asked = TRY(read_options(options));
        TRY(check_flags(asked.flags, GSHM_MOUNT_READ_ONLY, "mount"));
        TRY(core.connection().call(
            wire::RequestBody::Mount,
            [&](auto& builder) {
                const auto path_text = builder.CreateString(path);
                const auto subdirectory = builder.CreateString(asked.subdirectory == nullptr ? "" : asked.subdirectory);
                const auto source = builder.CreateString(asked.source == nullptr ? "" : asked.source);
                const bool read_only = (asked.flags & GSHM_MOUNT_READ_ONLY) != 0;
                return wire::CreateMount(builder, path_text, read_only, subdirectory, source).Union();
            },
            Lost::report));
        return {};
    });
}

int gshm_mounts(gshm_client* client, gshm_mount_info* ret_mounts, size_t capacity, size_t* ret_count) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_argument(ret_count != nullptr, "ret_count is NULL"));
        TRY(check_argument(ret_mounts != nullptr || capacity == 0, "ret_mounts is NULL"));
        auto answer = TRY(core.connection().call(
            wire::RequestBody::Mounts, [](auto& builder) { return wire::CreateMounts(builder).Union(); }, Lost::retry));
        std::vector<gshm_mount_info> mounts;
        for (const auto* record : *GSHM_BODY(answer, MountList)->mounts()) {
            gshm_mount_info mount = {};
            mount.flags = record->read_only() ? GSHM_MOUNT_READ_ONLY : 0;
            set_text(mount.path, wire::view(record->path()));
            set_text(mount.subdirectory, wire::view(record->subdirectory()));
            set_text(mount.source, wire::view(record->source()));
            mounts.push_back(mount);
        }
        TRY(write_structs<gshm_mount_info>(mounts, ret_mounts, capacity));
        *ret_count = mounts.size();
        return {};
    });
}

}  // extern "C"
