// gshmd with a small GPU of the fake driver, host memory and a folder as tiers.
#pragma once

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <thread>

#include "other_user.h"
#include "survival_fixture.h"

namespace gshm::core::test {

inline constexpr uint64_t kMiB = 1 << 20;
inline constexpr uint64_t kObject = 4 * kMiB;
inline constexpr unsigned kRoom = 8;  // objects on the GPU

class TiersTest : public LibrarySurvivalTest {
protected:
    void SetUp() override {
        folder_ = scratch() + "/tier";
        begin({"--tier", "host:" + std::to_string(4 * kObject), "--tier", folder_ + ":1G"});
    }
    void begin(std::vector<std::string> tiers, const std::string& free = "0") {
        std::vector<std::string> args = {
            "--device", "cuda:0:" + std::to_string(kRoom * kObject), "--device", "host:256M", "--tier-free", free};
        args.insert(args.end(), tiers.begin(), tiers.end());
        ASSERT_TRUE(fake_loaded);
        ASSERT_TRUE(start(args, daemon_env())) << log();
        client_ = connect(kPatience);
    }
    static std::string name(unsigned i) { return "t/" + std::to_string(i); }
    void make_closed(const std::string& name, uint64_t seed, uint64_t bytes = kObject, uint32_t flags = GSHM_EVICTABLE,
                     bool seal = true) {
        make(name, bytes, "cuda:0", seed, seal, flags | uint32_t{GSHM_KEEP} | uint32_t{GSHM_NO_MAP}, 0644);
    }
    // `count` objects, each used later than the one before.
    void fill(unsigned count, uint32_t flags = GSHM_EVICTABLE) {
        for (unsigned i = 0; i < count; ++i) {
            make_closed(name(i), i, kObject, flags);
            pass_tick();
        }
    }
    // The times of use have the resolution of the kernel's tick.
    static void pass_tick() {
        timespec from = {};
        timespec now = {};
        clock_gettime(CLOCK_REALTIME_COARSE, &from);
        do clock_gettime(CLOCK_REALTIME_COARSE, &now);
        while (now.tv_nsec == from.tv_nsec && now.tv_sec == from.tv_sec);
    }
    std::string tier(const std::string& name) { return stat(client_.get(), name.c_str()).tier; }
    bool has_bytes(const std::string& name, uint64_t seed, uint32_t flags = 0) {
        return has(name, seed, flags | uint32_t{GSHM_NO_MAP});
    }
    int demote(const std::string& name) { return gshm_demote(client_.get(), name.c_str(), 0); }
    int promote(const std::string& name) { return gshm_promote(client_.get(), name.c_str(), 0); }
    int try_create(const std::string& name, uint64_t bytes) {
        auto wanted = spec(name.c_str(), bytes, "cuda:0", GSHM_KEEP | GSHM_NO_MAP);
        gshm_object* object = nullptr;
        const int code = gshm_create(client_.get(), &wanted, &object);
        if (code == 0) gshm_close(object);
        return code;
    }
    std::vector<gshm_tier_info> tiers() {
        std::vector<gshm_tier_info> found(4);
        for (auto& tier : found) tier.struct_size = sizeof tier;
        size_t count = 0;
        EXPECT_EQ(gshm_tiers(client_.get(), found.data(), found.size(), &count), 0) << gshm_last_error();
        found.resize(count);
        return found;
    }
    size_t files() const {
        size_t count = 0;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
            count += entry.is_regular_file() && entry.file_size() >= kObject ? 1 : 0;
        }
        return count;
    }

    std::string folder_;
};

}  // namespace gshm::core::test
