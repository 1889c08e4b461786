// gshm.toml and the command line: what is accepted, what is refused, and which one wins.
#include <set>

#include "base/nearest.h"
#include "daemon/option_table.h"
#include "integration/config_fixture.h"
#include "integration/other_user.h"

namespace gshm::core::test {
namespace {

struct Sample {
    std::string flag;  // the argument of the flag
    std::string toml;
};

// A value of the option that differs from the default.
Sample sample_of(const Option& row) {
    static const std::map<std::string_view, Sample> own = {
        {"keeper", {"none", "\"none\""}},
        {"device", {"host:64M", "[\"host:64M\"]"}},
        {"tier", {"host:64M", "[\"host:64M\"]"}},
        {"reserve", {"64M", "\"64M\""}},
        {"metrics", {"127.0.0.1:9402", "[\"127.0.0.1:9402\"]"}},
    };
    if (const auto found = own.find(row.name); found != own.end()) return found->second;
    if (row.is_switch()) return {"true", "true"};
    if (row.is_number()) return {"7", "7"};
    if (row.is_size()) return {"48M", "\"48M\""};
    const Sample path{"/some/folder", row.is_list() ? "[\"/some/folder\"]" : "\"/some/folder\""};
    return row.is_path ? path : Sample{};
}

TEST_F(ConfigTest, EveryKeyByFlagAndByFileGivesTheSame) {
    auto with = [&](const std::string& text) {
        write(text);
        return effective();
    };
    for (const auto& row : option_table()) {
        if (row.command_line_only) continue;
        SCOPED_TRACE(row.name);
        const std::string name(row.name);
        const std::string key = row.is_table() ? name + ".leases" : name;
        Sample sample = row.is_table() ? Sample{"leases=9000", "9000"} : sample_of(row);
        ASSERT_FALSE(sample.flag.empty()) << "add a sample of the option to this test";
        const auto by_default = with("");
        const auto by_flag = parse(check_file("none", {"--" + name + "=" + sample.flag}).out);
        const auto by_file = with(key + " = " + sample.toml + "\n");
        ASSERT_TRUE(by_flag.contains(key));
        EXPECT_EQ(by_flag.at(key).source, "--" + name);
        EXPECT_EQ(by_file.at(key).source, config() + ":1:" + (row.is_table() ? "9" : "1"));
        EXPECT_NE(by_flag.at(key).value, by_default.at(key).value);
        for (const auto& [other, value] : by_flag) {
            EXPECT_EQ(value.value, by_file.at(other).value) << other;
            if (other != key) {
                EXPECT_EQ(value.source, "default") << other;
            }
        }
    }
}

TEST_F(ConfigTest, WhatIsPrintedIsAFileThatGivesTheSame) {
    const std::vector<std::string> args = {"--device", "host:64M",        "--device",  "cuda:1",
                                           "--limit",  "1000000",         "--debug",   "--threads",
                                           "3",        "/mnt/a \"b\"\\c", "--budgets", "rings=5"};
    const auto first = check_file("none", args);
    ASSERT_EQ(first.exit_code, 0) << first.err;
    write(first.out);
    const auto again = effective();
    for (const auto& [key, value] : parse(first.out)) EXPECT_EQ(again.at(key).value, value.value) << key;
    EXPECT_EQ(again.at("mountpoint").value, "[\"/mnt/a \\\"b\\\"\\\\c\"]");
    EXPECT_EQ(again.at("limit").value, "1000000");
}

TEST_F(ConfigTest, WrongFilesAreRefusedWithThePlace) {
    const struct {
        const char* text;
        const char* place;
        const char* message;
    } files[] = {
        {"user_share = 3\n", ":1:1:", "unknown key \"user_share\"; did you mean user-share?"},
        {"\n\nstagging = 1\n", ":3:1:", "did you mean staging?"},
        {"xyzzy = 1\n", ":1:1:", "`gshmd --help` lists"},
        {"takeover = true\n", ":1:1:", "command line only"},
        {"check-config = true\n", ":1:1:", "command line only"},
        {"[daemon]\nlimit = 1\n", ":1:", "no section but [budgets]"},
        {"[budgets]\nlease = 1\n", ":2:1:", "did you mean leases?"},
        {"[budgets]\nfoo = 1\n", ":2:1:", "There are: connections, "},
        {"budgets = 3\n", ":1:11:", "a table is needed"},
        {"[budgets]\nleases = 1.5\n", ":2:10:", "a size is needed"},
        {"[budgets]\nleases = 0\n", ":2:10:", "it must be 1 or more"},
        {"user-share = \"3\"\n", ":1:14:", "a number is needed"},
        {"user-share = 100\n", ":1:14:", "not a number from 1 to 99"},
        {"user-share = -1\n", ":1:14:", "not a number from 1 to 99"},
        {"debug = 1\n", ":1:9:", "true or false is needed"},
        {"debug = \"true\"\n", ":1:9:", "true or false is needed"},
        {"limit = \"lots\"\n", ":1:9:", "'lots' is not a size"},
        {"limit = -1\n", ":1:9:", "not a size"},
        {"limit = 4.5\n", ":1:9:", "a size is needed"},
        {"staging = \"1M\"\n", ":1:11:", "it must be 32M or more"},
        {"device = 3\n", ":1:10:", "a list of texts is needed"},
        {"device = [\"host\", 3]\n", ":1:19:", "a list of texts is needed"},
        {"device = [[\"host\"]]\n", ":1:11:", "a list of texts is needed"},
        {"device = [\"tape\"]\n", ":1:1:", "'tape' is not a device"},
        {"keeper = \"me\"\n", ":1:10:", "none of process, systemd and none"},
        {"keeper = [\"none\"]\n", ":1:10:", "a text is needed"},
        {"dir = \"run\"\n", ":1:7:", "not an absolute path"},
        {"mountpoint = [\"/a\", \"b\"]\n", ":1:14:", "not an absolute path"},
        {"mountpoint = [\"/a\\nb\"]\n", ":1:14:", "no control characters"},
        {"dir = \"\"\n", ":1:7:", "not an absolute path"},
        {"limit = 1\nlimit = 2\n", ":2:", "limit"},  // the parser's own words
        {"[budgets]\nleases = 1\n[budgets]\nrings = 1\n", ":3:", "budgets"},
        {"limit = \n", ":1:", ""},
        {"limit\n", ":1:", ""},
        {"zzz = 1\nlimit = false\n", ":1:1:", "zzz"},  // the first one, not the first by name
        {"\xff\xfe", ":1:", ""},
    };
    for (const auto& file : files) {
        write(file.text);
        const auto result = check();
        EXPECT_EQ(result.exit_code, 1) << file.text << result.out;
        EXPECT_NE(result.err.find(config() + file.place), std::string::npos) << file.text << result.err;
        EXPECT_NE(result.err.find(file.message), std::string::npos) << file.text << result.err;
        EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << file.text << "one line: " << result.err;
    }
    // A daemon does not start either, and leaves nothing behind.
    write("user-shar = 3\n");
    EXPECT_FALSE(start({"--config", config()}));
    EXPECT_EQ(wait_for_end(), 1);
    EXPECT_NE(log().find(":1:1: unknown key \"user-shar\"; did you mean user-share?"), std::string::npos) << log();
    EXPECT_FALSE(std::filesystem::exists(dir()));
}

TEST_F(ConfigTest, AMissingGpuHasARemedy) {
    write("device = [\"cuda:0:60G\"]\n");
    EXPECT_FALSE(start({"--config", config()}, fake_cuda_env(0)));
    EXPECT_NE(log().find("cuda:0:60G: "), std::string::npos) << log();
    EXPECT_NE(log().find("; `gshm doctor` says what GPUs need"), std::string::npos) << log();
}

TEST_F(ConfigTest, OddFilesAreBounded) {
    auto refused = [&](const std::string& path, const char* why) {
        const auto result = check_file(path);
        EXPECT_EQ(result.exit_code, 1) << path;
        EXPECT_NE(result.err.find(why), std::string::npos) << result.err;
    };
    write(std::string(2 << 20, '#'));
    refused(config(), "larger than 1 MiB");
    write(std::string("limit = 1\0\n", 11));
    refused(config(), ":1:");
    write("device = " + std::string(100'000, '['));
    refused(config(), ":1:");
    std::string garbage;
    for (int i = 0; i < 70'000; ++i) garbage += static_cast<char>(i * 7919 % 251);
    write(garbage);
    refused(config(), ":1:");
    write(std::string(100'000, 'k') + " = 1\n");
    refused(config(), "unknown key");
    refused(scratch() + "/nothing", "No such file");
    refused(scratch(), "is not a regular file");
    refused("/dev/zero", "is not a regular file");
    const std::string fifo = scratch() + "/fifo";
    ASSERT_EQ(::mkfifo(fifo.c_str(), 0644), 0);
    refused(fifo, "is not a regular file");
    write("limit = \"1G\"\n");
    const std::string link = scratch() + "/link";
    ASSERT_EQ(::symlink(config().c_str(), link.c_str()), 0);
    const auto followed = check_file(link);
    EXPECT_EQ(followed.exit_code, 0) << followed.err;
    EXPECT_EQ(parse(followed.out).at("limit").value, "\"1G\"");
    ASSERT_EQ(::unlink(config().c_str()), 0);
    refused(link, "No such file");
    ASSERT_EQ(::symlink("loop", (scratch() + "/loop").c_str()), 0);
    refused(scratch() + "/loop", "symbolic links");
}

TEST_F(ConfigTest, AFileThatOthersMayWriteIsNotObeyed) {
    write("limit = \"1G\"\n");
    for (mode_t mode : {0666, 0664, 0646, 0620}) {
        ASSERT_EQ(::chmod(config().c_str(), mode), 0);
        const auto result = check();
        EXPECT_EQ(result.exit_code, 1) << mode;
        EXPECT_NE(result.err.find("chmod go-w"), std::string::npos) << result.err;
    }
    for (mode_t mode : {0644, 0400, 0755}) {
        ASSERT_EQ(::chmod(config().c_str(), mode), 0);
        EXPECT_EQ(check().exit_code, 0) << mode;
    }
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give a file to another user";
    ASSERT_EQ(::chown(config().c_str(), 65533, 65533), 0);
    const auto strangers = check();
    EXPECT_EQ(strangers.exit_code, 1);
    EXPECT_NE(strangers.err.find("belongs to another user (uid 65533)"), std::string::npos) << strangers.err;
    EXPECT_NE(strangers.err.find("chown 0"), std::string::npos) << strangers.err;
    // A file of root is obeyed by everybody; one that cannot be read is not skipped.
    if (const auto missing = missing_for_nobody(); !missing.empty()) GTEST_SKIP() << missing;
    const std::vector<std::string> command = {bin("gshmd"), "--dir", dir(), "--check-config", "--config", config()};
    ASSERT_EQ(::chown(config().c_str(), 0, 0), 0);
    EXPECT_EQ(run_as_nobody(command).exit_code, 0);
    ASSERT_EQ(::chmod(config().c_str(), 0600), 0);
    const auto unreadable = run_as_nobody(command);
    EXPECT_EQ(unreadable.exit_code, 1);
    EXPECT_NE(unreadable.err.find("Permission denied"), std::string::npos) << unreadable.err;
    ASSERT_EQ(::chown(config().c_str(), 65534, 65534), 0);
    EXPECT_EQ(run_as_nobody(command).exit_code, 0);
}

TEST_F(ConfigTest, TheDefaultFileOfAUserIsFound) {
    if (const auto missing = missing_for_nobody(); !missing.empty()) GTEST_SKIP() << missing;
    auto limit_with = [&](const std::vector<std::string>& env) {
        std::vector<std::string> command = {"/usr/bin/env", "-i"};
        command.insert(command.end(), env.begin(), env.end());
        command.insert(command.end(), {bin("gshmd"), "--dir", dir(), "--check-config"});
        const auto result = run_as_nobody(command);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        return parse(result.out)["limit"].value;
    };
    std::filesystem::create_directories(scratch() + "/home/.config/gshm");
    std::filesystem::create_directories(scratch() + "/xdg/gshm");
    const std::string home = "HOME=" + scratch() + "/home";
    const std::string xdg = "XDG_CONFIG_HOME=" + scratch() + "/xdg";
    EXPECT_EQ(limit_with({home, xdg}), "");
    write_file(scratch() + "/home/.config/gshm/gshm.toml", "limit = \"1G\"\n");
    EXPECT_EQ(limit_with({home}), "\"1G\"");
    EXPECT_EQ(limit_with({home, "XDG_CONFIG_HOME=relative"}), "\"1G\"");
    EXPECT_EQ(limit_with({home, xdg}), "") << "the folder is elsewhere";
    write_file(scratch() + "/xdg/gshm/gshm.toml", "limit = \"2G\"\n");
    EXPECT_EQ(limit_with({home, xdg}), "\"2G\"");
    write("limit = \"3G\"\n");
    EXPECT_EQ(limit_with({home, xdg, "GSHM_CONFIG=" + config()}), "\"3G\"");
    EXPECT_EQ(limit_with({home, xdg, "GSHM_CONFIG=none"}), "");
    EXPECT_EQ(limit_with({}), "");
    // Another user's HOME, as after setpriv(1).
    ASSERT_EQ(::chmod((scratch() + "/home").c_str(), 0700), 0);
    EXPECT_EQ(limit_with({home}), "");
}

TEST_F(ConfigTest, TheCommandLineWinsOverTheFile) {
    write("device = [\"host:64M\", \"cuda\"]\nuser-share = 20\ndebug = true\n[budgets]\nleases = 5\nrings = 6\n");
    auto now = effective({"--device=host:32M", "--user-share", "30", "--debug=false", "--budgets", "rings=7"});
    EXPECT_EQ(now["device"].value, "[\"host:32M\"]");
    EXPECT_EQ(now["user-share"].value, "30");
    EXPECT_EQ(now["debug"].value, "false");
    EXPECT_EQ(now["budgets.leases"].value, "5") << "parts of a table are options of their own";
    EXPECT_EQ(now["budgets.rings"].value, "7");
    write("device = []\n");
    EXPECT_EQ(effective()["device"].source, config() + ":1:1") << "an empty list is the default, and set";
}

TEST_F(ConfigTest, AKilledDaemonsCommandLineIsKeptBelowTheFile) {
    write("staging = \"48M\"\nuser-share = 20\n");
    ASSERT_TRUE(start({"--config", config(), "--device", "host:32M", "--user-share", "30", "--pin-share", "0"}))
        << log();
    ASSERT_EQ(run_cli({"create", "it", "--size", "1M"}).exit_code, 0);
    kill();
    // The file wins over what was kept, and what the file alone said is not kept.
    write("user-share = 25\n");
    ASSERT_TRUE(start({"--config", config()})) << log();
    EXPECT_EQ(run_cli({"stat", "it"}).exit_code, 0);
    EXPECT_NE(run_cli({"df"}).out.find("32M"), std::string::npos);
    write("user-share = 26\npin-share = 5\ndevice = [\"host:32M\"]\nlimit = \"1G\"\nstaging = \"64M\"\n");
    const auto first = run_cli({"reload"});
    EXPECT_NE(first.out.find("user-share: 25 -> 26\n"), std::string::npos) << first.out << first.err;
    EXPECT_NE(first.out.find("pin-share: 0 -> 5\n"), std::string::npos) << first.out;
    EXPECT_EQ(first.out.find("staging"), std::string::npos) << "48M was of the file: " << first.out;
    write("");
    const auto second = run_cli({"reload"});
    EXPECT_NE(second.out.find("user-share: 26 -> 30\n"), std::string::npos) << second.out << second.err;
    kill();
    ASSERT_TRUE(start({"--config", config()})) << log();
    EXPECT_NE(run_cli({"df"}).out.find("32M"), std::string::npos) << "kept over two kills";
    // A takeover reads the file, too.
    write("device = [\"host:48M\"]\n");
    ASSERT_TRUE(take_over({"--config", config()})) << log();
    EXPECT_NE(run_cli({"df"}).out.find("48M"), std::string::npos);
    EXPECT_EQ(run_cli({"stat", "it"}).exit_code, 0);
}

TEST_F(ConfigTest, WrongFlagsNameTheNearestOne) {
    auto run = [](std::vector<std::string> args) {
        args.insert(args.begin(), bin("gshmd"));
        ChildProcess child;
        child.spawn(args);
        auto result = child.finish();
        EXPECT_EQ(result.exit_code, 2) << result.err;
        return result.err;
    };
    EXPECT_EQ(run({"--user-shares", "3"}), "gshmd: unknown option --user-shares; did you mean --user-share?\n");
    EXPECT_EQ(run({"--no_passthrough"}), "gshmd: unknown option --no_passthrough; did you mean --no-passthrough?\n");
    EXPECT_EQ(run({"/mnt", "--xyzzy=3"}), "gshmd: unknown option --xyzzy; see gshmd --help\n");
    EXPECT_EQ(run({"-x"}), "gshmd: unknown option -x; see gshmd --help\n");
    EXPECT_EQ(run({"--limit"}), "gshmd: --limit needs a value; see gshmd --help\n");
    EXPECT_EQ(run({"--budgets", "leases"}), "gshmd: --budgets: 'leases' is not RESOURCE=TOTAL\n");
    const auto lease = run({"--budgets", "lease=3"});
    EXPECT_TRUE(lease.starts_with("gshmd: --budgets: there is no resource \"lease\"; did you mean leases? There are: "))
        << lease;
    EXPECT_NE(run({"--budgets", "foo=3"}).find("\"foo\". There are: connections, "), std::string::npos);
    EXPECT_EQ(run({"--debug=maybe"}), "gshmd: --debug: 'maybe' is neither true nor false\n");
    EXPECT_EQ(run({"--dir", ""}), "gshmd: --dir: a value must not be empty\n");
}

// docs/configuration.md has a table of all keys, and packaging/gshm.toml has each of them.
TEST_F(ConfigTest, TheDocumentationHasEveryKey) {
    std::set<std::string> known;
    for (const auto key : option_keys()) known.emplace(key);
    std::set<std::string> described;
    std::ifstream page(GSHM_SOURCE_DIR "/docs/configuration.md");
    for (std::string line; std::getline(page, line);) {
        if (line.starts_with("| `")) described.insert(line.substr(3, line.find('`', 3) - 3));
    }
    EXPECT_EQ(described, known);
    std::ifstream example(GSHM_SOURCE_DIR "/packaging/gshm.toml");
    std::string text{std::istreambuf_iterator<char>(example), {}};
    for (const auto& key : known) {
        const bool there =
            text.find("\n#" + key + " = ") != std::string::npos || text.find("\n#[" + key + "]") != std::string::npos;
        EXPECT_TRUE(there) << key;
    }
    // With everything switched on it is a configuration.
    for (size_t at = 0; (at = text.find("\n#", at)) != std::string::npos; ++at) {
        if (text[at + 2] != ' ' && text[at + 2] != '\n') text.erase(at + 1, 1);
    }
    write(text);
    const auto result = check();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    for (const auto& [key, value] : parse(result.out)) {
        if (!key.starts_with("budgets.")) {
            EXPECT_NE(value.source, "default") << key;
        }
    }
}

TEST_F(ConfigTest, TheHelpHasEveryOption) {
    ChildProcess child;
    ASSERT_TRUE(child.spawn({bin("gshmd"), "--help"}));
    const auto help = child.finish();
    for (const auto& row : option_table()) {
        EXPECT_NE(help.out.find("--" + std::string(row.name)), std::string::npos) << row.name;
    }
    EXPECT_EQ(help.out.find('{'), std::string::npos) << "every placeholder is replaced";
}

TEST(Nearest, FindsSimilarWordsOnly) {
    const std::vector<std::string_view> known = {"device", "dir", "limit", "mountpoint", "user-share"};
    auto find = [&](std::string_view word) { return nearest(word, known); };
    EXPECT_EQ(find("devcie"), "device");
    EXPECT_EQ(find("devices"), "device");
    EXPECT_EQ(find("LIMIT"), "limit");
    EXPECT_EQ(find("usershare"), "user-share");
    EXPECT_EQ(find("mount"), "mountpoint");
    EXPECT_EQ(find("di"), "dir");
    EXPECT_EQ(find("x"), "");
    EXPECT_EQ(find(""), "");
    EXPECT_EQ(find("something else"), "");
    EXPECT_EQ(find(std::string(100'000, 'd')), "");
}

}  // namespace
}  // namespace gshm::core::test
