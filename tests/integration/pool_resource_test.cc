// Pools as memory resources: for cuda::mr, RMM and std::pmr.
#include <concepts>

#include "pool_fixture.h"

namespace gshm::core::test::pools {
namespace {

class PoolResources : public PoolFixture {};
INSTANTIATE_TEST_SUITE_P(Devices, PoolResources, ::testing::Values("host", "cuda:0", "cuda:1"), [](const auto& info) {
    std::string name = info.param;
    std::erase(name, ':');
    return name;
});

// The requirements of cuda::mr::resource and cuda::mr::async_resource. S: the stream type.
template <class T>
concept Resource = std::equality_comparable<T> && requires(T& resource, void* memory, size_t bytes, size_t alignment) {
    { resource.allocate(bytes, alignment) } -> std::same_as<void*>;
    { resource.deallocate(memory, bytes, alignment) } -> std::same_as<void>;
};
template <class T, class S>
concept AsyncResource = Resource<T> && requires(T& resource, void* memory, size_t bytes, size_t alignment, S stream) {
    { resource.allocate_async(bytes, alignment, stream) } -> std::same_as<void*>;
    { resource.deallocate_async(memory, bytes, alignment, stream) } -> std::same_as<void>;
};
struct StreamRef {  // as cuda::stream_ref
    cuda::CUstream handle = nullptr;
    cuda::CUstream get() const { return handle; }
};
struct StreamView {  // as rmm::cuda_stream_view
    cuda::CUstream handle = nullptr;
    cuda::CUstream value() const { return handle; }
};
static_assert(Resource<hpp::PoolResource> && AsyncResource<hpp::PoolResource, cuda::CUstream>);
static_assert(AsyncResource<hpp::PoolResource, StreamRef> && AsyncResource<hpp::PoolResource, StreamView>);
static_assert(std::is_copy_constructible_v<hpp::PoolResource> && !std::is_copy_constructible_v<hpp::Pool>);

TEST_P(PoolResources, IsAResource) {
    auto pool = make({.limit_bytes = 8 * kMiB});
    auto second = make();
    hpp::PoolResource resource(pool);
    EXPECT_TRUE(resource == hpp::PoolResource(pool));
    EXPECT_FALSE(resource == hpp::PoolResource(second));
    void* memory = resource.allocate(1000, 1024);
    EXPECT_EQ(reinterpret_cast<uint64_t>(memory) % 1024, 0u);
    write_to(memory, 1000, 1);
    EXPECT_TRUE(holds_in(memory, 1000, 1));
    resource.deallocate(memory, 1000, 1024);
    memory = resource.allocate_async(2000, 256, StreamRef{});
    resource.deallocate_async(memory, 2000, 256, StreamView{});
    memory = resource.allocate_async(2000, StreamView{});
    resource.deallocate_async(memory, 2000, StreamRef{});
    EXPECT_THROW(resource.allocate(9 * kMiB), std::bad_alloc);
    EXPECT_EQ(pool.stats().value().allocations, 0u);
}

TEST_P(PoolResources, ServesStandardContainers) {
    if (!on_host()) GTEST_SKIP() << "the CPU does not reach it";
    auto pool = make();
    hpp::PoolMemoryResource resource(pool);
    {
        std::pmr::vector<uint64_t> numbers(&resource);
        for (uint64_t i = 0; i < 100000; ++i) numbers.push_back(i);
        const auto there = hpp::locate(numbers.data()).value();
        auto reader = hpp_.open_id(there.id).value();
        uint64_t last = 0;
        std::memcpy(&last, reader.data_as<const std::byte>() + there.offset + 99999 * 8, 8);
        EXPECT_EQ(last, 99999u);
        EXPECT_NE(resource.allocate(0), nullptr);
        EXPECT_TRUE(resource == hpp::PoolMemoryResource(pool));
    }
    EXPECT_EQ(pool.stats().value().allocations, 1u) << "what nobody deallocated";
}

}  // namespace
}  // namespace gshm::core::test::pools
