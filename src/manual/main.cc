// gshm-manual OUT SOURCE: writes the manual pages of the source tree into the folder OUT/man, and the completions of gshmd into
// OUT/completions. The build runs it.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "manual/completions.h"
#include "manual/pages.h"

namespace {

// Removes other files: pages of commands that are no more must not be installed.
void write(const std::filesystem::path& folder, const gshm::manual::Pages& files) {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    for (const auto& [name, text] : files) {
        std::ofstream file(folder / name);
        file << text;
        if (!file.flush()) throw std::runtime_error("cannot write " + (folder / name).string());
    }
}

}  // namespace

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
        gshm::manual::add_mount_page(pages, source / "packaging/mount.fuse.gshm");
        gshm::manual::add_library_pages(pages, source / "include/gshm/gshm.h");
        write(out / "man", pages);
        gshm::manual::Pages completions;
        gshm::manual::add_daemon_completions(completions);
        write(out / "completions", completions);
    } catch (const std::exception& error) {
        fprintf(stderr, "gshm-manual: %s\n", error.what());
        return 1;
    }
    return 0;
}
