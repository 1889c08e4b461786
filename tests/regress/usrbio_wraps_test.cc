// Memory wrapped by hf3fs_iovwrap() took 440 bytes until it was destroyed. Programs of 3FS do not destroy it.
#include <fcntl.h>
#include <hf3fs_usrbio.h>
#include <malloc.h>

#include <gtest/gtest.h>

#include "integration/daemon_fixture.h"

namespace gshm::core::test {
namespace {

constexpr uint8_t kId[16] = {1, 2, 3};

class UsrbioWraps : public ::testing::Test, protected DaemonFixture {
protected:
    hf3fs_iov wrap(void* memory, size_t bytes) {
        hf3fs_iov iov = {};
        EXPECT_EQ(hf3fs_iovwrap(&iov, memory, kId, dir().c_str(), bytes, 0, -1), 0);
        return iov;
    }
};

TEST_F(UsrbioWraps, TakeABoundedAmountOfMemory) {
    constexpr size_t kWraps = 20'000;
    constexpr size_t kBound = 1 << 20;  // 440 bytes each would be 8.8 MB
    std::vector<char> memory(2 * kWraps);
    (void)wrap(memory.data(), 1);
    const size_t before = mallinfo2().uordblks;
    for (size_t i = 0; i < kWraps; ++i) (void)wrap(memory.data() + i, kWraps);
    EXPECT_LT(mallinfo2().uordblks, before + kBound);
}

// The first ones are used after many others, also as copies of the struct.
TEST_F(UsrbioWraps, StayUsable) {
    ASSERT_TRUE(start()) << log();
    const std::string text = "the bytes of the file";
    const std::string path = scratch() + "/file";
    std::ofstream(path) << text;
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_LE(hf3fs_reg_fd(fd, 0), 0);
    hf3fs_ior ior = {};
    ASSERT_EQ(hf3fs_iorcreate(&ior, dir().c_str(), 4, true, 0, -1), 0);

    std::vector<char> memory(100'000);
    const hf3fs_iov first = wrap(memory.data(), 1000);
    for (size_t i = 0; i < 2000; ++i) (void)wrap(memory.data() + 1000 + i, 1000);
    const hf3fs_iov copy = first;
    EXPECT_EQ(hf3fs_prep_io(&ior, &copy, true, memory.data() + 990, fd, 0, 11, nullptr), -EINVAL) << "past the end";
    ASSERT_GE(hf3fs_prep_io(&ior, &copy, true, memory.data() + 7, fd, 0, text.size(), nullptr), 0);
    ASSERT_EQ(hf3fs_submit_ios(&ior), 0);
    // Its state goes while the transfer is in progress.
    for (size_t i = 0; i < 2000; ++i) (void)wrap(memory.data() + 1000 + i, 1001);
    hf3fs_cqe done = {};
    ASSERT_EQ(hf3fs_wait_for_ios(&ior, &done, 1, 1, nullptr), 1);
    EXPECT_EQ(done.result, static_cast<int64_t>(text.size()));
    EXPECT_EQ(std::string(memory.data() + 7, text.size()), text);

    hf3fs_iov gone = first;
    hf3fs_iovdestroy(&gone);
    EXPECT_EQ(gone.base, nullptr);
    EXPECT_LT(hf3fs_prep_io(&ior, &gone, true, memory.data(), fd, 0, 1, nullptr), 0);
    hf3fs_iordestroy(&ior);
    hf3fs_dereg_fd(fd);
    close(fd);
}

}  // namespace
}  // namespace gshm::core::test
