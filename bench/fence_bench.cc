// The cost of a fence when one process hands data over to another.
//
//   fence_bench [--rounds N]        on $GSHM_BENCH_DEVICE, else the first GPU, else host
//
// On a GPU: one process launches an empty kernel and reports it in shared memory; the other launches one and waits for
// it. Compared with the same without synchronisation, which would be incorrect, and with a writer that waits for its
// kernel. On host: a byte in each direction, compared with the same over two pipes. Lower quartiles, in alternating
// batches of 100.
#include <atomic>
#include <dlfcn.h>
#include <sys/mman.h>

#include "bare_gpu.h"

namespace gshm::core::bench {
namespace {

constexpr int kTurn = 100;

enum class Way : uint32_t { nothing, fence, synchronize, pipes, end };

// Shared by the two processes, which spin on it.
struct Board {
    std::atomic<uint64_t> turn;  // Way << 32 | number
    std::atomic<uint64_t> given;
    std::atomic<uint64_t> taken;
};

class Gpu : public BareGpu {
public:
    explicit Gpu(const std::string& device) : BareGpu(device) {
        void* library = dlopen("libcuda.so.1", RTLD_NOW);
        auto load = reinterpret_cast<cuda::CUresult (*)(void**, const void*)>(dlsym(library, "cuModuleLoadData"));
        auto find =
            reinterpret_cast<cuda::CUresult (*)(void**, void*, const char*)>(dlsym(library, "cuModuleGetFunction"));
        launch_ = reinterpret_cast<Launch*>(dlsym(library, "cuLaunchKernel"));
        void* module = nullptr;
        require("cuModuleLoadData",
                load(&module, ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry empty() { ret; }\n"));
        require("cuModuleGetFunction", find(&kernel_, module, "empty"));
    }
    void launch() { require("cuLaunchKernel", launch_(kernel_, 1, 1, 1, 1, 1, 1, 0, stream(), nullptr, nullptr)); }

private:
    using Launch = cuda::CUresult(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                  cuda::CUstream, void**, void**);
    Launch* launch_ = nullptr;
    void* kernel_ = nullptr;
};

struct FenceCloser {
    void operator()(gshm_fence* fence) const { gshm_fence_close(fence); }
};
using Fence = std::unique_ptr<gshm_fence, FenceCloser>;

// One end: publishes in one object and waits for the other.
struct End {
    End(const std::string& dir, const char* mine, const char* theirs, const std::string& device)
        : client(connect_to(dir)),
          out(open(mine, GSHM_WRITE)),
          in(open(theirs, 0)),
          publishes(fence(out.get(), GSHM_WRITE)),
          awaits(fence(in.get(), 0)) {
        if (device.starts_with("cuda")) gpu = std::make_unique<Gpu>(device);
    }
    static Client connect_to(const std::string& dir) {
        const gshm_connect_options options = {sizeof options, 5000, dir.c_str()};
        gshm_client* made = nullptr;
        check(gshm_connect(&options, &made), "connect");
        return Client(made);
    }
    Object open(const char* name, uint32_t flags) {
        gshm_object* made = nullptr;
        check(gshm_open(client.get(), name, flags, &made), name);
        return Object(made);
    }
    static Fence fence(gshm_object* object, uint32_t flags) {
        gshm_fence* made = nullptr;
        check(gshm_fence_open(object, flags, &made), "fence");
        return Fence(made);
    }
    void* stream() { return gpu ? gpu->stream() : nullptr; }

    Client client;
    Object out, in;
    Fence publishes, awaits;
    std::unique_ptr<Gpu> gpu;
};

void spin_until(const std::atomic<uint64_t>& word, uint64_t value) {
    while (word.load(std::memory_order_acquire) < value) {}
}

// The other process: does its part of each turn until told to end.
[[noreturn]] void answer(Board& board, const std::string& dir, const std::string& device, int in, int out) {
    End end(dir, "back", "there", device);
    uint64_t generation = 0;
    uint64_t turns = 0;
    for (;;) {
        board.taken.fetch_add(1);
        uint64_t turn = 0;
        while ((turn = board.turn.load()) == turns) {
            if (getppid() == 1) _exit(1);
        }
        turns = turn;
        const Way way = static_cast<Way>(turn >> 32);
        if (way == Way::end) _exit(0);
        const uint64_t base = board.given.load();
        board.taken.fetch_add(1);
        for (uint64_t i = 1; i <= kTurn; ++i) {
            if (end.gpu) {
                spin_until(board.given, base + i);
                if (way == Way::fence)
                    check(gshm_fence_wait(end.awaits.get(), end.stream(), ++generation, -1, nullptr), "wait");
                end.gpu->launch();
                end.gpu->synchronize();
                board.taken.fetch_add(1);
            } else if (way == Way::fence) {
                check(gshm_fence_wait(end.awaits.get(), nullptr, ++generation, -1, nullptr), "wait");
                check(gshm_fence_publish(end.publishes.get(), nullptr, nullptr), "publish");
            } else {
                char byte = 0;
                check_errno(read(in, &byte, 1) == 1 && write(out, &byte, 1) == 1, "pipe");
            }
        }
    }
}

class Measured {
public:
    Measured(Board& board, End& end, int in, int out) : board_(board), end_(end), in_(in), out_(out) {}

    void turn(Way way, Samples& samples) {
        uint64_t taken = ++rounds_;
        spin_until(board_.taken, taken);
        board_.turn = static_cast<uint64_t>(way) << 32 | ++turns_;
        spin_until(board_.taken, taken = ++rounds_);
        for (int i = 0; i < kTurn; ++i) {
            if (end_.gpu) std::this_thread::sleep_for(std::chrono::microseconds(50));
            Stopwatch watch;
            if (end_.gpu) {
                end_.gpu->launch();
                if (way == Way::synchronize) end_.gpu->synchronize();
                if (way == Way::fence)
                    check(gshm_fence_publish(end_.publishes.get(), end_.stream(), nullptr), "publish");
                board_.given.fetch_add(1);
                spin_until(board_.taken, ++rounds_);
            } else if (way == Way::fence) {
                check(gshm_fence_publish(end_.publishes.get(), nullptr, nullptr), "publish");
                check(gshm_fence_wait(end_.awaits.get(), nullptr, ++generation_, -1, nullptr), "wait");
            } else {
                char byte = 0;
                check_errno(write(out_, &byte, 1) == 1 && read(in_, &byte, 1) == 1, "pipe");
            }
            samples.add(watch.seconds());
        }
    }
    void end() {
        spin_until(board_.taken, ++rounds_);
        board_.turn = static_cast<uint64_t>(Way::end) << 32 | ++turns_;
    }

private:
    Board& board_;
    End& end_;
    int in_, out_;
    uint64_t rounds_ = 0;
    uint64_t turns_ = 0;
    uint64_t generation_ = 0;
};

int measure(int rounds) {
    const Daemon daemon;
    std::string name, description;
    {
        auto client = connect(daemon);
        const auto device = choose_device(client.get());
        name = device.name;
        description = describe(device);
        for (const char* object : {"there", "back"}) {
            auto wanted = spec(object, 4096, device.name);
            wanted.flags = GSHM_KEEP | GSHM_NO_MAP;  // CUDA must not start before the fork
            gshm_object* made = nullptr;
            check(gshm_create(client.get(), &wanted, &made), object);
            gshm_close(made);
        }
    }
    auto* board = static_cast<Board*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    check_errno(board != MAP_FAILED, "mmap");
    int there[2], back[2];
    check_errno(pipe(there) == 0 && pipe(back) == 0, "pipe");
    const pid_t other = fork();
    check_errno(other >= 0, "fork");
    if (other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        answer(*board, daemon.dir(), name, there[0], back[1]);
    }
    End end(daemon.dir(), "there", "back", name);
    Measured measured(*board, end, back[0], there[1]);
    Samples nothing, fenced, synchronized, piped;
    for (int done = 0; done < rounds; done += kTurn) {
        if (end.gpu) measured.turn(Way::nothing, nothing);
        measured.turn(Way::fence, fenced);
        if (end.gpu) measured.turn(Way::synchronize, synchronized);
        else measured.turn(Way::pipes, piped);
    }
    measured.end();
    waitpid(other, nullptr, 0);
    std::printf("%s\n", description.c_str());
    const double ours = fenced.quartile_seconds() * 1e6;
    if (end.gpu) {
        const double floor = nothing.quartile_seconds() * 1e6;
        std::printf("an empty kernel here, then one in another process\n");
        std::printf("  nothing in between (wrong)   %8.1f us\n", floor);
        std::printf("  publish and wait             %8.1f us   %+.1f us, at most +20: %s\n", ours, ours - floor,
                    ours - floor <= 20 ? "yes" : "NO");
        std::printf("  the writer waits for it      %8.1f us\n", synchronized.quartile_seconds() * 1e6);
    } else {
        const double pipes = piped.quartile_seconds() * 1e6;
        std::printf("there and back: fences %.1f us, two pipes %.1f us: %.2f x\n", ours, pipes, ours / pipes);
    }
    return 0;
}

}  // namespace
}  // namespace gshm::core::bench

int main(int argc, char** argv) {
    int rounds = 2000;
    if (argc == 3 && std::string(argv[1]) == "--rounds") rounds = std::max(std::atoi(argv[2]), 100);
    else if (argc != 1) gshm::core::bench::die("usage: fence_bench [--rounds N]");
    return gshm::core::bench::measure(rounds);
}
