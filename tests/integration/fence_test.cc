// Fences between processes, on host and on fake GPUs with streams: the right to publish, and the effect of closing.
#include "base/limits.h"
#include "fence_fixture.h"

namespace gshm::core::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Devices, FenceTest, ::testing::Values("host", "cuda:0"), device_of);

TEST_P(FenceTest, CountsAndIsWaitedFor) {
    auto object = make(hpp_, "o");
    auto reader_client = connect_hpp();
    auto shared = reader_client.open("o").value();
    auto reader = Fence::open(shared).value();
    EXPECT_EQ(reader.published(), 0u);
    EXPECT_EQ(code(reader.wait(nullptr, 0, 0ms)), ETIMEDOUT) << "nothing yet";
    EXPECT_EQ(code(reader.check(1)), EAGAIN);
    EXPECT_EQ(code(reader.publish()), EINVAL) << "not opened for that";
    auto writer = Fence::open(object, {.write = true}).value();
    EXPECT_EQ(code(reader.wait(nullptr, 1, 1ms)), ETIMEDOUT);
    for (uint64_t i = 1; i <= 100; ++i) {
        ASSERT_EQ(writer.publish().value(), i);
        ASSERT_EQ(reader.wait().value(), i);
        ASSERT_EQ(reader.wait(nullptr, i, 0ms).value(), i);
        ASSERT_EQ(code(reader.check(i)), 0);
        ASSERT_EQ(code(reader.check(i + 1)), EAGAIN);
        ASSERT_EQ(reader.published(), i);
    }
    EXPECT_EQ(reader.wait(nullptr, 7).value(), 7u) << "an old one is done";
    std::thread later([&] {
        std::this_thread::sleep_for(20ms);
        writer.publish().value();
    });
    EXPECT_EQ(reader.wait(nullptr, 101).value(), 101u);
    later.join();
}

// There and back: each side answers with a byte that depends on the byte it has read.
TEST_P(FenceTest, HandsBytesOverBetweenProcesses) {
    constexpr uint64_t kRounds = 200;
    make_for_others("there");
    make_for_others("back");
    auto play = [&](const char* mine, const char* theirs, bool begins) {
        auto client = connect_hpp();
        auto out = client.open(mine, {.write = true}).value();
        auto in = client.open(theirs).value();
        auto published = Fence::open(out, {.write = true}).value();
        auto awaited = Fence::open(in).value();
        std::optional<Stream> stream;
        if (!on_host()) stream.emplace();
        void* queue = stream ? stream->get() : nullptr;
        auto give = [&](uint64_t round) {
            const auto value = static_cast<unsigned char>(round * 3 + (begins ? 1 : 2));
            if (stream) stream->fill(out.data(), value, 4096);
            else memset(out.data(), value, 4096);
            return published.publish(queue).value_or(0) == round;
        };
        auto take = [&](uint64_t round) {
            std::vector<std::byte> bytes(4096);
            if (!awaited.wait(queue, round)) return false;
            if (stream) stream->synchronize();
            const auto expected = static_cast<std::byte>(round * 3 + (begins ? 2 : 1));
            return in.copy_out(bytes) && bytes == std::vector(4096, expected);
        };
        for (uint64_t round = 1; round <= kRounds; ++round) {
            if (begins && !give(round)) return 1;
            if (!take(round)) return 2;
            if (!begins && !give(round)) return 3;
        }
        return 0;
    };
    Other other([&](const Other&) { return play("back", "there", false); });
    EXPECT_EQ(play("there", "back", true), 0);
    EXPECT_EQ(other.wait(), 0);
}

TEST_P(FenceTest, OneWriterAtATime) {
    auto object = make(hpp_, "o");
    auto fence = Fence::open(object, {.write = true}).value();
    fence.publish().value();
    auto second_client = connect_hpp();
    auto second = second_client.open("o", {.write = true}).value();
    const auto refused = Fence::open(second, {.write = true});
    ASSERT_EQ(code(refused), EBUSY);
    EXPECT_EQ(refused.error().message, "another process publishes here");
    auto reader = Fence::open(second).value();
    fence.close();
    EXPECT_EQ(code(reader.wait(nullptr, 2)), EPIPE) << "it has left, and nobody is to be waited for";
    EXPECT_EQ(reader.wait().value(), 1u) << "what it has published stays so";
    auto next = Fence::open(second, {.write = true}).value();
    EXPECT_EQ(code(reader.wait(nullptr, 2, 0ms)), ETIMEDOUT) << "somebody is there again";
    EXPECT_EQ(next.publish().value(), 2u) << "and goes on counting";
    EXPECT_EQ(reader.wait(nullptr, 2).value(), 2u);
}

TEST_P(FenceTest, ALateReaderFindsWhatAWriterHasLeft) {
    {
        auto client = connect_hpp();
        auto object = make(client, "o");
        auto fence = Fence::open(object, {.write = true}).value();
        fence.publish().value();
        object.seal().value();
        EXPECT_EQ(fence.publish().value(), 2u) << "sealed: its writer may still say when";
    }
    auto object = hpp_.open("o").value();
    auto fence = Fence::open(object).value();
    EXPECT_EQ(fence.wait().value(), 2u);
    EXPECT_EQ(code(Fence::open(object, {.write = true})), EACCES);
}

TEST_P(FenceTest, GenerationsFromSeveralStreamsKeepTheirOrder) {
    if (on_host()) GTEST_SKIP() << "there are no streams on host";
    auto object = make(hpp_, "o");
    auto fence = Fence::open(object, {.write = true}).value();
    Stream slow, fast;
    slow.stop();
    EXPECT_EQ(fence.publish(slow.get()).value(), 1u);
    EXPECT_EQ(fence.publish(fast.get()).value(), 2u);
    EXPECT_EQ(fence.publish(fast.get()).value(), 3u);
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(code(fence.check(1)), EAGAIN);
    EXPECT_EQ(code(fence.check(3)), EAGAIN) << "the first is not done";
    slow.go_on();
    fast.synchronize();
    EXPECT_EQ(code(fence.check(3)), 0);
}

// Closing does not wait, and published generations still complete; no other process publishes before that.
TEST_P(FenceTest, ClosedWithSomethingOnItsWay) {
    if (on_host()) GTEST_SKIP() << "there are no streams on host";
    auto object = make(hpp_, "o");
    Stream stream;
    stream.stop();
    {
        auto fence = Fence::open(object, {.write = true}).value();
        fence.publish(stream.get()).value();
    }
    auto reader = Fence::open(object).value();
    EXPECT_EQ(code(reader.check(1)), EAGAIN);
    std::thread later([&] {
        std::this_thread::sleep_for(30ms);
        stream.go_on();
    });
    auto second_client = connect_hpp();
    auto second = second_client.open("o", {.write = true}).value();
    auto next = Fence::open(second, {.write = true});
    later.join();
    ASSERT_TRUE(next) << next.error().message;
    EXPECT_EQ(code(reader.check(1)), 0);
    EXPECT_EQ(next->publish().value(), 2u);
}

// The stream reaches the page long after the handle and its generation are gone.
TEST_P(FenceTest, AReaderMayCloseItBeforeItsStreamHasWaited) {
    if (on_host()) GTEST_SKIP() << "there are no streams on host";
    auto object = make(hpp_, "o");
    Stream slow, busy;
    auto writer = Fence::open(object, {.write = true}).value();
    for (int i = 0; i < 3; ++i) {
        slow.stop();
        busy.stop();
        const uint64_t generation = writer.publish(slow.get()).value();
        {
            auto reader = Fence::open(object).value();
            ASSERT_TRUE(reader.wait(busy.get(), generation));
            ASSERT_TRUE(reader.wait(busy.get(), generation));
            slow.go_on();
            slow.synchronize();
            ASSERT_EQ(code(reader.check(generation)), 0);
        }
        Fence::open(object).value();  // this close also checks earlier closed pages
        busy.go_on();
        busy.synchronize();
    }
}

TEST_P(FenceTest, OneHandleOfAProcessPublishes) {
    auto object = make(hpp_, "o");
    auto again = hpp_.open("o", {.write = true}).value();
    auto fence = Fence::open(object, {.write = true}).value();
    const auto refused = Fence::open(again, {.write = true});
    ASSERT_EQ(code(refused), EBUSY);
    EXPECT_EQ(refused.error().message, "this process already publishes on this fence");
    EXPECT_EQ(fence.publish().value(), 1u);
    fence.close();
    EXPECT_EQ(Fence::open(again, {.write = true}).value().publish().value(), 2u);
}

TEST_P(FenceTest, ASessionMakesSoManyAndNoMore) {
    if (!on_host()) GTEST_SKIP() << "it is the same everywhere";
    std::vector<hpp::Object> objects;
    for (size_t i = 0; i <= limits::kSessionFences; ++i) objects.push_back(make(hpp_, "o" + std::to_string(i)));
    for (size_t i = 0; i < limits::kSessionFences; ++i) ASSERT_TRUE(Fence::open(objects[i])) << i;
    EXPECT_EQ(code(Fence::open(objects.back())), EMFILE);
    EXPECT_TRUE(Fence::open(objects.front())) << "that is there already";
    auto other_client = connect_hpp();
    EXPECT_TRUE(Fence::open(other_client.open("o0").value()));
    hpp_.unlink("o1").value();
    objects[1].close();
    EXPECT_TRUE(eventually([&] { return code(Fence::open(objects.back())) == 0; })) << "one is gone";
}

TEST_P(FenceTest, GoesWithItsObject) {
    ASSERT_EQ(pages(pid()), 0);
    const pid_t keeper = hpp_.daemon().value().keeper;
    auto object = make(hpp_, "o");
    auto fence = Fence::open(object, {.write = true}).value();
    auto reader_client = connect_hpp();
    auto shared = reader_client.open("o").value();
    auto reader = Fence::open(shared).value();
    EXPECT_GE(pages(pid()), 1);
    EXPECT_TRUE(eventually([&] { return pages(keeper) == 1; }));
    hpp_.unlink("o").value();
    fence.publish().value();
    EXPECT_EQ(reader.wait().value(), 1u) << "it is held";
    fence.close();
    object.close();
    shared.close();
    EXPECT_EQ(reader.wait().value(), 1u) << "by the fence, too";
    reader.close();
    EXPECT_TRUE(eventually([&] { return pages(pid()) == 0 && pages(keeper) == 0; }));
}

TEST_P(FenceTest, OfAnotherUser) {
    auto object = make(hpp_, "readable", 0644);
    make(hpp_, "private", 0600);
    auto fence = Fence::open(object, {.write = true}).value();
    fence.publish().value();
    std::filesystem::permissions(dir(), std::filesystem::perms::others_all, std::filesystem::perm_options::add);
    EXPECT_EQ(in_child(
                  [&] {
                      auto client = hpp::Client::connect({.dir = dir()});
                      if (!client) return 1;
                      const bool map = on_host();  // the parent has started CUDA
                      if (code(client->open("private", {.map = map})) != EACCES) return 2;
                      auto shared = client->open("readable", {.map = map});
                      if (!shared) return 3;
                      if (code(Fence::open(*shared, {.write = true})) != EACCES) return 4;
                      auto reader = Fence::open(*shared);
                      if (!reader) return 5;
                      return reader->wait().value_or(0) == 1 ? 0 : 6;
                  },
                  12345),
              0);
}

TEST_P(FenceTest, WhatCannotBe) {
    auto object = make(hpp_, "o");
    gshm_fence* fence = nullptr;
    EXPECT_EQ(gshm_fence_open(nullptr, 0, &fence), -EINVAL);
    EXPECT_EQ(gshm_fence_open(object.get(), 0, nullptr), -EINVAL);
    EXPECT_EQ(gshm_fence_open(object.get(), 1, &fence), -EINVAL);
    EXPECT_EQ(gshm_fence_publish(nullptr, nullptr, nullptr), -EINVAL);
    EXPECT_EQ(gshm_fence_wait(nullptr, nullptr, 0, 0, nullptr), -EINVAL);
    EXPECT_EQ(gshm_fence_check(nullptr, 0), -EINVAL);
    EXPECT_EQ(gshm_fence_published(nullptr), 0u);
    gshm_fence_close(nullptr);
    auto read_only = hpp_.open("o").value();
    EXPECT_EQ(code(Fence::open(read_only, {.write = true})), EACCES);
    gshm_object* local = nullptr;
    ASSERT_EQ(gshm_allocate("host", 4096, 0, &local), 0);
    EXPECT_EQ(gshm_fence_open(local, 0, &fence), -EINVAL) << "no daemon's";
    gshm_close(local);
    auto unmapped = hpp_.open("o", {.write = true, .map = false}).value();
    {
        auto one = Fence::open(unmapped, {.write = true}).value();
        int something = 0;
        EXPECT_EQ(code(one.publish(&something)), EINVAL) << "whose stream?";
        EXPECT_EQ(one.publish().value(), 1u);
        EXPECT_EQ(code(one.wait(&something)), EINVAL);
    }
    auto parents = Fence::open(object, {.write = true}).value();
    EXPECT_EQ(in_child([&] {
                  if (gshm_fence_publish(parents.get(), nullptr, nullptr) != -ECHILD) return 1;
                  gshm_fence_close(parents.take());
                  return 0;
              }),
              0);
    EXPECT_EQ(parents.publish().value(), 2u) << "the parent has it still";
    parents.close();
    unmapped.close();
    object.seal().value();
    EXPECT_EQ(code(Fence::open(object, {.write = true})), EPERM);
}

// If registration with the driver fails, the fence has no writer, and the next process may publish.
TEST_P(FenceTest, APageThatCannotBeRegistered) {
    if (on_host()) GTEST_SKIP() << "nothing is registered on host";
    auto object = make(hpp_, "o");
    auto other_client = connect_hpp();
    auto other = other_client.open("o", {.write = true, .map = false}).value();
    inject("cuMemHostRegister_v2:*:2\n");
    const auto refused = Fence::open(object, {.write = true});
    remove_faults();
    ASSERT_EQ(code(refused), ENOSPC);
    EXPECT_NE(refused.error().message.find("cuMemHostRegister"), std::string::npos) << refused.error().message;
    auto fence = Fence::open(other, {.write = true}).value();
    EXPECT_EQ(fence.publish().value(), 1u);
}

}  // namespace
}  // namespace gshm::core::test
