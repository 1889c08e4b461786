// A move to another device, and changes of the object while its bytes are copied.
#include <optional>

#include <gtest/gtest.h>

#include "support/memory_rig.h"
#include "support/recount.h"

namespace gshm::core::test {
namespace {

struct MoveTest : ::testing::Test {
    static constexpr uint64_t kBytes = 3 * MemoryRig::kPage;

    MemoryRig rig;
    SessionId ada = rig.store.begin_session({1000, 1000, 1, {}});

    Object* make(std::string_view name, bool sealed) {
        auto made = rig.create(ada, name, kBytes, false);
        EXPECT_TRUE(made->object->extent->memory->fill(0, kBytes, 7));
        if (sealed) {
            EXPECT_TRUE(rig.store.seal(ada, name));
        }
        EXPECT_TRUE(rig.store.release(ada, made->object->id, Access::write));
        return made->object;
    }
    // `meanwhile` runs under the store lock after the copy, while the object is still in its old place.
    int move(Object* object, Mover::Holders holders, const std::function<void()>& meanwhile = {}) {
        rig.devices.set_on_copy([&] {
            StoreLock lock(rig.scheduler.store_mutex());
            if (auto once = std::exchange(meanwhile_, {})) once();
        });
        meanwhile_ = meanwhile;
        std::optional<Status> result;
        rig.scheduler.post([&] {
            store_lock.assert_held();
            rig.mover.move(*object, 1, holders, [&](Status status) { result = std::move(status); });
        });
        rig.scheduler.run_until([&] { return result.has_value(); });
        expect_true_accounts(rig.store);
        return *result ? 0 : result->error().code;
    }
    void set_given_up(bool given_up) {
        StoreLock lock(rig.scheduler.store_mutex());
        rig.departures.set_given_up(given_up);
    }
    void expect_there(Object* object, DeviceIndex device) {
        EXPECT_EQ(object->device, device);
        EXPECT_EQ(object->leases, 0u);
        std::vector<std::byte> bytes(kBytes);
        ASSERT_TRUE(object->extent->memory->copy_out(object->offset, bytes));
        EXPECT_TRUE(std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{7}; }));
        rig.devices.reclaim();
        rig.scheduler.run();
        auto used = [&](DeviceIndex index) {
            auto& limited = index == 0 ? rig.devices.first : rig.devices.second;
            return limited.used_bytes() - rig.devices.freed().bytes(index);
        };
        EXPECT_EQ(used(device), kBytes);
        EXPECT_EQ(used(1 - device), 0u);
    }

    std::function<void()> meanwhile_;
};

TEST_F(MoveTest, ChangesTheTimeOfTheLastChangeAlone) {
    Object* object = make("a", false);
    const int64_t modified = object->modified_ns;
    const int64_t changed = object->changed_ns;
    EXPECT_EQ(move(object, Mover::Holders::refuse), 0);
    EXPECT_EQ(object->modified_ns, modified);
    EXPECT_GT(object->changed_ns, changed);
    expect_there(object, 1);
}

TEST_F(MoveTest, IsGivenUpIfTheObjectWasOpenedForWriting) {
    Object* object = make("a", false);
    // Also closed again: only the counter shows it.
    EXPECT_EQ(move(object, Mover::Holders::refuse,
                   [&] {
                       ASSERT_TRUE(rig.store.open(ada, "a", Access::write, false));
                       ASSERT_TRUE(rig.store.release(ada, object->id, Access::write));
                   }),
              EBUSY);
    expect_there(object, 0);
}

TEST_F(MoveTest, IsGivenUpIfTheObjectIsHeldByNow) {
    Object* object = make("a", true);
    EXPECT_EQ(move(object, Mover::Holders::refuse, [&] { ASSERT_TRUE(rig.store.open(ada, "a", Access::read, false)); }),
              EBUSY);
    ASSERT_TRUE(rig.store.release(ada, object->id, Access::read));
    expect_there(object, 0);
}

// In the mount: a client that maps the old memory would not see what is written to the new one.
TEST_F(MoveTest, MemoryOfAFileIsKeptIfAClientOpensItMeanwhile) {
    Object* object = make("a", false);
    auto& device = static_cast<MemoryDevice&>(rig.devices.first.upstream());
    for (const Access access : {Access::read, Access::write}) {
        for (const bool closes : {true, false}) {
            const auto memory = object->extent->memory;
            bool opened = false;
            device.set_on_copy([&] {
                if (std::exchange(opened, true)) return;
                StoreLock lock(rig.scheduler.store_mutex());
                ASSERT_TRUE(rig.store.open(ada, "a", access, false));
                if (closes) {
                    ASSERT_TRUE(rig.store.release(ada, object->id, access));
                }
            });
            auto moved = rig.mover.resize(
                *object, *Store::gate(object),
                {.capacity_bytes = kBytes, .kept_bytes = kBytes, .size_bytes = kBytes, .unless_opened = true});
            device.set_on_copy({});
            const bool keeps = access == Access::write || !closes;  // a reader that has closed it has missed nothing
            EXPECT_EQ(moved ? 0 : moved.error().code, keeps ? ECANCELED : 0);
            EXPECT_EQ(object->extent->memory == memory, keeps);
            if (!closes) {
                ASSERT_TRUE(rig.store.release(ada, object->id, access));
            }
            rig.devices.reclaim();
            rig.scheduler.run();
            expect_true_accounts(rig.store);
        }
    }
}

TEST_F(MoveTest, KeepsTheOldMemoryForThoseWhoHoldItByNow) {
    Object* object = make("a", true);
    EXPECT_EQ(move(object, Mover::Holders::keep, [&] { ASSERT_TRUE(rig.store.open(ada, "a", Access::read, false)); }),
              0);
    ASSERT_TRUE(object->retired);
    EXPECT_EQ(rig.store.accounts().of(0), (Account{kBytes, kBytes, 0, 0}));
    {
        StoreLock lock(rig.scheduler.store_mutex());
        ASSERT_TRUE(rig.store.release(ada, object->id, Access::read));
    }
    EXPECT_FALSE(object->retired);
    expect_there(object, 1);
}

TEST_F(MoveTest, LeavesNothingOfAnObjectThatIsRemoved) {
    Object* object = make("a", true);
    move(object, Mover::Holders::refuse, [&] { ASSERT_TRUE(rig.store.unlink(ada, "a")); });
    rig.scheduler.run();
    for (int i = 0; i < 2; ++i) {
        rig.devices.reclaim();
        rig.scheduler.run();
    }
    EXPECT_EQ(rig.store.object_count(), 0u);
    EXPECT_EQ(rig.devices.first.used_bytes(), rig.devices.freed().bytes(0));
    EXPECT_EQ(rig.devices.second.used_bytes(), rig.devices.freed().bytes(1));
}

// The bytes of a sealed object cannot change, so its readers do not wait.
TEST_F(MoveTest, LetsOthersReadMeanwhile) {
    Object* object = make("a", true);
    auto gate = Store::gate(object);
    bool readable = false;
    EXPECT_EQ(move(object, Mover::Holders::refuse,
                   [&] {
                       readable = gate->mutex.try_lock_shared();
                       if (readable) gate->mutex.unlock_shared();
                   }),
              0);
    EXPECT_TRUE(readable);
}

TEST_F(MoveTest, EndsWithTheDaemon) {
    Object* object = make("a", true);
    set_given_up(true);
    EXPECT_EQ(move(object, Mover::Holders::refuse), EAGAIN);
    set_given_up(false);
    rig.mover.stop();
    EXPECT_EQ(move(object, Mover::Holders::refuse), EAGAIN);
    expect_there(object, 0);
}

}  // namespace
}  // namespace gshm::core::test
