// The daemon is killed with SIGKILL while programs use the mount: the programs only see a pause.
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/xattr.h>

#include "mount/survival_fixture.h"

namespace gshm::core::test {
namespace {

constexpr int kKills = 20;

class MountSurvival : public SurvivalTest {
protected:
    // A `cp` into the mount that proceeds in steps.
    class Copy {
    public:
        Copy(std::string to, uint64_t bytes, uint64_t seed) : bytes_(bytes), seed_(seed) {
            started_ = cp_.spawn({"/bin/cp", "/dev/stdin", to});
            feeder_ = std::thread([this] { feed(); });
        }
        ~Copy() {
            allow(bytes_);
            if (feeder_.joinable()) feeder_.join();
        }
        void allow(uint64_t bytes) { allowed_ = bytes; }
        // False: the copy has ended too early.
        bool wait_for(uint64_t bytes) {
            while (fed_ < bytes && started_ && !broken_) usleep(200);
            return fed_ >= bytes;
        }
        RunResult finish() {
            allow(bytes_);
            feeder_.join();
            return cp_.finish({}, std::chrono::minutes(10));
        }

    private:
        void feed() {
            std::string piece;
            while (fed_ < bytes_ && !broken_) {
                while (fed_ >= allowed_) usleep(100);
                piece = pattern(std::min<uint64_t>(bytes_ - fed_, 64 << 10), seed_, fed_);
                if (!cp_.feed(piece)) broken_ = true;
                else fed_ += piece.size();
            }
        }

        const uint64_t bytes_;
        const uint64_t seed_;
        ChildProcess cp_;
        bool started_ = false;
        std::atomic<uint64_t> allowed_ = 0;
        std::atomic<uint64_t> fed_ = 0;
        std::atomic<bool> broken_ = false;
        std::thread feeder_;
    };

    static uint64_t copied_bytes() {
        const char* large = std::getenv("GSHM_SURVIVAL_MIB");
        return (large != nullptr ? std::strtoull(large, nullptr, 10) : 128) * kMiB;
    }
    bool start_for(uint64_t bytes) {
        const std::string room = ":" + std::to_string(bytes / kMiB * 2 + 256) + "M";
        // A growing file needs twice its memory for a moment; the fake driver has 1 GiB by default.
        if (bytes > 256 * kMiB) setenv("FAKECUDA_MEMORY", "8G", 0);
        if (GetParam() == Way::cuda)
            return start_mounted(GetParam(), {"--device", "cuda:0" + room, "--device", "host:64M"});
        return start_mounted(GetParam(), {"--device", "host" + room});
    }
    // Reads and writes through descriptors that are opened once.
    static std::string use_open_files(Workers::Self& self, const std::string& read_path,
                                      const std::string& write_path) {
        const int reader = open(read_path.c_str(), O_RDONLY | O_CLOEXEC);
        const int writer = open(write_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (reader < 0 || writer < 0) return failed("open");
        Random random(7 + self.number());
        std::string bytes;
        for (uint64_t round = 0; self.goes_on(); ++round) {
            const uint64_t offset = random.below(7 * kMiB);
            bytes.resize(1 + random.below(300'000));
            if (pread(reader, bytes.data(), bytes.size(), static_cast<off_t>(offset)) !=
                static_cast<ssize_t>(bytes.size())) {
                return failed("pread of " + std::to_string(bytes.size()));
            }
            if (first_wrong(bytes, 1, offset) != bytes.size()) return "wrong bytes at " + std::to_string(offset);
            const auto at = static_cast<off_t>(round % 1000 * 4096);
            const std::string put = pattern(4096, round);
            if (pwrite(writer, put.data(), put.size(), at) != 4096) return failed("pwrite");
            std::string got(4096, '\0');
            if (pread(writer, got.data(), got.size(), at) != 4096) return failed("pread of what was written");
            if (got != put) return "what was written is not there";
        }
        if (close(reader) != 0 || close(writer) != 0) return failed("close");
        return {};
    }
    static std::string use_mapping(Workers::Self& self, const std::string& path) {
        constexpr size_t kBytes = 4 * kMiB;
        const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
        if (fd < 0) return failed("open");
        void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (memory == MAP_FAILED) return failed("mmap");
        close(fd);
        auto* words = static_cast<volatile uint64_t*>(memory);
        constexpr size_t kWords = kBytes / sizeof(uint64_t);
        uint64_t last = 0;
        for (uint64_t round = 1; self.goes_on(); ++round) {
            for (size_t page = 0; page < kWords; page += 512) {
                if (words[page] != last) return "a mapped page has lost what was written";
                words[page] = round;
                if (words[page + 1] != mix(2 ^ mix(page + 1))) return "a mapped page has other bytes";
            }
            last = round;
            if (round % 8 == 0 && msync(memory, kBytes, MS_SYNC) != 0) return failed("msync");
            usleep(500);
        }
        if (msync(memory, kBytes, MS_SYNC) != 0 || munmap(memory, kBytes) != 0) return failed("munmap");
        const std::string bytes = read_file(path);
        if (bytes.size() != kBytes) return "the mapped file has another size";
        for (size_t page = 0; page < kWords; page += 512) {
            uint64_t word = 0;
            std::memcpy(&word, bytes.data() + page * sizeof word, sizeof word);
            if (word != last) return "the file has not what was mapped";
        }
        return {};
    }
    static std::string wrong_place(const std::string& path, uint64_t bytes, uint64_t seed) {
        const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) return failed("open");
        std::string piece(kMiB, '\0');
        for (uint64_t done = 0; done < bytes; done += piece.size()) {
            piece.resize(std::min<uint64_t>(bytes - done, kMiB));
            if (read(fd, piece.data(), piece.size()) != static_cast<ssize_t>(piece.size())) return failed("read");
            if (size_t at = first_wrong(piece, seed, done); at != piece.size())
                return "at " + std::to_string(done + at);
        }
        char further = 0;
        const bool ends = read(fd, &further, 1) == 0;
        close(fd);
        return ends ? "" : "it is too long";
    }
    std::string make_files(Workers& workers) {
        std::string mapped = pattern(4 * kMiB, 2);
        for (size_t page = 0; page < mapped.size(); page += 4096) std::memset(mapped.data() + page, 0, 8);
        if (!write_file(at("read"), pattern(8 * kMiB, 1)) || !write_file(at("mapped"), mapped)) return failed("write");
        workers.add([&](Workers::Self& self) { return use_open_files(self, at("read"), at("written")); });
        workers.add([&](Workers::Self& self) { return use_mapping(self, at("mapped")); });
        return {};
    }
};

TEST_P(MountSurvival, ACopyAReaderAndAMappingAcrossTwentyKills) {
    const uint64_t bytes = copied_bytes();
    ASSERT_TRUE(start_for(bytes)) << log();
    Workers workers;
    ASSERT_EQ(make_files(workers), "");
    ASSERT_TRUE(workers.wait_for_rounds(1)) << workers.finish();
    Random random(11);
    Copy copy(at("copy"), bytes, 3);
    const uint64_t step = bytes / (kKills + 1);
    for (int i = 0; i < kKills; ++i) {
        copy.allow(step * static_cast<uint64_t>(i + 1));
        ASSERT_TRUE(copy.wait_for(step * static_cast<uint64_t>(i) + random.below(step / 2))) << "cp has ended";
        usleep(static_cast<useconds_t>(random.below(2000)));
        ASSERT_TRUE(kill_once(random)) << log();
        ASSERT_TRUE(workers.all_run()) << workers.finish() << log();
    }
    const RunResult copied = copy.finish();
    EXPECT_EQ(copied.exit_code, 0) << copied.err;
    EXPECT_EQ(copied.err, "");
    EXPECT_TRUE(workers.wait_for_rounds(2));
    EXPECT_EQ(workers.finish(), "");
    EXPECT_EQ(wrong_place(at("copy"), bytes, 3), "");
    EXPECT_EQ(wrong_place(at("read"), 8 * kMiB, 1), "");
    EXPECT_TRUE(frees_all());
}

TEST_P(MountSurvival, ACopyGoesOnWhileTheDaemonIsReplaced) {
    const uint64_t bytes = 64 * kMiB;
    ASSERT_TRUE(start_for(bytes)) << log();
    Workers workers;
    ASSERT_EQ(make_files(workers), "");
    Copy copy(at("copy"), bytes, 4);
    for (int i = 0; i < 5; ++i) {
        copy.allow(bytes / 6 * static_cast<uint64_t>(i + 1));
        ASSERT_TRUE(copy.wait_for(bytes / 6 * static_cast<uint64_t>(i) + 1)) << "cp has ended";
        ASSERT_TRUE(take_over_mounted(GetParam())) << log();
        ASSERT_TRUE(workers.all_run()) << workers.finish() << log();
    }
    const RunResult copied = copy.finish();
    EXPECT_EQ(copied.exit_code, 0) << copied.err;
    EXPECT_EQ(workers.finish(), "");
    EXPECT_EQ(wrong_place(at("copy"), bytes, 4), "");
    EXPECT_TRUE(frees_all());
}

// ---- names ----

#define MUST(call) \
    if ((call) != 0) return failed(#call)

// Each call succeeds on any local file system, since no other process works in this folder.
std::string change_names(const std::string& folder, uint64_t round) {
    auto failed = [&](const char* what) {
        return std::string(what) + ": " + strerror(errno) + " in round " + std::to_string(round);
    };
    const std::string a = folder + "/a", b = folder + "/b", d = folder + "/d", inner = d + "/inner";
    MUST(mkdir(d.c_str(), 0755));
    int fd = open(a.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) return failed("open(a, O_CREAT | O_EXCL)");
    const std::string bytes = pattern(100 + round % 5000, round);
    if (write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) return failed("write");
    MUST(fsetxattr(fd, "user.round", &round, sizeof round, XATTR_CREATE));
    MUST(close(fd));
    MUST(link(a.c_str(), b.c_str()));
    struct stat info = {};
    MUST(stat(b.c_str(), &info));
    if (info.st_nlink != 2) return failed("a file with two names has not two");
    MUST(symlink("../a", inner.c_str()));
    MUST(setxattr(b.c_str(), "user.more", "x", 1, XATTR_CREATE));
    MUST(removexattr(a.c_str(), "user.more"));
    if (getxattr(a.c_str(), "user.more", nullptr, 0) >= 0) return failed("a removed attribute is there");
    MUST(rename(b.c_str(), (folder + "/c").c_str()));
    MUST(mkfifo(b.c_str(), 0600));
    MUST(rename(b.c_str(), (d + "/pipe").c_str()));
    if (MountFixture::read_file(inner) != bytes) return failed("other bytes through the symbolic link");
    MUST(unlink(inner.c_str()));
    MUST(unlink((d + "/pipe").c_str()));
    MUST(rename(d.c_str(), (folder + "/e").c_str()));
    fd = open(folder.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    if (fd < 0) return failed("open(O_TMPFILE)");
    if (write(fd, "unnamed", 7) != 7) return failed("write to what has no name");
    const std::string by_descriptor = "/proc/self/fd/" + std::to_string(fd);
    MUST(linkat(AT_FDCWD, by_descriptor.c_str(), AT_FDCWD, b.c_str(), AT_SYMLINK_FOLLOW));
    MUST(close(fd));
    MUST(rename(b.c_str(), a.c_str()));  // over an existing file
    if (MountFixture::read_file(a) != "unnamed") return failed("renamed over, but not there");
    MUST(truncate(a.c_str(), 3));
    MUST(chmod(a.c_str(), 0600));
    MUST(stat(a.c_str(), &info));
    if (info.st_size != 3 || (info.st_mode & 0777) != 0600) return failed("size or mode are not as set");
    if (renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, (folder + "/c").c_str(), RENAME_EXCHANGE) != 0)
        return failed("exchange");
    MUST(unlink(a.c_str()));
    MUST(unlink((folder + "/c").c_str()));
    MUST(rmdir((folder + "/e").c_str()));
    DIR* listing = opendir(folder.c_str());
    if (listing == nullptr) return failed("opendir");
    std::string left;
    errno = 0;
    for (const dirent* entry; (entry = readdir(listing)) != nullptr;) {
        if (entry->d_name[0] != '.') left += std::string(" ") + entry->d_name;
    }
    if (errno != 0) return failed("readdir");
    closedir(listing);
    return left.empty() ? "" : "left behind:" + left;
}

class MountSurvivalOfNames : public SurvivalTest {};

TEST_P(MountSurvivalOfNames, ChangesInFlightAreDoneOnce) {
    ASSERT_TRUE(start_mounted(GetParam())) << log();
    Workers workers;
    for (int i = 0; i < 4; ++i) {
        const std::string folder = at("w" + std::to_string(i));
        workers.add([folder](Workers::Self& self) -> std::string {
            if (setgid(user()) != 0 || setuid(user()) != 0) return failed("setuid");
            if (mkdir(folder.c_str(), 0755) != 0) return failed("mkdir");
            for (uint64_t round = 0; self.goes_on(); ++round) {
                if (std::string wrong = change_names(folder, round); !wrong.empty()) return wrong;
            }
            return rmdir(folder.c_str()) == 0 ? "" : failed("rmdir");
        });
    }
    Random random(21);
    for (int i = 0; i < kKills; ++i) {
        ASSERT_TRUE(workers.wait_for_rounds(1)) << workers.finish() << log();
        usleep(static_cast<useconds_t>(random.below(20'000)));
        ASSERT_TRUE(kill_once(random)) << log();
    }
    EXPECT_TRUE(workers.wait_for_rounds(2));
    EXPECT_EQ(workers.finish(), "") << log();
    EXPECT_TRUE(frees_all());
}

// The notification of the kernel about the library's names waits for the folder's lock; a process that changes the
// folder holds it and waits for the daemon. A daemon that is killed then must end nevertheless.
TEST_P(MountSurvivalOfNames, NamesOfTheLibraryInTheSameFolder) {
    ASSERT_TRUE(start_mounted(GetParam())) << log();
    const std::string folder = at("both");
    ASSERT_EQ(run_as(user(), [&]() -> std::string { return mkdir(folder.c_str(), 0755) == 0 ? "" : failed("mkdir"); }),
              "");
    Workers workers;
    for (int i = 0; i < 3; ++i) {
        workers.add([folder](Workers::Self& self) -> std::string {
            if (setgid(user()) != 0 || setuid(user()) != 0) return failed("setuid");
            const std::string inner = folder + "/d" + std::to_string(self.number());
            while (self.goes_on()) {
                if (mkdir(inner.c_str(), 0755) != 0) return failed("mkdir");
                if (rmdir(inner.c_str()) != 0) return failed("rmdir");
            }
            return {};
        });
    }
    workers.add([this](Workers::Self& self) -> std::string {
        if (setgid(user()) != 0 || setuid(user()) != 0) return failed("setuid");
        auto client = Client::connect({.dir = dir()});
        if (!client) return client.error().message;
        for (uint64_t round = 0; self.goes_on(); ++round) {
            const std::string name = "both/" + std::to_string(round);
            // A daemon that is killed during the request may have executed it or not.
            auto made = client->create({.name = name, .size_bytes = 4096, .device = "host"});
            if (!made && made.error().code != ECONNRESET) return made.error().message;
            auto gone = client->unlink(name);
            if (!gone && gone.error().code != ECONNRESET && gone.error().code != ENOENT) return gone.error().message;
        }
        return {};
    });
    Random random(22);
    for (int i = 0; i < kKills; ++i) {
        ASSERT_TRUE(workers.wait_for_rounds(20)) << workers.finish() << log();
        ASSERT_TRUE(kill_once(random)) << log();
    }
    EXPECT_TRUE(workers.wait_for_rounds(2));
    EXPECT_EQ(workers.finish(), "") << log();
    EXPECT_TRUE(frees_all());
}

INSTANTIATE_TEST_SUITE_P(Ways, MountSurvival, ::testing::Values(Way::passthrough, Way::through, Way::cuda), way_of);
INSTANTIATE_TEST_SUITE_P(Ways, MountSurvivalOfNames,
                         ::testing::Values(Way::passthrough, Way::through, Way::user, Way::cuda), way_of);

}  // namespace
}  // namespace gshm::core::test
