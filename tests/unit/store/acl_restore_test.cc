// ACLs of nodes that an earlier gshmd has written: they are there again, or the node is refused as damaged.
#include <gtest/gtest.h>

#include "catalog/encoding.h"
#include "store/acl.h"
#include "store/restore.h"
#include "support/store_rig.h"

namespace gshm::core::test {
namespace {

using Tag = AclTag;

const AclEntries kEntries = {{Tag::owner, 6, 0},
                             {Tag::user, 4, 2},
                             {Tag::owning_group, 0, 0},
                             {Tag::mask, 4, 0},
                             {Tag::other, 0, 0}};
const AclEntries kModeOnly = {{Tag::owner, 6, 0}, {Tag::owning_group, 4, 0}, {Tag::other, 0, 0}};

SavedNode saved(NodeKind kind, uint16_t mode = 0640) {
    SavedNode node;
    node.id = 50;
    node.kind = kind;
    node.mode = mode;
    node.links.push_back({1, 1, "x"});
    if (kind == NodeKind::object) node.device = 0;
    if (kind == NodeKind::symlink) node.target = "y";
    return node;
}

TEST(AclRestore, TheyAreThereAgain) {
    StoreRig rig;
    Restorer restorer(rig.store);
    SavedNode node = saved(NodeKind::directory);
    node.acl = encode_acl(kEntries);
    node.default_acl = encode_acl(kModeOnly);
    ASSERT_TRUE(restorer.add(node));
    ASSERT_TRUE(restorer.finish(nullptr, [](const auto&) { return true; }));
    const SessionId root = rig.store.begin_session({0, 0, 1, {}});
    EXPECT_EQ(*rig.store.acl(root, "x", AclKind::access), kEntries);
    EXPECT_EQ(*rig.store.acl(root, "x", AclKind::inherited), kModeOnly);
}

TEST(AclRestore, DamagedOnesAreRefused) {
    auto add = [](const SavedNode& node) {
        StoreRig rig;
        auto added = Restorer(rig.store).add(node);
        return added ? 0 : added.error().code;
    };
    auto with = [](NodeKind kind, std::string acl, std::string default_acl = {}, uint16_t mode = 0640) {
        SavedNode node = saved(kind, mode);
        node.acl = std::move(acl);
        node.default_acl = std::move(default_acl);
        return node;
    };
    const std::string good = encode_acl(kEntries);
    EXPECT_EQ(add(with(NodeKind::object, good)), 0);
    EXPECT_EQ(add(with(NodeKind::object, good, {}, 0660)), EUCLEAN) << "another mode";
    EXPECT_EQ(add(with(NodeKind::object, encode_acl(kModeOnly))), EUCLEAN) << "is never stored";
    EXPECT_EQ(add(with(NodeKind::object, {}, good)), EUCLEAN) << "no directory";
    EXPECT_EQ(add(with(NodeKind::symlink, good)), EUCLEAN);
    EXPECT_EQ(add(with(NodeKind::directory, encode_acl({}))), EUCLEAN) << "no entries";
    EXPECT_EQ(add(with(NodeKind::directory, {}, good.substr(0, good.size() - 1))), EUCLEAN);
    for (size_t at = 0; at < good.size(); ++at) {
        std::string bad = good;
        bad[at] = static_cast<char>(bad[at] ^ 0x40);
        // Another user or group is a change that only the row's checksum finds. The ids of the other entries are not
        // read.
        const bool in_id = at >= 4 && (at - 4) % 8 >= 4;
        EXPECT_EQ(add(with(NodeKind::object, bad)), in_id ? 0 : EUCLEAN) << at;
    }
}

TEST(AclRestore, TheRowsPartsAreReadOnce) {
    StoreRig rig;
    const SessionId root = rig.store.begin_session({0, 0, 1, {}});
    ASSERT_TRUE(rig.store.make(root, {.name = "d", .mode = 0640, .flags = kCreateKeep}));
    ASSERT_TRUE(rig.store.set_attribute(root, "d", "a", "b"));
    ASSERT_TRUE(rig.store.change_acl(root, "d", AclKind::access, Store::AclChange::replace, kEntries));
    ASSERT_TRUE(rig.store.change_acl(root, "d", AclKind::inherited, Store::AclChange::replace, kEntries));
    const std::string bytes = encode_more(**rig.store.stat(root, "d"), {});
    SavedNode node;
    ASSERT_TRUE(decode_more(bytes, node, {}));
    EXPECT_EQ(node.acl, encode_acl(kEntries));
    EXPECT_EQ(node.default_acl, encode_acl(kEntries));
    EXPECT_EQ(node.attributes, (Attributes{{"a", "b"}}));
    for (size_t length = 0; length < bytes.size(); ++length) {
        SavedNode part;
        const bool read = decode_more(bytes.substr(0, length), part, {}).has_value();
        EXPECT_TRUE(!read || part.acl.size() + part.default_acl.size() < 88);
    }
    SavedNode twice;
    EXPECT_EQ(code_of(decode_more(bytes + bytes, twice, {})), EUCLEAN);
    SavedNode none;
    EXPECT_EQ(code_of(decode_more(std::string("\4\0\0\0\0\0\0\0\0", 9), none, {})), EUCLEAN);
    SavedNode unknown;
    EXPECT_EQ(code_of(decode_more("\x63", unknown, {})), EUCLEAN);
}

}  // namespace
}  // namespace gshm::core::test
