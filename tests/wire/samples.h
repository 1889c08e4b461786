// One message of each kind of the protocol, with all fields set. tests/wire/golden/ has those of released protocols as
// bytes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "wire/message.h"

namespace gshm::core::test {

struct Sample {
    std::string name;  // "request-Hello"
    bool is_request = false;
    std::string descriptors;  // those that accompany the message, in words; "": none
    std::vector<uint8_t> bytes;
};

// As a session with that protocol has them.
std::vector<Sample> make_samples(uint32_t protocol);

}  // namespace gshm::core::test
