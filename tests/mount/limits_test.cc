// Limits on accounts in the mount: EDQUOT for every way in which a file gets larger, and never a byte beyond.
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "mount/mount_fixture.h"
#include <gshm/gshm.hpp>

namespace gshm::core::test {
namespace {

constexpr off_t kKiB = 1 << 10;
constexpr off_t kMiB = 1 << 20;
constexpr uid_t kUser = MountFixture::kNobody;

// "what: wanted EDQUOT, got …" unless the call failed with that errno.
std::string refused(const char* what, bool failed, int wanted = EDQUOT) {
    if (failed && errno == wanted) return {};
    return std::string(what) + (failed ? std::string(": ") + strerror(errno) : ": not refused") + "\n";
}
std::string done(const char* what, bool good) {
    return good ? "" : std::string(what) + ": " + strerror(errno) + "\n";
}

class MountLimits : public ::testing::TestWithParam<Way>, protected MountFixture {
protected:
    void SetUp() override {
        if (auto missing = missing_for(GetParam()); !missing.empty()) GTEST_SKIP() << missing;
        ASSERT_TRUE(start_mounted(GetParam())) << log();
        connect_again();
    }
    void connect_again() {
        auto connected = Client::connect({.dir = dir()});
        ASSERT_TRUE(connected) << connected.error().message;
        client_ = std::move(*connected);
    }
    void set(uint32_t kind, uint32_t id, uint64_t bytes, uint64_t objects, const std::string& path = {}) {
        Limit limit;
        limit.info.kind = kind;
        limit.info.id = id;
        limit.info.fields = GSHM_LIMIT_BYTES | GSHM_LIMIT_OBJECTS;
        limit.info.bytes = bytes;
        limit.info.objects = objects;
        limit.path = path;
        auto set = client_.set_limit(limit);
        ASSERT_TRUE(set) << set.error().message;
    }
    void set_user(uint64_t bytes, uint64_t objects = 0) { set(GSHM_LIMIT_USER, kUser, bytes, objects); }
    gshm_limit of_user() {
        Limit which;
        which.info.kind = GSHM_LIMIT_USER;
        which.info.id = kUser;
        auto found = client_.limits(GSHM_LIMITS_ID, which);
        EXPECT_TRUE(found);
        for (const auto& one : *found) {
            if (one.device.empty()) return one.info;
        }
        return GSHM_LIMIT_INIT;
    }
    std::string as_user(const std::function<std::string()>& body) { return run_as(kUser, body); }

    Client client_;
};

TEST_P(MountLimits, NoWayToGrowLeadsBeyond) {
    set_user(kMiB);
    EXPECT_EQ(as_user([&]() -> std::string {
                  const std::string bytes(kMiB, 'x');
                  const int fd = open(at("a").c_str(), O_RDWR | O_CREAT, 0644);
                  if (fd < 0) return "open";
                  std::string wrong;
                  wrong += done("write", write(fd, bytes.data(), kMiB - 1) == kMiB - 1);
                  wrong += refused("write beyond", pwrite(fd, "xy", 2, kMiB - 1) < 0);
                  wrong += done("last byte", pwrite(fd, "x", 1, kMiB - 1) == 1);
                  wrong += refused("one byte more", pwrite(fd, "x", 1, kMiB) < 0);
                  wrong += refused("far beyond", pwrite(fd, "x", 1, 100 * kMiB) < 0);
                  wrong += refused("ftruncate", ftruncate(fd, kMiB + 1) != 0);
                  wrong += refused("truncate", truncate(at("a").c_str(), kMiB + 1) != 0);
                  wrong += refused("fallocate", fallocate(fd, 0, kMiB, 1) != 0);
                  wrong += refused("fallocate beyond the end", fallocate(fd, FALLOC_FL_KEEP_SIZE, kMiB, 4 * kMiB) != 0,
                                   EOPNOTSUPP);
                  wrong += done("fallocate inside", fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, kMiB) == 0);
                  wrong += done("overwrite", pwrite(fd, bytes.data(), kMiB, 0) == kMiB);
                  const int appending = open(at("a").c_str(), O_WRONLY | O_APPEND);
                  wrong += refused("append", write(appending, "x", 1) < 0);
                  const int other = open(at("b").c_str(), O_RDWR | O_CREAT, 0644);
                  wrong += refused("another file", write(other, "x", 1) < 0);
                  wrong += refused("a copy", copy_file_range(fd, nullptr, other, nullptr, 100, 0) < 0);
                  const int unnamed = open(mount().c_str(), O_RDWR | O_TMPFILE, 0600);
                  wrong += refused("a file without a name", write(unnamed, "x", 1) < 0);
                  struct stat status = {};
                  wrong += done("size", fstat(fd, &status) == 0 && status.st_size == kMiB);
                  wrong += done("shrink", ftruncate(fd, kMiB - 10) == 0);
                  wrong += done("room again", pwrite(other, "0123456789", 10, 0) == 10);
                  wrong += refused("and full again", pwrite(fd, "x", 1, kMiB - 10) < 0);
                  return wrong;
              }),
              "");
    EXPECT_EQ(of_user().used_bytes, static_cast<uint64_t>(kMiB));
}

TEST_P(MountLimits, MappingsReadAndWriteWhatIsThere) {
    set_user(kMiB);
    EXPECT_EQ(as_user([&]() -> std::string {
                  const int fd = open(at("a").c_str(), O_RDWR | O_CREAT, 0644);
                  std::string wrong = done("truncate", ftruncate(fd, kMiB) == 0);
                  const int prot = PROT_READ | PROT_WRITE;
                  void* mapped = mmap(nullptr, kMiB, prot, MAP_SHARED, fd, 0);
                  // GPU memory and ordinary users have no shared mappings for writing.
                  if (mapped == MAP_FAILED) return wrong;
                  memset(mapped, 'm', kMiB);
                  char byte = 0;
                  wrong += done("read", pread(fd, &byte, 1, kMiB - 1) == 1 && byte == 'm');
                  wrong += done("write", pwrite(fd, "w", 1, 5) == 1 && static_cast<char*>(mapped)[5] == 'w');
                  wrong += refused("grow", ftruncate(fd, kMiB + 1) != 0);
                  return wrong;
              }),
              "");
}

TEST_P(MountLimits, ObjectsAreCountedToo) {
    set_user(0, 2);
    EXPECT_EQ(as_user([&]() -> std::string {
                  std::string wrong;
                  wrong += done("first", open(at("a").c_str(), O_RDWR | O_CREAT, 0644) >= 0);
                  wrong += done("second", mknod(at("b").c_str(), S_IFREG | 0644, 0) == 0);
                  wrong += refused("third", open(at("c").c_str(), O_RDWR | O_CREAT, 0644) < 0);
                  wrong += refused("by mknod", mknod(at("c").c_str(), S_IFREG | 0644, 0) != 0);
                  wrong += refused("without a name", open(mount().c_str(), O_RDWR | O_TMPFILE, 0600) < 0);
                  wrong += done("a directory", mkdir(at("d").c_str(), 0755) == 0);
                  wrong += done("a link", link(at("a").c_str(), at("d/a").c_str()) == 0);
                  // A removed file counts until the kernel has forgotten it.
                  for (int i = 0; i < 300 && wrong.empty(); ++i) {
                      wrong += done("unlink", unlink(at("b").c_str()) == 0);
                      wrong += done("again", mknod(at("b").c_str(), S_IFREG | 0644, 0) == 0);
                      wrong += done("unlink again", unlink(at("b").c_str()) == 0);
                      const int fd = open(at("b").c_str(), O_RDWR | O_CREAT, 0644);
                      wrong += done("by open", fd >= 0);
                      close(fd);
                  }
                  return wrong;
              }),
              "");
    EXPECT_EQ(of_user().used_objects, 2u);
}

TEST_P(MountLimits, AnotherOwnerNeedsRoom) {
    if (GetParam() == Way::user) GTEST_SKIP() << "an ordinary user gives no file away";
    set_user(100 * kKiB);
    ASSERT_TRUE(write_file(at("large"), std::string(101 * kKiB, 'x')));
    ASSERT_TRUE(write_file(at("small"), std::string(60 * kKiB, 'x')));
    ASSERT_TRUE(write_file(at("second"), std::string(60 * kKiB, 'x')));
    EXPECT_NE(chown(at("large").c_str(), kUser, kUser), 0);
    EXPECT_EQ(errno, EDQUOT);
    EXPECT_EQ(chown(at("small").c_str(), kUser, kUser), 0);
    EXPECT_NE(chown(at("second").c_str(), kUser, 0), 0);
    EXPECT_EQ(errno, EDQUOT);
    set(GSHM_LIMIT_GROUP, 4711, kKiB, 0);
    EXPECT_NE(chown(at("second").c_str(), -1, 4711), 0);
    EXPECT_EQ(errno, EDQUOT);
    struct stat status = {};
    ASSERT_EQ(stat(at("second").c_str(), &status), 0);
    EXPECT_EQ(status.st_uid, 0u);
    EXPECT_EQ(of_user().used_bytes, static_cast<uint64_t>(60 * kKiB));
}

TEST_P(MountLimits, ADirectoryTakesNoMoreByAnyName) {
    if (GetParam() == Way::user) GTEST_SKIP() << "root may not look into an ordinary user's mount";
    ASSERT_EQ(mkdir(at("team").c_str(), 0777), 0);
    ASSERT_EQ(chmod(at("team").c_str(), 0777), 0);
    ASSERT_EQ(mkdir(at("work").c_str(), 0777), 0);
    set(GSHM_LIMIT_DIRECTORY, 0, 100 * kKiB, 3, "team");
    ASSERT_TRUE(write_file(at("team/a"), std::string(50 * kKiB, 'x')));
    ASSERT_TRUE(write_file(at("work/b"), std::string(51 * kKiB, 'x')));
    EXPECT_NE(rename(at("work/b").c_str(), at("team/b").c_str()), 0);
    EXPECT_EQ(errno, EDQUOT);
    EXPECT_NE(rename(at("work").c_str(), at("team/work").c_str()), 0);
    EXPECT_EQ(errno, EDQUOT);
    EXPECT_NE(link(at("work/b").c_str(), at("team/b").c_str()), 0);
    EXPECT_EQ(errno, EDQUOT);
    EXPECT_NE(renameat2(AT_FDCWD, at("work/b").c_str(), AT_FDCWD, at("team/a").c_str(), RENAME_EXCHANGE), 0);
    EXPECT_EQ(errno, EDQUOT);
    const int fd = open(at("team/c").c_str(), O_RDWR | O_CREAT, 0644);
    EXPECT_NE(ftruncate(fd, 51 * kKiB), 0);
    EXPECT_EQ(errno, EDQUOT);
    EXPECT_EQ(ftruncate(fd, 50 * kKiB), 0);
    close(fd);
    ASSERT_EQ(unlink(at("team/c").c_str()), 0);
    ASSERT_EQ(truncate(at("work/b").c_str(), 50 * kKiB), 0);
    EXPECT_EQ(rename(at("work").c_str(), at("team/work").c_str()), 0) << strerror(errno);
    EXPECT_NE(truncate(at("team/work/b").c_str(), 50 * kKiB + 1), 0);
    EXPECT_EQ(errno, EDQUOT);
}

// What was removed counts until the kernel has closed it, which it does a moment after close(2).
TEST_P(MountLimits, ARemovedFileMakesRoomAtOnce) {
    set_user(kMiB);
    EXPECT_EQ(as_user([&]() -> std::string {
                  const std::string bytes(kMiB, 'x');
                  for (int i = 0; i < 50; ++i) {
                      const int fd = open(at("a").c_str(), O_RDWR | O_CREAT | O_EXCL, 0644);
                      if (fd < 0) return "open " + std::to_string(i) + ": " + strerror(errno);
                      if (write(fd, bytes.data(), bytes.size()) != kMiB) return "write " + std::to_string(i);
                      close(fd);
                      if (unlink(at("a").c_str()) != 0) return "unlink";
                  }
                  return {};
              }),
              "");
}

TEST_P(MountLimits, SixteenProcessesTogetherGetExactlyWhatIsAllowed) {
    constexpr uint64_t kAllowed = 1'000'003;
    constexpr int kProcesses = 16;
    set_user(kAllowed);
    std::vector<pid_t> children;
    for (int i = 0; i < kProcesses; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            if (setgid(kUser) != 0 || setuid(kUser) != 0) _exit(9);
            const int fd = open(at(std::to_string(i)).c_str(), O_WRONLY | O_CREAT, 0644);
            if (fd < 0) _exit(8);
            off_t size = 0;
            // Smaller and smaller pieces, until not even one byte is left.
            for (size_t piece = 30'011; piece > 0;) {
                const std::string bytes(piece, 'x');
                const ssize_t put = pwrite(fd, bytes.data(), piece, size);
                if (put < 0 && errno != EDQUOT) _exit(7);
                if (put < 0) piece /= 2;
                else size += put;
            }
            struct stat status = {};
            _exit(fstat(fd, &status) == 0 && status.st_size == size ? 0 : 6);
        }
        children.push_back(child);
    }
    for (pid_t child : children) {
        int status = 0;
        waitpid(child, &status, 0);
        EXPECT_EQ(status, 0);
    }
    const uint64_t sum = of_user().used_bytes;
    EXPECT_LE(sum, kAllowed);
    EXPECT_EQ(as_user([&]() -> std::string {
                  uint64_t found = 0;
                  for (int i = 0; i < kProcesses; ++i) {
                      struct stat status = {};
                      if (stat(at(std::to_string(i)).c_str(), &status) != 0) return "stat";
                      found += static_cast<uint64_t>(status.st_size);
                  }
                  return found == sum ? "" : "the files have " + std::to_string(found) + " bytes";
              }),
              "");
    EXPECT_EQ(as_user([&]() -> std::string {
                  const int fd = open(at("0").c_str(), O_WRONLY | O_APPEND);
                  const std::string rest(kAllowed - sum, 'x');
                  return done("the rest", write(fd, rest.data(), rest.size()) == static_cast<ssize_t>(rest.size())) +
                         refused("one more", write(fd, "x", 1) < 0);
              }),
              "");
}

// The library gives a process a descriptor of the memory, by which a file could grow.
TEST_P(MountLimits, AFileOpenedByTheLibraryCannotBeMadeLarger) {
    if (GetParam() == Way::cuda) GTEST_SKIP() << "memory of a GPU is no file";
    ASSERT_EQ(as_user([&] { return done("write", write_file(at("a"), std::string(kMiB, 'x'))); }), "");
    set_user(4 * kMiB);
    {
        // The kernel reports the close a moment after close(2).
        auto object = client_.open("a", {.write = true});
        for (int i = 0; i < 12'000 && !object && object.error().code == EBUSY; ++i) {
            usleep(10'000);
            object = client_.open("a", {.write = true});
        }
        ASSERT_TRUE(object) << object.error().message;
        auto exported = object->export_fd();
        ASSERT_TRUE(exported) << exported.error().message;
        EXPECT_NE(ftruncate(exported->fd.get(), 64 * kMiB), 0);
        const char byte = 'y';
        EXPECT_LT(pwrite(exported->fd.get(), &byte, 1, 8 * kMiB), 0);
        EXPECT_EQ(pwrite(exported->fd.get(), &byte, 1, 5), 1);
    }
    EXPECT_EQ(as_user([&]() -> std::string {
                  // The file is as before, for the mount too.
                  const int fd = open(at("a").c_str(), O_RDWR);
                  char bytes[8] = {};
                  std::string wrong = done("read", pread(fd, bytes, 7, 0) == 7 && std::string(bytes) == "xxxxxyx");
                  wrong += done("grow", pwrite(fd, "z", 1, 2 * kMiB) == 1);
                  wrong += refused("beyond", pwrite(fd, "z", 1, 4 * kMiB) < 0);
                  wrong += done("read", pread(fd, bytes, 7, 0) == 7 && std::string(bytes) == "xxxxxyx");
                  return wrong;
              }),
              "");
    EXPECT_EQ(of_user().used_bytes, static_cast<uint64_t>(2 * kMiB + 1));
}

TEST_P(MountLimits, AFileThatIsOpenInTheMountIsBusyForTheLibrary) {
    if (GetParam() == Way::cuda) GTEST_SKIP() << "memory of a GPU is no file";
    if (GetParam() == Way::user) GTEST_SKIP() << "root may not look into an ordinary user's mount";
    const int fd = open(at("a").c_str(), O_RDWR | O_CREAT, 0666);
    ASSERT_EQ(pwrite(fd, "x", 1, kMiB), 1);
    set(GSHM_LIMIT_USER, 0, 4 * kMiB, 0);
    auto object = client_.open("a", {.write = true});
    ASSERT_FALSE(object);
    EXPECT_EQ(object.error().code, EBUSY) << object.error().message;
    EXPECT_TRUE(client_.open("a"));
    close(fd);
    set(GSHM_LIMIT_USER, 0, 0, 0);
    EXPECT_TRUE(client_.open("a", {.write = true}));
}

TEST_P(MountLimits, OutliveAKillOfGshmd) {
    if (GetParam() == Way::user) GTEST_SKIP() << "covered by the others";
    set_user(kMiB);
    ASSERT_EQ(as_user([&] { return done("write", write_file(at("a"), std::string(kMiB - 5, 'x'))); }), "");
    kill();
    ASSERT_TRUE(start_again(GetParam())) << log();
    EXPECT_EQ(as_user([&]() -> std::string {
                  const int fd = open(at("a").c_str(), O_WRONLY | O_APPEND);
                  return refused("six", write(fd, "123456", 6) < 0) + done("five", write(fd, "12345", 5) == 5);
              }),
              "");
}

INSTANTIATE_TEST_SUITE_P(All, MountLimits, ::testing::Values(Way::passthrough, Way::through, Way::user, Way::cuda),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace gshm::core::test
