#include "cli/support/attributes.h"

#include <algorithm>
#include <cerrno>

#include "cli/support/text.h"

namespace gshm::cli {
namespace {

constexpr size_t kShownBytes = 64;

// Calls read(buffer, capacity, &bytes) until the buffer holds all, which may grow between two calls.
template <typename Read>
std::string read_growing(std::string_view subject, Read read) {
    std::string buffer(4096, '\0');
    for (;;) {
        size_t bytes = 0;
        const int status = read(buffer.data(), buffer.size(), &bytes);
        if (status == -ERANGE && bytes > buffer.size()) {
            buffer.resize(bytes);
            continue;
        }
        check(status, subject);
        buffer.resize(bytes);
        return buffer;
    }
}

}  // namespace

std::vector<std::string> list_attributes(Context& context, const std::string& name) {
    const auto names = read_growing(name, [&](char* buffer, size_t capacity, size_t* bytes) {
        return gshm_list_attributes(context.client(), name.c_str(), buffer, capacity, bytes);
    });
    std::vector<std::string> keys;
    for (size_t begin = 0; begin < names.size();) {
        const size_t end = names.find('\0', begin);
        keys.push_back(names.substr(begin, end - begin));
        if (end == names.npos) break;
        begin = end + 1;
    }
    std::ranges::sort(keys);
    return keys;
}

std::string get_attribute(Context& context, const std::string& name, const std::string& key) {
    return read_growing(name, [&](char* buffer, size_t capacity, size_t* bytes) {
        return gshm_get_attribute(context.client(), name.c_str(), key.c_str(), buffer, capacity, bytes);
    });
}

std::vector<Attribute> get_attributes(Context& context, const std::string& name) {
    std::vector<Attribute> attributes;
    for (const auto& key : list_attributes(context, name)) {
        try {
            attributes.push_back({key, get_attribute(context, name, key)});
        } catch (const Failure& failure) {
            if (failure.code() != ENODATA) throw;
        }
    }
    return attributes;
}

Record attribute_record(const Attribute& attribute) {
    Record record;
    record.add("key", attribute.key).add("bytes", attribute.value.size());
    if (is_text(attribute.value))
        record.add("text", attribute.value);
    else
        record.add("hex", hex_text(attribute.value));
    return record;
}

std::string attribute_text(const std::string& value) {
    const bool text = is_text(value);
    // A cut may fall into a character: what is left of it must not count against the text.
    size_t shown = std::min(value.size(), kShownBytes);
    while (text && shown < value.size() && (static_cast<unsigned char>(value[shown]) & 0xc0) == 0x80) --shown;
    const auto head = value.substr(0, shown);
    return (text ? printable(head) : "0x" + hex_text(head)) + (shown < value.size() ? "…" : "");
}

}  // namespace gshm::cli
