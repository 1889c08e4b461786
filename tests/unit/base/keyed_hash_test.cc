#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/keyed_hash.h"

namespace gshm::core {
namespace {

// The example of the paper that defines SipHash-2-4.
TEST(KeyedHash, IsSipHash) {
    std::string bytes;
    for (char i = 0; i < 15; ++i) bytes += i;
    EXPECT_EQ(siphash24(bytes, {0x0706050403020100, 0x0f0e0d0c0b0a0908}), 0xa129ca6149be45e5u);
    EXPECT_NE(keyed_hash("a"), keyed_hash("b"));
    EXPECT_NE(keyed_hash(""), keyed_hash(std::string_view("\0", 1)));
}

// Two tables order the same names differently, so a client cannot choose names that collide.
TEST(KeyedHash, TablesWithOtherKeysHaveAnotherOrder) {
    auto order = [](const HashKey& key) {
        std::vector<std::string> names;
        for (int i = 0; i < 64; ++i) names.push_back("name" + std::to_string(i));
        std::ranges::sort(names, {}, [&](const auto& name) { return keyed_hash(name, key) % 128; });
        return names;
    };
    EXPECT_EQ(order({1, 2}), order({1, 2}));
    EXPECT_NE(order({1, 2}), order({1, 3}));
    EXPECT_NE(order({1, 2}), order({2, 2}));
    EXPECT_EQ(order(process_hash_key()), order(process_hash_key()));
    EXPECT_NE(process_hash_key().low, 0u);
}

}  // namespace
}  // namespace gshm::core
