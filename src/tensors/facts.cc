#include "tensors/facts.h"

#include "base/name.h"
#include "tensors/json_reader.h"

namespace gshm::core::tensors {

std::string to_text(const Facts& facts) {
    std::string text = fmt::format("{{\"format\":{},\"tensors\":{},\"header_bytes\":{}", facts.format, facts.tensors,
                                   facts.header_bytes);
    const auto add = [&](const char* key, const std::string& value) {
        if (!value.empty()) text += fmt::format(",\"{}\":{}", key, json_string(value));
    };
    add("identity", facts.identity);
    add("source", facts.source);
    add("loader", facts.loader);
    return text + "}";
}

Result<Facts> parse_facts(std::string_view text) {
    if (!is_valid_utf8(text)) return fail(EBADMSG, "not valid UTF-8");
    Facts facts{.format = 0};
    JsonReader reader(text);
    TRY(reader.begin_object());
    std::string key;
    while (TRY(reader.next_key(key))) {
        if (key == "format") facts.format = TRY(reader.number());
        else if (key == "tensors") facts.tensors = TRY(reader.number());
        else if (key == "header_bytes") facts.header_bytes = TRY(reader.number());
        else if (key == "identity") facts.identity = TRY(reader.string(text.size()));
        else if (key == "source") facts.source = TRY(reader.string(text.size()));
        else if (key == "loader") facts.loader = TRY(reader.string(text.size()));
        else TRY(reader.skip_value());
    }
    TRY(reader.end());
    return facts;
}

}  // namespace gshm::core::tensors
