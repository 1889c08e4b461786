// The parts of gshm.hpp that are types rather than calls: they need no library.
#include <cerrno>
#include <fcntl.h>
#include <memory>
#include <string>
#include <system_error>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <gshm/gshm.hpp>

namespace {

using Owner = std::unique_ptr<int>;

gshm::Result<int> half(int number) {
    if (number % 2 != 0) return gshm::Error{EDOM, "odd"};
    return number / 2;
}
gshm::Result<void> check(bool ok) {
    if (!ok) return gshm::Error{EPERM, "no"};
    return {};
}

TEST(Result, HoldsAValue) {
    auto result = half(8);
    ASSERT_TRUE(result);
    EXPECT_TRUE(result.has_value());
    EXPECT_EQ(result.value(), 4);
    EXPECT_EQ(*result, 4);
    EXPECT_EQ(result.value_or(1), 4);
    result.value() = 5;
    EXPECT_EQ(std::as_const(result).value(), 5);
}

TEST(Result, HoldsAnError) {
    const auto result = half(7);
    ASSERT_FALSE(result);
    EXPECT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, EDOM);
    EXPECT_EQ(result.error().message, "odd");
    EXPECT_EQ(result.value_or(1), 1);
}

TEST(Result, ValueOfAnErrorThrowsIt) {
    try {
        half(7).value();
        FAIL() << "nothing was thrown";
    } catch (const std::system_error& exception) {  // for callers that do not know gshm
        EXPECT_EQ(exception.code(), std::errc::argument_out_of_domain);
        EXPECT_STREQ(exception.what(), "odd");
    }
    try {
        half(7).value();
    } catch (const gshm::Exception& exception) {
        EXPECT_EQ(exception.error().code, EDOM);
    }
}

TEST(Result, OfVoid) {
    EXPECT_TRUE(check(true));
    EXPECT_NO_THROW(check(true).value());
    EXPECT_FALSE(check(false));
    EXPECT_EQ(check(false).error().code, EPERM);
    EXPECT_THROW(check(false).value(), gshm::Exception);
}

TEST(Result, MovesWhatCannotBeCopied) {
    gshm::Result<Owner> result = std::make_unique<int>(3);
    ASSERT_TRUE(result);
    EXPECT_EQ(**result, 3);
    gshm::Result<Owner> moved = std::move(result);
    const Owner owner = std::move(moved).value();
    EXPECT_EQ(*owner, 3);
    static_assert(!std::is_copy_constructible_v<gshm::Result<Owner>>);

    gshm::Result<Owner> failed = gshm::Error{ENOENT, "none"};
    EXPECT_EQ(*std::move(failed).value_or(std::make_unique<int>(9)), 9);
}

TEST(Result, OfATextAndOfAnErrorAreNotConfused) {
    const gshm::Result<std::string> text = std::string("text");
    EXPECT_EQ(text->size(), 4u);
    const gshm::Result<std::string> error = gshm::Error{EIO, "text"};
    EXPECT_FALSE(error);
}

TEST(Result, ValueOfATemporaryOutlivesIt) {
    const auto make = [] { return gshm::Result<std::vector<int>>(std::vector<int>{1, 2, 3}); };
    int sum = 0;
    for (int number : make().value()) sum += number;  // a reference into the Result would dangle here
    EXPECT_EQ(sum, 6);
    static_assert(std::is_same_v<decltype(make().value()), std::vector<int>>);
}

TEST(Exception, CanBeCopiedWithoutThrowing) {
    static_assert(std::is_nothrow_copy_constructible_v<gshm::Exception>);
    const gshm::Exception first({ENOENT, "no such object"});
    const gshm::Exception second = first;
    EXPECT_STREQ(second.what(), "no such object");
}

TEST(UniqueFd, ClosesWhatItOwnsOnce) {
    int raw = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ASSERT_GE(raw, 0);
    {
        auto fd = gshm::UniqueFd::adopt(raw);
        auto moved = std::move(fd);
        EXPECT_FALSE(fd);  // NOLINT: a moved-from one is empty by contract
        EXPECT_EQ(moved.get(), raw);
        auto clone = moved.clone().value();
        EXPECT_NE(clone.get(), raw);
        EXPECT_TRUE(::fcntl(clone.get(), F_GETFD) & FD_CLOEXEC);
    }
    EXPECT_EQ(::fcntl(raw, F_GETFD), -1);

    raw = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    EXPECT_EQ(gshm::UniqueFd::adopt(raw).take(), raw);
    EXPECT_EQ(::close(raw), 0);  // taken, so still open
}

TEST(UniqueFd, CloneOfNoneIsAnError) {
    const auto clone = gshm::UniqueFd().clone();
    ASSERT_FALSE(clone);
    EXPECT_EQ(clone.error().code, EBADF);
}

TEST(Options, BecomeFlags) {
    EXPECT_EQ(gshm::CreateSpec{}.flags(), 0u);
    const gshm::CreateSpec spec{.name = "a", .size_bytes = 1, .keep = true, .dedicated = true, .map = false};
    EXPECT_EQ(spec.flags(), GSHM_KEEP | GSHM_DEDICATED | GSHM_NO_MAP);
    EXPECT_EQ(spec.mode, 0u);  // gshmd chooses: 0600, or what the default ACL of the directory gives
    EXPECT_EQ(gshm::OpenOptions{}.flags(), 0u);
    EXPECT_EQ((gshm::OpenOptions{.write = true, .sealed_only = true}.flags()), GSHM_WRITE | GSHM_SEALED_ONLY);
}

TEST(Handles, AreMovedNotCopied) {
    static_assert(std::is_nothrow_move_constructible_v<gshm::Client> && !std::is_copy_constructible_v<gshm::Client>);
    static_assert(std::is_nothrow_move_constructible_v<gshm::Object> && !std::is_copy_constructible_v<gshm::Object>);
    static_assert(std::is_nothrow_move_assignable_v<gshm::UniqueFd> && !std::is_copy_constructible_v<gshm::UniqueFd>);
}

}  // namespace
