// The index of a folder of tensors: model.safetensors.index.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gshm::core::tensors {

struct Index {
    struct Entry {
        std::string tensor;
        uint32_t file = 0;
    };
    std::vector<std::string> files;  // sorted; each is a valid relative path
    std::vector<Entry> entries;      // sorted by the name of the tensor
};

inline constexpr uint64_t kIndexBytes = 100'000'000;

// EBADMSG: the text is no index, a tensor occurs twice, or a file is not a relative path below the folder.
Result<Index> parse_index(std::string_view text);

}  // namespace gshm::core::tensors
