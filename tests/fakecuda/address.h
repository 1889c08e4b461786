// fakecuda, a test double of NVIDIA's driver: ranges of addresses that the CPU cannot touch.
#pragma once

#include "calls.h"

namespace fakecuda {

// 0: the address space has no room left. The alignment is a power of two.
CUdeviceptr reserve_addresses(size_t size, size_t alignment);
void free_addresses(CUdeviceptr pointer, size_t size);

}  // namespace fakecuda
