#include <algorithm>

#include <fmt/core.h>

#include "cli/outline.h"
#include "manual/markdown.h"
#include "manual/page.h"
#include "manual/pages.h"
#include <gshm/version.h>

namespace gshm::manual {
namespace {

// "-r, --recursive", "--size SIZE"
std::string term_of(const cli::Argument& argument) {
    if (argument.is_positional()) return italic(argument.value);
    std::string term;
    for (const auto& flag : argument.flags) term += (term.empty() ? "" : ", ") + bold(flag);
    if (!argument.is_switch()) term += " " + italic(argument.value);
    return term;
}

void add_arguments(Page& page, const cli::Command& command, bool positionals) {
    for (const auto& argument : command.arguments) {
        if (argument.is_positional() != positionals) continue;
        auto text = escaped(argument.text);
        if (argument.required) text += " (required)";
        std::string others;
        for (const auto& other : argument.excludes) others += (others.empty() ? "" : ", ") + bold(other);
        if (!others.empty()) text += "; not with " + others;
        page.markup_term(term_of(argument), text);
    }
}

// "  0  done" as a list; what is not such a line as it is.
void add_part(Page& page, const cli::HelpPart& part) {
    if (part.title.empty()) return page.paragraph(part.text);
    page.section(part.title == "Exit codes" ? "Exit status" : part.title == "Example" ? "Examples" : part.title);
    if (part.title != "Exit codes") {
        const size_t end = part.text.find("\n`");  // a remark below the example
        page.code(part.text.substr(0, end));
        if (end != part.text.npos) page.paragraph(part.text.substr(end + 1));
        return;
    }
    std::string_view rest = part.text;
    while (!rest.empty()) {
        const size_t end = std::min(rest.find('\n'), rest.size());
        const auto line = rest.substr(0, end);
        const size_t code = line.find_first_not_of(' ');
        const size_t space = line.find(' ', code);
        page.term(line.substr(code, space - code), line.substr(line.find_first_not_of(' ', space)));
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
}

void add_parts(Page& page, const cli::Command& command, bool titled) {
    for (const auto& part : command.parts)
        if (part.title.empty() != titled) add_part(page, part);
}

// "gshm put [OPTIONS] SOURCE... NAME"
std::string synopsis_of(const cli::Command& command) {
    std::string text = bold("gshm") + " " + bold(command.name);
    std::string required;
    for (const auto& argument : command.arguments) {
        const bool optional = !argument.required;
        if (argument.is_positional()) {
            const bool repeats = argument.repeats && argument.value.find("...") == std::string::npos;
            required += fmt::format(" {}{}{}{}", optional ? "[" : "", italic(argument.value), repeats ? "..." : "",
                                    optional ? "]" : "");
        } else if (!optional) {
            text += " " + term_of(argument);
        }
    }
    return text + " [" + italic("options") + "]" + required;
}

std::string program_text(const cli::Outline& outline, const Markdown& docs) {
    const auto& program = outline.program;
    const std::string title = "gshm: ";
    const auto summary = program.text.substr(title.size(), program.text.find(". ") - title.size());
    Page page("gshm", "1", summary, GSHM_VERSION);
    page.section("Synopsis");
    page.markup_paragraph(bold("gshm") + " [" + italic("options") + "] " + italic("command") + " [" +
                          italic("arguments") + "]");
    page.section("Description");
    page.paragraph(program.text.substr(program.text.find(". ") + 2));
    add_parts(page, program, false);
    page.section("Options");
    add_arguments(page, program, false);
    page.section("Commands");
    std::string others;
    for (const auto& command : outline.commands) {
        page.markup_term(bold(command.name), escaped(command.text));
        others += fmt::format("gshm-{}(1) ", command.name);
    }
    add_parts(page, program, true);
    docs.add_section(page, "Environment");
    docs.add_section(page, "Files");
    page.see_also(others + "gshmd(8) gshm.toml(5) gshm(3)");
    return page.text();
}

std::string command_text(const cli::Command& command, const Markdown& docs) {
    Page page("gshm-" + command.name, "1", command.text, GSHM_VERSION);
    page.section("Synopsis");
    page.markup_paragraph(synopsis_of(command));
    page.section("Description");
    if (!docs.add_command(page, command.name)) page.paragraph(command.text + ".");
    page.section("Options");
    add_arguments(page, command, true);
    add_arguments(page, command, false);
    add_parts(page, command, false);
    add_parts(page, command, true);
    page.section("Exit status");
    page.markup_paragraph("0 if all is done; the other codes are in " + bold("gshm") + "(1).");
    page.see_also("gshm(1) gshmd(8)");
    return page.text();
}

}  // namespace

void add_command_pages(Pages& pages, const std::filesystem::path& docs) {
    const auto outline = cli::outline();
    const Markdown text(docs / "cli.md");
    pages["gshm.1"] = program_text(outline, text);
    for (const auto& command : outline.commands) pages["gshm-" + command.name + ".1"] = command_text(command, text);
}

}  // namespace gshm::manual
