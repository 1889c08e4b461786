// The fake driver in the process of the test: call counts, and injected failures.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

namespace gshm::core::test {

// The file of fault rules, which the driver reads again after each change. There is one per program, since the driver
// reads the variable once.
inline const std::string fault_file = [] {
    auto path = std::filesystem::temp_directory_path() / ("gshm-test-" + std::to_string(getpid()) + ".faults");
    setenv("FAKECUDA_CONTROL", path.c_str(), 1);
    return path.string();
}();

// "": no faults from now on.
inline void inject(const std::string& rules) {
    std::ofstream(fault_file + ".new") << rules;
    std::filesystem::rename(fault_file + ".new", fault_file);
}
inline void remove_faults() {
    std::remove(fault_file.c_str());
}

template <typename Function>
Function* fake(const char* symbol) {
    return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, symbol));
}
inline unsigned long fake_calls(const char* symbol) {
    return fake<unsigned long(const char*)>("fakecuda_calls")(symbol);
}

}  // namespace gshm::core::test
