// The index of a sharded checkpoint, whose file names are not trusted; and the attribute of an object of tensors.
#include <gtest/gtest.h>

#include "tensors/facts.h"
#include "tensors/index.h"

namespace gshm::core::tensors {
namespace {

TEST(TensorIndex, ReadsTheWeightMap) {
    const auto index = parse_index(
        R"({"metadata":{"total_size":17,"x":[1,{"y":null}]},"weight_map":{"b":"m-2.safetensors","a":"m-1.safetensors","c":"m-1.safetensors"}})");
    ASSERT_TRUE(index) << index.error().message;
    EXPECT_EQ(index->files, (std::vector<std::string>{"m-1.safetensors", "m-2.safetensors"}));
    ASSERT_EQ(index->entries.size(), 3u);
    EXPECT_EQ(index->entries[0].tensor, "a");
    EXPECT_EQ(index->files[index->entries[1].file], "m-2.safetensors");
}

TEST(TensorIndex, RefusesMalformedOnesWithTheReason) {
    const std::pair<std::string, const char*> cases[] = {
        {"", "object is expected"},
        {"{}", "no \"weight_map\""},
        {R"({"weight_map":[]})", "object is expected"},
        {R"({"weight_map":{"a":1}})", "string is expected"},
        {R"({"weight_map":{"a":"f","a":"f"}})", "twice"},
        {R"({"weight_map":{},"weight_map":{}})", "twice"},
        {R"({"weight_map":{"a":"../f"}})", "not a path below"},
        {R"({"weight_map":{"a":"x/../../f"}})", "not a path below"},
        {R"({"weight_map":{"a":"/etc/f"}})", "not a path below"},
        {R"({"weight_map":{"a":""}})", "not a path below"},
        {R"({"weight_map":{"a":"./f"}})", "not a path below"},
        {R"({"weight_map":{"a":"f\u0000"}})", "not a path below"},
        {R"({"weight_map":{"a":")" + std::string(5000, 'f') + "\"}}", "too long"},
        {R"({"weight_map":{"/a":"f"}})", "leading"},
        {R"({"weight_map":{}} x)", "follows"},
        {"{\"metadata\":" + std::string(100'000, '{') + "}", "expected"},
        {"{\"metadata\":" + std::string(100'000, '[') + "}", "too deep"},
        {"\xff", "UTF-8"},
    };
    for (const auto& [text, reason] : cases) {
        const auto index = parse_index(text);
        ASSERT_FALSE(index) << text.substr(0, 100);
        EXPECT_EQ(index.error().code, EBADMSG);
        EXPECT_NE(index.error().message.find(reason), std::string::npos)
            << text.substr(0, 100) << index.error().message;
    }
}

TEST(TensorFacts, ComeBackAsTheyWere) {
    const Facts facts{kFormat, 3, 4088, "abc", "blob \"x\"", "12-34"};
    const auto again = parse_facts(to_text(facts));
    ASSERT_TRUE(again);
    EXPECT_EQ(again->tensors, 3u);
    EXPECT_EQ(again->header_bytes, 4088u);
    EXPECT_EQ(again->identity, "abc");
    EXPECT_EQ(again->source, "blob \"x\"");
    EXPECT_EQ(again->loader, "12-34");
    EXPECT_TRUE(parse_facts(R"({"format":1,"later":[1]})"));
    for (const char* bad : {"", "1", "{\"format\":-1}", "{\"identity\":1}", "{} {}", "\xff"})
        EXPECT_FALSE(parse_facts(bad));
}

}  // namespace
}  // namespace gshm::core::tensors
