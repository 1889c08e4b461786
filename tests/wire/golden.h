// The messages of protocol 1, as a gshm 0.1 sends them.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace gshm::core::test {

inline std::filesystem::path golden_folder() {
    return std::filesystem::path(GSHM_SOURCE_DIR) / "tests/wire/golden/1";
}

// Without the extension: "request-Hello".
inline std::vector<uint8_t> golden(const std::string& name) {
    std::ifstream file(golden_folder() / (name + ".bin"), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

inline std::vector<std::string> golden_names() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(golden_folder())) {
        if (entry.path().extension() == ".bin") names.push_back(entry.path().stem());
    }
    return names;
}

}  // namespace gshm::core::test
