// gshm snapshot and gshm restore from a user's view.
#include "integration/other_user.h"
#include "integration/snapshot_fixture.h"

namespace gshm::core::test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

void expect_made(gshm_client* client, uint32_t kind, const char* name, const char* target, uint32_t mode,
                 uint32_t uid) {
    gshm_make_spec spec = GSHM_MAKE_SPEC_INIT;
    spec.kind = kind;
    spec.name = name;
    spec.target = target;
    spec.mode = mode;
    if (uid != 0) {
        spec.flags |= GSHM_OWNER;
        spec.uid = spec.gid = uid;
    }
    EXPECT_EQ(gshm_make(client, &spec), 0) << gshm_last_error();
}

void expect_empty_object(gshm_client* client, const char* name) {
    gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
    spec.name = name;
    spec.mode = 0640;
    spec.flags = GSHM_EMPTY | GSHM_KEEP | GSHM_NO_MAP;
    gshm_object* object = nullptr;
    EXPECT_EQ(gshm_create(client, &spec, &object), 0) << gshm_last_error();
    gshm_close(object);
}

// The properties that must not change.
nlohmann::json essence(nlohmann::json object) {
    for (const char* key : {"id", "extent", "extent_offset", "allocation_bytes", "created_ns", "created", "modified_ns",
                            "modified", "leases"})
        object.erase(key);
    return object;
}

class RoundTripTest : public SnapshotTest, public ::testing::WithParamInterface<const char*> {
protected:
    void SetUp() override { ASSERT_NO_FATAL_FAILURE(restart_all()); }
    void restart_all() { restart({"--device", "host:256M", "--device", "cuda"}, fake_cuda_env(1)); }
};

TEST_P(RoundTripTest, EverythingComesBack) {
    const std::string device = GetParam();
    const bool root = ::geteuid() == 0;
    put("models/large", noise(9 * kMiB + 5, 1), "0640", device);
    put("models/small", noise(1000, 2), "0444", device);
    put("models/zeros", std::string(6 * kMiB, '\0'), "0400", device);
    ok({"create", "open/large", "--size", "5M", "--fill", "9", "--device", device, "--dedicated"});
    ok({"create", "open/small", "--size", "77", "--fill", "8", "--device", device});
    ok({"attr", "models/small", "dtype", "f32"});
    ok({"attr", "models/small", "bytes", "00ff10", "-x"});
    auto client = connect();
    expect_made(client.get(), GSHM_KIND_DIRECTORY, "kept", nullptr, 01750, root ? 1234 : 0);
    expect_made(client.get(), GSHM_KIND_DIRECTORY, "closed", nullptr, 0700, root ? 1235 : 0);
    expect_made(client.get(), GSHM_KIND_SYMLINK, "kept/link", "../models/small", 0, 0);
    expect_made(client.get(), GSHM_KIND_SYMLINK, "dangling", "nowhere", 0, 0);
    expect_empty_object(client.get(), "kept/empty");
    ASSERT_EQ(gshm_link(client.get(), "models/large", "kept/second"), 0) << gshm_last_error();
    if (root) {
        const gshm_changes changes = {sizeof changes, GSHM_CHANGE_OWNER | GSHM_CHANGE_MODE, 04711, 1234, 1235};
        ASSERT_EQ(gshm_change(client.get(), "open/large", &changes), 0) << gshm_last_error();
    }
    client.reset();

    const Args objects = {"models/large", "models/small", "models/zeros", "open/large", "open/small", "kept/empty"};
    const Args others = {"models", "open", "kept", "closed", "dangling", "kept/link"};
    std::map<std::string, Json> before;
    std::map<std::string, std::string> bytes;
    for (const auto& name : objects) bytes[name] = cat(name);
    for (const auto& list : {objects, others})
        for (const auto& name : list) before[name] = essence(stat(name));
    const auto result = json({"snapshot", saved()});
    EXPECT_EQ(result["objects"], 6u);
    EXPECT_EQ(result["symlinks"], 2u);
    EXPECT_LT(result["stored_bytes"].get<uint64_t>(), 10 * kMiB);  // only the noise takes space
    EXPECT_EQ(ok({"restore", "--dry-run", saved()}).find("6 objects"), saved().size() + 2);

    ASSERT_NO_FATAL_FAILURE(restart_all());
    const auto restored = json({"restore", saved()});
    EXPECT_EQ(restored["objects"], 6u);
    EXPECT_EQ(restored["failed"], Json::array());
    for (const auto& name : objects) EXPECT_TRUE(bytes[name] == cat(name)) << name;
    for (const auto& [name, was] : before) EXPECT_EQ(essence(stat(name)), was);
    EXPECT_EQ(stat("kept/second")["id"], stat("models/large")["id"]);
    EXPECT_EQ(cat("kept/link"), bytes["models/small"]);
    EXPECT_EQ(ok({"ls", "-r"}).find(".gshm-restore"), std::string::npos);
    char target[64] = "";
    size_t length = 0;
    client = connect();
    ASSERT_EQ(gshm_read_link(client.get(), "dangling", target, sizeof target, &length), 0);
    EXPECT_EQ(std::string(target, length), "nowhere");
    // Explicit directories stay explicit. Those that were implied by an object do not.
    for (const char* name : {"kept/link", "kept/empty", "kept/second"}) ok({"rm", name});
    ok({"rm", "open/small", "open/large"});
    EXPECT_TRUE(exists("kept"));
    EXPECT_TRUE(exists("closed"));
    EXPECT_FALSE(exists("open"));

    const auto again = json({"restore", saved(), "models"});
    EXPECT_EQ(again["already_there"], 3u);
    EXPECT_EQ(again["read_chunks"], 0u);
    EXPECT_FALSE(exists("open/small"));
}

INSTANTIATE_TEST_SUITE_P(Devices, RoundTripTest, ::testing::Values("host", "cuda:0"),
                         [](const auto& info) { return std::string(info.param).substr(0, 4); });

TEST_F(SnapshotTest, OnlyWhatIsNamed) {
    for (const char* name : {"a/b/x", "a/b/y", "a/z", "ab"}) put(name, name);
    ok({"snapshot", saved(), "a/b/", "ab"});
    restart();
    ok({"restore", saved()});
    EXPECT_EQ(ok({"ls", "-r"}), "a/b/x\na/b/y\nab\n");
    ok({"rm", "-r", "a", "ab"});
    ok({"restore", saved(), "a/b/y"});
    EXPECT_EQ(ok({"ls", "-r"}), "a/b/y\n");
    fails(4, {"restore", saved(), "nothing"}, {"nothing"});
    fails(4, {"snapshot", scratch() + "/other", "nothing"}, {"nothing"});
}

TEST_F(SnapshotTest, NamesThatExistAreNotReplacedUnaskedFor) {
    put("same", noise(100, 1));
    put("other", noise(5 * kMiB, 2));
    put("state", "abc");
    ok({"snapshot", saved()});
    ok({"rm", "other", "state"});
    put("other", noise(5 * kMiB, 3));
    ok({"create", "state", "--size", "3"});
    ok({"write", "state"}, "abc");
    const auto same_id = stat("same")["id"];
    fails(6, {"restore", saved()},
          {"other exists and has other contents", "state exists and is not sealed", "--replace"});
    EXPECT_TRUE(cat("other") == noise(5 * kMiB, 3));
    const auto replaced = json({"restore", "--replace", saved()});
    EXPECT_EQ(replaced["objects"], 2u);
    EXPECT_EQ(replaced["already_there"], 1u);
    EXPECT_TRUE(cat("other") == noise(5 * kMiB, 2));
    EXPECT_EQ(stat("state")["state"], "sealed");
    EXPECT_EQ(stat("same")["id"], same_id);
}

TEST_F(SnapshotTest, ACompleteSnapshotIsOnlyReplacedIfAskedTo) {
    put("a", noise(9 * kMiB, 1));
    put("b", noise(9 * kMiB, 2));
    EXPECT_EQ(json({"snapshot", saved()})["written_chunks"], 6u);
    const auto before = read_file(saved("manifest.jsonl"));
    fails(6, {"snapshot", saved()}, {"has a snapshot already", "--update"});
    EXPECT_EQ(read_file(saved("manifest.jsonl")), before);

    // Another daemon has other ids; unchanged bytes are still not written again.
    restart();
    ok({"restore", saved()});
    ok({"rm", "b"});
    put("b", noise(9 * kMiB, 3));
    const auto updated = json({"snapshot", "--update", saved()});
    EXPECT_EQ(updated["reused_chunks"], 3u);
    EXPECT_EQ(updated["written_chunks"], 3u);
    restart();
    ok({"restore", saved()});
    EXPECT_TRUE(cat("a") == noise(9 * kMiB, 1));
    EXPECT_TRUE(cat("b") == noise(9 * kMiB, 3));
    // Files without used chunks are removed.
    ok({"rm", "a", "b"});
    put("c", "c");
    ok({"snapshot", "--update", saved()});
    EXPECT_LT(data_bytes(), kMiB);
}

TEST_F(SnapshotTest, AnotherMachineHasOtherDevices) {
    restart({"--device", "cuda"}, fake_cuda_env(1));
    put("x", "bytes", "0600", "cuda:0");
    ok({"snapshot", saved()});
    restart();
    fails(4, {"restore", saved()}, {"\"x\" was on cuda:0", "it has host", "--device"});
    fails(4, {"restore", saved(), "--device", "cuda:7"}, {"cuda:7"});
    EXPECT_FALSE(exists("x"));
    ok({"restore", saved(), "--device", "host"});
    EXPECT_EQ(stat("x")["device"], "host");
    EXPECT_EQ(cat("x"), "bytes");
}

TEST_F(SnapshotTest, AnObjectThatChangesAllTheTimeIsNamed) {
    ok({"create", "restless", "--size", "64M"});
    put("quiet", "quiet");
    auto client = connect();
    gshm_object* object = nullptr;
    ASSERT_EQ(gshm_open(client.get(), "restless", GSHM_WRITE | GSHM_NO_MAP, &object), 0);
    ChildProcess child;
    ASSERT_TRUE(child.spawn(cli_argv({"--json", "snapshot", saved()})));
    while (child.running()) EXPECT_EQ(gshm_copy_in(object, 63 * kMiB, "x", 1), 0);
    const auto result = child.finish();
    gshm_close(object);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.err.find("restless is open for writing"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("restless changes all the time"), std::string::npos) << result.err;
    EXPECT_EQ(Json::parse(result.out)["changing"], Json::array({"restless"}));
    EXPECT_TRUE(manifest_entry("restless")["changing"].get<bool>());
}

TEST_F(SnapshotTest, WhatAnOrdinaryUserRestoresIsTheirs) {
    if (const auto missing = missing_for_nobody(); !missing.empty()) GTEST_SKIP() << missing;
    const auto as_nobody = [&](const Args& args) { return run_as_nobody(cli_argv(args)); };
    auto client = connect();
    expect_made(client.get(), GSHM_KIND_DIRECTORY, "readonly", nullptr, 0555, 0);
    put("readonly/large", noise(9 * kMiB, 1), "0444");
    put("readonly/small", "small", "0444");
    put("private", "private", "0600");
    EXPECT_EQ(as_nobody({"snapshot", scratch() + "/other"}).exit_code, 1 + 4);  // no permission to create the folder
    ok({"snapshot", saved()});
    ::chmod(saved().c_str(), 0755);
    for (const auto& file : std::filesystem::directory_iterator(saved())) ::chmod(file.path().c_str(), 0644);
    restart();
    const auto restored = as_nobody({"restore", saved()});
    EXPECT_EQ(restored.exit_code, 0) << restored.err;
    for (const char* name : {"readonly", "readonly/large", "readonly/small", "private"})
        EXPECT_EQ(stat(name)["uid"], 65534u) << name;
    EXPECT_EQ(stat("readonly")["mode"], "0555");
    EXPECT_EQ(stat("readonly/large")["mode"], "0444");
    EXPECT_TRUE(cat("readonly/large") == noise(9 * kMiB, 1));
}

}  // namespace
}  // namespace gshm::core::test
