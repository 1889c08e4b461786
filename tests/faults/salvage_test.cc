// A salvage is killed at any of its calls, and repeated: every acknowledged byte is there, under its name or in
// lost+found.
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include "faults/faults_fixture.h"

namespace gshm::core::test {
namespace {

class FaultsSalvage : public FaultTest {
protected:
    void SetUp() override {
        if (geteuid() != 0) GTEST_SKIP() << "not root: lost+found is for root only";
    }
    // Makes an object on each device, and restores the catalog from before the second one.
    void make_and_lose(const std::string& name) {
        const std::string saved = scratch() + "/saved";
        for (const auto& device : kDevices) {
            if (!running()) {
                ASSERT_TRUE(start_again()) << log();
            }
            auto client = connect();
            Object object;
            ASSERT_EQ(create(client.get(), name + device, kBytes, device, GSHM_KEEP | GSHM_NO_MAP, &object), 0)
                << gshm_last_error();
            auto bytes = pattern(name + device, kBytes);
            ASSERT_EQ(gshm_copy_in(object.get(), 0, bytes.data(), bytes.size()), 0) << gshm_last_error();
            object.reset();
            // A clean end writes the journal's rows to the file.
            ASSERT_EQ(gshm_shutdown(client.get(), GSHM_KEEP), 0) << gshm_last_error();
            ASSERT_EQ(wait_for_end(), 0) << log();
            if (device == kDevices.front()) copy_catalog(dir(), saved);
        }
        copy_catalog(saved, dir());
    }
    static void copy_catalog(const std::string& from, const std::string& to) {
        std::filesystem::create_directory(to);
        for (const char* file : {"/gshm.db", "/gshm.db-wal"}) {
            std::filesystem::remove(to + file);
            if (std::filesystem::exists(from + file)) std::filesystem::copy(from + file, to + file);
        }
    }
    void check_found(const std::string& name) {
        const std::string& named = kDevices.front();
        const std::string& lost = kDevices.back();
        EXPECT_EQ(check_bytes(connect().get(), name + named, pattern(name + named, kBytes)), "");
        EXPECT_EQ(find_lost(pattern(name + lost, kBytes)), "");
    }
    // The names of all objects, one per line.
    std::string names() {
        auto client = connect();
        gshm_listing* made = nullptr;
        EXPECT_EQ(gshm_list(client.get(), "", GSHM_RECURSIVE, &made), 0) << gshm_last_error();
        Listing listing(made);
        std::string all;
        for (size_t i = 0; i < gshm_listing_count(made); ++i) all += std::string(gshm_listing_name(made, i)) + "\n";
        return all;
    }
    static constexpr size_t kBytes = 70'000;
    // "" if an object in lost+found has these bytes.
    std::string find_lost(const std::string& bytes) {
        auto client = connect();
        gshm_listing* made = nullptr;
        if (gshm_list(client.get(), "lost+found", 0, &made) != 0) return gshm_last_error();
        Listing listing(made);
        for (size_t i = 0; i < gshm_listing_count(made); ++i) {
            const std::string name = std::string("lost+found/") + gshm_listing_name(made, i);
            gshm_object* opened = nullptr;
            if (gshm_open(client.get(), name.c_str(), GSHM_NO_MAP, &opened) != 0)
                return name + ": " + gshm_last_error();
            Object object(opened);
            std::string there(gshm_size(opened), '\0');
            if (gshm_copy_out(opened, 0, there.data(), there.size()) != 0) return name + ": " + gshm_last_error();
            if (there.find(bytes) != std::string::npos) return "";
        }
        return "not in lost+found:\n" + names();
    }
    // Damages the catalog, kills the salvage at its n-th call and starts again.
    void salvage_killed_at(uint64_t n, const std::string& last) {
        ASSERT_NO_FATAL_FAILURE(make_and_lose(last));
        arm(Class::end, n, 1);
        const bool came_through = start_again({"--salvage"});
        if (!disarm()) {
            ASSERT_TRUE(came_through) << log();
            return;
        }
        // The kill may come after the daemon was ready.
        ASSERT_EQ(wait_for_end(), 128 + SIGKILL) << log();
        ++killed_;
        // An ordinary start refuses, unless the salvage was complete.
        if (start_again()) return;
        ++refused_;
        ASSERT_FALSE(running()) << log();
        const std::string all = log();
        EXPECT_NE(all.find("--salvage", all.rfind("gshmd: ")), std::string::npos) << all;
        ASSERT_TRUE(start_again({"--salvage"})) << log();
    }
    void sweep_salvage(const std::function<void()>& check) {
        ASSERT_NO_FATAL_FAILURE(make_and_lose("counted/"));
        arm(Class::end, UINT64_MAX, 1);
        ASSERT_TRUE(start_again({"--salvage"})) << log();
        uint64_t calls = 0;
        disarm(&calls);
        std::vector<uint64_t> chosen = choose(calls, 10);
        // The last calls in any case: they make the mount.
        for (uint64_t n = std::max(chosen.back() + 1, calls - std::min<uint64_t>(calls, 30)); n <= calls; ++n)
            chosen.push_back(n);
        for (uint64_t n : chosen) {
            const std::string last = "last" + std::to_string(n) + "/";
            ASSERT_NO_FATAL_FAILURE(salvage_killed_at(n, last));
            SCOPED_TRACE("killed at call " + std::to_string(n) + " of " + std::to_string(calls) + ", " + last_failed());
            check_kept();
            check_found(last);
            check_serves();
            check();
            if (HasFailure()) {
                ADD_FAILURE() << log().substr(log().size() - std::min<size_t>(log().size(), 3000));
                return;
            }
            remove_all("lost+found");
            remove_all(last.substr(0, last.size() - 1));
        }
        EXPECT_GT(killed_, 0u);
        EXPECT_GT(refused_, 0u);
        std::cout << "  " << calls << " calls, killed at " << killed_ << " of them, " << refused_
                  << " times a salvage had to be repeated\n";
    }
    size_t killed_ = 0;
    size_t refused_ = 0;  // starts after an incomplete salvage
};

TEST_F(FaultsSalvage, KilledAndRepeated) {
    start_all();
    sweep_salvage([] {});
}

TEST_F(FaultsSalvage, KilledAndRepeatedWithMount) {
    if (auto missing = missing_for(Way::passthrough); !missing.empty()) GTEST_SKIP() << missing;
    start_all({mount()});
    ASSERT_TRUE(write_file(at("file"), pattern("file", 100'000)));
    sweep_salvage([&] {
        EXPECT_TRUE(is_mounted(mount()));
        EXPECT_TRUE(read_file(at("file")) == pattern("file", 100'000));
        EXPECT_TRUE(read_file(at("kept/small-host")) == pattern("kept/small-host", 1000));
        EXPECT_EQ(check_bytes(connect().get(), "file", pattern("file", 100'000)), "");
    });
}

// The mount is made anew at the same place. Open files end, but their bytes are not lost.
TEST_F(FaultsSalvage, MakesTheMountAnew) {
    if (auto missing = missing_for(Way::passthrough); !missing.empty()) GTEST_SKIP() << missing;
    start_all({mount()});
    ASSERT_TRUE(write_file(at("file"), pattern("file", 100'000)));
    int fd = open(at("file").c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    ASSERT_NO_FATAL_FAILURE(make_and_lose("last/"));
    ASSERT_TRUE(start_again({"--salvage"})) << log();
    EXPECT_TRUE(is_mounted(mount()));
    EXPECT_TRUE(read_file(at("file")) == pattern("file", 100'000));
    check_found("last/");
    struct stat status = {};
    EXPECT_NE(fstat(fd, &status), 0) << "the file of the former mount";
    close(fd);
    ASSERT_TRUE(write_file(at("file"), pattern("again", 200'000)));
    check_restart();
    EXPECT_TRUE(is_mounted(mount()));
    EXPECT_TRUE(read_file(at("file")) == pattern("again", 200'000));
}

TEST_F(FaultsSalvage, ASecondOneChangesNothing) {
    start_all();
    ASSERT_NO_FATAL_FAILURE(make_and_lose("last/"));
    ASSERT_TRUE(start_again({"--salvage"})) << log();
    const std::string first = names();
    EXPECT_NE(first.find("lost+found/"), std::string::npos) << first;
    const auto extents = settled().extents;
    for (int round = 0; round < 3; ++round) {
        kill();
        ASSERT_TRUE(start_again({"--salvage"})) << log();
        EXPECT_EQ(names(), first);
        check_kept();
        check_found("last/");
        EXPECT_EQ(settled().extents, extents);
    }
    // The catalog is lost after a salvage.
    kill();
    for (const char* file : {"/gshm.db", "/gshm.db-wal"}) std::filesystem::remove(dir() + file);
    ASSERT_TRUE(start_again({"--salvage"})) << log();
    for (const char* name : {"kept/small-host", "kept/large-host", "kept/small-cuda", "kept/large-cuda"}) {
        EXPECT_EQ(find_lost(pattern(name, std::string(name).find("small") != std::string::npos ? 1000 : 300'000)), "")
            << name;
    }
    for (const auto& device : kDevices) EXPECT_EQ(find_lost(pattern("last/" + device, kBytes)), "");
}

}  // namespace
}  // namespace gshm::core::test
