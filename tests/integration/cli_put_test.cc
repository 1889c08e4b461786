// `gshm put`: the object of each file, from files, folders and pipes.
#include <sys/stat.h>

#include "cli_copy_fixture.h"
#include "support/silent_file.h"

namespace gshm::core::test {
namespace {

using CliPut = CliCopyTest;

TEST_F(CliPut, TheWayIsTold) {
    const auto bytes = noise((5 << 20) + 3, 1);
    const auto path = write("in", bytes);
    const auto put = json({"put", path, "models/w", "--mode", "0644"});
    EXPECT_EQ(put["name"], "models/w");
    EXPECT_EQ(put["file"], path);
    EXPECT_EQ(put["bytes"], bytes.size());
    EXPECT_GT(put["seconds"].get<double>(), 0);
    ASSERT_FALSE(put["path"].empty());
    std::string words;
    for (const auto& word : put["path"]) words += (words.empty() ? "" : "+") + word.get<std::string>();
    EXPECT_EQ(transfer("models/w"), words);
    EXPECT_NE(ok({"stat", "models/w"}).find("attr transfer: " + words), std::string::npos);
    EXPECT_EQ(stat("models/w")["state"], "sealed");
    EXPECT_EQ(stat("models/w")["mode"], "0644");
    EXPECT_TRUE(ok({"cat", "models/w"}) == bytes);
    EXPECT_EQ(ok({"put", "--verify", "--replace", path, "models/w"}), "") << "silent";
}

TEST_F(CliPut, EverySizeAroundABlockAndAChunk) {
    const auto bytes = noise((4 << 20) + 4097, 2);
    for (const size_t size :
         {0, 1, 511, 512, 513, 4095, 4096, 4097, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, (4 << 20) + 4097}) {
        const auto path = write("in", std::string_view(bytes).substr(0, size));
        ok({"put", "--replace", "--verify", path, "w"});
        EXPECT_EQ(stat("w")["size_bytes"], size);
        EXPECT_TRUE(ok({"cat", "w"}) == bytes.substr(0, size)) << size;
        ok({"get", "--verify", "w", file("out")});
        EXPECT_TRUE(read(file("out")) == bytes.substr(0, size)) << size;
        EXPECT_EQ(stat("w")["state"], "sealed");
    }
}

TEST_F(CliPut, WhereFilesAndFoldersLand) {
    const auto a = write("a", "A"), b = write("b", "B");
    write("tree/x", "X");
    write("tree/sub/y", "Y");
    ok({"put", a, "one"});
    ok({"put", a, "slash/"});                    // into the directory
    ok({"put", b, "slash"});                     // it is a directory by now
    ok({"put", a, b, "many"});                   // several files make it a directory
    ok({"put", "-r", file("tree"), "fresh"});    // becomes this directory
    ok({"put", "-r", file("tree"), "fresh"});    // into the directory
    ok({"put", "-r", file("tree/"), "other/"});  // into the directory
    ok({"put", "-r", file("tree/."), "dot"});    // the contents of the folder
    ok({"put", "-r", a, file("tree"), "mixed"});
    ok({"put", b, "/"});
    EXPECT_EQ(ok({"ls", "-r"}),
              "b\ndot/sub/y\ndot/x\nfresh/sub/y\nfresh/tree/sub/y\nfresh/tree/x\nfresh/x\nmany/a\nmany/b\nmixed/a\n"
              "mixed/tree/sub/y\nmixed/tree/x\none\nother/tree/sub/y\nother/tree/x\nslash/a\nslash/b\n");
    EXPECT_EQ(ok({"cat", "fresh/tree/sub/y"}), "Y");
}

TEST_F(CliPut, WhatMakesNoSenseMovesNothing) {
    const auto a = write("a", "A"), b = write("b", "B");
    write("other/a", "other");
    ok({"put", a, "taken"});
    fails(9, {"put", a, b, "taken"}, {"taken is not a directory"});
    fails(9, {"put", a, "taken/"}, {"taken is not a directory"});
    fails(2, {"put", a, file("other/a"), "both"}, {"would both become both/a"});
    fails(2, {"put", a}, {"SOURCE"});
    fails(2, {"put", a, ""}, {"empty"});
    fails(2, {"put", a, "x", "--size", "1"}, {"--size"});
    fails(2, {"put", a, "/x"}, {});
    fails(2, {"put", a, "x//y"}, {});
    fails(2, {"put", "/dev/zero", "x"}, {"neither a regular file nor a pipe"});
    fails(4, {"put", file("missing"), "x"}, {"missing"});
    fails(4, {"put", a, "x", "--device", "cuda:9"}, {"cuda:9"});
    fails(9, {"put", file("other"), "x"}, {"is a directory", "put -r"});
    fails(9, {"put", "-", "dir/"}, {"no file name"}, "text");
    EXPECT_EQ(ok({"ls", "-r"}), "taken\n");
}

TEST_F(CliPut, TakenNamesAreRefusedBeforeAByteIsMoved) {
    ok({"put", write("old", "old"), "w"});
    const auto large = write_large("w", 100 << 20);
    const auto small = write("small", "small");
    fails(6, {"put", large, "w"}, {"w exists", "--replace"});
    // A put that reads this one waits for ever.
    if (const auto unreadable = SilentFile::create(file("unreadable"), 100 << 20)) {
        fails(6, {"put", file("unreadable"), "w"}, {"w exists", "--replace"});
        EXPECT_EQ(unreadable->ignored(), 0u);
    }
    EXPECT_EQ(ok({"cat", "w"}), "old");
    // One of several fails: the others continue.
    ok({"put", small, "d/w"});
    fails(6, {"put", large, small, "d"}, {"d/w exists"});
    EXPECT_EQ(ok({"cat", "d/w"}), "small");
    EXPECT_EQ(ok({"cat", "d/small"}), "small");
    // A directory in the place of an object, even with --replace, and an object in the place of a directory.
    ok({"put", small, "e/large/x"});
    std::filesystem::create_directory(file("e"));
    fails(9, {"put", "--replace", write("e/large", "1"), write("e/b", "2"), "e"}, {"e/large is a directory"});
    EXPECT_EQ(ok({"cat", "e/b"}), "2");
    write("t/small/x", "x");
    ok({"put", small, "f/small"});
    EXPECT_NE(run_cli({"put", "-r", "--replace", file("t/."), "f"}).exit_code, 0);
    EXPECT_EQ(ok({"ls", "-r", "f"}), "f/small\n");
}

TEST_F(CliPut, AFolderOfManyFiles) {
    const std::string odd[] = {"with space", "new\nline", "-dash", "ünï", "[a,b]", "++",
                               "quote'\"",   "\x01mark",  "tab\t", "*",   "~"};
    for (const auto& name : odd) write("tree/odd/" + name, "odd " + name);
    for (int i = 0; i < 200; ++i) write("tree/many/" + std::to_string(i), noise(static_cast<size_t>(i) * 37, i));
    write("tree/large", noise(20 << 20, 5));
    write("tree/empty", "");
    std::filesystem::create_directories(file("tree/none/at/all"));
    const auto put = json({"put", "-r", "--verify", file("tree"), "t"});
    EXPECT_EQ(put["files"].size(), 200 + std::size(odd) + 2);
    EXPECT_EQ(stat("t/none/at/all")["kind"], "directory");
    EXPECT_EQ(stat("t/empty")["size_bytes"], 0);
    for (const auto& one : put["files"]) EXPECT_EQ(one["path"].empty(), one["bytes"] == 0) << one;
    ok({"get", "-r", "--verify", "t", file("back")});
    EXPECT_EQ(difference(file("tree"), file("back")), "");
    // Again, with replacement of the objects.
    write("tree/many/7", "changed");
    ok({"put", "-r", "--replace", file("tree/."), "t"});
    EXPECT_EQ(ok({"cat", "t/many/7"}), "changed");
    EXPECT_EQ(ok({"cat", "--", "t/odd/-dash"}), "odd -dash");
}

TEST_F(CliPut, LinksAndSpecialFilesInAFolder) {
    write("tree/file", "F");
    write("elsewhere", "E");
    std::filesystem::create_symlink("../elsewhere", file("tree/link"));
    std::filesystem::create_symlink("nowhere", file("tree/dangling"));
    std::filesystem::create_directory_symlink(".", file("tree/loop"));
    ::mkfifo(file("tree/fifo").c_str(), 0600);
    const auto result = run_cli({"put", "-r", file("tree"), "t"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    for (const char* text :
         {"warning: ", "dangling is a link that leads nowhere", "loop is a link to a folder", "fifo is a special file"})
        EXPECT_NE(result.err.find(text), std::string::npos) << text << result.err;
    EXPECT_EQ(ok({"ls", "-r"}), "t/file\nt/link\n");
    EXPECT_EQ(ok({"cat", "t/link"}), "E");
    // A link given as an argument is followed.
    std::filesystem::create_directory_symlink("tree", file("there"));
    EXPECT_EQ(run_cli({"put", "-r", file("there"), "u"}).exit_code, 0);
    EXPECT_EQ(ok({"ls", "-r", "u"}), "u/file\nu/link\n");
}

TEST_F(CliPut, WhatCannotBePutAmongManyLeavesTheOthers) {
    write("tree/a", "A");
    write("tree/bad\xff", "not UTF-8");
    write("tree/z", "Z");
    fails(2, {"put", "-r", file("tree"), "t"}, {"bad\\xff"});
    EXPECT_EQ(ok({"ls", "-r"}), "t/a\nt/z\n");
    fails(4, {"put", file("tree/a"), file("missing"), file("tree/z"), "u"}, {"missing"});
    EXPECT_EQ(ok({"ls", "-r", "u"}), "u/a\nu/z\n");
    const auto result = run_cli({"--json", "put", file("tree/a"), file("missing"), "v"});
    EXPECT_EQ(result.exit_code, 4);
    EXPECT_EQ(Json::parse(result.err)["error"]["code"], "ENOENT");
    EXPECT_EQ(Json::parse(result.out)["files"].size(), 1u);
}

TEST_F(CliPut, AnUnreadableFileAmongMany) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
    if (::access("/usr/bin/setpriv", X_OK) != 0) GTEST_SKIP() << "needs setpriv";
    write("tree/a", "A");
    write("tree/secret", "S");
    write("tree/closed/b", "B");
    write("tree/z", "Z");
    ::chmod(file("tree/secret").c_str(), 0600);
    ::chmod(file("tree/closed").c_str(), 0700);
    Args argv = {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
    const auto command = cli_argv({"put", "-r", file("tree"), "t"});
    argv.insert(argv.end(), command.begin(), command.end());
    ChildProcess child;
    ASSERT_TRUE(child.spawn(argv));
    const auto result = child.finish();
    if (result.exit_code == 1 || result.exit_code == 127)
        GTEST_SKIP() << "another user cannot run the programs of this build";
    EXPECT_EQ(result.exit_code, 5) << result.err;
    EXPECT_NE(result.err.find("tree/secret: Permission denied"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("tree/closed: Permission denied"), std::string::npos) << result.err;
    EXPECT_EQ(ok({"ls", "-r"}), "t/a\nt/z\n");
}

TEST_F(CliPut, StandardInput) {
    ok({"put", "-", "small"}, "hello");
    EXPECT_EQ(ok({"cat", "small"}), "hello");
    EXPECT_EQ(transfer("small"), "stream");
    ok({"put", "-", "none"}, "");
    EXPECT_EQ(stat("none")["size_bytes"], 0);
    const auto bytes = noise((9 << 20) + 1, 3);
    EXPECT_EQ(json({"put", "--verify", "-", "some"}, bytes)["bytes"], bytes.size());
    EXPECT_TRUE(ok({"cat", "some"}) == bytes);
    const auto large = noise((100 << 20) + 5, 4);  // more than fits in memory
    EXPECT_EQ(json({"put", "--verify", "--replace", "-", "some"}, large)["bytes"], large.size());
    EXPECT_TRUE(ok({"get", "some", "-"}) == large);

    ok({"put", "--size", std::to_string(bytes.size()), "--verify", "-", "sized"}, bytes);
    EXPECT_TRUE(ok({"cat", "sized"}) == bytes);
    ok({"put", "--size", "0", "-", "sized0"}, "");
    fails(7, {"put", "--size", "3", "-", "x"}, {"more than the 3 bytes"}, "four");
    fails(1, {"put", "--size", "5", "-", "x"}, {"ended after 4 of the 5 bytes"}, "four");
    fails(7, {"put", "--size", "1T", "-", "x"}, {"gshm df"}, "four");
    fails(6, {"put", "-", "small"}, {"exists"}, "again");
    EXPECT_FALSE(exists("x"));
}

TEST_F(CliPut, PipesByOtherNames) {
    EXPECT_EQ(shell("$gshm put <(printf substitution) a").err, "");
    EXPECT_EQ(ok({"cat", "a"}), "substitution");
    EXPECT_EQ(shell("printf stdin | $gshm put /dev/stdin b").err, "");
    EXPECT_EQ(ok({"cat", "b"}), "stdin");
    EXPECT_EQ(shell("mkfifo f; printf fifo > f & $gshm put f c").err, "");
    EXPECT_EQ(ok({"cat", "c"}), "fifo");
    // A file on standard input has a size; the part already read does not count.
    EXPECT_EQ(
        shell("printf 0123456789 > ten; { dd bs=4 count=1 status=none > /dev/null; $gshm put --verify - d; } < ten")
            .err,
        "");
    EXPECT_EQ(ok({"cat", "d"}), "456789");
    EXPECT_EQ(transfer("d").find("stream"), std::string::npos);
    // Files with size 0 and contents.
    EXPECT_EQ(shell("$gshm put /proc/version e").err, "");
    EXPECT_EQ(ok({"cat", "e"}), read("/proc/version"));
    EXPECT_EQ(shell("$gshm put - f <&-").exit_code, 1);
    EXPECT_FALSE(exists("f"));
}

TEST_F(CliPut, AStreamDoesNotTakeItsSizeInMemory) {
    if (is_sanitized()) GTEST_SKIP() << "a sanitizer needs more address space";
    const auto result = shell("head -c 300M /dev/zero | (ulimit -v 260000; $gshm put --verify - zeros)");
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(stat("zeros")["size_bytes"], 300 << 20);
}

// The daemon has the fake driver. The command has no driver and does not need one.
TEST(CliPutOnCuda, AFolderThereAndBack) {
    DaemonFixture daemon;
    ASSERT_TRUE(daemon.start({"--device", "cuda"}, DaemonFixture::fake_cuda_env(2))) << daemon.log();
    const auto tree = daemon.scratch() + "/tree", back = daemon.scratch() + "/back";
    std::filesystem::create_directories(tree + "/sub");
    for (int i = 0; i < 20; ++i)
        std::ofstream(tree + "/sub/" + std::to_string(i))
            << std::string(static_cast<size_t>(i) * 100'000, static_cast<char>('a' + i));
    auto result = daemon.run_cli({"put", "-r", "--verify", tree, "t", "--device", "cuda:1"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    result = daemon.run_cli({"get", "-r", "--verify", "t", back});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    ChildProcess diff;
    ASSERT_TRUE(diff.spawn({"/usr/bin/diff", "-rq", tree, back}));
    EXPECT_EQ(diff.finish().exit_code, 0);
    const auto info = nlohmann::json::parse(daemon.run_cli({"stat", "t/sub/7", "--json"}).out)["objects"][0];
    EXPECT_EQ(info["device"], "cuda:1");
}

}  // namespace
}  // namespace gshm::core::test
