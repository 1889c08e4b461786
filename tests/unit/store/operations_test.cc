// The library (by name, with access checks) and the mount (by node) share one set of operations.
#include <linux/fs.h>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "base/limits.h"
#include "store/files.h"
#include "store/operations.h"
#include "support/store_rig.h"

namespace gshm::core::test {
namespace {

struct Told final : TreeObserver {
    void entry_added(const Directory&, std::string_view) override {}
    void entry_removed(const Directory&, std::string_view, const Node&) override {}
    void node_changed(const Node& node) override { nodes.push_back(node.id); }
    std::vector<NodeId> nodes;
};

class OperationsTest : public ::testing::Test {
protected:
    void SetUp() override {
        object = *rig.create(session, "o", 1000, 0644);
        ASSERT_TRUE(rig.store.release(session, object->id, Access::write));
        files.set_observer(&told);
    }
    void TearDown() override { files.set_observer(nullptr); }

    Directory& root() { return *as_directory(files.find(Files::kRoot)); }
    // The times that the operation changes.
    std::string times_changed(const std::function<Status()>& operation) {
        told.nodes.clear();
        const int64_t accessed = object->accessed_ns, modified = object->modified_ns, changed = object->changed_ns;
        auto status = operation();
        if (!status) return fmt::format("error {}", status.error().code);
        std::string text;
        if (object->accessed_ns != accessed) text += "a";
        if (object->modified_ns != modified) text += "m";
        if (object->changed_ns != changed) text += "c";
        return text;
    }
    bool is_told() const { return std::ranges::find(told.nodes, object->id) != told.nodes.end(); }

    StoreRig rig;
    Files files{rig.store};
    Told told;
    SessionId session = rig.store.begin_session({1, 1, 100, {}});
    SessionId admin = rig.store.begin_session({0, 0, 101, {}});
    Object* object = nullptr;
};

TEST_F(OperationsTest, SealingIsNoWriting) {
    EXPECT_EQ(times_changed([&] { return rig.store.seal(session, "o"); }), "c");
    EXPECT_TRUE(is_told());
    Object* other = *files.make_object(root(), "other", {1, 1, 0644});
    object = other;
    EXPECT_EQ(times_changed([&] { return files.seal(*other); }), "c");
}

TEST_F(OperationsTest, AttributesChangeTheTimeOfChangeByEveryWay) {
    EXPECT_EQ(times_changed([&] { return rig.store.set_attribute(session, "o", "k", "v"); }), "c");
    EXPECT_TRUE(is_told());
    EXPECT_EQ(times_changed([&] { return rig.store.remove_attribute(session, "o", "k"); }), "c");
    EXPECT_TRUE(is_told());
    EXPECT_EQ(times_changed([&] { return files.set_attribute(*object, "k", "v", 0); }), "c");
    EXPECT_EQ(times_changed([&] { return files.remove_attribute(*object, "k"); }), "c");
}

TEST_F(OperationsTest, AttributesHaveOneLimitByEveryWay) {
    const std::string longest(limits::kAttributeNameBytes, 'n');
    const std::string largest(limits::kAttributeValueBytes, 'v');
    const std::function<Status(std::string_view, std::string_view)> ways[] = {
        [&](auto name, auto value) { return rig.store.set_attribute(session, "o", name, value); },
        [&](auto name, auto value) { return files.set_attribute(*object, name, value, 0); },
        [&](auto name, auto value) -> Status {
            const Attributes given{{std::string(name), std::string(value)}};
            return Operations::check_attributes(given);
        }};
    for (const auto& set : ways) {
        EXPECT_EQ(code_of(set("", "v")), EINVAL);
        EXPECT_TRUE(set(longest, "v"));
        EXPECT_EQ(code_of(set(longest + "n", "v")), ERANGE);
        EXPECT_TRUE(set("k", largest));
        EXPECT_EQ(code_of(set("k", largest + "v")), E2BIG);
    }
    for (const auto& name : {longest, std::string("k")}) ASSERT_TRUE(files.remove_attribute(*object, name));
    Attributes all;
    for (size_t i = 1; i < limits::kAttributesBytes / largest.size(); ++i) {
        all[std::to_string(i)] = largest;
        ASSERT_TRUE(files.set_attribute(*object, std::to_string(i), largest, 0));
    }
    EXPECT_EQ(code_of(rig.store.set_attribute(session, "o", "more", largest)), ENOSPC);
    EXPECT_EQ(code_of(files.set_attribute(*object, "more", largest, 0)), ENOSPC);
    all["more"] = all["even more"] = largest;
    EXPECT_EQ(code_of(Operations::check_attributes(all)), ENOSPC);
}

TEST_F(OperationsTest, SpecialFilesHaveNoAttributes) {
    ASSERT_TRUE(files.make_special(root(), "pipe", {1, 1, 0666}, S_IFIFO, 0));
    EXPECT_EQ(code_of(rig.store.set_attribute(session, "pipe", "k", "v")), EPERM);
    EXPECT_EQ(code_of(rig.store.remove_attribute(session, "pipe", "k")), EPERM);
    EXPECT_EQ(code_of(rig.store.get_attribute(session, "pipe", "k")), ENODATA);
    EXPECT_TRUE((*rig.store.attributes(session, "pipe"))->empty());
}

// The kernel caches the link count for a day unless it is notified.
TEST_F(OperationsTest, AFurtherNameIsToldOfTheNode) {
    EXPECT_EQ(times_changed([&] { return rig.store.add_name(session, "o", "p"); }), "c");
    EXPECT_TRUE(is_told());
}

TEST_F(OperationsTest, DirectoriesGiveTheirGroupByEveryWay) {
    ASSERT_TRUE(rig.store.make(session, {.name = "d", .mode = 0755, .flags = kCreateKeep}));
    auto* d = as_directory(Files::child(root(), "d"));
    ASSERT_TRUE(rig.store.change(admin, "d", {kChangeOwner | kChangeMode, 02777, 1, 77}));
    EXPECT_EQ((*rig.create(session, "d/o", 1000, 0640))->gid, 77u);
    EXPECT_EQ((*rig.create(session, "d/made/o", 1000, 0640))->gid, 77u);
    ASSERT_TRUE(rig.store.make(session, {.name = "d/below"}));
    ASSERT_TRUE(files.make_directory(*d, "mount", {1, 1, 0755}));
    for (const char* name : {"made", "below", "mount"}) {
        EXPECT_EQ(Files::child(*d, name)->gid, 77u) << name;
        EXPECT_EQ(Files::child(*d, name)->mode, 02755) << name;
    }
    // A requested owner is set.
    ASSERT_TRUE(rig.store.make(admin, {.name = "d/given", .flags = kCreateOwner, .uid = 5, .gid = 6}));
    EXPECT_EQ(Files::child(*d, "given")->gid, 6u);
}

TEST_F(OperationsTest, ANewOwnerDoesNotGetTheOldOnesPowers) {
    ASSERT_TRUE(rig.store.change(session, "o", {kChangeMode, 04755, 0, 0}));
    ASSERT_TRUE(rig.store.change(admin, "o", {kChangeOwner, 0, 2, 2}));
    EXPECT_EQ(object->mode, 0755);
    ASSERT_TRUE(rig.store.change(admin, "o", {kChangeOwner | kChangeMode, 04755, 3, 3}));
    EXPECT_EQ(object->mode, 04755) << "asked for";
}

TEST_F(OperationsTest, ADirectoryReplacesAnEmptyOneByEveryWay) {
    for (const char* name : {"a", "b", "full"})
        ASSERT_TRUE(rig.store.make(session, {.name = name, .flags = kCreateKeep}));
    ASSERT_TRUE(rig.create(session, "full/x"));
    EXPECT_EQ(code_of(rig.store.rename(session, "a", "b", false)), EEXIST);
    EXPECT_EQ(code_of(rig.store.rename(session, "a", "full", true)), ENOTEMPTY);
    EXPECT_EQ(code_of(files.rename(root(), "a", root(), "full", 0)), ENOTEMPTY);
    EXPECT_EQ(code_of(rig.store.rename(session, "a", "o", true)), ENOTDIR);
    EXPECT_EQ(code_of(rig.store.rename(session, "o", "a", true)), EISDIR);
    ASSERT_TRUE(rig.store.rename(session, "a", "b", true));
    EXPECT_EQ(code_of(rig.store.stat(session, "a")), ENOENT);
    EXPECT_EQ(code_of(rig.store.rename(session, "o", "o", false)), EEXIST);
    EXPECT_EQ(code_of(files.rename(root(), "o", root(), "o", RENAME_NOREPLACE)), EEXIST);
    EXPECT_TRUE(rig.store.rename(session, "o", "o", true));
}

}  // namespace
}  // namespace gshm::core::test
