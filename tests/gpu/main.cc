// The GPU suite: tests that need a real GPU. Without one every test is skipped. tests/gpu/run runs it.
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "roles.h"

int main(int argc, char** argv) {
    if (argc > 1 && std::string(argv[1]) == "--role") return gshm::core::test::play_role({argv + 2, argv + argc});
    // Prefers the programs next to this one: a bundle has no build folder.
    const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "bin";
    if (std::filesystem::exists(folder / "gshmd")) setenv("GSHM_BIN", folder.c_str(), 0);
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
