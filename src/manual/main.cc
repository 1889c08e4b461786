// gshm-manual OUT SOURCE: writes the manual pages of the source tree into the folder OUT. The build runs it.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "manual/pages.h"

int main(int argc, char** argv) {
    if (argc != 3) {
        fputs("usage: gshm-manual OUT SOURCE\n", stderr);
        return 2;
    }
    try {
        const std::filesystem::path out = argv[1];
        const std::filesystem::path source = argv[2];
        gshm::manual::Pages pages;
        gshm::manual::add_command_pages(pages, source / "docs");
        gshm::manual::add_daemon_pages(pages, source / "docs");
        gshm::manual::add_library_pages(pages, source / "include/gshm/gshm.h");
        // Pages of commands that are no more must not be installed.
        std::filesystem::remove_all(out);
        std::filesystem::create_directories(out);
        for (const auto& [name, text] : pages) {
            std::ofstream file(out / name);
            file << text;
            if (!file.flush()) throw std::runtime_error("cannot write " + (out / name).string());
        }
    } catch (const std::exception& error) {
        fprintf(stderr, "gshm-manual: %s\n", error.what());
        return 1;
    }
    return 0;
}
