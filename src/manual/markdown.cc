#include "manual/markdown.h"

#include <cmark-gfm-core-extensions.h>
#include <cmark-gfm-extension_api.h>
#include <cmark-gfm.h>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace gshm::manual {
namespace {

bool is(cmark_node* node, std::string_view type) {
    return node != nullptr && type == cmark_node_get_type_string(node);
}

std::string_view literal(cmark_node* node) {
    const char* text = cmark_node_get_literal(node);
    return text == nullptr ? "" : text;
}

std::vector<cmark_node*> children(cmark_node* node) {
    std::vector<cmark_node*> found;
    for (auto* child = cmark_node_first_child(node); child != nullptr; child = cmark_node_next(child))
        found.push_back(child);
    return found;
}

// Without fonts.
std::string plain(cmark_node* node) {
    if (is(node, "softbreak") || is(node, "linebreak")) return " ";
    std::string text(literal(node));
    for (auto* child : children(node)) text += plain(child);
    return text;
}

std::string markup(cmark_node* node);

std::string markup_of_children(cmark_node* node) {
    std::string text;
    for (auto* child : children(node)) text += markup(child);
    return text;
}

// A link to another page has the place of that page, since a manual page has no links. A section about a command is in the
// page of the command; other sections are in the documentation alone.
std::string link_markup(cmark_node* node) {
    const std::string_view url = cmark_node_get_url(node);
    const auto text = plain(node);
    if (url.starts_with("#gshm-")) return markup_of_children(node);
    if (url.starts_with('#')) return "docs/cli.md";
    const auto file = url.substr(0, url.find('#'));
    return file == text ? escaped("docs/" + text) : markup_of_children(node);
}

std::string markup(cmark_node* node) {
    if (is(node, "softbreak") || is(node, "linebreak")) return " ";
    if (is(node, "text")) return escaped(literal(node));
    if (is(node, "code")) return bold(literal(node));
    if (is(node, "link")) return link_markup(node);
    if (is(node, "emph")) return "\\fI" + markup_of_children(node) + "\\fR";
    if (is(node, "strong")) return "\\fB" + markup_of_children(node) + "\\fR";
    return markup_of_children(node);
}

// The first cell as a term, the others below it with the titles of their columns.
void add_row(Page& page, cmark_node* header, cmark_node* row) {
    const auto titles = children(header);
    const auto cells = children(row);
    std::string text;
    for (size_t i = 1; i < cells.size(); ++i) {
        const auto cell = markup(cells[i]);
        if (cell.empty()) continue;
        const auto title = i < titles.size() ? markup(titles[i]) : "";
        if (!text.empty()) text += "; ";
        text += title.empty() ? cell : title + ": " + cell;
    }
    page.markup_term(cells.empty() ? "" : markup(cells[0]), text);
}

void add_block(Page& page, cmark_node* node) {
    if (is(node, "paragraph")) {
        page.markup_paragraph(markup(node));
    } else if (is(node, "code_block")) {
        page.code(literal(node));
    } else if (is(node, "table")) {
        const auto rows = children(node);
        for (size_t i = 1; i < rows.size(); ++i) add_row(page, rows[0], rows[i]);
    } else if (is(node, "list")) {
        for (auto* item : children(node)) {
            const auto blocks = children(item);
            if (!blocks.empty()) page.bullet(markup(blocks[0]));
            for (size_t i = 1; i < blocks.size(); ++i) add_block(page, blocks[i]);
        }
    } else {
        throw std::runtime_error(std::string("a manual page has no form for ") + cmark_node_get_type_string(node));
    }
}

bool has_code(cmark_node* node, std::string_view code) {
    if (is(node, "code") && literal(node) == code) return true;
    for (auto* child : children(node)) {
        if (has_code(child, code)) return true;
    }
    return false;
}

// Whether the cell names the command: `ls [-l]`, or `pin NAME`, `unpin NAME`.
bool names_command(cmark_node* cell, std::string_view command) {
    for (auto* child : children(cell)) {
        if (is(child, "code") && literal(child).substr(0, literal(child).find(' ')) == command) return true;
    }
    return false;
}

}  // namespace

void Markdown::Free::operator()(cmark_node* node) const {
    cmark_node_free(node);
}

Markdown::Markdown(const std::filesystem::path& file) {
    std::ifstream stream(file);
    std::ostringstream text;
    text << stream.rdbuf();
    if (!stream) throw std::runtime_error("cannot read " + file.string());
    cmark_gfm_core_extensions_ensure_registered();
    auto* parser = cmark_parser_new(CMARK_OPT_DEFAULT);
    cmark_parser_attach_syntax_extension(parser, cmark_find_syntax_extension("table"));
    const auto bytes = text.str();
    cmark_parser_feed(parser, bytes.data(), bytes.size());
    root_.reset(cmark_parser_finish(parser));
    cmark_parser_free(parser);
}

void Markdown::add_all(Page& page) const {
    bool first = true;
    for (auto* node : children(root_.get())) {
        if (!is(node, "heading")) {
            add_block(page, node);
        } else if (first) {
            page.section("Description");
            first = false;
        } else if (cmark_node_get_heading_level(node) == 2) {
            page.section(plain(node));
        } else {
            page.subsection(plain(node));
        }
    }
}

void Markdown::add_section(Page& page, std::string_view title) const {
    bool within = false;
    bool found = false;
    for (auto* node : children(root_.get())) {
        if (is(node, "heading")) {
            within = plain(node) == title;
            if (within) page.section(title);
            found = found || within;
        } else if (within) {
            add_block(page, node);
        }
    }
    if (!found) throw std::runtime_error("there is no section " + std::string(title));
}

bool Markdown::add_command(Page& page, std::string_view command) const {
    bool found = false;
    std::string heading;
    for (auto* node : children(root_.get())) {
        if (is(node, "heading")) heading = plain(node);
        if (!is(node, "table")) continue;
        const auto rows = children(node);
        if (rows.empty() || plain(cmark_node_first_child(rows[0])) != "command") continue;
        for (auto* row : rows) {
            if (!names_command(cmark_node_first_child(row), command)) continue;
            if (heading != "Commands") page.section(heading);  // of one row: the form of its JSON
            add_row(page, nullptr, row);
            found = true;
        }
    }
    bool within = false;
    for (auto* node : children(root_.get())) {
        if (is(node, "heading")) {
            within = has_code(node, "gshm " + std::string(command));
            if (within) page.section(plain(node));
        } else if (within) {
            add_block(page, node);
        }
    }
    return found;
}

}  // namespace gshm::manual
