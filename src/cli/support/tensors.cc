#include "cli/support/tensors.h"

#include <cerrno>

#include <fmt/format.h>

#include "cli/support/json.h"
#include "cli/support/table.h"
#include "cli/support/text.h"

namespace gshm::cli {

std::optional<uint64_t> tensor_count(Context& context, const std::string& name) {
    const auto facts = context.client().attribute(name, GSHM_TENSORS_ATTRIBUTE);
    return facts ? json_number(*facts, "tensors") : std::nullopt;
}

bool is_loaded(Context& context, const std::string& name) {
    const auto facts = context.client().attribute(name, GSHM_TENSORS_ATTRIBUTE);
    return facts && json_number(*facts, "format") == 1 && !json_text(*facts, "identity").value_or("").empty();
}

std::optional<std::vector<TensorInfo>> find_tensors(Context& context, const std::string& name) {
    if (!tensor_count(context, name)) return std::nullopt;
    const auto table = check(Tensors::of_object(context.open(name)), name);
    return check(table.list(), name);
}

std::vector<Record> tensor_records(const std::vector<TensorInfo>& tensors) {
    std::vector<Record> records;
    for (const auto& tensor : tensors) {
        Record record;
        record.add("name", tensor.name)
            .add("dtype", tensor.dtype)
            .add("shape", tensor.shape)
            .add("offset", tensor.offset)
            .add("bytes", tensor.bytes);
        records.push_back(std::move(record));
    }
    return records;
}

std::string tensors_text(const std::vector<TensorInfo>& tensors, size_t most, bool exact_bytes) {
    Table table({"TYPE", "SHAPE", ">SIZE", ">OFFSET", "TENSOR"});
    const size_t shown = most == 0 ? tensors.size() : std::min(most, tensors.size());
    for (size_t i = 0; i < shown; ++i) {
        const auto& tensor = tensors[i];
        table.add_row({tensor.dtype, fmt::format("[{}]", fmt::join(tensor.shape, ", ")),
                       size_text(tensor.bytes, exact_bytes), std::to_string(tensor.offset), tensor.name});
    }
    auto text = table.text();
    if (shown < tensors.size()) text += fmt::format("and {} more; --all shows them\n", tensors.size() - shown);
    return text;
}

}  // namespace gshm::cli
