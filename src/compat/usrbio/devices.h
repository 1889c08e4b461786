// Maps this process's GPU numbers to those of the daemon by UUID.
#pragma once

#include <string>

#include "daemon.h"

namespace gshm::usrbio {

// GSHM_USRBIO_DEVICE=host: the GPU calls return host memory, for any GPU number.
bool gpus_are_host();

// 3 for "cuda:3"; -1 for anything but a GPU.
int gpu_number(std::string_view name);
// The number of GPUs that this process sees; one if they are host memory.
int gpu_count();
// ENOTSUP without CUDA, ENODEV if there is no such GPU, EINVAL for an impossible number.
Result<void> check_gpu(int gpu);
// The daemon's name for it. ENODEV: the daemon does not have it.
Result<std::string> name_at_daemon(const Daemon& daemon, int gpu);
// This process's number for a device of the daemon; `exported_as` if all are host memory.
Result<int> number_here(const Daemon& daemon, const std::string& name, int exported_as);

// A few bits that identify a GPU in handles from processes with other numbers; never 0.
constexpr unsigned kFingerprintBits = 14;
Result<uint64_t> gpu_fingerprint(int gpu);

}  // namespace gshm::usrbio
