// The page of a fence: promised, done and lost generations, and sleeping.
#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <thread>

#include <gtest/gtest.h>

#include "fence/page.h"

namespace gshm::core::fence {
namespace {

using namespace std::chrono_literals;

class FencePage : public ::testing::Test {
protected:
    static View::Deadline soon() { return std::chrono::steady_clock::now(); }
    static constexpr auto kNever = View::Deadline::max();
    static int code(const Status& status) { return status ? 0 : status.error().code; }
    void finish(uint64_t generation) { view_.done_word() = generation; }

    UniqueFd file_ = make_page().value();
    Mapping mapping_ = Mapping::create(file_.get(), kPageBytes, true).value();
    View view_{mapping_};
};

TEST_F(FencePage, BeginsEmpty) {
    EXPECT_EQ(view_.writer(), Writer::none);
    EXPECT_EQ(view_.next(), 1u);
    EXPECT_TRUE(view_.is_settled());
    EXPECT_EQ(code(view_.await_promise(1, soon())), ETIMEDOUT);
    EXPECT_EQ(code(view_.await_done(1, soon())), ETIMEDOUT);
    EXPECT_EQ(code(view_.await_done(0, soon())), 0);
}

TEST_F(FencePage, CannotChangeItsSize) {
    EXPECT_NE(ftruncate(file_.get(), 0), 0);
    EXPECT_NE(ftruncate(file_.get(), 2 * kPageBytes), 0);
    EXPECT_NE(fcntl(file_.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST_F(FencePage, WhatADeadWriterPromisedIsLostAndReleased) {
    view_.claim(5, 1, 1);
    EXPECT_EQ(view_.session(), 5u);
    for (uint64_t i = 1; i <= 4; ++i) view_.promise(i);
    finish(2);
    EXPECT_FALSE(view_.is_settled());
    view_.lose();
    EXPECT_TRUE(view_.is_settled());
    EXPECT_EQ(view_.writer(), Writer::died);
    for (uint64_t i : {1, 2}) EXPECT_EQ(code(view_.await_done(i, soon())), 0);
    for (uint64_t i : {3, 4}) EXPECT_EQ(code(view_.await_done(i, soon())), EOWNERDEAD);
    EXPECT_EQ(code(view_.await_promise(5, kNever)), EOWNERDEAD);
    view_.claim(6, 1, 1);
    EXPECT_EQ(view_.next(), 5u);
    EXPECT_EQ(code(view_.await_promise(5, soon())), ETIMEDOUT);
}

TEST_F(FencePage, RemembersTheLatestLosses) {
    uint64_t generation = 0;
    for (uint32_t i = 0; i < 3 * Page::kLosses; ++i) {
        view_.claim(1, 1, 1);
        view_.promise(++generation);
        finish(generation);
        view_.promise(++generation);
        view_.lose();
    }
    for (uint64_t i = generation - 2 * Page::kLosses + 1; i <= generation; ++i) {
        EXPECT_EQ(view_.is_lost(i), i % 2 == 0) << i;
    }
}

TEST_F(FencePage, AWriterKilledBetweenItsStreamAndItsPromise) {
    view_.claim(1, 1, 1);
    finish(1);  // then it is killed
    EXPECT_TRUE(view_.is_settled());
    view_.retire();
    EXPECT_EQ(view_.writer(), Writer::died);
    view_.claim(2, 1, 1);
    EXPECT_EQ(view_.published(), 1u);
    EXPECT_EQ(view_.next(), 2u);
}

TEST_F(FencePage, OneThatHasLeftHasNotDied) {
    view_.claim(1, 1, 1);
    view_.leave();
    view_.retire();
    EXPECT_EQ(view_.writer(), Writer::left);
    EXPECT_EQ(code(view_.await_promise(1, kNever)), EPIPE);
}

// Readers of host memory map the page read-only, and can still sleep on it.
TEST_F(FencePage, SleepersWithoutTheRightToWriteWake) {
    const auto readable =
        UniqueFd::adopt(open(("/proc/self/fd/" + std::to_string(file_.get())).c_str(), O_RDONLY | O_CLOEXEC));
    const auto mapping = Mapping::create(readable.get(), kPageBytes, false).value();
    EXPECT_EQ(mmap(nullptr, kPageBytes, PROT_WRITE, MAP_SHARED, readable.get(), 0), MAP_FAILED);
    const View reader(mapping);
    view_.claim(1, 1, 1);
    for (uint64_t i = 1; i <= 20; ++i) {
        std::thread writer([&] {
            std::this_thread::sleep_for(1ms);
            finish(i);
            view_.promise(i);
        });
        EXPECT_EQ(code(reader.await_promise(i, kNever)), 0);
        writer.join();
    }
    std::thread killer([&] {
        std::this_thread::sleep_for(5ms);
        view_.lose();
    });
    EXPECT_EQ(code(reader.await_promise(21, kNever)), EOWNERDEAD);
    killer.join();
}

}  // namespace
}  // namespace gshm::core::fence
