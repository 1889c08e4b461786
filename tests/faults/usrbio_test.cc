// hf3fs_iovcreate() while gshmd is killed at any of its calls, and started again.
#include <hf3fs_usrbio.h>
#include <thread>

#include "faults/faults_fixture.h"

namespace gshm::core::test {
namespace {

class FaultsUsrbio : public FaultTest {
protected:
    size_t iovs() {
        auto client = connect();
        gshm_listing* listing = nullptr;
        const std::string folder = ".usrbio-" + std::to_string(geteuid());
        if (gshm_list(client.get(), folder.c_str(), 0, &listing) != 0) return 0;
        return gshm_listing_count(Listing(listing).get());
    }
    // The result of the call. If gshmd ends meanwhile, it is started again, by this thread: the daemon ends with the
    // thread that started it.
    int create(hf3fs_iov* iov) {
        std::atomic<bool> returned = false;
        int result = 0;
        std::thread caller([&] {
            result = hf3fs_iovcreate(iov, dir().c_str(), 1 << 20, 0, -1);
            returned = true;
        });
        while (!returned) {
            if (running()) {
                std::this_thread::yield();
                continue;
            }
            disarm();
            EXPECT_TRUE(start_again()) << log();
            if (HasFailure()) break;
        }
        caller.join();
        return result;
    }
};

TEST_F(FaultsUsrbio, AnIovIsCreatedAlthoughGshmdIsKilled) {
    setenv("HF3FS_USRBIO_LIB_LOG", "CRITICAL", 0);
    start_all();
    hf3fs_iov first = {};  // keeps the connection
    ASSERT_EQ(hf3fs_iovcreate(&first, dir().c_str(), 1 << 20, 0, -1), 0);
    hf3fs_iov iov = {};
    uint64_t calls = 0;
    arm(Class::end, UINT64_MAX, 1);
    ASSERT_EQ(create(&iov), 0);
    disarm(&calls);
    ASSERT_GT(calls, 3u);
    hf3fs_iovdestroy(&iov);
    size_t killed = 0;
    for (uint64_t n : choose(calls, 40)) {
        arm(Class::end, n, 1);
        const int result = create(&iov);
        killed += disarm() ? 1 : 0;
        SCOPED_TRACE("call " + std::to_string(n) + " of " + std::to_string(calls) + ", " + last_failed());
        ASSERT_EQ(result, 0) << strerror(-result);
        memset(iov.base, 7, iov.size);
        EXPECT_EQ(iovs(), 2u) << "also the one that the killed gshmd had made";
        hf3fs_iovdestroy(&iov);
        EXPECT_EQ(iovs(), 1u);
    }
    hf3fs_iovdestroy(&first);
    std::cout << "  " << calls << " calls\n";
}

}  // namespace
}  // namespace gshm::core::test
