// Today's code understands the messages of protocol 1, and sends the same bytes in a session with protocol 1.
#include <set>

#include <gtest/gtest.h>

#include "wire/as_json.h"
#include "wire/golden.h"
#include "wire/protocol_range.h"
#include "wire/records.h"
#include "wire/samples.h"
#include "wire/version.h"

namespace gshm::core::test {
namespace {

nlohmann::ordered_json golden_index() {
    std::ifstream file(golden_folder() / "messages.json");
    return nlohmann::ordered_json::parse(file);
}

// The records of a golden reply, as a client reads them.
template <typename Body>
const Body& body_of(const std::vector<uint8_t>& bytes) {
    return *flatbuffers::GetRoot<wire::Reply>(bytes.data())->body_as<Body>();
}

TEST(Golden, EveryMessageIsUnderstoodFieldByField) {
    const auto index = golden_index();
    EXPECT_EQ(golden_names().size(), index.size());
    for (const auto& [name, entry] : index.items()) {
        const auto bytes = golden(name);
        ASSERT_FALSE(bytes.empty()) << name;
        const bool is_request = name.starts_with("request-");
        if (is_request) ASSERT_TRUE(wire::decode_request(bytes)) << name;
        else ASSERT_TRUE(wire::decode_reply(bytes)) << name;
        EXPECT_EQ(as_json(bytes, is_request), entry["message"]) << name;
    }
}

TEST(Golden, RecordsOfProtocol1AreRead) {
    const auto opened = golden("reply-OpenReply");
    const auto open_records = wire::records_of(body_of<wire::OpenReply>(opened));
    ASSERT_EQ(open_records.size(), 3u);
    EXPECT_EQ(open_records[0].id(), 21u);
    EXPECT_EQ(open_records[0].offset(), 2004u);
    EXPECT_EQ(open_records[1].descriptor(), -1);
    EXPECT_EQ(open_records[2].status(), EACCES);
    const auto unlinked = golden("reply-UnlinkedReply");
    const auto nodes = wire::records_of(body_of<wire::UnlinkedReply>(unlinked));
    ASSERT_EQ(nodes.size(), 2u);
    EXPECT_EQ(nodes[0].created_ns(), -1005);
    EXPECT_EQ(nodes[0].state(), 1);
    EXPECT_EQ(nodes[1].status(), ENOENT);
    const auto holders = wire::holders_of(body_of<wire::UnlinkedReply>(unlinked));
    ASSERT_EQ(holders.size(), 2u);
    EXPECT_EQ(holders[1].leases(), 36u);
    EXPECT_TRUE(holders[0].writable());
    const auto watched = golden("reply-WatchReply");
    const auto events = wire::records_of(body_of<wire::WatchReply>(watched));
    ASSERT_EQ(events.size(), 2u);
    EXPECT_EQ(events[0].replaced(), 42u);
    EXPECT_EQ(events[1].event(), 2);
}

TEST(Golden, ASessionWithProtocol1HasTheSameBytes) {
    const auto index = golden_index();
    std::set<std::string> made;
    for (const Sample& sample : make_samples(1)) {
        if (!index.contains(sample.name)) continue;  // a request of a later protocol
        made.insert(sample.name);
        EXPECT_EQ(sample.bytes, golden(sample.name)) << sample.name;
        EXPECT_EQ(sample.descriptors, index[sample.name].value("descriptors", "")) << sample.name;
    }
    EXPECT_EQ(made.size(), index.size());
}

TEST(Golden, EveryKindHasASample) {
    std::set<std::string> made;
    for (const Sample& sample : make_samples(wire::kProtocolHighest)) {
        made.insert(sample.name);
        if (sample.is_request) EXPECT_TRUE(wire::decode_request(sample.bytes)) << sample.name;
        else EXPECT_TRUE(wire::decode_reply(sample.bytes)) << sample.name;
    }
    for (auto kind : wire::EnumValuesRequestBody()) {
        if (kind == wire::RequestBody::NONE) continue;
        EXPECT_TRUE(made.contains(std::string("request-") + wire::EnumNameRequestBody(kind)));
    }
    for (auto kind : wire::EnumValuesReplyBody()) {
        if (kind == wire::ReplyBody::NONE) continue;
        EXPECT_TRUE(made.contains(std::string("reply-") + wire::EnumNameReplyBody(kind)));
    }
}

// A request that protocol 1 does not have is not sent to a gshmd of 0.1.
TEST(Golden, RequestsOfProtocol1AreThoseThatWereReleased) {
    const auto index = golden_index();
    for (auto kind : wire::EnumValuesRequestBody()) {
        if (kind == wire::RequestBody::NONE) continue;
        const std::string name = std::string("request-") + wire::EnumNameRequestBody(kind);
        EXPECT_EQ(index.contains(name), wire::first_protocol_of(kind) == 1) << name;
    }
}

}  // namespace
}  // namespace gshm::core::test
