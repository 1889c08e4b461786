// A fabric handle stays valid for the file's memory as long as the file has that memory. Before, gshmd allocated the
// memory itself, so handles ended with gshmd. The next request for a handle moved the bytes to new memory, while
// processes that had imported the old handle continued with the old memory.
#include <csignal>
#include <fcntl.h>

#include "regress/maker_fixture.h"

namespace gshm::core::test {
namespace {

class FabricHandle : public MakerTest {
protected:
    // The memory of a handle, imported like in a process unknown to gshmd.
    static Object import(const std::string& handle, uint64_t bytes) {
        gshm_handle_info info = {};
        info.struct_size = sizeof info;
        info.kind = GSHM_HANDLE_FABRIC;
        info.extent_bytes = bytes;
        info.size_bytes = bytes;
        gshm_object* object = nullptr;
        const int code =
            gshm_import_fabric("cuda:0", reinterpret_cast<const uint8_t*>(handle.data()), &info, GSHM_WRITE, &object);
        EXPECT_EQ(code, 0) << gshm_last_error();
        return Object(object);
    }
    static std::string bytes_of(const Object& object, size_t bytes) {
        std::string read(bytes, '\0');
        EXPECT_EQ(gshm_copy_out(object.get(), 0, read.data(), bytes), 0) << gshm_last_error();
        return read;
    }
    void restart() {
        kill();
        ASSERT_TRUE(start_again(Way::cuda)) << log();
    }
    void kill_maker() {
        auto pids = makers();
        ASSERT_EQ(pids.size(), 1u);
        const int pidfd = pidfd_of(pids[0]);
        ::kill(pids[0], SIGKILL);
        await_end(pidfd);
    }
    static constexpr size_t kBytes = 4 << 20;
};

TEST_F(FabricHandle, OutlivesGshmd) {
    ASSERT_TRUE(write_file(at("f"), std::string(kBytes, 'a')));
    const std::string handle = handle_of("f");
    ASSERT_FALSE(handle.empty()) << strerror(errno);
    auto first = import(handle, kBytes);
    ASSERT_TRUE(first);
    restart();
    EXPECT_EQ(handle_of("f"), handle);
    auto second = import(handle, kBytes);
    ASSERT_TRUE(second);
    // One memory: writes by either process, or through the mount, are visible to all.
    ASSERT_EQ(gshm_copy_in(first.get(), 0, "from the first", 14), 0) << gshm_last_error();
    EXPECT_EQ(bytes_of(second, 14), "from the first");
    EXPECT_EQ(read_file(at("f")).substr(0, 15), "from the firsta");
    restart();
    EXPECT_EQ(handle_of("f"), handle);
    EXPECT_EQ(read_file(at("f")).substr(0, 15), "from the firsta");
}

TEST_F(FabricHandle, OfAnEndedMakerIsNotReplacedSilently) {
    ASSERT_TRUE(write_file(at("given"), std::string(kBytes, 'a')));
    ASSERT_TRUE(write_file(at("never"), std::string(kBytes, 'b')));
    const std::string handle = handle_of("given");
    ASSERT_FALSE(handle.empty()) << strerror(errno);
    auto first = import(handle, kBytes);
    ASSERT_TRUE(first);
    ASSERT_TRUE(write_file(at("never, and no restart"), std::string(kBytes, 'c')));
    kill_maker();
    EXPECT_FALSE(handle_of("never, and no restart").empty()) << strerror(errno);
    EXPECT_EQ(read_file(at("never, and no restart")), std::string(kBytes, 'c'));
    for (int daemons = 0; daemons < 2; ++daemons) {
        EXPECT_EQ(handle_of("given"), "");
        EXPECT_EQ(errno, EBUSY);
        restart();
    }
    EXPECT_NE(log().find("setfattr -x"), std::string::npos) << "the log says what to do:\n" << log();
    // Both still have the same memory.
    ASSERT_EQ(gshm_copy_in(first.get(), 0, "still", 5), 0) << gshm_last_error();
    EXPECT_EQ(read_file(at("given")).substr(0, 6), "stilla");
    // A handle that was never given out may be created again.
    EXPECT_FALSE(handle_of("never").empty()) << strerror(errno);
    EXPECT_EQ(read_file(at("never")), std::string(kBytes, 'b'));
    // Its owner declares the old handle unused.
    ASSERT_EQ(removexattr(at("given").c_str(), kHandle), 0) << strerror(errno);
    const std::string renewed = handle_of("given");
    ASSERT_FALSE(renewed.empty()) << strerror(errno);
    EXPECT_NE(renewed, handle);
    EXPECT_EQ(bytes_of(import(renewed, kBytes), 6), "stilla");
    EXPECT_NE(removexattr(at("given").c_str(), kHandle), 0) << "one that can be imported is not taken back";
}

TEST_F(FabricHandle, KeepsAFileWhereItIs) {
    // Reserved room, which a close would give back by moving the bytes.
    int fd = open(at("f").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 16 << 20), 0) << strerror(errno);
    ASSERT_EQ(pwrite(fd, "bytes", 5, 0), 5);
    const std::string handle = handle_of("f");
    ASSERT_FALSE(handle.empty()) << strerror(errno);
    const std::string allocated = attribute(at("f"), "user.allocation_size");
    auto memory = import(handle, std::stoull(allocated));
    ASSERT_TRUE(memory);
    close(fd);
    restart();  // by then the daemon has received the close
    EXPECT_EQ(attribute(at("f"), "user.allocation_size"), allocated);
    EXPECT_EQ(handle_of("f"), handle);
    ASSERT_EQ(gshm_copy_in(memory.get(), 0, "BYTES", 5), 0) << gshm_last_error();
    EXPECT_EQ(read_file(at("f")), "BYTES");
}

TEST_F(FabricHandle, KeepsAShorterFileWhereItIs) {
    ASSERT_TRUE(write_file(at("f"), std::string(4 * kBytes, 'a')));
    const std::string handle = handle_of("f");
    ASSERT_FALSE(handle.empty()) << strerror(errno);
    auto memory = import(handle, 4 * kBytes);
    ASSERT_TRUE(memory);
    ASSERT_EQ(truncate(at("f").c_str(), 5), 0) << strerror(errno);
    EXPECT_EQ(handle_of("f"), handle);
    ASSERT_EQ(gshm_copy_in(memory.get(), 0, "BYTES", 5), 0) << gshm_last_error();
    EXPECT_EQ(read_file(at("f")), "BYTES");
}

TEST_F(FabricHandle, GivesBackTheMemoryOfARemovedFile) {
    const uint64_t before = used_bytes();
    for (int i = 0; i < 30; ++i) {  // twice the capacity of the device
        ASSERT_TRUE(write_file(at("f"), "x") && truncate(at("f").c_str(), 64 << 20) == 0)
            << i << ": " << strerror(errno);
        ASSERT_FALSE(handle_of("f").empty()) << strerror(errno);
        ASSERT_EQ(unlink(at("f").c_str()), 0);
        if (i == 15) restart();
    }
    while (used_bytes() > before) {}  // ctest's timeout ends a failure
}

TEST_F(FabricHandle, ItsMakerEndsWithTheMemory) {
    ASSERT_TRUE(write_file(at("f"), std::string(kBytes, 'a')));
    auto pids = makers();
    ASSERT_EQ(pids.size(), 1u);
    int pidfd = pidfd_of(pids[0]);
    EXPECT_EQ(stop(), 0);
    await_end(pidfd);
    // The same when no process is left that could request it.
    ASSERT_TRUE(start_mounted(Way::cuda)) << log();
    ASSERT_TRUE(write_file(at("f"), std::string(kBytes, 'a')));
    pids = makers();
    ASSERT_EQ(pids.size(), 1u);
    pidfd = pidfd_of(pids[0]);
    const std::string said = run_cli({"ping", "--json"}).out;
    const size_t at = said.find("\"keeper_pid\": ");
    ASSERT_NE(at, std::string::npos) << said;
    const pid_t keeper = atoi(said.c_str() + at + strlen("\"keeper_pid\": "));
    kill();
    EXPECT_EQ(makers().size(), 1u) << "the keeper is enough";
    ASSERT_EQ(::kill(keeper, SIGKILL), 0);
    await_end(pidfd);
}

}  // namespace
}  // namespace gshm::core::test
