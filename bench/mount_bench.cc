// One measurement in one folder, so that bench/run can alternate between file systems and compare them round by round.
// Uses plain system calls and measures any file system.
//
// Prints one JSON object per line and figure: name, value (the median of the repetitions), low, high, unit. Everything
// it makes in the folder is removed again, unless --keep. Any failure, wrong data included, ends the program with a
// sentence (exit status 1).
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <functional>
#include <future>
#include <getopt.h>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

constexpr const char* kUsage = R"(usage: mount_bench WHAT FOLDER [OPTION]...

  seq-read     read a file from one end to the other, GB/s
  seq-write    write over a file, GB/s; with --fresh: into a new one, so the memory has to be found as well
  mmap-read    read through a new shared mapping (mmap-read) and once more (mmap-read-again), GB/s
  small        4 KiB at places chosen at random in a file: small-read, small-write, calls/s
  metadata     stat (the kernel may remember), stat-sync (it must ask), lookup (of a name that is not there),
               open-close, create-unlink: calls/s, a pair counts as one
  list         entries of a folder of empty files: list (opendir, readdir), list-stat (a stat of each as well, like
               ls -l), list-create where it made them: us per entry

  --bytes N         size of the file (512M; small: 64M)
  --block N         bytes per call (1M)
  --threads N       that many threads, each with its part of the file (1)
  --own-files       each thread has a file of its own instead
  --count N         calls per repetition (5000), or entries of each folder for list (1000)
  --folders N       list: that many folders, read one after the other (1)
  --keep            list: leave the folders; the next call uses what it finds
  --repetitions N   (5)
)";

struct Options {
    std::string what;
    std::string folder;
    uint64_t bytes = 0;
    uint64_t block_bytes = 1 << 20;
    unsigned threads = 1;
    size_t count = 0;
    size_t folders = 1;
    unsigned repetitions = 5;
    bool fresh = false;
    bool own_files = false;
    bool keep = false;
};

[[noreturn]] void fail(const std::string& what) {
    throw std::runtime_error(what);
}
void check(bool good, std::string_view what) {
    if (!good) fail(std::string(what) + ": " + std::strerror(errno));
}

// ---- Figures -------------------------------------------------------------------------------------------------------

using Clock = std::chrono::steady_clock;

template <typename Work>
double seconds_of(Work&& work) {
    const auto start = Clock::now();
    work();
    return std::chrono::duration<double>(Clock::now() - start).count();
}

class Figure {
public:
    Figure(std::string name, const char* unit) : name_(std::move(name)), unit_(unit) {}
    void add(double value) { values_.push_back(value); }
    void print() {
        if (values_.empty()) return;
        std::sort(values_.begin(), values_.end());
        const size_t middle = values_.size() / 2;
        const double median = values_.size() % 2 ? values_[middle] : (values_[middle - 1] + values_[middle]) / 2;
        std::printf(R"({"name":"%s","value":%.6g,"low":%.6g,"high":%.6g,"unit":"%s"})"
                    "\n",
                    name_.c_str(), median, values_.front(), values_.back(), unit_);
    }

private:
    std::string name_;
    const char* unit_;
    std::vector<double> values_;
};

// ---- Files ---------------------------------------------------------------------------------------------------------

class Fd {
public:
    Fd(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0600)) {
        check(fd_ >= 0, "open " + path);
    }
    Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Fd& operator=(Fd&&) = delete;
    ~Fd() {
        if (fd_ >= 0) ::close(fd_);
    }
    int get() const { return fd_; }

private:
    int fd_;
};

// A name in the folder; the file is removed with this object.
class ScratchFile {
public:
    explicit ScratchFile(const std::string& folder)
        : path_(folder + "/mount_bench." + std::to_string(::getpid()) + "." + std::to_string(next_++)) {}
    ScratchFile(const ScratchFile&) = delete;
    ScratchFile& operator=(const ScratchFile&) = delete;
    ~ScratchFile() { ::unlink(path_.c_str()); }
    const std::string& path() const { return path_; }

private:
    static inline unsigned next_ = 0;
    std::string path_;
};

void transfer(const char* what, ssize_t (*call)(int, char*, size_t, off_t), int fd, char* at, size_t size,
              uint64_t offset) {
    while (size > 0) {
        const ssize_t done = call(fd, at, size, static_cast<off_t>(offset));
        check(done >= 0, what);
        if (done == 0) fail(std::string(what) + ": the file ends early");
        at += done;
        size -= static_cast<size_t>(done);
        offset += static_cast<uint64_t>(done);
    }
}
void read_at(int fd, char* to, size_t size, uint64_t offset) {
    transfer("read", [](int f, char* a, size_t n, off_t o) { return ::pread(f, a, n, o); }, fd, to, size, offset);
}
void write_at(int fd, char* from, size_t size, uint64_t offset) {
    transfer("write", [](int f, char* a, size_t n, off_t o) { return ::pwrite(f, a, n, o); }, fd, from, size, offset);
}

// Memory for one call, page-aligned and touched.
class Block {
public:
    explicit Block(size_t size)
        : size_(size), data_(static_cast<char*>(std::aligned_alloc(4096, (size + 4095) & ~4095ul))) {
        check(data_ != nullptr, "aligned_alloc");
        std::memset(data_.get(), kFill, size);
    }
    char* data() { return data_.get(); }
    // Blocks differ only in their first word, which is their offset in the file.
    void mark(uint64_t offset) { std::memcpy(data_.get(), &offset, sizeof offset); }
    void expect(uint64_t offset) const {
        uint64_t found = 0;
        std::memcpy(&found, data_.get(), sizeof found);
        if (found != offset || data_.get()[size_ - 1] != kFill) {
            fail("wrong data in the block at " + std::to_string(offset));
        }
    }

    static constexpr char kFill = 0x5a;

private:
    struct Free {
        void operator()(char* data) const { std::free(data); }
    };
    size_t size_;
    std::unique_ptr<char, Free> data_;
};

// ---- Sequential ----------------------------------------------------------------------------------------------------

// The work of one thread: `size` bytes of a file from `start`.
struct Part {
    Fd fd;
    uint64_t start;
    uint64_t size;
    Block block;
};

void write_part(Part& part, size_t block_bytes) {
    for (uint64_t at = part.start; at < part.start + part.size; at += block_bytes) {
        part.block.mark(at);
        write_at(part.fd.get(), part.block.data(), block_bytes, at);
    }
}
void read_part(Part& part, size_t block_bytes) {
    for (uint64_t at = part.start; at < part.start + part.size; at += block_bytes) {
        read_at(part.fd.get(), part.block.data(), block_bytes, at);
        part.block.expect(at);
    }
}

class Sequential {
public:
    explicit Sequential(const Options& options) : options_(options) {
        const uint64_t unit = options.block_bytes * options.threads;
        if (options.bytes == 0 || options.bytes % unit) fail("--bytes must be a multiple of --block times --threads");
        for (unsigned i = 0; i < (options.own_files ? options.threads : 1); ++i) {
            files_.push_back(std::make_unique<ScratchFile>(options.folder));
        }
    }

    void run() {
        const bool writes = options_.what == "seq-write";
        Figure figure(options_.what + (options_.fresh ? "-fresh" : ""), "GB/s");
        if (!options_.fresh) {
            auto parts = open_parts(O_RDWR | O_CREAT | O_TRUNC);
            all(parts, write_part);
        }
        for (unsigned i = 0; i < options_.repetitions; ++i) {
            auto parts = open_parts(options_.fresh ? O_RDWR | O_CREAT : writes ? O_RDWR : O_RDONLY);
            const double seconds = seconds_of([&] { all(parts, writes ? write_part : read_part); });
            figure.add(static_cast<double>(options_.bytes) / seconds / 1e9);
            if (writes && i + 1 == options_.repetitions) all(parts, read_part);
            if (options_.fresh) {
                for (const auto& file : files_) check(::unlink(file->path().c_str()) == 0, "unlink " + file->path());
            }
        }
        figure.print();
    }

private:
    std::vector<Part> open_parts(int flags) const {
        const uint64_t size = options_.bytes / options_.threads;
        std::vector<Part> parts;
        for (unsigned i = 0; i < options_.threads; ++i) {
            const bool own = options_.own_files;
            parts.push_back(
                {Fd(files_[own ? i : 0]->path(), flags), own ? 0 : i * size, size, Block(options_.block_bytes)});
        }
        return parts;
    }
    void all(std::vector<Part>& parts, void (*work)(Part&, size_t)) const {
        if (parts.size() == 1) return work(parts[0], options_.block_bytes);
        std::vector<std::future<void>> running;
        for (auto& part : parts) {
            running.push_back(std::async(std::launch::async, work, std::ref(part), options_.block_bytes));
        }
        for (auto& each : running) each.get();
    }

    const Options& options_;
    std::vector<std::unique_ptr<ScratchFile>> files_;
};

// ---- Mapped --------------------------------------------------------------------------------------------------------

// Four sums, so that the additions are not the bottleneck.
uint64_t sum_of(const uint64_t* words, size_t count) {
    std::array<uint64_t, 4> sums = {};
    for (size_t i = 0; i + 4 <= count; i += 4) {
        for (size_t k = 0; k < 4; ++k) sums[k] += words[i + k];
    }
    return sums[0] + sums[1] + sums[2] + sums[3];
}

void mmap_read(const Options& options) {
    constexpr uint64_t kBlock = 1 << 20;
    if (options.bytes == 0 || options.bytes % kBlock) fail("--bytes must be a multiple of 1M");
    const ScratchFile file(options.folder);
    uint64_t expected = 0;
    {
        Part part = {Fd(file.path(), O_RDWR | O_CREAT | O_TRUNC), 0, options.bytes, Block(kBlock)};
        write_part(part, kBlock);
        part.block.mark(0);
        const uint64_t rest = sum_of(reinterpret_cast<const uint64_t*>(part.block.data()), kBlock / 8);
        for (uint64_t at = 0; at < options.bytes; at += kBlock) expected += at + rest;
    }
    const Fd fd(file.path(), O_RDONLY);
    Figure first("mmap-read", "GB/s");
    Figure again("mmap-read-again", "GB/s");
    for (unsigned i = 0; i < options.repetitions; ++i) {
        void* mapped = nullptr;
        for (Figure* figure : {&first, &again}) {
            uint64_t sum = 0;
            const double seconds = seconds_of([&] {
                if (!mapped) mapped = ::mmap(nullptr, options.bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
                check(mapped != MAP_FAILED, "mmap");
                sum = sum_of(static_cast<const uint64_t*>(mapped), options.bytes / 8);
            });
            if (sum != expected) fail("wrong data in the mapping");
            figure->add(static_cast<double>(options.bytes) / seconds / 1e9);
        }
        ::munmap(mapped, options.bytes);
    }
    first.print();
    again.print();
}

// ---- Calls a second ------------------------------------------------------------------------------------------------

// call(i) for i below the count, in every repetition.
template <typename Call>
void rate(const Options& options, const char* name, Call&& call) {
    Figure figure(name, "/s");
    for (unsigned repetition = 0; repetition < options.repetitions; ++repetition) {
        const double seconds = seconds_of([&] {
            for (size_t i = 0; i < options.count; ++i) call(i);
        });
        figure.add(static_cast<double>(options.count) / seconds);
    }
    figure.print();
}

void small(const Options& options) {
    constexpr uint64_t kSmall = 4096;
    if (options.bytes == 0 || options.bytes % (1 << 20)) fail("--bytes must be a multiple of 1M");
    const ScratchFile file(options.folder);
    Part part = {Fd(file.path(), O_RDWR | O_CREAT | O_TRUNC), 0, options.bytes, Block(kSmall)};
    write_part(part, kSmall);
    std::vector<uint64_t> offsets(options.count);
    std::mt19937_64 random(1);  // the same offsets every time
    for (auto& offset : offsets) offset = random() % (options.bytes / kSmall) * kSmall;
    rate(options, "small-read", [&](size_t i) {
        read_at(part.fd.get(), part.block.data(), kSmall, offsets[i]);
        part.block.expect(offsets[i]);
    });
    rate(options, "small-write", [&](size_t i) {
        part.block.mark(offsets[i]);
        write_at(part.fd.get(), part.block.data(), kSmall, offsets[i]);
    });
}

void metadata(const Options& options) {
    // A few files, used in turn. More would measure lookups in large directories, which `list` does.
    constexpr size_t kFiles = 64;
    std::vector<std::unique_ptr<ScratchFile>> files;
    for (size_t i = 0; i < kFiles; ++i) {
        files.push_back(std::make_unique<ScratchFile>(options.folder));
        const Fd made(files.back()->path(), O_WRONLY | O_CREAT | O_EXCL);
    }
    const auto path = [&](size_t i) { return files[i % kFiles]->path().c_str(); };

    rate(options, "stat", [&](size_t i) {
        struct stat info;
        check(::stat(path(i), &info) == 0, "stat");
    });
    rate(options, "stat-sync", [&](size_t i) {
        struct statx info;
        check(::statx(AT_FDCWD, path(i), AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &info) == 0, "statx");
    });
    size_t names = 0;
    std::string missing;
    rate(options, "lookup", [&](size_t) {
        struct stat info;
        missing.assign(options.folder).append("/missing.").append(std::to_string(names++));
        check(::stat(missing.c_str(), &info) == -1 && errno == ENOENT, "stat of a missing name");
    });
    rate(options, "open-close", [&](size_t i) {
        const int fd = ::open(path(i), O_RDWR | O_CLOEXEC);
        check(fd >= 0, "open");
        check(::close(fd) == 0, "close");
    });
    const ScratchFile brief(options.folder);
    rate(options, "create-unlink", [&](size_t) {
        const int fd = ::open(brief.path().c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        check(fd >= 0, "create");
        check(::close(fd) == 0, "close");
        check(::unlink(brief.path().c_str()) == 0, "unlink");
    });
}

// ---- Listing -------------------------------------------------------------------------------------------------------

// Folders of `count` empty files each.
class Folders {
public:
    explicit Folders(const Options& options) : options_(options) {
        for (size_t i = 0; i < options.folders; ++i) {
            paths_.push_back(options.folder + "/list-" + std::to_string(options.count) + "-" + std::to_string(i));
        }
    }
    Folders(const Folders&) = delete;
    Folders& operator=(const Folders&) = delete;
    ~Folders() {
        if (options_.keep) return;
        for (const auto& path : paths_) {
            for (size_t i = 0; i < options_.count; ++i) ::unlink(name(path, i).c_str());
            ::rmdir(path.c_str());
        }
    }

    // Returns the number of files made; files of an earlier call are not counted.
    size_t make() const {
        size_t made = 0;
        for (const auto& path : paths_) {
            if (::mkdir(path.c_str(), 0700) == -1) {
                check(errno == EEXIST, "mkdir " + path);
                continue;
            }
            for (size_t i = 0; i < options_.count; ++i) {
                const Fd file(name(path, i), O_WRONLY | O_CREAT | O_EXCL);
                ++made;
            }
        }
        return made;
    }

    void list(bool with_stat) const {
        for (const auto& path : paths_) {
            const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
            check(folder != nullptr, "opendir " + path);
            size_t found = 0;
            while (const dirent* entry = ::readdir(folder.get())) {
                if (entry->d_name[0] == '.') continue;
                ++found;
                struct stat info;
                if (with_stat) {
                    check(::fstatat(::dirfd(folder.get()), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0, "fstatat");
                }
            }
            if (found != options_.count) fail(path + " has " + std::to_string(found) + " entries");
        }
    }

private:
    static std::string name(const std::string& path, size_t index) { return path + "/file-" + std::to_string(index); }

    const Options& options_;
    std::vector<std::string> paths_;
};

void list(const Options& options) {
    const Folders folders(options);
    size_t made = 0;
    const double making = seconds_of([&] { made = folders.make(); });
    Figure create("list-create", "us");
    if (made > 0) create.add(making / static_cast<double>(made) * 1e6);
    Figure names("list", "us");
    Figure stats("list-stat", "us");
    const auto entries = static_cast<double>(options.count * options.folders);
    for (unsigned i = 0; i < options.repetitions; ++i) {
        names.add(seconds_of([&] { folders.list(false); }) / entries * 1e6);
        stats.add(seconds_of([&] { folders.list(true); }) / entries * 1e6);
    }
    create.print();
    names.print();
    stats.print();
}

// ---- The command line ----------------------------------------------------------------------------------------------

[[noreturn]] void usage(int status) {
    std::fputs(kUsage, status ? stderr : stdout);
    std::exit(status);
}

// "512M" etc.; at least 1.
uint64_t number(const char* text) {
    char* end = nullptr;
    errno = 0;
    uint64_t value = std::strtoull(text, &end, 10);
    const std::string_view units = "KMG";
    if (const size_t unit = units.find(*end); *end && unit != units.npos) {
        value <<= 10 * (unit + 1);
        ++end;
    }
    if (errno || *end || value == 0 || value > 1ull << 40) {
        std::fprintf(stderr, "mount_bench: '%s' is no number between 1 and 1024G\n", text);
        usage(2);
    }
    return value;
}

Options parse(int argc, char** argv) {
    enum { kBytes = 256, kBlock, kThreads, kOwnFiles, kCount, kFolders, kRepetitions, kFresh, kKeep };
    const option long_options[] = {{"bytes", required_argument, nullptr, kBytes},
                                   {"block", required_argument, nullptr, kBlock},
                                   {"threads", required_argument, nullptr, kThreads},
                                   {"own-files", no_argument, nullptr, kOwnFiles},
                                   {"count", required_argument, nullptr, kCount},
                                   {"folders", required_argument, nullptr, kFolders},
                                   {"repetitions", required_argument, nullptr, kRepetitions},
                                   {"fresh", no_argument, nullptr, kFresh},
                                   {"keep", no_argument, nullptr, kKeep},
                                   {"help", no_argument, nullptr, 'h'},
                                   {}};
    Options options;
    int choice = 0;
    while ((choice = ::getopt_long(argc, argv, "h", long_options, nullptr)) != -1) {
        switch (choice) {
            case kBytes: options.bytes = number(optarg); break;
            case kBlock: options.block_bytes = number(optarg); break;
            case kThreads: options.threads = static_cast<unsigned>(number(optarg)); break;
            case kOwnFiles: options.own_files = true; break;
            case kCount: options.count = number(optarg); break;
            case kFolders: options.folders = number(optarg); break;
            case kRepetitions: options.repetitions = static_cast<unsigned>(number(optarg)); break;
            case kFresh: options.fresh = true; break;
            case kKeep: options.keep = true; break;
            case 'h': usage(0);
            default: usage(2);
        }
    }
    if (argc - optind != 2) usage(2);
    options.what = argv[optind];
    options.folder = argv[optind + 1];
    if (options.fresh && options.what != "seq-write") usage(2);
    if (options.bytes == 0) options.bytes = (options.what == "small" ? 64ull : 512ull) << 20;
    if (options.count == 0) options.count = options.what == "list" ? 1000 : 5000;
    return options;
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = parse(argc, argv);
    try {
        if (options.what == "seq-read" || options.what == "seq-write") {
            Sequential(options).run();
        } else if (options.what == "mmap-read") {
            mmap_read(options);
        } else if (options.what == "small") {
            small(options);
        } else if (options.what == "metadata") {
            metadata(options);
        } else if (options.what == "list") {
            list(options);
        } else {
            usage(2);
        }
    } catch (const std::exception& error) {
        std::fprintf(stderr, "mount_bench: %s in %s: %s\n", options.what.c_str(), options.folder.c_str(), error.what());
        return 1;
    }
    return 0;
}
