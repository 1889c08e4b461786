// Snapshots that are damaged, interrupted, or run out of room.
#include <sys/file.h>

#include "integration/snapshot_fixture.h"

namespace gshm::core::test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kChunk = 4 * kMiB;
constexpr size_t kHeader = 88;

class DamageTest : public SnapshotTest {
protected:
    void SetUp() override {
        SnapshotTest::SetUp();
        put("bad", noise(3 * kChunk, 1));
        put("good", noise(kChunk, 2));
        put("text", std::string(kChunk, 't'));
        ok({"snapshot", "-j", "1", saved()});
        place = manifest_entry("bad")["chunks"][1];
        restart();
    }
    // Checking and restoring both report the file and the object. Intact objects are restored, damaged ones are not.
    void is_refused(const std::string& object, const Args& texts, const Args& intact) {
        for (const Args& command : {Args{"restore", "--dry-run", saved()}, Args{"restore", saved()}}) {
            Args all = texts;
            all.push_back("\"" + object + "\"");
            fails(1, command, all);
        }
        EXPECT_FALSE(exists(object));
        for (const auto& name : intact) EXPECT_TRUE(exists(name)) << name;
        EXPECT_EQ(ok({"ls", "-r"}).find(".gshm-restore"), std::string::npos);
    }
    std::string data() const { return saved("data-0001-00"); }
    size_t at() const { return place[1].get<size_t>(); }

    Json place;
};

TEST_F(DamageTest, InTheBytes) {
    damage(data(), at() + kHeader + kChunk / 2);
    is_refused("bad", {data(), "byte " + std::to_string(kChunk) + " of", "checksum"}, {"good", "text"});
}

TEST_F(DamageTest, InAHeader) {
    damage(data(), at() + 40);
    is_refused("bad", {data(), "header"}, {"good", "text"});
}

TEST_F(DamageTest, InCompressedBytes) {
    const auto text = manifest_entry("text")["chunks"][0];
    ASSERT_EQ(text[2], 1);
    damage(data(), text[1].get<size_t>() + kHeader + text[3].get<size_t>() / 2);
    is_refused("text", {data()}, {"good", "bad"});
}

TEST_F(DamageTest, TwoChunksOfAnotherAreExchanged) {
    auto bytes = read_file(data());
    const auto first = manifest_entry("bad")["chunks"][0][1].get<size_t>();
    for (size_t i = 0; i < kHeader + kChunk; ++i) std::swap(bytes[first + i], bytes[at() + i]);
    write_file(data(), bytes);
    is_refused("bad", {data(), "another chunk"}, {"good", "text"});
}

TEST_F(DamageTest, AFileIsCutShort) {
    std::filesystem::resize_file(data(), at() + kHeader + 100);
    is_refused("bad", {data(), "ends"}, {});
}

TEST_F(DamageTest, AFileIsMissing) {
    std::filesystem::remove(data());
    is_refused("bad", {data(), "no such file"}, {});
    EXPECT_EQ(ok({"ls", "-r"}), "");
}

TEST_F(DamageTest, InTheManifest) {
    const auto manifest = saved("manifest.jsonl");
    const auto whole = read_file(manifest);
    for (const size_t at : {size_t{0}, size_t{30}, whole.size() / 2, whole.size() - 2}) {
        write_file(manifest, whole);
        damage(manifest, at);
        fails(1, {"restore", saved()}, {manifest, "damaged"});
    }
    for (const size_t length : {size_t{0}, size_t{10}, whole.size() / 2, whole.size() - 1}) {
        write_file(manifest, whole.substr(0, length));
        fails(1, {"restore", saved()}, {manifest, "damaged"});
    }
    EXPECT_EQ(ok({"ls", "-r"}), "");
    std::filesystem::remove(manifest);
    fails(4, {"restore", saved()}, {"no complete snapshot"});
    write_file(manifest, whole);
    ok({"restore", saved()});
}

TEST_F(DamageTest, IsMendedByTheNextSnapshot) {
    ok({"restore", saved()});
    damage(data(), at() + kHeader + 7);
    const auto updated = json({"snapshot", "--update", saved()});
    EXPECT_EQ(updated["written_chunks"], 1u);
    EXPECT_EQ(updated["reused_chunks"], 4u);
    ok({"restore", "--dry-run", saved()});
}

class InterruptionTest : public SnapshotTest, public ::testing::WithParamInterface<int> {
protected:
    static constexpr unsigned kObjects = 8;
    static constexpr size_t kObjectBytes = 6 * kChunk;

    static std::string name(unsigned i) { return "models/w" + std::to_string(i); }
    void put_all() {
        for (unsigned i = 0; i < kObjects; ++i) put(name(i), noise(kObjectBytes, i));
    }
    void expect_all() {
        for (unsigned i = 0; i < kObjects; ++i) EXPECT_TRUE(cat(name(i)) == noise(kObjectBytes, i)) << i;
    }
    // Runs the command and sends the signal when the condition holds. True: the signal was in time.
    bool interrupt(const Args& command, const std::function<bool()>& when) {
        ChildProcess child;
        EXPECT_TRUE(child.spawn(cli_argv(command)));
        EXPECT_TRUE(eventually([&] { return when() || !child.running(); }));
        child.signal(GetParam());
        const auto result = child.finish();
        const bool told = result.err.find("interrupted") != std::string::npos;
        EXPECT_EQ(told, GetParam() == SIGINT && result.exit_code != 0) << result.err;
        return result.exit_code == 128 + GetParam();
    }
};

TEST_P(InterruptionTest, ASnapshotGoesOn) {
    put_all();
    bool interrupted = false;
    while (!interrupted && !HasFailure()) {
        std::filesystem::remove_all(saved());
        interrupted = interrupt({"snapshot", "-j", "1", saved()}, [&] { return data_bytes() > 4 * kChunk; });
    }
    ASSERT_TRUE(interrupted);
    fails(4, {"restore", saved()}, {"no complete snapshot"});
    const auto result = json({"snapshot", saved()});
    EXPECT_GE(result["reused_chunks"].get<unsigned>(), 3u);
    EXPECT_EQ(result["reused_chunks"].get<unsigned>() + result["written_chunks"].get<unsigned>(), kObjects * 6);
    ok({"restore", "--dry-run", saved()});
    restart();
    ok({"restore", saved()});
    expect_all();
}

TEST_P(InterruptionTest, ARestoreGoesOn) {
    put_all();
    ok({"snapshot", saved()});
    bool interrupted = false;
    while (!interrupted && !HasFailure()) {
        restart();
        auto client = connect();
        // The first object is restored, and one of the others is in progress.
        interrupted = interrupt({"restore", "-j", "1", saved()}, [&] {
            return gshm_wait(client.get(), name(0).c_str(), GSHM_WAIT_EXISTS, 1, nullptr) == 0;
        });
    }
    ASSERT_TRUE(interrupted);
    // Every named object is complete, and the others have left nothing behind.
    EXPECT_TRUE(eventually([&] { return ok({"ls", "-r"}).find(".gshm-restore") == std::string::npos; }));
    unsigned there = 0;
    for (unsigned i = 0; i < kObjects; ++i) {
        if (!exists(name(i))) continue;
        ++there;
        EXPECT_EQ(stat(name(i))["state"], "sealed");
        EXPECT_TRUE(cat(name(i)) == noise(kObjectBytes, i)) << i;
    }
    EXPECT_GE(there, 1u);
    const auto result = json({"restore", saved()});
    EXPECT_EQ(result["already_there"], there);
    EXPECT_EQ(result["objects"], kObjects - there);
    EXPECT_EQ(result["read_chunks"], (kObjects - there) * 6);
    expect_all();
}

INSTANTIATE_TEST_SUITE_P(Signals, InterruptionTest, ::testing::Values(SIGKILL, SIGINT),
                         [](const auto& info) { return info.param == SIGKILL ? "Kill" : "Interrupt"; });

TEST_F(SnapshotTest, ADiskThatIsFullIsNoLoss) {
    put("a", noise(8 * kChunk, 1));
    // A file size limit simulates a full disk.
    const std::string command = "ulimit -f " + std::to_string(3 * kChunk / 512) + "; exec \"$0\" \"$@\"";
    Args argv = {"/bin/sh", "-c", command};
    const auto snapshot = cli_argv({"snapshot", "-j", "1", saved()});
    argv.insert(argv.end(), snapshot.begin(), snapshot.end());
    ChildProcess child;
    ASSERT_TRUE(child.spawn(argv));
    const auto result = child.finish();
    EXPECT_EQ(result.exit_code, 7) << result.err;
    EXPECT_NE(result.err.find("saved chunks are kept; make room"), std::string::npos) << result.err;
    const auto again = json({"snapshot", saved()});
    EXPECT_GE(again["reused_chunks"].get<unsigned>(), 1u);
    EXPECT_EQ(again["reused_chunks"].get<unsigned>() + again["written_chunks"].get<unsigned>(), 8u);
    restart();
    ok({"restore", saved()});
    EXPECT_TRUE(cat("a") == noise(8 * kChunk, 1));
}

TEST_F(SnapshotTest, ADeviceThatIsFullFailsForThatObjectAlone) {
    put("small", noise(kMiB, 1));
    put("large", noise(40 * kMiB, 2));
    ok({"snapshot", saved()});
    restart({"--device", "host:16M"});
    fails(7, {"restore", saved()}, {"large"});
    EXPECT_TRUE(exists("small"));
    EXPECT_FALSE(exists("large"));
}

TEST_F(SnapshotTest, AFolderWithOtherThingsIsLeftAlone) {
    put("x", "x");
    std::filesystem::create_directory(saved());
    for (const char* name : {"data-own", "data-0001-00.bak", "notes"}) {
        write_file(saved(name), "mine");
        fails(9, {"snapshot", saved()}, {name, "alone"});
        EXPECT_EQ(read_file(saved(name)), "mine");
        std::filesystem::remove(saved(name));
    }
    ok({"snapshot", saved()});
}

TEST_F(SnapshotTest, TwoAtOnceInOneFolderAreRefused) {
    put("x", "x");
    ok({"snapshot", saved()});
    const int folder = ::open(saved().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ASSERT_EQ(::flock(folder, LOCK_EX | LOCK_NB), 0);
    fails(9, {"snapshot", "--update", saved()}, {"in use"});
    fails(9, {"restore", saved()}, {"in use"});
    ::close(folder);
}

}  // namespace
}  // namespace gshm::core::test
