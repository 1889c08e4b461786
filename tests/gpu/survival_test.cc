// After a process is killed, its sealed objects remain, and the memory of its other objects is freed.
#include "fixture.h"

namespace gshm::core::test {
namespace {

class GpuSurvival : public GpuTest {
protected:
    // Starts a process that writes an object and holds it unsealed.
    bool start_writer(ChildProcess& writer, const std::string& name, uint64_t bytes, unsigned seed) {
        const auto command = role("write", {dir(), name, where(), std::to_string(bytes), std::to_string(seed), "hold"});
        if (!writer.spawn(command)) return false;
        if (eventually([&] { return exists(name + ".written") || !writer.running(); }) && writer.running()) return true;
        ADD_FAILURE() << writer.finish().out;
        return false;
    }
};
GSHM_FOR_EACH_GPU(GpuSurvival);

TEST_P(GpuSurvival, AKilledWritersMemoryIsFreed) {
    constexpr uint64_t kBytes = 256 * kMiB;
    ASSERT_TRUE(gpu().context());  // so that free_before excludes the memory of this context
    const uint64_t used_before = info().used_bytes;
    const uint64_t free_before = gpu().free_bytes();

    ChildProcess writer;
    ASSERT_TRUE(start_writer(writer, "draft", kBytes, 7));
    EXPECT_GE(info().used_bytes, used_before + kBytes);
    const uint64_t free_meanwhile = gpu().free_bytes();
    if (!is_fake_driver()) {
        EXPECT_LE(free_meanwhile, free_before - kBytes);
    }

    writer.signal(SIGKILL);
    EXPECT_TRUE(eventually([&] { return !exists("draft"); }));
    // The slab of the second object (".written") may stay.
    EXPECT_TRUE(eventually([&] { return info().used_bytes <= used_before + 4 * kMiB; }));
    if (is_fake_driver()) return;  // each process counts separately there
    EXPECT_TRUE(eventually([&] { return gpu().free_bytes() + 64 * kMiB >= free_before; }))
        << "free before " << free_before << ", now " << gpu().free_bytes();
    print_fact("cuMemGetInfo around a killed writer of 256 MiB: free " + std::to_string(free_before / kMiB) + " MiB, " +
               std::to_string(free_meanwhile / kMiB) + " while it lived (its CUDA context included), " +
               std::to_string(gpu().free_bytes() / kMiB) + " after");
}

TEST_P(GpuSurvival, AKilledReadersLeaseEnds) {
    create_filled("read", 32 * kMiB, 8).reset();
    ChildProcess reader;
    ASSERT_TRUE(reader.spawn(role("hold", {dir(), "read"})));
    ASSERT_TRUE(eventually([&] { return stat("read").leases == 1 || !reader.running(); }));
    ASSERT_TRUE(reader.running()) << reader.finish().out;
    unlink("read");
    EXPECT_GE(info().unlinked_bytes, 32 * kMiB) << "without a name, but held";
    reader.signal(SIGKILL);
    EXPECT_TRUE(eventually([&] { return info().unlinked_bytes == 0; }));
    EXPECT_TRUE(eventually([&] { return info().used_bytes < 32 * kMiB; }));
}

TEST_P(GpuSurvival, WhoeverHasADeadWritersDraftOpenKeepsIt) {
    ChildProcess writer;
    ASSERT_TRUE(start_writer(writer, "draft", kMiB, 9));
    const auto kept = open("draft");
    ASSERT_TRUE(kept);
    writer.signal(SIGKILL);
    EXPECT_TRUE(eventually([&] { return !exists("draft"); })) << "an unsealed object of a dead process";
    EXPECT_EQ(copy_of(kept.get()), pattern(kMiB, 9));
}

TEST_P(GpuSurvival, MappingsOutliveAKilledDaemon) {
    const auto small = create_filled("small", 4096, 10);
    const auto large = create_filled("large", 32 * kMiB, 11);
    kill();
    EXPECT_EQ(copy_of(small.get()), pattern(4096, 10));
    EXPECT_EQ(copy_of(large.get()), pattern(32 * kMiB, 11));
    std::vector<std::byte> seen(32 * kMiB);
    EXPECT_EQ(gpu().read(gshm_data(large.get()), seen), cuda::kSuccess);
    EXPECT_EQ(seen, pattern(32 * kMiB, 11));
}

TEST_P(GpuSurvival, ADescriptorOutlivesAKilledDaemon) {
    gshm_handle_info handle = {};
    handle.struct_size = sizeof handle;
    int fd = -1;
    {
        create_filled("exported", 16 * kMiB, 12).reset();
        const auto object = open("exported");
        ASSERT_EQ(gshm_export_fd(object.get(), &fd, &handle), 0) << gshm_last_error();
    }
    kill();
    client_.reset();
    // No process maps the memory now; the descriptor alone keeps it, and another process imports it.
    const int inherited = fcntl(fd, F_DUPFD, 100);  // not close-on-exec
    ::close(fd);
    std::vector<std::string> arguments = {where(), std::to_string(inherited), "12"};
    for (const auto& argument : to_arguments(handle)) arguments.push_back(argument);
    const auto result = run_role("import_fd", arguments);
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    ::close(inherited);
}

TEST_P(GpuSurvival, ANewDaemonTakesTheOldOnesPlace) {
    const auto old = create_filled("first", 8 * kMiB, 13);
    kill();
    ASSERT_TRUE(start({"--device", "cuda"})) << log();
    // The client reconnects by itself. The names of the old daemon are gone, but the mapping stays.
    const auto fresh = create_filled("second", 8 * kMiB, 14);
    ASSERT_TRUE(fresh);
    expect_read_elsewhere("second", 14);
    EXPECT_EQ(copy_of(old.get()), pattern(8 * kMiB, 13));
}

TEST_P(GpuSurvival, AllMemoryComesBackWhenTheDaemonEnds) {
    if (is_fake_driver()) GTEST_SKIP() << "the test double counts memory for each process";
    client_.reset();
    stop();
    ASSERT_TRUE(gpu().context());
    const uint64_t before = gpu().free_bytes();
    ASSERT_TRUE(start({"--device", "cuda"})) << log();
    client_ = connect();
    for (int i = 0; i < 4; ++i) create_filled("x/" + std::to_string(i), 128 * kMiB, 15);
    EXPECT_LE(gpu().free_bytes(), before - 512 * kMiB);
    stop();
    EXPECT_TRUE(eventually([&] { return gpu().free_bytes() + 64 * kMiB >= before; }))
        << "free before " << before << ", now " << gpu().free_bytes();
}

}  // namespace
}  // namespace gshm::core::test
