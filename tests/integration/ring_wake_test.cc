// Rings: a wait that another thread ends.
#include "base/fd.h"
#include "integration/ring_fixture.h"
#include "support/silent_file.h"

namespace gshm::core::test {
namespace {

TEST_P(RingTest, AWaitCanBeEndedFromOutside) {
    const int fd = make_file("f", pattern(10'000, 1));
    auto ring = make_ring();
    const uint32_t file = add(ring, fd);
    auto object = create(client_.get(), "o", kMiB, where(), GSHM_NO_MAP);
    ASSERT_EQ(one(ring, GSHM_IO_READ, file, 0, object.get(), 0, 10'000), 10'000);  // gshmd knows both now
    gshm_completion completion = {};
    gshm_ring_wake(ring.get());
    EXPECT_EQ(gshm_ring_wait(ring.get(), &completion, 1, 0, -1), 0) << "nothing to wait for";

    // No completion arrives, and gshmd answers: a long wait asks it whether it is there.
    auto hung = SilentFile::create(file_path("hung"), 10'000);
    if (!hung) GTEST_SKIP() << "mounting is not permitted here";
    const auto silent = UniqueFd::adopt(::open(file_path("hung").c_str(), O_RDONLY | O_CLOEXEC));
    const uint32_t silent_file = add(ring, silent.get());
    ASSERT_EQ(prepare(ring, GSHM_IO_READ, silent_file, 0, {{object.get(), 0, 10'000}}, 7), 0);
    ASSERT_EQ(gshm_ring_submit(ring.get()), 1) << gshm_last_error();
    EXPECT_EQ(gshm_ring_wait(ring.get(), &completion, 1, 1, kPatience), 0) << "woken before it began";
    for (int i = 0; i < 20; ++i) {
        std::thread waker([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(i % 4));
            gshm_ring_wake(ring.get());
        });
        EXPECT_EQ(gshm_ring_wait(ring.get(), &completion, 1, 1, kPatience), 0) << gshm_last_error();
        waker.join();
    }
    hung.reset();
    ASSERT_EQ(gshm_ring_wait(ring.get(), &completion, 1, 1, kPatience), 1) << gshm_last_error();
    EXPECT_EQ(completion.user_data, 7u);
    EXPECT_LT(completion.result, 0) << "its file system has gone";
    gshm_ring_wake(nullptr);
}

}  // namespace
}  // namespace gshm::core::test
