// Hand-over of vineyard buffers between processes:
//
//   vineyard_bench [--rounds N] [--device NAME]
//
// One process creates a buffer and passes its id through shared memory. The other gets the buffer and copies its first
// 4 KiB out (by the driver, to pinned memory; on host by memcpy). The time is measured from before the first call of
// the creator to after the reader's copy. The lower bound is measured alternately: a ping of gshmd by each process, the
// same shared memory, and the same copy from memory that is already mapped. Lower quartiles of N rounds.
//
// Small buffers share slabs. "In company": both processes hold another buffer of the same slab, as programs with many
// buffers do. "Alone": both map the slab each time.
#include <atomic>
#include <ctime>
#include <sys/mman.h>
#include <vineyard.h>

#include "bare_gpu.h"

namespace gshm::core::bench {
namespace {

constexpr size_t kRead = 4096;
constexpr uint64_t kKiB = uint64_t{1} << 10;
constexpr uint64_t kLargestShared = kKiB * kKiB;  // larger buffers have extents of their own

double now_seconds() {
    timespec now = {};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void check_status(const vineyard::Status& status, const char* what) {
    if (!status.ok()) die(std::string(what) + ": " + status.ToString());
}

// Whose turn it is. The waiting process spins, so that wake-up times are not measured.
struct Shared {
    std::atomic<uint64_t> turn;  // even: the creator's
    vineyard::ObjectID id;       // 0: a round of the lower bound
    bool keep;                   // the reader keeps it until the end
    double read_at;

    // is_gone tells whether the other process has ended.
    template <typename IsGone>
    void wait_for(uint64_t number, IsGone is_gone) const {
        for (uint64_t looks = 1; turn.load(std::memory_order_acquire) != number; ++looks) {
            if (!many_cores()) sched_yield();
            if (looks % 100'000 == 0 && is_gone()) die("the other process has ended");
        }
    }
    void pass_on(uint64_t number) { turn.store(number, std::memory_order_release); }
    static bool many_cores() {
        static const bool many = std::thread::hardware_concurrency() > 3;
        return many;
    }
};

// Copies the first bytes to the CPU.
class FirstRead {
public:
    explicit FirstRead(const std::string& device) {
        to_ = mmap(nullptr, kRead, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        check_errno(to_ != MAP_FAILED, "mmap");
        if (!device.starts_with("cuda")) return;
        gpu_ = std::make_unique<BareGpu>(device);
        gpu_->pin(to_, kRead);
    }
    void operator()(const vineyard::Buffer& buffer) {
        if (gpu_) return gpu_->copy_out(to_, buffer.data(), kRead);
        std::memcpy(to_, buffer.data(), kRead);
        asm volatile("" : : "r"(to_) : "memory");
    }

private:
    void* to_ = nullptr;
    std::unique_ptr<BareGpu> gpu_;
};

constexpr vineyard::ObjectID kEnd = ~vineyard::ObjectID{0};

// The other process: reads every buffer until told to end.
void read_all(Shared& shared, const Daemon& daemon, const std::string& device) {
    vineyard::Client client;
    check_status(client.Connect(daemon.dir()), "connect");
    auto beside = connect(daemon);
    FirstRead first_read(device);
    vineyard::ObjectID held_id = 0;
    vineyard::Payload payload;
    std::shared_ptr<vineyard::MutableBuffer> held;  // for the lower bound; in an extent of its own
    check_status(client.CreateGPUBuffer(64 * kKiB, held_id, payload, held, device), "create");
    std::shared_ptr<vineyard::Buffer> got;
    std::shared_ptr<vineyard::Buffer> company;
    for (uint64_t turn = 1;; turn += 2) {
        shared.wait_for(turn, [] { return getppid() == 1; });
        if (shared.id == kEnd) return;
        if (shared.id == 0) {
            check(gshm_ping(beside.get()), "ping");
            first_read(*held);
        } else {
            check_status(client.GetGPUBuffer(shared.id, true, got), "get");
            first_read(*got);
        }
        shared.read_at = now_seconds();
        if (shared.keep) company = std::move(got);
        got.reset();
        shared.pass_on(turn + 1);
    }
}

struct Figures {
    Samples ours;
    Samples floor;
};

class Maker {
public:
    Maker(Shared& shared, const Daemon& daemon, std::string device, pid_t reader)
        : shared_(shared), device_(std::move(device)), reader_(reader), beside_(connect(daemon)) {
        check_status(client_.Connect(daemon.dir()), "connect");
    }
    Figures measure(uint64_t bytes, int rounds) {
        Figures figures;
        const uint64_t used_before = used_bytes();
        for (int round = -3; round < rounds; ++round) {  // warm-up: CUDA starts, slabs are made
            vineyard::ObjectID id = 0;
            vineyard::Payload payload;
            std::shared_ptr<vineyard::MutableBuffer> buffer;
            const double start = now_seconds();
            check_status(client_.CreateGPUBuffer(bytes, id, payload, buffer, device_), "create");
            const double ours = hand_over(id) - start;
            check_status(client_.DelData(id), "delete");
            buffer.reset();
            // The driver must have freed the memory of the last round.
            while (bytes > kLargestShared && used_bytes() > used_before) {
                std::this_thread::sleep_for(std::chrono::microseconds(100));
            }
            const double before = now_seconds();
            check(gshm_ping(beside_.get()), "ping");
            const double floor = hand_over(0) - before;
            if (round < 0) continue;
            figures.ours.add(ours);
            figures.floor.add(floor);
        }
        return figures;
    }
    // From now on both processes hold a buffer of the slab for small buffers.
    void keep_company() {
        vineyard::ObjectID id = 0;
        vineyard::Payload payload;
        check_status(client_.CreateGPUBuffer(64 * kKiB, id, payload, company_, device_), "create");
        shared_.keep = true;
        hand_over(id);
        shared_.keep = false;
    }
    void end() {
        shared_.id = kEnd;
        shared_.pass_on(turn_ + 1);
    }

private:
    uint64_t used_bytes() {
        std::vector<gshm_device_info> devices(16);
        devices[0].struct_size = sizeof devices[0];
        size_t count = 0;
        check(gshm_devices(beside_.get(), devices.data(), devices.size(), &count), "devices");
        for (const auto& device : devices) {
            if (device_ == device.name) return device.used_bytes;
        }
        die("gshmd has no device " + device_);
    }
    // Returns the time of the read.
    double hand_over(vineyard::ObjectID id) {
        shared_.id = id;
        shared_.pass_on(turn_ + 1);
        turn_ += 2;
        shared_.wait_for(turn_, [&] { return ::waitpid(reader_, nullptr, WNOHANG) == reader_; });
        return shared_.read_at;
    }

    Shared& shared_;
    std::string device_;
    pid_t reader_;
    Client beside_;
    vineyard::Client client_;
    std::shared_ptr<vineyard::MutableBuffer> company_;
    uint64_t turn_ = 0;
};

void report(const char* what, Figures& figures, double target, bool judged) {
    const double ours = figures.ours.quartile_seconds();
    const double floor = figures.floor.quartile_seconds();
    std::printf("%-36s %9.1f us %9.1f us %7.2f x", what, ours * 1e6, floor * 1e6, ours / floor);
    if (judged) std::printf("   at most %.0f us: %s", target * 1e6, ours <= target ? "yes" : "NO");
    std::printf("\n");
}

int run_all(int rounds, std::string device) {
    const Daemon daemon;
    {
        auto client = connect(daemon);
        const auto chosen = choose_device(client.get());
        if (device.empty()) device = chosen.name;
        std::printf("%s\n", device == chosen.name ? describe(chosen).c_str() : device.c_str());
    }
    auto* shared =
        static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    check_errno(shared != MAP_FAILED, "mmap");
    const pid_t parent = getpid();
    const pid_t child = fork();  // before CUDA starts
    check_errno(child >= 0, "fork");
    if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(127);
        read_all(*shared, daemon, device);
        ::_exit(0);
    }
    const bool judged = device.starts_with("cuda");
    Maker maker(*shared, daemon, device, child);
    std::printf("%-36s %12s %12s\n", "create, get, first read", "ours", "floor");
    auto alone = maker.measure(64 * kKiB, rounds);
    report("64 KiB, alone in its slab", alone, 0, false);
    maker.keep_company();
    auto small = maker.measure(64 * kKiB, rounds);
    report("64 KiB, in company", small, 60e-6, judged);
    auto large = maker.measure(256 * kKiB * kKiB, std::max(rounds / 50, 10));
    report("256 MiB", large, 0, false);  // compared with bench/torch_handover.py
    if (!judged) std::printf("The target is for a GPU and is not judged on %s.\n", device.c_str());
    maker.end();
    int status = 0;
    ::waitpid(child, &status, 0);
    return status == 0 ? 0 : 1;
}

}  // namespace
}  // namespace gshm::core::bench

int main(int argc, char** argv) {
    int rounds = 2000;
    std::string device;
    for (int i = 1; i < argc; i += 2) {
        const std::string option = argv[i];
        if (i + 1 < argc && option == "--rounds") rounds = std::max(std::atoi(argv[i + 1]), 4);
        else if (i + 1 < argc && option == "--device") device = argv[i + 1];
        else gshm::core::bench::die("usage: vineyard_bench [--rounds N] [--device NAME]");
    }
    return gshm::core::bench::run_all(rounds, device);
}
