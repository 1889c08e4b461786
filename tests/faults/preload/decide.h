// Which calls count, and which of them fails.
#pragma once

#include <dlfcn.h>

#include "faults/control.h"

namespace gshm::core::faults {

enum class Caller { other, gshmd, sqlite };

// The owner of the code at an address.
Caller caller_at(const void* address);

// Counts a call of that class; true: it shall fail.
bool fails(Class kind, const char* call);

// Counts a call that never fails, but in whose place the process may end.
void may_end(const char* call);

// As fails(), for a call of the C library: `interruptible` ones count as such, too. 0, or the error.
int system_error(const void* caller, const char* call, int error, bool interruptible);

// The function that ours stands in front of.
template <typename Function>
Function* next(Function*, const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace gshm::core::faults

#define FAULTS_EXPORT extern "C" __attribute__((visibility("default")))
// The function `name` of the next library, looked up once.
#define FAULTS_NEXT(name) \
    static auto* const real = ::gshm::core::faults::next(&::name, #name)
#define FAULTS_CALLER __builtin_return_address(0)
