// GPUs by the numbers that this process has for them, and where they are at the daemon: between processes a GPU is its
// UUID.
#pragma once

#include <string>

#include "daemon.h"

namespace gshm::usrbio {

// GSHM_USRBIO_DEVICE=host: the GPU calls give host memory instead, under whatever number a program asks for.
bool gpus_are_host();

// "cuda:3" is 3; -1 for what is no GPU.
int gpu_number(std::string_view name);
// How many GPUs this process sees; one where they are host memory.
int gpu_count();
// ENOTSUP without CUDA, ENODEV if there is no such GPU, EINVAL if no GPU can have that number.
Result<void> check_gpu(int gpu);
// What the daemon calls it. ENODEV if it does not have it.
Result<std::string> name_at_daemon(const Daemon& daemon, int gpu);
// The number here of what the daemon calls so; `exported_as` where all are host memory.
Result<int> number_here(const Daemon& daemon, const std::string& name, int exported_as);

// A few bits that tell GPUs apart when a handle comes from a process with other numbers; never 0.
constexpr unsigned kFingerprintBits = 14;
Result<uint64_t> gpu_fingerprint(int gpu);

}  // namespace gshm::usrbio
