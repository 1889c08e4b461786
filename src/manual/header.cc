#include "manual/header.h"

#include <algorithm>
#include <fstream>
#include <regex>
#include <stdexcept>
#include <string_view>

namespace gshm::manual {
namespace {

constexpr std::string_view kTitle = "/* ---- ";

std::string without_trailing(std::string text, std::string_view letters) {
    text.erase(text.find_last_not_of(letters) + 1);
    return text;
}

// "Sharing: docs/sharing.md. Since 0.2" in its title and its remark.
void set_title(Group& group, std::string_view line) {
    line.remove_prefix(kTitle.size());
    const std::string whole = without_trailing(std::string(line.substr(0, line.rfind("*/"))), "- ");
    const size_t end = std::min(whole.find_first_of(":,"), whole.size());
    group.title = whole.substr(0, end);
    if (end < whole.size()) group.remark = whole.substr(whole.find_first_not_of(":, ", end));
}

// The functions that are declared at the first column: not types, not what a macro contains.
std::vector<std::string> functions_of(const std::string& code) {
    static const std::regex declared(R"((?:^|\n)[a-z][A-Za-z0-9_ *]*?\b(gshm_[a-z0-9_]+)\()");
    std::vector<std::string> names;
    if (code.starts_with("typedef") || code.starts_with('#')) return names;
    for (std::sregex_iterator at(code.begin(), code.end(), declared), end; at != end; ++at) names.push_back((*at)[1]);
    return names;
}

// A comment without its marks. Its indented lines stay so.
std::string comment_text(std::vector<std::string> lines) {
    std::string text;
    for (size_t i = 0; i < lines.size(); ++i) {
        auto line = std::string_view(lines[i]);
        const std::string_view mark = i == 0 ? "/*" : " *";
        if (line.ends_with("*/")) line.remove_suffix(2);
        if (!line.starts_with(mark) && line != " ")
            throw std::runtime_error("a comment has a line without its mark: " + lines[i]);
        line.remove_prefix(std::min(mark.size(), line.size()));
        if (line.starts_with(' ')) line.remove_prefix(1);
        if (line.starts_with("Why this file is long:")) continue;  // of interest to maintainers
        text += without_trailing(std::string(line), " ") + "\n";
    }
    return without_trailing(std::move(text), "\n");
}

// Macros that have a meaning for the compiler alone.
std::string for_readers(const std::string& line) {
    static const std::regex noise(R"(\s*GSHM_NOEXCEPT)");
    return std::regex_replace(line, noise, "");
}

class Reader {
public:
    explicit Reader(std::vector<std::string> lines) : lines_(std::move(lines)) {}

    Header read() {
        header_.groups.emplace_back();
        header_.comment = comment_text(take_comment());
        while (at_ < lines_.size()) {
            const auto& line = lines_[at_];
            if (line.starts_with(kTitle)) {
                header_.groups.emplace_back();
                set_title(header_.groups.back(), line);
                ++at_;
            } else if (line.starts_with("/*")) {
                add_comment(comment_text(take_comment()));
            } else if (line.empty()) {
                end_paragraph();
                ++at_;
            } else if (is_directive(line)) {
                comment_.clear();
                skip_directive();
            } else {
                add_code(take_code());
            }
        }
        end_paragraph();
        return std::move(header_);
    }

private:
    Group& group() { return header_.groups.back(); }

    static bool is_directive(const std::string& line) {
        return (line.starts_with('#') && !line.starts_with("#define GSHM_")) || line == "extern \"C\" {" || line == "}";
    }
    // The branches of #if before the declarations are of no interest to readers.
    void skip_directive() {
        if (lines_[at_].starts_with("#if") && lines_[at_] != "#ifndef GSHM_GSHM_H") {
            while (at_ < lines_.size() && lines_[at_] != "#endif") ++at_;
        }
        ++at_;
    }
    std::vector<std::string> take_comment() {
        std::vector<std::string> lines;
        bool ended = false;
        while (!ended && at_ < lines_.size()) {
            ended = lines_[at_].ends_with("*/");
            lines.push_back(lines_[at_++]);
        }
        if (!ended) throw std::runtime_error("a comment has no end");
        return lines;
    }
    // Lines up to the end of a declaration: the one that closes its brackets.
    std::string take_code() {
        std::string code;
        int depth = 0;
        while (at_ < lines_.size()) {
            const std::string line = lines_[at_++];
            code += for_readers(line) + "\n";
            const std::string outside = line.substr(0, line.find("/*"));
            depth += static_cast<int>(std::ranges::count_if(outside, [](char c) { return c == '{' || c == '('; }));
            depth -= static_cast<int>(std::ranges::count_if(outside, [](char c) { return c == '}' || c == ')'; }));
            const auto bare = without_trailing(outside, " ");
            if (depth == 0 && (bare.ends_with(';') || line.starts_with("#define"))) break;
        }
        return without_trailing(std::move(code), "\n");
    }
    // Comments one after the other are one text; a comment that no declaration follows is the group's.
    void add_comment(std::string text) {
        if (!comment_.empty()) comment_ += "\n\n";
        comment_ += std::move(text);
        after_code_ = false;
    }
    // Declarations without an empty line or a comment between them share what is above them.
    void add_code(std::string code) {
        auto names = functions_of(code);
        if (after_code_ && comment_.empty()) {
            auto& last = group().declarations.back();
            last.code += "\n" + code;
            last.functions.insert(last.functions.end(), names.begin(), names.end());
        } else {
            group().declarations.push_back({std::move(code), std::move(comment_), std::move(names)});
            comment_.clear();
        }
        after_code_ = true;
    }
    void end_paragraph() {
        if (!comment_.empty()) {
            if (!group().comment.empty()) group().comment += "\n\n";
            group().comment += comment_;
            comment_.clear();
        }
        after_code_ = false;
    }

    std::vector<std::string> lines_;
    size_t at_ = 0;
    std::string comment_;
    bool after_code_ = false;
    Header header_;
};

}  // namespace

std::vector<std::string> Group::functions() const {
    std::vector<std::string> names;
    for (const auto& declaration : declarations)
        names.insert(names.end(), declaration.functions.begin(), declaration.functions.end());
    return names;
}

Header Header::read(const std::filesystem::path& file) {
    std::ifstream stream(file);
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    if (lines.empty()) throw std::runtime_error("cannot read " + file.string());
    return Reader(std::move(lines)).read();
}

}  // namespace gshm::manual
