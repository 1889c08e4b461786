// gshm.h: the default pools of the process, for programs that use only an allocate and a free function.
#include <cstdlib>

#include "base/log.h"
#include "base/size.h"
#include "client/api.h"
#include "client/pool/api.h"
#include "client/pool/torch_error.h"

using namespace gshm::core;
using namespace gshm::core::client;

namespace {

class ProcessPools {
public:
    // Never destroyed: tensors may outlive main(). A forked child has its own, since locks of the parent may be held
    // forever there.
    static ProcessPools& instance() {
        static std::atomic<ProcessPools*> current = nullptr;
        ProcessPools* pools = current.load(std::memory_order_acquire);
        if (pools != nullptr && pools->generation_ == fork_count()) return *pools;
        auto* made = new ProcessPools;
        if (current.compare_exchange_strong(pools, made, std::memory_order_acq_rel)) return *made;
        delete made;
        return *pools;
    }

    // The pool of a GPU, by the ordinal in this process. Created on first use.
    Result<Pool*> get(int ordinal) EXCLUDES(mutex_) {
        MutexLock lock(mutex_);
        if (auto found = pools_.find(ordinal); found != pools_.end()) return found->second->pool.get();
        return TRY(add(ordinal, nullptr))->pool.get();
    }
    // A further user of the pool.
    Result<gshm_pool*> open(int ordinal, const gshm_pool_options* options) EXCLUDES(mutex_) {
        MutexLock lock(mutex_);
        auto found = pools_.find(ordinal);
        if (found != pools_.end() && options != nullptr) {
            return fail(EBUSY, "cuda:{} has a pool of gshm_malloc() already, whose options do not change", ordinal);
        }
        gshm_pool* pool = found != pools_.end() ? found->second.get() : TRY(add(ordinal, options));
        pool->users.fetch_add(1, std::memory_order_relaxed);
        return pool;
    }
    // Null: the GPU has no pool yet.
    Pool* find(int ordinal) EXCLUDES(mutex_) {
        MutexLock lock(mutex_);
        auto found = pools_.find(ordinal);
        return found == pools_.end() ? nullptr : found->second->pool.get();
    }

private:
    ProcessPools() : generation_(fork_count()) {}

    static Result<std::shared_ptr<Core>> connect() {
        gshm_client* client = nullptr;
        if (int code = gshm_connect(nullptr, &client); code != 0) return std::unexpected(Error{-code, last_error()});
        auto core = client->core;
        gshm_disconnect(client);  // frees only the handle
        return core;
    }

    static Result<uint64_t> size_of(const char* variable) {
        const char* text = getenv(variable);
        if (text == nullptr || *text == '\0') return 0;
        auto size = parse_size(text);
        if (!size) return fail(EINVAL, "${}: {}", variable, size.error().message);
        return *size;
    }
    static Result<uint32_t> mode_of(const char* variable) {
        const char* text = getenv(variable);
        if (text == nullptr || *text == '\0') return 0600;
        char* end = nullptr;
        const unsigned long mode = strtoul(text, &end, 8);
        if (*end != '\0' || mode > 0777) return fail(EINVAL, "${}: \"{}\" is no mode such as 0640", variable, text);
        return static_cast<uint32_t>(mode);
    }

    Result<gshm_pool*> add(int ordinal, const gshm_pool_options* options) REQUIRES(mutex_) {
        if (ordinal < 0) return fail(EINVAL, "there is no device {}", ordinal);
        if (!core_) core_ = TRY(connect());
        auto pool = TRY(make(ordinal, options));
        return pools_.emplace(ordinal, std::move(pool)).first->second.get();
    }

    // GPUs are matched by UUID, since the daemon may number them differently. Without options: the environment's.
    Result<std::unique_ptr<gshm_pool>> make(int ordinal, const gshm_pool_options* given) REQUIRES(mutex_) {
        const auto uuid = TRY(LocalDevices::instance().by_name(fmt::format("cuda:{}", ordinal)))->info().uuid;
        gshm_client client{core_};
        size_t count = 0;
        std::vector<gshm_device_info> devices(64);
        devices[0].struct_size = sizeof devices[0];
        if (int code = gshm_devices(&client, devices.data(), devices.size(), &count); code != 0) {
            return std::unexpected(Error{-code, last_error()});
        }
        gshm_pool_options options = TRY(read_options(given));
        options.device = nullptr;
        for (size_t i = 0; i < count && i < devices.size(); ++i) {
            if (uuid == devices[i].uuid) options.device = devices[i].name;
        }
        if (options.device == nullptr)
            return fail(ENODEV, "gshmd does not have the GPU {} (cuda:{} here)", uuid, ordinal);
        if (options.slab_bytes == 0) options.slab_bytes = TRY(size_of("GSHM_POOL_SLAB"));
        if (options.limit_bytes == 0) options.limit_bytes = TRY(size_of("GSHM_POOL_LIMIT"));
        if (given == nullptr) options.mode = TRY(mode_of("GSHM_POOL_MODE"));
        return make_pool(core_, TRY(read_pool_options(&options)));
    }

    const uint64_t generation_;
    Mutex mutex_;  // held while a pool is created, which calls the daemon
    std::shared_ptr<Core> core_ GUARDED_BY(mutex_);
    std::map<int, std::unique_ptr<gshm_pool>> pools_ GUARDED_BY(mutex_);
};

// The log throws nothing, even if there is no memory for the message.
template <typename... Args>
void log_failure(fmt::format_string<Args...> format, Args&&... args) {
    guarded([&]() -> Status {
        log_error(format, std::forward<Args>(args)...);
        return {};
    });
}

}  // namespace

extern "C" {

void* gshm_malloc(ssize_t size, int device, void* stream) {
    void* memory = nullptr;
    const int code = guarded([&]() -> Status {
        TRY(check_argument(size >= 0, "size is negative"));
        if (size == 0) return {};
        Pool* pool = TRY(ProcessPools::instance().get(device));
        memory = TRY(pool->allocate(static_cast<uint64_t>(size), 0, stream));
        return {};
    });
    if (code == 0) return memory;
    throw_if_torch_expects_it({-code, fmt::format("no {} bytes on cuda:{}: {}", size, device, last_error())});
    log_failure("no {} bytes on cuda:{}: {}", size, device, last_error());
    return nullptr;
}

int gshm_malloc_pool(int device, const gshm_pool_options* options, gshm_pool** ret_pool) noexcept {
    return guarded([&]() -> Status {
        TRY(check_argument(ret_pool != nullptr, "ret_pool is NULL"));
        *ret_pool = TRY(ProcessPools::instance().open(device, options));
        return {};
    });
}

void gshm_free(void* memory, ssize_t size, int device, void* stream) noexcept {
    if (memory == nullptr) return;
    bool over = false;
    const int code = guarded([&]() -> Status {
        Pool* pool = ProcessPools::instance().find(device);
        if (pool == nullptr) return fail(EINVAL, "{} is not from a pool of this process", memory);
        auto freed = pool->deallocate(memory, size > 0 ? static_cast<uint64_t>(size) : 0, stream);
        over = !freed && freed.error().code == ENODEV;  // at process exit the driver may be gone already
        return freed;
    });
    if (code != 0 && !over) log_failure("cannot free {} on cuda:{}: {}", memory, device, last_error());
}

}  // extern "C"
