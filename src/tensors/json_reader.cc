#include "tensors/json_reader.h"

namespace gshm::core::tensors {
namespace {

bool is_digit(char byte) {
    return byte >= '0' && byte <= '9';
}

void append_utf8(std::string& text, uint32_t code) {
    const auto add = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
    if (code < 0x80) {
        add(code);
    } else if (code < 0x800) {
        add(0xC0 | code >> 6);
        add(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
        add(0xE0 | code >> 12);
        add(0x80 | (code >> 6 & 0x3F));
        add(0x80 | (code & 0x3F));
    } else {
        add(0xF0 | code >> 18);
        add(0x80 | (code >> 12 & 0x3F));
        add(0x80 | (code >> 6 & 0x3F));
        add(0x80 | (code & 0x3F));
    }
}

}  // namespace

std::unexpected<Error> JsonReader::broken(const char* what) const {
    return fail(EBADMSG, "the JSON is not valid at byte {}: {}", at_, what);
}

void JsonReader::skip_space() {
    while (at_ < text_.size()) {
        const char byte = text_[at_];
        if (byte != ' ' && byte != '\t' && byte != '\n' && byte != '\r') return;
        ++at_;
    }
}

Status JsonReader::expect(char wanted, const char* what) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != wanted) return broken(what);
    ++at_;
    return {};
}

Status JsonReader::begin_object() {
    TRY(expect('{', "an object is expected"));
    is_first_ = true;
    return {};
}

Status JsonReader::begin_array() {
    TRY(expect('[', "an array is expected"));
    is_first_ = true;
    return {};
}

Result<bool> JsonReader::next_key(std::string& ret_key) {
    skip_space();
    if (at_ < text_.size() && text_[at_] == '}') {
        ++at_;
        is_first_ = false;
        return false;
    }
    if (!is_first_) TRY(expect(',', "a comma or the end of the object is expected"));
    is_first_ = false;
    ret_key = TRY(string(kKeyBytes));
    TRY(expect(':', "a colon is expected"));
    return true;
}

Result<bool> JsonReader::next_element() {
    skip_space();
    if (at_ < text_.size() && text_[at_] == ']') {
        ++at_;
        is_first_ = false;
        return false;
    }
    if (!is_first_) TRY(expect(',', "a comma or the end of the array is expected"));
    is_first_ = false;
    return true;
}

Result<std::string> JsonReader::string(size_t most_bytes) {
    std::string text;
    skip_space();
    TRY(read_string(&text, most_bytes));
    return text;
}

// Without ret_text the string is only checked.
Status JsonReader::read_string(std::string* ret_text, size_t most_bytes) {
    if (at_ >= text_.size() || text_[at_] != '"') return broken("a string is expected");
    ++at_;
    while (true) {
        const size_t begin = at_;
        while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
               static_cast<unsigned char>(text_[at_]) >= 0x20) {
            ++at_;
        }
        if (ret_text != nullptr) ret_text->append(text_, begin, at_ - begin);
        if (ret_text != nullptr && ret_text->size() > most_bytes) return broken("a string is too long");
        if (at_ >= text_.size()) return broken("a string does not end");
        if (text_[at_] == '"') break;
        if (text_[at_] != '\\') return broken("a string has a control character");
        TRY(read_escape(ret_text));
    }
    ++at_;
    return {};
}

Status JsonReader::read_escape(std::string* ret_text) {
    ++at_;
    if (at_ >= text_.size()) return broken("a string does not end");
    const char kind = text_[at_++];
    uint32_t code = 0;
    switch (kind) {
        case '"':
        case '\\':
        case '/': code = static_cast<uint32_t>(kind); break;
        case 'b': code = '\b'; break;
        case 'f': code = '\f'; break;
        case 'n': code = '\n'; break;
        case 'r': code = '\r'; break;
        case 't': code = '\t'; break;
        case 'u': {
            code = TRY(read_hex());
            if (code >= 0xDC00 && code < 0xE000) return broken("half of a surrogate pair");
            if (code >= 0xD800 && code < 0xDC00) {
                if (text_.substr(at_, 2) != "\\u") return broken("half of a surrogate pair");
                at_ += 2;
                const uint32_t low = TRY(read_hex());
                if (low < 0xDC00 || low >= 0xE000) return broken("half of a surrogate pair");
                code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            }
            break;
        }
        default: return broken("an unknown escape");
    }
    if (ret_text != nullptr) append_utf8(*ret_text, code);
    return {};
}

Result<uint32_t> JsonReader::read_hex() {
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) {
        if (at_ >= text_.size()) return broken("an escape does not end");
        const char digit = text_[at_++];
        const char lower = static_cast<char>(digit | 0x20);
        if (is_digit(digit)) value = value * 16 + static_cast<uint32_t>(digit - '0');
        else if (lower >= 'a' && lower <= 'f') value = value * 16 + static_cast<uint32_t>(lower - 'a' + 10);
        else return broken("an escape has four hexadecimal digits");
    }
    return value;
}

Result<uint64_t> JsonReader::number() {
    skip_space();
    if (at_ >= text_.size() || !is_digit(text_[at_])) return broken("a number that is not negative is expected");
    if (text_[at_] == '0' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1])) {
        return broken("a number begins with 0");
    }
    uint64_t value = 0;
    for (; at_ < text_.size() && is_digit(text_[at_]); ++at_) {
        if (__builtin_mul_overflow(value, uint64_t{10}, &value) ||
            __builtin_add_overflow(value, static_cast<uint64_t>(text_[at_] - '0'), &value)) {
            return broken("a number has more than 64 bits");
        }
    }
    if (at_ < text_.size() && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E')) {
        return broken("a number has a fraction or an exponent");
    }
    return value;
}

Status JsonReader::skip_number() {
    const auto digits = [&] {
        const size_t begin = at_;
        while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
        return at_ - begin;
    };
    if (text_[at_] == '-') ++at_;
    const bool zero = at_ < text_.size() && text_[at_] == '0';
    const size_t whole = digits();
    if (whole == 0 || (zero && whole > 1)) return broken("a value is expected");
    if (at_ < text_.size() && text_[at_] == '.') {
        ++at_;
        if (digits() == 0) return broken("a fraction has no digits");
    }
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
        ++at_;
        if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
        if (digits() == 0) return broken("an exponent has no digits");
    }
    return {};
}

Status JsonReader::skip_scalar() {
    if (at_ >= text_.size()) return broken("a value is expected");
    if (text_[at_] == '"') return read_string(nullptr, 0);
    for (const std::string_view word : {"true", "false", "null"}) {
        if (text_.substr(at_, word.size()) != word) continue;
        at_ += word.size();
        return {};
    }
    return skip_number();
}

// The open brackets are the bits of a word.
Status JsonReader::skip_value() {
    uint64_t objects = 0;  // 1: an object, 0: an array; the innermost is the lowest bit
    unsigned depth = 0;
    static_assert(kDepth <= 64);
    is_first_ = false;
    bool is_first = false;  // in the innermost bracket
    while (true) {
        skip_space();
        const char byte = at_ < text_.size() ? text_[at_] : '\0';
        const bool in_object = depth > 0 && (objects & 1) != 0;
        if (depth > 0 && byte == (in_object ? '}' : ']')) {
            ++at_;
            objects >>= 1;
            is_first = false;
            if (--depth == 0) return {};
            continue;
        }
        if (depth > 0 && !is_first) TRY(expect(',', "a comma or a closing bracket is expected"));
        is_first = false;
        if (in_object) {
            skip_space();
            TRY(read_string(nullptr, 0));
            TRY(expect(':', "a colon is expected"));
        }
        skip_space();
        const char next = at_ < text_.size() ? text_[at_] : '\0';
        if (next == '{' || next == '[') {
            if (depth == kDepth) return broken("the nesting is too deep");
            ++at_;
            ++depth;
            objects = objects << 1 | (next == '{' ? 1 : 0);
            is_first = true;
            continue;
        }
        TRY(skip_scalar());
        if (depth == 0) return {};
    }
}

Status JsonReader::end() {
    skip_space();
    if (at_ != text_.size()) return broken("something follows the value");
    return {};
}

std::string json_string(std::string_view text) {
    std::string quoted = "\"";
    for (const char byte : text) {
        if (byte == '"' || byte == '\\') quoted.push_back('\\');
        if (static_cast<unsigned char>(byte) >= 0x20) quoted.push_back(byte);
        else quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(byte));
    }
    quoted.push_back('"');
    return quoted;
}

}  // namespace gshm::core::tensors
