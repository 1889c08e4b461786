#include "memory/tier_format.h"

#include <bit>
#include <charconv>
#include <cstring>
#include <xxhash.h>

namespace gshm::core {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little endian, and structs are copied");

constexpr char kHeadMagic[8] = {'g', 's', 'h', 'm', 't', 'i', 'e', 'r'};
constexpr char kFactsMagic[8] = {'g', 's', 'h', 'm', 'f', 'a', 'c', 't'};
constexpr uint32_t kVersion = 1;

struct HeadLayout {
    char magic[8];
    uint32_t version;
    uint32_t chunk_bytes;
    uint64_t tier;
    uint64_t number;
    uint64_t size_bytes;
    int64_t created_ns;
    uint64_t unused;
    uint64_t checksum;
};
static_assert(sizeof(HeadLayout) == TierHead::kBytes && offsetof(HeadLayout, checksum) == 56);

struct FactsLayout {
    char magic[8];
    uint64_t tier;
    uint64_t number;
    uint64_t instance;
    uint64_t bytes;
    uint64_t checksum_low;
    uint64_t checksum_high;
    uint64_t header_checksum;
};
static_assert(sizeof(FactsLayout) == TierFactsHeader::kBytes && offsetof(FactsLayout, header_checksum) == 56);

std::string_view next_line(std::string_view& text) {
    const size_t end = text.find('\n');
    const auto line = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    return line;
}

}  // namespace

std::string tier_file_name(uint64_t number) {
    return fmt::format("{:016x}", number);
}

uint64_t tier_file_number(std::string_view name) {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number, 16);
    return error == std::errc{} && end == name.data() + name.size() && name == tier_file_name(number) ? number : 0;
}

std::string encode_tier_marker(const TierMarker& marker) {
    return fmt::format(
        "gshm-tier {}\ntier {:016x}\nmachine {}\n\nThis folder belongs to gshmd, which keeps objects here and removes "
        "files.\n",
        kVersion, marker.tier, marker.machine);
}

Result<TierMarker> decode_tier_marker(std::string_view text) {
    TierMarker marker;
    const auto format = next_line(text);
    if (!format.starts_with("gshm-tier ")) return fail(EBADMSG, "it is not the marker of a tier");
    if (format != fmt::format("gshm-tier {}", kVersion)) return fail(EBADMSG, "it is of another version of gshm");
    auto line = next_line(text);
    constexpr std::string_view kTier = "tier ";
    if (!line.starts_with(kTier)) return fail(EBADMSG, "its second line is not the tier");
    line.remove_prefix(kTier.size());
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), marker.tier, 16);
    if (error != std::errc{} || end != line.data() + line.size() || marker.tier == 0)
        return fail(EBADMSG, "its second line is not the tier");
    line = next_line(text);
    constexpr std::string_view kMachine = "machine ";
    if (!line.starts_with(kMachine)) return fail(EBADMSG, "its third line is not the machine");
    marker.machine = line.substr(kMachine.size());
    return marker;
}

uint64_t TierHead::data_offset() const {
    return round_up(header_offset(chunks()), kBlockBytes);
}

uint64_t TierHead::file_bytes() const {
    return data_offset() + round_up(size_bytes, kBlockBytes);
}

void TierHead::encode(std::span<std::byte, kBytes> ret_bytes) const {
    HeadLayout layout{};
    std::memcpy(layout.magic, kHeadMagic, sizeof kHeadMagic);
    layout.version = kVersion;
    layout.chunk_bytes = kSnapshotChunkBytes;
    layout.tier = tier;
    layout.number = number;
    layout.size_bytes = size_bytes;
    layout.created_ns = created_ns;
    layout.checksum = XXH3_64bits(&layout, offsetof(HeadLayout, checksum));
    std::memcpy(ret_bytes.data(), &layout, sizeof layout);
}

bool TierHead::decode(std::span<const std::byte> bytes, TierHead& ret_head) {
    HeadLayout layout{};
    if (bytes.size() < sizeof layout) return false;
    std::memcpy(&layout, bytes.data(), sizeof layout);
    if (std::memcmp(layout.magic, kHeadMagic, sizeof kHeadMagic) != 0 || layout.version != kVersion ||
        layout.chunk_bytes != kSnapshotChunkBytes || layout.unused != 0 || layout.size_bytes > kTierObjectBytes ||
        layout.checksum != XXH3_64bits(&layout, offsetof(HeadLayout, checksum)))
        return false;
    ret_head = {layout.tier, layout.number, layout.size_bytes, layout.created_ns};
    return true;
}

void TierFactsHeader::encode(std::span<std::byte, kBytes> ret_bytes) const {
    FactsLayout layout{};
    std::memcpy(layout.magic, kFactsMagic, sizeof kFactsMagic);
    layout.tier = tier;
    layout.number = number;
    layout.instance = instance;
    layout.bytes = bytes;
    layout.checksum_low = checksum.low;
    layout.checksum_high = checksum.high;
    layout.header_checksum = XXH3_64bits(&layout, offsetof(FactsLayout, header_checksum));
    std::memcpy(ret_bytes.data(), &layout, sizeof layout);
}

bool TierFactsHeader::decode(std::span<const std::byte> bytes, TierFactsHeader& ret_header) {
    FactsLayout layout{};
    if (bytes.size() < sizeof layout) return false;
    std::memcpy(&layout, bytes.data(), sizeof layout);
    if (std::memcmp(layout.magic, kFactsMagic, sizeof kFactsMagic) != 0 || layout.bytes > kFactsBytes ||
        layout.header_checksum != XXH3_64bits(&layout, offsetof(FactsLayout, header_checksum)))
        return false;
    ret_header = {
        layout.tier, layout.number, layout.instance, layout.bytes, {layout.checksum_low, layout.checksum_high}};
    return true;
}

std::string encode_tier_facts(TierFactsHeader header, std::string_view facts) {
    header.bytes = facts.size();
    header.checksum = checksum_of(std::as_bytes(std::span(facts.data(), facts.size())));
    std::string record(header.record_bytes(), '\0');
    header.encode(
        std::span<std::byte, TierFactsHeader::kBytes>(reinterpret_cast<std::byte*>(record.data()), header.kBytes));
    std::memcpy(record.data() + header.kBytes, facts.data(), facts.size());
    return record;
}

bool find_tier_facts(std::span<const std::byte> file, uint64_t tier, std::vector<TierFactsFound>& ret_found) {
    bool intact = true;
    for (size_t at = 0; at < file.size();) {
        TierFactsHeader header;
        const auto rest = file.subspan(at);
        // After a damaged header the next one is looked for.
        if (!TierFactsHeader::decode(rest, header) || header.record_bytes() > rest.size()) {
            intact = false;
            at += kTierFactsAlignment;
            continue;
        }
        const auto facts = rest.subspan(header.kBytes, header.bytes);
        if (header.tier == tier && header.number != 0 && checksum_of(facts) == header.checksum)
            ret_found.push_back({header, at + header.kBytes});
        else intact = false;
        at += header.record_bytes();
    }
    return intact;
}

}  // namespace gshm::core
