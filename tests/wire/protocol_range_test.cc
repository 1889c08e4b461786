// The protocol of a session, and requests that it does not have.
#include <gtest/gtest.h>

#include "wire/golden.h"
#include "wire/protocol_range.h"

namespace gshm::core::wire {
namespace {

TEST(ProtocolRange, TheHighestOfBothIsTaken) {
    EXPECT_EQ(common_protocol({1, 2}, {1, 2}), 2u);
    EXPECT_EQ(common_protocol({1, 2}, {1, 1}), 1u);
    EXPECT_EQ(common_protocol({1, 2}, {2, 9}), 2u);
    EXPECT_EQ(common_protocol({2, 5}, {1, 3}), 3u);
    EXPECT_EQ(common_protocol({1, 1}, {2, 2}), std::nullopt);
    EXPECT_EQ(common_protocol({4, 9}, {1, 3}), std::nullopt);
}

TEST(ProtocolRange, AnOldHelloOffersOneProtocol) {
    const auto old = test::golden("request-Hello");
    const auto offered = offered_by(*flatbuffers::GetRoot<Request>(old.data())->body_as_Hello());
    EXPECT_EQ(offered.lowest, 1u);
    EXPECT_EQ(offered.highest, 1u);
}

TEST(ProtocolRange, AVariableNarrowsItForTests) {
    const auto with = [](const char* value) {
        setenv("GSHM_PROTOCOL_RANGE", value, 1);
        auto range = own_protocols();
        unsetenv("GSHM_PROTOCOL_RANGE");
        return range;
    };
    const auto first = with("1-1");
    ASSERT_TRUE(first);
    EXPECT_EQ(first->highest, 1u);
    const auto second = with("2-2");
    ASSERT_TRUE(second);
    EXPECT_EQ(second->lowest, 2u);
    EXPECT_TRUE(with(""));
    for (const char* bad : {"1", "1-", "-1", "2-1", "0-1", "1-99", "1-2x", "one-two"}) {
        const auto refused = with(bad);
        ASSERT_FALSE(refused) << bad;
        EXPECT_EQ(refused.error().code, EINVAL);
    }
    ASSERT_TRUE(own_protocols());
    EXPECT_EQ(own_protocols()->lowest, kProtocolLowest);
    EXPECT_EQ(own_protocols()->highest, kProtocolHighest);
}

TEST(ProtocolRange, ARequestNeedsItsProtocol) {
    EXPECT_TRUE(check_request(RequestBody::Ping, 1));
    EXPECT_TRUE(check_request(RequestBody::Move, 1));
    const auto later = static_cast<RequestBody>(static_cast<int>(RequestBody::Move) + 1);
    EXPECT_TRUE(check_request(later, 2));
    const auto refused = check_request(later, 1);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, EOPNOTSUPP);
    EXPECT_NE(refused.error().message.find("gshmd --takeover"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace gshm::core::wire
