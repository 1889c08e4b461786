#include "gpu.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

namespace gshm::core::test {
namespace {

// Device code as text, compiled by the driver itself: no toolkit is needed. Runs on every GPU since Turing.
constexpr const char* kAddOne = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry add_one(.param .u64 data, .param .u32 count)
{
    .reg .pred %p<2>;
    .reg .b32 %r<7>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [data];
    ld.param.u32 %r1, [count];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra DONE;
    cvta.to.global.u64 %rd1, %rd1;
    mul.wide.u32 %rd2, %r5, 4;
    add.u64 %rd3, %rd1, %rd2;
    ld.global.u32 %r6, [%rd3];
    add.u32 %r6, %r6, 1;
    st.global.u32 [%rd3], %r6;
DONE:
    ret;
}
)";
constexpr const char* kSpin = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry spin(.param .u64 duration_ns)
{
    .reg .pred %p<2>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [duration_ns];
    mov.u64 %rd2, %globaltimer;
    add.u64 %rd1, %rd1, %rd2;
AGAIN:
    mov.u64 %rd2, %globaltimer;
    setp.lt.u64 %p1, %rd2, %rd1;
    @%p1 bra AGAIN;
    ret;
}
)";

void* symbol(const char* name) {
    static void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return library != nullptr ? dlsym(library, name) : nullptr;
}

template <typename Function>
void load(Function& function, const char* name) {
    function = reinterpret_cast<Function>(symbol(name));
}

const cuda::Driver& driver_or_abort() {
    auto driver = cuda::Driver::get();
    if (driver) return **driver;
    std::fprintf(stderr, "gpu_tests: %s\n", driver.error().message.c_str());
    std::abort();
}

cuda::CUdeviceptr address(const void* pointer) {
    return reinterpret_cast<cuda::CUdeviceptr>(pointer);
}

}  // namespace

Client connect_to(const std::string& dir) {
    const gshm_connect_options options = {sizeof options, 2000, dir.c_str()};
    gshm_client* client = nullptr;
    (void)gshm_connect(&options, &client);
    return Client(client);
}

Object open_object(gshm_client* client, const std::string& name, uint32_t flags) {
    gshm_object* object = nullptr;
    (void)gshm_open(client, name.c_str(), flags, &object);
    return Object(object);
}

std::vector<std::byte> pattern(size_t bytes, unsigned seed) {
    std::vector<std::byte> data(bytes);
    for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>((i * 131 + seed * 17 + (i >> 8)) & 0xFF);
    return data;
}

std::vector<std::byte> copy_of(gshm_object* object) {
    std::vector<std::byte> data(gshm_size(object));
    if (gshm_copy_out(object, 0, data.data(), data.size()) != 0) data.clear();
    return data;
}

std::vector<std::string> gpu_names(std::string* why) {
    std::vector<gshm_device_info> devices(64);
    devices[0].struct_size = sizeof devices[0];
    size_t count = 0;
    std::vector<std::string> names;
    if (gshm_local_devices(devices.data(), devices.size(), &count) != 0) count = 0;
    for (size_t i = 0; i < count && i < devices.size(); ++i) {
        if (std::strncmp(devices[i].name, "cuda", 4) == 0) names.emplace_back(devices[i].name);
    }
    if (names.empty() && why != nullptr) {
        auto driver = cuda::Driver::get();
        *why = driver ? "the CUDA driver sees no GPU" : driver.error().message;
    }
    return names;
}

bool is_fake_driver() {
    return symbol("fakecuda_identity") != nullptr;
}

void print_fact(const std::string& text) {
    std::printf("FACT: %s\n", text.c_str());
    std::fflush(stdout);
}

Gpu::Gpu(const std::string& name) : driver_(driver_or_abort()) {
    const int ordinal = std::atoi(name.substr(name.find(':') + 1).c_str());
    if (driver_.device_get(&device_, ordinal) == cuda::kSuccess) return;
    std::fprintf(stderr, "gpu_tests: there is no %s\n", name.c_str());
    std::abort();
}

cuda::CUcontext Gpu::context() const {
    if (context_ == nullptr && driver_.primary_ctx_retain(&context_, device_) != cuda::kSuccess) {
        std::fprintf(stderr, "gpu_tests: no context\n");
        std::abort();
    }
    return context_;
}

uint64_t Gpu::free_bytes() const {
    const cuda::ScopedContext current(driver_, context());
    size_t free = 0;
    size_t total = 0;
    return driver_.mem_get_info(&free, &total) == cuda::kSuccess ? free : 0;
}

cuda::CUresult Gpu::read(const void* pointer, std::vector<std::byte>& ret_bytes) const {
    const cuda::ScopedContext current(driver_, context());
    if (auto result = driver_.memcpy_dtoh_async(ret_bytes.data(), address(pointer), ret_bytes.size(), nullptr))
        return result;
    return driver_.stream_synchronize(nullptr);
}

cuda::CUresult Gpu::write(void* pointer, const std::vector<std::byte>& bytes) const {
    const cuda::ScopedContext current(driver_, context());
    if (auto result = driver_.memcpy_htod_async(address(pointer), bytes.data(), bytes.size(), nullptr)) return result;
    return driver_.stream_synchronize(nullptr);
}

std::string Gpu::load_kernels(const char* code, void** ret_module) const {
    const auto& calls = FurtherCalls::get();
    if (calls.module_load_data == nullptr || calls.launch_kernel == nullptr || is_fake_driver()) {
        return "skip: this driver runs no kernels";
    }
    if (auto result = calls.module_load_data(ret_module, code)) {
        constexpr cuda::CUresult kNoBinary = 209, kNoJit = 221, kUnsupportedPtx = 222;
        const bool cannot = result == kNoBinary || result == kNoJit || result == kUnsupportedPtx;
        return (cannot ? "skip: the driver compiles no device code here: " : "cuModuleLoadData: ") + describe(result);
    }
    return "";
}

std::string Gpu::spin(cuda::CUstream stream, std::chrono::nanoseconds duration) const {
    const cuda::ScopedContext current(driver_, context());
    void* module = nullptr;  // never unloaded, since the kernel may outlast the thread that launched it
    if (auto why = load_kernels(kSpin, &module); !why.empty()) return why;
    const auto& calls = FurtherCalls::get();
    void* function = nullptr;
    auto result = calls.module_get_function(&function, module, "spin");
    auto ns = static_cast<uint64_t>(duration.count());
    void* parameters[] = {&ns};
    if (result == cuda::kSuccess) {
        result = calls.launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
    }
    return result == cuda::kSuccess ? "" : describe(result);
}

std::string Gpu::add_one(void* pointer, uint32_t count) const {
    const auto& calls = FurtherCalls::get();
    const cuda::ScopedContext current(driver_, context());
    void* module = nullptr;
    if (auto why = load_kernels(kAddOne, &module); !why.empty()) return why;
    void* function = nullptr;
    auto result = calls.module_get_function(&function, module, "add_one");
    if (result == cuda::kSuccess) {
        cuda::CUdeviceptr data = address(pointer);
        void* parameters[] = {&data, &count};
        constexpr unsigned kBlock = 256;
        result = calls.launch_kernel(function, (count + kBlock - 1) / kBlock, 1, 1, kBlock, 1, 1, 0, nullptr,
                                     parameters, nullptr);
    }
    if (result == cuda::kSuccess) result = driver_.stream_synchronize(nullptr);
    calls.module_unload(module);
    return result == cuda::kSuccess ? "" : describe(result);
}

bool Gpu::primary_context_is_active() const {
    unsigned flags = 0;
    int active = 0;
    return driver_.primary_ctx_get_state(device_, &flags, &active) == cuda::kSuccess && active != 0;
}

std::string Gpu::describe(cuda::CUresult result) const {
    const char* name = nullptr;
    if (result == cuda::kSuccess) return "success";
    if (driver_.get_error_name(result, &name) != cuda::kSuccess || name == nullptr) return std::to_string(result);
    return name;
}

const FurtherCalls& FurtherCalls::get() {
    static const FurtherCalls calls = [] {
        FurtherCalls found;
        load(found.ctx_get_current, "cuCtxGetCurrent");
        load(found.ctx_create, "cuCtxCreate_v2");
        load(found.ctx_destroy, "cuCtxDestroy_v2");
        load(found.module_load_data, "cuModuleLoadData");
        load(found.module_get_function, "cuModuleGetFunction");
        load(found.module_unload, "cuModuleUnload");
        load(found.launch_kernel, "cuLaunchKernel");
        load(found.mem_alloc, "cuMemAlloc_v2");
        load(found.mem_alloc_managed, "cuMemAllocManaged");
        load(found.mem_alloc_async, "cuMemAllocAsync");
        return found;
    }();
    return calls;
}

}  // namespace gshm::core::test
