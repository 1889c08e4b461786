// Slabs that outlive their pool: kept ones, and sealed ones.
#include "pool_fixture.h"

namespace gshm::core::test::pools {
namespace {

class PoolKeep : public PoolFixture {
protected:
    // Bytes of an allocation, read through the daemon.
    Bytes read(const gshm_location& there, size_t bytes) {
        gshm_object* opened = nullptr;
        EXPECT_EQ(gshm_open_id(client_.get(), there.id, GSHM_NO_MAP, &opened), 0) << gshm_last_error();
        const Object object(opened);
        Bytes data(bytes);
        EXPECT_EQ(gshm_copy_out(object.get(), there.offset, data.data(), bytes), 0) << gshm_last_error();
        return data;
    }
    std::vector<std::string> slabs() {
        std::vector<std::string> names;
        for (const auto& entry : hpp_.list("kept", true).value()) names.push_back(entry.name);
        return names;
    }
    bool is_sealed(uint64_t id) {
        gshm_object* opened = nullptr;
        EXPECT_EQ(gshm_open_id(client_.get(), id, GSHM_NO_MAP, &opened), 0) << gshm_last_error();
        const Object object(opened);
        gshm_stat_info info = GSHM_STAT_INFO_INIT;
        EXPECT_EQ(gshm_stat_object(object.get(), &info), 0);
        return info.state == GSHM_STATE_SEALED;
    }
};
INSTANTIATE_TEST_SUITE_P(Devices, PoolKeep, ::testing::Values("host", "cuda:0"), [](const auto& info) {
    std::string name = info.param;
    std::erase(name, ':');
    return name;
});

TEST_P(PoolKeep, KeptSlabsOutliveThePool) {
    gshm_location there = {};
    {
        auto pool = make({.name = "kept", .keep = true});
        void* memory = pool.allocate(1000).value();
        void* unused = pool.allocate(4 * kMiB).value();  // in a slab of its own
        write_to(memory, 1000, 7);
        there = pool.locate(memory).value();
        ASSERT_TRUE(pool.deallocate(unused, 4 * kMiB));
    }
    EXPECT_EQ(slabs().size(), 1u) << "the slab without allocations is gone";
    EXPECT_EQ(read(there, 1000), pattern_of(1000, 7));
    EXPECT_FALSE(is_sealed(there.id));
}

TEST_P(PoolKeep, KeptSlabsOutliveAProcessThatIsKilled) {
    int told[2];
    ASSERT_EQ(pipe2(told, O_CLOEXEC), 0);
    const std::string folder = dir();
    const pid_t child = fork();
    if (child == 0) {
        auto client = hpp::Client::connect({.dir = folder}).value();
        auto pool =
            Memory::create(client, {.device = where(), .name = "kept", .slab_bytes = 4 * kMiB, .keep = true}).value();
        void* memory = pool.allocate(1000).value();
        write_to(memory, 1000, 9);
        const auto there = pool.locate(memory).value();
        (void)!write(told[1], &there, sizeof there);
        ::kill(getpid(), SIGKILL);
    }
    gshm_location there = {};
    ASSERT_EQ(::read(told[0], &there, sizeof there), static_cast<ssize_t>(sizeof there));
    waitpid(child, nullptr, 0);
    EXPECT_EQ(read(there, 1000), pattern_of(1000, 9));
    close(told[0]);
    close(told[1]);
}

TEST_P(PoolKeep, SealedSlabsAreNotUsedAgain) {
    gshm_location first = {};
    {
        auto pool = make({.name = "kept"});
        void* memory = pool.allocate(1000).value();
        void* other = pool.allocate(1000).value();
        write_to(memory, 1000, 1);
        first = pool.locate(memory).value();
        ASSERT_TRUE(pool.seal());
        EXPECT_TRUE(is_sealed(first.id));
        EXPECT_EQ(pool.locate(memory).value().id, first.id) << "still found by its address";
        void* more = pool.allocate(1000).value();
        write_to(more, 1000, 2);
        const auto second = pool.locate(more).value();
        EXPECT_NE(second.id, first.id);
        EXPECT_FALSE(is_sealed(second.id));
        // Memory that is freed there stays as it is.
        EXPECT_TRUE(pool.deallocate(other, 1000));
        EXPECT_TRUE(pool.deallocate(memory, 1000));
        EXPECT_EQ(code(pool.deallocate(memory, 1000)), EINVAL);
        EXPECT_NE(pool.locate(pool.allocate(1000).value()).value().id, first.id);
        EXPECT_TRUE(pool.trim());
        EXPECT_EQ(pool.stats().value().slabs, 1u)
            << "the sealed one has no allocations, and is not the pool's any more";
        EXPECT_TRUE(pool.seal());
        EXPECT_TRUE(is_sealed(second.id));
    }
    EXPECT_EQ(slabs().size(), 2u);
    EXPECT_EQ(read(first, 1000), pattern_of(1000, 1));
}

TEST_P(PoolKeep, SealedSlabsAreGivenBackWithTheirLastAllocation) {
    auto pool = make({.name = "kept", .slab_bytes = 8 * kMiB, .limit_bytes = 64 * kMiB});
    for (int round = 0; round < 24; ++round) {
        const auto memory = pool.allocate(8 * kMiB);
        ASSERT_TRUE(memory) << "round " << round << ": " << memory.error().message;
        const auto there = pool.locate(*memory).value();
        ASSERT_TRUE(pool.seal());
        ASSERT_TRUE(pool.deallocate(*memory, 8 * kMiB));
        ASSERT_TRUE(pool.trim());  // waits for the stream
        EXPECT_EQ(pool.stats().value().slabs, 0u);
        EXPECT_EQ(pool.stats().value().reserved_bytes, 0u);
        EXPECT_TRUE(is_sealed(there.id)) << "it stays under its name";
        ASSERT_EQ(slabs().size(), 1u);
        ASSERT_TRUE(hpp_.unlink("kept/" + slabs()[0]));
        EXPECT_TRUE(eventually([&] { return info().object_bytes == 0; })) << "the pool has no lease";
    }
}

TEST_P(PoolKeep, AnotherWriterKeepsASlabFromBeingSealed) {
    auto pool = make({.name = "kept"});
    void* memory = pool.allocate(1000).value();
    const auto there = pool.locate(memory).value();
    int ready[2];
    int end[2];
    ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
    ASSERT_EQ(pipe2(end, O_CLOEXEC), 0);
    const std::string folder = dir();
    const pid_t child = fork();
    if (child == 0) {
        auto client = hpp::Client::connect({.dir = folder}).value();
        gshm_object* opened = nullptr;
        const int code = gshm_open_id(client.get(), there.id, GSHM_NO_MAP | GSHM_WRITE, &opened);
        (void)!write(ready[1], code == 0 ? "y" : "n", 1);
        char byte = 0;
        (void)!::read(end[0], &byte, 1);
        _exit(0);
    }
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    ASSERT_EQ(byte, 'y');
    EXPECT_EQ(code(pool.seal()), EBUSY);
    EXPECT_NE(pool.locate(pool.allocate(10).value()).value().id, there.id) << "nothing more is allocated there";
    (void)!write(end[1], "x", 1);
    waitpid(child, nullptr, 0);
    EXPECT_TRUE(eventually([&] { return code(pool.seal()) == 0; }));
    EXPECT_TRUE(is_sealed(there.id));
    for (int fd : {ready[0], ready[1], end[0], end[1]}) close(fd);
}

class MallocPool : public LibraryTest {
protected:
    void SetUp() override {
        ASSERT_NO_FATAL_FAILURE(start_all());
        setenv("GSHM_DIR", dir().c_str(), 1);
    }
};

TEST_F(MallocPool, ItsOptionsAreGivenBeforeItsFirstUse) {
    gshm_pool_options options = GSHM_POOL_OPTIONS_INIT;
    options.name = "torch";
    options.flags = GSHM_POOL_KEEP;
    options.slab_bytes = 4 * kMiB;
    gshm_pool* pool = nullptr;
    ASSERT_EQ(gshm_malloc_pool(0, &options, &pool), 0) << gshm_last_error();
    gshm_pool* again = nullptr;
    EXPECT_EQ(gshm_malloc_pool(0, &options, &again), -EBUSY);
    EXPECT_EQ(gshm_malloc_pool(0, nullptr, &again), 0) << gshm_last_error();
    EXPECT_EQ(gshm_malloc_pool(9, nullptr, &again), -ENODEV);
    EXPECT_EQ(again, pool);
    gshm_pool_destroy(again);
    void* memory = gshm_malloc(1000, 0, nullptr);
    ASSERT_NE(memory, nullptr) << gshm_last_error();
    gshm_pool_stats stats = GSHM_POOL_STATS_INIT;
    ASSERT_EQ(gshm_pool_get_stats(pool, &stats), 0);
    EXPECT_EQ(stats.allocations, 1u);
    EXPECT_EQ(stats.reserved_bytes, 4 * kMiB);
    ASSERT_EQ(gshm_pool_seal(pool), 0) << gshm_last_error();
    gshm_free(memory, 1000, 0, nullptr);
    gshm_pool_destroy(pool);
    gshm_listing* listing = nullptr;
    ASSERT_EQ(gshm_list(client_.get(), "torch", GSHM_RECURSIVE, &listing), 0) << gshm_last_error();
    EXPECT_EQ(gshm_listing_count(listing), 1u);
    gshm_listing_free(listing);
}

}  // namespace
}  // namespace gshm::core::test::pools
