// Objects of an earlier catalog are taken up with the facts that a tier has kept.
#include <gtest/gtest.h>

#include "store/acl.h"
#include "store/restore.h"
#include "support/store_rig.h"

namespace gshm::core {
namespace {

using test::StoreRig;

class AdoptTest : public ::testing::Test {
protected:
    static KeptFacts facts(const std::string& path, std::vector<KeptFacts::Directory> directories) {
        KeptFacts facts;
        facts.names = {{path, std::move(directories)}};
        facts.mode = 0640;
        facts.uid = 1000;
        facts.gid = 100;
        facts.state = ObjectState::sealed;
        facts.flags = kCreateKeep | kCreateEvictable | kPinned;
        facts.size_bytes = 5000;
        facts.device = "memory:1";
        facts.created_ns = 1;
        facts.accessed_ns = 2;
        facts.modified_ns = 3;
        facts.changed_ns = 4;
        facts.attributes = {{"dtype", "f32"}};
        facts.acl = encode_acl(complete_acl({{AclTag::user, 4, 1234}}, 0640).value());
        return facts;
    }
    Object* adopt(const KeptFacts& facts, uint64_t file) {
        lost_.clear();
        return Restorer(rig_.store).adopt(facts, 1, file, &lost_);
    }
    StoreRig rig_;
    std::string lost_;
};

TEST_F(AdoptTest, AnObjectIsBackAsItWas) {
    auto kept = facts("a/b/one", {{0750, 1000, 100, false, ""}, {0700, 0, 0, true, ""}});
    kept.names.push_back({"two", {}});
    const Object* object = adopt(kept, 7);
    EXPECT_EQ(lost_, "");
    EXPECT_EQ(object->links, 2u);
    EXPECT_EQ(object->stored, 7u);
    EXPECT_TRUE(object->is_evicted());
    EXPECT_EQ(object->home(), 1u);
    auto now = kept_facts(*object, "memory:1");
    kept.flags &= ~kPinned;
    EXPECT_EQ(now, kept);
    EXPECT_EQ(rig_.store.stored_objects().size(), 1u);
    // A second object in the same directories.
    auto other = facts("a/b/three", kept.names[0].directories);
    const Object* next = adopt(other, 8);
    EXPECT_EQ(lost_, "");
    EXPECT_EQ(next->first_link.parent, object->first_link.parent);
}

TEST_F(AdoptTest, ATakenNameIsNotTouched) {
    const Object* first = adopt(facts("one", {}), 7);
    const Object* second = adopt(facts("one", {}), 8);
    EXPECT_EQ(lost_, "one");
    EXPECT_EQ(Tree::path_of(*first), "one");
    EXPECT_EQ(Tree::path_of(*second), "lost+found/one");
    EXPECT_EQ(second->first_link.parent->mode, 0700);
    EXPECT_GT(second->first_link.parent->created_ns, 0);
    EXPECT_GT(second->first_link.parent->modified_ns, 0);
    const Object* third = adopt(facts("one", {}), 9);
    EXPECT_EQ(Tree::path_of(*third), "lost+found/one.2");
    // A name below something that is not a directory.
    const Object* fourth = adopt(facts("one/below", {{0755, 0, 0, true, ""}}), 10);
    EXPECT_EQ(Tree::path_of(*fourth), "lost+found/below");
}

// It would be easier to reach than it was.
TEST_F(AdoptTest, DirectoriesWithOtherRightsAreNotUsed) {
    adopt(facts("d/one", {{0755, 1000, 100, true, ""}}), 7);
    const std::string acl = encode_acl(complete_acl({{AclTag::user, 7, 55}}, 0755).value());
    for (const KeptFacts::Directory& other :
         {KeptFacts::Directory{0700, 1000, 100, true, ""}, KeptFacts::Directory{0755, 1001, 100, true, ""},
          KeptFacts::Directory{0755, 1000, 101, true, ""}, KeptFacts::Directory{0755, 1000, 100, true, acl}}) {
        const Object* object = adopt(facts("d/two", {other}), 8);
        EXPECT_EQ(lost_, "d/two");
        EXPECT_TRUE(Tree::path_of(*object).starts_with("lost+found/"));
    }
    EXPECT_EQ(Tree::path_of(*adopt(facts("d/two", {{0755, 1000, 100, false, ""}}), 9)), "d/two");
}

TEST_F(AdoptTest, ObjectsCountAsEvicted) {
    adopt(facts("one", {}), 7);
    EXPECT_EQ(rig_.store.accounts().of(1, 1000).evicted_bytes, 5000u);
    EXPECT_EQ(rig_.store.accounts().of(1, 1000).evicted_objects, 1u);
    EXPECT_EQ(rig_.store.accounts().of(1, 1000).object_bytes, 0u);
}

}  // namespace
}  // namespace gshm::core
