// Decides which calls are counted, and which of them fail.
#pragma once

#include <dlfcn.h>

#include "faults/control.h"

namespace gshm::core::faults {

enum class Caller { other, gshmd, sqlite };

// The owner of the code at an address.
Caller caller_at(const void* address);

// Counts a call of that class; true: it must fail.
bool fails(Class kind, const char* call);

// Counts a call that never fails; the process may be killed instead of it (Class::end).
void may_end(const char* call);

// As fails(), for a call of the C library. `interruptible` calls also count for Class::interrupted. Returns 0 or the
// errno.
int system_error(const void* caller, const char* call, int error, bool interruptible);

// The function that this library wraps.
template <typename Function>
Function* next(Function*, const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace gshm::core::faults

#define FAULTS_EXPORT extern "C" __attribute__((visibility("default")))
// The function `name` of the next library, looked up once.
#define FAULTS_NEXT(name) static auto* const real = ::gshm::core::faults::next(&::name, #name)
#define FAULTS_CALLER __builtin_return_address(0)
