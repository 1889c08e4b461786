// A strict reader of JSON text, for input that is not trusted: it makes no tree, does not recurse, and refuses anything
// that RFC 8259 does not permit. The caller asks for the values that it expects, in order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace gshm::core::tensors {

class JsonReader {
public:
    // The text is valid UTF-8.
    explicit JsonReader(std::string_view text) : text_(text) {}

    // Members of an object: begin_object(), then next_key() until it returns false. Each key is followed by one of the
    // calls that read or skip a value.
    Status begin_object();
    Result<bool> next_key(std::string& ret_key);
    // Likewise for the elements of an array.
    Status begin_array();
    Result<bool> next_element();

    // `most_bytes` bounds the decoded text.
    Result<std::string> string(size_t most_bytes);
    // An integer of 64 bits without a sign, a fraction or an exponent.
    Result<uint64_t> number();
    // Any value, which is checked.
    Status skip_value();
    // Nothing but white space follows.
    Status end();

    // The longest key that next_key() accepts, and the deepest nesting.
    static constexpr size_t kKeyBytes = 64 << 10;
    static constexpr unsigned kDepth = 64;

private:
    std::unexpected<Error> broken(const char* what) const;
    void skip_space();
    Status expect(char wanted, const char* what);
    Status read_string(std::string* ret_text, size_t most_bytes);
    Status read_escape(std::string* ret_text);
    Result<uint32_t> read_hex();
    Status skip_number();
    Status skip_scalar();

    std::string_view text_;
    size_t at_ = 0;
    // After an opening bracket there is no comma before the first member. Values between the calls leave it false.
    bool is_first_ = false;
};

// The text as a JSON string, with its quotes.
std::string json_string(std::string_view text);

}  // namespace gshm::core::tensors
