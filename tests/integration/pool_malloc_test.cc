// The default pools of the process: gshm_malloc and gshm_free.
#include <dlfcn.h>
#include <functional>
#include <typeinfo>

#include "pool_fixture.h"
#include "support/this_build.h"

namespace gshm::core::test::pools {
namespace {

class PoolMalloc : public LibraryTest {
protected:
    void SetUp() override {
        ASSERT_NO_FATAL_FAILURE(start_all());
        setenv("GSHM_DIR", dir().c_str(), 1);
    }
    static gshm_location locate(void* memory) {
        gshm_location location = {};
        location.struct_size = sizeof location;
        EXPECT_EQ(gshm_pool_locate(memory, &location), 0) << gshm_last_error();
        return location;
    }
};

TEST_F(PoolMalloc, MemoryIsBornShareable) {
    EXPECT_EQ(gshm_malloc(0, 0, nullptr), nullptr);
    EXPECT_EQ(gshm_malloc(-1, 0, nullptr), nullptr);
    EXPECT_STREQ(gshm_last_error(), "size is negative");
    for (int ordinal : {0, 1}) {
        void* memory = gshm_malloc(1000000, ordinal, nullptr);
        ASSERT_NE(memory, nullptr) << gshm_last_error();
        write_to(memory, 1000000, 3);
        const auto there = locate(memory);
        EXPECT_EQ(std::string(there.device), "cuda:" + std::to_string(ordinal));
        gshm_object* opened = nullptr;
        ASSERT_EQ(gshm_open_id(client_.get(), there.id, GSHM_NO_MAP, &opened), 0) << gshm_last_error();
        const Object object(opened);
        Bytes data(1000000);
        ASSERT_EQ(gshm_copy_out(object.get(), there.offset, data.data(), data.size()), 0) << gshm_last_error();
        EXPECT_EQ(data, pattern_of(1000000, 3));
        gshm_free(memory, 1000000, ordinal, nullptr);
        gshm_location gone = {};
        gone.struct_size = sizeof gone;
        EXPECT_EQ(gshm_pool_locate(memory, &gone), -EINVAL);
    }
    EXPECT_EQ(gshm_malloc(100, 7, nullptr), nullptr);
    EXPECT_NE(std::string(gshm_last_error()), "");
    EXPECT_EQ(gshm_malloc(100, -1, nullptr), nullptr);
    gshm_free(nullptr, 0, 0, nullptr);
    int here = 0;
    gshm_free(&here, 8, 0, nullptr);  // logs an error and does nothing
}

TEST_F(PoolMalloc, OrdinalsAreThisProcesss) {
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);  // before the driver is started here
    void* memory = gshm_malloc(1000, 0, nullptr);
    ASSERT_NE(memory, nullptr) << gshm_last_error();
    EXPECT_STREQ(locate(memory).device, "cuda:1");
    EXPECT_EQ(gshm_malloc(1000, 1, nullptr), nullptr);
    gshm_free(memory, 1000, 0, nullptr);
}

TEST_F(PoolMalloc, OptionsComeFromTheEnvironment) {
    setenv("GSHM_POOL_LIMIT", "rather much", 1);
    EXPECT_EQ(gshm_malloc(1000, 0, nullptr), nullptr);
    EXPECT_NE(std::string(gshm_last_error()).find("$GSHM_POOL_LIMIT"), std::string::npos) << gshm_last_error();
    setenv("GSHM_POOL_LIMIT", "6M", 1);
    setenv("GSHM_POOL_SLAB", "4M", 1);
    setenv("GSHM_POOL_MODE", "0999", 1);
    EXPECT_EQ(gshm_malloc(1000, 0, nullptr), nullptr);
    setenv("GSHM_POOL_MODE", "0644", 1);
    void* memory = gshm_malloc(1000, 0, nullptr);
    ASSERT_NE(memory, nullptr) << gshm_last_error();
    EXPECT_EQ(device(client_.get(), "cuda:0").used_bytes, uint64_t{4} << 20);
    EXPECT_EQ(gshm_malloc(8 << 20, 0, nullptr), nullptr);
    gshm_object* opened = nullptr;
    ASSERT_EQ(gshm_open_id(client_.get(), locate(memory).id, GSHM_NO_MAP, &opened), 0);
    const Object object(opened);
    gshm_stat_info info = {};
    info.struct_size = sizeof info;
    ASSERT_EQ(gshm_stat_object(object.get(), &info), 0);
    EXPECT_EQ(info.mode & 0777, 0644u);
    gshm_free(memory, 1000, 0, nullptr);
}

class FakeTorch {
public:
    // As Python imports it.
    static void* load(const char* name) {
        void* library = dlopen((build_path("tests/faketorch/") + name).c_str(), RTLD_NOW | RTLD_LOCAL);
        EXPECT_NE(library, nullptr) << dlerror();
        return library;
    }
    void change_current_allocator(bool pluggable) {
        using Change = void (*)(bool);
        reinterpret_cast<Change>(dlsym(torch_, "faketorch_change_current_allocator"))(pluggable);
    }

private:
    void* base_ = load("libc10.so");
    void* errors_ = load("libc10_cuda.so");
    void* torch_ = load("libtorch_cuda.so");
};

std::string thrown_by(const std::function<void()>& call) {
    try {
        call();
    } catch (const std::exception& error) {
        return std::string(typeid(error).name()) + ": " + error.what();
    }
    return "nothing";
}

// torch does not check for NULL: a tensor on a full GPU would have no memory.
TEST_F(PoolMalloc, TorchGetsItsOwnErrorIfTheDeviceIsFull) {
    setenv("GSHM_POOL_LIMIT", "6M", 1);
    setenv("GSHM_POOL_SLAB", "4M", 1);
    auto too_much = [] { EXPECT_EQ(gshm_malloc(8 << 20, 0, nullptr), nullptr); };
    EXPECT_EQ(thrown_by(too_much), "nothing") << "without torch";
    FakeTorch torch;
    EXPECT_EQ(thrown_by(too_much), "nothing") << "for a MemPool: torch checks the result";
    torch.change_current_allocator(true);
    const std::string full = thrown_by(too_much);
    EXPECT_TRUE(full.starts_with("N3c1016OutOfMemoryErrorE: CUDA out of memory: gshm: no 8388608 bytes on cuda:0"))
        << full;
    EXPECT_TRUE(full.ends_with("(at libgshm:gshm_malloc)")) << full;
    const std::string no_device = thrown_by([] { gshm_malloc(100, 7, nullptr); });
    EXPECT_TRUE(no_device.starts_with("St13runtime_error: gshm: no 100 bytes on cuda:7")) << no_device;
    void* memory = gshm_malloc(1000, 0, nullptr);
    EXPECT_NE(memory, nullptr) << "later allocations succeed";
    gshm_free(memory, 1000, 0, nullptr);
}

TEST_F(PoolMalloc, WithoutADaemonItFailsAndGoesOnLater) {
    setenv("GSHM_DIR", (scratch() + "/nowhere").c_str(), 1);
    EXPECT_EQ(gshm_malloc(1000, 0, nullptr), nullptr);
    EXPECT_NE(std::string(gshm_last_error()), "");
    setenv("GSHM_DIR", dir().c_str(), 1);
    void* memory = gshm_malloc(1000, 0, nullptr);
    EXPECT_NE(memory, nullptr) << gshm_last_error();
    // In a forked child CUDA cannot be used, and the parent's memory is not freed.
    const int result = in_child([&] {
        gshm_free(memory, 1000, 0, nullptr);
        return gshm_malloc(1000, 0, nullptr) == nullptr ? 0 : 1;
    });
    EXPECT_EQ(result, 0);
    EXPECT_EQ(locate(memory).size_bytes, 1000u);
    gshm_free(memory, 1000, 0, nullptr);
}

}  // namespace
}  // namespace gshm::core::test::pools
