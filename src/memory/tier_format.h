// The bytes of a tier's folder. docs/tier-format.md describes them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/size.h"
#include "snapshot/block_file.h"
#include "snapshot/chunk.h"

namespace gshm::core {

// ---- names ----
inline constexpr const char* kTierMarkerName = "gshm-tier";
inline constexpr const char* kTierFactsName = "facts";
inline constexpr std::string_view kTierPart = ".part";  // ends the name of a file that is being written
std::string tier_file_name(uint64_t number);
// 0: not the name of an object's file.
uint64_t tier_file_number(std::string_view name);

// ---- the marker ----
struct TierMarker {
    uint64_t tier = 0;    // identifies the folder
    std::string machine;  // its id; "": unknown
};
std::string encode_tier_marker(const TierMarker& marker);
// EBADMSG.
Result<TierMarker> decode_tier_marker(std::string_view text);

// ---- the file of an object: its head, a chunk header for each chunk, then the chunks, each at a multiple of the chunk
// size from data_offset() on ----
struct TierHead {
    static constexpr size_t kBytes = 64;

    uint64_t tier = 0;
    uint64_t number = 0;
    uint64_t size_bytes = 0;  // of the object
    int64_t created_ns = 0;

    // In the headers of its chunks, which thereby belong to this file only.
    Identity identity() const { return {tier, number, size_bytes, created_ns}; }
    uint64_t chunks() const { return chunk_count(size_bytes); }
    // Of the header of a chunk.
    static uint64_t header_offset(uint64_t chunk) { return kBytes + chunk * ChunkHeader::kBytes; }
    uint64_t data_offset() const;
    uint64_t chunk_offset(uint64_t chunk) const { return data_offset() + chunk * kSnapshotChunkBytes; }
    // Whole blocks.
    uint64_t file_bytes() const;

    void encode(std::span<std::byte, kBytes> ret_bytes) const;
    // False: the bytes are not a complete head.
    static bool decode(std::span<const std::byte> bytes, TierHead& ret_head);
};
// The largest object: the sizes above do not overflow.
inline constexpr uint64_t kTierObjectBytes = uint64_t{1} << 62;

// ---- the file of facts: records, each a header and the facts, padded ----
inline constexpr uint64_t kTierFactsAlignment = 8;
struct TierFactsHeader {
    static constexpr size_t kBytes = 64;
    static constexpr uint64_t kFactsBytes = uint64_t{64} << 20;  // at most

    uint64_t tier = 0;
    uint64_t number = 0;    // of the object's file
    uint64_t instance = 0;  // the catalog that it belongs to
    uint64_t bytes = 0;     // of the facts
    Checksum checksum;      // likewise

    uint64_t record_bytes() const { return kBytes + round_up(bytes, kTierFactsAlignment); }
    void encode(std::span<std::byte, kBytes> ret_bytes) const;
    static bool decode(std::span<const std::byte> bytes, TierFactsHeader& ret_header);
};
// The header, the facts and the padding.
std::string encode_tier_facts(TierFactsHeader header, std::string_view facts);
struct TierFactsFound {
    TierFactsHeader header;
    uint64_t offset = 0;  // of the facts in the file
};
// The intact records of the whole file; the facts have been verified. Returns whether that is all that the file has.
bool find_tier_facts(std::span<const std::byte> file, uint64_t tier, std::vector<TierFactsFound>& ret_found);

}  // namespace gshm::core
