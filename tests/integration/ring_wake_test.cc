// Rings: a wait that another thread ends.
#include "integration/ring_fixture.h"

namespace gshm::core::test {
namespace {

// kill() returns before the threads have stopped.
bool is_stopped(pid_t pid) {
    for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
        std::ifstream file(task.path() / "stat");
        const std::string stat{std::istreambuf_iterator<char>(file), {}};
        const size_t name_end = stat.rfind(')');
        if (name_end == std::string::npos || stat[name_end + 2] != 'T') return false;
    }
    return true;
}

TEST_P(RingTest, AWaitCanBeEndedFromOutside) {
    const int fd = make_file("f", pattern(10'000, 1));
    auto ring = make_ring();
    const uint32_t file = add(ring, fd);
    auto object = create(client_.get(), "o", kMiB, where(), GSHM_NO_MAP);
    ASSERT_EQ(one(ring, GSHM_IO_READ, file, 0, object.get(), 0, 10'000), 10'000);  // gshmd knows both now
    gshm_completion completion = {};
    gshm_ring_wake(ring.get());
    EXPECT_EQ(gshm_ring_wait(ring.get(), &completion, 1, 0, -1), 0) << "nothing to wait for";

    ::kill(pid(), SIGSTOP);  // so that no completion arrives
    ASSERT_TRUE(eventually([&] { return is_stopped(pid()); }));
    ASSERT_EQ(prepare(ring, GSHM_IO_READ, file, 0, {{object.get(), 0, 10'000}}, 7), 0);
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
    ::kill(pid(), SIGCONT);
    ASSERT_EQ(gshm_ring_wait(ring.get(), &completion, 1, 1, kPatience), 1) << gshm_last_error();
    EXPECT_EQ(completion.user_data, 7u);
    EXPECT_EQ(completion.result, 10'000);
    gshm_ring_wake(nullptr);
}

}  // namespace
}  // namespace gshm::core::test
