// Typed access to the bytes of a fuzz input. After its end all values are zero.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace gshm::core::fuzz {

class Input {
public:
    Input(const uint8_t* data, size_t size) : rest_(data, size) {}

    bool at_end() const { return rest_.empty(); }
    uint8_t byte() { return static_cast<uint8_t>(number(1)); }
    uint32_t below(uint32_t limit) {
        return limit <= 1 ? 0 : static_cast<uint32_t>(number(limit > 256 ? 4 : 1)) % limit;
    }
    uint64_t number(size_t bytes) {
        uint64_t value = 0;
        const size_t here = bytes < rest_.size() ? bytes : rest_.size();
        memcpy(&value, rest_.data(), here);
        rest_ = rest_.subspan(here);
        return value;
    }
    // Small ones mostly; else one at an edge of something, or any.
    uint64_t size() {
        static constexpr uint64_t kEdges[] = {4095,
                                              4096,
                                              65535,
                                              65536,
                                              (1 << 20) - 1,
                                              1 << 20,
                                              (1 << 20) + 1,
                                              2 << 20,
                                              uint64_t{1} << 31,
                                              uint64_t{1} << 47,
                                              (uint64_t{1} << 47) + 1,
                                              uint64_t{1} << 63,
                                              UINT64_MAX - 4095,
                                              UINT64_MAX};
        const uint8_t kind = byte();
        if (kind < 128) return kind;
        if (kind < 192) return number(2);
        if (kind < 248) return kEdges[kind % std::size(kEdges)];
        return number(8);
    }
    std::string text(size_t most) {
        const size_t wanted = below(static_cast<uint32_t>(most) + 1);
        const size_t here = wanted < rest_.size() ? wanted : rest_.size();
        std::string found(reinterpret_cast<const char*>(rest_.data()), here);
        rest_ = rest_.subspan(here);
        return found;
    }
    std::string take_all() {
        std::string found(reinterpret_cast<const char*>(rest_.data()), rest_.size());
        rest_ = {};
        return found;
    }

private:
    std::span<const uint8_t> rest_;
};

}  // namespace gshm::core::fuzz
