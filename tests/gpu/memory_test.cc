// New allocations are zeroed; a full GPU gives an error and no other effect; rights of an open.
#include <set>

#include "fixture.h"

namespace gshm::core::test {
namespace {

class GpuMemory : public GpuTest {};
GSHM_FOR_EACH_GPU(GpuMemory);

bool all_zero(const std::vector<std::byte>& bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0}; });
}

TEST_P(GpuMemory, SmallObjectsAreZeroAlsoAfterReuse) {
    // Freed ranges are zeroed before reuse; rounds continue until a range is reused.
    std::set<std::pair<uint64_t, uint64_t>> used;
    int reused = 0;
    for (int round = 0; round < 500 && reused < 50; ++round) {
        const std::string name = "zero/" + std::to_string(round);
        const uint64_t bytes = 1000 + static_cast<uint64_t>(round % 7) * 3000;
        const auto object = create(name, bytes);
        ASSERT_TRUE(object);
        const auto place = stat(name);
        if (!used.emplace(place.extent, place.extent_offset).second) ++reused;
        const auto seen = copy_of(object.get());
        ASSERT_EQ(seen.size(), bytes);
        ASSERT_TRUE(all_zero(seen)) << "round " << round;
        ASSERT_EQ(gshm_fill(object.get(), 0, bytes, 0xFF), 0) << gshm_last_error();
        unlink(name);
    }
    EXPECT_GE(reused, 50) << "no place was used again: the test has shown nothing";
}

TEST_P(GpuMemory, LargeObjectsAreZeroAlsoAfterReuse) {
    // The driver may hand out the same pages. This is likely, since it uses the last freed pages first.
    const uint64_t bytes = std::min<uint64_t>(info().capacity_bytes / 16, 1024 * kMiB) / kMiB * kMiB;
    for (int round = 0; round < 6; ++round) {
        const auto object = create("zero", bytes, round % 2 == 0 ? 0 : GSHM_DEDICATED);
        ASSERT_TRUE(object);
        ASSERT_TRUE(all_zero(copy_of(object.get()))) << "round " << round;
        ASSERT_EQ(gshm_fill(object.get(), 0, bytes, 0xFF), 0) << gshm_last_error();
        unlink("zero");
    }
}

TEST_P(GpuMemory, TooMuchIsRefusedAndTheDaemonGoesOn) {
    Object object;
    EXPECT_EQ(try_create("huge", info().capacity_bytes + 2 * kMiB, GSHM_NO_MAP, object), -ENOSPC) << gshm_last_error();
    EXPECT_EQ(try_create("huge", uint64_t{1} << 62, GSHM_NO_MAP, object), -ENOSPC) << gshm_last_error();
    // Fills the GPU, piece by piece, until the driver refuses.
    const uint64_t piece = info().capacity_bytes / 10 / (2 * kMiB) * (2 * kMiB);
    int pieces = 0;
    int code = 0;
    for (; pieces < 11; ++pieces) {
        code = try_create("fill/" + std::to_string(pieces), piece, GSHM_NO_MAP | GSHM_KEEP, object);
        if (code != 0) break;
    }
    EXPECT_EQ(code, -ENOSPC) << gshm_last_error();
    ASSERT_GT(pieces, 0);
    print_fact("a full GPU says: " + std::string(gshm_last_error()));
    EXPECT_EQ(gshm_ping(client_.get()), 0) << gshm_last_error();
    EXPECT_EQ(info().failed, 0u) << info().failure;
    // Existing memory can be used, and freed memory can be allocated again.
    EXPECT_EQ(gshm_copy_in(open("fill/0", GSHM_WRITE | GSHM_NO_MAP).get(), 0, "full", 4), 0) << gshm_last_error();
    unlink("fill/0");
    EXPECT_TRUE(eventually([&] { return try_create("again", piece, GSHM_NO_MAP, object) == 0; })) << gshm_last_error();
    for (int i = 1; i < pieces; ++i) unlink("fill/" + std::to_string(i));
}

TEST_P(GpuMemory, CompressibleObjects) {
    Object object;
    const int code = try_create("compressed", 4 * kMiB, GSHM_COMPRESSIBLE, object);
    if (info().compressible == 0) {
        EXPECT_EQ(code, -EOPNOTSUPP);
        GTEST_SKIP() << "this GPU has no compressible memory: " << gshm_last_error();
    }
    ASSERT_EQ(code, 0) << gshm_last_error();
    EXPECT_TRUE(all_zero(copy_of(object.get())));
    const auto data = pattern(4 * kMiB, 20);
    ASSERT_EQ(gshm_copy_in(object.get(), 0, data.data(), data.size()), 0) << gshm_last_error();
    ASSERT_EQ(gshm_seal(object.get()), 0) << gshm_last_error();
    EXPECT_NE(stat("compressed").flags & GSHM_COMPRESSIBLE, 0u);
    expect_read_elsewhere("compressed", 20);
}

TEST_P(GpuMemory, ReadOnlyHandlesRefuseWrites) {
    const auto object = create_filled("sealed", 4 * kMiB, 21);
    EXPECT_EQ(gshm_copy_in(object.get(), 0, "x", 1), -EPERM) << "sealed";
    const auto reader = open("sealed");
    EXPECT_EQ(gshm_copy_in(reader.get(), 0, "x", 1), -EACCES);
    EXPECT_EQ(gshm_fill(reader.get(), 0, 1, 1), -EACCES);
    EXPECT_EQ(open_object(client_.get(), "sealed", GSHM_WRITE), nullptr);
    expect_read_elsewhere("sealed", 21);
}

// CUDA exports no read-only handles, so this is no boundary between users. The test records whether it stops mistakes.
TEST_P(GpuMemory, WritingThroughAReadOnlyPointerIsRecorded) {
    for (const std::string way : {"copy", "kernel"}) {
        const std::string name = "victim/" + way;
        const auto object = create_filled(name, 4 * kMiB, 22);
        const auto result = run_role("write_to_read_only", {dir(), name, where(), way});
        ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
        const bool changed = copy_of(object.get()) != pattern(4 * kMiB, 22);
        print_fact((way == "copy" ? "cuMemcpyHtoD" : "a kernel's store") + std::string(" to a read-only mapping: ") +
                   result.out.substr(0, result.out.find('\n')) + "; the bytes are " +
                   (changed ? "changed" : "unchanged"));
    }
    EXPECT_EQ(gshm_ping(client_.get()), 0) << "whatever it did, the daemon goes on";
    create_filled("after", 4 * kMiB, 23).reset();
    expect_read_elsewhere("after", 23);
}

}  // namespace
}  // namespace gshm::core::test
