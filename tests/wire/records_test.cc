// Records of other sizes than this build's, and malformed ones.
#include <array>

#include <gtest/gtest.h>

#include "wire/records.h"

namespace gshm::core::wire {

// The records of a later and of an earlier build.
struct Grown {
    NodeRecord node;
    uint64_t added = 0;
};
struct Shorter {
    uint64_t id = 0;
    uint64_t size_bytes = 0;
};
template <>
struct FirstLayout<Grown> {
    using Type = NodeRecord1;
};

namespace {

NodeRecord node(uint64_t id) {
    return {id, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18};
}

struct Packet {
    flatbuffers::FlatBufferBuilder builder;
    Bytes bytes;

    const StatReply& stat() const { return *flatbuffers::GetRoot<Reply>(bytes.data())->body_as_StatReply(); }
    bool is_good() const { return decode_reply(bytes).has_value(); }
};

void finish_stat(Packet& packet, flatbuffers::Offset<flatbuffers::Vector<uint8_t>> sized) {
    const auto body = CreateStatReply(packet.builder, 0, sized);
    packet.bytes = finish_reply(packet.builder, 1, ReplyBody::StatReply, body.Union());
}

// A StatReply whose records are `total` bytes from `from`.
std::vector<uint8_t> with_head(const void* from, size_t total, uint32_t record_bytes) {
    const RecordsHead head{record_bytes, 0};
    std::vector<uint8_t> bytes(sizeof head + total);
    memcpy(bytes.data(), &head, sizeof head);
    if (total > 0) memcpy(bytes.data() + sizeof head, from, total);
    return bytes;
}
Packet raw_stat(const void* from, size_t total, uint32_t record_bytes) {
    Packet packet;
    const auto bytes = with_head(from, total, record_bytes);
    packet.builder.ForceVectorAlignment(bytes.size(), 1, 8);
    finish_stat(packet, packet.builder.CreateVector(bytes));
    return packet;
}

TEST(Records, BothProtocolsHaveTheSameRecords) {
    const std::array nodes = {node(100), node(200)};
    for (uint32_t protocol : {1u, 2u}) {
        Packet packet;
        const auto fields = add_records<NodeRecord>(packet.builder, protocol, nodes);
        const auto body = CreateStatReply(packet.builder, fields.first, fields.sized);
        packet.bytes = finish_reply(packet.builder, 1, ReplyBody::StatReply, body.Union());
        ASSERT_TRUE(packet.is_good());
        EXPECT_EQ(packet.stat().records() != nullptr, protocol == 1);
        const auto records = records_of(packet.stat());
        ASSERT_EQ(records.size(), 2u);
        for (size_t i = 0; i < 2; ++i) {
            const NodeRecord read = records[i];
            EXPECT_EQ(memcmp(&read, &nodes[i], protocol == 1 ? sizeof(NodeRecord1) : sizeof read), 0);
        }
    }
}

TEST(Records, NoneAreRead) {
    for (uint32_t protocol : {1u, 2u}) {
        Packet packet;
        const auto fields = add_records<NodeRecord>(packet.builder, protocol, {});
        const auto body = CreateStatReply(packet.builder, fields.first, fields.sized);
        packet.bytes = finish_reply(packet.builder, 1, ReplyBody::StatReply, body.Union());
        ASSERT_TRUE(packet.is_good());
        EXPECT_EQ(records_of(packet.stat()).size(), 0u);
    }
}

TEST(Records, ALaterPeerSendsMore) {
    const std::array<Grown, 2> grown = {Grown{node(100), 0xabc}, Grown{node(200), 0xdef}};
    const Packet packet = raw_stat(grown.data(), sizeof grown, sizeof(Grown));
    ASSERT_TRUE(packet.is_good());
    const auto records = records_of(packet.stat());
    ASSERT_EQ(records.size(), 2u);
    EXPECT_EQ(records[1].id(), 200u);
    EXPECT_EQ(records[1].tier(), 16u);
}

TEST(Records, AnEarlierPeerSendsLess) {
    const std::array<Shorter, 3> shorter = {Shorter{1, 2}, Shorter{3, 4}, Shorter{5, 6}};
    const Packet packet = raw_stat(shorter.data(), sizeof shorter, sizeof(Shorter));
    ASSERT_TRUE(packet.is_good());
    const auto records = records_of(packet.stat());
    ASSERT_EQ(records.size(), 3u);
    EXPECT_EQ(records[2].id(), 5u);
    EXPECT_EQ(records[2].size_bytes(), 6u);
    EXPECT_EQ(records[2].extent(), 0u);
    EXPECT_EQ(records[2].status(), 0);
}

// A record that has grown: protocol 1 gets its first part, and what protocol 1 sends is read with zeros.
TEST(Records, AGrownRecordIsCutForProtocol1) {
    const std::array<Grown, 2> grown = {Grown{node(100), 0xabc}, Grown{node(200), 0xdef}};
    for (uint32_t protocol : {1u, 2u}) {
        Packet packet;
        const auto fields = add_records<Grown>(packet.builder, protocol, grown);
        const auto body = CreateStatReply(packet.builder, fields.first, fields.sized);
        packet.bytes = finish_reply(packet.builder, 1, ReplyBody::StatReply, body.Union());
        ASSERT_TRUE(packet.is_good());
        const StatReply& reply = packet.stat();
        const auto records = records_in<Grown>(reply.sized(), [&] { return reply.records(); });
        ASSERT_EQ(records.size(), 2u);
        EXPECT_EQ(records[0].node.id(), 100u);
        EXPECT_EQ(records[1].node.id(), 200u);
        EXPECT_EQ(records[1].node.tier(), 16u);
        EXPECT_EQ(records[1].added, protocol == 1 ? 0u : 0xdefu);
        EXPECT_EQ(records_of(reply)[1].id(), 200u) << "by a build that does not know the new part";
    }
}

TEST(Records, MalformedOnesAreRefused) {
    const std::array nodes = {node(100), node(200)};
    const auto refused = [&](size_t total, uint32_t record_bytes) {
        const Packet packet = raw_stat(nodes.data(), total, record_bytes);
        const auto decoded = decode_reply(packet.bytes);
        return !decoded && decoded.error().code == EPROTO;
    };
    EXPECT_FALSE(refused(sizeof nodes, sizeof(NodeRecord)));
    EXPECT_TRUE(refused(sizeof nodes, 0)) << "no size";
    EXPECT_TRUE(refused(0, 0));
    EXPECT_TRUE(refused(sizeof nodes - 8, sizeof(NodeRecord))) << "part of a record";
    EXPECT_TRUE(refused(sizeof nodes, sizeof nodes + 8)) << "less than one record";
    EXPECT_TRUE(refused(sizeof nodes, 4)) << "not a whole number of words";
    EXPECT_TRUE(refused(sizeof nodes, 22)) << "not a whole number of words";
    EXPECT_TRUE(refused(sizeof nodes, 0xffff'fff8)) << "less than one record";
    Packet none;
    finish_stat(none, 0);
    EXPECT_FALSE(none.is_good()) << "no records of either protocol";
    for (size_t length = 0; length < sizeof(RecordsHead); ++length) {
        Packet half;
        half.builder.ForceVectorAlignment(length, 1, 8);
        finish_stat(half, half.builder.CreateVector(std::vector<uint8_t>(length, 8)));
        EXPECT_FALSE(half.is_good()) << "without a size: " << length;
    }
}

TEST(Records, MisalignedOnesAreRefused) {
    const std::array nodes = {node(100)};
    size_t good = 0;
    size_t bad = 0;
    // A vector of bytes is aligned to 4; padding strings move it. Each half of the lengths gives the wrong word.
    for (size_t padding = 0; padding < 16; ++padding) {
        Packet packet;
        const auto text = packet.builder.CreateString(std::string(padding, 'x'));
        const auto sized = packet.builder.CreateVector(with_head(nodes.data(), sizeof nodes, sizeof(NodeRecord)));
        const auto body = CreateStatReply(packet.builder, 0, sized);
        ReplyBuilder reply(packet.builder);
        reply.add_id(1);
        reply.add_message(text);
        reply.add_body_type(ReplyBody::StatReply);
        reply.add_body(body.Union());
        packet.builder.Finish(reply.Finish(), "GSHM");
        packet.bytes = {packet.builder.GetBufferPointer(), packet.builder.GetSize()};
        const bool aligned = reinterpret_cast<uintptr_t>(packet.stat().sized()->data()) % 8 == 0;
        EXPECT_EQ(packet.is_good(), aligned);
        ++(aligned ? good : bad);
    }
    EXPECT_GT(good, 0u);
    EXPECT_GT(bad, 0u);
}

}  // namespace
}  // namespace gshm::core::wire
