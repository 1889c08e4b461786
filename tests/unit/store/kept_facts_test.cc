// The facts of kept objects: what is written is read, and nothing else is.
#include <gtest/gtest.h>

#include "store/acl.h"
#include "store/kept_facts.h"

namespace gshm::core {
namespace {

KeptFacts example() {
    KeptFacts facts;
    const std::string acl = encode_acl(complete_acl({{AclTag::user, 4, 1234}}, 0640).value());
    facts.names = {{"models/llama/w0", {{0755, 0, 0, false, ""}, {0750, 1000, 100, true, acl}}},
                   {"latest", {}},
                   {"not UTF-8 \xff", {}}};
    facts.mode = 0640;
    facts.uid = 1000;
    facts.gid = 100;
    facts.state = ObjectState::sealed;
    facts.flags = 0x8001;
    facts.size_bytes = 123456789;
    facts.device = "cuda:1";
    facts.created_ns = 1;
    facts.accessed_ns = 2;
    facts.modified_ns = -3;
    facts.changed_ns = 4;
    facts.ttl_ns = 5;
    facts.ttl_from_ns = 6;
    facts.attributes = {{"dtype", "f32"}, {"shape", std::string("\0\1", 2)}, {"empty", ""}};
    facts.acl = acl;
    return facts;
}

TEST(KeptFacts, AreRead) {
    const auto read = decode_kept_facts(encode_kept_facts(example()));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(*read, example());
}

TEST(KeptFacts, IncompleteOnesAreRefused) {
    const std::string bytes = encode_kept_facts(example());
    for (size_t i = 0; i < bytes.size(); ++i) EXPECT_FALSE(decode_kept_facts(bytes.substr(0, i))) << i;
    EXPECT_FALSE(decode_kept_facts(bytes + "x"));
}

TEST(KeptFacts, WhatGshmdDoesNotWriteIsRefused) {
    const auto is_refused = [](auto&& change) {
        KeptFacts facts = example();
        change(facts);
        const auto read = decode_kept_facts(encode_kept_facts(facts));
        return !read && read.error().code == EBADMSG;
    };
    EXPECT_FALSE(is_refused([](KeptFacts&) {}));
    EXPECT_TRUE(is_refused([](KeptFacts& facts) { facts.names.clear(); }));
    EXPECT_TRUE(is_refused([](KeptFacts& facts) { facts.device.clear(); }));
    EXPECT_TRUE(is_refused([](KeptFacts& facts) { facts.mode = 010000; }));
    EXPECT_TRUE(is_refused([](KeptFacts& facts) { facts.state = static_cast<ObjectState>(3); }));
    EXPECT_TRUE(is_refused([](KeptFacts& facts) { facts.size_bytes = UINT64_MAX; }));
    EXPECT_TRUE(is_refused([](KeptFacts& facts) { facts.acl = "no acl"; }));
    EXPECT_TRUE(is_refused([](KeptFacts& facts) { facts.names[0].directories[0].mode = 0xffff; }));
    EXPECT_TRUE(is_refused([](KeptFacts& facts) { facts.names[0].directories[0].acl = "no acl"; }));
    EXPECT_TRUE(is_refused([](KeptFacts& facts) { facts.names[0].directories.pop_back(); }));
    EXPECT_TRUE(is_refused([](KeptFacts& facts) { facts.attributes["long"] = std::string(70'000, 'x'); }));
    EXPECT_TRUE(is_refused([](KeptFacts& facts) { facts.attributes[std::string(300, 'x')] = ""; }));
    for (const std::string path : {"", "/a", "a/", ".", "..", "../a", "a/../b", "a//b", "a/b"})
        EXPECT_TRUE(is_refused([&](KeptFacts& facts) { facts.names[1].path = path; })) << path;
    EXPECT_TRUE(is_refused([](KeptFacts& facts) { facts.names[1].path = std::string("a\0b", 3); }));
    EXPECT_TRUE(is_refused([](KeptFacts& facts) { facts.names[1].path = std::string(256, 'a'); }));
}

}  // namespace
}  // namespace gshm::core
