// `gshm put --replace`, and old versions that are still held in `gshm df` and `gshm holders`.
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "library_fixture.h"

namespace gshm::core::test {
namespace {

using Json = nlohmann::json;

class CliReplace : public LibraryTest {
protected:
    void SetUp() override { start_all(); }
    std::string ok(const std::vector<std::string>& args) {
        const auto result = run_cli(args);
        EXPECT_EQ(result.exit_code, 0) << ::testing::PrintToString(args) << '\n' << result.err;
        return result.out;
    }
    Json json(std::vector<std::string> args) {
        args.insert(args.begin(), "--json");
        return Json::parse(ok(args), nullptr, false);
    }
    std::string file(const std::string& name, const std::string& bytes) {
        const std::string path = scratch() + "/" + name;
        std::ofstream(path, std::ios::binary) << bytes;
        return path;
    }
    uint64_t unlinked_bytes(const std::string& name) {
        const auto df = json({"df"});
        for (const auto& one : df["devices"])
            if (one["device"] == name) return one["unlinked_bytes"];
        return UINT64_MAX;
    }
};

TEST_F(CliReplace, PutReplacesOnlyIfToldTo) {
    const auto first = file("first", "first version");
    const auto second = file("second", "the second");
    ok({"put", "--replace", first, "m/w", "--device", "cuda:1", "--mode", "0640"});  // no object has the name yet
    EXPECT_EQ(run_cli({"put", second, "m/w"}).exit_code, 6);
    EXPECT_EQ(ok({"cat", "m/w"}), "first version");
    ok({"put", "--replace", second, "m/w"});
    EXPECT_EQ(ok({"cat", "m/w"}), "the second");
    auto info = json({"stat", "m/w"})["objects"][0];
    EXPECT_EQ(info["state"], "sealed");
    EXPECT_EQ(info["mode"], "0640") << "as it was";
    EXPECT_EQ(info["device"], "cuda:1") << "as it was";
    ok({"put", "--replace", first, "m/w", "--mode", "0600", "--device", "host"});
    info = json({"stat", "m/w"})["objects"][0];
    EXPECT_EQ(info["mode"], "0600");
    EXPECT_EQ(info["device"], "host");
    ok({"put", "--replace", first, "m"});  // a directory: into it
    EXPECT_EQ(ok({"ls", "-r"}), "m/first\nm/w\n");
}

TEST_F(CliReplace, AKilledPutLeavesTheOldVersion) {
    const auto old = file("old", "the old one");
    ok({"put", old, "w"});
    const uint64_t before = device(client_.get(), "host").object_bytes;
    const auto large = file("large", std::string(200 << 20, 'x'));
    for (const int number : {SIGINT, SIGTERM, SIGKILL}) {
        bool interrupted = false;
        while (!interrupted && !HasFailure()) {
            ChildProcess child;
            ASSERT_TRUE(child.spawn(cli_argv({"put", "--replace", "--verify", large, "w", "--device", "host"})));
            // Its memory exists, so it is copying.
            EXPECT_TRUE(eventually([&] { return device(client_.get(), "host").object_bytes > before; }));
            EXPECT_EQ(ok({"ls", "-r"}), "w\n");
            child.signal(number);
            interrupted = child.finish().exit_code == 128 + number;
            // The signal may be too late: then the new version is complete.
            const uint64_t size = stat(client_.get(), "w").size_bytes;
            EXPECT_TRUE(size == 11 || (size == 200 << 20 && (!interrupted || number == SIGKILL))) << size;
            interrupted = interrupted && size == 11;
            if (!interrupted) ok({"put", "--replace", old, "w"});
        }
        EXPECT_TRUE(interrupted);
        EXPECT_EQ(ok({"cat", "w"}), "the old one");
        EXPECT_EQ(ok({"ls", "-r"}), "w\n");
        EXPECT_TRUE(eventually([&] { return device(client_.get(), "host").object_bytes == before; }));
        EXPECT_EQ(unlinked_bytes("host"), 0u);
    }
}

TEST_F(CliReplace, DfAndHoldersShowWhatIsUnlinkedButHeld) {
    ok({"put", file("one", std::string(3000, '1')), "models/w", "--device", "cuda:0"});
    EXPECT_EQ(json({"df"})["unlinked"], Json::array());
    EXPECT_EQ(ok({"df"}).find("gshm holders"), std::string::npos);
    auto first = open(client_.get(), "models/w");
    auto again = open(client_.get(), "models/w");
    ok({"put", "--replace", file("two", std::string(4000, '2')), "models/w"});
    auto second = open(client_.get(), "models/w");
    ok({"mv", "models/w", "models/moved"});
    ok({"rm", "models/moved"});

    EXPECT_EQ(unlinked_bytes("cuda:0"), 7000u);
    const auto held = json({"df"})["unlinked"];
    ASSERT_EQ(held.size(), 1u);
    EXPECT_EQ(held[0]["device"], "cuda:0");
    EXPECT_EQ(held[0]["pid"], getpid());
    EXPECT_EQ(held[0]["bytes"], 7000);
    EXPECT_EQ(held[0]["objects"], 2);
    std::string command;
    std::getline(std::ifstream("/proc/self/comm"), command);
    EXPECT_EQ(held[0]["command"], command);
    const auto df = ok({"df", "-b"});
    EXPECT_NE(df.find("7000"), std::string::npos) << df;
    EXPECT_NE(df.find(command), std::string::npos) << df;

    const auto list = json({"holders"})["unlinked"];
    ASSERT_EQ(list.size(), 2u);
    EXPECT_EQ(list[0]["last_name"], "models/w");
    EXPECT_EQ(list[0]["size_bytes"], 3000);
    EXPECT_EQ(list[0]["former"], false);
    EXPECT_EQ(list[0]["holders"][0]["pid"], getpid());
    EXPECT_EQ(list[0]["holders"][0]["leases"], 2);
    EXPECT_EQ(list[0]["holders"][0]["access"], "read");
    EXPECT_EQ(list[1]["last_name"], "models/moved");
    const auto table = ok({"holders", "-b"});
    EXPECT_NE(table.find("models/moved\n"), std::string::npos) << table;
    EXPECT_NE(table.find("3000"), std::string::npos) << table;
    first.reset();
    again.reset();
    second.reset();
    EXPECT_TRUE(eventually([&] { return unlinked_bytes("cuda:0") == 0; }));
    EXPECT_EQ(json({"holders"})["unlinked"], Json::array());
}

}  // namespace
}  // namespace gshm::core::test
