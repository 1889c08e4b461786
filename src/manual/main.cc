// gshm-manual OUT SOURCE: writes the manual pages of the source tree into the folder OUT/man, and the completions of gshmd into
// OUT/completions. The build runs it.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "manual/completions.h"
#include "manual/page.h"
#include "manual/pages.h"

namespace {

// The places of the documentation, "docs/tiers.md", as it is installed. The one that has a page becomes that page.
std::string with_places(std::string_view text) {
    constexpr std::string_view kFolder = "docs/";
    constexpr std::string_view kConfiguration = "docs/configuration.md";
    std::string out;
    while (!text.empty()) {
        const size_t at = std::min(text.find(kFolder), text.size());
        const bool is_place =
            at == 0 || (text[at - 1] != '/' && !std::isalnum(static_cast<unsigned char>(text[at - 1])));
        out += text.substr(0, at);
        text.remove_prefix(at);
        if (is_place && text.starts_with(kConfiguration)) {
            out += "gshm.toml(5)";
            text.remove_prefix(kConfiguration.size());
        } else if (!text.empty()) {
            if (is_place) out += gshm::manual::escaped(GSHM_DOC_FOLDER "/");
            out += kFolder;
            text.remove_prefix(kFolder.size());
        }
    }
    return out;
}

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
        for (auto& [name, text] : pages) text = with_places(text);
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
