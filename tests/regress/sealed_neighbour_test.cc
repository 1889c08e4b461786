// Small objects share an extent, and a writable descriptor covers all of it. Sealed objects were writable for every
// process that opened or created an unsealed one beside them.
#include <sys/mman.h>

#include <gtest/gtest.h>

#include "integration/library_fixture.h"

namespace gshm::core::test {
namespace {

constexpr size_t kBytes = 64 << 10;

class SealedNeighbour : public LibraryTest {
protected:
    void SetUp() override {
        ASSERT_TRUE(start({"--device", "host:256M"}, daemon_env())) << log();
        client_ = connect();
    }
    // A session like that of another process: it has none of the first session's descriptors.
    Client other() { return connect(); }
    Object make(gshm_client* client, const char* name, char value, uint32_t flags = 0) {
        auto object = create(client, name, kBytes, "host", flags);
        EXPECT_EQ(gshm_fill(object.get(), 0, kBytes, static_cast<uint8_t>(value)), 0) << gshm_last_error();
        return object;
    }
    void make_sealed(gshm_client* client, const char* name, uint32_t flags = 0) {
        auto object = make(client, name, 's', flags);
        EXPECT_EQ(gshm_seal(object.get()), 0) << gshm_last_error();
    }
    // Writes to all memory that the handle's descriptor makes writable.
    static void overwrite_all(gshm_object* object) {
        int fd = -1;
        gshm_handle_info info = {};
        info.struct_size = sizeof info;
        ASSERT_EQ(gshm_export_fd(object, &fd, &info), 0) << gshm_last_error();
        auto size = static_cast<size_t>(lseek(fd, 0, SEEK_END));
        void* all = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ASSERT_NE(all, MAP_FAILED) << "not writable";
        memset(all, 'x', size);
        munmap(all, size);
        close(fd);
    }
    bool is_unchanged(const char* name, char value = 's') {
        auto reader = other();
        auto object = open(reader.get(), name, GSHM_NO_MAP);
        std::string bytes(kBytes, '\0');
        EXPECT_EQ(gshm_copy_out(object.get(), 0, bytes.data(), bytes.size()), 0) << gshm_last_error();
        return bytes == std::string(kBytes, value);
    }
};

TEST_F(SealedNeighbour, IsOutOfReachForWhoMakesAnother) {
    make_sealed(client_.get(), "sealed");
    auto writer = other();
    auto object = make(writer.get(), "new", 'n');
    overwrite_all(object.get());
    EXPECT_TRUE(is_unchanged("sealed"));
}

TEST_F(SealedNeighbour, IsOutOfReachForWhoOpensAnother) {
    { auto object = make(client_.get(), "open", 'o', GSHM_KEEP); }
    make_sealed(client_.get(), "sealed");
    auto writer = other();
    auto object = open(writer.get(), "open", GSHM_WRITE);
    EXPECT_EQ(memcmp(gshm_data(object.get()), std::string(kBytes, 'o').data(), kBytes), 0) << "its bytes go with it";
    overwrite_all(object.get());
    EXPECT_TRUE(is_unchanged("open", 'x'));
    EXPECT_TRUE(is_unchanged("sealed"));
}

TEST_F(SealedNeighbour, IsOutOfReachWhoeverHasSealedIt) {
    { auto object = make(client_.get(), "open", 'o', GSHM_KEEP); }
    { auto object = make(client_.get(), "sealed", 's', GSHM_KEEP); }
    auto sealer = other();
    ASSERT_EQ(gshm_seal_name(sealer.get(), "sealed"), 0) << gshm_last_error();
    auto object = open(sealer.get(), "open", GSHM_WRITE);
    overwrite_all(object.get());
    EXPECT_TRUE(is_unchanged("sealed"));
}

TEST_F(SealedNeighbour, IsOutOfReachForWhoGivesANameToAnother) {
    auto object = make(client_.get(), "dir/sealed", 's', GSHM_UNNAMED);
    ASSERT_EQ(gshm_replace(object.get(), "dir/sealed"), 0) << gshm_last_error();
    auto writer = other();
    auto next = make(writer.get(), "dir/next", 'n', GSHM_UNNAMED);
    overwrite_all(next.get());
    EXPECT_TRUE(is_unchanged("dir/sealed"));
}

// Its holders would not see later writes, so it cannot move to a dedicated extent.
TEST_F(SealedNeighbour, OfAnObjectThatIsHeldKeepsItFromBeingMappedForWriting) {
    auto held = make(client_.get(), "open", 'o');
    make_sealed(client_.get(), "sealed");
    auto writer = other();
    EXPECT_EQ(open_code(writer.get(), "open", GSHM_WRITE), -EBUSY);
    EXPECT_EQ(open_code(client_.get(), "open", GSHM_WRITE), 0) << "has the memory for writing already";
    {
        auto object = open(writer.get(), "open", GSHM_WRITE | GSHM_NO_MAP);
        ASSERT_EQ(gshm_fill(object.get(), 0, kBytes, 'w'), 0) << gshm_last_error();
        int fd = -1;
        EXPECT_EQ(gshm_export_fd(object.get(), &fd, nullptr), -EBUSY);
    }
    EXPECT_EQ(memcmp(gshm_data(held.get()), std::string(kBytes, 'w').data(), kBytes), 0);
    auto reader = open(writer.get(), "open");
    EXPECT_EQ(memcmp(gshm_data(reader.get()), std::string(kBytes, 'w').data(), kBytes), 0);
}

TEST_F(SealedNeighbour, IsOutOfReachAfterARestart) {
    auto held = make(client_.get(), "open", 'o');
    { auto object = make(client_.get(), "free", 'f', GSHM_KEEP); }
    make_sealed(client_.get(), "sealed");
    kill();
    ASSERT_TRUE(start({}, daemon_env())) << log();
    auto writer = other();
    auto made = make(writer.get(), "new", 'n');
    overwrite_all(made.get());
    EXPECT_EQ(open_code(writer.get(), "open", GSHM_WRITE), -EBUSY);
    auto opened = open(writer.get(), "free", GSHM_WRITE);
    overwrite_all(opened.get());
    EXPECT_TRUE(is_unchanged("sealed"));
    // The session that already had the memory for writing still has it.
    EXPECT_EQ(open_code(client_.get(), "open", GSHM_WRITE), 0) << gshm_last_error();
}

// A session that has only copied into its object does not get the slab for writing after a restart.
TEST_F(SealedNeighbour, IsOutOfReachAfterARestartForWhoHasMappedNothing) {
    make_sealed(client_.get(), "sealed");
    auto writer = other();
    auto object = make(writer.get(), "copied", 'c', GSHM_NO_MAP);
    int fd = -1;
    EXPECT_EQ(gshm_export_fd(object.get(), &fd, nullptr), -EBUSY) << "it is beside the sealed one";
    kill();
    ASSERT_TRUE(start({}, daemon_env())) << log();
    EXPECT_EQ(gshm_export_fd(object.get(), &fd, nullptr), -EBUSY);
    auto made = make(writer.get(), "new", 'n');
    overwrite_all(made.get());
    EXPECT_TRUE(is_unchanged("sealed"));
}

TEST_F(SealedNeighbour, CostsOneProcessNoFurtherMemory) {
    constexpr int kObjects = 500;
    for (int i = 0; i < kObjects; ++i) make_sealed(client_.get(), ("o" + std::to_string(i)).c_str());
    auto used = device(client_.get(), "host");
    EXPECT_EQ(used.object_bytes, kObjects * kBytes);
    EXPECT_LE(used.used_bytes, 2 * used.object_bytes);
}

TEST_F(SealedNeighbour, CostsProcessesThatMapNothingNoFurtherMemory) {
    constexpr int kObjects = 100;
    for (int i = 0; i < kObjects; ++i) {
        auto client = other();
        make_sealed(client.get(), ("o" + std::to_string(i)).c_str(), GSHM_NO_MAP);
    }
    auto used = device(client_.get(), "host");
    EXPECT_EQ(used.object_bytes, kObjects * kBytes);
    EXPECT_LE(used.used_bytes, 2 * used.object_bytes + (2 << 20));
}

// The memory of removed sealed objects is available to all users again.
TEST_F(SealedNeighbour, ThatIsGoneKeepsNobodyOut) {
    make_sealed(client_.get(), "sealed");
    ASSERT_EQ(gshm_unlink(client_.get(), "sealed"), 0);
    auto used = device(client_.get(), "host").used_bytes;
    auto writer = other();
    auto object = make(writer.get(), "new", 'n');
    EXPECT_EQ(device(client_.get(), "host").used_bytes, used);
}

}  // namespace
}  // namespace gshm::core::test
