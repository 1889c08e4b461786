// Fixed bugs, through the library and a real daemon.
#include <gtest/gtest.h>

#include "integration/library_fixture.h"

namespace gshm::core::test {
namespace {

class Regress : public LibraryTest {
protected:
    bool restart() {
        kill();
        return start({"--device", "host:256M", "--device", "cuda", "--discard"}, daemon_env());
    }
};

// Ids start again with each daemon, and the library reconnects automatically: a handle of the old daemon sealed another
// object.
TEST_F(Regress, AHandleOfADeadDaemonTouchesNothingOfTheNext) {
    start_all();
    auto old = create(client_.get(), "first", 100, "host");
    auto unmapped = create(client_.get(), "second", 100, "host", GSHM_NO_MAP);
    for (int round = 0; round < 2; ++round) {
        ASSERT_TRUE(restart()) << log();
        auto other = connect();
        auto stranger = create(other.get(), "stranger", 100, "host", GSHM_KEEP);
        auto another = create(other.get(), "another", 100, "host", GSHM_KEEP);
        EXPECT_EQ(gshm_seal(old.get()), -ESTALE);
        EXPECT_EQ(gshm_fill(unmapped.get(), 0, 1, 1), -ESTALE);
        int fd = -1;
        EXPECT_EQ(gshm_export_fd(old.get(), &fd, nullptr), -ESTALE);
        EXPECT_EQ(stat(other.get(), "stranger").state, static_cast<uint32_t>(GSHM_STATE_OPEN));
        EXPECT_EQ(gshm_ping(client_.get()), 0);  // reconnected: the epoch is new, the handle is not
        EXPECT_EQ(gshm_seal(old.get()), -ESTALE);
        EXPECT_EQ(stat(other.get(), "stranger").state, static_cast<uint32_t>(GSHM_STATE_OPEN));
    }
}

// A process that could not map its new object left it behind.
TEST_F(Regress, AFailedCreateLeavesNoName) {
    start_all();
    auto script = fake_cuda_env(2);
    script.push_back("CUDA_VISIBLE_DEVICES=0");
    ChildProcess child;
    ASSERT_TRUE(
        child.spawn({bin("weights_writer"), "--dir", dir(), "--device", "cuda:1", "--name", "left/behind"}, script));
    auto result = child.finish();
    EXPECT_NE(result.exit_code, 0) << result.out;
    EXPECT_EQ(open_code(client_.get(), "left/behind", GSHM_NO_MAP), -ENOENT) << result.out << result.err;
}

// A name that is too long used to fail the whole batch.
TEST_F(Regress, AnOverlongNameFailsForItself) {
    start_all();
    auto object = create(client_.get(), "good", 100, "host");
    std::string overlong(5000, 'n');
    const char* names[] = {"good", overlong.c_str(), "good"};
    gshm_object* objects[3] = {};
    int status[3] = {1, 1, 1};
    EXPECT_EQ(gshm_open_batch(client_.get(), names, 3, 0, objects, status), -ENAMETOOLONG);
    EXPECT_EQ(status[0], 0);
    EXPECT_EQ(status[1], -ENAMETOOLONG);
    EXPECT_EQ(status[2], 0);
    gshm_close_batch(objects, 3);
    gshm_stat_info infos[3] = {};
    infos[0].struct_size = sizeof infos[0];
    EXPECT_EQ(gshm_stat_batch(client_.get(), names, 3, infos, status), -ENAMETOOLONG);
    EXPECT_EQ(status[2], 0);
}

// A writer could truncate the file while the daemon used it.
TEST_F(Regress, AWriterCannotKillTheDaemonWithItsDescriptor) {
    start_all();
    auto object = create(client_.get(), "x", 4096, "host");
    int fd = -1;
    ASSERT_EQ(gshm_export_fd(object.get(), &fd, nullptr), 0);
    EXPECT_EQ(ftruncate(fd, 0), -1);
    EXPECT_EQ(ftruncate(fd, 1 << 30), -1);
    close(fd);
    object.reset();
    ASSERT_EQ(gshm_unlink(client_.get(), "x"), 0);
    EXPECT_TRUE(create(client_.get(), "y", 4096, "host"));
}

// Slabs double in size. The last ones did not fit although the object would have.
TEST_F(Regress, SmallObjectsUseTheLastOfADevice) {
    ASSERT_TRUE(start({"--device", "host:40M"})) << log();
    client_ = connect();
    std::vector<Object> objects;
    int code = 0;
    for (int i = 0; i < 100 && code == 0; ++i) {
        std::string name = "o" + std::to_string(i);
        auto wanted = spec(name.c_str(), 1 << 20, "host");
        gshm_object* object = nullptr;
        code = gshm_create(client_.get(), &wanted, &object);
        if (code == 0) objects.emplace_back(object);
    }
    EXPECT_EQ(code, -ENOSPC);
    EXPECT_EQ(objects.size(), 40u);
}

// Moving a deep tree below a deep directory made names that no call accepted.
TEST_F(Regress, ARenameKeepsNamesWithinTheirLimits) {
    start_all();
    std::string deep = "a";
    for (int i = 0; i < 199; ++i) deep += "/directory-d";
    std::string other = "b" + deep.substr(1);
    auto first = create(client_.get(), deep.c_str(), 10, "host");
    auto second = create(client_.get(), other.c_str(), 10, "host");
    std::string target = other.substr(0, other.size() - 1) + "moved";
    EXPECT_EQ(gshm_rename(client_.get(), "a", target.c_str(), 0), -ENAMETOOLONG);
    EXPECT_EQ(open_code(client_.get(), deep.c_str()), 0);
}

// One GPU that failed when queried made the later ones unavailable.
TEST_F(Regress, ABadGpuDoesNotTakeTheOthersAlong) {
    auto env = fake_cuda_env(3);
    env.push_back("FAKECUDA_FAIL=cuDeviceGetUuid_v2@1:*:999");
    ASSERT_TRUE(start({}, env)) << log();
    client_ = connect();
    EXPECT_EQ(device(client_.get(), "cuda:0").failed, 0u);
    EXPECT_EQ(device(client_.get(), "cuda:2").failed, 0u);
    EXPECT_EQ(device(client_.get(), "host").failed, 0u);
}

// CUDA_ERROR_UNKNOWN from anything but an import means that the GPU is gone.
TEST_F(Regress, AGpuThatAnswersUnknownIsLost) {
    start_all();
    { std::ofstream(scratch() + "/faults") << "cuMemCreate@1:*:999"; }
    auto wanted = spec("x", 4 << 20, "cuda:1", GSHM_NO_MAP);
    gshm_object* object = nullptr;
    EXPECT_EQ(gshm_create(client_.get(), &wanted, &object), -EIO);
    EXPECT_EQ(device(client_.get(), "cuda:1").failed, 1u);
}

// The wait never ended.
TEST_F(Regress, ADirectoryIsNeverSealed) {
    start_all();
    auto object = create(client_.get(), "dir/x", 10, "host");
    EXPECT_EQ(gshm_wait(client_.get(), "dir", GSHM_WAIT_SEALED, -1, nullptr), -EISDIR);
}

}  // namespace
}  // namespace gshm::core::test
