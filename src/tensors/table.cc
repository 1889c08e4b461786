#include "tensors/table.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/name.h"
#include "base/size.h"
#include "tensors/json_reader.h"

namespace gshm::core::tensors {
namespace {

constexpr std::string_view kMetadataKey = "__metadata__";
constexpr size_t kValueBytes = size_t{100} << 20;  // of metadata: the header is the bound
constexpr size_t kShownBytes = 100;

// A name in a message. It may be long, and have any characters.
std::string shown(std::string_view name) {
    if (name.size() <= kShownBytes) return json_string(name);
    size_t bytes = kShownBytes;
    while (bytes > 0 && (static_cast<unsigned char>(name[bytes]) & 0xC0) == 0x80) --bytes;  // whole characters
    return json_string(fmt::format("{}...", name.substr(0, bytes)));
}

uint64_t read_length(std::string_view bytes) {
    uint64_t length = 0;
    for (size_t i = kLengthBytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(bytes[i]);
    return length;
}

// What a file is that begins like this, as an explanation of an impossible length. Users have weights in these formats, too.
std::string other_format(std::string_view beginning) {
    constexpr std::pair<std::string_view, const char*> kFormats[] = {
        {"PK\x03\x04", "a zip file, such as torch.save() writes"},
        {"\x80\x02", "a pickle, such as torch.save() has written"},
        {"\x80\x04", "a pickle"},
        {"GGUF", "a GGUF file"},
        {"\x89HDF", "an HDF5 file"},
        {"\x93NUMPY", "a file of numpy.save()"},
    };
    for (const auto& [magic, what] : kFormats) {
        if (beginning.starts_with(magic)) return fmt::format("this is {}, and no safetensors file: ", what);
    }
    return {};
}

std::string length_bytes(uint64_t length) {
    std::string bytes;
    for (size_t i = 0; i < kLengthBytes; ++i) bytes.push_back(static_cast<char>(length >> (8 * i)));
    return bytes;
}

std::string numbers_text(std::span<const uint64_t> numbers) {
    std::string text;
    for (const uint64_t number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
    return "[" + text + "]";
}

}  // namespace

Result<uint64_t> tensor_bytes(Dtype dtype, std::span<const uint64_t> shape) {
    uint64_t bits = 1;
    for (const uint64_t dimension : shape) {
        if (__builtin_mul_overflow(bits, dimension, &bits)) {
            return fail(EOVERFLOW, "the shape {} overflows", numbers_text(shape));
        }
    }
    if (__builtin_mul_overflow(bits, uint64_t{dtype_bits(dtype)}, &bits)) {
        return fail(EOVERFLOW, "the shape {} of {} overflows", numbers_text(shape), dtype_name(dtype));
    }
    if (bits % 8 != 0) {
        return fail(EINVAL, "the shape {} of {} is not whole bytes", numbers_text(shape), dtype_name(dtype));
    }
    return bits / 8;
}

Result<Strips> cut(Dtype dtype, std::span<const uint64_t> shape, size_t dimension, uint64_t begin, uint64_t end) {
    const uint64_t whole = TRY(tensor_bytes(dtype, shape));
    if (dimension >= shape.size()) {
        return fail(EINVAL, "the shape {} has no dimension {}", numbers_text(shape), dimension);
    }
    if (begin > end || end > shape[dimension]) {
        // A caller who takes the numbers for signed ones may give -1.
        return fail(EINVAL, "dimension {} of the shape {} has no slice {} to {}", dimension, numbers_text(shape),
                    static_cast<int64_t>(begin), static_cast<int64_t>(end));
    }
    if (whole == 0 || begin == end) return Strips{};
    uint64_t rows = 1;  // no product overflows: no dimension is 0, and that of all is known
    for (size_t i = 0; i < dimension; ++i) rows *= shape[i];
    uint64_t inner_bits = dtype_bits(dtype);
    for (size_t i = dimension + 1; i < shape.size(); ++i) inner_bits *= shape[i];
    const uint64_t row_bits = inner_bits * shape[dimension];
    if (begin * inner_bits % 8 != 0 || end * inner_bits % 8 != 0 || row_bits % 8 != 0) {
        return fail(EINVAL, "the slice {} to {} of the shape {} of {} is not whole bytes", begin, end,
                    numbers_text(shape), dtype_name(dtype));
    }
    const uint64_t stride = row_bits / 8;
    const uint64_t bytes = (end - begin) * inner_bits / 8;
    if (bytes == stride) return Strips{0, whole, whole, 1};
    return Strips{begin * inner_bits / 8, bytes, stride, rows};
}

// ---- reading ----

struct Table::Parser {
    Table& table;
    std::string_view json;
    uint64_t data_begin;
    uint64_t data_bytes;
    Gaps gaps;
    uint64_t sum = 0;  // of the tensors' bytes

    template <typename... Args>
    static std::unexpected<Error> refuse(std::string_view name, fmt::format_string<Args...> format, Args&&... args) {
        return fail(EBADMSG, "tensor {}: {}", shown(name), fmt::format(format, std::forward<Args>(args)...));
    }

    Status read() {
        if (json.starts_with("\xEF\xBB\xBF")) return fail(EBADMSG, "the header begins with a byte order mark");
        if (!is_valid_utf8(json)) return fail(EBADMSG, "the header is not valid UTF-8");
        JsonReader reader(json);
        TRY(reader.begin_object());
        std::string key;
        bool has_metadata = false;
        while (TRY(reader.next_key(key))) {
            if (key != kMetadataKey) {
                TRY(read_tensor(reader, key));
                continue;
            }
            if (has_metadata) return fail(EBADMSG, "the key \"__metadata__\" occurs twice");
            has_metadata = true;
            TRY(read_metadata(reader));
        }
        TRY(reader.end());
        TRY(table.index_names(EBADMSG));
        return check_coverage();
    }

    Status read_metadata(JsonReader& reader) {
        TRY(reader.begin_object());
        std::string key;
        while (TRY(reader.next_key(key))) {
            auto value = reader.string(kValueBytes);
            if (!value) return fail(EBADMSG, "__metadata__ has strings only: {}", value.error().message);
            if (key.find('\0') != std::string::npos) return fail(EBADMSG, "a key of __metadata__ has a NUL");
            table.metadata_.emplace_back(key, std::move(*value));
        }
        std::ranges::sort(table.metadata_);
        const auto same = std::ranges::adjacent_find(table.metadata_, {}, &Metadata::value_type::first);
        if (same == table.metadata_.end()) return {};
        return fail(EBADMSG, "the key {} of __metadata__ occurs twice", shown(same->first));
    }

    Status read_tensor(JsonReader& reader, const std::string& name) {
        if (auto good = check_name(name); !good) return refuse(name, "{}", good.error().message);
        if (table.tensors_.size() >= kTensors) return fail(EBADMSG, "more than {} tensors", kTensors);
        Tensor tensor;
        tensor.shape_at = table.numbers_.size();
        uint64_t range[2] = {};
        bool has_dtype = false, has_shape = false, has_range = false;
        const auto members = [&]() -> Status {
            TRY(reader.begin_object());
            std::string key;
            const auto once = [&](bool& has) -> Status {
                if (has) return fail(EBADMSG, "\"{}\" occurs twice", key);
                has = true;
                return {};
            };
            while (TRY(reader.next_key(key))) {
                if (key == "dtype") {
                    TRY(once(has_dtype));
                    const std::string text = TRY(reader.string(kShownBytes));
                    const auto dtype = find_dtype(text);
                    if (!dtype) return fail(EBADMSG, "unknown dtype {}", shown(text));
                    tensor.dtype = *dtype;
                } else if (key == "shape") {
                    TRY(once(has_shape));
                    TRY(reader.begin_array());
                    while (TRY(reader.next_element())) {
                        if (tensor.dimensions == kDimensions) {
                            return fail(EBADMSG, "more than {} dimensions", kDimensions);
                        }
                        table.numbers_.push_back(TRY(reader.number()));
                        ++tensor.dimensions;
                    }
                } else if (key == "data_offsets") {
                    TRY(once(has_range));
                    TRY(reader.begin_array());
                    size_t count = 0;
                    while (TRY(reader.next_element())) {
                        if (count == 2) return fail(EBADMSG, "data_offsets has more than two numbers");
                        range[count++] = TRY(reader.number());
                    }
                    if (count != 2) return fail(EBADMSG, "data_offsets has fewer than two numbers");
                } else {
                    TRY(reader.skip_value());
                }
            }
            return {};
        };
        if (auto read = members(); !read) return refuse(name, "{}", read.error().message);
        if (!has_dtype || !has_shape || !has_range) {
            return refuse(name, "{} is missing", !has_dtype ? "dtype" : !has_shape ? "shape" : "data_offsets");
        }
        return add(tensor, name, range[0], range[1]);
    }

    Status add(Tensor tensor, std::string_view name, uint64_t begin, uint64_t end) {
        if (begin > end) return refuse(name, "ends before it begins");
        const auto shape = table.shape(tensor);
        auto bytes = tensor_bytes(tensor.dtype, shape);
        if (!bytes) return refuse(name, "{}", bytes.error().message);
        if (*bytes != end - begin) {
            return refuse(name, "the shape {} of {} has {} bytes, and data_offsets has {}", numbers_text(shape),
                          dtype_name(tensor.dtype), *bytes, end - begin);
        }
        if (end > data_bytes) {
            return refuse(name, "ends at byte {} of the data, and the file has {}", end, data_bytes);
        }
        if (*bytes > data_bytes - sum)
            return refuse(name, "overlaps another one: all together have more bytes than the file");
        sum += *bytes;
        tensor.name_at = table.names_.size();
        tensor.name_bytes = static_cast<uint32_t>(name.size());
        table.names_.append(name).push_back('\0');
        tensor.offset = data_begin + begin;
        tensor.bytes = *bytes;
        table.tensors_.push_back(tensor);
        return {};
    }

    Status check_coverage() const {
        uint64_t at = data_begin;
        for (const Tensor& tensor : table.tensors_) {
            const auto name = table.name(tensor);
            if (tensor.offset < at) return refuse(name, "overlaps the one before it");
            if (tensor.offset > at && gaps == Gaps::refused) {
                return refuse(name, "{} bytes before it belong to no tensor", tensor.offset - at);
            }
            at = tensor.offset + tensor.bytes;
        }
        const uint64_t rest = data_begin + data_bytes - at;
        if (rest != 0 && gaps == Gaps::refused) {
            return fail(EBADMSG, "the last {} bytes of the file belong to no tensor", rest);
        }
        return {};
    }
};

Result<uint64_t> Table::header_length(std::string_view beginning, uint64_t file_bytes) {
    if (beginning.size() < kLengthBytes || file_bytes < kLengthBytes) {
        return fail(EBADMSG, "too small: a file of tensors begins with 8 bytes for the length of its header");
    }
    const uint64_t length = read_length(beginning);
    if (length > kHeaderBytes) {
        return fail(EBADMSG, "{}the header is too large: {} bytes, and the limit is {}", other_format(beginning),
                    length, kHeaderBytes);
    }
    if (length > file_bytes - kLengthBytes) {
        return fail(EBADMSG, "the header of {} bytes ends past the end of the file, which has {}", length, file_bytes);
    }
    return length;
}

Result<Table> Table::parse(std::string header, uint64_t file_bytes, Gaps gaps) {
    const uint64_t length = TRY(header_length(header, file_bytes));
    if (header.size() != kLengthBytes + length) return fail(EBADMSG, "the header is incomplete");
    Table table;
    table.header_ = std::move(header);
    table.size_bytes_ = file_bytes;
    const uint64_t data_begin = kLengthBytes + length;
    const auto json = std::string_view(table.header_).substr(kLengthBytes);
    TRY((Parser{table, json, data_begin, file_bytes - data_begin, gaps}.read()));
    return table;
}

Status Table::index_names(int code) {
    std::ranges::stable_sort(tensors_, [](const Tensor& left, const Tensor& right) {
        return std::pair(left.offset, left.bytes) < std::pair(right.offset, right.bytes);
    });
    by_name_.resize(tensors_.size());
    std::iota(by_name_.begin(), by_name_.end(), 0u);
    const auto name_of = [&](uint32_t index) { return name(tensors_[index]); };
    std::ranges::sort(by_name_, {}, name_of);
    const auto same = std::ranges::adjacent_find(by_name_, {}, name_of);
    if (same == by_name_.end()) return {};
    return fail(code, "tensor {} occurs twice", shown(name_of(*same)));
}

const Tensor* Table::find(std::string_view wanted) const {
    const auto name_of = [&](uint32_t index) { return name(tensors_[index]); };
    const auto found = std::ranges::lower_bound(by_name_, wanted, {}, name_of);
    return found != by_name_.end() && name_of(*found) == wanted ? &tensors_[*found] : nullptr;
}

// ---- writing ----

Result<Table> Table::lay_out(std::span<const NewTensor> tensors, Metadata metadata, Layout layout) {
    if (tensors.size() > kTensors) return fail(EINVAL, "{} tensors; there may be {}", tensors.size(), kTensors);
    std::vector<const NewTensor*> order;
    for (const auto& tensor : tensors) order.push_back(&tensor);
    if (layout == Layout::file) {
        std::ranges::sort(order, [](const NewTensor* left, const NewTensor* right) {
            if (left->dtype != right->dtype) return left->dtype > right->dtype;
            return left->name < right->name;
        });
    }
    Table table;
    std::ranges::sort(metadata);
    std::string json;
    for (const auto& [key, value] : metadata) {
        if (!is_valid_utf8(key) || !is_valid_utf8(value) || key.find('\0') != std::string::npos) {
            return fail(EINVAL, "the metadata {} is not UTF-8 text", shown(key));
        }
        json += (json.empty() ? "" : ",") + json_string(key) + ":" + json_string(value);
    }
    if (std::ranges::adjacent_find(metadata, {}, &Metadata::value_type::first) != metadata.end()) {
        return fail(EINVAL, "a key of the metadata occurs twice");
    }
    if (!metadata.empty()) json = "\"__metadata__\":{" + json + "}";
    table.metadata_ = std::move(metadata);

    uint64_t at = 0;  // relative to the beginning of the data
    for (const NewTensor* one : order) {
        if (auto good = check_name(one->name); !good) {
            return fail(EINVAL, "tensor {}: {}", shown(one->name), good.error().message);
        }
        if (one->name == kMetadataKey) return fail(EINVAL, "no tensor may have the name {}", kMetadataKey);
        if (one->shape.size() > kDimensions) return fail(EINVAL, "a tensor has at most {} dimensions", kDimensions);
        auto bytes = tensor_bytes(one->dtype, one->shape);
        if (!bytes) return fail(EINVAL, "tensor {}: {}", shown(one->name), bytes.error().message);
        if (layout == Layout::object) at = align_up(at, kAlignment);
        if (*bytes > INT64_MAX / 2 - at) return fail(EINVAL, "the tensors are larger than any object");
        Tensor tensor{one->dtype,
                      static_cast<uint8_t>(one->shape.size()),
                      static_cast<uint32_t>(one->name.size()),
                      table.names_.size(),
                      table.numbers_.size(),
                      at,
                      *bytes};
        table.names_.append(one->name).push_back('\0');
        table.numbers_.insert(table.numbers_.end(), one->shape.begin(), one->shape.end());
        table.tensors_.push_back(tensor);
        json += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}", json.empty() ? "" : ",",
                            json_string(one->name), dtype_name(one->dtype), numbers_text(one->shape), at, at + *bytes);
        at += *bytes;
    }
    json = "{" + json + "}";
    const uint64_t multiple = layout == Layout::object ? kAlignment : kLengthBytes;
    json.append(align_up(kLengthBytes + json.size(), multiple) - kLengthBytes - json.size(), ' ');
    if (json.size() > kHeaderBytes)
        return fail(EINVAL, "the header has {} bytes, and at most {}", json.size(), kHeaderBytes);
    table.header_ = length_bytes(json.size()) + json;
    for (auto& tensor : table.tensors_) tensor.offset += table.header_.size();
    table.size_bytes_ = table.header_.size() + at;
    TRY(table.index_names(EINVAL));
    return table;
}

}  // namespace gshm::core::tensors
