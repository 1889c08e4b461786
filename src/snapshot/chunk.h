// A chunk of a snapshot: a piece of an object with its checksum, as docs/snapshot.md describes it.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace gshm::core {

inline constexpr uint64_t kSnapshotChunkBytes = uint64_t{4} << 20;

// XXH3-128.
struct Checksum {
    uint64_t low = 0;
    uint64_t high = 0;
    bool operator==(const Checksum&) const = default;
};
Checksum checksum_of(std::span<const std::byte> bytes);
std::string to_hex(const Checksum& checksum);
// Throws std::invalid_argument.
Checksum checksum_from_hex(std::string_view text);

enum class Codec : uint32_t { raw = 0, zstd = 1 };

// Identifies an object of a daemon. A different size or modification time means different bytes.
struct Identity {
    uint64_t instance = 0;
    uint64_t id = 0;
    uint64_t size_bytes = 0;
    int64_t modified_ns = 0;
    auto operator<=>(const Identity&) const = default;
};

struct ChunkHeader {
    static constexpr size_t kBytes = 88;

    Codec codec = Codec::raw;
    uint32_t raw_bytes = 0;
    uint32_t stored_bytes = 0;
    Identity object;
    uint64_t offset = 0;  // in the object
    Checksum checksum;    // of the raw bytes

    void encode(std::span<std::byte, kBytes> ret_bytes) const;
    // False: the bytes are not a complete header.
    static bool decode(std::span<const std::byte> bytes, ChunkHeader& ret_header);
};

// The place of a chunk, as stored in the manifest.
struct ChunkPlace {
    uint32_t file = 0;    // index of the snapshot's file
    uint64_t offset = 0;  // of the header in the file
    Codec codec = Codec::raw;
    uint32_t stored_bytes = 0;
    Checksum checksum;
};

inline uint64_t chunk_count(uint64_t object_bytes) {
    return (object_bytes + kSnapshotChunkBytes - 1) / kSnapshotChunkBytes;
}
// The size of a chunk of an object, by its index.
inline uint32_t raw_bytes_of(uint64_t object_bytes, uint64_t index) {
    const uint64_t left = object_bytes - index * kSnapshotChunkBytes;
    return static_cast<uint32_t>(left < kSnapshotChunkBytes ? left : kSnapshotChunkBytes);
}

}  // namespace gshm::core
