// What a tier's folder has on the disk: any bytes are read or refused, and what was read comes out the same when it is
// written and read again. The first byte of an input says which part it is.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "memory/tier_format.h"
#include "store/kept_facts.h"

namespace {

using namespace gshm::core;

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "broken: %s\n", what);
    std::abort();
}

void try_facts(std::string_view bytes) {
    const auto facts = decode_kept_facts(bytes);
    if (!facts) return;
    require(!facts->names.empty(), "an object has a name");
    for (const auto& name : facts->names) {
        size_t slashes = 0;
        for (const char c : name.path) slashes += c == '/' ? 1 : 0;
        require(slashes == name.directories.size(), "every directory has its rights");
        require(!name.path.starts_with('/') && name.path.find("/../") == name.path.npos, "a name leads nowhere else");
    }
    const auto again = decode_kept_facts(encode_kept_facts(*facts));
    require(again && *again == *facts, "what is written can be read");
}

void try_head(std::span<const std::byte> bytes) {
    TierHead head;
    if (!TierHead::decode(bytes, head)) return;
    std::array<std::byte, TierHead::kBytes> written{};
    head.encode(written);
    require(std::ranges::equal(written, bytes.first(TierHead::kBytes)), "what is read is what was written");
    require(head.file_bytes() >= head.size_bytes && head.data_offset() % kBlockBytes == 0, "sizes do not overflow");
}

void try_log(std::span<const std::byte> bytes) {
    std::vector<TierFactsFound> found;
    find_tier_facts(bytes, 7, found);
    for (const auto& [header, offset] : found) {
        require(offset + header.bytes <= bytes.size(), "facts are in the file");
        require(header.tier == 7 && header.number != 0, "facts belong to a file of the tier");
        require(checksum_of(bytes.subspan(offset, header.bytes)) == header.checksum, "facts are intact");
    }
}

void try_marker(std::string_view text) {
    const auto marker = decode_tier_marker(text);
    if (!marker) return;
    const auto again = decode_tier_marker(encode_tier_marker(*marker));
    require(again && again->tier == marker->tier && again->machine == marker->machine, "a marker can be read");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
    const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
    switch (data[0]) {
        case 'f': try_facts(text); break;
        case 'h': try_head(bytes); break;
        case 'l': try_log(bytes); break;
        case 'm': try_marker(text); break;
        default: break;
    }
    return 0;
}
