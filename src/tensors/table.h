// The table of a file or object of tensors: its header, read and written. docs/tensors.md has the format.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tensors/dtype.h"

namespace gshm::core::tensors {

// A file begins with the length of its header.
inline constexpr size_t kLengthBytes = 8;
inline constexpr uint64_t kHeaderBytes = 100'000'000;  // the limit of the safetensors library
inline constexpr size_t kDimensions = 64;
// A header could have 1.8 million empty tensors. Programs make an object of some hundred bytes for each tensor.
inline constexpr size_t kTensors = 250'000;
inline constexpr size_t kFolderTensors = 1'000'000;  // in all files of a folder
inline constexpr uint64_t kAlignment = 256;

struct Tensor {
    Dtype dtype = Dtype::u8;
    uint8_t dimensions = 0;
    uint32_t name_bytes = 0;
    uint64_t name_at = 0;   // in the names of the table
    uint64_t shape_at = 0;  // in the numbers of the table
    uint64_t offset = 0;    // from the beginning of the file
    uint64_t bytes = 0;
};

using Metadata = std::vector<std::pair<std::string, std::string>>;

// A tensor of a new file or object.
struct NewTensor {
    std::string_view name;
    Dtype dtype = Dtype::u8;
    std::span<const uint64_t> shape;
};

enum class Gaps { refused, permitted };
enum class Layout {
    object,  // each tensor at a multiple of kAlignment, in the given order
    file,    // without gaps, in the order of the safetensors library
};

// Memory and time are bounded by the size of the header (n log n for names and offsets).
class Table {
public:
    // The length of the JSON of a header, from the first bytes of the file (fewer than 8: that is all). EBADMSG: it is
    // impossible.
    static Result<uint64_t> header_length(std::string_view beginning, uint64_t file_bytes);
    // The header, with its length in front. EBADMSG: it is malformed, or does not fit a file of that size.
    static Result<Table> parse(std::string header, uint64_t file_bytes, Gaps gaps);
    // EINVAL: names that are not valid or not unique, a shape without a size, too many tensors for a header.
    static Result<Table> lay_out(std::span<const NewTensor> tensors, Metadata metadata, Layout layout);

    // Ordered by offset.
    const std::vector<Tensor>& tensors() const { return tensors_; }
    // Ended by NUL.
    std::string_view name(const Tensor& tensor) const { return {names_.data() + tensor.name_at, tensor.name_bytes}; }
    std::span<const uint64_t> shape(const Tensor& tensor) const {
        return {numbers_.data() + tensor.shape_at, tensor.dimensions};
    }
    const Tensor* find(std::string_view name) const;
    // Ordered by name.
    const Metadata& metadata() const { return metadata_; }
    // The bytes up to the first tensor, and those of the whole file or object.
    const std::string& header() const { return header_; }
    uint64_t size_bytes() const { return size_bytes_; }

private:
    struct Parser;

    // Sorts and checks the names. A message without errno: of parse() and lay_out().
    Status index_names(int code);

    std::string header_;
    std::string names_;              // each ended by NUL
    std::vector<uint64_t> numbers_;  // shapes
    std::vector<Tensor> tensors_;
    std::vector<uint32_t> by_name_;
    Metadata metadata_;
    uint64_t size_bytes_ = 0;
};

// The bytes of a tensor. EOVERFLOW: more than 64 bits. EINVAL: not whole bytes.
Result<uint64_t> tensor_bytes(Dtype dtype, std::span<const uint64_t> shape);

// Consecutive bytes of a slice, repeated at a distance in the file. They are adjacent in the object.
struct Strips {
    uint64_t offset = 0;  // of the first, in the tensor
    uint64_t bytes = 0;   // of each
    uint64_t stride = 0;
    uint64_t count = 0;
};
// The slice [begin, end) of a dimension. EINVAL: no such slice, or not whole bytes.
Result<Strips> cut(Dtype dtype, std::span<const uint64_t> shape, size_t dimension, uint64_t begin, uint64_t end);

}  // namespace gshm::core::tensors
