// Opening: one large object compared with bare driver calls, a further small one compared with a bare socket ping-pong,
// and thousands at once.
//
// Only the path to a usable pointer is timed, not its release, on both sides of a comparison.
#include <csignal>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "cuda/driver.h"
#include "support.h"

namespace gshm::core::bench {
namespace {

constexpr uint64_t kLargeBytes = uint64_t{256} << 20;
constexpr uint64_t kSmallBytes = uint64_t{64} << 10;
constexpr size_t kBatch = 3000;

// ---- 256 MiB -------------------------------------------------------------------------------------------------------

void open_large(benchmark::State& state, Samples& samples, gshm_client* client, const char* name, uint32_t flags) {
    for (auto _ : state) {
        Stopwatch watch;
        gshm_object* object = nullptr;
        check(gshm_open(client, name, flags, &object), name);
        benchmark::DoNotOptimize(gshm_data(object));
        samples.add(state, watch.seconds());
        gshm_close(object);
        check(gshm_ping(client), "ping");  // the close has been processed
    }
}

// The lower bound: what any program that has the descriptor must do.
class BareGpu {
public:
    explicit BareGpu(const std::string& device) {
        auto driver = cuda::Driver::get();
        if (!driver) die(driver.error().message);
        driver_ = *driver;
        require("cuDeviceGet", driver_->device_get(&device_, std::stoi(device.substr(device.find(':') + 1))));
        require("cuDevicePrimaryCtxRetain", driver_->primary_ctx_retain(&context_, device_));
        require("cuCtxPushCurrent", driver_->ctx_push(context_));
    }
    BareGpu(const BareGpu&) = delete;
    BareGpu& operator=(const BareGpu&) = delete;
    ~BareGpu() {
        driver_->ctx_pop(&context_);
        driver_->primary_ctx_release(device_);
    }

    void open(int fd, uint64_t bytes) {
        auto* shareable = reinterpret_cast<void*>(static_cast<intptr_t>(fd));
        require("import", driver_->mem_import(&handle_, shareable, cuda::kMemHandleTypePosixFd));
        require("reserve", driver_->mem_address_reserve(&pointer_, bytes, 0, 0, 0));
        require("map", driver_->mem_map(pointer_, bytes, 0, handle_, 0));
        const cuda::CUmemAccessDesc access = {{cuda::kMemLocationTypeDevice, device_}, cuda::kMemAccessProtReadWrite};
        require("access", driver_->mem_set_access(pointer_, bytes, &access, 1));
    }
    void close(uint64_t bytes) {
        require("unmap", driver_->mem_unmap(pointer_, bytes));
        require("free", driver_->mem_address_free(pointer_, bytes));
        require("release", driver_->mem_release(handle_));
    }

private:
    void require(const char* call, cuda::CUresult result) {
        if (auto status = driver_->check(call, result); !status) die(status.error().message);
    }

    const cuda::Driver* driver_ = nullptr;
    cuda::CUdevice device_ = 0;
    cuda::CUcontext context_ = nullptr;
    cuda::CUmemGenericAllocationHandle handle_ = 0;
    cuda::CUdeviceptr pointer_ = 0;
};

void bare_large_gpu(benchmark::State& state, Samples& samples, const std::string& device, int fd, uint64_t bytes) {
    BareGpu gpu(device);
    for (auto _ : state) {
        Stopwatch watch;
        gpu.open(fd, bytes);
        samples.add(state, watch.seconds());
        gpu.close(bytes);
    }
}

void bare_large_host(benchmark::State& state, Samples& samples, int fd, uint64_t bytes) {
    for (auto _ : state) {
        Stopwatch watch;
        void* memory = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
        check_errno(memory != MAP_FAILED, "mmap");
        samples.add(state, watch.seconds());
        ::munmap(memory, bytes);
    }
}

// ---- One more object of a mapped extent ----------------------------------------------------------------------------

void open_further(benchmark::State& state, Samples& samples, gshm_client* client, const char* name) {
    for (auto _ : state) {
        Stopwatch watch;
        gshm_object* object = nullptr;
        check(gshm_open(client, name, 0, &object), name);
        benchmark::DoNotOptimize(gshm_data(object));
        samples.add(state, watch.seconds());
        gshm_close(object);
        check(gshm_ping(client), "ping");
    }
}

void open_and_close_further(benchmark::State& state, Samples& samples, gshm_client* client, const char* name) {
    for (auto _ : state) {
        Stopwatch watch;
        gshm_object* object = nullptr;
        check(gshm_open(client, name, 0, &object), name);
        benchmark::DoNotOptimize(gshm_data(object));
        gshm_close(object);
        samples.add(state, watch.seconds());
    }
}

// A process that answers 64 bytes with 128. Made before this process has threads or CUDA.
class PingPong {
public:
    PingPong() {
        int ends[2];
        check_errno(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
        const pid_t parent = ::getpid();
        pid_ = ::fork();
        check_errno(pid_ >= 0, "fork");
        if (pid_ == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (::getppid() != parent) ::_exit(1);
            ::close(ends[0]);
            char message[128] = {};
            while (::recv(ends[1], message, 64, 0) == 64) {
                if (::send(ends[1], message, sizeof message, MSG_NOSIGNAL) != sizeof message) break;
            }
            ::_exit(0);
        }
        ::close(ends[1]);
        socket_ = UniqueFd::adopt(ends[0]);
    }
    PingPong(const PingPong&) = delete;
    PingPong& operator=(const PingPong&) = delete;
    ~PingPong() {
        socket_.reset();
        ::waitpid(pid_, nullptr, 0);
    }
    void once() const {
        char message[128] = {};
        check_errno(::send(socket_.get(), message, 64, MSG_NOSIGNAL) == 64, "send");
        check_errno(::recv(socket_.get(), message, sizeof message, 0) == sizeof message, "recv");
    }

private:
    pid_t pid_ = -1;
    UniqueFd socket_;
};

void ping_pong(benchmark::State& state, Samples& samples, const PingPong& partner) {
    for (auto _ : state) {
        Stopwatch watch;  // timed like its counterpart
        partner.once();
        samples.add(state, watch.seconds());
        partner.once();
    }
}

// ---- Thousands -----------------------------------------------------------------------------------------------------

// Each time in a daemon without a slab for such objects but with CUDA started: it has created another object, whose
// mode and slab differ.
void batch_create(benchmark::State& state, Samples& samples, const std::string& device) {
    const Names names("batch/create/", kBatch);
    const auto wanted = specs(names, kSmallBytes, device.c_str());
    for (auto _ : state) {
        const Daemon daemon({device});
        const auto client = connect(daemon);
        auto first = spec("batch/first", kSmallBytes, device.c_str());
        first.mode = 0640;
        gshm_object* warm = nullptr;
        check(gshm_create(client.get(), &first, &warm), "create");
        check(gshm_fill(warm, 0, kSmallBytes, 1), "fill");
        Objects objects(kBatch);
        Stopwatch watch;
        objects.create(client.get(), wanted);
        samples.add(state, watch.seconds());
        objects.close();
        gshm_close(warm);
    }
}

void batch_open(benchmark::State& state, Samples& samples, const Daemon& daemon, const Names& names) {
    for (auto _ : state) {
        const auto client = connect(daemon);
        Objects objects(names.size());
        Stopwatch watch;
        objects.open(client.get(), names.data());
        samples.add(state, watch.seconds());
        objects.close();
        check(gshm_ping(client.get()), "ping");
    }
}

// ---- All of it -----------------------------------------------------------------------------------------------------

void run_all(int argc, char** argv) {
    const PingPong partner;
    const Daemon daemon;
    const auto client = connect(daemon);
    const auto device = choose_device(client.get());
    const std::string where = device.name;

    gshm_object* made = nullptr;
    auto large_spec = spec("open/large", kLargeBytes, device.name, GSHM_KEEP);
    check(gshm_create(client.get(), &large_spec, &made), "create of 256 MiB");
    gshm_handle_info handle = {};
    handle.struct_size = sizeof handle;
    int descriptor = -1;
    check(gshm_export_fd(made, &descriptor, &handle), "export");
    const auto large_fd = UniqueFd::adopt(descriptor);
    gshm_close(made);

    const Names two("open/small/", 2);
    populate(client.get(), two, kSmallBytes, device.name);
    if (stat(client.get(), two[0]).extent != stat(client.get(), two[1]).extent) die("two small objects, two extents");
    const auto held = open(client.get(), two[0]);

    const Names many("batch/open/", kBatch);
    populate(client.get(), many, kSmallBytes, device.name);

    const std::string label = describe(device);
    auto add = [&](const char* name, benchmark::TimeUnit unit, auto body) {
        const double in_unit = unit == benchmark::kMillisecond ? 1e3 : 1e6;
        return benchmark::RegisterBenchmark(name,
                                            [body, label, in_unit](benchmark::State& state) {
                                                Samples samples;
                                                body(state, samples);
                                                state.counters["quartile"] = samples.quartile_seconds() * in_unit;
                                                state.SetLabel(label);
                                            })
            ->Unit(unit)
            ->UseManualTime();
    };
    bench::run(argc, argv, [&] {
        const auto us = benchmark::kMicrosecond;
        const auto ms = benchmark::kMillisecond;
        add("large/open", us,
            [&](auto& state, auto& samples) { open_large(state, samples, client.get(), "open/large", 0); });
        add("large/open_write", us,
            [&](auto& state, auto& samples) { open_large(state, samples, client.get(), "open/large", GSHM_WRITE); });
        add("large/bare", us, [&](auto& state, auto& samples) {
            if (is_cuda(device)) bare_large_gpu(state, samples, where, large_fd.get(), handle.extent_bytes);
            else bare_large_host(state, samples, large_fd.get(), handle.extent_bytes);
        });
        add("further/open", us,
            [&](auto& state, auto& samples) { open_further(state, samples, client.get(), two[1]); });
        add("further/ping_pong", us, [&](auto& state, auto& samples) { ping_pong(state, samples, partner); });
        add("further/open_close", us,
            [&](auto& state, auto& samples) { open_and_close_further(state, samples, client.get(), two[1]); });
        add("batch/create", ms, [&](auto& state, auto& samples) {
            batch_create(state, samples, where);
        })->Iterations(2);
        add("batch/open", ms, [&](auto& state, auto& samples) { batch_open(state, samples, daemon, many); });
    });
}

}  // namespace
}  // namespace gshm::core::bench

int main(int argc, char** argv) {
    gshm::core::bench::run_all(argc, argv);
    return 0;
}
