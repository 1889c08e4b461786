#include "cli/completion/bash_line.h"

#include <cctype>

#include <fmt/core.h>

namespace gshm::cli {
namespace {

constexpr std::string_view kSpaces = " \t\n";

bool is_control(char letter) {
    return static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f;
}

// $'\n' for a control character.
std::string ansi(char letter) {
    switch (letter) {
        case '\n': return "$'\\n'";
        case '\t': return "$'\\t'";
        default: return fmt::format("$'\\{:03o}'", static_cast<unsigned char>(letter));
    }
}

std::string without_quotes(std::string_view text, bool begins_word) {
    constexpr std::string_view kPlain = "_-./:=@%+,";
    std::string out;
    for (const char letter : text) {
        const auto byte = static_cast<unsigned char>(letter);
        if (is_control(letter)) {
            out += ansi(letter);
            continue;
        }
        const bool plain = (byte < 0x80 && std::isalnum(byte) != 0) || byte >= 0x80 || kPlain.contains(letter);
        if (!plain || (begins_word && out.empty() && letter == '~')) out += '\\';
        out += letter;
    }
    return out;
}

// Within quotes. What they cannot have is between two parts: 'it'\''s'.
std::string within(char quote, std::string_view text) {
    std::string out;
    const auto between = [&](std::string_view part) { out += fmt::format("{}{}{}", quote, part, quote); };
    for (const char letter : text) {
        if (is_control(letter)) between(ansi(letter));
        else if (quote == '\'' && letter == '\'') between("\\'");
        else if (quote == '"' && letter == '!') between("'!'");  // history
        else if (quote == '"' && std::string_view("\"\\$`").contains(letter)) out += {'\\', letter};
        else out += letter;
    }
    return out;
}

// Within $'...'. readline takes a \' for the end.
std::string within_ansi(std::string_view text) {
    std::string out;
    for (const char letter : text) {
        if (is_control(letter) || letter == '\'') out += fmt::format("\\{:03o}", static_cast<unsigned char>(letter));
        else if (letter == '\\') out += "\\\\";
        else out += letter;
    }
    return out;
}

class Reader {
public:
    Reader(std::string_view line, std::string_view breaks) : line_(line), breaks_(breaks) {}

    BashLine read() {
        while (at_ < line_.size()) read_letter(line_[at_++]);
        if (!in_word_) {
            result_.replaced_from = 0;
            result_.is_expanded = false;
        }
        result_.words.push_back(std::move(word_));
        return std::move(result_);
    }

private:
    void read_letter(char letter) {
        if (kSpaces.contains(letter)) return end_word();
        if (letter == '<' || letter == '>') {
            end_word();
            result_.is_redirected = true;
            return;
        }
        begin_word();
        if (letter == '\\') {
            if (at_ < line_.size()) word_ += line_[at_++];
        } else if (letter == '\'' || letter == '"') {
            read_quoted(letter, false);
        } else if (letter == '$' && at_ < line_.size() && line_[at_] == '\'') {
            ++at_;
            read_quoted('\'', true);
        } else {
            if (letter == '$' || letter == '`' || (letter == '~' && word_.empty())) result_.is_expanded = true;
            word_ += letter;
            // readline keeps an @, which begins names of hosts.
            if (breaks_.contains(letter)) result_.replaced_from = word_.size() - (letter == '@' ? 1 : 0);
        }
    }
    void begin_word() {
        if (in_word_) return;
        in_word_ = true;
        result_.replaced_from = 0;
        result_.is_expanded = false;
    }
    void end_word() {
        if (!in_word_) return;
        if (!result_.is_redirected) result_.words.push_back(std::move(word_));
        result_.is_redirected = false;
        word_.clear();
        in_word_ = false;
    }
    // Up to the closing quote. If there is none, readline replaces what follows the opening one.
    void read_quoted(char quote, bool is_ansi) {
        const size_t begin = word_.size();
        while (at_ < line_.size()) {
            const char letter = line_[at_++];
            if (letter == quote) return;
            if (letter == '\\' && (is_ansi || quote == '"')) read_escape(is_ansi);
            else {
                if (quote == '"' && (letter == '$' || letter == '`')) result_.is_expanded = true;
                word_ += letter;
            }
        }
        result_.open_quote = is_ansi ? '$' : quote;
        result_.replaced_from = begin;
    }
    void read_escape(bool is_ansi) {
        if (at_ == line_.size()) return;
        const char letter = line_[at_++];
        if (!is_ansi) {
            if (!std::string_view("\"\\$`").contains(letter)) word_ += '\\';
            word_ += letter;
            return;
        }
        constexpr std::string_view kNames = "abefnrtv";
        constexpr std::string_view kValues = "\a\b\x1b\f\n\r\t\v";
        if (const size_t which = kNames.find(letter); which != kNames.npos) {
            word_ += kValues[which];
        } else if (letter >= '0' && letter <= '7') {
            int value = letter - '0';
            int digits = 1;
            for (; digits < 3 && at_ < line_.size() && line_[at_] >= '0' && line_[at_] <= '7'; ++digits)
                value = value * 8 + (line_[at_++] - '0');
            // At the cursor it may be the beginning of several candidates.
            if (digits == 3 || at_ < line_.size()) word_ += static_cast<char>(value);
        } else {
            word_ += letter;
        }
    }

    std::string_view line_;
    std::string_view breaks_;
    size_t at_ = 0;
    std::string word_;
    bool in_word_ = false;
    BashLine result_;
};

}  // namespace

BashLine BashLine::parse(std::string_view line, std::string_view breaks) {
    return Reader(line, breaks).read();
}

std::string BashLine::inserted(std::string_view candidate) const {
    const auto rest = candidate.substr(replaced_from);
    if (open_quote == 0) return without_quotes(rest, replaced_from == 0);
    return open_quote == '$' ? within_ansi(rest) : within(open_quote, rest);
}

}  // namespace gshm::cli
