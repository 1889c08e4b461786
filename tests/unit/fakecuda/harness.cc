#include "harness.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/this_build.h"

extern char** environ;

namespace fakecuda_test {
namespace {

constexpr char kChildVariable[] = "GSHM_FAKECUDA_TEST_CHILD";
constexpr char kPartVariable[] = "GSHM_FAKECUDA_TEST_PART";

std::string library_path() {
    if (const char* path = getenv("GSHM_TEST_LIBCUDA")) return path;
    return gshm::core::test::fakecuda_path();
}

Library load() {
    void* handle = dlopen(library_path().c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        fprintf(stderr, "%s\n", dlerror());
        abort();
    }
    Library made;
#define FAKECUDA_LOAD(member, symbol, signature) \
    made.member = reinterpret_cast<decltype(made.member)>(dlsym(handle, #symbol));
    GSHM_CUDA_CALLS(FAKECUDA_LOAD)
#undef FAKECUDA_LOAD
    made.calls = reinterpret_cast<decltype(made.calls)>(dlsym(handle, "fakecuda_calls"));
    made.hold = reinterpret_cast<decltype(made.hold)>(dlsym(handle, "fakecuda_hold"));
    made.identity = reinterpret_cast<decltype(made.identity)>(dlsym(handle, "fakecuda_identity"));
    return made;
}

bool starts_with_any(const char* text, std::initializer_list<const char*> beginnings) {
    for (const char* beginning : beginnings) {
        if (strncmp(text, beginning, strlen(beginning)) == 0) return true;
    }
    return false;
}

int run_self(const Environment& environment, std::string* output) {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    const std::string filter = std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name();
    std::vector<char*> child_environment;
    for (char** at = environ; *at != nullptr; ++at) {
        if (!starts_with_any(*at, {"FAKECUDA_", "CUDA_VISIBLE_DEVICES=", "GTEST_", "GSHM_FAKECUDA_TEST_"})) {
            child_environment.push_back(*at);
        }
    }
    for (const auto& entry : environment) child_environment.push_back(const_cast<char*>(entry.c_str()));
    child_environment.push_back(nullptr);
    char name[] = "fakecuda_test_child";
    char* arguments[] = {name, const_cast<char*>(filter.c_str()), nullptr};

    int ends[2];
    if (pipe(ends) != 0) abort();
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        execve("/proc/self/exe", arguments, child_environment.data());
        _exit(127);
    }
    close(ends[1]);
    char buffer[4096];
    for (ssize_t got = 0; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
        if (output != nullptr) output->append(buffer, static_cast<size_t>(got));
    }
    close(ends[0]);
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

void skip(const char* why) {
    GTEST_SKIP() << why;
}

void run_test_in_child(Environment environment) {
    environment.push_back(std::string(kChildVariable) + "=1");
    std::string output;
    const int status = run_self(environment, &output);
    if (output.find("[  SKIPPED ]") != std::string::npos) return skip("skipped in its process");
    EXPECT_EQ(status, 0) << output;
    EXPECT_NE(output.find("[  PASSED  ] 1 test."), std::string::npos) << output;
}

}  // namespace

const Library& cuda() {
    static const Library made = load();
    return made;
}

bool is_fake() {
    return cuda().identity != nullptr;
}

bool in_child(const Environment& environment) {
    if (getenv(kChildVariable) != nullptr) return true;
    bool knobs = false;
    for (const auto& entry : environment) knobs |= entry.starts_with("FAKECUDA_");
    if (knobs && !is_fake()) skip("a knob of the test double: a real driver has none");
    else run_test_in_child(environment);
    return false;
}

bool in_child_of_fake(const Environment& environment) {
    if (getenv(kChildVariable) == nullptr && !is_fake()) {
        skip("the test double alone behaves so");
        return false;
    }
    return in_child(environment);
}

int run_part(const std::string& part, const Environment& environment, std::string* output) {
    Environment full = environment;
    full.push_back(std::string(kChildVariable) + "=1");
    full.push_back(std::string(kPartVariable) + "=" + part);
    return run_self(full, output);
}

std::string part() {
    const char* text = getenv(kPartVariable);
    return text == nullptr ? "" : text;
}

int argument(const std::string& name) {
    const char* text = getenv(name.c_str());
    return text == nullptr ? -1 : atoi(text);
}

void start(CUdevice device) {
    CUcontext context = nullptr;
    ASSERT_EQ(cuda().init(0), kSuccess);
    ASSERT_EQ(cuda().primary_ctx_retain(&context, device), kSuccess);
    ASSERT_EQ(cuda().ctx_push(context), kSuccess);
}

CUmemAllocationProp properties(int types, int device) {
    CUmemAllocationProp made = {};
    made.type = kMemAllocationTypePinned;
    made.requestedHandleTypes = types;
    made.location = {kMemLocationTypeDevice, device};
    return made;
}

CUmemGenericAllocationHandle create(size_t size, int types, int device) {
    CUmemGenericAllocationHandle handle = 0;
    auto wanted = properties(types, device);
    EXPECT_EQ(cuda().mem_create(&handle, size, &wanted, 0), kSuccess);
    return handle;
}

CUdeviceptr reserve(size_t size) {
    CUdeviceptr pointer = 0;
    EXPECT_EQ(cuda().mem_address_reserve(&pointer, size, 0, 0, 0), kSuccess);
    EXPECT_EQ(pointer % kUnit, 0U);
    return pointer;
}

CUresult map(CUdeviceptr pointer, CUmemGenericAllocationHandle handle, size_t size) {
    return cuda().mem_map(pointer, size, 0, handle, 0);
}

CUresult set_access(CUdeviceptr pointer, size_t size, int flags, int device) {
    CUmemAccessDesc access = {{kMemLocationTypeDevice, device}, flags};
    return cuda().mem_set_access(pointer, size, &access, 1);
}

CUdeviceptr map_new(CUmemGenericAllocationHandle handle, size_t size) {
    CUdeviceptr pointer = reserve(size);
    EXPECT_EQ(map(pointer, handle, size), kSuccess);
    EXPECT_EQ(set_access(pointer, size), kSuccess);
    return pointer;
}

int export_fd(CUmemGenericAllocationHandle handle) {
    int fd = -1;
    EXPECT_EQ(cuda().mem_export(&fd, handle, kMemHandleTypePosixFd, 0), kSuccess);
    return fd;
}

CUresult import_fd(int fd, CUmemGenericAllocationHandle* handle) {
    return cuda().mem_import(handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd)), kMemHandleTypePosixFd);
}

CUresult write(CUdeviceptr pointer, const std::string& text) {
    CUresult result = cuda().memcpy_htod_async(pointer, text.data(), text.size(), nullptr);
    return result != kSuccess ? result : cuda().stream_synchronize(nullptr);
}

std::string read(CUdeviceptr pointer, size_t bytes) {
    std::string text(bytes, '?');
    if (cuda().memcpy_dtoh_async(text.data(), pointer, bytes, nullptr) != kSuccess) return "";
    return cuda().stream_synchronize(nullptr) == kSuccess ? text : "";
}

size_t free_bytes() {
    size_t free = 0;
    EXPECT_EQ(cuda().mem_get_info(&free, nullptr), kSuccess);
    return free;
}

}  // namespace fakecuda_test
