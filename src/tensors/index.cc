#include "tensors/index.h"

#include <algorithm>
#include <map>

#include "base/name.h"
#include "tensors/json_reader.h"

namespace gshm::core::tensors {
namespace {

constexpr size_t kPathBytes = 4095;

// The same rules as for names of objects: relative, without "..", "." and empty parts.
Status check_file(const std::string& file) {
    auto good = check_name(file);
    if (good) return {};
    return fail(EBADMSG, "the index names the file {}, which is not a path below its folder: {}",
                json_string(file.substr(0, 100)), good.error().message);
}

Status read_weights(JsonReader& reader, Index& index) {
    std::map<std::string, uint32_t, std::less<>> files;
    TRY(reader.begin_object());
    std::string tensor;
    while (TRY(reader.next_key(tensor))) {
        if (auto good = check_name(tensor); !good) {
            return fail(EBADMSG, "a tensor of the index: {}", good.error().message);
        }
        auto file = TRY(reader.string(kPathBytes + 1));
        auto known = files.find(file);
        if (known == files.end()) {
            TRY(check_file(file));
            known = files.emplace(std::move(file), static_cast<uint32_t>(files.size())).first;
        }
        index.entries.push_back({tensor, known->second});
    }
    // In the order of their names.
    std::vector<uint32_t> numbers(files.size());
    for (const auto& [name, number] : files) {
        numbers[number] = static_cast<uint32_t>(index.files.size());
        index.files.push_back(name);
    }
    for (auto& entry : index.entries) entry.file = numbers[entry.file];
    return {};
}

}  // namespace

Result<Index> parse_index(std::string_view text) {
    if (text.size() > kIndexBytes) return fail(EBADMSG, "the index is too large: {} bytes", text.size());
    if (!is_valid_utf8(text)) return fail(EBADMSG, "the index is not valid UTF-8");
    Index index;
    JsonReader reader(text);
    TRY(reader.begin_object());
    std::string key;
    bool has_weights = false;
    while (TRY(reader.next_key(key))) {
        if (key != "weight_map") {
            TRY(reader.skip_value());
            continue;
        }
        if (has_weights) return fail(EBADMSG, "the key \"weight_map\" occurs twice");
        has_weights = true;
        TRY(read_weights(reader, index));
    }
    TRY(reader.end());
    if (!has_weights) return fail(EBADMSG, "the index has no \"weight_map\"");
    std::ranges::sort(index.entries, {}, &Index::Entry::tensor);
    const auto same = std::ranges::adjacent_find(index.entries, {}, &Index::Entry::tensor);
    if (same == index.entries.end()) return index;
    return fail(EBADMSG, "the index has tensor {} twice", json_string(same->tensor.substr(0, 100)));
}

}  // namespace gshm::core::tensors
