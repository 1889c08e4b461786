// gshmd of root uses a client's file with the client's rights (docs/ring.md, "Rights"), and no file of a kernel interface.
// A write by a process with CAP_FSETID keeps set-id bits; any other write clears them, which shows the writer's rights.
#include <future>
#include <linux/capability.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/socket.h>

#include "base/file_rights.h"
#include "integration/library_fixture.h"
#include "io/engine.h"
#include "ring/producer.h"
#include "support/raw_client.h"

namespace gshm::core::test {
namespace {

constexpr uid_t kUser = 65534;
constexpr size_t kMiB = 1 << 20;

bool has_set_id(const std::string& path) {
    struct stat status = {};
    return ::stat(path.c_str(), &status) == 0 && (status.st_mode & S_ISUID) != 0;
}

// A file of the user with the set-user-id bit.
void make_set_id(const std::string& path) {
    UniqueFd::adopt(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)).reset();
    ASSERT_EQ(::chown(path.c_str(), kUser, kUser), 0);
    ASSERT_EQ(::chmod(path.c_str(), 04755), 0);
}

// ---- the rights of a thread ----

struct Seen {
    int uid = setfsuid(static_cast<uid_t>(-1));
    int gid = setfsgid(static_cast<gid_t>(-1));
    std::vector<gid_t> groups = [] {
        std::vector<gid_t> found(static_cast<size_t>(getgroups(0, nullptr)));
        getgroups(static_cast<int>(found.size()), found.data());
        return found;
    }();
    uint32_t capabilities = [] {
        __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
        __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
        syscall(SYS_capget, &header, sets);
        return sets[0].effective;
    }();
    bool operator==(const Seen&) const = default;
};

TEST(FileRights, AreOfOneThreadAndAreGivenBack) {
    if (geteuid() != 0) GTEST_SKIP() << "only root can change its ids";
    const Seen before;
    std::thread([&] {
        {
            auto borrowed = BorrowedFileRights::create({kUser, 65533, {7, 8}});
            ASSERT_TRUE(borrowed) << borrowed.error().message;
            const Seen now;
            EXPECT_EQ(now.uid, static_cast<int>(kUser));
            EXPECT_EQ(now.gid, 65533);
            EXPECT_EQ(now.groups, (std::vector<gid_t>{7, 8}));
            EXPECT_EQ(now.capabilities, 0u);
            EXPECT_EQ(std::async(std::launch::async, [] { return Seen(); }).get(), now) << "a new thread";
            EXPECT_EQ(geteuid(), 0u);
        }
        EXPECT_EQ(Seen(), before);
    }).join();
    EXPECT_EQ(Seen(), before);
}

// ---- an engine ----

class OneWrite final : public io::Source, public io::Transfer {
public:
    OneWrite(io::Engine& engine, io::File& to, std::string& from) : engine_(engine) {
        direction = io::Direction::write;
        file = &to;
        address = reinterpret_cast<uint64_t>(from.data());
        bytes = from.size();
    }
    Result<uint64_t> run() {
        TRY(engine_.add(*this));
        auto result = done_.get_future().get();
        engine_.remove(*this);
        return result;
    }
    int doorbell() const override { return bell_.get(); }
    bool poll() override {
        if (std::exchange(started_, true)) return false;
        engine_.start(*this);
        return true;
    }
    void sleep(bool) override {}
    void done(Result<uint64_t> result) override { done_.set_value(std::move(result)); }

private:
    io::Engine& engine_;
    UniqueFd bell_ = UniqueFd::adopt(eventfd(0, EFD_CLOEXEC));
    bool started_ = false;
    std::promise<Result<uint64_t>> done_;
};

class EngineRights : public ::testing::TestWithParam<bool>, protected DaemonFixture {};

// Small requests are made by the engine's thread, large ones by others.
TEST_P(EngineRights, AreThoseOfTheUser) {
    if (geteuid() != 0) GTEST_SKIP() << "only root can change its ids";
    const std::string path = scratch() + "/file";
    for (const auto& rights : {std::optional<FileRights>(), std::optional(FileRights{kUser, kUser, {}})}) {
        auto engine = io::Engine::create(nullptr, {.allow_uring = GetParam(), .rights = rights});
        ASSERT_TRUE(engine) << engine.error().message;
        if (GetParam() && !(*engine)->uses_uring()) GTEST_SKIP() << "no io_uring here";
        for (size_t bytes : {size_t{1}, kMiB}) {
            make_set_id(path);
            auto file = io::File::create(UniqueFd::adopt(::open(path.c_str(), O_RDWR | O_CLOEXEC)));
            ASSERT_TRUE(file);
            std::string from(bytes, 'x');
            EXPECT_EQ(OneWrite(**engine, **file, from).run().value_or(0), bytes);
            EXPECT_EQ(has_set_id(path), !rights) << bytes;
        }
    }
}
INSTANTIATE_TEST_SUITE_P(Queues, EngineRights, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "uring" : "threads"; });

// ---- gshmd ----

class RingRights : public LibraryTest {
protected:
    void SetUp() override {
        if (geteuid() != 0) GTEST_SKIP() << "only a gshmd of root has the rights of others";
    }
    // In a process of its own. 0, or the error.
    int write_object(const std::string& path, size_t bytes) {
        const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0) return errno;
        Client client = connect(120'000);
        Object object = create(client.get(), "object", bytes, "host", GSHM_NO_MAP);
        const int written = gshm_write_file(object.get(), 0, fd, 0, bytes, nullptr, nullptr);
        if (written != 0) fprintf(stderr, "%s\n", gshm_last_error());
        return -written;
    }
};

TEST_F(RingRights, AWriteOfAClientClearsSetIdBits) {
    ASSERT_TRUE(start()) << log();
    const std::string path = scratch() + "/file";
    for (size_t bytes : {size_t{1}, 4 * kMiB}) {
        make_set_id(path);
        EXPECT_EQ(in_child([&] { return write_object(path, bytes); }, kUser), 0);
        EXPECT_FALSE(has_set_id(path)) << bytes;
    }
    make_set_id(path);
    EXPECT_EQ(in_child([&] { return write_object(path, 1); }), 0);
    EXPECT_TRUE(has_set_id(path)) << "a client of root";
}

TEST_F(RingRights, ReservedBlocksAreNotForClients) {
    ASSERT_TRUE(start()) << log();
    const std::string image = scratch() + "/image";
    const std::string point = scratch() + "/point";
    ASSERT_EQ(::mkdir(point.c_str(), 0755), 0);
    constexpr int kSkip = 77;
    // The mount ends with the child and with gshmd's last descriptor.
    auto fill = [&](uid_t user) {
        return in_child([&] {
            const std::string make = "mkfs.ext4 -q -F -m 50 -O ^has_journal " + image + " 16M >/dev/null 2>&1";
            const std::string mount = "mount -o loop " + image + " " + point + " 2>/dev/null && chmod 777 " + point;
            if (unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
                system(make.c_str()) != 0 || system(mount.c_str()) != 0) {
                return kSkip;
            }
            if (user != 0 && (setgid(user) != 0 || setuid(user) != 0)) return 99;
            return write_object(point + "/file", 12 * kMiB);
        });
    };
    const int of_root = fill(0);
    if (of_root == kSkip) GTEST_SKIP() << "needs mkfs.ext4 and loop devices";
    EXPECT_EQ(of_root, 0);
    EXPECT_EQ(fill(kUser), ENOSPC);
}

TEST_F(RingRights, OnlyFilesThatStoreBytesAreTaken) {
    ASSERT_TRUE(start()) << log();
    RawClient client(socket_path());
    auto ring = ring::Producer::create(8).value();
    ASSERT_EQ(client.create_ring(0, ring.memory(), ring.doorbell()).error, 0);
    auto error_for = [&](UniqueFd fd) {
        EXPECT_TRUE(fd);
        return client.add_file(0, fd.get());
    };
    auto opened = [](const char* path, int flags) { return UniqueFd::adopt(::open(path, flags | O_CLOEXEC)); };
    for (const char* path :
         {"/proc/version", "/proc/self/mem", "/sys/kernel/uevent_seqnum", "/sys/fs/cgroup/cgroup.procs"}) {
        if (::access(path, R_OK) != 0) continue;
        const auto reply = error_for(opened(path, O_RDONLY));
        EXPECT_EQ(reply.error, EOPNOTSUPP) << path;
        EXPECT_NE(reply.message.find("kernel interface"), std::string::npos) << reply.message;
    }
    EXPECT_EQ(error_for(opened("/dev/zero", O_RDWR)).error, EINVAL);
    EXPECT_EQ(error_for(opened("/tmp", O_RDONLY | O_DIRECTORY)).error, EINVAL);
    EXPECT_EQ(error_for(UniqueFd::adopt(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))).error, EINVAL);
    EXPECT_EQ(error_for(UniqueFd::adopt(eventfd(0, EFD_CLOEXEC))).error, EINVAL);
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    for (int end : ends) EXPECT_EQ(error_for(UniqueFd::adopt(end)).error, EINVAL);
    EXPECT_EQ(error_for(opened("/proc/self/exe", O_RDONLY)).error, 0) << "an ordinary file";
}

// The library reads them.
TEST_F(RingRights, PutStillTakesFilesOfKernelInterfaces) {
    ASSERT_TRUE(start()) << log();
    for (const std::string path : {"/proc/version", "/sys/kernel/mm/transparent_hugepage/enabled"}) {
        if (::access(path.c_str(), R_OK) != 0) continue;
        std::ifstream file(path);
        const std::string contents((std::istreambuf_iterator<char>(file)), {});
        const auto put = run_cli({"put", path, "copy", "--replace"});
        EXPECT_EQ(put.exit_code, 0) << put.err;
        EXPECT_EQ(run_cli({"cat", "copy"}).out, contents);
    }
}

TEST_F(RingRights, AGshmdOfAnOrdinaryUserUsesFilesWithItsOwn) {
    if (::access("/usr/bin/setpriv", X_OK) != 0) GTEST_SKIP() << "no setpriv here";
    ASSERT_EQ(::chown(scratch().c_str(), kUser, kUser), 0);
    const std::string user = std::to_string(kUser);
    ASSERT_TRUE(
        start({"--device", "host:256M"}, {}, {"/usr/bin/setpriv", "--reuid", user, "--regid", user, "--clear-groups"}))
        << log();
    const std::string path = scratch() + "/file";
    make_set_id(path);
    EXPECT_EQ(in_child([&] { return write_object(path, 4 * kMiB); }, kUser), 0);
    EXPECT_FALSE(has_set_id(path));
    make_set_id(path);
    EXPECT_EQ(in_child([&] { return write_object(path, 4 * kMiB); }), 0) << "a client of another user";
    EXPECT_FALSE(has_set_id(path));
}

}  // namespace
}  // namespace gshm::core::test
