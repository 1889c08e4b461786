#include "client/load/plan.h"

#include <algorithm>
#include <map>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/limits.h"
#include "base/name.h"

namespace gshm::core::client {
namespace {

constexpr size_t kSelectionDigits = 12;
constexpr std::string_view kClaim = ".loading-";
constexpr size_t kClaimDigits = 16;

std::string hash_of(std::string_view bytes) {
    const auto sum = XXH3_128bits(bytes.data(), bytes.size());
    return fmt::format("{:016x}{:016x}", sum.high64, sum.low64);
}

// A tensor, or a slice of it.
struct Selected {
    const tensors::Tensor* tensor = nullptr;
    tensors::Strips strips;
    std::vector<uint64_t> shape;
    const Choice* slice = nullptr;  // nullptr: the whole tensor
};

Selected whole(const tensors::Table& table, const tensors::Tensor& tensor) {
    const auto shape = table.shape(tensor);
    tensors::Strips strips;
    if (tensor.bytes > 0) strips = {0, tensor.bytes, tensor.bytes, 1};
    return {&tensor, strips, {shape.begin(), shape.end()}, nullptr};
}

Result<Selected> select(const tensors::Table& table, const tensors::Tensor& tensor, const Choice& choice) {
    Selected selected = whole(table, tensor);
    if (choice.dimension < 0) return selected;
    const auto dimension = static_cast<size_t>(choice.dimension);
    auto strips = tensors::cut(tensor.dtype, selected.shape, dimension, choice.begin, choice.end);
    if (!strips) return fail(strips.error().code, "tensor \"{}\": {}", choice.tensor, strips.error().message);
    if (choice.begin == 0 && choice.end == selected.shape[dimension]) return selected;
    selected.strips = *strips;
    selected.shape[dimension] = choice.end - choice.begin;
    selected.slice = &choice;
    return selected;
}

// Adjacent tensors of which nothing is left out are one range.
void add_run(std::vector<Run>& runs, const Run& run) {
    Run* last = runs.empty() ? nullptr : &runs.back();
    if (last != nullptr && last->count == 1 && run.count == 1 && last->file_offset + last->bytes == run.file_offset &&
        last->object_offset + last->bytes == run.object_offset) {
        last->bytes += run.bytes;
        last->stride += run.stride;
        return;
    }
    runs.push_back(run);
}

Result<Part> make_part(const Source& source, size_t index, std::string device, std::vector<Selected> selected) {
    const SourceFile& file = source.files[index];
    std::ranges::sort(selected, {}, &Selected::tensor);  // the order in the table, which is that of the file
    const auto twice = std::ranges::adjacent_find(selected, {}, &Selected::tensor);
    if (twice != selected.end()) {
        return fail(EINVAL, "tensor \"{}\" is selected twice for {}", file.table.name(*twice->tensor), device);
    }
    Part part{.file = index, .device = std::move(device)};
    std::vector<tensors::NewTensor> list;
    std::string selection;
    bool is_whole = selected.size() == file.table.tensors().size();
    for (const auto& one : selected) {
        const auto name = file.table.name(*one.tensor);
        list.push_back({name, one.tensor->dtype, one.shape});
        selection += fmt::format("{}\n", name);
        if (one.slice == nullptr) continue;
        is_whole = false;
        selection += fmt::format(" {} {} {}\n", one.slice->dimension, one.slice->begin, one.slice->end);
    }
    auto table = tensors::Table::lay_out(list, file.table.metadata(), tensors::Layout::object);
    if (!table) return fail(table.error().code, "{}: {}", file.path, table.error().message);
    part.table = std::move(*table);
    for (size_t i = 0; i < selected.size(); ++i) {
        const auto& strips = selected[i].strips;
        if (strips.count == 0 || strips.bytes == 0) continue;
        add_run(part.runs, {selected[i].tensor->offset + strips.offset, part.table.tensors()[i].offset, strips.bytes,
                            strips.stride, strips.count});
        part.bytes += strips.bytes * strips.count;
    }
    if (!is_whole) part.selection = hash_of(selection).substr(0, kSelectionDigits);
    part.identity = hash_of(fmt::format("{}\n{}\n{}\n", file.identity, part.device, selection) + part.table.header());
    return part;
}

}  // namespace

Result<std::vector<Part>> plan_all(const Source& source, const std::string& device) {
    std::vector<Part> parts;
    for (size_t i = 0; i < source.files.size(); ++i) {
        const auto& table = source.files[i].table;
        std::vector<Selected> selected;
        for (const auto& tensor : table.tensors()) selected.push_back(whole(table, tensor));
        parts.push_back(TRY(make_part(source, i, device, std::move(selected))));
    }
    return parts;
}

Result<std::vector<Part>> plan_choices(const Source& source, std::span<const Choice> choices) {
    std::map<std::string_view, std::pair<size_t, const tensors::Tensor*>> places;
    for (size_t i = 0; i < source.files.size(); ++i) {
        const auto& table = source.files[i].table;
        for (const auto& tensor : table.tensors()) places.emplace(table.name(tensor), std::pair(i, &tensor));
    }
    std::map<std::pair<size_t, std::string>, std::vector<Selected>> groups;
    for (const auto& choice : choices) {
        const auto place = places.find(choice.tensor);
        if (place == places.end()) return fail(ENOENT, "there is no tensor \"{}\"", choice.tensor);
        const auto [file, tensor] = place->second;
        groups[{file, choice.device}].push_back(TRY(select(source.files[file].table, *tensor, choice)));
    }
    std::vector<Part> parts;
    for (auto& [place, selected] : groups) {
        parts.push_back(TRY(make_part(source, place.first, place.second, std::move(selected))));
    }
    return parts;
}

std::string explicit_name(const std::string& name, const Part& part, bool has_device) {
    return name + (has_device ? "@" + part.device : "") + (part.selection.empty() ? "" : "+" + part.selection);
}

std::string derived_name(const std::string& tree, const SourceFile& file, const Part& part) {
    const auto ending = explicit_name("", part, true);
    const auto name = tree + file.path + ending;
    // A path need not be a valid name, or may be too long for one.
    const size_t last_part = name.size() - name.rfind('/') - 1;
    const size_t room = kClaim.size() + kClaimDigits;
    const bool fits = last_part + room <= limits::kNamePartBytes && name.size() + room <= limits::kNameBytes;
    if (fits && check_name(name)) return name;
    return fmt::format("{}/{}{}", tree, hash_of(file.path), ending);
}

std::string claim_name(const std::string& name, const Part& part) {
    return fmt::format("{}{}{}", name, kClaim, part.identity.substr(0, kClaimDigits));
}

}  // namespace gshm::core::client
