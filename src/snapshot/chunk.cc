#include "snapshot/chunk.h"

#include <bit>
#include <charconv>
#include <cstring>
#include <stdexcept>
#include <xxhash.h>

#include <fmt/core.h>

namespace gshm::core {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little endian, and structs are copied");

constexpr char kMagic[8] = {'g', 's', 'h', 'm', 'c', 'h', 'n', 'k'};
constexpr uint32_t kVersion = 1;

// The layout on disk.
struct Layout {
    char magic[8];
    uint32_t version;
    uint32_t codec;
    uint32_t raw_bytes;
    uint32_t stored_bytes;
    uint64_t instance;
    uint64_t id;
    uint64_t size_bytes;
    int64_t modified_ns;
    uint64_t offset;
    uint64_t checksum_low;
    uint64_t checksum_high;
    uint64_t header_checksum;
};
static_assert(sizeof(Layout) == ChunkHeader::kBytes && offsetof(Layout, header_checksum) == 80);

uint64_t parse_half(std::string_view text) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (error != std::errc{} || end != text.data() + text.size()) throw std::invalid_argument("not a checksum");
    return value;
}

}  // namespace

Checksum checksum_of(std::span<const std::byte> bytes) {
    const auto hash = XXH3_128bits(bytes.data(), bytes.size());
    return {hash.low64, hash.high64};
}

std::string to_hex(const Checksum& checksum) {
    return fmt::format("{:016x}{:016x}", checksum.high, checksum.low);
}

Checksum checksum_from_hex(std::string_view text) {
    if (text.size() != 32) throw std::invalid_argument("not a checksum");
    return {parse_half(text.substr(16)), parse_half(text.substr(0, 16))};
}

void ChunkHeader::encode(std::span<std::byte, kBytes> ret_bytes) const {
    Layout layout{};
    std::memcpy(layout.magic, kMagic, sizeof kMagic);
    layout.version = kVersion;
    layout.codec = static_cast<uint32_t>(codec);
    layout.raw_bytes = raw_bytes;
    layout.stored_bytes = stored_bytes;
    layout.instance = object.instance;
    layout.id = object.id;
    layout.size_bytes = object.size_bytes;
    layout.modified_ns = object.modified_ns;
    layout.offset = offset;
    layout.checksum_low = checksum.low;
    layout.checksum_high = checksum.high;
    layout.header_checksum = XXH3_64bits(&layout, offsetof(Layout, header_checksum));
    std::memcpy(ret_bytes.data(), &layout, sizeof layout);
}

bool ChunkHeader::decode(std::span<const std::byte> bytes, ChunkHeader& ret_header) {
    Layout layout{};
    if (bytes.size() < sizeof layout) return false;
    std::memcpy(&layout, bytes.data(), sizeof layout);
    if (std::memcmp(layout.magic, kMagic, sizeof kMagic) != 0 || layout.version != kVersion || layout.codec > 1 ||
        layout.header_checksum != XXH3_64bits(&layout, offsetof(Layout, header_checksum)))
        return false;
    // A snapshot never exceeds these sizes. They bound the memory that a reader allocates.
    if (layout.raw_bytes == 0 || layout.raw_bytes > kSnapshotChunkBytes || layout.stored_bytes > layout.raw_bytes)
        return false;
    ret_header.codec = static_cast<Codec>(layout.codec);
    ret_header.raw_bytes = layout.raw_bytes;
    ret_header.stored_bytes = layout.stored_bytes;
    ret_header.object = {layout.instance, layout.id, layout.size_bytes, layout.modified_ns};
    ret_header.offset = layout.offset;
    ret_header.checksum = {layout.checksum_low, layout.checksum_high};
    return true;
}

}  // namespace gshm::core
