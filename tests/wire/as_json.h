// Messages as text, read with the tree's schema: every field by its name.
#pragma once

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include <flatbuffers/idl.h>
#include <nlohmann/json.hpp>

#include "wire/message.h"

namespace gshm::core::test {

// The message must have been verified.
inline nlohmann::ordered_json as_json(wire::Bytes message, bool is_request) {
    std::ifstream file(GSHM_SOURCE_DIR "/src/wire/protocol.fbs");
    const std::string schema{std::istreambuf_iterator<char>(file), {}};
    flatbuffers::IDLOptions options;
    options.strict_json = true;
    flatbuffers::Parser parser(options);
    if (!parser.Parse(schema.c_str()) ||
        !parser.SetRootType(is_request ? "gshm.core.wire.Request" : "gshm.core.wire.Reply")) {
        throw std::runtime_error(parser.error_);
    }
    std::string text;
    if (!GenerateText(parser, message.data(), &text)) throw std::runtime_error("the message cannot be shown");
    return nlohmann::ordered_json::parse(text);
}

}  // namespace gshm::core::test
