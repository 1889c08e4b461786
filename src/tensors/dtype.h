// The element types of safetensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace gshm::core::tensors {

// In the order of the safetensors library, which sorts the tensors of a file by it.
enum class Dtype : uint8_t {
    boolean,
    f4,
    f6_e2m3,
    f6_e3m2,
    u8,
    i8,
    f8_e5m2,
    f8_e4m3,
    f8_e8m0,
    f8_e4m3fnuz,
    f8_e5m2fnuz,
    i16,
    u16,
    f16,
    bf16,
    i32,
    u32,
    f32,
    c64,
    f64,
    i64,
    u64,
};

// As in headers: "BF16". Ended by NUL.
const char* dtype_name(Dtype dtype);
std::optional<Dtype> find_dtype(std::string_view name);
// Of an element.
unsigned dtype_bits(Dtype dtype);

}  // namespace gshm::core::tensors
