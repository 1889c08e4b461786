// The daemon is killed and restarted: GPU data stays, and processes that map it do not notice.
#include "fixture.h"

namespace gshm::core::test {
namespace {

class GpuRestart : public GpuTest {
protected:
    void restart() {
        kill();
        ASSERT_TRUE(start({})) << log();  // with the devices of the killed daemon
    }
    std::vector<std::byte> through_daemon(const std::string& name) {
        auto object = open(name, GSHM_NO_MAP);
        return object ? copy_of(object.get()) : std::vector<std::byte>();
    }
};
GSHM_FOR_EACH_GPU(GpuRestart);

TEST_P(GpuRestart, BytesHandlesAndKernelsGoOn) {
    auto sealed = create_filled("large", 64 * kMiB, 1);
    auto small = create_filled("small", 5000, 2);
    auto draft = create("draft", 4 * kMiB);
    ASSERT_EQ(gshm_fill(draft.get(), 0, 4 * kMiB, 0), 0);
    const gshm_stat_info before = stat("large");
    kill();
    // Without any daemon the memory and the GPU's work on it continue.
    std::string why = is_fake_driver() ? "skip: it does not compute" : gpu().add_one(gshm_data(draft.get()), 1 << 20);
    EXPECT_TRUE(why.empty() || why.starts_with("skip")) << why;
    EXPECT_TRUE(copy_of(sealed.get()) == pattern(64 * kMiB, 1));
    ASSERT_TRUE(start({})) << log();
    EXPECT_TRUE(through_daemon("large") == pattern(64 * kMiB, 1));
    EXPECT_TRUE(through_daemon("small") == pattern(5000, 2));
    expect_read_elsewhere("large", 1);
    expect_read_elsewhere("small", 2);
    EXPECT_EQ(stat("large").id, before.id);
    EXPECT_EQ(stat("large").leases, 1u);
    if (why.empty()) {
        why = gpu().add_one(gshm_data(draft.get()), 1 << 20);
        EXPECT_TRUE(why.empty()) << why;
        std::vector<std::byte> all = copy_of(draft.get());
        uint32_t first = 0;
        memcpy(&first, all.data(), sizeof first);
        EXPECT_EQ(first, 2u) << "a kernel without a daemon, and one with the next";
    }
    EXPECT_EQ(gshm_seal(draft.get()), 0) << gshm_last_error();
    // New objects are placed beside the old ones.
    auto more = create_filled("more", 5000, 3);
    expect_read_elsewhere("more", 3);
    restart();
    EXPECT_TRUE(through_daemon("large") == pattern(64 * kMiB, 1)) << "taken up twice";
    expect_read_elsewhere("more", 3);
}

TEST_P(GpuRestart, HandlesCanStillBeExported) {
    create_filled("exported", 4 * kMiB, 4, GSHM_DEDICATED).reset();
    auto object = open("exported");
    uint8_t fabric_before[GSHM_FABRIC_HANDLE_BYTES] = {};
    const int had_fabric = gshm_export_fabric(object.get(), fabric_before, nullptr);
    restart();
    gshm_handle_info handle = {};
    handle.struct_size = sizeof handle;
    int fd = -1;
    ASSERT_EQ(gshm_export_fd(object.get(), &fd, &handle), 0) << gshm_last_error();
    gshm_object* imported = nullptr;
    ASSERT_EQ(gshm_import_fd(where().c_str(), fd, &handle, 0, &imported), 0) << gshm_last_error();
    EXPECT_TRUE(copy_of(imported) == pattern(4 * kMiB, 4));
    gshm_close(imported);
    ::close(fd);
    if (had_fabric == 0) {
        // The driver exports a fabric handle only in the process that allocated the memory, which is gone.
        EXPECT_EQ(gshm_export_fabric(object.get(), fabric_before, &handle), -EBUSY);
        const int code = gshm_import_fabric(where().c_str(), fabric_before, &handle, 0, &imported);
        print_fact(std::string("fabric handle of memory whose maker was killed: ") +
                   (code == 0 ? "imported" : gshm_last_error()));
        if (code == 0) gshm_close(imported);
    } else {
        print_fact("no fabric handles here");
    }
    const int dmabuf = gshm_export_dmabuf(object.get(), &fd, &handle);
    print_fact(std::string("dma-buf of memory that was taken up: ") + (dmabuf == 0 ? "exported" : gshm_last_error()));
    if (dmabuf == 0) ::close(fd);
}

TEST_P(GpuRestart, NothingIsLeftOfWhatIsRemovedAfterwards) {
    ASSERT_TRUE(gpu().context());
    const uint64_t free_before = gpu().free_bytes();
    for (int i = 0; i < 8; ++i) create_filled("n" + std::to_string(i), 32 * kMiB, 5).reset();
    restart();
    for (int i = 0; i < 8; ++i) unlink("n" + std::to_string(i));
    EXPECT_TRUE(eventually([&] { return info().used_bytes < 4 * kMiB; })) << info().used_bytes;
    if (is_fake_driver()) return;
    EXPECT_TRUE(eventually([&] { return gpu().free_bytes() + 128 * kMiB >= free_before; }))
        << "free before " << free_before << ", now " << gpu().free_bytes();
}

TEST_P(GpuRestart, ReusedMemoryIsZero) {
    // Slabs with freed ranges that were not zeroed when the daemon died, and whole extents.
    for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < 32; ++i) create_filled("s" + std::to_string(i), 100'000, 6).reset();
        create_filled("big", 16 * kMiB, 6).reset();
        for (int i = 0; i < 32; i += 2) unlink("s" + std::to_string(i));
        unlink("big");
        restart();
        for (int i = 0; i < 32; i += 2) {
            auto object = create("t" + std::to_string(i), 100'000);
            EXPECT_TRUE(copy_of(object.get()) == std::vector<std::byte>(100'000));
            unlink("t" + std::to_string(i));
        }
        auto big = create("big", 16 * kMiB);
        EXPECT_TRUE(copy_of(big.get()) == std::vector<std::byte>(16 * kMiB));
        unlink("big");
        for (int i = 1; i < 32; i += 2) {
            EXPECT_TRUE(through_daemon("s" + std::to_string(i)) == pattern(100'000, 6));
            unlink("s" + std::to_string(i));
        }
    }
}

TEST_P(GpuRestart, AnotherTakesOver) {
    auto held = create_filled("held", 8 * kMiB, 7);
    const pid_t before = pid();
    ChildProcess next;
    ASSERT_TRUE(next.spawn({bin("gshmd"), "--dir", dir(), "-f", "--takeover"}));
    gshm_daemon_info daemon = {};
    daemon.struct_size = sizeof daemon;
    EXPECT_TRUE(eventually([&] {
        EXPECT_EQ(gshm_daemon(client_.get(), &daemon), 0) << gshm_last_error();
        return daemon.pid != before;
    }));
    EXPECT_EQ(wait_for_end(), 0) << log();
    EXPECT_TRUE(through_daemon("held") == pattern(8 * kMiB, 7));
    EXPECT_EQ(stat("held").leases, 1u);
    EXPECT_EQ(gshm_shutdown(client_.get(), 0), 0);
    EXPECT_EQ(next.wait(std::chrono::seconds(20)), 0);
}

}  // namespace
}  // namespace gshm::core::test
