#include "cli/support/attributes.h"

#include <algorithm>

#include "cli/support/text.h"

namespace gshm::cli {
namespace {

constexpr size_t kShownBytes = 64;

}  // namespace

std::vector<Attribute> get_attributes(Context& context, const std::string& name) {
    return check(context.client().attributes(name), name);
}

Record attribute_record(const Attribute& attribute) {
    Record record;
    record.add("key", attribute.name).add("bytes", attribute.value.size());
    if (is_text(attribute.value)) record.add("text", attribute.value);
    else record.add("hex", hex_text(attribute.value));
    return record;
}

std::string attribute_text(const std::string& value) {
    const bool text = is_text(value);
    // The cut must not split a UTF-8 character.
    size_t shown = std::min(value.size(), kShownBytes);
    while (text && shown < value.size() && (static_cast<unsigned char>(value[shown]) & 0xc0) == 0x80) --shown;
    const auto head = value.substr(0, shown);
    return (text ? printable(head) : "0x" + hex_text(head)) + (shown < value.size() ? "…" : "");
}

}  // namespace gshm::cli
