#include "tensors/dtype.h"

#include <iterator>

namespace gshm::core::tensors {
namespace {

struct Row {
    const char* name;
    unsigned bits;
};
constexpr Row kRows[] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
};
static_assert(std::size(kRows) == static_cast<size_t>(Dtype::u64) + 1);

}  // namespace

const char* dtype_name(Dtype dtype) {
    return kRows[static_cast<size_t>(dtype)].name;
}

std::optional<Dtype> find_dtype(std::string_view name) {
    for (size_t i = 0; i < std::size(kRows); ++i) {
        if (name == kRows[i].name) return static_cast<Dtype>(i);
    }
    return std::nullopt;
}

unsigned dtype_bits(Dtype dtype) {
    return kRows[static_cast<size_t>(dtype)].bits;
}

}  // namespace gshm::core::tensors
