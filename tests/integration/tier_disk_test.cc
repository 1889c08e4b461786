// A folder on disk as a tier: objects leave for it and come back byte for byte, also after a kill; a disk that is full,
// fails or vanishes loses nothing else; with `keep` objects outlive the catalog.
#include <sys/mount.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "integration/daemon_fixture.h"
#include "support/eventually.h"
#include "support/pattern.h"

namespace gshm::core::test {
namespace {

using Json = nlohmann::json;

constexpr size_t kBytes = size_t{8} << 20;

class TierDiskTest : public ::testing::Test, protected DaemonFixture {
protected:
    ~TierDiskTest() override {
        stop();
        if (mounted_) ::umount2(folder().c_str(), MNT_DETACH);
    }
    std::string folder() const { return scratch() + "/tier"; }
    std::vector<std::string> args(const std::string& more = ":512M", const std::string& device = "host:64M") const {
        return {"--device", device, "--tier", folder() + more};
    }
    // A small disk of its own; false: not permitted.
    bool mount_disk(const std::string& size) {
        std::filesystem::create_directory(folder());
        mounted_ = ::mount("none", folder().c_str(), "tmpfs", 0, ("mode=0700,size=" + size).c_str()) == 0;
        return mounted_;
    }
    RunResult put(const std::string& name, uint64_t seed, size_t bytes = kBytes) {
        return run_cli({"put", "--evictable", "-", name}, pattern(bytes, seed));
    }
    RunResult get(const std::string& name) { return run_cli({"get", name, "-"}); }
    // "": the object is there with its bytes.
    std::string wrong(const std::string& name, uint64_t seed, size_t bytes = kBytes) {
        const auto got = get(name);
        if (got.exit_code != 0) return name + ": " + got.err;
        return got.out == pattern(bytes, seed) ? "" : name + " has other bytes";
    }
    Json json(const std::vector<std::string>& command) {
        std::vector<std::string> all = {"--json"};
        all.insert(all.end(), command.begin(), command.end());
        const auto result = run_cli(all);
        return Json::parse(result.out, nullptr, false);
    }
    std::string tier_of(const std::string& name) {
        const auto stat = run_cli({"stat", name});
        return stat.exit_code == 0 && stat.out.find("disk") != std::string::npos ? "disk" : "";
    }
    // The properties that an object keeps.
    static Json comparable(const Json& stat) {
        Json kept;
        const Json& one = stat.contains("objects") ? stat["objects"][0] : stat;
        for (const char* key : {"mode", "uid", "gid", "size_bytes", "state", "device", "tier", "attributes",
                                "modified_ns", "modified", "created"})
            if (one.contains(key)) kept[key] = one[key];
        EXPECT_GE(kept.size(), 5u) << stat;
        return kept;
    }
    Json tier() { return json({"tiers"})["tiers"][0]; }
    size_t files() const {
        size_t count = 0;
        for (const auto& entry : std::filesystem::directory_iterator(folder()))
            count += entry.path().filename().string().size() == 16 ? 1 : 0;
        return count;
    }
    // As a restart of the machine: the runtime folder is in memory, and no process is left.
    void reboot() {
        kill();
        kill_keeper();
        std::filesystem::remove_all(dir());
    }

private:
    bool mounted_ = false;
};

TEST_F(TierDiskTest, ObjectsLeaveForTheFolderAndComeBack) {
    ASSERT_TRUE(start(args())) << log();
    for (uint64_t i = 0; i < 20; ++i) {
        const auto made = put("o/" + std::to_string(i), i);
        ASSERT_EQ(made.exit_code, 0) << i << ": " << made.err;
    }
    EXPECT_GE(files(), 12u);
    // Others may leave at the same time, for the share that stays free.
    bool same = false;
    for (int i = 0; i < 1000 && !same; ++i) same = tier()["objects"] == files();
    EXPECT_TRUE(same) << tier() << files();
    EXPECT_EQ(tier_of("o/0"), "disk");
    for (int round = 0; round < 2; ++round)
        for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(wrong("o/" + std::to_string(i), i), "");
    EXPECT_EQ(run_cli({"rm", "-r", "o"}).exit_code, 0);
    stop();
    ASSERT_TRUE(start(args())) << log();
    // The folder is empty when gshmd has removed what the earlier one did not.
    kill();
    ASSERT_TRUE(start(args())) << log();
    EXPECT_EQ(tier()["objects"], 0);
}

TEST_F(TierDiskTest, ARestartHasTheObjectsOfTheFolder) {
    ASSERT_TRUE(start(args())) << log();
    for (uint64_t i = 0; i < 12; ++i) ASSERT_EQ(put("o/" + std::to_string(i), i).exit_code, 0);
    for (int round = 0; round < 2; ++round) {
        kill();
        ASSERT_TRUE(start(args())) << log();
        for (uint64_t i = 0; i < 12; ++i) EXPECT_EQ(wrong("o/" + std::to_string(i), i), "");
    }
    ASSERT_TRUE(take_over(args())) << log();
    for (uint64_t i = 0; i < 12; ++i) EXPECT_EQ(wrong("o/" + std::to_string(i), i), "");
}

TEST_F(TierDiskTest, AFullFolderIsAnErrorThatLosesNothing) {
    ASSERT_TRUE(start(args(":20M", "host:32M"))) << log();
    uint64_t made = 0;
    RunResult last;
    while ((last = put("o/" + std::to_string(made), made)).exit_code == 0 && made < 20) ++made;
    EXPECT_GE(made, 4u);
    EXPECT_LE(made, 6u);
    EXPECT_NE(last.exit_code, 0);
    EXPECT_FALSE(last.err.empty());
    // An object that returns needs room for the one that leaves for it.
    EXPECT_EQ(run_cli({"rm", "o/" + std::to_string(made - 1)}).exit_code, 0);
    for (uint64_t i = 0; i + 1 < made; ++i) EXPECT_EQ(wrong("o/" + std::to_string(i), i), "");
    EXPECT_EQ(tier().value("failure", ""), "");
}

TEST_F(TierDiskTest, AFullDiskIsAnErrorThatLosesNothing) {
    if (!mount_disk("20M")) GTEST_SKIP() << "needs the right to mount";
    ASSERT_TRUE(start(args("", "host:32M"))) << log();
    uint64_t made = 0;
    while (put("o/" + std::to_string(made), made).exit_code == 0 && made < 20) ++made;
    EXPECT_GE(made, 4u);
    EXPECT_LE(made, 6u);
    EXPECT_EQ(run_cli({"rm", "o/" + std::to_string(made - 1)}).exit_code, 0);
    for (uint64_t i = 0; i + 1 < made; ++i) EXPECT_EQ(wrong("o/" + std::to_string(i), i), "");
    EXPECT_EQ(tier().value("failure", ""), "") << "a full disk has not failed";
    // There is room again.
    EXPECT_EQ(run_cli({"rm", "o/0", "o/1"}).exit_code, 0);
    EXPECT_EQ(put("o/new", 77).exit_code, 0);
    EXPECT_EQ(wrong("o/new", 77), "");
}

TEST_F(TierDiskTest, AFolderThatVanishesTakesOnlyItsObjects) {
    ASSERT_TRUE(start(args())) << log();
    for (const char* name : {"away", "here"}) ASSERT_EQ(put(name, 1).exit_code, 0);
    const auto demoted = run_cli({"demote", "away"});
    ASSERT_EQ(demoted.exit_code, 0) << demoted.err;
    std::filesystem::remove_all(folder());
    const auto got = get("away");
    EXPECT_NE(got.exit_code, 0);
    EXPECT_TRUE(got.err.contains("folder was removed")) << got.err;
    EXPECT_EQ(wrong("here", 1), "");
    EXPECT_NE(run_cli({"demote", "here"}).exit_code, 0);
    EXPECT_EQ(wrong("here", 1), "");
    EXPECT_TRUE(tier()["failure"].get<std::string>().contains("folder was removed")) << tier();
    EXPECT_EQ(run_cli({"rm", "away"}).exit_code, 0);
    EXPECT_EQ(put("new", 3).exit_code, 0);
    kill();
    ASSERT_TRUE(start(args())) << log();
    EXPECT_EQ(wrong("here", 1), "");
}

TEST_F(TierDiskTest, AnUnmountedDiskIsStillUsed) {
    if (!mount_disk("64M")) GTEST_SKIP() << "needs the right to mount";
    ASSERT_TRUE(start(args(""))) << log();
    for (const char* name : {"one", "two"}) ASSERT_EQ(put(name, 1).exit_code, 0);
    ASSERT_EQ(run_cli({"demote", "one"}).exit_code, 0);
    ASSERT_EQ(::umount2(folder().c_str(), MNT_DETACH), 0);
    EXPECT_EQ(run_cli({"demote", "two"}).exit_code, 0);
    EXPECT_EQ(wrong("one", 1), "");
    EXPECT_EQ(wrong("two", 1), "");
    EXPECT_TRUE(std::filesystem::is_empty(folder())) << "nothing goes to the disk below";
}

TEST_F(TierDiskTest, ADamagedFileIsAnErrorOfItsObjectAlone) {
    ASSERT_TRUE(start(args())) << log();
    for (const char* name : {"one", "two"}) ASSERT_EQ(put(name, 1).exit_code, 0);
    ASSERT_EQ(run_cli({"demote", "one"}).exit_code, 0);
    for (const auto& entry : std::filesystem::directory_iterator(folder())) {
        if (entry.path().filename().string().size() != 16) continue;
        std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(5'000'000);
        file << "damage";
    }
    for (int i = 0; i < 2; ++i) {
        const auto got = get("one");
        EXPECT_NE(got.exit_code, 0);
        EXPECT_TRUE(got.err.contains("its checksum is wrong")) << got.err;
    }
    ASSERT_EQ(run_cli({"demote", "two"}).exit_code, 0);
    EXPECT_EQ(wrong("two", 1), "");
    EXPECT_EQ(run_cli({"rm", "one"}).exit_code, 0);
}

TEST_F(TierDiskTest, AKillDuringEvictionsAndReturnsLosesNothing) {
    ASSERT_TRUE(start(args(":512M", "host:48M"))) << log();
    constexpr uint64_t kObjects = 10;
    for (uint64_t i = 0; i < kObjects; ++i) ASSERT_EQ(put("o/" + std::to_string(i), i).exit_code, 0);
    for (int round = 0; round < 8; ++round) {
        // Brings each back while others leave, until gshmd is killed at some moment of it.
        ChildProcess busy;
        std::vector<std::string> command = {"promote"};
        for (uint64_t i = 0; i < kObjects; ++i) command.push_back("o/" + std::to_string((i + round) % kObjects));
        ASSERT_TRUE(busy.spawn(cli_argv(command)));
        const size_t before = files();
        while (busy.running() && files() == before) std::this_thread::yield();
        kill();
        busy.reset();
        ASSERT_TRUE(start(args(":512M", "host:48M"))) << log();
        for (uint64_t i = 0; i < kObjects; ++i) ASSERT_EQ(wrong("o/" + std::to_string(i), i), "") << round;
        EXPECT_EQ(tier()["objects"], files());
    }
}

// ---- keep ----

TEST_F(TierDiskTest, KeptObjectsOutliveAShutdownAndAReboot) {
    ASSERT_TRUE(start(args(":512M:keep"))) << log();
    ASSERT_EQ(put("models/llama/w0", 1).exit_code, 0);
    ASSERT_EQ(put("models/w1", 2, 12345).exit_code, 0);
    ASSERT_EQ(put("removed", 3).exit_code, 0);
    ASSERT_EQ(put("stays on its device", 4).exit_code, 0);
    ASSERT_EQ(run_cli({"attr", "models/llama/w0", "dtype", "f32"}).exit_code, 0);
    const auto demoted = run_cli({"demote", "models/llama/w0", "models/w1", "removed"});
    ASSERT_EQ(demoted.exit_code, 0) << demoted.err;
    // Changes afterwards count, also those of a directory above.
    ASSERT_EQ(run_cli({"attr", "models/llama/w0", "late", "yes"}).exit_code, 0);
    ASSERT_EQ(run_cli({"mv", "models/llama", "models/alpaca"}).exit_code, 0);
    ASSERT_EQ(run_cli({"mv", "models", "kept"}).exit_code, 0);
    ASSERT_EQ(run_cli({"rm", "removed"}).exit_code, 0);
    const auto before = json({"stat", "kept/alpaca/w0"});
    ASSERT_EQ(run_cli({"shutdown"}).exit_code, 0);
    wait_for_end();
    for (int round = 0; round < 3; ++round) {
        ASSERT_TRUE(start(args(":512M:keep"))) << log();
        EXPECT_EQ(run_cli({"ls", "-r", "kept"}).exit_code, 0);
        EXPECT_EQ(tier_of("kept/alpaca/w0"), "disk");
        EXPECT_EQ(run_cli({"attr", "kept/alpaca/w0", "dtype"}).out, "f32");
        EXPECT_EQ(run_cli({"attr", "kept/alpaca/w0", "late"}).out, "yes");
        auto after = json({"stat", "kept/alpaca/w0"});
        // Ids and the time of the last change are those of another catalog.
        EXPECT_EQ(comparable(after), comparable(before));
        EXPECT_NE(run_cli({"stat", "removed"}).exit_code, 0);
        EXPECT_NE(run_cli({"stat", "stays on its device"}).exit_code, 0);
        EXPECT_NE(run_cli({"stat", "models"}).exit_code, 0);
        if (round == 1) {
            EXPECT_EQ(wrong("kept/w1", 2, 12345), "");
            ASSERT_EQ(run_cli({"demote", "kept/w1"}).exit_code, 0);
        }
        reboot();
    }
    ASSERT_TRUE(start(args(":512M:keep"))) << log();
    EXPECT_EQ(wrong("kept/alpaca/w0", 1), "");
    EXPECT_EQ(wrong("kept/w1", 2, 12345), "");
}

TEST_F(TierDiskTest, ATierWithoutKeepIsEmptyAfterAReboot) {
    ASSERT_TRUE(start(args())) << log();
    ASSERT_EQ(put("one", 1).exit_code, 0);
    ASSERT_EQ(run_cli({"demote", "one"}).exit_code, 0);
    EXPECT_EQ(files(), 1u);
    reboot();
    ASSERT_TRUE(start(args())) << log();
    EXPECT_NE(run_cli({"stat", "one"}).exit_code, 0);
    EXPECT_EQ(tier()["objects"], 0);
    ASSERT_EQ(put("one", 1).exit_code, 0);
    ASSERT_EQ(run_cli({"demote", "one"}).exit_code, 0);
    ASSERT_EQ(run_cli({"shutdown"}).exit_code, 0);
    wait_for_end();
    EXPECT_EQ(files(), 0u);
}

TEST_F(TierDiskTest, AForgottenKeepIsRefused) {
    ASSERT_TRUE(start(args(":512M:keep"))) << log();
    ASSERT_EQ(put("one", 1).exit_code, 0);
    ASSERT_EQ(run_cli({"demote", "one"}).exit_code, 0);
    ASSERT_EQ(run_cli({"shutdown"}).exit_code, 0);
    wait_for_end();
    EXPECT_FALSE(start(args(":512M")));
    EXPECT_TRUE(log().contains("add \":keep\" to have them back")) << log();
    ASSERT_TRUE(start(args(":512M:keep"))) << log();
    EXPECT_EQ(wrong("one", 1), "");
}

TEST_F(TierDiskTest, AForgottenKeepIsRefusedAlsoWithTheCatalog) {
    ASSERT_TRUE(start(args(":512M:keep"))) << log();
    ASSERT_EQ(put("one", 1).exit_code, 0);
    ASSERT_EQ(run_cli({"demote", "one"}).exit_code, 0);
    kill();
    EXPECT_FALSE(start(args("")));
    EXPECT_TRUE(log().contains("--tier " + folder() + ":512M:keep")) << log();
    EXPECT_TRUE(std::filesystem::exists(folder() + "/facts"));
    EXPECT_FALSE(start({"--device", "host:64M", "--tier", "none"}));
    EXPECT_TRUE(log().contains("start it with `--tier " + folder() + ":512M:keep`")) << log();
    ASSERT_TRUE(start({"--device", "host:64M"})) << log();
    ASSERT_EQ(run_cli({"shutdown"}).exit_code, 0);
    wait_for_end();
    EXPECT_EQ(files(), 1u);
    ASSERT_TRUE(start(args(":512M:keep"))) << log();
    EXPECT_EQ(wrong("one", 1), "");
    // Objects that are on their device end the need for it.
    EXPECT_TRUE(eventually([&] { return files() == 0; }));
    kill();
    EXPECT_TRUE(start(args(""))) << log();
    EXPECT_EQ(wrong("one", 1), "");
}

TEST_F(TierDiskTest, AMissingFolderWithObjectsIsRefusedAndNotMade) {
    ASSERT_TRUE(start(args())) << log();
    ASSERT_EQ(put("one", 1).exit_code, 0);
    ASSERT_EQ(run_cli({"demote", "one"}).exit_code, 0);
    kill();
    const std::string aside = scratch() + "/aside";
    std::filesystem::rename(folder(), aside);
    EXPECT_FALSE(start(args()));
    EXPECT_TRUE(log().contains("the tier " + folder() + " is missing")) << log();
    EXPECT_FALSE(std::filesystem::exists(folder()));
    // Another folder in its place, empty or of another tier, is not used either.
    std::filesystem::create_directory(folder());
    EXPECT_FALSE(start(args()));
    EXPECT_TRUE(log().contains("is another folder")) << log();
    EXPECT_TRUE(std::filesystem::is_empty(folder()));
    std::ofstream(folder() + "/gshm-tier") << "gshm-tier 1\ntier 00000000000000ff\nmachine \n";
    EXPECT_FALSE(start(args()));
    std::filesystem::remove_all(folder());
    std::filesystem::rename(aside, folder());
    ASSERT_TRUE(start(args())) << log();
    EXPECT_EQ(wrong("one", 1), "");
}

TEST_F(TierDiskTest, ATakeoverWithAWrongTierLeavesTheOtherGshmd) {
    ASSERT_TRUE(start(args(":512M:keep"))) << log();
    ASSERT_EQ(put("one", 1).exit_code, 0);
    ASSERT_EQ(run_cli({"demote", "one"}).exit_code, 0);
    const std::string foreign = scratch() + "/foreign";
    std::filesystem::create_directory(foreign);
    std::ofstream(foreign + "/thesis.tex") << "work of years";
    const std::string open_to_all = scratch() + "/open";
    std::filesystem::create_directory(open_to_all);
    std::filesystem::permissions(open_to_all, std::filesystem::perms::all);
    const std::string elsewhere = scratch() + "/elsewhere";
    std::filesystem::create_directory(elsewhere);
    std::ofstream(elsewhere + "/gshm-tier") << "gshm-tier 1\ntier 00000000000000ff\nmachine of-others\n";
    for (const std::string& tier :
         {foreign, open_to_all, elsewhere, folder(), scratch() + "/no/such", scratch() + "/new", std::string("none")}) {
        EXPECT_FALSE(take_over({"--tier", tier})) << tier;
        EXPECT_EQ(run_cli({"stat", "one"}).exit_code, 0) << tier << log();
    }
    EXPECT_FALSE(std::filesystem::exists(scratch() + "/new"));
    EXPECT_EQ(wrong("one", 1), "");
    ASSERT_EQ(run_cli({"demote", "one"}).exit_code, 0);
    ASSERT_TRUE(take_over(args(":256M:keep"))) << log();
    EXPECT_EQ(wrong("one", 1), "");
}

TEST_F(TierDiskTest, AKeptObjectWhoseNameIsTakenIsInLostAndFound) {
    ASSERT_TRUE(start(args(":512M:keep"))) << log();
    ASSERT_EQ(put("d/one", 1).exit_code, 0);
    ASSERT_EQ(run_cli({"demote", "d/one"}).exit_code, 0);
    ASSERT_EQ(run_cli({"shutdown"}).exit_code, 0);
    wait_for_end();
    ASSERT_TRUE(start({"--device", "host:64M"})) << log();
    ASSERT_EQ(put("d/one", 2).exit_code, 0);
    kill();
    ASSERT_TRUE(start(args(":512M:keep"))) << log();
    EXPECT_EQ(wrong("d/one", 2), "");
    EXPECT_EQ(wrong("lost+found/one", 1), "") << log();
    EXPECT_TRUE(log().contains("lost+found/one")) << log();
}

TEST_F(TierDiskTest, RightsOfTheDirectoriesAboveAreKept) {
    ASSERT_TRUE(start(args(":512M:keep"))) << log();
    ASSERT_EQ(put("private/one", 1).exit_code, 0);
    ASSERT_EQ(run_cli({"demote", "private/one"}).exit_code, 0);
    const std::string before = run_cli({"ls", "-l"}).out;
    reboot();
    ASSERT_TRUE(start(args(":512M:keep"))) << log();
    const std::string after = run_cli({"ls", "-l"}).out;
    EXPECT_EQ(after.substr(0, after.find("private")).substr(0, 10),
              before.substr(0, before.find("private")).substr(0, 10));
}

TEST_F(TierDiskTest, ObjectsOfAMissingDeviceStayInTheFolder) {
    const auto env = fake_cuda_env(1);
    std::vector<std::string> with = {"--device",   "host:64M", "--device",
                                     "cuda:0:64M", "--tier",   folder() + ":512M:keep"};
    ASSERT_TRUE(start(with, env)) << log();
    ASSERT_EQ(run_cli({"put", "--device", "cuda:0", "--evictable", "-", "one"}, pattern(kBytes, 1), env).exit_code, 0);
    ASSERT_EQ(run_cli({"demote", "one"}).exit_code, 0);
    reboot();
    ASSERT_TRUE(start(args(":512M:keep"))) << log();
    EXPECT_NE(run_cli({"stat", "one"}).exit_code, 0);
    EXPECT_TRUE(log().contains("this gshmd has no device cuda:0")) << log();
    reboot();
    ASSERT_TRUE(start(with, env)) << log();
    EXPECT_EQ(wrong("one", 1), "");
}

}  // namespace
}  // namespace gshm::core::test
