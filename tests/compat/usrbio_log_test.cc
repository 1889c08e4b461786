// 3FS's interface: messages on standard error and their level.
#include "usrbio_fixture.h"

namespace gshm::core::test {
namespace {

class UsrbioLog : public UsrbioTest {
protected:
    // The output of a process with that level when one call fails and another succeeds; the level is read once.
    std::string said_with(const char* level) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) return "no pipe";
        Peer peer([&](Peer&) {
            if (level != nullptr) setenv("HF3FS_USRBIO_LIB_LOG", level, 1);
            else unsetenv("HF3FS_USRBIO_LIB_LOG");
            dup2(ends[1], STDERR_FILENO);
            hf3fs_iov iov = {};
            EXPECT_EQ(hf3fs_iovcreate(&iov, "/nonexistent", kMiB, 0, -1), -ENOENT);
            EXPECT_EQ(hf3fs_iovcreate(&iov, mount_point(), kMiB, 0, -1), 0);
        });
        EXPECT_EQ(peer.finish(), 0);
        ::close(ends[1]);
        std::string said(4096, '\0');
        const ssize_t bytes = ::read(ends[0], said.data(), said.size());
        said.resize(static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
        ::close(ends[0]);
        return said;
    }
};

TEST_F(UsrbioLog, LevelsAreThoseOf3fs) {
    start_daemon();
    for (const char* level : {static_cast<const char*>(nullptr), "", "WARN", "ERR", "error", "nonsense"}) {
        const auto said = said_with(level);
        EXPECT_NE(said.find("hf3fs_iovcreate: /nonexistent"), std::string::npos) << level << ": " << said;
        EXPECT_NE(said.find("ENOENT"), std::string::npos);
        EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
    }
    for (const char* level : {"INFO", "info", "DBG", "DBG3", ".=INFO; default:async=true"}) {
        const auto said = said_with(level);
        EXPECT_NE(said.find("info: connected to the gshmd at"), std::string::npos) << level << ": " << said;
    }
    for (const char* level : {"CRITICAL", "FATAL"}) EXPECT_EQ(said_with(level), "") << level;
}

}  // namespace
}  // namespace gshm::core::test
