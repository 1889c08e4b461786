#include <algorithm>
#include <cctype>
#include <stdexcept>
#include <string_view>

#include <fmt/core.h>

#include "manual/header.h"
#include "manual/page.h"
#include "manual/pages.h"
#include <gshm/version.h>

namespace gshm::manual {
namespace {

// "Objects by name" is gshm_objects_by_name; "An open object" is gshm_open_object.
std::string slug(std::string_view title) {
    for (std::string_view article : {"A ", "An ", "The "})
        if (title.starts_with(article)) title.remove_prefix(article.size());
    std::string name = "gshm_";
    for (const char letter : title) {
        const auto lower = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
        name += std::isalnum(static_cast<unsigned char>(lower)) ? lower : '_';
    }
    return name;
}

std::string name_of(const Header& header, const Group& group) {
    const auto same = std::ranges::count(header.groups, group.title, &Group::title);
    if (same == 1) return slug(group.title);
    return slug(group.title + " " + group.remark.substr(0, group.remark.find(' ')));  // "Tensors: DLPack"
}

// A paragraph that is indented stays a paragraph; lines of a list ("  1. ...") begin one each.
void add_text(Page& page, std::string_view text) {
    std::string paragraph;
    const auto flush = [&] {
        if (!paragraph.empty()) page.paragraph(paragraph);
        paragraph.clear();
    };
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        const auto line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        const size_t begin = line.find_first_not_of(' ');
        if (begin == line.npos) {
            flush();
            continue;
        }
        const size_t dot = line.find(". ", begin);
        const bool number = dot != line.npos && dot > begin && dot - begin <= 2 &&
                            std::ranges::all_of(line.substr(begin, dot - begin),
                                                [](char c) { return std::isdigit(static_cast<unsigned char>(c)); });
        if (number) flush();
        paragraph += line.substr(begin);
        paragraph += '\n';
    }
    flush();
}

void add_declarations(Page& page, const Group& group) {
    for (const auto& declaration : group.declarations) {
        page.code(declaration.code);
        if (declaration.comment.empty()) continue;
        page.nest();
        add_text(page, declaration.comment);
        page.unnest();
    }
}

void add_include(Page& page) {
    page.section("Synopsis");
    page.code("#include <gshm/gshm.h>");
    page.markup_paragraph("Link with " + bold("-lgshm") + " (pkg-config: " + bold("gshm") + ").");
}

Page group_page(const Header& header, const Group& group) {
    const auto name = name_of(header, group);
    std::string summary = group.title;
    summary[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(summary[0])));
    Page page(name, "3", summary, GSHM_VERSION, group.functions());
    add_include(page);
    page.section("Description");
    if (!group.remark.empty()) page.paragraph(group.title + ": " + group.remark + ".");
    if (!group.comment.empty()) add_text(page, group.comment);
    add_declarations(page, group);
    page.see_also("gshm(3) gshm(1) gshmd(8)");
    return page;
}

Page overview_page(const Header& header) {
    Page page("gshm", "3", "the C interface of gshm", GSHM_VERSION, header.groups[0].functions());
    add_include(page);
    page.section("Description");
    // The parts of the text begin with a word in a line of its own, or with an empty line.
    add_text(page, header.comment);
    page.section("Functions");
    std::string others;
    for (size_t i = 1; i < header.groups.size(); ++i) {
        const auto& group = header.groups[i];
        std::string names;
        for (const auto& function : group.functions()) names += (names.empty() ? "" : ", ") + function + "()";
        page.markup_term(bold(name_of(header, group)) + "(3)", escaped(names.empty() ? group.title : names));
        others += name_of(header, group) + "(3) ";
    }
    page.section("General");
    add_declarations(page, header.groups[0]);
    page.see_also(others + "gshm(1) gshmd(8)");
    return page;
}

}  // namespace

void add_library_pages(Pages& pages, const std::filesystem::path& file) {
    const auto header = Header::read(file);
    const auto add = [&](const Page& page, const Group& group) {
        if (!pages.emplace(page.file_name(), page.text()).second)
            throw std::runtime_error(fmt::format("there are two manual pages {}", page.file_name()));
        for (const auto& function : group.functions())
            if (function != page.name()) pages.emplace(function + ".3", alias(page.file_name(), "3"));
    };
    add(overview_page(header), header.groups[0]);
    for (size_t i = 1; i < header.groups.size(); ++i) add(group_page(header, header.groups[i]), header.groups[i]);
}

}  // namespace gshm::manual
