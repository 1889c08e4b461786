// The manual pages of gshm, each from the place that --help, the compiler or the reader of docs/ takes it from.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace gshm::manual {

// The text of each page by its file name.
using Pages = std::map<std::string, std::string>;

// gshm.1 and gshm-COMMAND.1, from the command line's outline and docs/cli.md.
void add_command_pages(Pages& pages, const std::filesystem::path& docs);
// gshmd.8 from --help, gshm.toml.5 from docs/configuration.md.
void add_daemon_pages(Pages& pages, const std::filesystem::path& docs);
// mount.fuse.gshm.8, from the comment at the head of the script.
void add_mount_page(Pages& pages, const std::filesystem::path& script);
// gshm.3, a page for each group of the header, and a short one for each function, which leads there.
void add_library_pages(Pages& pages, const std::filesystem::path& header);

}  // namespace gshm::manual
