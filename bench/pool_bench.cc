// Pools: pairs of allocate and deallocate compared with malloc and free (host), or with the driver's pool
// (cuMemAllocAsync).
//
//   pool_bench [--rounds N]        on host, and on $GSHM_BENCH_DEVICE or the first GPU if there is one
//
// The sides alternate in batches; the lower quartile of each counts. `mixed`: keeps 1,000 allocations of 512 bytes to 1
// MiB, and frees and reallocates them one after the other with other sizes. No byte is touched.
#include <dlfcn.h>

#include "cuda/driver.h"
#include "support.h"

namespace gshm::core::bench {
namespace {

constexpr int kBatch = 1000;

// One allocator.
struct Side {
    virtual ~Side() = default;
    virtual void* take(uint64_t bytes) = 0;
    virtual void give(void* memory, uint64_t bytes) = 0;
    virtual void settle() {}  // between batches
};

class PoolSide final : public Side {
public:
    PoolSide(gshm_client* client, const char* device, void* stream) : stream_(stream) {
        gshm_pool_options options = GSHM_POOL_OPTIONS_INIT;
        options.device = device;
        options.slab_bytes = uint64_t{256} << 20;  // the live set of `mixed` fits
        check(gshm_pool_create(client, &options, &pool_), "pool");
    }
    ~PoolSide() override { gshm_pool_destroy(pool_); }
    void* take(uint64_t bytes) override {
        void* memory = nullptr;
        check(gshm_pool_allocate(pool_, bytes, 0, stream_, &memory), "allocate");
        return memory;
    }
    void give(void* memory, uint64_t bytes) override {
        check(gshm_pool_deallocate(pool_, memory, bytes, stream_), "deallocate");
    }

private:
    void* stream_;
    gshm_pool* pool_ = nullptr;
};

class MallocSide final : public Side {
public:
    void* take(uint64_t bytes) override {
        void* memory = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
        benchmark::DoNotOptimize(memory);
        return memory;
    }
    void give(void* memory, uint64_t) override { std::free(memory); }
};

// The driver's pool, configured to keep its memory; by default it frees memory at every synchronisation.
class DriverSide final : public Side {
public:
    DriverSide(const cuda::Driver& driver, cuda::CUdevice device, cuda::CUstream stream)
        : driver_(driver), stream_(stream) {
        load(take_, "cuMemAllocAsync");
        load(give_, "cuMemFreeAsync");
        int (*pool_of)(void**, cuda::CUdevice) = nullptr;
        int (*set)(void*, int, void*) = nullptr;
        load(pool_of, "cuDeviceGetDefaultMemPool");
        load(set, "cuMemPoolSetAttribute");
        constexpr int kReleaseThreshold = 4;
        uint64_t keep = ~uint64_t{0};
        void* pool = nullptr;
        there_ = take_ != nullptr && give_ != nullptr && pool_of != nullptr && set != nullptr &&
                 pool_of(&pool, device) == cuda::kSuccess && set(pool, kReleaseThreshold, &keep) == cuda::kSuccess;
    }
    bool there() const { return there_; }
    void* take(uint64_t bytes) override {
        cuda::CUdeviceptr memory = 0;
        require("cuMemAllocAsync", take_(&memory, bytes, stream_));
        return reinterpret_cast<void*>(memory);
    }
    void give(void* memory, uint64_t) override {
        require("cuMemFreeAsync", give_(reinterpret_cast<cuda::CUdeviceptr>(memory), stream_));
    }
    void settle() override { require("cuStreamSynchronize", driver_.stream_synchronize(stream_)); }

private:
    template <typename Function>
    static void load(Function& function, const char* name) {
        static void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        function = library != nullptr ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
    }
    void require(const char* what, cuda::CUresult result) {
        if (auto good = driver_.check(what, result); !good) die(good.error().message);
    }

    const cuda::Driver& driver_;
    cuda::CUstream stream_;
    bool there_ = false;
    int (*take_)(cuda::CUdeviceptr*, size_t, cuda::CUstream) = nullptr;
    int (*give_)(cuda::CUdeviceptr, cuda::CUstream) = nullptr;
};

// Seconds per pair.
double same_size(Side& side, uint64_t bytes) {
    const Stopwatch watch;
    for (int i = 0; i < kBatch; ++i) side.give(side.take(bytes), bytes);
    const double seconds = watch.seconds();
    side.settle();
    return seconds / kBatch;
}

class Mixed {
public:
    explicit Mixed(Side& side) : side_(side) {
        for (auto& [memory, bytes] : live_) memory = side_.take(bytes = next());
    }
    ~Mixed() {
        for (auto& [memory, bytes] : live_) side_.give(memory, bytes);
    }
    double run() {
        const Stopwatch watch;
        for (auto& [memory, bytes] : live_) {
            side_.give(memory, bytes);
            memory = side_.take(bytes = next());
        }
        const double seconds = watch.seconds();
        side_.settle();
        std::shuffle(live_.begin(), live_.end(), random_);
        return seconds / kBatch;
    }

private:
    uint64_t next() { return (uint64_t{512} << random_() % 11) * (100 + random_() % 100) / 100; }

    Side& side_;
    std::mt19937 random_{5};
    std::vector<std::pair<void*, uint64_t>> live_{kBatch};
};

void print(const char* what, Samples& ours, Samples& theirs, const char* beside) {
    const double a = ours.quartile_seconds();
    const double b = theirs.quartile_seconds();
    std::printf("  %-10s %8.0f ns %11.2f million/s   %-16s %8.0f ns   %5.2f x as fast\n", what, a * 1e9, 1e-6 / a,
                beside, b * 1e9, b / a);
}

void compare(Side& ours, Side& theirs, const char* beside, int rounds) {
    for (const auto& [bytes, name] : {std::pair<uint64_t, const char*>{512, "512 B"},
                                      {uint64_t{64} << 10, "64 KiB"},
                                      {uint64_t{4} << 20, "4 MiB"}}) {
        Samples us;
        Samples them;
        for (int round = 0; round < rounds; ++round) {
            us.add(same_size(ours, bytes));
            them.add(same_size(theirs, bytes));
        }
        print(name, us, them, beside);
    }
    Samples us;
    Samples them;
    Mixed mine(ours);
    Mixed yours(theirs);
    for (int round = 0; round < rounds; ++round) {
        us.add(mine.run());
        them.add(yours.run());
    }
    print("mixed", us, them, beside);
}

void on_gpu(gshm_client* client, const gshm_device_info& device, int rounds) {
    auto loaded = cuda::Driver::get();
    if (!loaded) die(loaded.error().message);
    const cuda::Driver& driver = **loaded;
    cuda::CUdevice number = 0;
    cuda::CUcontext context = nullptr;
    cuda::CUstream stream = nullptr;
    const bool good = driver.device_get(&number, std::atoi(std::strchr(device.name, ':') + 1)) == cuda::kSuccess &&
                      driver.primary_ctx_retain(&context, number) == cuda::kSuccess &&
                      driver.ctx_push(context) == cuda::kSuccess &&
                      driver.stream_create(&stream, cuda::kStreamNonBlocking) == cuda::kSuccess;
    if (!good) die("the GPU cannot be used");
    std::printf("%s, on a stream\n", describe(device).c_str());
    PoolSide ours(client, device.name, stream);
    DriverSide theirs(driver, number, stream);
    if (!theirs.there()) {
        std::printf("  this driver has no pool of its own (cuMemAllocAsync) to be held against\n");
        return;
    }
    compare(ours, theirs, "cuMemAllocAsync", rounds);
}

int measure(int rounds) {
    const Daemon daemon;
    auto client = connect(daemon);
    {
        std::printf("host\n");
        PoolSide ours(client.get(), "host", nullptr);
        MallocSide theirs;
        compare(ours, theirs, "malloc", rounds);
    }
    const auto device = choose_device(client.get());
    if (is_cuda(device)) on_gpu(client.get(), device, rounds);
    return 0;
}

}  // namespace
}  // namespace gshm::core::bench

int main(int argc, char** argv) {
    int rounds = 200;
    if (argc == 3 && std::string_view(argv[1]) == "--rounds") rounds = std::max(std::atoi(argv[2]), 1);
    else if (argc != 1) gshm::core::bench::die("usage: pool_bench [--rounds N]");
    return gshm::core::bench::measure(rounds);
}
