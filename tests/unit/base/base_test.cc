#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/fd.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/name.h"
#include "base/runtime_dir.h"
#include "base/size.h"

namespace gshm::core {
namespace {

int code_of(const Status& status) {
    return status ? 0 : status.error().code;
}

TEST(Name, AcceptsPaths) {
    for (const char* good : {"a", "models/llama/w0", ".hidden", "a b/ü/日本", "...", "a/..b"}) {
        EXPECT_EQ(code_of(check_name(good)), 0) << good;
    }
    EXPECT_EQ(code_of(check_name(std::string(limits::kNamePartBytes, 'x'))), 0);
}

TEST(Name, RefusesWhatIsNoPath) {
    for (const char* bad : {"", "/a", "a/", "a//b", ".", "..", "a/../b", "a/.", "/"}) {
        EXPECT_EQ(code_of(check_name(bad)), EINVAL) << bad;
    }
    EXPECT_EQ(code_of(check_name(std::string_view("a\0b", 3))), EINVAL);
    EXPECT_EQ(code_of(check_name(std::string(limits::kNamePartBytes + 1, 'x'))), ENAMETOOLONG);
    std::string deep = "d";  // as deep as the byte limit allows
    while (deep.size() + 2 <= limits::kNameBytes) deep += "/d";
    EXPECT_EQ(code_of(check_name(deep)), 0);
    EXPECT_EQ(code_of(check_name(deep + "/d")), ENAMETOOLONG);
    std::string wide;
    while (wide.size() <= limits::kNameBytes) wide += std::string(200, 'w') + "/";
    EXPECT_EQ(code_of(check_name(wide + "x")), ENAMETOOLONG);
}

TEST(Name, RefusesInvalidUtf8) {
    for (const char* bad : {"\x80", "\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xFF", "a\xC3"}) {
        EXPECT_EQ(code_of(check_name(bad)), EILSEQ) << bad;
    }
}

TEST(Size, ParsesSuffixes) {
    EXPECT_EQ(*parse_size("4096"), 4096u);
    EXPECT_EQ(*parse_size("64K"), 64u << 10);
    EXPECT_EQ(*parse_size("8M"), 8u << 20);
    EXPECT_EQ(*parse_size("4GiB"), uint64_t{4} << 30);
    EXPECT_EQ(*parse_size("2T"), uint64_t{2} << 40);
    EXPECT_EQ(*parse_size("2tiB"), uint64_t{2} << 40);
    EXPECT_EQ(*parse_size("7B"), 7u);
    EXPECT_EQ(*parse_size("0x1000"), 4096u);
    EXPECT_EQ(*parse_size("0x10K"), 16u << 10);
}

TEST(Size, RefusesJunkAndOverflow) {
    for (const char* bad : {"", "x", "8X", "-1", "1.5G", "8MB2", " 8", "8MB", "8iB", "8MiBK", "0x", "B", "M"})
        EXPECT_FALSE(parse_size(bad)) << bad;
    EXPECT_EQ(parse_size("9223372036854775808").error().code, ERANGE);
    EXPECT_EQ(parse_size("99999999999999999999").error().code, ERANGE);
    EXPECT_EQ(parse_size("9000000T").error().code, ERANGE);
    EXPECT_EQ(*parse_size("9223372036854775807"), limits::kObjectBytes);
}

TEST(UniqueFd, AdoptCloneTake) {
    auto fd = UniqueFd::adopt(open("/dev/null", O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(fd);
    auto copy = UniqueFd::clone(fd.get());
    ASSERT_TRUE(copy.has_value());
    EXPECT_NE(copy->get(), fd.get());
    EXPECT_NE(fcntl(copy->get(), F_GETFD) & FD_CLOEXEC, 0);
    int raw = copy->take();
    EXPECT_FALSE(*copy);
    EXPECT_EQ(close(raw), 0);
    int number = fd.get();
    fd.reset();
    EXPECT_EQ(fcntl(number, F_GETFD), -1);
    EXPECT_FALSE(UniqueFd::clone(-1));
}

TEST(RuntimeDir, EnvironmentComesFirst) {
    setenv("GSHM_DIR", "/tmp/somewhere", 1);
    EXPECT_EQ(*default_runtime_dir(), "/tmp/somewhere");
    EXPECT_EQ(socket_path("/x"), "/x/gshm.sock");
    unsetenv("GSHM_DIR");
}

Result<int> half(int number) {
    if (number % 2 != 0) return fail(EINVAL, "{} is odd", number);
    return number / 2;
}
Result<int> quarter(int number) {
    return half(TRY(half(number)));
}

TEST(Result, TryPassesErrorsOn) {
    EXPECT_EQ(*quarter(8), 2);
    EXPECT_EQ(quarter(6).error().message, "3 is odd");
    EXPECT_EQ(quarter(6).error().code, EINVAL);
}

// A log to /dev/null must not take it away from other users.
TEST(Log, LeavesTheModeOfADeviceAsItIs) {
    char folder[] = "/tmp/gshm-log-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    const std::string path = std::string(folder) + "/null";
    const bool made = mknod(path.c_str(), S_IFCHR, makedev(1, 3)) == 0 && chmod(path.c_str(), 0666) == 0;
    struct stat status = {};
    if (made) {
        const pid_t child = fork();
        if (child == 0) _exit(log_to_file(path) ? 0 : 1);
        waitpid(child, nullptr, 0);
        stat(path.c_str(), &status);
    }
    std::filesystem::remove_all(folder);
    if (!made) GTEST_SKIP() << "no device can be made: " << strerror(errno);
    EXPECT_EQ(status.st_mode & 0777, 0666u);
}

}  // namespace
}  // namespace gshm::core
