#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "daemon/command_line.h"
#include "manual/markdown.h"
#include "manual/page.h"
#include "manual/pages.h"
#include <gshm/version.h>

namespace gshm::manual {
namespace {

std::vector<std::string_view> paragraphs_of(std::string_view text) {
    std::vector<std::string_view> found;
    while (!text.empty()) {
        const size_t end = std::min(text.find("\n\n"), text.size());
        found.push_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 2, text.size()));
    }
    return found;
}

std::string without_full_stop(std::string text) {
    if (text.ends_with('.')) text.pop_back();
    return text;
}

bool begins_option(std::string_view line) {
    return line.starts_with("      --") || line.starts_with("  -");
}

// Lines such as "  -d, --debug   text", with the text also in further lines. Two spaces end the option.
void add_options(Page& page, std::string_view lines) {
    std::string term;
    std::string text;
    const auto flush = [&] {
        if (!term.empty()) page.term(term, text);
        text.clear();
    };
    while (!lines.empty()) {
        const size_t end = std::min(lines.find('\n'), lines.size());
        auto line = lines.substr(0, end);
        lines.remove_prefix(std::min(end + 1, lines.size()));
        if (begins_option(line)) {
            flush();
            line.remove_prefix(line.find('-'));
            const size_t term_end = std::min(line.find("  "), line.size());
            term = line.substr(0, term_end);
            line.remove_prefix(term_end);
        }
        text += line;
        text += '\n';
    }
    flush();
}

std::string daemon_text() {
    const std::string help = core::help_text();
    const auto paragraphs = paragraphs_of(help);
    constexpr std::string_view kUsage = "usage: gshmd ";
    if (paragraphs.empty() || !paragraphs[0].starts_with(kUsage)) throw std::runtime_error("gshmd's help has no usage");
    Page page("gshmd", "8", "owns GPU and host memory for all processes of a machine", GSHM_VERSION);
    page.section("Synopsis");
    page.markup_paragraph(bold("gshmd") + " " + escaped(paragraphs[0].substr(kUsage.size())));
    page.section("Description");
    constexpr std::string_view kExit = "exit codes: ";
    for (size_t i = 1; i < paragraphs.size(); ++i) {
        auto text = paragraphs[i];
        if (text.starts_with('\n')) text.remove_prefix(1);
        if (begins_option(text)) {
            page.section("Options");
            add_options(page, text);
        } else if (text.starts_with(kExit)) {
            page.section("Exit status");
            page.paragraph(text.substr(kExit.size()));
        } else {
            page.paragraph(text);
        }
    }
    page.see_also("gshm(1) gshm.toml(5) gshm(3)");
    return page.text();
}

std::string configuration_text(const std::filesystem::path& docs) {
    Page page("gshm.toml", "5", "configuration of gshmd", GSHM_VERSION);
    Markdown(docs / "configuration.md").add_all(page);
    page.see_also("gshmd(8) gshm(1) gshm-reload(1)");
    return page.text();
}

}  // namespace

void add_daemon_pages(Pages& pages, const std::filesystem::path& docs) {
    pages["gshmd.8"] = daemon_text();
    pages["gshm.toml.5"] = configuration_text(docs);
}

// The comment has a sentence as the summary, then indented lines as the synopsis, then the options.
void add_mount_page(Pages& pages, const std::filesystem::path& script) {
    std::ifstream stream(script);
    std::string line;
    std::string synopsis;
    std::string text;
    std::string summary;
    std::getline(stream, line);  // the interpreter
    while (std::getline(stream, line) && line.starts_with('#')) {
        line.erase(0, line.starts_with("# ") ? 2 : 1);
        if (summary.empty()) summary = line;
        else if (line.starts_with("  ")) synopsis += line.substr(2) + "\n";
        else text += line + "\n";
    }
    const size_t colon = summary.find(": ");
    if (colon == summary.npos || synopsis.empty()) throw std::runtime_error("cannot read " + script.string());
    Page page("mount.fuse.gshm", "8", without_full_stop(summary.substr(colon + 2)), GSHM_VERSION);
    page.section("Synopsis");
    page.code(synopsis);
    page.section("Description");
    page.paragraph(summary);
    page.paragraph(text);
    page.see_also("mount(8) fstab(5) gshm-mount(1) gshmd(8)");
    pages["mount.fuse.gshm.8"] = page.text();
}

}  // namespace gshm::manual
