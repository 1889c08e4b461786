// Pools for C++20: allocations of any size that other processes can open; conventions as in gshm.hpp, contracts in
// gshm.h.
//
//   auto pool = gshm::Pool::create(client, {.device = "cuda:0"}).value();
//   void* memory = pool.allocate(1 << 20, stream).value();
//   auto where = pool.locate(memory).value();          // another process: client.open_id(where.id), data() +
//   where.offset
//   pool.deallocate(memory, 1 << 20, stream).value();  // in stream order
//
// The resources below wrap a pool: PoolResource for cuda::mr and RMM, PoolMemoryResource for std::pmr on host.
#ifndef GSHM_POOL_HPP
#define GSHM_POOL_HPP

#include <memory_resource>
#include <new>

#include <gshm/gshm.hpp>

namespace gshm {
inline namespace v0 {

// A CUstream or cudaStream_t, or a wrapper of one: cuda::stream_ref (get()), rmm::cuda_stream_view (value()).
class Stream {
public:
    constexpr Stream(std::nullptr_t = nullptr) noexcept {}  // the legacy default stream
    template <class T>
    constexpr Stream(T* handle) noexcept : handle_(handle) {}
    template <class T>
        requires requires(const T& holder) { static_cast<void*>(holder.get()); }
    constexpr Stream(const T& holder) : handle_(holder.get()) {}
    template <class T>
        requires(
            !requires(const T& holder) { holder.get(); } &&
            requires(const T& holder) { static_cast<void*>(holder.value()); })
    constexpr Stream(const T& holder) : handle_(holder.value()) {}
    // allocate(): usable on any stream at once. deallocate(): no work uses the memory any more.
    static Stream none() noexcept { return Stream(GSHM_NO_STREAM); }

    constexpr void* get() const noexcept { return handle_; }

private:
    void* handle_ = nullptr;
};

struct PoolOptions {
    std::string device = {};   // "": the daemon's first
    uint32_t mode = 0600;      // permission bits of the slabs
    std::string name = {};     // directory for the slabs; "": a unique one
    uint64_t slab_bytes = 0;   // 0: 64 MiB
    uint64_t limit_bytes = 0;  // 0: no limit
    bool keep = false;         // slabs outlive the pool and the process
};

using Location = gshm_location;
using PoolStats = gshm_pool_stats;

// For any pool of this process.
inline Result<Location> locate(const void* memory) {
    Location location = {};
    location.struct_size = sizeof location;
    auto found = detail::call({}, [&] { return gshm_pool_locate(memory, &location); });
    if (!found) return std::move(found).error();
    return location;
}

// Several threads may use it at the same time. It may outlive its Client.
class Pool {
public:
    Pool() = default;
    static Result<Pool> create(const Client& client, const PoolOptions& options = {}) {
        gshm_pool* handle = nullptr;
        auto made = detail::call({options.device, options.name}, [&] {
            const gshm_pool_options c = {sizeof c,
                                         options.mode,
                                         options.device.empty() ? nullptr : options.device.c_str(),
                                         options.name.empty() ? nullptr : options.name.c_str(),
                                         options.slab_bytes,
                                         options.limit_bytes,
                                         options.keep ? GSHM_POOL_KEEP : 0u,
                                         0};
            return gshm_pool_create(client.get(), &c, &handle);
        });
        if (!made) return std::move(made).error();
        return Pool(handle);
    }
    static Pool adopt(gshm_pool* handle) noexcept { return Pool(handle); }  // takes ownership
    [[nodiscard]] gshm_pool* take() noexcept { return handle_.release(); }  // gives up ownership
    gshm_pool* get() const noexcept { return handle_.get(); }
    explicit operator bool() const noexcept { return handle_ != nullptr; }

    // Null for 0 bytes.
    Result<void*> allocate(uint64_t size_bytes, Stream stream = {}) const { return allocate(size_bytes, 0, stream); }
    Result<void*> allocate(uint64_t size_bytes, uint64_t alignment, Stream stream) const {
        void* memory = nullptr;
        auto done =
            detail::call({}, [&] { return gshm_pool_allocate(get(), size_bytes, alignment, stream.get(), &memory); });
        if (!done) return std::move(done).error();
        return memory;
    }
    Result<void> deallocate(void* memory, uint64_t size_bytes, Stream stream = {}) const {
        return detail::call({}, [&] { return gshm_pool_deallocate(get(), memory, size_bytes, stream.get()); });
    }
    Result<void> trim(uint64_t keep_bytes = 0) const {
        return detail::call({}, [&] { return gshm_pool_trim(get(), keep_bytes); });
    }
    // The slabs with allocations become immutable and outlive the process.
    Result<void> seal() const {
        return detail::call({}, [&] { return gshm_pool_seal(get()); });
    }
    Result<PoolStats> stats() const {
        PoolStats stats = {};
        stats.struct_size = sizeof stats;
        auto told = detail::call({}, [&] { return gshm_pool_get_stats(get(), &stats); });
        if (!told) return std::move(told).error();
        return stats;
    }
    static Result<Location> locate(const void* memory) { return v0::locate(memory); }

private:
    struct Destroy {
        void operator()(gshm_pool* pool) const noexcept { gshm_pool_destroy(pool); }
    };
    explicit Pool(gshm_pool* handle) noexcept : handle_(handle) {}

    std::unique_ptr<gshm_pool, Destroy> handle_;
};

// A pool as a resource for cuda::mr and RMM: refers to the pool, throws std::bad_alloc, and equals every other resource
// of the same pool. Memory allocated without a stream may be used on any stream; memory deallocated without one must no
// longer be in use.
class PoolResource {
public:
    explicit PoolResource(const Pool& pool) noexcept : pool_(pool.get()) {}

    void* allocate(size_t bytes, size_t alignment = kAlignment) { return take(bytes, alignment, Stream::none()); }
    void deallocate(void* memory, size_t bytes, size_t = kAlignment) noexcept { give(memory, bytes, Stream::none()); }
    void* allocate_async(size_t bytes, size_t alignment, Stream stream) { return take(bytes, alignment, stream); }
    void* allocate_async(size_t bytes, Stream stream) { return take(bytes, kAlignment, stream); }
    void deallocate_async(void* memory, size_t bytes, size_t, Stream stream) noexcept { give(memory, bytes, stream); }
    void deallocate_async(void* memory, size_t bytes, Stream stream) noexcept { give(memory, bytes, stream); }
    friend bool operator==(const PoolResource&, const PoolResource&) noexcept = default;

private:
    static constexpr size_t kAlignment = 512;

    void* take(size_t bytes, size_t alignment, Stream stream) {
        void* memory = nullptr;
        if (gshm_pool_allocate(pool_, bytes, alignment, stream.get(), &memory) != 0) throw std::bad_alloc();
        return memory;
    }
    // A failure is a bug of the caller, or the device is lost; it cannot be reported.
    void give(void* memory, size_t bytes, Stream stream) noexcept {
        [[maybe_unused]] const int code = gshm_pool_deallocate(pool_, memory, bytes, stream.get());
    }

    gshm_pool* pool_;
};

// For std::pmr containers: a pool whose memory the CPU can address, such as host memory.
class PoolMemoryResource final : public std::pmr::memory_resource {
public:
    explicit PoolMemoryResource(const Pool& pool) noexcept : pool_(pool) {}

private:
    void* do_allocate(size_t bytes, size_t alignment) override {
        return pool_.allocate(std::max<size_t>(bytes, 1), alignment);
    }
    void do_deallocate(void* memory, size_t bytes, size_t alignment) override {
        pool_.deallocate(memory, std::max<size_t>(bytes, 1), alignment);
    }
    bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
        const auto* same = dynamic_cast<const PoolMemoryResource*>(&other);
        return same != nullptr && same->pool_ == pool_;
    }

    PoolResource pool_;
};

}  // namespace v0
}  // namespace gshm

#endif
