// A start that frees much memory: the freeing thread waited for the keeper, and wrote to the catalog concurrently with
// the starting thread ("a value could not be bound", or rows without memory).
#include <csignal>
#include <filesystem>
#include <sys/stat.h>
#include <sys/wait.h>

#include <gtest/gtest.h>

#include "gshm/gshm.h"
#include "integration/daemon_fixture.h"

namespace gshm::core::test {
namespace {

class StartFreesMemory : public ::testing::Test, protected DaemonFixture {
protected:
    static constexpr int kObjects = 24;
    static constexpr uint64_t kBytes = 16 << 20;

    // A client that creates objects without GSHM_KEEP, reports that, and stays.
    pid_t start_client() {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) return -1;
        const pid_t child = fork();
        if (child == 0) {
            gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
            const std::string folder = dir();
            options.dir = folder.c_str();
            gshm_client* client = nullptr;
            bool made = gshm_connect(&options, &client) == 0;
            for (int i = 0; made && i < kObjects; ++i) {
                const std::string name = "object" + std::to_string(i);
                gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
                spec.name = name.c_str();
                spec.size_bytes = kBytes;
                gshm_object* object = nullptr;
                made = gshm_create(client, &spec, &object) == 0;
            }
            [[maybe_unused]] ssize_t put = write(ends[1], made ? "y" : "n", 1);
            pause();
            _exit(0);
        }
        close(ends[1]);
        char said = 'n';
        const bool heard = read(ends[0], &said, 1) == 1 && said == 'y';
        close(ends[0]);
        return heard ? child : -1;
    }
    // The next start frees all memory of the client.
    void kill_with_client() {
        const pid_t client = start_client();
        ASSERT_GT(client, 0) << log();
        kill();
        ::kill(client, SIGKILL);
        ASSERT_EQ(waitpid(client, nullptr, 0), client);
    }
};

TEST_F(StartFreesMemory, WithoutTouchingTheCatalogTwiceAtOnce) {
    ASSERT_TRUE(start({"--device", "host:1G"})) << log();
    for (int round = 0; round < 8; ++round) {
        ASSERT_NO_FATAL_FAILURE(kill_with_client());
        ASSERT_TRUE(start({})) << "round " << round << "\n" << log();
        EXPECT_EQ(log().find("bound"), std::string::npos) << log();
        EXPECT_EQ(run_cli({"ls"}).out.find("object"), std::string::npos);
    }
    EXPECT_EQ(stop(), 0);
}

// The memory that a start frees was dropped before the commit that erases its rows. A kill in between left rows
// without memory.
TEST_F(StartFreesMemory, AfterTheCatalogKnows) {
    ASSERT_TRUE(start({"--device", "host:1G"})) << log();
    for (int round = 0; round < 8; ++round) {
        ASSERT_NO_FATAL_FAILURE(kill_with_client());
        const pid_t keeper = keeper_pid();
        ASSERT_GT(keeper, 0);
        // Objects are files of a folder that the keeper holds, or descriptors of the keeper if there is no such folder.
        std::function<int(const std::string&)> count_in = [&](const std::string& folder) {
            int count = 0;
            std::error_code gone;
            for (const auto& entry : std::filesystem::directory_iterator(folder, gone)) {
                struct stat status = {};
                if (::stat(entry.path().c_str(), &status) != 0) continue;
                if (S_ISREG(status.st_mode) && status.st_size == off_t{kBytes}) ++count;
                if (S_ISDIR(status.st_mode) && std::filesystem::read_symlink(entry.path(), gone) == "/")
                    count += count_in(entry.path().string() + "/.");
            }
            return count;
        };
        auto kept = [&] { return count_in("/proc/" + std::to_string(keeper) + "/fd"); };
        // The keeper still reads packets that were in the socket when gshmd died.
        while (kept() < kObjects) ASSERT_EQ(keeper_pid(), keeper);
        ASSERT_TRUE(begin_to_start());
        while (kept() > kObjects / 2) ASSERT_TRUE(running()) << log();
        kill();
        ASSERT_TRUE(start({})) << "round " << round << "\n" << log();
    }
    EXPECT_EQ(stop(), 0);
}

}  // namespace
}  // namespace gshm::core::test
