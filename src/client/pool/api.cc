// gshm.h: pools. Slabs are objects with their own extents, which the daemon frees when the session ends.
#include "client/pool/api.h"

#include <random>
#include <unistd.h>

#include "base/log.h"
#include "base/size.h"
#include "client/api.h"
#include "client/pool/registry.h"

using namespace gshm::core;
using namespace gshm::core::client;

namespace {

constexpr uint64_t kSlabBytes = uint64_t{64} << 20;
constexpr int kNamesTried = 1000;

// The error of a call of this library, from this thread.
std::unexpected<Error> last_failure(int code) {
    return std::unexpected(Error{-code, last_error()});
}

template <typename Body>
auto without_exceptions(Body&& body) -> decltype(body()) {
    try {
        return body();
    } catch (const std::bad_alloc&) {
        return std::unexpected(Error{ENOMEM, "out of memory"});
    }
}

Status check_use(const gshm_pool* pool) {
    TRY(check_argument(pool != nullptr, "pool is NULL"));
    return check_fork_count(pool->generation);
}

template <typename Body>
int with_pool(gshm_pool* pool, Body&& body) {
    return guarded([&]() -> Status {
        TRY(check_use(pool));
        return body(*pool->pool);
    });
}

// A random name that other processes do not choose.
std::string unused_folder() {
    std::random_device random;
    return fmt::format("pool-{}-{:08x}", getpid(), random());
}

Result<gshm_device_info> find_device(gshm_client& client, const char* name) {
    gshm_device_info first = {};
    first.struct_size = sizeof first;
    size_t count = 0;
    if (int code = gshm_devices(&client, &first, 1, &count); code != 0) return last_failure(code);
    std::vector<gshm_device_info> devices(count);
    if (count == 0) return fail(ENODEV, "gshmd has no device");
    devices[0].struct_size = sizeof first;
    if (int code = gshm_devices(&client, devices.data(), count, &count); code != 0) return last_failure(code);
    std::string names;
    for (const auto& device : devices) {
        if (name == nullptr || std::string_view(name) == device.name) return device;
        names += (names.empty() ? "" : ", ") + std::string(device.name);
    }
    return fail(ENODEV, "there is no device \"{}\"; gshmd has: {}", name, names);
}

}  // namespace

Result<uint64_t> gshm_pool::make(uint64_t bytes) {
    return without_exceptions([&]() -> Result<uint64_t> {
        gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
        spec.mode = mode;
        spec.size_bytes = bytes;
        spec.device = device.c_str();
        spec.flags = GSHM_DEDICATED | (keep ? GSHM_KEEP : 0);
        for (int tried = 0;; ++tried) {
            const std::string name = fmt::format("{}{}", prefix, next_name++);
            spec.name = name.c_str();
            gshm_object* object = nullptr;
            const int code = gshm_create(&client, &spec, &object);
            if (code == 0) {
                const auto address = reinterpret_cast<uint64_t>(gshm_data(object));
                PoolRegistry::instance().add(address,
                                             {pool.get(), client.core, object->key.epoch, object->id, bytes, device});
                MutexLock lock(mutex);
                slabs[address] = {object, name, false};
                return address;
            }
            if (tried >= kNamesTried || (code != -EEXIST && code != -ECONNRESET)) return last_failure(code);
            // gshmd may have created the object before it died. It has no user, so it is removed.
            if (code == -ECONNRESET) gshm_unlink(&client, name.c_str());
        }
    });
}

Status gshm_pool::give_back(uint64_t address) {
    return without_exceptions([&]() -> Status {
        MutexLock one(sealing);
        Slab slab;
        {
            MutexLock lock(mutex);
            slab = slabs.at(address);
        }
        const bool stays = slab.sealed || (keep && closing);
        int code = stays ? 0 : gshm_unlink(&client, slab.name.c_str());
        if (code == -ECONNRESET) code = gshm_unlink(&client, slab.name.c_str());
        // ENOENT: gshmd was replaced, or the slab was removed.
        if (code != 0 && code != -ENOENT && !closing) return last_failure(code);
        PoolRegistry::instance().remove(address);
        {
            MutexLock lock(mutex);
            slabs.erase(address);
        }
        gshm_close(slab.object);
        return {};
    });
}

void gshm_pool::drop_user() {
    if (users.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    if (keep) (void)pool->trim(0);  // a slab without allocations has nothing to keep
    closing = true;
    pool.reset();
    delete this;
}

Status gshm_pool::seal() {
    MutexLock one(sealing);
    for (const uint64_t address : pool->retire()) {
        Slab slab;
        {
            MutexLock lock(mutex);
            slab = slabs.at(address);
        }
        if (slab.sealed) continue;
        if (const int code = gshm_seal(slab.object); code != 0) return last_failure(code);
        MutexLock lock(mutex);
        slabs.at(address).sealed = true;
    }
    return {};
}

namespace gshm::core::client {

Result<gshm_pool_options> read_pool_options(const gshm_pool_options* options) {
    auto chosen = TRY(read_options(options));
    if (chosen.mode == 0) chosen.mode = 0600;
    if ((chosen.mode & ~0777u) != 0) return fail(EINVAL, "mode {:o} has bits besides the permissions", chosen.mode);
    if ((chosen.mode & 0600) != 0600) {
        return fail(EINVAL, "mode {:o}: the owner must be able to read and write a pool's memory", chosen.mode);
    }
    if (chosen.slab_bytes == 0) chosen.slab_bytes = kSlabBytes;
    TRY(check_argument(chosen.slab_bytes <= uint64_t{1} << 40, "slabs of more than 1 TiB"));
    if (chosen.name != nullptr) TRY(check_name_argument(chosen.name));
    TRY(check_argument((chosen.flags & ~uint32_t{GSHM_POOL_KEEP}) == 0, "a flag that pools do not know"));
    TRY(check_argument(chosen.reserved == 0, "reserved is not 0"));
    return chosen;
}

Result<std::unique_ptr<gshm_pool>> make_pool(const std::shared_ptr<Core>& core, const gshm_pool_options& options) {
    auto made = std::make_unique<gshm_pool>();
    made->client.core = core;
    const auto info = TRY(find_device(made->client, options.device));
    Device* local = TRY(LocalDevices::instance().by_uuid(info.uuid, info.name));
    made->device = info.name;
    // Slab names are unique even in a folder shared by several pools, since a slab is removed by its name.
    const std::string own = unused_folder();
    made->prefix = options.name != nullptr ? fmt::format("{}/{}-", options.name, own) : own + "/";
    made->mode = options.mode;
    made->keep = (options.flags & GSHM_POOL_KEEP) != 0;
    const uint64_t unit = std::max(info.granularity_bytes, Pool::kAlignment);
    const Pool::Options chosen = {unit, round_up(options.slab_bytes, unit), options.limit_bytes};
    made->pool = std::make_unique<Pool>(chosen, *made, TRY(local->make_streams()));
    return made;
}

}  // namespace gshm::core::client

extern "C" {

int gshm_pool_create(gshm_client* client, const gshm_pool_options* options, gshm_pool** ret_pool) noexcept {
    return with_client(client, [&](Core&) -> Status {
        TRY(check_argument(ret_pool != nullptr, "ret_pool is NULL"));
        const auto chosen = TRY(read_pool_options(options));
        *ret_pool = TRY(make_pool(client->core, chosen)).release();
        return {};
    });
}

void gshm_pool_destroy(gshm_pool* pool) noexcept {
    // A forked child keeps the pool, since another thread may have been using it at the fork.
    if (pool == nullptr || pool->generation != fork_count()) return;
    guarded([&]() -> Status {
        pool->drop_user();
        return {};
    });
}

int gshm_pool_allocate(gshm_pool* pool, uint64_t size_bytes, uint64_t alignment, void* stream,
                       void** ret_memory) noexcept {
    return with_pool(pool, [&](Pool& of) -> Status {
        TRY(check_argument(ret_memory != nullptr, "ret_memory is NULL"));
        *ret_memory = TRY(of.allocate(size_bytes, alignment, stream));
        return {};
    });
}

int gshm_pool_allocate_object(gshm_pool* pool, uint64_t size_bytes, uint64_t alignment, void* stream,
                              gshm_object** ret_object) noexcept {
    return with_pool(pool, [&](Pool& of) -> Status {
        TRY(check_argument(ret_object != nullptr, "ret_object is NULL"));
        TRY(check_argument(size_bytes > 0, "memory must have at least one byte"));
        void* memory = TRY(of.allocate(size_bytes, alignment, stream));
        auto free_memory = [pool, memory, size_bytes, stream] {
            if (auto freed = pool->pool->deallocate(memory, size_bytes, stream); !freed) {
                log_error("memory of a pool stays allocated: {}", freed.error().message);
            }
        };
        gshm_object* object = nullptr;
        if (const int code = gshm_wrap(memory, size_bytes, &object); code != 0) {
            auto failure = last_failure(code);
            free_memory();
            return failure;
        }
        std::unique_ptr<gshm_object, decltype(&gshm_close)> made(object, gshm_close);
        made->own->on_release([pool, free_memory] {
            free_memory();
            pool->drop_user();
        });
        pool->users.fetch_add(1, std::memory_order_relaxed);
        *ret_object = made.release();
        return {};
    });
}

int gshm_pool_deallocate(gshm_pool* pool, void* memory, uint64_t size_bytes, void* stream) noexcept {
    return with_pool(pool, [&](Pool& of) { return of.deallocate(memory, size_bytes, stream); });
}

int gshm_pool_trim(gshm_pool* pool, uint64_t keep_bytes) noexcept {
    return with_pool(pool, [&](Pool& of) { return of.trim(keep_bytes); });
}

int gshm_pool_seal(gshm_pool* pool) noexcept {
    return with_pool(pool, [&](Pool&) { return pool->seal(); });
}

int gshm_pool_get_stats(gshm_pool* pool, gshm_pool_stats* ret_stats) noexcept {
    return with_pool(pool, [&](Pool& of) -> Status {
        TRY(check_argument(ret_stats != nullptr, "ret_stats is NULL"));
        const auto stats = of.stats();
        gshm_pool_stats copy = {};
        copy.slabs = static_cast<uint32_t>(stats.slabs);
        copy.reserved_bytes = stats.reserved_bytes;
        copy.used_bytes = stats.used_bytes;
        copy.peak_used_bytes = stats.peak_used_bytes;
        copy.allocations = stats.allocations;
        copy.stream_waits = stats.waits;
        return write_struct(ret_stats, copy);
    });
}

int gshm_pool_locate(const void* memory, gshm_location* ret_location) noexcept {
    return guarded([&]() -> Status {
        TRY(check_argument(ret_location != nullptr, "ret_location is NULL"));
        return write_struct(ret_location, TRY(PoolRegistry::instance().locate(memory)));
    });
}

}  // extern "C"
