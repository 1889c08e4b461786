// Headers of safetensors files: those that the original's tests accept and refuse, and further attacks.
#include <gtest/gtest.h>

#include "tensors/table.h"

namespace gshm::core::tensors {
namespace {

std::string length_of(uint64_t length) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(length >> (8 * i)));
    return bytes;
}

Result<Table> parse(const std::string& json, uint64_t data_bytes, Gaps gaps = Gaps::refused) {
    return Table::parse(length_of(json.size()) + json, 8 + json.size() + data_bytes, gaps);
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
    return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

void expect_refused(const Result<Table>& table, std::string_view reason, std::string_view what) {
    ASSERT_FALSE(table.has_value()) << what;
    EXPECT_EQ(table.error().code, EBADMSG) << what;
    EXPECT_NE(table.error().message.find(reason), std::string::npos) << what << ": " << table.error().message;
}

TEST(TensorTable, ReadsTensorsInTheOrderOfTheirOffsets) {
    const auto table = parse("{" + tensor("b", "F32", "[2,3]", "[8,32]") + "," + tensor("a", "BF16", "[4]", "[0,8]") +
                                 ",\"__metadata__\":{\"z\":\"1\",\"format\":\"pt\"}}",
                             32);
    ASSERT_TRUE(table) << table.error().message;
    ASSERT_EQ(table->tensors().size(), 2u);
    const Tensor& a = table->tensors()[0];
    EXPECT_EQ(table->name(a), "a");
    EXPECT_EQ(a.dtype, Dtype::bf16);
    EXPECT_EQ(a.offset, table->header().size());
    const Tensor* b = table->find("b");
    ASSERT_NE(b, nullptr);
    EXPECT_EQ(std::vector<uint64_t>(table->shape(*b).begin(), table->shape(*b).end()), (std::vector<uint64_t>{2, 3}));
    EXPECT_EQ(b->bytes, 24u);
    EXPECT_EQ(table->find("c"), nullptr);
    EXPECT_EQ(table->metadata(), (Metadata{{"format", "pt"}, {"z", "1"}}));
}

TEST(TensorTable, AcceptsWhatTheOriginalAccepts) {
    struct Case {
        std::string json;
        uint64_t data_bytes;
        size_t tensors;
    };
    const Case cases[] = {
        {"{}", 0, 0},
        {"{}      ", 0, 0},
        {"{}\r \t\n", 0, 0},
        {"\t\n{}", 0, 0},
        {"{\"__metadata__\":{}}", 0, 0},
        {"{\"__metadata__\":{\"a\":\"b\"}}", 0, 0},
        {"{" + tensor("a", "I32", "[]", "[0,4]") + "}", 4, 1},
        {"{" + tensor("a", "I32", "[2,0]", "[0,0]") + "}", 0, 1},
        {"{" + tensor("a", "I32", "[0]", "[0,0]") + "," + tensor("b", "U8", "[0,7]", "[0,0]") + "}", 0, 2},
        {"{" + tensor("z", "U8", "[0]", "[4,4]") + "," + tensor("b", "I32", "[1]", "[0,4]") + "}", 4, 2},
        {"{\"a\":{\"data_offsets\":[0,4],\"shape\":[1],\"dtype\":\"I32\"}}", 4, 1},
        {"{\"a\":{\"more\":[{\"x\":[-1.5e+3,null,true,\"\\u00e9\"]}],\"data_offsets\":[0,4],\"shape\":[1],\"dtype\":"
         "\"I32\"}}",
         4, 1},
        {"{" + tensor("a", "F4", "[2]", "[0,1]") + "}", 1, 1},
        {"{" + tensor("a", "F6_E2M3", "[4]", "[0,3]") + "}", 3, 1},
        {"{" + tensor("a", "I8", "[0,9223372036854775808,4]", "[0,0]") + "}", 0, 1},
        {"{" + tensor("m/l.0:\\u00e9\\ud83d\\ude00", "U8", "[1]", "[0,1]") + "}", 1, 1},
        {" { \"a\" : { \"dtype\" : \"U8\" , \"shape\" : [ 1 , 1 ] , \"data_offsets\" : [ 0 , 1 ] } } ", 1, 1},
    };
    for (const auto& one : cases) {
        const auto table = parse(one.json, one.data_bytes);
        ASSERT_TRUE(table) << one.json << ": " << table.error().message;
        EXPECT_EQ(table->tensors().size(), one.tensors) << one.json;
    }
}

TEST(TensorTable, KnowsEveryType) {
    const std::pair<const char*, unsigned> types[] = {
        {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
        {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
        {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
        {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}};
    for (const auto& [name, bits] : types) {
        const auto table = parse("{" + tensor("a", name, "[8]", "[0," + std::to_string(bits) + "]") + "}", bits);
        ASSERT_TRUE(table) << name << table.error().message;
        EXPECT_STREQ(dtype_name(table->tensors()[0].dtype), name);
    }
}

TEST(TensorTable, RefusesImpossibleLengths) {
    struct Case {
        std::string beginning;
        uint64_t file_bytes;
        const char* reason;
    };
    const Case cases[] = {
        {"", 0, "too small"},
        {"1234567", 7, "too small"},
        {length_of(60), 8, "past the end of the file"},
        {std::string(8, '\xff'), 100, "too large"},
        {std::string("\x3c\0\0\0\0\0\0\xff", 8), 100, "too large"},
        {length_of(100'000'001), 200'000'000, "too large"},
        {length_of(1000), 200, "past the end of the file"},
        {length_of(0), 8, "object is expected"},
    };
    for (const auto& one : cases)
        expect_refused(Table::parse(one.beginning, one.file_bytes, Gaps::refused), one.reason, one.reason);
    const std::pair<std::string, const char*> others[] = {{std::string("PK\x03\x04\0\0\x08\x08", 8), "a zip file"},
                                                          {"\x80\x02}q\x01(X\x05", "a pickle"},
                                                          {std::string("GGUF\x03\0\0\0", 8), "a GGUF file"}};
    for (const auto& [beginning, what] : others)
        expect_refused(Table::parse(beginning, 1 << 20, Gaps::refused), what, "and no safetensors file");
    EXPECT_EQ(Table::header_length(length_of(100'000'000), 200'000'000).value(), 100'000'000u);
    expect_refused(Table::parse(length_of(4) + "{}", 12, Gaps::refused), "incomplete", "a header that was cut");
}

TEST(TensorTable, RefusesMalformedHeadersWithTheReason) {
    struct Case {
        std::string json;
        uint64_t data_bytes;
        const char* reason;
    };
    std::string ten;
    for (int i = 0; i < 10; ++i) ten += (i ? "," : "") + tensor("t" + std::to_string(i), "I32", "[2,2]", "[0,16]");
    const Case cases[] = {
        {"\xff", 0, "UTF-8"},
        {"{", 0, "not valid"},
        {"", 0, "object is expected"},
        {"\xEF\xBB\xBF{}", 0, "byte order mark"},
        {"[]", 0, "object is expected"},
        {"{}x", 0, "something follows"},
        {std::string("{}\0", 3), 0, "something follows"},
        {"{,}", 0, "string is expected"},
        {"{" + tensor("a", "I32", "[1]", "[0,4]") + ",}", 4, "string is expected"},
        {"{" + tensor("a", "I32", "[2,2]", "[0,4]") + "}", 4, "16 bytes, and data_offsets has 4"},
        {"{" + tensor("a", "I32", "[2,18446744073709551614]", "[0,16]") + "}", 16, "overflows"},
        {"{" + tensor("a", "I32", "[2,9223372036854775807]", "[0,16]") + "}", 16, "overflows"},
        {"{" + tensor("a", "I32", "[18446744073709551616]", "[0,16]") + "}", 16, "more than 64 bits"},
        {"{" + ten + "}", 16, "overlaps"},
        {"{" + ten + "}", 160, "overlaps"},
        {"{" + tensor("a", "I32", "[2,2]", "[0,16]") + "}", 16 + 34, "34 bytes of the file belong to no tensor"},
        {"{" + tensor("a", "I32", "[2,2]", "[0,16]") + "}", 14, "ends at byte 16 of the data, and the file has 14"},
        {"{" + tensor("a", "I32", "[1]", "[0,4]") + "," + tensor("b", "I32", "[1]", "[8,12]") + "}", 12,
         "4 bytes before it belong to no tensor"},
        {"{" + tensor("a", "I32", "[1]", "[4,8]") + "}", 8, "4 bytes before it"},
        {"{" + tensor("a", "I32", "[4]", "[0,16]") + "," + tensor("z", "U8", "[0]", "[8,8]") + "}", 16, "overlaps"},
        {"{" + tensor("a", "F4", "[3]", "[0,2]") + "}", 2, "not whole bytes"},
        {"{" + tensor("a", "F6_E3M2", "[2]", "[0,1]") + "}", 1, "not whole bytes"},
        {"{" + tensor("a", "Q8", "[1]", "[0,1]") + "}", 1, "unknown dtype \"Q8\""},
        {"{" + tensor("a", "I32", "[1]", "[4,0]") + "}", 4, "ends before it begins"},
        {"{" + tensor("a", "I32", "[1]", "[18446744073709551612,0]") + "}", 4, "ends before it begins"},
        {"{" + tensor("a", "I32", "[1]", "[18446744073709551611,18446744073709551615]") + "}", 4, "of the data"},
        {"{" + tensor("a", "I32", "[1]", "[0]") + "}", 4, "fewer than two"},
        {"{" + tensor("a", "I32", "[1]", "[0,4,4]") + "}", 4, "more than two"},
        {"{" + tensor("a", "I32", "[1]", "[\"0\",\"4\"]") + "}", 4, "number"},
        {"{" + tensor("a", "I32", "[1]", "[-0,4]") + "}", 4, "not negative"},
        {"{" + tensor("a", "I32", "[-1]", "[0,4]") + "}", 4, "not negative"},
        {"{" + tensor("a", "U8", "[1e3]", "[0,1000]") + "}", 1000, "exponent"},
        {"{" + tensor("a", "U8", "[1000.0]", "[0,1000]") + "}", 1000, "fraction"},
        {"{" + tensor("a", "U8", "[01]", "[0,1]") + "}", 1, "begins with 0"},
        {"{" + tensor("a", "U8", "[1,]", "[0,1]") + "}", 1, "number"},
        {"{" + tensor("a", "U8", "[1 1]", "[0,1]") + "}", 1, "comma"},
        {"{" + tensor("a", "I32", "[1]", "[0,4]") + "," + tensor("a", "I32", "[1]", "[4,8]") + "}", 8, "occurs twice"},
        {"{\"a\":{\"dtype\":\"I32\",\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
         "\"dtype\" occurs twice"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype is missing"},
        {"{\"a\":{\"dtype\":\"I32\",\"data_offsets\":[0,4]}}", 4, "shape is missing"},
        {"{\"a\":{\"dtype\":\"I32\",\"shape\":[1]}}", 4, "data_offsets is missing"},
        {"{\"a\":7}", 4, "object is expected"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "strings only"},
        {"{\"__metadata__\":{\"a\":null}}", 0, "strings only"},
        {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "occurs twice"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "occurs twice"},
        {"{\"__metadata__\":{\"a\\u0000\":\"1\"}}", 0, "NUL"},
        {"{" + tensor("/a", "U8", "[1]", "[0,1]") + "}", 1, "leading"},
        {"{" + tensor("..", "U8", "[1]", "[0,1]") + "}", 1, "component"},
        {"{" + tensor("a/../b", "U8", "[1]", "[0,1]") + "}", 1, "component"},
        {"{" + tensor("", "U8", "[1]", "[0,1]") + "}", 1, "empty"},
        {"{" + tensor("a\\u0000b", "U8", "[1]", "[0,1]") + "}", 1, "NUL"},
        {"{" + tensor(std::string(4096, 'n'), "U8", "[1]", "[0,1]") + "}", 1, "bytes"},
        {"{" + tensor(std::string(5000, 'n'), "U8", "[1]", "[0,1]") + "}", 1, "bytes"},
        {"{" + tensor("a\nb", "U8", "[1]", "[0,1]") + "}", 1, "control character"},
        {"{" + tensor("a\\x", "U8", "[1]", "[0,1]") + "}", 1, "unknown escape"},
        {"{" + tensor("\\ud800", "U8", "[1]", "[0,1]") + "}", 1, "surrogate"},
        {"{" + tensor("\\udc00", "U8", "[1]", "[0,1]") + "}", 1, "surrogate"},
        {"{\"a\":{\"x\":nul,\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "value is expected"},
        {"{\"a\":{\"x\":[1,],\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "value is expected"},
        {"{\"a\":{\"x\":" + std::string(1'000'000, '[') + "}}", 4, "too deep"},
    };
    for (const auto& one : cases) {
        expect_refused(parse(one.json, one.data_bytes), one.reason, one.json.substr(0, 300));
    }
    std::string dimensions = "1";
    for (int i = 0; i < 64; ++i) dimensions += ",1";
    expect_refused(parse("{" + tensor("a", "U8", "[" + dimensions + "]", "[0,1]") + "}", 1), "dimensions", "65");
}

TEST(TensorTable, TensorsThatShareOneRangeAreRefusedEarly) {
    std::string json = "{";
    for (int i = 0; i < 100'000; ++i)
        json += (i ? "," : "") + tensor("t" + std::to_string(i), "I32", "[2,2]", "[0,16]");
    expect_refused(parse(json, 16), "overlaps", "the JSON need not even end");
}

// Nothing but a limit of their number bounds what programs make of them.
TEST(TensorTable, EmptyTensorsAreLimitedInNumber) {
    std::string json = "{";
    for (size_t i = 0; i < kTensors; ++i) json += (i ? "," : "") + tensor(std::to_string(i), "U8", "[0]", "[0,0]");
    const auto most = parse(json + "}", 0);
    ASSERT_TRUE(most) << most.error().message;
    EXPECT_EQ(most->tensors().size(), kTensors);
    expect_refused(parse(json + "," + tensor("more", "U8", "[0]", "[0,0]"), 0), "more than 250000 tensors",
                   "the JSON need not even end");
}

TEST(TensorTable, GapsAreForObjectsOnly) {
    const std::string json =
        "{" + tensor("a", "I32", "[1]", "[0,4]") + "," + tensor("b", "I32", "[1]", "[256,260]") + "}";
    expect_refused(parse(json, 300), "belong to no tensor", "a file");
    ASSERT_TRUE(parse(json, 300, Gaps::permitted));
    expect_refused(parse(json, 259, Gaps::permitted), "of the data", "past the end");
    const std::string overlap =
        "{" + tensor("a", "I32", "[1]", "[0,4]") + "," + tensor("b", "I32", "[1]", "[2,6]") + "}";
    expect_refused(parse(overlap, 300, Gaps::permitted), "overlaps", "gaps do not permit that");
}

TEST(TensorTable, LaysOutAnObjectWithEveryTensorAt256) {
    const uint64_t shape[] = {3, 5};
    const NewTensor tensors[] = {
        {"b", Dtype::f32, shape}, {"empty", Dtype::u8, {}}, {"a\"\\\n\xc3\xa9", Dtype::i16, shape}};
    const auto table = Table::lay_out(tensors, {{"format", "pt\n"}}, Layout::object);
    ASSERT_TRUE(table) << table.error().message;
    EXPECT_EQ(table->header().size() % 256, 0u);
    for (const auto& tensor : table->tensors()) EXPECT_EQ(tensor.offset % 256, 0u);
    const auto again = Table::parse(table->header(), table->size_bytes(), Gaps::permitted);
    ASSERT_TRUE(again) << again.error().message;
    ASSERT_EQ(again->tensors().size(), 3u);
    for (const auto& tensor : table->tensors()) {
        const Tensor* same = again->find(table->name(tensor));
        ASSERT_NE(same, nullptr);
        EXPECT_EQ(same->offset, tensor.offset);
        EXPECT_EQ(same->bytes, tensor.bytes);
        EXPECT_EQ(same->dtype, tensor.dtype);
    }
    EXPECT_EQ(again->metadata(), (Metadata{{"format", "pt\n"}}));
}

TEST(TensorTable, LaysOutAFileAsTheOriginalDoes) {
    const uint64_t shape[] = {3};
    const NewTensor tensors[] = {{"a", Dtype::u8, shape}, {"z", Dtype::f32, shape}, {"b", Dtype::f32, shape}};
    const auto table = Table::lay_out(tensors, {}, Layout::file);
    ASSERT_TRUE(table);
    std::vector<std::string_view> names;
    for (const auto& tensor : table->tensors()) names.push_back(table->name(tensor));
    EXPECT_EQ(names, (std::vector<std::string_view>{"b", "z", "a"}));
    EXPECT_EQ(table->header().size() % 8, 0u);
    EXPECT_EQ(table->size_bytes(), table->header().size() + 27);
    ASSERT_TRUE(Table::parse(table->header(), table->size_bytes(), Gaps::refused));
}

TEST(TensorTable, LayoutRefusesBadTensors) {
    const uint64_t odd[] = {3};
    const uint64_t huge[] = {uint64_t{1} << 62, 8};
    const auto code = [](const std::vector<NewTensor>& tensors, Metadata metadata = {}) {
        const auto table = Table::lay_out(tensors, std::move(metadata), Layout::object);
        return table ? 0 : table.error().code;
    };
    EXPECT_EQ(code({{"a", Dtype::u8, odd}, {"a", Dtype::u8, odd}}), EINVAL);
    EXPECT_EQ(code({{"/a", Dtype::u8, odd}}), EINVAL);
    EXPECT_EQ(code({{"__metadata__", Dtype::u8, odd}}), EINVAL);
    EXPECT_EQ(code({{"a", Dtype::f4, odd}}), EINVAL);
    EXPECT_EQ(code({{"a", Dtype::u8, huge}}), EINVAL);
    EXPECT_EQ(code({}, {{"a", "1"}, {"a", "2"}}), EINVAL);
    EXPECT_EQ(code({}, {{"a", "\xff"}}), EINVAL);
    EXPECT_EQ(code({}), 0);
    EXPECT_EQ(code(std::vector<NewTensor>(kTensors + 1, NewTensor{"a", Dtype::u8, odd})), EINVAL);
}

TEST(TensorSlices, AreStripsOfTheTensor) {
    const uint64_t shape[] = {4, 6, 2};
    auto strips = cut(Dtype::i16, shape, 0, 1, 3);
    ASSERT_TRUE(strips);
    EXPECT_EQ(strips->offset, 24u);
    EXPECT_EQ(strips->bytes * strips->count, 48u);
    strips = cut(Dtype::i16, shape, 1, 2, 5);
    ASSERT_TRUE(strips);
    EXPECT_EQ(std::tuple(strips->offset, strips->bytes, strips->stride, strips->count), std::tuple(8u, 12u, 24u, 4u));
    strips = cut(Dtype::i16, shape, 1, 0, 6);
    ASSERT_TRUE(strips);
    EXPECT_EQ(std::tuple(strips->offset, strips->bytes, strips->count), std::tuple(0u, 96u, 1u));
    strips = cut(Dtype::i16, shape, 2, 1, 1);
    ASSERT_TRUE(strips);
    EXPECT_EQ(strips->count * strips->bytes, 0u);
    EXPECT_EQ(cut(Dtype::i16, shape, 3, 0, 1).error().code, EINVAL);
    EXPECT_EQ(cut(Dtype::i16, shape, 1, 0, 7).error().code, EINVAL);
    EXPECT_EQ(cut(Dtype::i16, shape, 1, 3, 2).error().code, EINVAL);
    const auto negative = cut(Dtype::i16, shape, 1, static_cast<uint64_t>(-1), 2);
    EXPECT_NE(negative.error().message.find("no slice -1 to 2"), std::string::npos) << negative.error().message;
    const uint64_t nibbles[] = {2, 6};
    EXPECT_EQ(cut(Dtype::f4, nibbles, 1, 1, 4).error().code, EINVAL);
    EXPECT_EQ(cut(Dtype::f4, nibbles, 1, 2, 4).value().bytes, 1u);
}

}  // namespace
}  // namespace gshm::core::tensors
