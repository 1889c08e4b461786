// gshm.h: connection, daemon, devices.
#include "base/log.h"
#include "base/runtime_dir.h"
#include "client/requests.h"

using namespace gshm::core;
using namespace gshm::core::client;

namespace {

Status write_devices(const std::vector<gshm_device_info>& devices, gshm_device_info* ret_devices, size_t capacity,
                     size_t* ret_count) {
    TRY(check_argument(ret_count != nullptr, "ret_count is NULL"));
    TRY(check_argument(ret_devices != nullptr || capacity == 0, "ret_devices is NULL"));
    TRY(write_structs<gshm_device_info>(devices, ret_devices, capacity));
    *ret_count = devices.size();
    return {};
}

}  // namespace

extern "C" {

const char* gshm_version(void) noexcept {
    return GSHM_VERSION;
}

const char* gshm_last_error(void) noexcept {
    return last_error();
}

int gshm_set_log(gshm_log_function function, void* context, int level) noexcept {
    return guarded([&]() -> Status {
        if (level < GSHM_LOG_DEBUG || level > GSHM_LOG_ERROR) return fail(EINVAL, "unknown log level {}", level);
        LogFunction receiver;
        if (function != nullptr) {
            receiver = [function, context](LogLevel of, const char* message) {
                function(context, static_cast<int>(of) + GSHM_LOG_DEBUG, message);
            };
        }
        log_to_function(std::move(receiver));
        log_set_level(static_cast<LogLevel>(level - GSHM_LOG_DEBUG));
        return {};
    });
}

int gshm_connect(const gshm_connect_options* options, gshm_client** ret_client) noexcept {
    return guarded([&]() -> Status {
        TRY(check_argument(ret_client != nullptr, "ret_client is NULL"));
        const auto chosen = TRY(read_options(options));
        std::string dir = chosen.dir != nullptr ? chosen.dir : TRY(default_runtime_dir());
        auto core = TRY(Core::create(dir, std::max(chosen.timeout_ms, 0)));
        *ret_client = new gshm_client{std::move(core)};
        return {};
    });
}

void gshm_disconnect(gshm_client* client) noexcept {
    delete client;
}

int gshm_ping(gshm_client* client) noexcept {
    return with_client(client, [](Core& core) -> Status {
        TRY(core.connection().call(
            wire::RequestBody::Ping, [](auto& builder) { return wire::CreatePing(builder).Union(); }, Lost::retry));
        return {};
    });
}

int gshm_daemon(gshm_client* client, gshm_daemon_info* ret_info) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_argument(ret_info != nullptr, "ret_info is NULL"));
        auto answer = TRY(core.connection().call(
            wire::RequestBody::DaemonInfo, [](auto& builder) { return wire::CreateDaemonInfo(builder).Union(); },
            Lost::retry));
        const auto* body = GSHM_BODY(answer, DaemonInfoReply);
        gshm_daemon_info info = {};
        info.protocol = body->protocol();
        info.pid = body->pid();
        info.sessions = body->sessions();
        info.instance = body->instance();
        info.objects = body->objects();
        info.extents = body->extents();
        set_text(info.version, wire::view(body->version()));
        set_text(info.mountpoint, wire::view(body->mountpoint()));
        info.keeper = body->keeper();
        return write_struct(ret_info, info);
    });
}

int gshm_shutdown(gshm_client* client, uint32_t flags) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_flags(flags, GSHM_SHUTDOWN_KEEP, "shutdown"));
        TRY(core.connection().call(
            wire::RequestBody::Shutdown,
            [&](auto& builder) { return wire::CreateShutdown(builder, (flags & GSHM_SHUTDOWN_KEEP) != 0).Union(); },
            Lost::report));
        return {};
    });
}

int gshm_devices(gshm_client* client, gshm_device_info* ret_devices, size_t capacity, size_t* ret_count) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        auto answer = TRY(core.connection().call(
            wire::RequestBody::Devices, [](auto& builder) { return wire::CreateDevices(builder).Union(); },
            Lost::retry));
        std::vector<gshm_device_info> devices;
        for (const auto* record : *GSHM_BODY(answer, DeviceList)->devices()) {
            gshm_device_info device = {};
            device.handle_kinds = record->handle_kinds();
            set_text(device.name, wire::view(record->name()));
            set_text(device.uuid, wire::view(record->uuid()));
            set_text(device.model, wire::view(record->model()));
            set_text(device.failure, wire::view(record->failure()));
            device.failed = device.failure[0] != '\0' ? 1 : 0;
            device.capacity_bytes = record->capacity_bytes();
            device.used_bytes = record->used_bytes();
            device.object_bytes = record->object_bytes();
            device.unlinked_bytes = record->unlinked_bytes();
            device.granularity_bytes = record->granularity_bytes();
            device.compressible = record->compressible() ? 1 : 0;
            device.evictable_bytes = record->evictable_bytes();
            device.evicted_bytes = record->evicted_bytes();
            device.evicted_objects = record->evicted_objects();
            devices.push_back(device);
        }
        return write_devices(devices, ret_devices, capacity, ret_count);
    });
}

int gshm_tiers(gshm_client* client, gshm_tier_info* ret_tiers, size_t capacity, size_t* ret_count) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_argument(ret_count != nullptr, "ret_count is NULL"));
        TRY(check_argument(ret_tiers != nullptr || capacity == 0, "ret_tiers is NULL"));
        auto answer = TRY(core.connection().call(
            wire::RequestBody::Devices, [](auto& builder) { return wire::CreateDevices(builder).Union(); },
            Lost::retry));
        std::vector<gshm_tier_info> tiers;
        if (const auto* records = GSHM_BODY(answer, DeviceList)->tiers()) {
            for (const auto* record : *records) {
                gshm_tier_info tier = {};
                tier.flags = record->keep() ? GSHM_TIER_KEEP : 0;
                set_text(tier.name, wire::view(record->name()));
                tier.capacity_bytes = record->capacity_bytes();
                tier.used_bytes = record->used_bytes();
                tier.objects = record->objects();
                set_text(tier.failure, wire::view(record->failure()));
                tiers.push_back(tier);
            }
        }
        TRY(write_structs<gshm_tier_info>(tiers, ret_tiers, capacity));
        *ret_count = tiers.size();
        return {};
    });
}

int gshm_local_devices(gshm_device_info* ret_devices, size_t capacity, size_t* ret_count) noexcept {
    return guarded([&]() -> Status {
        std::vector<gshm_device_info> devices;
        for (const auto& info : LocalDevices::instance().infos()) {
            gshm_device_info device = {};
            device.handle_kinds = info.handle_kinds;
            set_text(device.name, info.name);
            set_text(device.uuid, info.uuid);
            set_text(device.model, info.model);
            device.capacity_bytes = info.capacity_bytes;
            device.granularity_bytes = info.granularity_bytes;
            device.compressible = info.compressible ? 1 : 0;
            devices.push_back(device);
        }
        return write_devices(devices, ret_devices, capacity, ret_count);
    });
}

}  // extern "C"
