// The gshm command from a user's view: a daemon, subprocesses, their output and exit codes.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sys/stat.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "integration/daemon_fixture.h"
#include "integration/other_user.h"
#include <gshm/gshm.h>

namespace gshm::core::test {
namespace {

using Json = nlohmann::json;
using Args = std::vector<std::string>;

const std::vector<std::string> kCommands = {"ping",  "devices", "df",   "shutdown", "ls",      "mv",      "rm",
                                            "wait",  "create",  "stat", "seal",     "attr",    "holders", "cat",
                                            "write", "put",     "get",  "snapshot", "restore", "doctor",  "help"};

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::string& path, std::string_view bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}

// Bytes without a period, which could hide errors in copied chunks.
std::string pattern(size_t bytes) {
    std::string text(bytes, '\0');
    uint32_t state = 1;
    for (auto& byte : text) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
    return text;
}

bool eventually(const std::function<bool()>& holds, std::chrono::seconds patience = std::chrono::seconds(120)) {
    for (const auto deadline = std::chrono::steady_clock::now() + patience; !holds();) {
        if (std::chrono::steady_clock::now() >= deadline) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

class CliTest : public ::testing::Test, protected DaemonFixture {
protected:
    void SetUp() override { ASSERT_TRUE(start()) << log(); }

    // The standard output of a command that must succeed without any message.
    std::string ok(const Args& args, std::string_view input = {}) {
        const auto result = run_cli(args, input);
        EXPECT_EQ(result.exit_code, 0) << ::testing::PrintToString(args) << '\n' << result.err;
        EXPECT_EQ(result.err, "") << ::testing::PrintToString(args);
        return result.out;
    }
    Json json(Args args, std::string_view input = {}) {
        args.insert(args.begin(), "--json");
        return Json::parse(ok(args, input), nullptr, false);
    }
    // A command that must fail with this exit code and a message that contains the text, as plain text and as JSON.
    void fails(int exit_code, const Args& args, std::string_view text, std::string_view input = {}) {
        const auto plain = run_cli(args, input);
        EXPECT_EQ(plain.exit_code, exit_code) << ::testing::PrintToString(args) << '\n' << plain.err;
        EXPECT_TRUE(plain.err.starts_with("gshm: ")) << plain.err;
        EXPECT_NE(plain.err.find(text), std::string::npos) << plain.err;
        Args with_json = {"--json"};
        with_json.insert(with_json.end(), args.begin(), args.end());
        const auto structured = run_cli(with_json, input);
        EXPECT_EQ(structured.exit_code, exit_code) << structured.err;
        const auto error = Json::parse(structured.err, nullptr, false);
        ASSERT_TRUE(error.is_object()) << structured.err;
        EXPECT_GT(error["error"]["errno"].get<int>(), 0);
        EXPECT_EQ(error["error"]["code"].get<std::string>()[0], 'E');
        EXPECT_FALSE(error["error"]["message"].get<std::string>().empty());
    }
    bool exists(const std::string& name) { return run_cli({"stat", "--", name}).exit_code == 0; }
    std::string file(const std::string& name) const { return scratch() + "/" + name; }
    size_t files_like(const std::string& part) const {
        size_t count = 0;
        for (const auto& entry : std::filesystem::directory_iterator(scratch()))
            count += entry.path().filename().string().find(part) != std::string::npos;
        return count;
    }
};

TEST_F(CliTest, PingNamesTheDaemon) {
    EXPECT_NE(ok({"ping"}).find("pid " + std::to_string(pid())), std::string::npos);
    const auto info = json({"ping"});
    EXPECT_EQ(info["pid"], pid());
    EXPECT_EQ(info["dir"], dir());
    EXPECT_EQ(info["instance"].get<std::string>().size(), 16u);
    EXPECT_GT(info["round_trip_us"].get<double>(), 0);
}

TEST_F(CliTest, GlobalOptionsStandBeforeOrAfterTheCommand) {
    for (const Args& args : {Args{"--dir", dir(), "--json", "ping"}, Args{"ping", "--json", "--dir", dir()},
                             Args{"--json", "ping", "--dir=" + dir()}}) {
        ChildProcess child;
        Args argv = {bin("gshm")};
        argv.insert(argv.end(), args.begin(), args.end());
        ASSERT_TRUE(child.spawn(argv));
        EXPECT_EQ(Json::parse(child.finish().out, nullptr, false)["pid"], pid());
    }
    ChildProcess child;
    ASSERT_TRUE(child.spawn({bin("gshm"), "ping"}, {"GSHM_DIR=" + dir()}));
    EXPECT_EQ(child.finish().exit_code, 0);
}

TEST_F(CliTest, WithoutADaemonItSaysHowToStartOne) {
    kill();
    const Args commands[] = {{"ping"}, {"ls"}, {"rm", "a", "b"}, {"shutdown"}};
    for (const auto& args : commands) {
        const auto result = run_cli(args);
        EXPECT_EQ(result.exit_code, 3);
        EXPECT_EQ(result.err,
                  "gshm: gshmd is not running at " + dir() + "; start it with `gshmd --dir " + dir() + "`\n");
    }
    ChildProcess child;
    ASSERT_TRUE(child.spawn({bin("gshm"), "ping"}, {"GSHM_DIR=" + dir()}));
    EXPECT_EQ(child.finish().err, "gshm: gshmd is not running at " + dir() + "; start it with `gshmd`\n");
}

TEST_F(CliTest, AnOrdinaryUserCannotStartTheGshmdOfRoot) {
    if (const auto missing = missing_for_nobody(); !missing.empty()) GTEST_SKIP() << missing;
    if (std::filesystem::exists("/run/gshm/gshm.sock")) GTEST_SKIP() << "a gshmd runs at /run/gshm";
    const auto result = run_as_nobody({bin("gshm"), "--dir", "/run/gshm", "ping"});
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_EQ(
        result.err,
        "gshm: gshmd is not running at /run/gshm; root starts it with `gshmd`; for a gshmd of your own, name another "
        "folder by --dir or GSHM_DIR\n");
}

TEST_F(CliTest, HelpAndVersion) {
    const auto help = ok({"--help"});
    for (const auto& command : kCommands) {
        EXPECT_NE(help.find("\n  " + command + " "), std::string::npos) << command;
        EXPECT_NE(ok({command, "--help"}).find("Example:\n  "), std::string::npos) << command;
    }
    EXPECT_NE(help.find("Exit codes:"), std::string::npos);
    EXPECT_TRUE(ok({"--version"}).starts_with("gshm 0."));
}

TEST_F(CliTest, BadUsageIsRefused) {
    fails(2, {}, "command");
    fails(2, {"frobnicate"}, "frobnicate");
    fails(2, {"--frobnicate", "ls"}, "--frobnicate");
    fails(2, {"ls", "--frobnicate"}, "--frobnicate");
    fails(2, {"ls", "a", "b"}, "b");
    fails(2, {"stat"}, "NAME");
    fails(2, {"create", "x"}, "--size");
    fails(2, {"create", "x", "--size"}, "--size");
    fails(2, {"wait", "x", "--timeout", "soon"}, "soon");
    fails(2, {"wait", "x", "--timeout", "-1"}, "-1");
    fails(2, {"attr", "x", "-d"}, "KEY");
    fails(2, {"attr", "x", "k", "--hex", "0"}, "hex");
}

TEST_F(CliTest, SizesAreReadExactly) {
    const std::pair<const char*, uint64_t> sizes[] = {{"1", 1},          {"4096", 4096}, {"0x1000", 4096},
                                                      {"3K", 3072},      {"2k", 2048},   {"1M", 1 << 20},
                                                      {"1MiB", 1 << 20}, {"2KiB", 2048}, {"0x10", 16}};
    for (const auto& [text, bytes] : sizes) {
        const auto name = std::string("size-") + text;
        EXPECT_EQ(json({"create", name, "--size", text})["size_bytes"], bytes) << text;
    }
    for (const char* text : {"", "x", "1x", "K", "1.5M", "1MB", "-1", "+1", " 1", "1 M", "0x", "0xg", "[1]", "1KiBs",
                             "9223372036854775808", "99999999999999999999999", "8388608T", "0x8000000000000000"})
        fails(2, {"create", "junk", std::string("--size=") + text}, "--size");
    fails(2, {"create", "junk", "--size", "0"}, "byte");
    fails(7, {"create", "junk", "--size", "9223372036854775807"}, "gshm df");
    fails(7, {"create", "junk", "--size", "1T"}, "gshm df");
    EXPECT_FALSE(exists("junk"));
    ok({"ping"});
}

TEST_F(CliTest, BadCreateIsRefused) {
    for (const auto& name : {std::string(), std::string("/abs"), std::string("a/../b"), std::string("./a"),
                             std::string("a//b"), std::string(256, 'n'), std::string("bad\xff utf8")})
        fails(2, {"create", name, "--size", "1"}, "");
    fails(4, {"create", "x", "--size", "1", "--device", "cuda:9"}, "cuda:9");
    for (const char* mode : {"0", "8", "rw", "01000", "-1"})
        fails(2, {"create", "x", "--size", "1", "--mode", mode}, mode);
    for (const char* fill : {"256", "x", "0x100", "1K"}) fails(2, {"create", "x", "--size", "1", "--fill", fill}, fill);
    EXPECT_FALSE(exists("x"));
    ok({"create", "x", "--size", "1"});
    fails(6, {"create", "x", "--size", "1"}, "gshm rm");
}

TEST_F(CliTest, CreateListStat) {
    ok({"create", "models/llama/w0", "--size", "8M", "--mode", "0640"});
    ok({"create", "models/config", "--size", "100", "--dedicated"});
    EXPECT_EQ(ok({"ls"}), "models/\n");
    EXPECT_EQ(ok({"ls", "models"}), "config\nllama/\n");
    EXPECT_EQ(ok({"ls", "models/"}), "config\nllama/\n");
    EXPECT_EQ(ok({"ls", "-r"}), "models/config\nmodels/llama/w0\n");
    EXPECT_EQ(ok({"ls", "-r", "models/llama"}), "models/llama/w0\n");
    EXPECT_EQ(ok({"ls", "models/config"}), "models/config\n");
    fails(4, {"ls", "nothing"}, "nothing");

    const auto details = ok({"ls", "-l", "models/llama"});
    EXPECT_NE(details.find("-rw-r-----"), std::string::npos) << details;
    EXPECT_NE(details.find(" 8.0M "), std::string::npos) << details;
    EXPECT_NE(ok({"ls", "-lb", "models/llama"}).find(" 8388608 "), std::string::npos);

    const auto entries = json({"ls", "models"})["entries"];
    ASSERT_EQ(entries.size(), 2u);
    EXPECT_EQ(entries[0]["name"], "models/config");
    EXPECT_EQ(entries[0]["kind"], "object");
    EXPECT_EQ(entries[0]["flags"], Json({"keep", "dedicated"}));
    EXPECT_EQ(entries[1]["name"], "models/llama");
    EXPECT_EQ(entries[1]["kind"], "directory");
    EXPECT_EQ(entries[1]["entries"], 1);

    const auto text = ok({"stat", "models/llama/w0"});
    EXPECT_NE(text.find("8.0M (8388608 bytes)"), std::string::npos) << text;
    const auto objects = json({"stat", "models/llama/w0", "models/"})["objects"];
    ASSERT_EQ(objects.size(), 2u);
    EXPECT_EQ(objects[0]["state"], "open");
    EXPECT_EQ(objects[0]["device"], "host");
    EXPECT_EQ(objects[0]["mode"], "0640");
    EXPECT_EQ(objects[0]["uid"], ::getuid());
    EXPECT_GE(objects[0]["allocation_bytes"], 8 << 20);
    EXPECT_GT(objects[0]["created_ns"], 0);
    EXPECT_EQ(objects[0]["attributes"], Json::array());
    EXPECT_EQ(objects[1]["kind"], "directory");
}

TEST_F(CliTest, ADirectoryWithOneEntryOfItsOwnNameIsNotAnObject) {
    ok({"create", "a/a", "--size", "1"});
    EXPECT_EQ(json({"ls", "a"})["entries"][0]["name"], "a/a");
    EXPECT_EQ(json({"ls", "a/a"})["entries"][0]["name"], "a/a");
}

TEST_F(CliTest, NamesThatLookLikeSomethingElse) {
    for (const auto& name : {"-x", "--json", "[a,b]", "ls", "++", "with space", "tab\tand\nline", "ümläut", "a=b"}) {
        ok({"create", "--size", "1", "--", name});
        const auto objects = json({"ls", "--", name})["entries"];
        EXPECT_TRUE(exists(name)) << name;
        EXPECT_EQ(objects.size(), 1u) << name;
    }
    ok({"rm", "ls", "[a,b]", "++", "--", "-x", "--json", "with space"});
    EXPECT_EQ(ok({"ls"}), "a=b\ntab\tand\nline\nümläut\n");
    EXPECT_NE(ok({"ls", "-l"}).find("tab\\tand\\nline\n"), std::string::npos);
}

TEST_F(CliTest, WriteAndCatRanges) {
    ok({"create", "x", "--size", "10", "--fill", "0x2e"});
    EXPECT_EQ(ok({"cat", "x"}), "..........");
    const auto written = json({"write", "x", "--offset", "3"}, "abc");
    EXPECT_EQ(written["bytes"], 3);
    EXPECT_EQ(ok({"cat", "x"}), "...abc....");
    EXPECT_EQ(ok({"cat", "x", "--offset", "4", "--length", "4"}), "bc..");
    EXPECT_EQ(ok({"cat", "x", "--offset", "8", "--length", "1G"}), "..");
    EXPECT_EQ(ok({"cat", "x", "--offset", "10"}), "");
    EXPECT_EQ(ok({"cat", "x", "--length", "0"}), "");
    ok({"write", "x"}, "");
    fails(2, {"cat", "x", "--offset", "11"}, "10 bytes");
    fails(2, {"write", "x", "--offset", "11"}, "10 bytes", "z");
    fails(7, {"write", "x", "--offset", "8"}, "longer", "12345");
    EXPECT_EQ(ok({"cat", "x"}), "...abc..12");
    fails(4, {"cat", "y"}, "y");
    fails(4, {"write", "y"}, "y", "data");

    ok({"seal", "x"});
    fails(5, {"write", "x"}, "sealed", "data");
    EXPECT_EQ(json({"stat", "x"})["objects"][0]["state"], "sealed");
    ok({"create", "d/y", "--size", "1"});
    fails(9, {"cat", "d"}, "directory");
    fails(9, {"write", "d"}, "directory", "data");
}

TEST_F(CliTest, PutAndGetAreTheSameBytes) {
    const auto bytes = pattern((size_t{9} << 20) + 7);
    write_file(file("in"), bytes);
    const auto put = json({"put", file("in"), "models/w", "--mode", "0644"});
    EXPECT_EQ(put["bytes"], bytes.size());
    const auto stat = json({"stat", "models/w"})["objects"][0];
    EXPECT_EQ(stat["state"], "sealed");
    EXPECT_EQ(stat["size_bytes"], bytes.size());
    EXPECT_EQ(stat["mode"], "0644");

    ok({"get", "models/w", file("out")});
    EXPECT_TRUE(read_file(file("out")) == bytes);
    EXPECT_TRUE(ok({"cat", "models/w"}) == bytes);
    std::filesystem::create_directory(file("folder"));
    EXPECT_EQ(json({"get", "models/w", file("folder")})["file"], file("folder/w"));
    EXPECT_TRUE(read_file(file("folder/w")) == bytes);

    write_file(file("old"), "old");
    ::chmod(file("old").c_str(), 0640);
    std::filesystem::create_symlink("old", file("link"));
    ok({"get", "models/w", file("link")});
    EXPECT_TRUE(std::filesystem::is_symlink(file("link")));
    EXPECT_EQ(std::filesystem::file_size(file("old")), bytes.size());
    struct stat info{};
    ::stat(file("old").c_str(), &info);
    EXPECT_EQ(info.st_mode & 07777, 0640u);
    ok({"get", "models/w", "/dev/null"});
    EXPECT_EQ(files_like(".gshm-"), 0u);
    fails(6, {"put", file("in"), "models/w"}, "exists");
}

TEST_F(CliTest, BadPutAndGetLeaveNothing) {
    write_file(file("empty"), "");
    fails(4, {"put", file("missing"), "x"}, "missing");
    fails(2, {"put", "/dev/zero", "x"}, "regular file");
    fails(9, {"put", scratch(), "x"}, "directory");
    std::filesystem::resize_file(file("empty"), uint64_t{1} << 40);
    fails(7, {"put", file("empty"), "x"}, "gshm df");
    EXPECT_EQ(ok({"ls"}), "");

    ok({"create", "y", "--size", "1M"});
    fails(4, {"get", "nothing", file("out")}, "nothing");
    fails(4, {"get", "y", file("no/such/folder")}, "folder");
    EXPECT_FALSE(std::filesystem::exists(file("out")));

    // A full disk, simulated by the file size limit of this process.
    write_file(file("out"), "old");
    ChildProcess child;
    ASSERT_TRUE(child.spawn(
        {"/bin/sh", "-c", "ulimit -f 100; exec \"$0\" --dir \"$1\" get y \"$2\"", bin("gshm"), dir(), file("out")}));
    const auto result = child.finish();
    EXPECT_EQ(result.exit_code, 7) << result.err;
    EXPECT_NE(result.err.find("too large"), std::string::npos) << result.err;
    EXPECT_EQ(read_file(file("out")), "old");
    EXPECT_EQ(files_like(".gshm-"), 0u);
}

// A copy may end before the signal arrives; then it is tried again.
TEST_F(CliTest, InterruptedPutLeavesNoName) {
    write_file(file("large"), std::string(200 << 20, 'x'));
    gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
    const auto folder = dir();
    options.dir = folder.c_str();
    gshm_client* client = nullptr;
    ASSERT_EQ(gshm_connect(&options, &client), 0) << gshm_last_error();
    // A look by another process may take longer than the copy.
    const auto object_bytes = [&] {
        gshm_device_info device = {};
        device.struct_size = sizeof device;
        size_t count = 0;
        EXPECT_EQ(gshm_devices(client, &device, 1, &count), 0) << gshm_last_error();
        return device.object_bytes;
    };
    for (const int number : {SIGINT, SIGKILL}) {
        bool interrupted = false;
        while (!interrupted && !HasFailure()) {
            ChildProcess child;
            ASSERT_TRUE(child.spawn(cli_argv({"put", "--verify", file("large"), "large"})));
            // Its memory exists, so it is copying. The name comes at the end.
            EXPECT_TRUE(eventually([&] { return !child.running() || object_bytes() > 0; }));
            child.signal(number);
            interrupted = child.finish().exit_code == 128 + number;
            gshm_stat_info info = {};
            info.struct_size = sizeof info;
            const bool whole = gshm_stat(client, "large", &info) == 0 && info.state == GSHM_STATE_SEALED;
            EXPECT_TRUE(!whole || !interrupted || number == SIGKILL);
            interrupted = interrupted && !whole;
            if (!interrupted) ok({"rm", "large"});
        }
        EXPECT_TRUE(interrupted);
        EXPECT_TRUE(eventually([&] { return !exists("large"); }));
        EXPECT_TRUE(eventually([&] { return object_bytes() == 0; }));
    }
    gshm_disconnect(client);
}

TEST_F(CliTest, InterruptedGetLeavesTheOldFile) {
    ok({"create", "large", "--size", "200M"});
    write_file(file("out"), "old");
    gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
    const auto folder = dir();
    options.dir = folder.c_str();
    gshm_client* client = nullptr;
    ASSERT_EQ(gshm_connect(&options, &client), 0) << gshm_last_error();
    const auto leases = [&] {
        gshm_stat_info info = {};
        info.struct_size = sizeof info;
        EXPECT_EQ(gshm_stat(client, "large", &info), 0) << gshm_last_error();
        return info.leases;
    };
    bool interrupted = false;
    while (!interrupted && !HasFailure()) {
        ChildProcess child;
        ASSERT_TRUE(child.spawn(cli_argv({"get", "large", file("out")})));
        // It has the object open, so it is copying.
        EXPECT_TRUE(eventually([&] { return leases() > 0 || !child.running(); }));
        child.signal(SIGTERM);
        interrupted = child.finish().exit_code == 128 + SIGTERM;
        if (!interrupted) write_file(file("out"), "old");
    }
    EXPECT_TRUE(interrupted);
    EXPECT_EQ(read_file(file("out")), "old");
    EXPECT_EQ(files_like(".gshm-"), 0u);
    gshm_disconnect(client);
}

TEST_F(CliTest, AReaderThatGoesAwayEndsCatQuietly) {
    ok({"create", "large", "--size", "64M"});
    ChildProcess child;
    ASSERT_TRUE(child.spawn(cli_argv({"cat", "large"})));
    child.close_stdout();
    const auto result = child.finish();
    EXPECT_EQ(result.exit_code, 128 + SIGPIPE);
    EXPECT_EQ(result.err, "");
    ASSERT_TRUE(child.spawn({"/bin/sh", "-c", "exec \"$0\" --dir \"$1\" cat large >/dev/full", bin("gshm"), dir()}));
    EXPECT_EQ(child.finish().exit_code, 7);
    ASSERT_TRUE(child.spawn({"/bin/sh", "-c", "exec \"$0\" --dir \"$1\" ls >&-", bin("gshm"), dir()}));
    EXPECT_EQ(child.finish().exit_code, 1);
}

TEST_F(CliTest, MvReplacesUnlessToldNotTo) {
    ok({"create", "a", "--size", "1", "--fill", "65"});
    ok({"create", "b", "--size", "1", "--fill", "66"});
    fails(6, {"mv", "-n", "a", "b"}, "b");
    EXPECT_EQ(json({"mv", "a", "b"})["to"], "b");
    EXPECT_EQ(ok({"cat", "b"}), "A");
    EXPECT_FALSE(exists("a"));
    EXPECT_EQ(json({"mv", "b", "new/"})["to"], "new/b");
    ok({"create", "c", "--size", "1"});
    EXPECT_EQ(json({"mv", "c", "new"})["to"], "new/c");
    EXPECT_EQ(ok({"ls", "-r"}), "new/b\nnew/c\n");
    fails(4, {"mv", "nothing", "x"}, "nothing");
    fails(2, {"mv", "new/b", "a/../b"}, "");
}

TEST_F(CliTest, RmTakesManyAndGoesOn) {
    for (const char* name : {"a", "b", "d/x", "d/e/y", "d2"}) ok({"create", name, "--size", "1"});
    const auto result = run_cli({"--json", "rm", "a", "nothing", "b"});
    EXPECT_EQ(result.exit_code, 4);
    EXPECT_EQ(Json::parse(result.out)["removed"], Json({"a", "b"}));
    EXPECT_EQ(Json::parse(result.err)["error"]["code"], "ENOENT");
    ok({"rm", "-f", "nothing"});
    fails(9, {"rm", "d"}, "rm -r");
    fails(9, {"rm", "-f", "d"}, "rm -r");
    EXPECT_EQ(json({"rm", "-r", "d/"})["removed"].size(), 2u);
    fails(2, {"rm", "-r", "/"}, "everything");
    EXPECT_EQ(ok({"ls", "-r"}), "d2\n");
}

TEST_F(CliTest, SealTakesManyAndGoesOn) {
    for (const char* name : {"a", "b"}) ok({"create", name, "--size", "1"});
    const auto result = run_cli({"--json", "seal", "a", "nothing", "b"});
    EXPECT_EQ(result.exit_code, 4);
    EXPECT_EQ(Json::parse(result.out)["sealed"], Json({"a", "b"}));
    EXPECT_EQ(json({"stat", "b"})["objects"][0]["state"], "sealed");
}

TEST_F(CliTest, WaitForANameAndForItsSeal) {
    fails(8, {"wait", "x", "--timeout", "0.05"}, "0.05 s");
    fails(8, {"wait", "x", "--timeout", "0"}, "x");
    ChildProcess exists_waiter, sealed_waiter;
    ASSERT_TRUE(exists_waiter.spawn(cli_argv({"wait", "x", "--timeout", "20"})));
    ASSERT_TRUE(sealed_waiter.spawn(cli_argv({"wait", "x", "--sealed", "--json"})));
    ok({"create", "x", "--size", "1"});
    EXPECT_EQ(exists_waiter.finish().exit_code, 0);
    fails(8, {"wait", "x", "--sealed", "--timeout", "0.01"}, "sealed");
    EXPECT_TRUE(sealed_waiter.running());
    ok({"seal", "x"});
    EXPECT_EQ(Json::parse(sealed_waiter.finish().out, nullptr, false)["state"], "sealed");
}

TEST_F(CliTest, AttributesAreTextOrHex) {
    ok({"create", "x", "--size", "1"});
    EXPECT_EQ(json({"attr", "x"})["attributes"], Json::array());
    ok({"attr", "x", "shape", "[2,3]"});
    ok({"attr", "x", "raw", "-x", "00ff"});
    ok({"attr", "x", "empty", ""});
    EXPECT_EQ(ok({"attr", "x", "shape"}), "[2,3]");
    EXPECT_EQ(ok({"attr", "x", "raw"}), std::string("\0\xff", 2));
    const auto expected = Json::parse(R"([{"key":"empty","bytes":0,"text":""},{"key":"raw","bytes":2,"hex":"00ff"},
                                          {"key":"shape","bytes":5,"text":"[2,3]"}])");
    EXPECT_EQ(json({"attr", "x"})["attributes"], expected);
    EXPECT_EQ(json({"stat", "x"})["objects"][0]["attributes"], expected);
    EXPECT_NE(ok({"attr", "x"}).find("0x00ff"), std::string::npos);
    EXPECT_NE(ok({"stat", "x"}).find("attr shape: [2,3]"), std::string::npos);
    ok({"attr", "-d", "x", "raw"});
    fails(4, {"attr", "x", "raw"}, "raw");
    fails(4, {"attr", "-d", "x", "raw"}, "raw");
    fails(4, {"attr", "nothing", "raw"}, "nothing");
    const std::string large(60000, 'v');
    ok({"attr", "x", "large", large});
    EXPECT_TRUE(ok({"attr", "x", "large"}) == large);
    fails(7, {"attr", "x", "larger", std::string((64 << 10) + 1, 'v')}, "bytes");
}

TEST_F(CliTest, HoldersAreProcesses) {
    ok({"create", "x", "--size", "1"});
    EXPECT_EQ(json({"holders", "x"})["holders"], Json::array());
    gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
    const auto folder = dir();
    options.dir = folder.c_str();
    gshm_client* client = nullptr;
    gshm_object* object = nullptr;
    ASSERT_EQ(gshm_connect(&options, &client), 0) << gshm_last_error();
    ASSERT_EQ(gshm_open(client, "x", GSHM_WRITE | GSHM_NO_MAP, &object), 0) << gshm_last_error();
    const auto holders = json({"holders", "x"})["holders"];
    ASSERT_EQ(holders.size(), 1u);
    EXPECT_EQ(holders[0]["pid"], ::getpid());
    EXPECT_EQ(holders[0]["uid"], ::getuid());
    EXPECT_EQ(holders[0]["access"], "write");
    EXPECT_EQ(holders[0]["leases"], 1);
    EXPECT_NE(ok({"holders", "x"}).find(std::to_string(::getpid())), std::string::npos);

    ok({"rm", "x"});  // unlinked but held
    EXPECT_EQ(json({"df"})["devices"][0]["unlinked_bytes"], 1);
    gshm_close(object);
    gshm_disconnect(client);
    EXPECT_TRUE(eventually([&] { return json({"df"})["devices"][0]["unlinked_bytes"] == 0; }));
    fails(4, {"holders", "x"}, "x");
}

TEST_F(CliTest, DevicesAndDf) {
    const auto devices = json({"devices"})["devices"];
    ASSERT_EQ(devices.size(), 1u);
    EXPECT_EQ(devices[0]["name"], "host");
    EXPECT_EQ(devices[0]["capacity_bytes"], 256 << 20);
    EXPECT_EQ(devices[0]["failed"], false);
    EXPECT_NE(ok({"devices"}).find(" 256M "), std::string::npos);
    ok({"create", "x", "--size", "16M"});
    const auto space = json({"df"})["devices"][0];
    EXPECT_EQ(space["object_bytes"], 16 << 20);
    EXPECT_EQ(space["available_bytes"].get<int64_t>(), (256 << 20) - space["used_bytes"].get<int64_t>());
    EXPECT_NE(ok({"df", "-b"}).find(" 268435456 "), std::string::npos);
    EXPECT_NE(ok({"df"}).find(" ok\n"), std::string::npos);
    fails(7, {"create", "y", "--size", "250M"}, "gshm df");
}

TEST_F(CliTest, OthersAreKeptOut) {
    if (const auto missing = missing_for_nobody(); !missing.empty()) GTEST_SKIP() << missing;
    ok({"create", "private", "--size", "1"});
    ok({"create", "public", "--size", "1", "--mode", "0644"});
    const auto as_nobody = [&](const Args& args) { return run_as_nobody(cli_argv(args)); };
    EXPECT_EQ(as_nobody({"cat", "private"}).exit_code, 5);
    EXPECT_EQ(as_nobody({"cat", "public"}).exit_code, 0);
    EXPECT_EQ(as_nobody({"write", "public"}).exit_code, 5);
    const auto result = as_nobody({"shutdown"});
    EXPECT_EQ(result.exit_code, 5);
    EXPECT_NE(result.err.find("root"), std::string::npos) << result.err;
}

TEST_F(CliTest, ShutdownReturnsWhenTheDaemonIsGone) {
    EXPECT_NE(ok({"shutdown"}).find("has ended"), std::string::npos);
    EXPECT_EQ(run_cli({"ping"}).exit_code, 3);
    EXPECT_EQ(wait_for_end(), 0) << log();
    ASSERT_TRUE(start()) << log();
    const auto daemon = pid();
    EXPECT_EQ(json({"shutdown"})["pid"], daemon);
}

// The daemon has the fake driver. The command has no driver and does not need one.
TEST(CliOnCuda, CopiesNeedNoDriverInTheCommand) {
    DaemonFixture daemon;
    ASSERT_TRUE(daemon.start({"--device", "cuda"}, DaemonFixture::fake_cuda_env(2))) << daemon.log();
    const auto devices = Json::parse(daemon.run_cli({"devices", "--json"}).out, nullptr, false)["devices"];
    ASSERT_EQ(devices.size(), 2u);
    EXPECT_EQ(devices[0]["name"], "cuda:0");
    EXPECT_EQ(devices[1]["name"], "cuda:1");
    EXPECT_NE(devices[0]["uuid"], devices[1]["uuid"]);

    const auto bytes = pattern((size_t{5} << 20) + 3);
    const auto in = daemon.scratch() + "/in", out = daemon.scratch() + "/out";
    write_file(in, bytes);
    EXPECT_EQ(daemon.run_cli({"put", in, "w", "--device", "cuda:1"}).err, "");
    EXPECT_EQ(daemon.run_cli({"get", "w", out}).err, "");
    EXPECT_TRUE(read_file(out) == bytes);
    EXPECT_EQ(Json::parse(daemon.run_cli({"stat", "w", "--json"}).out, nullptr, false)["objects"][0]["device"],
              "cuda:1");

    EXPECT_EQ(daemon.run_cli({"create", "x", "--size", "3M", "--fill", "7", "--compressible"}).err, "");
    EXPECT_TRUE(daemon.run_cli({"cat", "x"}).out == std::string(size_t{3} << 20, '\x07'));
    EXPECT_EQ(daemon.run_cli({"write", "x", "--offset", "1M"}, "hello").err, "");
    EXPECT_EQ(daemon.run_cli({"cat", "x", "--offset", "1M", "--length", "5"}).out, "hello");
}

TEST_F(CliTest, MkdirMakesDirectoriesThatStay) {
    auto made = run_cli({"mkdir", "a/b", "c/", "--mode", "2770"});
    EXPECT_EQ(made.exit_code, 0) << made.err;
    EXPECT_EQ(made.out, "");
    EXPECT_EQ(Json::parse(run_cli({"--json", "mkdir", "d"}).out, nullptr, false)["made"][0]["name"], "d");
    EXPECT_NE(run_cli({"stat", "c"}).out.find("2770"), std::string::npos) << run_cli({"stat", "c"}).out;
    EXPECT_EQ(run_cli({"create", "c/x", "--size", "4K"}).exit_code, 0);
    EXPECT_EQ(run_cli({"rm", "c/x"}).exit_code, 0);
    EXPECT_EQ(run_cli({"stat", "c"}).exit_code, 0);
    made = run_cli({"mkdir", "c", "e"});
    EXPECT_EQ(made.exit_code, 6) << made.err;
    EXPECT_EQ(run_cli({"stat", "e"}).exit_code, 0);
    EXPECT_EQ(run_cli({"mkdir", "f", "--mode", "9"}).exit_code, 2);
    EXPECT_EQ(run_cli({"mkdir"}).exit_code, 2);
}

}  // namespace
}  // namespace gshm::core::test
