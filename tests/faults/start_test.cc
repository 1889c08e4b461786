// gshmd starts, for the first time or after a kill, while its calls fail. It starts with all objects, or it reports the
// reason, and the next start has all objects.
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "faults/faults_fixture.h"

namespace gshm::core::test {
namespace {

class FaultsStart : public FaultTest {
protected:
    // The last line of the daemon's log.
    std::string last_line() const {
        std::string all = log();
        while (all.ends_with('\n')) all.pop_back();
        return all.substr(all.rfind('\n') + 1);
    }
    void check_refusal() {
        std::string line = last_line();
        EXPECT_EQ(line.find("gshmd: "), 0u) << line;
        EXPECT_GT(line.size(), 20u) << line;
        for (const char* nonsense : {"Success", "not an error", "terminate", "Unknown error"}) {
            EXPECT_EQ(line.find(nonsense), std::string::npos) << line;
        }
    }
    // The number of calls of a start. The daemon is left running.
    uint64_t count_calls(Class kind, const std::vector<std::string>& further) {
        uint64_t calls = 0;
        arm(kind, UINT64_MAX, 1);
        EXPECT_TRUE(start_again(further)) << log();
        disarm(&calls);
        return calls;
    }
    void sweep_restart(Class kind, uint64_t count, const std::vector<std::string>& further, size_t most,
                       const std::function<void()>& check) {
        if (HasFailure()) return;
        const uint64_t objects = settled().objects;
        kill();
        const uint64_t calls = count_calls(kind, further);
        size_t refused = 0;
        size_t hit = 0;
        for (uint64_t n : choose(calls, most)) {
            kill();
            arm(kind, n, count);
            bool started = start_again(further);
            hit += disarm() ? 1 : 0;
            SCOPED_TRACE(name_of(kind) + " call " + std::to_string(n) + " of " + std::to_string(calls) + ", " +
                         last_failed());
            if (!started) {
                ASSERT_FALSE(running()) << log();
                ++refused;
                check_refusal();
                ASSERT_TRUE(start_again(further)) << log();
            } else if (!all_reachable()) {
                // Objects of a device that failed during this start are reachable after the next start.
                EXPECT_EQ(kind, Class::device);
                kill();
                ASSERT_TRUE(start_again(further)) << log();
            }
            check_kept();
            check_serves();
            check();
            // The daemon must see the end of the clients before it is killed: the next daemon would wait for their
            // return.
            for (int i = 0; i < 2000 && measure().objects != objects; ++i) usleep(1000);
            EXPECT_EQ(measure().objects, objects);
            if (HasFailure()) {
                ADD_FAILURE() << log().substr(log().size() - std::min<size_t>(log().size(), 3000));
                return;
            }
        }
        std::cout << "  " << name_of(kind) << (count == kAll ? " on and on" : "") << ": " << calls << " calls, failed "
                  << hit << ", refused to start " << refused << " times\n";
    }
    bool all_reachable() {
        auto client = connect();
        for (const char* name : {"kept/small-cuda", "kept/large-cuda", "kept/other-cuda"}) {
            gshm_object* object = nullptr;
            char byte = 0;
            bool good =
                gshm_open(client.get(), name, GSHM_NO_MAP, &object) == 0 && gshm_copy_out(object, 0, &byte, 1) == 0;
            gshm_close(object);
            if (!good) return false;
        }
        return true;
    }
};

TEST_F(FaultsStart, AfterKill) {
    start_all();
    for (auto [kind, count] : std::vector<std::pair<Class, uint64_t>>{{Class::system, 1},
                                                                      {Class::interrupted, 1},
                                                                      {Class::sqlite, 1},
                                                                      {Class::sqlite, kAll},
                                                                      {Class::catalog, 1},
                                                                      {Class::catalog, kAll},
                                                                      {Class::device, 1}}) {
        sweep_restart(kind, count, {}, 8, [] {});
    }
}

TEST_F(FaultsStart, AfterKillWithMount) {
    if (auto missing = missing_for(Way::passthrough); !missing.empty()) GTEST_SKIP() << missing;
    start_all({mount()});
    ASSERT_TRUE(write_file(at("file"), pattern("file", 100'000)));
    // The file stays open across all daemons.
    int fd = open(at("file").c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    auto check = [&] {
        EXPECT_TRUE(is_mounted(mount()));
        EXPECT_EQ(read_file(at("file")) == pattern("file", 100'000), true);
        struct stat status = {};
        EXPECT_EQ(fstat(fd, &status), 0) << strerror(errno);
        EXPECT_EQ(status.st_size, 100'000);
        EXPECT_EQ(check_bytes(connect().get(), "file", pattern("file", 100'000)), "");
    };
    check();
    for (auto [kind, count] : std::vector<std::pair<Class, uint64_t>>{
             {Class::system, 1}, {Class::interrupted, 1}, {Class::sqlite, 1}, {Class::sqlite, kAll}}) {
        sweep_restart(kind, count, {mount()}, 8, check);
    }
    close(fd);
}

// The first start in an empty folder: if it fails, it leaves no keeper and no mount behind.
TEST_F(FaultsStart, First) {
    const bool with_mount = missing_for(Way::passthrough).empty();
    std::vector<std::string> further;
    if (with_mount) further.push_back(mount());
    for (Class kind : {Class::system, Class::interrupted, Class::sqlite, Class::catalog, Class::device}) {
        const uint64_t calls = count_calls(kind, further);
        EXPECT_EQ(stop(), 0);
        size_t refused = 0;
        for (uint64_t n : choose(calls, 8)) {
            arm(kind, n, 1);
            bool started = start_again(further);
            disarm();
            SCOPED_TRACE(name_of(kind) + " call " + std::to_string(n) + " of " + std::to_string(calls) + ", " +
                         last_failed());
            if (started) {
                if (kind != Class::device) check_serves();
                EXPECT_EQ(stop(), 0) << log();
            } else {
                ASSERT_FALSE(running()) << log();
                check_refusal();
                ++refused;
            }
            EXPECT_EQ(keeper_pid(), 0);
            EXPECT_FALSE(is_mounted(mount()));
            if (HasFailure()) {
                ADD_FAILURE() << log().substr(log().size() - std::min<size_t>(log().size(), 3000));
                return;
            }
        }
        std::cout << "  " << name_of(kind) << ": " << calls << " calls, refused to start " << refused << " times\n";
    }
}

}  // namespace
}  // namespace gshm::core::test
