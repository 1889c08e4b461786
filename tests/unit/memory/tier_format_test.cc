// The byte format of a tier's folder: what is written is read, and nothing else is.
#include <gtest/gtest.h>

#include "memory/tier_format.h"

namespace gshm::core {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(TierFormat, NamesAreNumbers) {
    for (const uint64_t number : {uint64_t{1}, uint64_t{0xabc}, UINT64_MAX})
        EXPECT_EQ(tier_file_number(tier_file_name(number)), number);
    for (const char* other : {"", "1", "0000000000000000", "000000000000000g", "00000000000000ABC", "0000000000000ABC",
                              "00000000000000001", "facts", "gshm-tier", "0000000000000001.part", "-000000000000001"})
        EXPECT_EQ(tier_file_number(other), 0u) << other;
}

TEST(TierFormat, MarkersAreRead) {
    const auto marker = decode_tier_marker(encode_tier_marker({0xfedc, "0123abcd"}));
    ASSERT_TRUE(marker);
    EXPECT_EQ(marker->tier, 0xfedcu);
    EXPECT_EQ(marker->machine, "0123abcd");
    EXPECT_EQ(decode_tier_marker(encode_tier_marker({1, ""}))->machine, "");
}

TEST(TierFormat, SizesFollowFromTheObjectsSize) {
    EXPECT_EQ(TierHead{.size_bytes = 0}.file_bytes(), 4096u);
    EXPECT_EQ(TierHead{.size_bytes = 1}.file_bytes(), 8192u);
    EXPECT_EQ(TierHead{.size_bytes = 4096}.file_bytes(), 8192u);
    EXPECT_EQ(TierHead{.size_bytes = 4097}.file_bytes(), 12288u);
    // 46 headers no longer fit the first block.
    EXPECT_EQ(TierHead{.size_bytes = 45 * kSnapshotChunkBytes}.data_offset(), 4096u);
    EXPECT_EQ(TierHead{.size_bytes = 46 * kSnapshotChunkBytes}.data_offset(), 8192u);
    EXPECT_GT(TierHead{.size_bytes = kTierObjectBytes}.file_bytes(), kTierObjectBytes);
}

TEST(TierFormat, AHeadWithADamagedByteIsRefused) {
    std::array<std::byte, TierHead::kBytes> bytes{};
    TierHead{7, 8, 9, 10}.encode(bytes);
    TierHead head;
    ASSERT_TRUE(TierHead::decode(bytes, head));
    EXPECT_EQ(head.identity(), (Identity{7, 8, 9, 10}));
    for (size_t i = 0; i < bytes.size(); ++i) {
        EXPECT_FALSE(TierHead::decode({bytes.data(), i}, head));
        bytes[i] ^= std::byte{16};
        EXPECT_FALSE(TierHead::decode(bytes, head)) << i;
        bytes[i] ^= std::byte{16};
    }
    TierHead{7, 8, kTierObjectBytes + 1, 10}.encode(bytes);
    EXPECT_FALSE(TierHead::decode(bytes, head));
}

class TierFacts : public ::testing::Test {
protected:
    static constexpr uint64_t kTier = 99;
    static std::string record(uint64_t number) {
        return encode_tier_facts({.tier = kTier, .number = number, .instance = 5},
                                 "facts of " + std::to_string(number));
    }
    // The numbers; -1 in front if not all was intact.
    static std::vector<int64_t> find(const std::string& file) {
        std::vector<TierFactsFound> found;
        std::vector<int64_t> numbers;
        if (!find_tier_facts(bytes_of(file), kTier, found)) numbers.push_back(-1);
        for (const auto& [header, offset] : found) {
            EXPECT_EQ(file.substr(offset, header.bytes), "facts of " + std::to_string(header.number));
            EXPECT_EQ(header.instance, 5u);
            numbers.push_back(static_cast<int64_t>(header.number));
        }
        return numbers;
    }
};

TEST_F(TierFacts, AreFound) {
    EXPECT_EQ(find(""), std::vector<int64_t>{});
    EXPECT_EQ(find(record(1) + record(200) + record(3) + record(1)), (std::vector<int64_t>{1, 200, 3, 1}));
}

TEST_F(TierFacts, ADamagedRecordHidesNoOther) {
    const std::string file = record(1) + record(2) + record(3);
    const size_t bytes = record(1).size();
    for (size_t at = 0; at < file.size(); ++at) {
        std::string damaged = file;
        damaged[at] = static_cast<char>(damaged[at] ^ 2);
        std::vector<int64_t> wanted{-1};
        for (size_t i = 0; i < 3; ++i)
            if (at / bytes != i) wanted.push_back(static_cast<int64_t>(i + 1));
        if (at % bytes >= TierFactsHeader::kBytes + 10) wanted = {1, 2, 3};  // padding
        EXPECT_EQ(find(damaged), wanted) << at;
    }
    for (size_t left = 0; left < file.size(); ++left) {
        std::vector<int64_t> wanted;
        if (left % bytes != 0) wanted.push_back(-1);
        for (size_t i = 0; i < left / bytes; ++i) wanted.push_back(static_cast<int64_t>(i + 1));
        EXPECT_EQ(find(file.substr(0, left)), wanted) << left;
    }
}

// A user may choose an attribute with the bytes of a record, but does not know the number of the tier.
TEST_F(TierFacts, ARecordInsideOfFactsIsNotFoundNorOneOfAnotherTier) {
    const std::string inner = encode_tier_facts({.tier = kTier + 1, .number = 7, .instance = 5}, "facts of 7");
    const std::string outer = encode_tier_facts({.tier = kTier, .number = 8, .instance = 5}, inner);
    std::vector<TierFactsFound> found;
    EXPECT_TRUE(find_tier_facts(bytes_of(outer), kTier, found));
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].header.number, 8u);
    std::string damaged = outer;
    damaged[0] ^= 1;
    EXPECT_EQ(find(damaged), std::vector<int64_t>{-1});
    EXPECT_EQ(find(inner + record(1)), (std::vector<int64_t>{-1, 1}));
}

}  // namespace
}  // namespace gshm::core
