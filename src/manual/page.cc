#include "manual/page.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include <fmt/core.h>

namespace gshm::manual {
namespace {

std::string upper(std::string_view text) {
    std::string out(text);
    for (char& letter : out) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    return out;
}

// Line ends and runs of spaces as one space: groff fills paragraphs.
std::string filled(std::string_view markup) {
    std::string out;
    for (const char letter : markup) {
        const bool space = letter == ' ' || letter == '\n';
        if (space && (out.empty() || out.back() == ' ')) continue;
        out += space ? ' ' : letter;
    }
    while (out.ends_with(' ')) out.pop_back();
    return out;
}

}  // namespace

std::string escaped(std::string_view text) {
    std::string out;
    bool line_begins = true;
    for (const char letter : text) {
        if (line_begins && (letter == '.' || letter == '\'')) out += "\\&";
        line_begins = letter == '\n';
        switch (letter) {
            case '\\': out += "\\e"; break;
            case '-': out += "\\-"; break;  // a hyphen would be another character in UTF-8
            case '\'': out += "\\(aq"; break;
            case '`': out += "\\(ga"; break;
            case '^': out += "\\(ha"; break;
            case '~': out += "\\(ti"; break;
            default: out += letter;
        }
    }
    return out;
}

std::string bold(std::string_view text) {
    return "\\fB" + escaped(text) + "\\fR";
}

std::string italic(std::string_view text) {
    return "\\fI" + escaped(text) + "\\fR";
}

std::string alias(std::string_view file_name, std::string_view section) {
    return fmt::format(".so man{}/{}\n", section, file_name);
}

Page::Page(std::string name, std::string section, std::string_view summary, std::string_view version,
           const std::vector<std::string>& other_names)
    : name_(std::move(name)), section_(std::move(section)) {
    line(fmt::format(".TH {} {} \"\" \"gshm {}\" \"gshm\"", escaped(upper(name_)), section_, version));
    line(".nh");  // names are not divided at the ends of lines
    this->section("Name");
    std::string names = name_;
    for (const auto& other : other_names)
        if (other != name_) names += ", " + other;
    line(fmt::format("{} \\- {}", escaped(names), escaped(summary)));
}

void Page::line(std::string_view text) {
    text_ += text;
    text_ += '\n';
    after_title_ = text.starts_with(".SH") || text.starts_with(".SS");
}

void Page::begin_paragraph() {
    if (!after_title_) line(".PP");
}

void Page::section(std::string_view title) {
    line(fmt::format(".SH \"{}\"", escaped(upper(title))));
}

void Page::subsection(std::string_view title) {
    line(fmt::format(".SS \"{}\"", escaped(title)));
}

void Page::paragraph(std::string_view text) {
    markup_paragraph(escaped(text));
}

void Page::markup_paragraph(std::string_view markup) {
    begin_paragraph();
    line(filled(markup));
}

void Page::term(std::string_view term, std::string_view explanation) {
    markup_term(bold(term), escaped(explanation));
}

void Page::markup_term(std::string_view markup, std::string_view explanation_markup) {
    line(".TP");
    line(filled(markup));
    const auto explanation = filled(explanation_markup);
    line(explanation.empty() ? "\\&" : explanation);
}

void Page::bullet(std::string_view markup) {
    line(".IP \\(bu 2");
    line(filled(markup));
}

void Page::code(std::string_view lines) {
    begin_paragraph();
    line(".RS 4");
    line(".nf");
    while (lines.ends_with('\n')) lines.remove_suffix(1);
    line(escaped(lines));
    line(".fi");
    line(".RE");
}

void Page::nest() {
    line(".RS");
}

void Page::unnest() {
    line(".RE");
}

void Page::see_also(std::string_view names) {
    section("See also");
    std::istringstream words{std::string(names)};
    std::string markup;
    for (std::string word; words >> word;) {
        const size_t bracket = std::min(word.find('('), word.size());
        if (!markup.empty()) markup += ", ";
        markup += bold(word.substr(0, bracket)) + escaped(word.substr(bracket));
    }
    markup_paragraph(markup);
}

}  // namespace gshm::manual
