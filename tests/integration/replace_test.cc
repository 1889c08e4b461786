// New versions of objects in use: gshm_replace(), and the holders of old versions.
#include <random>
#include <set>

#include "library_fixture.h"

namespace gshm::core::test {
namespace {

class Replace : public LibraryTest, public ::testing::WithParamInterface<const char*> {
protected:
    void SetUp() override { start_all(); }
    const char* where() const { return GetParam(); }

    // All bytes of a version are its number.
    int write_version(gshm_client* client, const char* name, uint64_t size, uint8_t version, uint32_t flags = 0) {
        auto wanted = spec(name, size, where(), GSHM_UNNAMED | flags);
        wanted.mode = 0644;
        gshm_object* made = nullptr;
        if (int code = gshm_create(client, &wanted, &made); code != 0) return code;
        const Object object(made);
        if (int code = gshm_fill(made, 0, size, version); code != 0) return code;
        return gshm_replace(made, name);
    }
    // The version if all bytes agree; else -1.
    static int version_of(gshm_object* object) {
        std::vector<uint8_t> bytes(gshm_size(object));
        if (bytes.empty() || gshm_copy_out(object, 0, bytes.data(), bytes.size()) != 0) return -1;
        bool whole = std::all_of(bytes.begin(), bytes.end(), [&](uint8_t byte) { return byte == bytes[0]; });
        return whole ? bytes[0] : -1;
    }
    std::set<std::string> names(gshm_client* client) {
        gshm_listing* listing = nullptr;
        EXPECT_EQ(gshm_list(client, "", GSHM_RECURSIVE, &listing), 0) << gshm_last_error();
        std::set<std::string> found;
        for (size_t i = 0; i < gshm_listing_count(listing); ++i) found.insert(gshm_listing_name(listing, i));
        gshm_listing_free(listing);
        return found;
    }
};
INSTANTIATE_TEST_SUITE_P(Devices, Replace, ::testing::Values("host", "cuda:0"), [](const auto& info) {
    std::string name = info.param;
    std::erase(name, ':');
    return name;
});

TEST_P(Replace, ReadersSeeOneVersionOrTheOther) {
    constexpr int kVersions = 1000;
    constexpr uint64_t kSize = 64 << 10;
    ASSERT_EQ(write_version(client_.get(), "models/w", kSize, 0), 0) << gshm_last_error();
    std::atomic<bool> done = false;
    std::atomic<int> reads = 0;
    std::atomic<int> bad = 0;
    std::vector<std::thread> readers;
    for (int r = 0; r < 3; ++r) {
        readers.emplace_back([&, flags = r == 0 ? uint32_t{GSHM_NO_MAP} : 0u] {
            auto client = connect();
            while (!done) {
                gshm_object* object = nullptr;
                int code = gshm_open(client.get(), "models/w", GSHM_SEALED_ONLY | flags, &object);
                if (code != 0 || version_of(object) < 0) {
                    ++bad;
                    ADD_FAILURE() << code << ": " << gshm_last_error();
                }
                gshm_close(object);
                ++reads;
            }
        });
    }
    for (int version = 1; version <= kVersions && bad == 0; ++version) {
        // In a slab and in a dedicated extent.
        uint32_t flags = version % 8 == 0 ? uint32_t{GSHM_DEDICATED} : 0;
        ASSERT_EQ(write_version(client_.get(), "models/w", kSize, static_cast<uint8_t>(version), flags), 0)
            << gshm_last_error();
    }
    done = true;
    for (auto& reader : readers) reader.join();
    RecordProperty("reads", reads);
    EXPECT_EQ(names(client_.get()), (std::set<std::string>{"models/w"}));
    EXPECT_EQ(version_of(open(client_.get(), "models/w").get()), kVersions % 256);
    EXPECT_TRUE(eventually([&] { return device(client_.get(), where()).object_bytes == kSize; }));
    EXPECT_EQ(device(client_.get(), where()).unlinked_bytes, 0u);
}

TEST_P(Replace, WhoMapsTheOldVersionKeepsIt) {
    for (uint64_t size : {uint64_t{10'000}, uint64_t{3} << 20}) {
        ASSERT_EQ(write_version(client_.get(), "w", size, 1), 0) << gshm_last_error();
        auto reader = connect();
        auto old = open(reader.get(), "w");
        ASSERT_EQ(write_version(client_.get(), "w", size, 2), 0) << gshm_last_error();
        ASSERT_EQ(write_version(client_.get(), "w", size, 3), 0) << gshm_last_error();
        EXPECT_EQ(version_of(old.get()), 1);
        auto now = open(reader.get(), "w");
        EXPECT_EQ(version_of(now.get()), 3);
        EXPECT_EQ(device(client_.get(), where()).unlinked_bytes, size);  // version 2 was freed at once
        old.reset();
        EXPECT_TRUE(eventually([&] { return device(client_.get(), where()).unlinked_bytes == 0; }));
        EXPECT_EQ(device(client_.get(), where()).object_bytes, size);
        EXPECT_EQ(version_of(now.get()), 3);
        now.reset();
        ASSERT_EQ(gshm_unlink(client_.get(), "w"), 0);
    }
}

TEST_P(Replace, AKilledWriterLeavesAWholeVersionAndNothingElse) {
    constexpr uint64_t kSize = 300'000;
    ASSERT_EQ(write_version(client_.get(), "w", kSize, 7), 0) << gshm_last_error();
    std::mt19937 random(1);
    for (int round = 0; round < 40; ++round) {
        int ready[2];
        ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
        pid_t writer = fork();
        if (writer == 0) {
            auto client = connect();
            for (int version = 0;; ++version) {
                if (write_version(client.get(), "w", kSize, static_cast<uint8_t>(version), map_in_child(where())) != 0)
                    _exit(1);
                if (version == 0 && write(ready[1], "x", 1) != 1) _exit(1);
            }
        }
        close(ready[1]);
        char byte = 0;
        EXPECT_EQ(read(ready[0], &byte, 1), 1);
        close(ready[0]);
        usleep(random() % 2000);
        ASSERT_EQ(::kill(writer, SIGKILL), 0);
        int status = 0;
        ASSERT_EQ(waitpid(writer, &status, 0), writer);
        ASSERT_TRUE(WIFSIGNALED(status));
        ASSERT_GE(version_of(open(client_.get(), "w", GSHM_SEALED_ONLY).get()), 0);
        ASSERT_EQ(names(client_.get()), (std::set<std::string>{"w"}));
        ASSERT_TRUE(eventually([&] { return device(client_.get(), where()).object_bytes == kSize; }));
    }
    EXPECT_EQ(device(client_.get(), where()).unlinked_bytes, 0u);
}

TEST_P(Replace, NobodySeesWhatHasNoNameYet) {
    auto object = create(client_.get(), "deep/down/w", 5000, where(), GSHM_UNNAMED);
    EXPECT_TRUE(names(client_.get()).empty());
    EXPECT_EQ(open_code(client_.get(), "deep/down/w"), -ENOENT);
    gshm_object* other = nullptr;
    EXPECT_EQ(gshm_open_id(client_.get(), gshm_id(object.get()), 0, &other), -ENOENT);
    EXPECT_EQ(device(client_.get(), where()).unlinked_bytes, 5000u);
    ASSERT_EQ(gshm_replace(object.get(), "deep/down/w"), 0) << gshm_last_error();
    EXPECT_EQ(stat(client_.get(), "deep/down/w").state, uint32_t{GSHM_STATE_SEALED});
    EXPECT_EQ(stat(client_.get(), "deep/down/w").flags & GSHM_UNNAMED, 0u);
    EXPECT_EQ(device(client_.get(), where()).unlinked_bytes, 0u);
    // An abandoned object leaves nothing behind.
    create(client_.get(), "deep/down/w", 6000, where(), GSHM_UNNAMED).reset();
    EXPECT_TRUE(eventually([&] { return device(client_.get(), where()).object_bytes == 5000; }));
    EXPECT_EQ(version_of(open(client_.get(), "deep/down/w").get()), 0);
}

TEST_P(Replace, AWaiterIsTold) {
    // An unsealed object already has the name.
    auto unsealed = create(client_.get(), "w", 10, where(), GSHM_KEEP);
    std::thread waiter([&] {
        auto client = connect();
        gshm_stat_info info = {};
        info.struct_size = sizeof info;
        EXPECT_EQ(gshm_wait(client.get(), "w", GSHM_WAIT_SEALED, -1, &info), 0) << gshm_last_error();
        EXPECT_EQ(info.size_bytes, 20u);
    });
    ASSERT_EQ(write_version(client_.get(), "w", 20, 1), 0) << gshm_last_error();
    waiter.join();
}

using ReplaceCalls = LibraryTest;

TEST_F(ReplaceCalls, RefusesWhatRenamingOverWouldRefuse) {
    start_all();
    gshm_client* client = client_.get();
    gshm_object* none = nullptr;
    auto kept = spec("x", 10, "host", GSHM_UNNAMED | GSHM_KEEP);
    EXPECT_EQ(gshm_create(client, &kept, &none), -EINVAL);
    create(client, "d/x", 10, "host", GSHM_KEEP);
    auto over_directory = spec("d", 10, "host", GSHM_UNNAMED);
    EXPECT_EQ(gshm_create(client, &over_directory, &none), -EISDIR);

    auto fresh = create(client, "y", 10, "host", GSHM_UNNAMED);
    EXPECT_EQ(gshm_replace(fresh.get(), "d"), -EISDIR);
    EXPECT_EQ(gshm_replace(fresh.get(), "d/x/below"), -ENOTDIR);
    EXPECT_EQ(gshm_replace(fresh.get(), ""), -EINVAL);
    EXPECT_EQ(gshm_replace(fresh.get(), nullptr), -EINVAL);
    EXPECT_EQ(gshm_replace(nullptr, "y"), -EINVAL);
    gshm_stat_info info = {};
    info.struct_size = sizeof info;
    ASSERT_EQ(gshm_stat_object(fresh.get(), &info), 0);
    EXPECT_EQ(info.state, uint32_t{GSHM_STATE_OPEN}) << "sealed although it was not put there";

    auto shared = create(client, "shared", 10, "host", GSHM_KEEP);
    auto second = connect();
    auto writer = open(second.get(), "shared", GSHM_WRITE);
    EXPECT_EQ(gshm_replace(shared.get(), "y"), -EBUSY);
    EXPECT_EQ(gshm_replace(open(client, "shared").get(), "y"), -EACCES);
    writer.reset();
    ASSERT_EQ(gshm_ping(second.get()), 0);
    // An object with a name loses it.
    ASSERT_EQ(gshm_replace(shared.get(), "y"), 0) << gshm_last_error();
    EXPECT_EQ(open_code(client, "shared"), -ENOENT);
    EXPECT_EQ(stat(client, "y").id, gshm_id(shared.get()));
    ASSERT_EQ(gshm_replace(shared.get(), "y"), 0) << "once more, which changes nothing";

    if (geteuid() != 0) return;
    EXPECT_EQ(in_child(
                  [&] {
                      auto other = connect();
                      auto wanted = spec("y", 10, "host", GSHM_UNNAMED);
                      gshm_object* object = nullptr;
                      if (gshm_create(other.get(), &wanted, &object) != -EPERM) return 1;  // the root is sticky
                      wanted.name = "d/z";
                      if (gshm_create(other.get(), &wanted, &object) != -EACCES) return 2;
                      wanted.name = "mine";
                      if (gshm_create(other.get(), &wanted, &object) != 0) return 3;
                      if (gshm_replace(object, "y") != -EPERM) return 4;
                      if (gshm_replace(object, "d/x") != -EACCES) return 5;
                      return gshm_replace(object, "mine") == 0 ? 0 : 6;
                  },
                  65534),
              0);
}

TEST_F(ReplaceCalls, ALostDaemonIsSaid) {
    start_all();
    auto object = create(client_.get(), "w", 10, "host", GSHM_UNNAMED);
    kill();
    EXPECT_EQ(gshm_replace(object.get(), "w"), -ECONNREFUSED);
    EXPECT_NE(std::string(gshm_last_error()).find("not running"), std::string::npos) << gshm_last_error();
    // The next daemon knows the object.
    ASSERT_TRUE(start({"--device", "host:256M", "--device", "cuda"}, daemon_env())) << log();
    EXPECT_EQ(gshm_replace(object.get(), "w"), 0) << gshm_last_error();
    auto further = create(client_.get(), "w", 10, "host", GSHM_UNNAMED);
    kill();
    ASSERT_TRUE(start({"--device", "host:256M", "--device", "cuda", "--discard"}, daemon_env())) << log();
    EXPECT_EQ(gshm_replace(further.get(), "w"), -ESTALE);
    EXPECT_NE(std::string(gshm_last_error()).find("lost"), std::string::npos) << gshm_last_error();
}

}  // namespace
}  // namespace gshm::core::test
