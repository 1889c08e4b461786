// fakecuda, a test double of NVIDIA's driver: failures that a test injects.
//
// Rules, separated by commas or white space: symbol[@device]:n:code. The n-th call of that symbol (counted from 1; for
// the control file from when it was read; "*": every call) gives that code instead of doing anything. With @device only
// calls that concern that physical device count. Rules come from FAKECUDA_FAIL and from the file FAKECUDA_CONTROL.
#pragma once

#include <cstdint>

#include "calls.h"

namespace fakecuda {

struct Fault {
    CUresult code = kSuccess;
    uint64_t devices = 0;  // those it concerns, one bit each
};

// The failure injected into this call, if any. `devices`: those the call concerns. The caller holds the lock.
Fault next_fault(Symbol symbol, uint64_t devices);

// Codes after which the context is lost until the process ends...
bool is_sticky(CUresult code);
// ...and those of them after which nothing of the device works, allocation included. The others leave the VMM calls
// working: so it is on the H200 after 700 and 719.
bool is_device_lost(CUresult code);

}  // namespace fakecuda
