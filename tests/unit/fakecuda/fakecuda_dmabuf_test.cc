// The test double of the driver: dma-bufs and external memory.
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "harness.h"

namespace fakecuda_test {
namespace {

CUresult range(CUdeviceptr pointer, size_t size, int* fd, unsigned long long flags = 0) {
    return cuda().mem_get_range_handle(fd, pointer, size, kMemRangeHandleTypeDmaBufFd, flags);
}

CUresult import_dmabuf(int fd, size_t size, CUexternalMemory* memory) {
    CUexternalMemoryHandleDesc descriptor = {};
    descriptor.type = kExternalMemoryDmaBufFd;
    descriptor.handle.fd = fd;
    descriptor.size = size;
    return cuda().import_external_memory(memory, &descriptor);
}

CUresult map_buffer(CUexternalMemory memory, size_t offset, size_t size, CUdeviceptr* pointer, unsigned flags = 0) {
    CUexternalMemoryBufferDesc descriptor = {};
    descriptor.offset = offset;
    descriptor.size = size;
    descriptor.flags = flags;
    return cuda().external_memory_map(pointer, memory, &descriptor);
}

bool is_open(int fd) {
    return fcntl(fd, F_GETFD) >= 0;
}

TEST(FakeCudaDmabuf, Export) {
    if (!in_child()) return;
    start();
    CUdeviceptr pointer = map_new(create(2 * kUnit), 2 * kUnit);
    int fd = -1;
    ASSERT_EQ(range(pointer, 2 * kUnit, &fd), kSuccess);
    EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_EQ(mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0), MAP_FAILED);
    EXPECT_EQ(range(pointer + kUnit, kUnit, &fd), kSuccess);
    EXPECT_EQ(range(pointer + 4096, 4096, &fd), kSuccess);
    EXPECT_EQ(range(pointer, 100, &fd), kErrorInvalidValue);
    EXPECT_EQ(range(pointer + 100, 4096, &fd), kErrorInvalidValue);
    EXPECT_EQ(range(pointer, 0, &fd), kErrorInvalidValue);
    EXPECT_EQ(range(pointer, 4 * kUnit, &fd), kErrorInvalidValue);
    EXPECT_EQ(range(0x123400000000, kUnit, &fd), kErrorInvalidValue);
    EXPECT_EQ(range(pointer, kUnit, &fd, 1), kErrorNotSupported);
    EXPECT_EQ(range(pointer, kUnit, &fd, 2), kErrorInvalidValue);
    EXPECT_EQ(cuda().mem_get_range_handle(&fd, pointer, kUnit, 0, 0), kErrorInvalidValue);
}

TEST(FakeCudaDmabuf, ImportTakesTheDescriptor) {
    if (!in_child_of_fake()) return;
    start();
    CUdeviceptr pointer = map_new(create(2 * kUnit), 2 * kUnit);
    EXPECT_EQ(write(pointer + kUnit + 5000, "through"), kSuccess);
    int fd = -1;
    CUexternalMemory memory = nullptr;
    ASSERT_EQ(range(pointer + kUnit, kUnit, &fd), kSuccess);
    ASSERT_EQ(import_dmabuf(fd, kUnit, &memory), kSuccess);
    EXPECT_FALSE(is_open(fd));

    CUdeviceptr whole = 0;
    CUdeviceptr part = 0;
    EXPECT_EQ(map_buffer(memory, 0, kUnit, &whole), kSuccess);
    EXPECT_EQ(map_buffer(memory, 4096, 4096, &part), kSuccess);
    EXPECT_EQ(part % kUnit, 4096U);
    EXPECT_EQ(map_buffer(memory, 0, 0, &part), kErrorInvalidValue);
    EXPECT_EQ(map_buffer(memory, 0, 2 * kUnit, &part), kErrorInvalidValue);
    EXPECT_EQ(map_buffer(memory, kUnit, 4096, &part), kErrorInvalidValue);
    EXPECT_EQ(map_buffer(memory, 0, kUnit, &part, 1), kErrorInvalidValue);
    EXPECT_EQ(read(whole + 5000, 7), "through");
    EXPECT_EQ(read(part + 5000 - 4096, 7), "through");
    EXPECT_EQ(read(part + 4096 - 4, 8), "") << "over its end";
    EXPECT_EQ(write(part, "back"), kSuccess);
    EXPECT_EQ(read(pointer + kUnit + 4096, 4), "back");

    EXPECT_EQ(cuda().mem_unmap(whole, kUnit), kErrorInvalidValue);
    EXPECT_EQ(cuda().mem_address_free(whole, kUnit), kErrorInvalidValue);
    EXPECT_EQ(cuda().destroy_external_memory(memory), kSuccess);
    EXPECT_EQ(read(whole + 5000, 7), "through") << "what was mapped stays";
    EXPECT_EQ(cuda().mem_free(whole + 4096), kErrorInvalidValue);
    EXPECT_EQ(cuda().mem_free(whole), kSuccess);
    EXPECT_EQ(cuda().mem_free(whole), kErrorInvalidValue);
    EXPECT_EQ(cuda().mem_free(part), kSuccess);
    EXPECT_EQ(cuda().mem_free(pointer), kErrorInvalidValue) << "VMM memory";
    EXPECT_EQ(cuda().mem_free(0), kSuccess);
    EXPECT_EQ(cuda().destroy_external_memory(nullptr), kErrorInvalidValue);
}

void expect_refusal(int fd, size_t size, CUresult expected) {
    CUexternalMemory memory = nullptr;
    EXPECT_EQ(import_dmabuf(fd, size, &memory), expected);
    EXPECT_TRUE(fd < 0 || is_open(fd)) << "refused, so not taken";
}

TEST(FakeCudaDmabuf, ImportRefusals) {
    if (!in_child()) return;
    start();
    auto handle = create();
    CUdeviceptr pointer = map_new(handle);
    int fd = -1;
    ASSERT_EQ(range(pointer, kUnit, &fd), kSuccess);
    expect_refusal(-1, kUnit, kErrorInvalidValue);
    expect_refusal(fd, 0, kErrorInvalidValue);
    expect_refusal(fd, 64 * kUnit, kErrorNotSupported);
    int other = memfd_create("other", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(other, kUnit), 0);
    expect_refusal(other, kUnit, kErrorNotSupported);
    expect_refusal(export_fd(handle), kUnit, kErrorNotSupported);  // not a dma-buf
}

TEST(FakeCudaDmabuf, DriverWithoutImport) {
    if (!in_child({"FAKECUDA_DMABUF_IMPORT=0"})) return;
    start();
    int fd = -1;
    ASSERT_EQ(range(map_new(create()), kUnit, &fd), kSuccess);
    expect_refusal(fd, kUnit, kErrorNotSupported);
}

TEST(FakeCudaDmabuf, OtherProcess) {
    if (!in_child_of_fake()) return;
    if (part() == "importer") {
        start();
        CUexternalMemory memory = nullptr;
        CUdeviceptr pointer = 0;
        ASSERT_EQ(import_dmabuf(argument("FD"), kUnit, &memory), kSuccess);
        ASSERT_EQ(map_buffer(memory, 0, kUnit, &pointer), kSuccess);
        EXPECT_EQ(read(pointer, 5), "bytes");
        return;
    }
    start();
    CUdeviceptr pointer = map_new(create(2 * kUnit), 2 * kUnit);
    EXPECT_EQ(write(pointer + kUnit, "bytes"), kSuccess);
    int fd = -1;
    ASSERT_EQ(range(pointer + kUnit, kUnit, &fd), kSuccess);
    std::string output;
    EXPECT_EQ(run_part("importer", {"FD=" + std::to_string(dup(fd))}, &output), 0) << output;
}

}  // namespace
}  // namespace fakecuda_test
