// The test double of the driver: initialization, devices, contexts.
#include <algorithm>
#include <cctype>
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "harness.h"

namespace fakecuda_test {
namespace {

TEST(FakeCuda, SaysWhatItIsAndCountsCalls) {
    if (!in_child_of_fake()) return;
    EXPECT_NE(std::string(cuda().identity()).find("test double"), std::string::npos);
    EXPECT_EQ(cuda().calls(nullptr), 0U);
    start();
    create();
    create();
    EXPECT_EQ(cuda().calls("cuMemCreate"), 2U);
    EXPECT_EQ(cuda().calls("cuCtxPushCurrent_v2"), 1U);
    EXPECT_EQ(cuda().calls("cuCtxPushCurrent"), 1U);
    EXPECT_EQ(cuda().calls("cuNoSuchCall"), 0U);
    EXPECT_EQ(cuda().calls(nullptr), 5U);
}

// All calls that fail without valid arguments.
void expect_not_initialized() {
    int number = 0;
    unsigned flags = 0;
    size_t bytes = 0;
    char name[8];
    CUuuid uuid;
    CUcontext context = nullptr;
    CUstream stream = nullptr;
    CUdeviceptr pointer = 0;
    CUmemGenericAllocationHandle handle = 0;
    auto wanted = properties();
    const Library& c = cuda();
    EXPECT_EQ(c.device_get_count(&number), kErrorNotInitialized);
    EXPECT_EQ(c.device_get(&number, 0), kErrorNotInitialized);
    EXPECT_EQ(c.device_get_name(name, sizeof name, 0), kErrorNotInitialized);
    EXPECT_EQ(c.device_get_uuid(&uuid, 0), kErrorNotInitialized);
    EXPECT_EQ(c.device_get_attribute(&number, kAttributeVmmSupported, 0), kErrorNotInitialized);
    EXPECT_EQ(c.device_total_mem(&bytes, 0), kErrorNotInitialized);
    EXPECT_EQ(c.device_can_access_peer(&number, 0, 0), kErrorNotInitialized);
    EXPECT_EQ(c.primary_ctx_retain(&context, 0), kErrorNotInitialized);
    EXPECT_EQ(c.primary_ctx_release(0), kErrorNotInitialized);
    EXPECT_EQ(c.primary_ctx_get_state(0, &flags, &number), kErrorNotInitialized);
    EXPECT_EQ(c.ctx_push(nullptr), kErrorNotInitialized);
    EXPECT_EQ(c.ctx_pop(&context), kErrorNotInitialized);
    EXPECT_EQ(c.mem_get_info(&bytes, &bytes), kErrorNotInitialized);
    EXPECT_EQ(c.mem_granularity(&bytes, &wanted, 0), kErrorNotInitialized);
    EXPECT_EQ(c.mem_create(&handle, kUnit, &wanted, 0), kErrorNotInitialized);
    EXPECT_EQ(c.mem_release(0), kErrorNotInitialized);
    EXPECT_EQ(c.mem_export(&number, 0, kMemHandleTypePosixFd, 0), kErrorNotInitialized);
    EXPECT_EQ(import_fd(0, &handle), kErrorNotInitialized);
    EXPECT_EQ(c.mem_get_properties(&wanted, 0), kErrorNotInitialized);
    EXPECT_EQ(c.mem_address_reserve(&pointer, kUnit, 0, 0, 0), kErrorNotInitialized);
    EXPECT_EQ(c.mem_address_free(kUnit, kUnit), kErrorNotInitialized);
    EXPECT_EQ(c.mem_map(kUnit, kUnit, 0, 0, 0), kErrorNotInitialized);
    EXPECT_EQ(c.mem_unmap(kUnit, kUnit), kErrorNotInitialized);
    EXPECT_EQ(set_access(kUnit), kErrorNotInitialized);
    EXPECT_EQ(c.destroy_external_memory(nullptr), kErrorNotInitialized);
    EXPECT_EQ(c.mem_free(kUnit), kErrorNotInitialized);
    EXPECT_EQ(c.memcpy_htod_async(kUnit, name, 1, nullptr), kErrorNotInitialized);
    EXPECT_EQ(c.memcpy_dtoh_async(name, kUnit, 1, nullptr), kErrorNotInitialized);
    EXPECT_EQ(c.memset_d8_async(kUnit, 0, 1, nullptr), kErrorNotInitialized);
    EXPECT_EQ(c.stream_create(&stream, 0), kErrorNotInitialized);
    EXPECT_EQ(c.stream_synchronize(nullptr), kErrorNotInitialized);
    if (!is_fake()) return;  // a real driver checks the arguments of these first
    EXPECT_EQ(c.mem_get_range_handle(&number, kUnit, kUnit, kMemRangeHandleTypeDmaBufFd, 0), kErrorNotInitialized);
    EXPECT_EQ(c.stream_destroy(nullptr), kErrorNotInitialized);
}

void expect_names_and_version() {
    int version = 0;
    const char* text = nullptr;
    EXPECT_EQ(cuda().driver_get_version(&version), kSuccess);
    EXPECT_GE(version, 12000);
    EXPECT_EQ(cuda().get_error_name(kErrorNotPermitted, &text), kSuccess);
    EXPECT_STREQ(text, "CUDA_ERROR_NOT_PERMITTED");
    EXPECT_EQ(cuda().get_error_string(kErrorOutOfMemory, &text), kSuccess);
    EXPECT_STREQ(text, "out of memory");
    EXPECT_EQ(cuda().get_error_name(12345, &text), kErrorInvalidValue);
    EXPECT_EQ(text, nullptr);
}

TEST(FakeCuda, RefusesBeforeInit) {
    if (!in_child()) return;
    expect_names_and_version();
    expect_not_initialized();
    EXPECT_EQ(cuda().init(1), kErrorInvalidValue);
    EXPECT_EQ(cuda().init(0), kSuccess);
    EXPECT_EQ(cuda().init(0), kSuccess);
}

TEST(FakeCuda, RefusesInForkedChild) {
    if (!in_child()) return;
    start();
    CUdeviceptr pointer = map_new(create());
    const pid_t child = fork();
    if (child == 0) {
        expect_names_and_version();
        expect_not_initialized();
        EXPECT_EQ(cuda().init(0), kErrorNotInitialized);
        _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(write(pointer, "still works here"), kSuccess);
}

TEST(FakeCuda, NoDevices) {
    if (!in_child({"FAKECUDA_DEVICES=0"})) return;
    EXPECT_EQ(cuda().init(0), kErrorNoDevice);
    expect_not_initialized();
}

TEST(FakeCuda, MisspeltKnobAborts) {
    if (!in_child_of_fake()) return;
    if (part() == "misspelt") {
        cuda().init(0);
        return;
    }
    std::string output;
    EXPECT_TRUE(WIFSIGNALED(run_part("misspelt", {"FAKECUDA_MEMORY=1T5"}, &output)));
    EXPECT_NE(output.find("FAKECUDA_MEMORY"), std::string::npos);
    EXPECT_TRUE(WIFSIGNALED(run_part("misspelt", {"FAKECUDA_PEER=no"})));
    EXPECT_TRUE(WIFSIGNALED(run_part("misspelt", {"FAKECUDA_FAIL=cuMemCraete:1:2"})));
    EXPECT_TRUE(WIFSIGNALED(run_part("misspelt", {"FAKECUDA_FAIL=cuMemCreate:1"})));
}

int attribute(int which) {
    int value = -1;
    EXPECT_EQ(cuda().device_get_attribute(&value, which, 0), kSuccess);
    return value;
}

TEST(FakeCuda, Devices) {
    if (!in_child({"FAKECUDA_DEVICES=2", "FAKECUDA_MEMORY=64M"})) return;
    ASSERT_EQ(cuda().init(0), kSuccess);
    int number = 0;
    char name[32];
    size_t bytes = 0;
    EXPECT_EQ(cuda().driver_get_version(&number), kSuccess);
    EXPECT_EQ(number, 13000);
    EXPECT_EQ(cuda().device_get_count(&number), kSuccess);
    EXPECT_EQ(number, 2);
    EXPECT_EQ(cuda().device_get_name(name, sizeof name, 1), kSuccess);
    EXPECT_STREQ(name, "Fake GPU 1");
    EXPECT_EQ(cuda().device_total_mem(&bytes, 1), kSuccess);
    EXPECT_EQ(bytes, 64 * kMiB);
    EXPECT_EQ(cuda().device_can_access_peer(&number, 0, 1), kSuccess);
    EXPECT_EQ(number, 1);
    CUuuid first;
    CUuuid second;
    EXPECT_EQ(cuda().device_get_uuid(&first, 0), kSuccess);
    EXPECT_EQ(cuda().device_get_uuid(&second, 1), kSuccess);
    EXPECT_NE(memcmp(&first, &second, sizeof first), 0);
}

TEST(FakeCuda, DeviceRefusals) {
    if (!in_child()) return;
    ASSERT_EQ(cuda().init(0), kSuccess);
    int number = 0;
    char name[4];
    EXPECT_EQ(cuda().device_get(&number, 99), kErrorInvalidDevice);
    EXPECT_EQ(cuda().device_get(&number, -1), kErrorInvalidDevice);
    EXPECT_EQ(cuda().device_get_count(nullptr), kErrorInvalidValue);
    EXPECT_EQ(cuda().device_get_attribute(&number, 0, 0), kErrorInvalidValue);
    EXPECT_EQ(cuda().device_get_attribute(&number, 9999, 0), kErrorInvalidValue);
    EXPECT_EQ(cuda().device_get_attribute(&number, kAttributeVmmSupported, 99), kErrorInvalidDevice);
    EXPECT_EQ(cuda().device_can_access_peer(&number, 0, 99), kErrorInvalidDevice);
    EXPECT_EQ(cuda().device_can_access_peer(&number, 0, 0), kSuccess);
    EXPECT_EQ(number, 0);
    EXPECT_EQ(cuda().device_get_name(name, sizeof name, 0), kSuccess);  // truncated
    EXPECT_EQ(strlen(name), 3U);
    for (int which : {kAttributeVmmSupported, kAttributePosixFdSupported, kAttributeGenericCompression,
                      kAttributeGpuDirectRdmaWithVmm, kAttributeDmaBufSupported, kAttributeFabricSupported}) {
        EXPECT_EQ(attribute(which), 1) << which;
    }
}

TEST(FakeCuda, AttributesCanBeTurnedOff) {
    if (!in_child({"FAKECUDA_DMABUF=0", "FAKECUDA_COMPRESSION=0"})) return;
    start();
    EXPECT_EQ(attribute(kAttributeDmaBufSupported), 0);
    EXPECT_EQ(attribute(kAttributeGenericCompression), 0);
    int fd = -1;
    EXPECT_EQ(cuda().mem_get_range_handle(&fd, map_new(create()), kUnit, kMemRangeHandleTypeDmaBufFd, 0),
              kErrorNotSupported);
    auto wanted = properties();
    wanted.allocFlags.compressionType = kMemCompressionGeneric;
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(cuda().mem_create(&handle, kUnit, &wanted, 0), kSuccess);
    EXPECT_EQ(cuda().mem_get_properties(&wanted, handle), kSuccess);
    EXPECT_EQ(wanted.allocFlags.compressionType, 0);
}

struct Selection {
    const char* list;
    CUresult result;
    const char* devices;  // the physical numbers, in order
};
void PrintTo(const Selection& selection, std::ostream* out) {
    *out << '"' << selection.list << '"';
}
std::string name_of(const testing::TestParamInfo<Selection>& info) {
    std::string name = info.param.list;
    std::ranges::replace_if(name, [](unsigned char byte) { return std::isalnum(byte) == 0; }, '_');
    return name.empty() ? "Empty" : name;
}

// Results of the driver with one device, and of its documentation for more.
class FakeCudaVisible : public testing::TestWithParam<Selection> {};

TEST_P(FakeCudaVisible, Selects) {
    if (!in_child({"FAKECUDA_DEVICES=3", std::string("CUDA_VISIBLE_DEVICES=") + GetParam().list})) return;
    EXPECT_EQ(cuda().init(0), GetParam().result);
    std::string devices;
    for (int ordinal = 0; ordinal < 3; ++ordinal) {
        char name[32] = "";
        if (cuda().device_get_name(name, sizeof name, ordinal) == kSuccess) devices += name[strlen("Fake GPU ")];
    }
    EXPECT_EQ(devices, GetParam().devices);
}

INSTANTIATE_TEST_SUITE_P(
    Lists, FakeCudaVisible,
    testing::Values(Selection{"0,1,2", kSuccess, "012"}, Selection{"2,0", kSuccess, "20"},
                    Selection{" 2, 1 ", kSuccess, "21"}, Selection{"1,7,0", kSuccess, "1"},
                    Selection{"1,-1,0", kSuccess, "1"}, Selection{"1,x,0", kSuccess, "1"},
                    Selection{"", kErrorNoDevice, ""}, Selection{"-1", kErrorNoDevice, ""},
                    Selection{"9,0", kErrorNoDevice, ""}, Selection{",0", kErrorNoDevice, ""},
                    Selection{"0,0", kErrorInvalidDevice, ""}, Selection{"GPU-fa4ec002", kSuccess, "2"},
                    Selection{"GPU-fa4ec001-0000-4000-8000-000000000001,GPU-FA4EC000", kSuccess, "10"},
                    Selection{"GPU-fa4ec0", kErrorNoDevice, ""}, Selection{"GPU-", kErrorNoDevice, ""},
                    Selection{"gpu-fa4ec000", kErrorNoDevice, ""}, Selection{"GPU-fa4ec001,0", kSuccess, "1"},
                    Selection{"0,GPU-fa4ec001", kSuccess, "0"}),
    name_of);

TEST(FakeCuda, Contexts) {
    if (!in_child()) return;
    ASSERT_EQ(cuda().init(0), kSuccess);
    CUcontext context = nullptr;
    CUcontext again = nullptr;
    CUstream stream = nullptr;
    unsigned flags = 9;
    int active = 9;
    size_t bytes = 0;
    EXPECT_EQ(cuda().ctx_pop(&context), kErrorInvalidContext);
    EXPECT_EQ(cuda().ctx_push(nullptr), kErrorInvalidValue);
    EXPECT_EQ(cuda().primary_ctx_release(0), kErrorInvalidContext);
    EXPECT_EQ(cuda().primary_ctx_retain(&context, 99), kErrorInvalidDevice);
    EXPECT_EQ(cuda().primary_ctx_get_state(0, &flags, &active), kSuccess);
    EXPECT_EQ(active, 0);
    EXPECT_EQ(cuda().primary_ctx_retain(&context, 0), kSuccess);
    EXPECT_EQ(cuda().primary_ctx_retain(&again, 0), kSuccess);
    EXPECT_EQ(context, again);
    EXPECT_EQ(cuda().ctx_push(context), kSuccess);
    EXPECT_EQ(cuda().stream_create(&stream, 0), kSuccess);
    EXPECT_EQ(cuda().primary_ctx_release(0), kSuccess);
    EXPECT_EQ(cuda().primary_ctx_get_state(0, &flags, &active), kSuccess);
    EXPECT_EQ(active, 1);
    std::thread([&] { EXPECT_EQ(cuda().mem_get_info(&bytes, &bytes), kErrorInvalidContext); }).join();
    EXPECT_EQ(cuda().mem_get_info(&bytes, &bytes), kSuccess);
    EXPECT_EQ(cuda().primary_ctx_release(0), kSuccess);
    EXPECT_EQ(cuda().primary_ctx_get_state(0, &flags, &active), kSuccess);
    EXPECT_EQ(active, 0);
    constexpr CUresult kContextIsDestroyed = 709;
    EXPECT_EQ(cuda().mem_get_info(&bytes, &bytes), kContextIsDestroyed);
    EXPECT_EQ(cuda().stream_synchronize(nullptr), kContextIsDestroyed);
    EXPECT_EQ(cuda().ctx_pop(&again), kSuccess);
    EXPECT_EQ(again, context);
}

TEST(FakeCuda, NeedsContext) {
    if (!in_child()) return;
    ASSERT_EQ(cuda().init(0), kSuccess);
    char byte = 0;
    int fd = -1;
    size_t bytes = 0;
    CUstream stream = nullptr;
    CUexternalMemory external = nullptr;
    CUexternalMemoryHandleDesc descriptor = {};
    CUdeviceptr pointer = map_new(create());  // the VMM calls need no context
    EXPECT_EQ(cuda().mem_get_info(&bytes, &bytes), kErrorInvalidContext);
    EXPECT_EQ(cuda().stream_create(&stream, 0), kErrorInvalidContext);
    EXPECT_EQ(cuda().stream_synchronize(nullptr), kErrorInvalidContext);
    EXPECT_EQ(cuda().stream_destroy(nullptr), kErrorInvalidHandle);
    EXPECT_EQ(cuda().memcpy_htod_async(pointer, &byte, 1, nullptr), kErrorInvalidContext);
    EXPECT_EQ(cuda().memcpy_dtoh_async(&byte, pointer, 1, nullptr), kErrorInvalidContext);
    EXPECT_EQ(cuda().memset_d8_async(pointer, 0, 1, nullptr), kErrorInvalidContext);
    EXPECT_EQ(cuda().mem_get_range_handle(&fd, pointer, kUnit, kMemRangeHandleTypeDmaBufFd, 0), kErrorInvalidContext);
    EXPECT_EQ(cuda().import_external_memory(&external, &descriptor), kErrorInvalidContext);
    EXPECT_EQ(cuda().mem_free(pointer), kErrorInvalidValue);
}

TEST(FakeCuda, Streams) {
    if (!in_child()) return;
    start();
    CUdeviceptr pointer = map_new(create());
    CUstream stream = nullptr;
    EXPECT_EQ(cuda().stream_create(&stream, 7), kErrorInvalidValue);
    EXPECT_EQ(cuda().stream_create(&stream, 1), kSuccess);
    EXPECT_EQ(cuda().memset_d8_async(pointer, 7, 4, stream), kSuccess);
    EXPECT_EQ(cuda().stream_synchronize(stream), kSuccess);
    EXPECT_EQ(read(pointer, 4), "\x7\x7\x7\x7");
    EXPECT_EQ(cuda().ctx_pop(nullptr), kSuccess);
    EXPECT_EQ(cuda().stream_synchronize(stream), kSuccess);  // the stream has its own context
    EXPECT_EQ(cuda().stream_destroy(stream), kSuccess);
}

}  // namespace
}  // namespace fakecuda_test
