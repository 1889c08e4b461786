// Transfers between a file and an object through a ring, at a given depth:
//   ring_bench FILE [--device D] [--block BYTES] [--depth N] [--seconds S] [--random] [--write] [--span BYTES]
//   ring_bench FILE --put [--device D]
//   ring_bench --copy-rate [--device cuda:N]
// Prints "GB/s operations/s" of the whole run, for comparison with fio at the same depth; or of a whole file that
// becomes an object, without and with the creation of the object; or of plain copies from pinned memory to the GPU.
// Needs a gshmd, found by $GSHM_DIR; the object ends with this process.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <random>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "device/cuda.h"
#include "gshm/gshm.h"

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const char* what, const char* why) {
    fprintf(stderr, "ring_bench: %s: %s\n", what, why);
    exit(1);
}

int check(int code, const char* what) {
    if (code < 0) fail(what, gshm_last_error());
    return code;
}

struct Options {
    std::string file;
    const char* device = "host";
    uint64_t block = 1 << 20;
    uint32_t depth = 32;
    double seconds = 3;
    uint64_t span = uint64_t{1} << 30;
    bool random = false;
    bool write = false;
    bool copy_rate = false;
    bool put = false;
};

Options parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string arg = argv[i];
        auto value = [&] { return ++i < argc ? argv[i] : (fail(arg.c_str(), "has no value"), ""); };
        if (arg == "--device") options.device = value();
        else if (arg == "--block") options.block = strtoull(value(), nullptr, 10);
        else if (arg == "--depth") options.depth = static_cast<uint32_t>(atoi(value()));
        else if (arg == "--seconds") options.seconds = atof(value());
        else if (arg == "--span") options.span = strtoull(value(), nullptr, 10);
        else if (arg == "--random") options.random = true;
        else if (arg == "--write") options.write = true;
        else if (arg == "--copy-rate") options.copy_rate = true;
        else if (arg == "--put") options.put = true;
        else options.file = arg;
    }
    if (options.file.empty() && !options.copy_rate) fail("usage", "see the head of bench/ring_bench.cc");
    return options;
}

// The rate of the bus: pinned memory to the GPU, 64 MiB at a time, two in flight.
void copy_rate(const Options& options) {
    constexpr size_t kBytes = size_t{64} << 20;
    const int ordinal = atoi(strchr(options.device, ':') != nullptr ? strchr(options.device, ':') + 1 : "0");
    auto device = gshm::core::CudaDevice::create(ordinal);
    if (!device) fail("device", device.error().message.c_str());
    auto extent = (*device)->allocate(kBytes * 2, {});
    if (!extent) fail("allocate", extent.error().message.c_str());
    void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (auto pinned = (*device)->register_host_memory({static_cast<std::byte*>(memory), kBytes}); !pinned) {
        fail("pin", pinned.error().message.c_str());
    }
    const auto& driver = (*device)->driver();
    gshm::core::cuda::ScopedContext current(driver, (*device)->context().value());
    gshm::core::cuda::CUstream stream = nullptr;
    driver.stream_create(&stream, 1);
    uint64_t bytes = 0;
    const auto begin = Clock::now();
    double seconds = 0;
    while ((seconds = std::chrono::duration<double>(Clock::now() - begin).count()) < options.seconds) {
        for (uint64_t i = 0; i < 2; ++i) {
            driver.memcpy_htod_async((*extent)->address() + i * kBytes, memory, kBytes, stream);
            bytes += kBytes;
        }
        driver.stream_synchronize(stream);
    }
    printf("%.3f 0\n", static_cast<double>(bytes) / seconds / 1e9);
}

int put(const Options& options, gshm_client* client) {
    const std::string name = "ring_bench." + std::to_string(getpid());
    gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
    spec.name = name.c_str();
    spec.device = options.device;
    gshm_transfer_info info = {sizeof info, 0, 0, 0};
    const auto begin = Clock::now();
    check(gshm_put_file(client, options.file.c_str(), &spec, nullptr, &info), "put");
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    check(gshm_unlink(client, name.c_str()), "unlink");
    const auto bytes = static_cast<double>(info.bytes);
    printf("%.3f %.3f\n", bytes / static_cast<double>(info.duration_ns), bytes / seconds / 1e9);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = parse(argc, argv);
    if (options.copy_rate) {
        copy_rate(options);
        return 0;
    }
    gshm_client* client = nullptr;
    check(gshm_connect(nullptr, &client), "connect");
    if (options.put) return put(options, client);
    const int fd = open(options.file.c_str(), options.write ? O_RDWR : O_RDONLY);
    struct stat status = {};
    if (fd < 0 || fstat(fd, &status) != 0) fail(options.file.c_str(), strerror(errno));
    const uint64_t file_blocks = static_cast<uint64_t>(status.st_size) / options.block;
    // A buffer per request, as in fio; or a part of the object for each block, as far as it is large enough.
    const uint64_t object_bytes = std::max<uint64_t>(options.block * options.depth, options.random ? 0 : options.span);
    const std::string name = "ring_bench." + std::to_string(getpid());
    gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
    spec.name = name.c_str();
    spec.size_bytes = object_bytes;
    spec.device = options.device;
    spec.flags = GSHM_NO_MAP;
    gshm_object* object = nullptr;
    check(gshm_create(client, &spec, &object), "create");
    const gshm_ring_options ring_options = {sizeof ring_options, options.depth};
    gshm_ring* ring = nullptr;
    check(gshm_ring_create(client, &ring_options, &ring), "ring");
    uint32_t file = 0;
    check(gshm_ring_add_file(ring, fd, &file), "file");
    std::minstd_rand random(1);
    uint64_t begun = 0;
    auto prepare = [&](uint64_t slot) {
        const uint64_t block = options.random ? random() % file_blocks : begun % file_blocks;
        const uint64_t place = options.random ? slot : begun % (object_bytes / options.block);
        const gshm_range range = {object, place * options.block, options.block};
        const gshm_io io = {sizeof io,
                            options.write ? uint32_t{GSHM_IO_WRITE} : uint32_t{GSHM_IO_READ},
                            file,
                            0,
                            block * options.block,
                            &range,
                            1,
                            slot};
        check(gshm_ring_prepare(ring, &io), "prepare");
        ++begun;
    };
    std::vector<gshm_completion> completions(options.depth);
    uint64_t done = 0;
    uint32_t paths = 0;
    const auto begin = Clock::now();
    for (uint32_t i = 0; i < options.depth; ++i) prepare(i);
    double seconds = 0;
    for (uint64_t under_way = options.depth; under_way > 0;) {
        check(gshm_ring_submit(ring), "submit");
        const int taken = check(gshm_ring_wait(ring, completions.data(), completions.size(), 1, -1), "wait");
        seconds = std::chrono::duration<double>(Clock::now() - begin).count();
        for (int i = 0; i < taken; ++i) {
            if (completions[i].result != static_cast<int64_t>(options.block)) {
                fail("transfer",
                     completions[i].result < 0 ? strerror(static_cast<int>(-completions[i].result)) : "short");
            }
            paths |= completions[i].path;
            ++done;
            if (seconds < options.seconds) prepare(completions[i].user_data);
            else --under_way;
        }
    }
    printf("%.3f %.0f", static_cast<double>(done * options.block) / seconds / 1e9, static_cast<double>(done) / seconds);
    const char* names[] = {"direct", "cached", "staged", "hole", "cufile", "threads"};
    for (int i = 0; i < 6; ++i) {
        if ((paths >> i & 1) != 0) printf(" %s", names[i]);
    }
    printf("\n");
    gshm_ring_destroy(ring);
    gshm_close(object);
    gshm_disconnect(client);
    return 0;
}
