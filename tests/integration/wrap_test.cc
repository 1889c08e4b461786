// Memory that the caller already has: gshm_wrap, gshm_sync, and CUDA IPC handles. No daemon is needed.
#include <sys/mman.h>

#include "cuda/driver.h"
#include "library_fixture.h"

namespace gshm::core::test {
namespace {

using cuda::CUdeviceptr;

constexpr size_t kMiB = size_t{1} << 20;

unsigned long calls_of(const char* symbol) {
    auto count = reinterpret_cast<unsigned long (*)(const char*)>(dlsym(RTLD_DEFAULT, "fakecuda_calls"));
    return count(symbol);
}

class WrapTest : public ::testing::Test {
protected:
    void SetUp() override { ASSERT_TRUE(fake_loaded); }

    // A context of this process, as a framework creates it.
    static const cuda::Driver& start_cuda(int ordinal = 0) {
        const auto& driver = **cuda::Driver::get();
        cuda::CUcontext context = nullptr;
        EXPECT_EQ(driver.primary_ctx_retain(&context, ordinal), cuda::kSuccess);
        EXPECT_EQ(driver.ctx_push(context), cuda::kSuccess);
        return driver;
    }
    static char* cuda_malloc(size_t bytes) {
        auto allocate =
            reinterpret_cast<cuda::CUresult (*)(CUdeviceptr*, size_t)>(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
        CUdeviceptr pointer = 0;
        EXPECT_EQ(allocate(&pointer, bytes), cuda::kSuccess);
        return reinterpret_cast<char*>(pointer);
    }
    static Object wrap(void* memory, uint64_t bytes, int expected = 0) {
        gshm_object* object = nullptr;
        EXPECT_EQ(gshm_wrap(memory, bytes, &object), expected) << gshm_last_error();
        return Object(object);
    }
    static std::string read(gshm_object* object, uint64_t offset, size_t bytes) {
        std::string text(bytes, '\0');
        EXPECT_EQ(gshm_copy_out(object, offset, text.data(), bytes), 0) << gshm_last_error();
        return text;
    }
};

TEST_F(WrapTest, OrdinaryMemoryStartsNoCuda) {
    std::vector<char> memory(100000, 'a');
    auto whole = wrap(memory.data(), memory.size());
    EXPECT_STREQ(gshm_device(whole.get()), "host");
    EXPECT_EQ(gshm_data(whole.get()), memory.data());
    EXPECT_EQ(gshm_copy_in(whole.get(), 99995, "hello", 5), 0);
    EXPECT_EQ(std::string(memory.data() + 99995, 5), "hello");
    EXPECT_EQ(gshm_fill(whole.get(), 1, 2, 'b'), 0);
    EXPECT_EQ(read(whole.get(), 0, 4), "abba");
    EXPECT_EQ(gshm_sync(whole.get()), 0);
    int fd = -1;
    EXPECT_EQ(gshm_export_dmabuf(whole.get(), &fd, nullptr), -EOPNOTSUPP);
    EXPECT_EQ(calls_of("cuInit"), 0u) << "the driver is loaded, but nobody has asked for it";
}

TEST_F(WrapTest, OrdinaryMemoryIsLookedAtNotTouched) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    auto* pages =
        static_cast<char*>(mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(pages, MAP_FAILED);
    wrap(pages, 4 * page);
    unsigned char resident[4] = {};
    ASSERT_EQ(mincore(pages, 4 * page, resident), 0);
    EXPECT_EQ(resident[0] & 1, 0) << "not even read";

    ASSERT_EQ(mprotect(pages + page, page, PROT_READ), 0);
    auto readable = wrap(pages + 10, 2 * page);
    EXPECT_EQ(gshm_copy_in(readable.get(), 0, "x", 1), -EACCES) << "some of it cannot be written";
    EXPECT_EQ(read(readable.get(), page, 1), std::string(1, '\0'));
    ASSERT_EQ(mprotect(pages + page, page, PROT_NONE), 0);
    wrap(pages + 10, 2 * page, -EINVAL);
    ASSERT_EQ(munmap(pages + page, page), 0);
    wrap(pages + 10, 2 * page, -EINVAL);
    wrap(pages + page - 1, 2, -EINVAL);
    wrap(pages, page);
    wrap(pages + 2 * page, 2 * page);
}

TEST_F(WrapTest, MemoryOfCudaMalloc) {
    start_cuda(1);
    char* memory = cuda_malloc(4 * kMiB);
    auto whole = wrap(memory, 4 * kMiB);
    EXPECT_STREQ(gshm_device(whole.get()), "cuda:1");
    EXPECT_EQ(gshm_fill(whole.get(), 0, 4 * kMiB, '.'), 0) << gshm_last_error();
    char* inside = memory + 3 * kMiB + 77;
    auto part = wrap(inside, 1000);
    EXPECT_EQ(gshm_data(part.get()), inside);
    EXPECT_EQ(gshm_size(part.get()), 1000u);
    EXPECT_EQ(gshm_copy_in(part.get(), 1, "inside", 6), 0) << gshm_last_error();
    EXPECT_EQ(read(whole.get(), 3 * kMiB + 76, 9), "..inside.");
    EXPECT_EQ(gshm_sync(part.get()), 0) << gshm_last_error();
    int fd = -1;
    gshm_handle_info info = {};
    info.struct_size = sizeof info;
    EXPECT_EQ(gshm_export_dmabuf(part.get(), &fd, &info), 0) << gshm_last_error();
    close(fd);
    EXPECT_EQ(info.offset, 77u) << "dma-bufs begin with a page";
    EXPECT_EQ(info.size_bytes, 1000u);
    uint8_t handle[GSHM_IPC_HANDLE_BYTES];
    EXPECT_EQ(gshm_export_ipc(part.get(), handle, &info), 0) << gshm_last_error();
    EXPECT_EQ(info.kind, uint32_t{GSHM_HANDLE_IPC});
    EXPECT_EQ(info.extent_bytes, 4 * kMiB);
    EXPECT_EQ(info.offset, 3 * kMiB + 77);
    EXPECT_EQ(info.size_bytes, 1000u);
    gshm_object* again = nullptr;
    EXPECT_EQ(gshm_import_ipc("cuda:1", handle, &info, 0, &again), -EINVAL) << "never in the same process";
    wrap(memory + 3 * kMiB, kMiB + 1, -EINVAL);
    whole.reset();
    part.reset();
    EXPECT_TRUE(wrap(memory, 4 * kMiB)) << "what was wrapped stays its owner's";
}

// Like expandable segments of a framework: many allocations at adjacent addresses.
TEST_F(WrapTest, PiecesSideBySide) {
    const auto& driver = start_cuda();
    cuda::CUmemAllocationProp properties = {};
    properties.type = cuda::kMemAllocationTypePinned;
    properties.location = {cuda::kMemLocationTypeDevice, 0};
    CUdeviceptr start = 0;
    ASSERT_EQ(driver.mem_address_reserve(&start, 6 * kMiB, 0, 0, 0), cuda::kSuccess);
    for (int i = 0; i < 2; ++i) {
        cuda::CUmemGenericAllocationHandle handle = 0;
        ASSERT_EQ(driver.mem_create(&handle, 2 * kMiB, &properties, 0), cuda::kSuccess);
        ASSERT_EQ(driver.mem_map(start + i * 2 * kMiB, 2 * kMiB, 0, handle, 0), cuda::kSuccess);
    }
    cuda::CUmemAccessDesc access = {properties.location, cuda::kMemAccessProtReadWrite};
    ASSERT_EQ(driver.mem_set_access(start, 4 * kMiB, &access, 1), cuda::kSuccess);
    auto* memory = reinterpret_cast<char*>(start);
    auto both = wrap(memory + 2 * kMiB - 3, 6);
    EXPECT_STREQ(gshm_device(both.get()), "cuda:0");
    EXPECT_EQ(gshm_copy_in(both.get(), 0, "abcdef", 6), 0) << gshm_last_error();
    EXPECT_EQ(read(both.get(), 2, 3), "cde");
    uint8_t handle[GSHM_IPC_HANDLE_BYTES];
    EXPECT_EQ(gshm_export_ipc(both.get(), handle, nullptr), -EOPNOTSUPP);
    EXPECT_EQ(gshm_export_ipc(wrap(memory, 10).get(), handle, nullptr), -EOPNOTSUPP) << "VMM memory";
    wrap(memory + 4 * kMiB - 3, 6, -EINVAL);
    wrap(memory + 5 * kMiB, 6, -EINVAL);
}

// Parent and child start CUDA separately, after the fork.
TEST_F(WrapTest, IpcBetweenProcesses) {
    struct Message {
        uint8_t handle[GSHM_IPC_HANDLE_BYTES];
        gshm_handle_info info;
    } message = {};
    int down[2];
    int up[2];
    ASSERT_EQ(pipe2(down, O_CLOEXEC), 0);
    ASSERT_EQ(pipe2(up, O_CLOEXEC), 0);
    const pid_t child = fork();
    if (child == 0) {
        start_cuda();
        auto part = wrap(cuda_malloc(2 * kMiB) + 12345, 100);
        message.info.struct_size = sizeof message.info;
        bool good = gshm_copy_in(part.get(), 0, "question", 8) == 0 &&
                    gshm_export_ipc(part.get(), message.handle, &message.info) == 0 &&
                    ::write(up[1], &message, sizeof message) == sizeof message;
        char go = 0;
        good = good && ::read(down[0], &go, 1) == 1 && read(part.get(), 92, 8) == "answered";
        _exit(good ? 0 : 1);
    }
    ASSERT_EQ(::read(up[0], &message, sizeof message), static_cast<ssize_t>(sizeof message));
    gshm_object* raw = nullptr;
    ASSERT_EQ(gshm_import_ipc("cuda:0", message.handle, &message.info, GSHM_WRITE, &raw), 0) << gshm_last_error();
    Object first(raw);
    EXPECT_EQ(gshm_size(first.get()), 100u);
    EXPECT_EQ(read(first.get(), 0, 8), "question") << "the offset in the allocation came along";
    ASSERT_EQ(gshm_import_ipc("cuda:0", message.handle, &message.info, 0, &raw), 0) << gshm_last_error();
    Object second(raw);
    EXPECT_EQ(gshm_copy_in(second.get(), 0, "x", 1), -EACCES);
    EXPECT_EQ(gshm_copy_in(first.get(), 92, "answered", 8), 0);
    first.reset();
    EXPECT_EQ(read(second.get(), 92, 8), "answered") << "opened twice, closed once";
    uint8_t handle[GSHM_IPC_HANDLE_BYTES];
    EXPECT_EQ(gshm_export_ipc(second.get(), handle, nullptr), -EOPNOTSUPP) << "another process's";
    second.reset();
    message.info.extent_bytes = 3 * kMiB;
    EXPECT_EQ(gshm_import_ipc("cuda:0", message.handle, &message.info, 0, &raw), -EINVAL) << "more than there is";
    message.handle[0] ^= 1;
    message.info.extent_bytes = 2 * kMiB;
    EXPECT_EQ(gshm_import_ipc("cuda:0", message.handle, &message.info, 0, &raw), -EINVAL);
    EXPECT_EQ(calls_of("cuIpcCloseMemHandle"), 3u) << "each open was undone, the one that was too large as well";
    ASSERT_EQ(::write(down[1], "!", 1), 1);
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

TEST_F(WrapTest, AForkedChildWrapsItsOwnOrdinaryMemory) {
    start_cuda();
    char* memory = cuda_malloc(2 * kMiB);
    const pid_t child = fork();
    if (child == 0) {
        char own[100] = "own";
        auto object = wrap(own, sizeof own);
        bool good = object && read(object.get(), 0, 3) == "own";
        wrap(memory, 100, -EINVAL);  // memory of the parent
        _exit(good && !::testing::Test::HasFailure() ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace gshm::core::test
