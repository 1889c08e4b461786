// Shared parts of the fakecuda tests: the calls of the library, and processes to call them in.
//
// Every test runs in a separate process, since the driver's state is per process and its knobs are environment
// variables. With GSHM_TEST_LIBCUDA=libcuda.so.1 the same tests run on a real driver: tests that need a knob or the
// double's stricter checks are skipped, all others must pass there too. This keeps the double faithful.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/api.h"

namespace fakecuda_test {

using namespace gshm::core::cuda;

struct Library {
#define FAKECUDA_MEMBER(member, symbol, signature) CUresult(*member) signature = nullptr;
    GSHM_CUDA_CALLS(FAKECUDA_MEMBER)
#undef FAKECUDA_MEMBER
    unsigned long (*calls)(const char* symbol) = nullptr;  // nullptr: a real driver
    const char* (*identity)() = nullptr;
    int (*hold)(CUstream stream, int held) = nullptr;
};

inline constexpr size_t kMiB = size_t{1} << 20;
inline constexpr size_t kUnit = 2 * kMiB;

// The library under test. Loaded on first use; aborts if that fails.
const Library& cuda();
bool is_fake();

using Environment = std::vector<std::string>;  // NAME=value

// The first line of a test: if (!in_child({...})) return;
// False in the process of Google Test: the test was run in a child with that environment, and its result is recorded.
// True in that child. Knobs (FAKECUDA_...) make the test skip on a real driver.
bool in_child(const Environment& environment = {});

// As in_child, for properties of the double only.
bool in_child_of_fake(const Environment& environment = {});

// Runs the current test again, in another process with another role. Descriptors without close-on-exec are inherited.
// Returns the status of waitpid(); `output` gets its output.
int run_part(const std::string& part, const Environment& environment, std::string* output = nullptr);
std::string part();                     // the role of this process; empty in the first
int argument(const std::string& name);  // a number from the environment

// cuInit, and the primary context of device 0 retained and current.
void start(CUdevice device = 0);

CUmemAllocationProp properties(int types = kMemHandleTypePosixFd, int device = 0);
CUmemGenericAllocationHandle create(size_t size = kUnit, int types = kMemHandleTypePosixFd, int device = 0);
CUdeviceptr reserve(size_t size = kUnit);
CUresult map(CUdeviceptr pointer, CUmemGenericAllocationHandle handle, size_t size = kUnit);
CUresult set_access(CUdeviceptr pointer, size_t size = kUnit, int flags = kMemAccessProtReadWrite, int device = 0);
CUdeviceptr map_new(CUmemGenericAllocationHandle handle, size_t size = kUnit);  // reserved, mapped, accessible
int export_fd(CUmemGenericAllocationHandle handle);
CUresult import_fd(int fd, CUmemGenericAllocationHandle* handle);
CUresult write(CUdeviceptr pointer, const std::string& text);
std::string read(CUdeviceptr pointer, size_t bytes);  // "" on failure
size_t free_bytes();

}  // namespace fakecuda_test
