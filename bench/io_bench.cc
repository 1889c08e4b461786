// The file engine alone: reads of one size at one depth into ordinary memory, for comparison with
//   fio --name=x --filename=FILE --readonly --rw=randread --bs=4k --iodepth=32 --ioengine=io_uring --direct=1
// in the same run. Prints GB/s, operations per second and, if the kernel permits, user-space instructions per operation
// of the engine's thread. Otherwise run
//   valgrind --tool=callgrind io_bench --size 4K --random --count 60000 FILE
// twice with different counts; the difference is the cost of the additional operations.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <getopt.h>
#include <linux/perf_event.h>
#include <string>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include "base/size.h"
#include "io/engine.h"

namespace gshm::core::io {
namespace {

struct Options {
    std::string file;
    uint64_t size_bytes = 1 << 20;
    uint64_t count = 0;  // number of operations; 0: as many as the time allows
    double seconds = 5;
    unsigned depth = 32;
    bool random = false;
    bool threads = false;
};

[[noreturn]] void die(const std::string& what) {
    std::fprintf(stderr, "io_bench: %s\n", what.c_str());
    std::exit(1);
}

template <typename T>
T must(Result<T> result) {
    if (!result) die(result.error().message);
    return std::move(*result);
}

// Counts for the calling thread; -1 if the kernel does not permit it.
int count_instructions() {
    perf_event_attr wanted = {};
    wanted.size = sizeof wanted;
    wanted.type = PERF_TYPE_HARDWARE;
    wanted.config = PERF_COUNT_HW_INSTRUCTIONS;
    wanted.exclude_kernel = 1;
    wanted.exclude_hv = 1;
    return static_cast<int>(syscall(SYS_perf_event_open, &wanted, 0, -1, -1, 0));
}

class Load;

class Read final : public Transfer {
public:
    void done(Result<uint64_t> got) override;
    Load* load = nullptr;
};

// Keeps `depth` reads in flight until the time or the number is reached.
class Load final : public Source {
public:
    Load(Engine& engine, File& file, std::byte* memory, const Options& options)
        : engine_(engine), options_(options), blocks_(file.size() / options.size_bytes), reads_(options.depth) {
        if (blocks_ == 0) die("the file is smaller than one read");
        for (unsigned i = 0; i < options.depth; ++i) {
            reads_[i].load = this;
            reads_[i].file = &file;
            reads_[i].address = reinterpret_cast<uint64_t>(memory) + i * options.size_bytes;
            reads_[i].bytes = options.size_bytes;
        }
    }

    int doorbell() const override { return bell_; }
    void sleep(bool) override {}
    bool poll() override {
        if (begun_) return false;
        begun_ = true;
        counter_ = count_instructions();
        start_ = Clock::now();
        for (Read& read : reads_) next(read);
        return true;
    }

    void next(Read& read) {
        // The clock is read rarely, so as not to distort the measurement.
        if ((started_ & 63) == 0 && options_.count == 0 && elapsed() >= options_.seconds) over_ = true;
        if (options_.count != 0 && started_ >= options_.count) over_ = true;
        if (over_) {
            if (--going_ == 0) end();
            return;
        }
        random_ = random_ * 6364136223846793005U + 1442695040888963407U;
        const uint64_t block = options_.random ? (random_ >> 33) % blocks_ : started_ % blocks_;
        read.file_offset = block * options_.size_bytes;
        ++started_;
        engine_.start(read);
    }
    void end() {
        seconds_ = elapsed();
        if (counter_ >= 0 && ::read(counter_, &instructions_, sizeof instructions_) != sizeof instructions_)
            counter_ = -1;
        path_ = reads_[0].path;
        if (options_.count != 0) {
            // valgrind runs no other thread while one sleeps in io_uring, so the program ends here.
            print();
            std::fflush(stdout);
            std::_Exit(0);
        }
        ended_.store(true);
        ended_.notify_one();
    }
    void wait() { ended_.wait(false); }

    void print() const {
        const auto done = static_cast<double>(started_);
        std::printf("%s reads of %llu bytes, depth %u, by %s%s%s: %.3f GB/s, %.0f IOPS",
                    options_.random ? "random" : "sequential", static_cast<unsigned long long>(options_.size_bytes),
                    options_.depth, engine_.uses_uring() ? "io_uring" : "threads",
                    (path_ & kPathDirect) != 0 ? ", direct" : "", (path_ & kPathCached) != 0 ? ", cached" : "",
                    done * static_cast<double>(options_.size_bytes) / seconds_ / 1e9, done / seconds_);
        if (counter_ >= 0) std::printf(", %.0f instructions each", static_cast<double>(instructions_) / done);
        std::printf("\n");
    }

private:
    using Clock = std::chrono::steady_clock;
    double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

    Engine& engine_;
    const Options& options_;
    const uint64_t blocks_;
    std::vector<Read> reads_;
    int bell_ = eventfd(0, EFD_CLOEXEC);
    bool begun_ = false;
    bool over_ = false;
    size_t going_ = reads_.size();
    uint64_t started_ = 0;
    uint64_t random_ = 1;
    uint32_t path_ = 0;
    Clock::time_point start_;
    double seconds_ = 0;
    int counter_ = -1;
    uint64_t instructions_ = 0;
    std::atomic<bool> ended_{false};
};

void Read::done(Result<uint64_t> got) {
    if (!got) die(got.error().message);
    if (*got != bytes) die("a short read");
    load->next(*this);
}

Options parse(int argc, char** argv) {
    Options options;
    const option known[] = {{"size", required_argument, nullptr, 's'},
                            {"depth", required_argument, nullptr, 'd'},
                            {"seconds", required_argument, nullptr, 't'},
                            {"count", required_argument, nullptr, 'n'},
                            {"random", no_argument, nullptr, 'r'},
                            {"threads", no_argument, nullptr, 'T'},
                            {nullptr, 0, nullptr, 0}};
    for (int found; (found = getopt_long(argc, argv, "", known, nullptr)) != -1;) {
        switch (found) {
            case 's': options.size_bytes = must(parse_size(optarg)); break;
            case 'd': options.depth = static_cast<unsigned>(std::strtoul(optarg, nullptr, 10)); break;
            case 't': options.seconds = std::strtod(optarg, nullptr); break;
            case 'n': options.count = must(parse_size(optarg)); break;
            case 'r': options.random = true; break;
            case 'T': options.threads = true; break;
            default: std::exit(2);
        }
    }
    if (optind + 1 != argc || options.depth == 0 || options.size_bytes == 0) {
        die("usage: io_bench [--size 1M] [--depth 32] [--random] [--seconds 5 | --count N] [--threads] FILE");
    }
    options.file = argv[optind];
    return options;
}

int run(int argc, char** argv) {
    const Options options = parse(argc, argv);
    const int fd = open(options.file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) die(options.file + ": " + std::strerror(errno));
    auto file = must(File::create(UniqueFd::adopt(fd)));
    const size_t bytes = options.size_bytes * options.depth;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) die("no memory");
    auto engine = must(Engine::create(
        nullptr, {.depth = std::max(options.depth * 4 / 3 + 1, 16U), .allow_uring = !options.threads, .threads = 16}));
    Load load(*engine, *file, static_cast<std::byte*>(memory), options);
    if (auto added = engine->add(load); !added) die(added.error().message);
    load.wait();
    engine->remove(load);
    load.print();
    return 0;
}

}  // namespace
}  // namespace gshm::core::io

int main(int argc, char** argv) {
    return gshm::core::io::run(argc, argv);
}
