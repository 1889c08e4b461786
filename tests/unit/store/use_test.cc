// The time of an object's last use.
#include <utility>

#include <gtest/gtest.h>

#include "store/files.h"
#include "store/shared.h"
#include "support/store_rig.h"

namespace gshm::core::test {
namespace {

class ObjectUse : public ::testing::Test {
protected:
    // Whether the object was used since the last call.
    bool used() {
        rig.clock.advance(1'000'000);
        const int64_t last = std::exchange(seen_ns, object->used_ns.load());
        return last != seen_ns;
    }

    StoreRig rig;
    SessionId session = rig.store.begin_session({1, 1, 10, {}});
    Object* object = *rig.create(session, "a", 1000, 0600, kCreateKeep);
    int64_t seen_ns = 0;
};

TEST_F(ObjectUse, IsItsCreationOpensAndTheEndsOfLeases) {
    EXPECT_TRUE(used());
    ASSERT_TRUE(rig.store.stat(session, "a"));
    ASSERT_TRUE(rig.store.seal(session, "a"));
    EXPECT_FALSE(used());
    ASSERT_TRUE(rig.store.release(session, object->id, Access::write));
    EXPECT_TRUE(used());
    ASSERT_TRUE(rig.store.open(session, "a", Access::read, false));
    EXPECT_TRUE(used());
    rig.store.end_session(session);
    EXPECT_TRUE(used());
    EXPECT_FALSE(used());
}

TEST_F(ObjectUse, IsKnownUnderTheSharedLock) {
    ASSERT_TRUE(rig.store.release(session, object->id, Access::write));
    EXPECT_TRUE(used());
    SharedStore shared(rig.store);
    ASSERT_NE(shared.open(session, "a", false), nullptr);
    EXPECT_TRUE(used());
    ASSERT_NE(shared.open_id(session, object->id, false), nullptr);
    EXPECT_TRUE(used());
    shared.release(session, object->id, Access::read);
    EXPECT_FALSE(used()) << "it is in use";
    shared.release(session, object->id, Access::read);
    EXPECT_TRUE(used());
}

TEST_F(ObjectUse, IsItsUseInTheMount) {
    Files files(rig.store);
    EXPECT_TRUE(used());
    auto file = files.open(*object, Access::read, {1, 1, 10, {}}, 1);
    ASSERT_TRUE(file);
    EXPECT_TRUE(used());
    files.close(*file);
    EXPECT_TRUE(used());
    rig.store.pin(object, Access::read);  // as threads that move it
    rig.store.unpin(object, Access::read);
    EXPECT_FALSE(used());
}

}  // namespace
}  // namespace gshm::core::test
