// Any JSON number was accepted as an integer of a manifest: a user id of 2^32 became root's, and fractions or numbers
// of more than 64 bits got an arbitrary value.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "snapshot/chunk.h"
#include "snapshot/manifest.h"

namespace gshm::core {
namespace {

using Json = nlohmann::ordered_json;

class ManifestNumbers : public ::testing::Test {
protected:
    void SetUp() override {
        std::string pattern = ::testing::TempDir() + "/gshm-manifest-XXXXXX";
        ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
        folder_ = pattern;
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    // The error for a manifest that is valid except for the number at that place; empty: no error.
    std::string refusal(int line, const Json::json_pointer& place, const Json& number) {
        Json lines = {
            {{"files", {"data-0001-00"}}, {"chunk_bytes", kSnapshotChunkBytes}, {"created_ns", 1}, {"instance", "0a"}},
            {{"kind", "directory"}, {"name", "d"}, {"mode", "0755"}, {"uid", 1}, {"gid", 1}, {"keep", true}},
            {{"kind", "symlink"}, {"name", "l"}, {"uid", 1}, {"gid", 1}, {"target", "d"}},
            {{"kind", "object"},
             {"names", {"o"}},
             {"size_bytes", 3},
             {"mode", "0600"},
             {"uid", 1},
             {"gid", 1},
             {"device", "host"},
             {"flags", Json::array()},
             {"state", "open"},
             {"attributes", Json::array()},
             {"instance", "0a"},
             {"id", 7},
             {"created_ns", 1},
             {"modified_ns", 1},
             {"chunks", Json::array({Json::array({0, 0, 0, 3, "f4d0497cf9394caab34d1a3ab2bece70"})})}}};
        EXPECT_TRUE(lines[line].contains(place)) << place;
        lines[line][place] = number;
        std::string body;
        for (const auto& entry : lines) body += entry.dump() + '\n';
        const Json head = {{"format", "gshm-snapshot"},
                           {"version", 1},
                           {"bytes", body.size()},
                           {"xxh3", to_hex(checksum_of(std::as_bytes(std::span(body.data(), body.size()))))}};
        std::ofstream(folder_ + "/manifest.jsonl", std::ios::binary) << head.dump() << '\n' << body;
        const auto manifest = read_manifest(folder_);
        if (!manifest) return manifest.error().message;
        EXPECT_TRUE(manifest->has_value());
        return "";
    }

    struct Number {
        int line;
        const char* place;
        bool is_signed;
        bool is_short;
    };
    static constexpr Number kNumbers[] = {
        {0, "/created_ns", true, false},  {1, "/uid", false, true},         {1, "/gid", false, true},
        {2, "/uid", false, true},         {2, "/gid", false, true},         {3, "/uid", false, true},
        {3, "/gid", false, true},         {3, "/id", false, false},         {3, "/size_bytes", false, false},
        {3, "/created_ns", true, false},  {3, "/modified_ns", true, false}, {3, "/chunks/0/0", false, true},
        {3, "/chunks/0/1", false, false}, {3, "/chunks/0/2", false, true},  {3, "/chunks/0/3", false, true}};

    std::string folder_;
};

TEST_F(ManifestNumbers, AreIntegers) {
    for (const auto& [line, place, is_signed, is_short] : kNumbers) {
        for (const Json& number : {Json(0.0), Json(1.5), Json(1e300), Json(-1e300), Json(true), Json("1")}) {
            EXPECT_NE(refusal(line, Json::json_pointer(place), number).find("no integer"), std::string::npos)
                << "line " << line << ": " << place << " " << number;
        }
    }
}

TEST_F(ManifestNumbers, AreWithinRange) {
    for (const auto& [line, place, is_signed, is_short] : kNumbers) {
        const Json::json_pointer at(place);
        const Json above = is_signed ? Json(uint64_t{1} << 63) : Json(uint64_t{1} << 32);
        if (is_signed || is_short) {
            EXPECT_NE(refusal(line, at, above).find("out of range"), std::string::npos) << place;
        }
        if (!is_signed) {
            EXPECT_NE(refusal(line, at, Json(-1)).find("out of range"), std::string::npos) << place;
        }
    }
    EXPECT_EQ(refusal(0, Json::json_pointer("/created_ns"), Json(INT64_MIN)), "");
    EXPECT_EQ(refusal(1, Json::json_pointer("/uid"), Json(UINT32_MAX)), "");
    EXPECT_EQ(refusal(3, Json::json_pointer("/id"), Json(UINT64_MAX)), "");
}

}  // namespace
}  // namespace gshm::core
