// The build that the running program belongs to. Known at run time only, since the object files of most tests are linked
// into several builds.
#pragma once

#include <dlfcn.h>
#include <filesystem>
#include <string>

namespace gshm::core::test {

// A path in the build folder: build_path("bin/gshmd"). Programs are one folder below it.
inline std::string build_path(const std::string& relative) {
    return (std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / relative).string();
}

inline std::string fakecuda_path() {
    return build_path("tests/fakecuda/libcuda.so.1");
}

// Sanitizers need more memory, and keep freed memory for a while.
inline bool is_sanitized() {
    return dlsym(RTLD_DEFAULT, "__asan_init") != nullptr || dlsym(RTLD_DEFAULT, "__tsan_init") != nullptr;
}

}  // namespace gshm::core::test
