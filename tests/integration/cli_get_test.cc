// `gshm get`: the file of each object, and the state after a failure.
#include <atomic>
#include <sys/stat.h>

#include "cli_copy_fixture.h"

namespace gshm::core::test {
namespace {

class CliGet : public CliCopyTest {
protected:
    void put(const std::string& name, std::string_view bytes) { ok({"put", write("source", bytes), name}); }
};

TEST_F(CliGet, TheWayIsTold) {
    const auto bytes = noise((5 << 20) + 3, 1);
    put("w", bytes);
    const auto got = json({"get", "w", file("out")});
    EXPECT_EQ(got["name"], "w");
    EXPECT_EQ(got["file"], file("out"));
    EXPECT_EQ(got["bytes"], bytes.size());
    EXPECT_FALSE(got["path"].empty());
    EXPECT_TRUE(read(file("out")) == bytes);
    EXPECT_EQ(json({"get", "w", "/dev/null"})["path"], Json({"stream"}));
}

TEST_F(CliGet, WhereObjectsAndDirectoriesLand) {
    put("a", "A");
    put("t/x", "X");
    put("t/sub/y", "Y");
    const auto get = [&](Args args, const std::string& to) {
        args.insert(args.begin(), "get");
        args.push_back(file(to));
        ok(args);
    };
    get({"a"}, "one");
    get({"a"}, "slash/");         // a folder, which is created
    get({"t/x"}, "slash");        // it exists by now
    get({"a", "t/x"}, "many");    // several objects make it a folder
    get({"-r", "t"}, "fresh");    // becomes this folder
    get({"-r", "t"}, "fresh");    // into the folder
    get({"-r", "t/"}, "other/");  // into the folder
    get({"-r", "a", "t"}, "mixed");
    get({"-r", "/"}, "all");
    EXPECT_EQ(shell("find one slash many fresh other mixed all -type f | sort").out,
              "all/a\nall/t/sub/y\nall/t/x\nfresh/sub/y\nfresh/t/sub/y\nfresh/t/x\nfresh/x\nmany/a\nmany/x\nmixed/a\n"
              "mixed/t/sub/y\nmixed/t/x\none\nother/t/sub/y\nother/t/x\nslash/a\nslash/x\n");
    EXPECT_EQ(read(file("all/t/sub/y")), "Y");
}

TEST_F(CliGet, WhatMakesNoSenseWritesNothing) {
    put("a", "A");
    put("d/a", "other");
    write("plain", "plain");
    const auto before = files_in(scratch());
    fails(9, {"get", "a", "d/a", file("plain")}, {"plain is not a directory"});
    fails(9, {"get", "a", file("plain/")}, {"not a directory"});
    fails(9, {"get", "d", file("x")}, {"d is a directory", "get -r"});
    fails(2, {"get", "a", "d/a", file("x")}, {"would both become"});
    fails(2, {"get", "a"}, {"NAME"});
    fails(2, {"get", "a", ""}, {"empty"});
    fails(4, {"get", "nothing", file("x")}, {"nothing"});
    fails(4, {"get", "nothing", file("x/")}, {"nothing"});
    fails(4, {"get", "a", file("no/such/folder")}, {"folder"});
    fails(2, {"get", "-r", "d", "-"}, {"-r"});
    fails(2, {"get", "--verify", "a", "-"}, {"--verify"});
    fails(2, {"get", "--verify", "a", "/dev/null"}, {"--verify"});
    EXPECT_EQ(files_in(scratch()), before);
    EXPECT_EQ(read(file("plain")), "plain");
}

TEST_F(CliGet, OneThatFailsAmongManyLeavesTheOthers) {
    put("t/a", "A");
    put("t/b", "B");
    put("t/c/d", "D");
    fails(4, {"get", "t/a", "missing", "t/b", file("out")}, {"missing"});
    EXPECT_EQ(read(file("out/a")) + read(file("out/b")), "AB");
    // A folder in the place of a file, and a file in the place of a folder.
    std::filesystem::create_directories(file("into/t/a"));
    write("into/t/c", "in the way");
    fails(9, {"get", "-r", "t", file("into")}, {"into/t/a is a directory"});
    EXPECT_EQ(read(file("into/t/b")), "B");
    EXPECT_EQ(read(file("into/t/c")), "in the way");
}

TEST_F(CliGet, LinksAndEmptyDirectories) {
    put("t/a", "A");
    const auto client = connect();
    const auto make = [&](uint32_t kind, const char* name, const char* target) {
        gshm_make_spec spec = GSHM_MAKE_SPEC_INIT;
        spec.kind = kind;
        spec.name = name;
        spec.target = target;
        EXPECT_EQ(gshm_make(client.get(), &spec), 0) << gshm_last_error();
    };
    make(GSHM_KIND_SYMLINK, "t/link", "a");
    make(GSHM_KIND_SYMLINK, "t/dangling", "nowhere");
    make(GSHM_KIND_SYMLINK, "t/loop", ".");
    make(GSHM_KIND_DIRECTORY, "t/none", nullptr);
    const auto result = run_cli({"get", "-r", "t", file("out")});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.err.find("t/dangling is a link that leads to no object"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("t/loop is a link that leads to no object"), std::string::npos) << result.err;
    EXPECT_EQ(shell("cd out; find . | sort").out, ".\n./a\n./link\n./none\n");
    EXPECT_EQ(read(file("out/link")), "A");
    ok({"get", "t/link", file("one")});
    fails(4, {"get", "t/dangling", file("two")}, {"dangling"});
}

TEST_F(CliGet, StandardOutput) {
    const auto bytes = noise((9 << 20) + 5, 2);
    put("w", bytes);
    put("v", "V");
    EXPECT_TRUE(ok({"get", "w", "-"}) == bytes);
    EXPECT_TRUE(ok({"get", "v", "w", "v", "-"}) == "V" + bytes + "V");
    const auto result = run_cli({"get", "v", "missing", "v", "-"});
    EXPECT_EQ(result.exit_code, 4);
    EXPECT_EQ(result.out, "VV");
    EXPECT_EQ(shell("$gshm get w - | head -c 3 > /dev/null; echo ${PIPESTATUS[0]}").out, "141\n");
    EXPECT_EQ(shell("$gshm get w - > /dev/full").exit_code, 7);
    EXPECT_EQ(shell("mkfifo f; cat f > copy & $gshm get w f; wait").err, "");
    EXPECT_TRUE(read(file("copy")) == bytes);
}

TEST_F(CliGet, AFullDisk) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to mount a small file system";
    const auto disk = file("disk");
    if (!mount_small(disk, "8m")) GTEST_SKIP() << "mounting is not permitted here";
    put("large", noise(16 << 20, 1));
    put("small", "small");
    write("disk/large", "old");
    fails(7, {"get", "large", disk},
          {"disk/large: No space left", "16777216 bytes needed", " free)", "nothing was written"});
    EXPECT_EQ(read(disk + "/large"), "old");
    EXPECT_EQ(files_in(disk), 1u);
    fails(7, {"get", "large", "small", disk}, {"disk/large"});
    EXPECT_EQ(read(disk + "/small"), "small");
    EXPECT_EQ(files_in(disk), 2u);
    // In the middle of many: files that fit are complete.
    for (int i = 0; i < 12; ++i) put("t/" + std::to_string(i), noise(1 << 20, static_cast<unsigned>(i)));
    fails(7, {"get", "-r", "t", disk}, {"1048576 bytes needed"});
    size_t whole = 0;
    for (const auto& entry : std::filesystem::directory_iterator(disk + "/t")) {
        ++whole;
        EXPECT_EQ(entry.file_size(), 1u << 20) << entry.path();
        EXPECT_TRUE(read(entry.path()) == noise(1 << 20, static_cast<unsigned>(std::stoi(entry.path().filename()))))
            << entry.path();
    }
    EXPECT_GE(whole, 4u);
    EXPECT_LT(whole, 8u);
}

TEST_F(CliGet, VerificationFindsWhatChanged) {
    const auto client = connect();
    gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
    spec.name = "w";
    spec.size_bytes = 24 << 20;
    spec.device = "host";
    gshm_object* handle = nullptr;
    ASSERT_EQ(gshm_create(client.get(), &spec, &handle), 0) << gshm_last_error();
    const Object object(handle);
    write("out", "old");
    {
        std::atomic<bool> ended = false;
        std::thread writer([&] {
            auto* words = static_cast<volatile uint64_t*>(gshm_data(handle));
            for (uint64_t i = 1; !ended; ++i) words[1 << 20] = i;
        });
        int failed = 0;
        while (failed == 0 && !HasFailure()) {
            const auto result = run_cli({"get", "--verify", "w", file("out")});
            if (result.exit_code == 0) {
                write("out", "old");
                continue;
            }
            ++failed;
            EXPECT_EQ(result.exit_code, 1) << result.err;
            EXPECT_NE(result.err.find("verification failed: w and "), std::string::npos) << result.err;
            EXPECT_NE(result.err.find(" differ at byte 83886"), std::string::npos) << result.err;
        }
        ended = true;
        writer.join();
        EXPECT_EQ(failed, 1);
    }
    EXPECT_EQ(read(file("out")), "old");
    ok({"get", "--verify", "w", file("out")});
    EXPECT_EQ(std::filesystem::file_size(file("out")), 24u << 20);
}

// After an interruption at any time, there is the old file or the new one, and no other.
TEST_F(CliGet, InterruptedAtRandomMoments) {
    const auto bytes = noise(120 << 20, 1);
    put("w", bytes);
    std::filesystem::create_directory(file("to"));
    std::mt19937 random(1);
    int interrupted = 0;
    unsigned latest_us = 80'000;  // shorter on a faster machine
    for (int round = 0; round < 20; ++round) {
        const int number = std::array{SIGINT, SIGTERM, SIGHUP, SIGKILL}[round % 4];
        write("to/out", "old");
        ChildProcess child;
        ASSERT_TRUE(child.spawn(cli_argv({"get", "w", file("to/out")})));
        std::this_thread::sleep_for(std::chrono::microseconds(random() % latest_us));
        child.signal(number);
        const int code = child.finish().exit_code;
        if (code == 0) {
            latest_us = latest_us * 2 / 3;
            EXPECT_EQ(std::filesystem::file_size(file("to/out")), bytes.size());
        } else {
            EXPECT_EQ(code, 128 + number);
            ++interrupted;
            const auto size = std::filesystem::file_size(file("to/out"));
            EXPECT_TRUE(size == 3 || size == bytes.size()) << size;
        }
        EXPECT_LE(files_in(file("to")), 1u + (number == SIGKILL)) << "round " << round;
        if (files_in(file("to")) > 1) shell("rm to/*");
    }
    EXPECT_GT(interrupted, 4);
}

}  // namespace
}  // namespace gshm::core::test
