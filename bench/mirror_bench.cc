// Mirrors compared with bare driver copies between the same GPU memory and existing pinned memory.
//
//   mirror_bench [--rounds N]        on $GSHM_BENCH_DEVICE, else the first GPU
//
// A round is a whole mirror: created, loaded (or flushed) and destroyed. The two sides alternate; the lower quartile of
// each counts. On host nothing is copied, so there is no comparison.
#include <span>
#include <sys/mman.h>

#include "bare_gpu.h"

namespace gshm::core::bench {
namespace {

std::span<std::byte> pinned(BareGpu& gpu, size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    check_errno(memory != MAP_FAILED, "mmap");
    gpu.pin(memory, bytes);
    return {static_cast<std::byte*>(memory), bytes};
}

// A whole mirror of the object; writing covers all of it.
void mirror_once(gshm_object* object, bool write, void* stream) {
    const uint32_t flags = write ? uint32_t{GSHM_MIRROR_WRITE} : uint32_t{GSHM_MIRROR_LOAD};
    const gshm_mirror_options options = {sizeof options, flags, 0, 0, stream};
    gshm_mirror* mirror = nullptr;
    check(gshm_mirror_create(object, &options, &mirror), "mirror");
    if (write) check(gshm_mirror_mark(mirror, 0, gshm_mirror_size(mirror)), "mark");
    check(gshm_mirror_destroy(mirror), "write back");
}

void compare(const char* what, gshm_object* object, BareGpu& gpu, bool write, int rounds) {
    const uint64_t bytes = gshm_size(object);
    const auto memory = pinned(gpu, bytes);
    Stopwatch cold;
    mirror_once(object, write, gpu.stream());
    const double first = cold.seconds();
    Samples mirrored;
    Samples bare;
    for (int round = 0; round < rounds; ++round) {
        Stopwatch watch;
        mirror_once(object, write, gpu.stream());
        mirrored.add(watch.seconds());
        Stopwatch beside;
        if (write) gpu.copy_in(gshm_data(object), memory.data(), memory.size());
        else gpu.copy_out(memory.data(), gshm_data(object), memory.size());
        bare.add(beside.seconds());
    }
    const double ours = mirrored.quartile_seconds();
    const double theirs = bare.quartile_seconds();
    const bool large = bytes > (uint64_t{1} << 20);
    const double ratio = large ? theirs / ours : ours / theirs;
    const auto rate = [&](double seconds) { return static_cast<double>(bytes) / seconds / 1e9; };
    if (large) {
        std::printf("%-22s %8.2f GB/s %8.2f GB/s %6.2f x  at least 0.95: %s  (the first: %.1f ms)\n", what, rate(ours),
                    rate(theirs), ratio, ratio >= 0.95 ? "yes" : "NO", first * 1e3);
    } else {
        std::printf("%-22s %8.2f us   %8.2f us   %6.2f x  at most 2: %s  (the first: %.1f us)\n", what, ours * 1e6,
                    theirs * 1e6, ratio, ratio <= 2 ? "yes" : "NO", first * 1e6);
    }
}

int measure(int rounds) {
    const Daemon daemon;
    auto client = connect(daemon);
    const auto device = choose_device(client.get());
    if (!is_cuda(device)) die("no GPU: on host a mirror is the memory itself, and nothing is copied");
    BareGpu gpu(device.name);
    std::printf("%s\n%-22s %13s %13s\n", describe(device).c_str(), "", "mirror", "bare copy");
    for (const auto& [size, name] : {std::pair<uint64_t, const char*>{4096, "4 KiB"},
                                     {uint64_t{64} << 10, "64 KiB"},
                                     {uint64_t{1} << 30, "1 GiB"}}) {
        const auto wanted = spec(name, size, device.name);
        gshm_object* made = nullptr;
        check(gshm_create(client.get(), &wanted, &made), name);
        const Object object(made);
        const int turns = size > (uint64_t{1} << 20) ? std::max(rounds / 100, 5) : rounds;
        compare((std::string(name) + ", load").c_str(), object.get(), gpu, false, turns);
        compare((std::string(name) + ", write back").c_str(), object.get(), gpu, true, turns);
    }
    return 0;
}

}  // namespace
}  // namespace gshm::core::bench

int main(int argc, char** argv) {
    int rounds = 2000;
    if (argc == 3 && std::string(argv[1]) == "--rounds") rounds = std::max(std::atoi(argv[2]), 4);
    else if (argc != 1) gshm::core::bench::die("usage: mirror_bench [--rounds N]");
    return gshm::core::bench::measure(rounds);
}
