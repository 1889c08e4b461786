// Evictions and returns, compared with bare copies and with free memory in the same run.
//
//   tiers_bench [--object 256M] [--large 8G] [--folder DIR] [--rounds N]      on $GSHM_BENCH_DEVICE, else the first GPU
//
// 1. Eight processes create objects on a full GPU: the bytes that leave it, against a pinned copy to host memory. With a
//    reserve that is kept free: bursts, against bursts on an empty GPU.
//    The bytes can reach host memory no faster than processes write to new host memory, which is measured as well.
// 2. A large object returns from host memory, against a pinned copy, and from the folder, against a loop of O_DIRECT
//    reads of a file beside it.
// 3. Opens of a resident object, with tiers and without.
#include <atomic>
#include <cstring>
#include <sys/mman.h>

#include "bare_gpu.h"

namespace gshm::core::bench {
namespace {

struct Sizes {
    uint64_t object = uint64_t{256} << 20;
    uint64_t large = uint64_t{8} << 30;
    std::string folder = "/tmp";
    int rounds = 5;
};
constexpr int kProcesses = 8;
constexpr int kOfProcess = 4;  // objects

std::string text(uint64_t bytes) {
    return std::to_string(bytes);
}

Client client_of(const Daemon& daemon) {
    return connect(daemon);
}

void create(gshm_client* client, const std::string& name, uint64_t bytes, const std::string& device, bool fills) {
    gshm_create_spec wanted = GSHM_CREATE_SPEC_INIT;
    wanted.name = name.c_str();
    wanted.size_bytes = bytes;
    wanted.device = device.c_str();
    wanted.flags = GSHM_KEEP | GSHM_NO_MAP | GSHM_EVICTABLE | GSHM_DEDICATED;
    gshm_object* object = nullptr;
    check(gshm_create(client, &wanted, &object), "create");
    if (fills) check(gshm_fill(object, 0, bytes, 0x5a), "fill");
    check(gshm_seal(object), "seal");
    gshm_close(object);
}

// The time until each of the processes has created its objects. They connect before it begins.
double create_in_processes(const Daemon& daemon, const Sizes& sizes, const std::string& device, int round) {
    int ready[2];
    int go[2];
    check_errno(::pipe(ready) == 0 && ::pipe(go) == 0, "pipe");
    std::vector<pid_t> children;
    for (int process = 0; process < kProcesses; ++process) {
        const pid_t child = ::fork();
        check_errno(child >= 0, "fork");
        if (child == 0) {
            auto client = client_of(daemon);
            char byte = 0;
            if (::write(ready[1], &byte, 1) != 1 || ::read(go[0], &byte, 1) != 1) ::_exit(1);
            for (int i = 0; i < kOfProcess; ++i) {
                create(client.get(), "r" + text(round) + "/p" + text(process) + "/" + text(i), sizes.object, device,
                       false);
            }
            ::_exit(0);
        }
        children.push_back(child);
    }
    char bytes[kProcesses] = {};
    for (int got = 0; got < kProcesses;) got += static_cast<int>(::read(ready[0], bytes, sizeof bytes));
    Stopwatch watch;
    check_errno(::write(go[1], bytes, sizeof bytes) == sizeof bytes, "write");
    for (pid_t child : children) {
        int status = 0;
        ::waitpid(child, &status, 0);
        if (status != 0) die("a process could not create its objects");
    }
    const double seconds = watch.seconds();
    for (int fd : {ready[0], ready[1], go[0], go[1]}) ::close(fd);
    return seconds;
}

void line(const char* what, double ours, double theirs, const char* unit, double least) {
    std::printf("%-44s %9.2f %s %9.2f %s %6.2f x  at least %.2f: %s\n", what, ours, unit, theirs, unit, ours / theirs,
                least, ours / theirs >= least ? "yes" : "NO");
    std::fflush(stdout);
}

double rate(uint64_t bytes, double seconds) {
    return static_cast<double>(bytes) / seconds / 1e9;
}

constexpr uint64_t kTogether = uint64_t{kProcesses} * kOfProcess;

double evict_rate(const Sizes& sizes, const std::string& device) {
    // A GPU that is full with the objects of one round.
    const Daemon daemon({device + ":" + text(kTogether * sizes.object), "host"},
                        {"--tier", "host:" + text((sizes.rounds + 2) * kTogether * sizes.object), "--tier-free", "0"});
    Samples samples;
    for (int round = 0; round <= sizes.rounds; ++round) {
        const double seconds = create_in_processes(daemon, sizes, device, round);
        if (round > 0) samples.add(seconds);  // the first one fills the GPU
    }
    return rate(kTogether * sizes.object, samples.quartile_seconds());
}

// Processes write to new host memory.
double new_memory_rate(const Sizes& sizes) {
    const Daemon daemon({"host"});
    Samples samples;
    for (int round = 0; round <= sizes.rounds; ++round) {
        std::vector<Client> clients;
        for (int process = 0; process < kProcesses; ++process) clients.push_back(client_of(daemon));
        Stopwatch watch;
        std::vector<std::thread> threads;
        for (int process = 0; process < kProcesses; ++process) {
            threads.emplace_back([&, process] {
                for (int i = 0; i < kOfProcess; ++i) {
                    const std::string name = "n" + text(round) + "/p" + text(process) + "/" + text(i);
                    gshm_create_spec wanted = GSHM_CREATE_SPEC_INIT;
                    wanted.name = name.c_str();
                    wanted.size_bytes = sizes.object;
                    wanted.device = "host";
                    wanted.flags = GSHM_KEEP | GSHM_DEDICATED;
                    gshm_object* object = nullptr;
                    check(gshm_create(clients[static_cast<size_t>(process)].get(), &wanted, &object), "create");
                    std::memset(gshm_data(object), 0x5a, sizes.object);
                    gshm_close(object);
                }
            });
        }
        for (auto& thread : threads) thread.join();
        if (round > 0) samples.add(watch.seconds());
    }
    return rate(kTogether * sizes.object, samples.quartile_seconds());
}

// Bursts, with a pause in which the reserve is made again. free: the GPU is emptied instead.
double burst_rate(const Sizes& sizes, const std::string& device, bool free) {
    std::vector<std::string> options;
    if (!free) options = {"--tier", "host:" + text((sizes.rounds + 6) * kTogether * sizes.object), "--tier-free", "30"};
    const Daemon daemon({device + ":" + text(4 * kTogether * sizes.object), "host"}, options);
    auto client = client_of(daemon);
    Samples samples;
    for (int round = 0; round < sizes.rounds + (free ? 0 : 4); ++round) {
        const double seconds = create_in_processes(daemon, sizes, device, round);
        if (free || round >= 4) samples.add(seconds);
        for (int process = 0; free && process < kProcesses; ++process) {
            for (int i = 0; i < kOfProcess; ++i) {
                check(gshm_unlink(client.get(), ("r" + text(round) + "/p" + text(process) + "/" + text(i)).c_str()),
                      "unlink");
            }
        }
        gshm_device_info devices[4] = {};
        devices[0].struct_size = sizeof devices[0];
        size_t count = 0;
        do {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            check(gshm_devices(client.get(), devices, 4, &count), "devices");
        } while (devices[0].used_bytes > devices[0].capacity_bytes / 10 * 7);
        // The freed memory is zeroed and kept for two seconds.
        std::this_thread::sleep_for(std::chrono::seconds(3));
    }
    return rate(kTogether * sizes.object, samples.quartile_seconds());
}

double return_rate(const Sizes& sizes, const std::string& device, const std::string& tier) {
    const Daemon daemon({device, "host"}, {"--tier", tier, "--tier-free", "0"});
    auto client = client_of(daemon);
    create(client.get(), "large", sizes.large, device, true);
    Samples samples;
    for (int round = 0; round < sizes.rounds; ++round) {
        check(gshm_demote(client.get(), "large", 0), "demote");
        Stopwatch watch;
        gshm_object* object = nullptr;
        check(gshm_open(client.get(), "large", GSHM_NO_MAP, &object), "open");
        if (round > 0 || sizes.rounds == 1) samples.add(watch.seconds());  // the first one makes the threads
        gshm_close(object);
    }
    return rate(sizes.large, samples.quartile_seconds());
}

// Several threads, each with a part of the file.
double direct_read_rate(const Sizes& sizes) {
    constexpr size_t kChunk = 4 << 20;
    constexpr int kThreads = 8;
    const std::string path = sizes.folder + "/gshm-bench-file";
    auto* memory = static_cast<std::byte*>(
        mmap(nullptr, kThreads * kChunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
    check_errno(memory != MAP_FAILED, "mmap");
    const int out = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT, 0600);
    check_errno(out >= 0, "open with O_DIRECT");
    for (uint64_t at = 0; at < sizes.large; at += kChunk) {
        check_errno(::pwrite(out, memory, kChunk, static_cast<off_t>(at)) == static_cast<ssize_t>(kChunk), "pwrite");
    }
    check_errno(::fsync(out) == 0, "fsync");
    ::close(out);
    Samples samples;
    for (int round = 0; round < sizes.rounds; ++round) {
        const int in = ::open(path.c_str(), O_RDONLY | O_DIRECT);
        std::atomic<uint64_t> next = 0;
        Stopwatch watch;
        std::vector<std::thread> threads;
        for (int i = 0; i < kThreads; ++i) {
            threads.emplace_back([&, chunk = memory + static_cast<size_t>(i) * kChunk] {
                for (uint64_t at = next.fetch_add(kChunk); at < sizes.large; at = next.fetch_add(kChunk)) {
                    check_errno(::pread(in, chunk, kChunk, static_cast<off_t>(at)) > 0, "pread");
                }
            });
        }
        for (auto& thread : threads) thread.join();
        samples.add(watch.seconds());
        ::close(in);
    }
    ::unlink(path.c_str());
    munmap(memory, kThreads * kChunk);
    return rate(sizes.large, samples.quartile_seconds());
}

void compare_opens(const Sizes& sizes, const std::string& device) {
    constexpr int kOpens = 2000;
    const Daemon plain({device + ":64M", "host"});
    const Daemon tiered({device + ":64M", "host"}, {"--tier", "host:64M"});
    Samples samples[2];
    std::vector<Client> clients;
    for (const Daemon* daemon : {&plain, &tiered}) {
        clients.push_back(client_of(*daemon));
        create(clients.back().get(), "x", 4 << 20, device, false);
    }
    for (int round = 0; round < 10 * sizes.rounds; ++round) {
        for (int which = 0; which < 2; ++which) {
            Stopwatch watch;
            for (int i = 0; i < kOpens; ++i) {
                gshm_object* object = nullptr;
                check(gshm_open(clients[static_cast<size_t>(which)].get(), "x", GSHM_NO_MAP, &object), "open");
                gshm_close(object);
            }
            samples[which].add(watch.seconds());
        }
    }
    const double without = kOpens / samples[0].quartile_seconds() / 1e3;
    const double with = kOpens / samples[1].quartile_seconds() / 1e3;
    line("opens of a resident object: tiers / none", with, without, "k/s ", 0.97);
}

int measure(const Sizes& sizes) {
    std::string device;
    {
        const Daemon daemon;
        auto client = connect(daemon);
        const auto chosen = choose_device(client.get());
        if (!is_cuda(chosen)) die("no GPU: nothing leaves it");
        device = chosen.name;
        std::printf("%s\n", describe(chosen).c_str());
    }
    const double evicted = evict_rate(sizes, device);
    const double into_new = new_memory_rate(sizes);
    const double into_reserve = burst_rate(sizes, device, false);
    const double into_free = burst_rate(sizes, device, true);
    const double from_host = return_rate(sizes, device, "host:" + text(2 * sizes.large));
    const std::string folder = sizes.folder + "/gshm-bench-tier-" + text(static_cast<uint64_t>(::getpid()));
    const double from_disk = return_rate(sizes, device, folder);
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
    const double read = direct_read_rate(sizes);
    // The driver is used by this process alone after its children have ended.
    BareGpu gpu(device);
    void* memory =
        mmap(nullptr, sizes.object, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    check_errno(memory != MAP_FAILED, "mmap");
    gpu.pin(memory, sizes.object);
    const Daemon daemon({device, "host"});
    auto client = connect(daemon);
    const auto wanted = spec("copied", sizes.object, device.c_str());
    gshm_object* made = nullptr;
    check(gshm_create(client.get(), &wanted, &made), "create");
    const Object object(made);
    Samples out;
    Samples in;
    for (int round = 0; round < 4 * sizes.rounds; ++round) {
        Stopwatch first;
        gpu.copy_out(memory, gshm_data(object.get()), sizes.object);
        out.add(first.seconds());
        Stopwatch second;
        gpu.copy_in(gshm_data(object.get()), memory, sizes.object);
        in.add(second.seconds());
    }
    std::printf("%-44s %14s %14s\n", "", "gshm", "compared with");
    line("creates on a full GPU / pinned copy out", evicted, rate(sizes.object, out.quartile_seconds()), "GB/s", 0.8);
    std::printf("%-44s %9.2f GB/s %9.2f GB/s %6.2f x\n", "creates on a full GPU / new host memory", evicted, into_new,
                evicted / into_new);
    line("creates in a reserve / in free memory", into_reserve, into_free, "GB/s", 0.8);
    line("return from host / pinned copy in", from_host, rate(sizes.object, in.quartile_seconds()), "GB/s", 0.85);
    line("return from disk / O_DIRECT reads", from_disk, read, "GB/s", 0.9);
    compare_opens(sizes, device);
    return 0;
}

uint64_t parse(const char* given) {
    char* end = nullptr;
    const uint64_t number = std::strtoull(given, &end, 10);
    return number << (*end == 'G' ? 30 : *end == 'M' ? 20 : 0);
}

}  // namespace
}  // namespace gshm::core::bench

int main(int argc, char** argv) {
    using namespace gshm::core::bench;
    Sizes sizes;
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string option = argv[i];
        if (option == "--object") sizes.object = parse(argv[i + 1]);
        else if (option == "--large") sizes.large = parse(argv[i + 1]);
        else if (option == "--folder") sizes.folder = argv[i + 1];
        else if (option == "--rounds") sizes.rounds = std::max(std::atoi(argv[i + 1]), 1);
        else die("usage: tiers_bench [--object 256M] [--large 8G] [--folder DIR] [--rounds N]");
    }
    return measure(sizes);
}
