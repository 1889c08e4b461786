// A tier's folder against its disk: writing and reading one object, and a plain loop that reads the same file past the page
// cache with as many threads and pieces of the same size (as fio --direct=1 --bs=4M). Medians of alternating rounds.
//
//   tier_disk_bench FOLDER [SIZE_BYTES] [ROUNDS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "device/host.h"
#include "memory/tier_folder.h"

namespace {

using namespace gshm::core;

constexpr unsigned kThreads = 16;

double seconds_of(const std::function<void()>& body) {
    const auto begin = std::chrono::steady_clock::now();
    body();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

template <typename T>
T must(Result<T> result) {
    if (!result) {
        std::fprintf(stderr, "%s\n", result.error().message.c_str());
        std::exit(1);
    }
    if constexpr (!std::is_void_v<T>) return *std::move(result);
}

// The rate that the disk has for this file.
void read_plainly(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (file < 0) {
        std::perror(path.c_str());
        std::exit(1);
    }
    std::atomic<uint64_t> next = 0;
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kThreads; ++i) {
        threads.emplace_back([&] {
            const BlockBuffer buffer(kSnapshotChunkBytes);
            for (;;) {
                const auto at = static_cast<off_t>(next.fetch_add(buffer.size()));
                if (::pread(file, buffer.data(), buffer.size(), at) <= 0) return;
            }
        });
    }
    for (auto& thread : threads) thread.join();
    ::close(file);
}

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: %s FOLDER [SIZE_BYTES] [ROUNDS]\n", argv[0]);
        return 2;
    }
    const uint64_t bytes = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : uint64_t{2} << 30;
    const int rounds = argc > 3 ? std::atoi(argv[3]) : 5;
    auto folder = must(TierFolder::open({.path = argv[1]}, 1));
    folder->begin({});
    const auto device = must(HostDevice::create(3 * bytes));
    auto from = must(device->allocate(round_up(bytes, device->info().granularity_bytes), {}));
    auto to = must(device->allocate(round_up(bytes, device->info().granularity_bytes), {}));
    std::vector<std::byte> piece(1 << 20);
    for (uint64_t at = 0; at < bytes; at += piece.size()) {
        for (size_t i = 0; i < piece.size(); i += 8) {
            const uint64_t word = (at + i) * 0x9E3779B97F4A7C15;
            std::memcpy(piece.data() + i, &word, sizeof word);
        }
        const auto part = std::span(piece).first(std::min<uint64_t>(piece.size(), bytes - at));
        must(from->copy_in(at, part));
        must(to->copy_in(at, part));  // its pages exist
    }
    std::vector<double> writes, reads, plain;
    for (int i = 0; i < rounds; ++i) {
        uint64_t number = 0;
        writes.push_back(seconds_of([&] { number = must(folder->write(*from, 0, bytes)); }));
        const std::string path = folder->path() + "/" + tier_file_name(number);
        const auto read = [&] { must(folder->read(number, *to, 0, bytes)); };
        const auto loop = [&] { read_plainly(path); };
        if (i % 2 == 0) reads.push_back(seconds_of(read));
        plain.push_back(seconds_of(loop));
        if (i % 2 != 0) reads.push_back(seconds_of(read));
        folder->remove(number);
        folder->wait_for_removals();
    }
    const double giga = static_cast<double>(bytes) / 1e9;
    std::printf("%.1f GB: write %.2f GB/s, read %.2f GB/s, plain read %.2f GB/s, read / plain %.3f\n", giga,
                giga / median(writes), giga / median(reads), giga / median(plain), median(plain) / median(reads));
    return 0;
}
