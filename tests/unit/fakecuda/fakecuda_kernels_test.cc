// The test double of the driver: the two kernels of examples/kernels.cu, which it recognises by their names. With
// GSHM_TEST_LIBCUDA=libcuda.so.1 a real driver compiles and runs the PTX of examples/kernels.ptx.
#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "harness.h"

namespace fakecuda_test {
namespace {

using Module = void*;
using Function = void*;

constexpr CUresult kErrorNotFound = 500;
constexpr int kPointerAttributeDeviceOrdinal = 9;
constexpr uint64_t kCount = kUnit / sizeof(uint32_t);

// gshm itself calls none of these, so src/cuda/api.h does not have them.
struct Calls {
    CUresult (*mem_alloc)(CUdeviceptr* pointer, size_t size);
    CUresult (*pointer_get_attribute)(void* value, int attribute, CUdeviceptr pointer);
    CUresult (*load)(Module* module, const void* image);
    CUresult (*unload)(Module module);
    CUresult (*get_function)(Function* function, Module module, const char* name);
    CUresult (*launch)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                       unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters,
                       void** extra);
};

const Calls& calls() {
    static const Calls made = [] {
        Dl_info library = {};
        dladdr(reinterpret_cast<const void*>(cuda().init), &library);
        void* handle = dlopen(library.dli_fname, RTLD_NOW | RTLD_LOCAL);
        Calls found = {};
        const auto find = [&](auto& member, const char* symbol) {
            member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(dlsym(handle, symbol));
            EXPECT_NE(member, nullptr) << symbol;
        };
        find(found.mem_alloc, "cuMemAlloc_v2");
        find(found.pointer_get_attribute, "cuPointerGetAttribute");
        find(found.load, "cuModuleLoadData");
        find(found.unload, "cuModuleUnload");
        find(found.get_function, "cuModuleGetFunction");
        find(found.launch, "cuLaunchKernel");
        return found;
    }();
    return made;
}

std::string ptx() {
    const auto path = std::filesystem::path(GSHM_SOURCE_DIR) / "examples/kernels.ptx";
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

Module load_kernels() {
    Module module = nullptr;
    EXPECT_EQ(calls().load(&module, ptx().c_str()), kSuccess);
    return module;
}

CUresult launch(Module module, const char* name, void** parameters, unsigned blocks = 8, unsigned threads = 256) {
    Function function = nullptr;
    if (CUresult result = calls().get_function(&function, module, name); result != kSuccess) return result;
    return calls().launch(function, blocks, 1, 1, threads, 1, 1, 0, nullptr, parameters, nullptr);
}

CUresult fill(Module module, CUdeviceptr words, uint64_t count = kCount) {
    void* parameters[] = {&words, &count};
    return launch(module, "fill_pattern", parameters);
}

CUdeviceptr new_counter() {
    CUdeviceptr counter = 0;
    EXPECT_EQ(calls().mem_alloc(&counter, sizeof(uint64_t)), kSuccess);
    EXPECT_EQ(cuda().memset_d8_async(counter, 0, sizeof(uint64_t), nullptr), kSuccess);
    return counter;
}

uint64_t mismatches(Module module, CUdeviceptr words, uint64_t count = kCount) {
    CUdeviceptr counter = new_counter();
    void* parameters[] = {&words, &count, &counter};
    EXPECT_EQ(launch(module, "check_pattern", parameters), kSuccess);
    const std::string bytes = read(counter, sizeof(uint64_t));
    EXPECT_EQ(cuda().mem_free(counter), kSuccess);
    uint64_t value = ~uint64_t{0};
    if (bytes.size() == sizeof value) memcpy(&value, bytes.data(), sizeof value);
    return value;
}

TEST(FakeCudaKernels, FillAndCheck) {
    if (!in_child()) return;
    start();
    Module module = load_kernels();
    CUdeviceptr words = map_new(create());
    EXPECT_EQ(write(words, std::string(kUnit, '\xa5')), kSuccess);
    EXPECT_EQ(mismatches(module, words), kCount);
    EXPECT_EQ(fill(module, words, kCount - 3), kSuccess);
    EXPECT_EQ(mismatches(module, words), 3U);
    EXPECT_EQ(fill(module, words), kSuccess);
    EXPECT_EQ(mismatches(module, words), 0U);
    EXPECT_EQ(write(words + 4 * 1000, "wrong"), kSuccess);  // one number, and one byte of the next
    EXPECT_EQ(mismatches(module, words), 2U);
    EXPECT_EQ(calls().unload(module), kSuccess);
}

TEST(FakeCudaKernels, WritesThePatternOfTheExamples) {
    if (!in_child()) return;
    start();
    CUdeviceptr words = map_new(create());
    EXPECT_EQ(fill(load_kernels(), words), kSuccess);
    const std::string bytes = read(words, kUnit);
    ASSERT_EQ(bytes.size(), kUnit);
    for (uint32_t i = 0; i < kCount; ++i) {
        uint32_t word = 0;
        memcpy(&word, bytes.data() + size_t{i} * sizeof word, sizeof word);
        ASSERT_EQ(word, (i * 2 + 1337) ^ 0xDEADBEEF) << i;
    }
}

TEST(FakeCudaKernels, OtherNamesAreNotFound) {
    if (!in_child()) return;
    start();
    Module module = load_kernels();
    Function function = nullptr;
    EXPECT_EQ(calls().get_function(&function, module, "fill"), kErrorNotFound);
    EXPECT_EQ(function, nullptr);
}

TEST(FakeCudaKernels, OnlyWhatTheImageHas) {
    if (!in_child_of_fake()) return;
    start();
    Module module = nullptr;
    Function function = nullptr;
    EXPECT_NE(calls().load(&module, "no PTX"), kSuccess);
    EXPECT_EQ(calls().load(&module, ".version 7.0\n.target sm_70\n.visible .entry fill_pattern(\n)"), kSuccess);
    EXPECT_EQ(calls().get_function(&function, module, "fill_pattern"), kSuccess);
    EXPECT_EQ(calls().get_function(&function, module, "check_pattern"), kErrorNotFound);
}

TEST(FakeCudaKernels, LaunchRefusals) {
    if (!in_child()) return;
    start();
    Module module = load_kernels();
    CUdeviceptr words = map_new(create());
    uint64_t count = kCount;
    void* parameters[] = {&words, &count};
    EXPECT_EQ(launch(module, "fill_pattern", parameters, 0), kErrorInvalidValue);
    EXPECT_EQ(launch(module, "fill_pattern", parameters, 1, 0), kErrorInvalidValue);
    EXPECT_EQ(launch(module, "fill_pattern", parameters, 1, 2048), kErrorInvalidValue);
    EXPECT_EQ(launch(module, "fill_pattern", parameters, 1, 1024), kSuccess);
    EXPECT_EQ(mismatches(module, words), 0U);
}

TEST(FakeCudaKernels, AddressThatIsNotMappedLosesTheContext) {
    if (!in_child()) return;
    start();
    Module module = load_kernels();
    CUdeviceptr words = reserve(2 * kUnit);
    ASSERT_EQ(map(words, create()), kSuccess);
    ASSERT_EQ(set_access(words), kSuccess);
    EXPECT_EQ(fill(module, words, kCount + 1), kSuccess);  // the launch itself succeeds
    EXPECT_EQ(cuda().stream_synchronize(nullptr), kErrorIllegalAddress);
}

TEST(FakeCudaKernels, PointerTellsItsDevice) {
    if (!in_child({"FAKECUDA_DEVICES=2"})) return;
    start(1);
    int device = -1;
    CUdeviceptr pointer = reserve();
    ASSERT_EQ(map(pointer, create(kUnit, kMemHandleTypePosixFd, 1)), kSuccess);
    ASSERT_EQ(set_access(pointer, kUnit, kMemAccessProtReadWrite, 1), kSuccess);
    EXPECT_EQ(calls().pointer_get_attribute(&device, kPointerAttributeDeviceOrdinal, pointer + 100), kSuccess);
    EXPECT_EQ(device, 1);
    EXPECT_EQ(calls().pointer_get_attribute(&device, kPointerAttributeDeviceOrdinal, 0), kErrorInvalidValue);
}

}  // namespace
}  // namespace fakecuda_test
