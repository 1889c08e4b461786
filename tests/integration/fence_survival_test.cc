// Fences whose writers die, or end their sessions too early, with a daemon, with its successor, and without one.
#include "fence_fixture.h"

namespace gshm::core::test {
namespace {

class FenceSurvivalTest : public FenceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, FenceSurvivalTest, ::testing::Values("host", "cuda:0"), device_of);

TEST_P(FenceSurvivalTest, AWriterThatDiesIsAnErrorAndNoHang) {
    make_for_others("o");
    Other writer([&](const Other& self) {
        auto client = connect_hpp();
        auto object = client.open("o", {.write = true}).value();
        auto fence = Fence::open(object, {.write = true}).value();
        fence.publish().value();
        self.say();
        for (;;) pause();
    });
    writer.hear();
    auto object = hpp_.open("o").value();
    auto fence = Fence::open(object).value();
    EXPECT_EQ(fence.wait().value(), 1u);
    std::thread killer([&] {
        std::this_thread::sleep_for(20ms);
        writer.kill();
    });
    const auto waited = fence.wait(nullptr, 2);
    killer.join();
    ASSERT_EQ(code(waited), EOWNERDEAD);
    EXPECT_EQ(waited.error().message, "the writer of generation 2 has died");
    EXPECT_EQ(fence.wait(nullptr, 1).value(), 1u) << "that was done before";
    auto heir = hpp_.open("o", {.write = true}).value();
    auto next = Fence::open(heir, {.write = true}).value();
    EXPECT_EQ(next.publish().value(), 2u);
    EXPECT_EQ(fence.wait(nullptr, 2).value(), 2u);
}

// The writer is killed before its stream completes the generation: a reader's stream that waits on the GPU continues.
TEST_P(FenceSurvivalTest, AStreamThatWaitsForADeadWriterGoesOn) {
    if (on_host()) GTEST_SKIP() << "there are no streams on host";
    make_for_others("o");
    Other writer([&](const Other& self) {
        auto client = connect_hpp();
        auto object = client.open("o", {.write = true}).value();
        auto fence = Fence::open(object, {.write = true}).value();
        Stream stream;
        fence.publish(stream.get()).value();
        stream.synchronize();
        stream.stop();
        stream.fill(object.data(), 9, 4096);
        fence.publish(stream.get()).value();
        fence.publish(stream.get()).value();
        self.say();
        for (;;) pause();
    });
    writer.hear();
    auto object = hpp_.open("o").value();
    auto fence = Fence::open(object).value();
    Stream stream;
    EXPECT_EQ(fence.wait(stream.get(), 1).value(), 1u);
    ASSERT_EQ(fence.wait(stream.get(), 3).value(), 3u);
    EXPECT_EQ(code(fence.check(3)), EAGAIN);
    writer.kill();
    stream.synchronize();  // hangs if the stream is never released
    EXPECT_EQ(code(fence.check(1)), 0);
    EXPECT_EQ(code(fence.check(2)), EOWNERDEAD);
    EXPECT_EQ(code(fence.check(3)), EOWNERDEAD);
    EXPECT_EQ(code(fence.wait(stream.get(), 2)), EOWNERDEAD);
    auto heir = hpp_.open("o", {.write = true}).value();
    auto next = Fence::open(heir, {.write = true}).value();
    EXPECT_EQ(next.publish(stream.get()).value(), 4u);
    EXPECT_EQ(fence.wait(stream.get(), 4).value(), 4u);
    stream.synchronize();
    EXPECT_EQ(code(fence.check(4)), 0);
    EXPECT_EQ(code(fence.check(3)), EOWNERDEAD) << "that it is lost stays known";
}

// A session that ends while its process and its queued work continue.
TEST_P(FenceSurvivalTest, ASessionThatEndsBeforeItsStream) {
    if (on_host()) GTEST_SKIP() << "there are no streams on host";
    make(hpp_, "o");
    auto shared = hpp_.open("o").value();
    auto reader = Fence::open(shared).value();
    Stream stream, own;
    stream.stop();
    {
        auto client = connect_hpp();
        auto object = client.open("o", {.write = true}).value();
        auto fence = Fence::open(object, {.write = true}).value();
        fence.publish(stream.get()).value();
    }
    ASSERT_EQ(reader.wait(own.get(), 1).value(), 1u);
    std::this_thread::sleep_for(30ms);
    EXPECT_EQ(code(reader.check(1)), EAGAIN) << "it is not given up";
    stream.go_on();
    own.synchronize();
    EXPECT_EQ(code(reader.check(1)), 0);
}

// The GPU work of a process is lost with it. The next writer has no streams.
TEST_P(FenceSurvivalTest, AWriterWithoutStreamsGoesOnAfterADeadOne) {
    if (on_host()) GTEST_SKIP() << "there are no streams on host";
    make_for_others("o");
    Other writer([&](const Other& self) {
        auto client = connect_hpp();
        auto object = client.open("o", {.write = true}).value();
        auto fence = Fence::open(object, {.write = true}).value();
        Stream stream;
        stream.stop();
        fence.publish(stream.get()).value();
        self.say();
        for (;;) pause();
    });
    writer.hear();
    writer.kill();
    auto object = hpp_.open("o", {.write = true, .map = false}).value();
    auto fence = Fence::open(object, {.write = true}).value();
    EXPECT_EQ(fence.publish().value(), 2u);
    EXPECT_EQ(code(fence.check(1)), EOWNERDEAD);
    EXPECT_EQ(code(fence.check(2)), 0);
}

TEST_P(FenceSurvivalTest, ASessionThatEndsBeforeItsStreamAndADaemonThatDies) {
    if (on_host()) GTEST_SKIP() << "there are no streams on host";
    auto shared = make(hpp_, "o");
    auto reader = Fence::open(shared).value();
    Stream stream, own;
    stream.stop();
    {
        auto client = connect_hpp();
        auto object = client.open("o", {.write = true}).value();
        auto fence = Fence::open(object, {.write = true}).value();
        fence.publish(stream.get()).value();
        fence.publish(stream.get()).value();
    }
    ASSERT_TRUE(reader.wait(own.get(), 2));
    ASSERT_NO_FATAL_FAILURE(kill_it());
    hpp_.ping().value();
    std::this_thread::sleep_for(30ms);
    EXPECT_EQ(code(reader.check(2)), EAGAIN) << "its process is there";
    stream.go_on();
    own.synchronize();
    EXPECT_EQ(code(reader.check(1)), 0);
    EXPECT_EQ(code(reader.check(2)), 0);
}

TEST_P(FenceSurvivalTest, GoesOnWithoutADaemon) {
    auto object = make(hpp_, "o");
    auto fence = Fence::open(object, {.write = true}).value();
    auto reader_client = connect_hpp();
    auto shared = reader_client.open("o").value();
    auto reader = Fence::open(shared).value();
    fence.publish().value();
    kill();
    EXPECT_EQ(fence.publish().value(), 2u);
    EXPECT_EQ(reader.wait(nullptr, 2).value(), 2u);
    ASSERT_TRUE(again()) << log();
    hpp_.ping().value();
    reader_client.ping().value();
    EXPECT_EQ(fence.publish().value(), 3u);
    EXPECT_EQ(reader.wait(nullptr, 3).value(), 3u);
    auto third_client = connect_hpp();
    auto third = third_client.open("o", {.write = true}).value();
    EXPECT_EQ(code(Fence::open(third, {.write = true})), EBUSY) << "the new one knows who publishes";
    auto late = Fence::open(third).value();
    EXPECT_EQ(late.wait().value(), 3u) << "and where it had come";
    fence.publish().value();
    EXPECT_EQ(late.wait().value(), 4u);
}

TEST_P(FenceSurvivalTest, AWriterThatDiesUnderTheNextDaemonOrUnderNone) {
    for (const bool away : {false, true}) {
        const std::string name = away ? "away" : "next";
        make_for_others(name);
        Other writer([&](const Other& self) {
            auto client = connect_hpp();
            auto object = client.open(name, {.write = true}).value();
            auto fence = Fence::open(object, {.write = true}).value();
            fence.publish().value();
            self.say();
            self.listen();
            client.ping().value();
            self.say();
            for (;;) pause();
        });
        writer.hear();
        auto object = hpp_.open(name, {.map = false}).value();
        auto fence = Fence::open(object).value();
        kill();
        if (away) writer.kill();
        EXPECT_EQ(fence.wait().value(), 1u);
        ASSERT_TRUE(again()) << log();
        if (!away) {
            writer.tell();
            writer.hear();
            EXPECT_EQ(code(fence.wait(nullptr, 2, 0ms)), ETIMEDOUT);
            writer.kill();
        }
        EXPECT_EQ(code(fence.wait(nullptr, 2)), EOWNERDEAD) << name;
        hpp_.ping().value();
    }
}

}  // namespace
}  // namespace gshm::core::test
