// `gshm put` without --replace created the object under its name and then filled it: other processes saw it
// half-filled, and a killed put left it behind.
#include <sys/stat.h>

#include "integration/cli_copy_fixture.h"
#include "support/silent_file.h"

namespace gshm::core::test {
namespace {

constexpr uint64_t kBytes = 8 << 20;

class PutName : public CliCopyTest {
protected:
    // Half of the bytes have arrived and are in an object.
    void start_half(ChildProcess& child, Args options) {
        options.insert(options.begin(), {"put", "--size", std::to_string(kBytes)});
        options.insert(options.end(), {"-", "d/w"});
        const uint64_t before = object_bytes();
        ASSERT_TRUE(child.spawn(cli_argv(options)));
        ASSERT_TRUE(child.feed(bytes_.substr(0, kBytes / 2)));
        ASSERT_TRUE(eventually([&] { return object_bytes() == before + kBytes; })) << "its memory is there";
    }
    RunResult finish(ChildProcess& child) { return child.finish(std::string_view(bytes_).substr(kBytes / 2)); }

    const std::string bytes_ = noise(kBytes, 1);
};

TEST_F(PutName, IsNotThereBeforeAllOfAStreamIs) {
    for (const Args& options : {Args{}, Args{"--verify"}, Args{"--replace"}, Args{"--replace", "--verify"}}) {
        ChildProcess child;
        ASSERT_NO_FATAL_FAILURE(start_half(child, options));
        fails(4, {"stat", "d/w"}, {"d/w"});
        EXPECT_EQ(ok({"ls", "-r"}), "");
        EXPECT_EQ(ok({"ls"}), "") << "nor its directory";
        const auto result = finish(child);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        EXPECT_EQ(stat("d/w")["state"], "sealed");
        EXPECT_TRUE(ok({"cat", "d/w"}) == bytes_);
        ok({"rm", "d/w"});
    }
}

TEST_F(PutName, IsNotThereBeforeAllOfAFifoIs) {
    ASSERT_EQ(::mkfifo(file("fifo").c_str(), 0600), 0);
    for (const Args& options : {Args{}, Args{"--replace"}}) {
        Args args = {"put"};
        args.insert(args.end(), options.begin(), options.end());
        args.insert(args.end(), {file("fifo"), "w"});
        ChildProcess child;
        ASSERT_TRUE(child.spawn(cli_argv(args)));
        {
            std::ofstream writer(file("fifo"), std::ios::binary);  // returns when the put has opened it
            writer << bytes_.substr(0, kBytes / 2) << std::flush;
            fails(4, {"stat", "w"}, {"w"});
            EXPECT_EQ(ok({"ls"}), "");
            writer << bytes_.substr(kBytes / 2);
        }
        const auto result = child.finish();
        EXPECT_EQ(result.exit_code, 0) << result.err;
        EXPECT_TRUE(ok({"cat", "w"}) == bytes_);
        ok({"rm", "w"});
    }
}

TEST_F(PutName, IsNotThereBeforeAllOfAFileIs) {
    auto hung = SilentFile::create(file("hung"), 40 << 20);
    if (!hung) GTEST_SKIP() << "mounting is not permitted here";
    ChildProcess child;
    ASSERT_TRUE(child.spawn(cli_argv({"put", file("hung"), "w"})));
    ASSERT_TRUE(eventually([&] { return hung->ignored() > 0; }));
    EXPECT_EQ(object_bytes(), 40u << 20);
    EXPECT_EQ(ok({"ls"}), "");
    child.signal(SIGTERM);
    EXPECT_EQ(child.finish().exit_code, 128 + SIGTERM);
}

TEST_F(PutName, AKilledPutLeavesNothing) {
    for (const Args& options : {Args{}, Args{"--replace"}}) {
        ChildProcess child;
        ASSERT_NO_FATAL_FAILURE(start_half(child, options));
        child.signal(SIGKILL);
        EXPECT_EQ(child.finish().exit_code, 128 + SIGKILL);
        EXPECT_EQ(ok({"ls", "-r"}), "");
        EXPECT_TRUE(eventually([&] { return object_bytes() == 0; }));
        EXPECT_EQ(ok({"ls", "-r"}), "");
    }
}

TEST_F(PutName, ThatIsTakenIsRefusedBeforeAnythingIsRead) {
    ok({"put", write("old", "old"), "w"});
    // The fifo has no writer: a put that read it would wait forever.
    ASSERT_EQ(::mkfifo(file("fifo").c_str(), 0600), 0);
    fails(6, {"put", file("fifo"), "w"}, {"w exists", "--replace"});
    EXPECT_EQ(ok({"cat", "w"}), "old");
}

TEST_F(PutName, ThatIsTakenMeanwhileIsRefused) {
    ChildProcess child;
    ASSERT_NO_FATAL_FAILURE(start_half(child, {}));
    ok({"put", write("other", "other"), "d/w"});
    const auto result = finish(child);
    EXPECT_EQ(result.exit_code, 6) << result.err;
    EXPECT_NE(result.err.find("d/w"), std::string::npos) << result.err;
    EXPECT_EQ(ok({"cat", "d/w"}), "other");
    EXPECT_TRUE(eventually([&] { return object_bytes() == 5; }));
}

TEST_F(PutName, OfTheOldVersionStaysItsOwnUntilTheEnd) {
    ok({"put", write("old", "old"), "d/w"});
    ChildProcess child;
    ASSERT_NO_FATAL_FAILURE(start_half(child, {"--replace"}));
    EXPECT_EQ(ok({"cat", "d/w"}), "old");
    EXPECT_EQ(ok({"ls", "-r"}), "d/w\n");
    EXPECT_EQ(finish(child).exit_code, 0);
    EXPECT_TRUE(ok({"cat", "d/w"}) == bytes_);
}

}  // namespace
}  // namespace gshm::core::test
