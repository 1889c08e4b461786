// Reused memory: the next owner must not see a byte of the previous one.
#include "library_fixture.h"

namespace gshm::core::test {
namespace {

class Reuse : public LibraryTest, public ::testing::WithParamInterface<const char*> {
protected:
    // So little memory that it must be reused.
    void SetUp() override {
        ASSERT_TRUE(fake_loaded);
        const bool host = GetParam() == std::string("host");
        ASSERT_TRUE(start({"--device", host ? "host:24M" : "cuda:0:32M"}, daemon_env())) << log();
        client_ = connect();
    }
    // A new object that was all zeros and is then filled with 0xEE; null if it was not all zeros.
    Object take(gshm_client* client, const char* name, uint64_t size, uint32_t flags = 0) {
        gshm_object* made = nullptr;
        auto wanted = spec(name, size, GetParam(), flags);
        wanted.mode = 0666;
        for (int attempt = 0; gshm_create(client, &wanted, &made) != 0; ++attempt) {
            if (attempt == 120'000) return nullptr;  // other memory is still being freed
            usleep(1000);
        }
        Object object(made);
        std::vector<uint8_t> bytes(size);
        if (gshm_copy_out(made, 0, bytes.data(), size) != 0) return nullptr;
        if (std::any_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte != 0; })) return nullptr;
        return gshm_fill(made, 0, size, 0xEE) == 0 ? std::move(object) : nullptr;
    }
    static uid_t user(int round) { return geteuid() == 0 && round % 2 == 1 ? 65534 : 0; }
    static uint32_t child_flags(int round) {
        return map_in_child(GetParam()) | (round % 3 == 0 ? uint32_t{GSHM_DEDICATED} : 0);
    }
    static constexpr uint64_t kSizes[] = {1, 300, 4096, 70'000, 1 << 20, (1 << 20) + 1, 5 << 20};
};
INSTANTIATE_TEST_SUITE_P(Devices, Reuse, ::testing::Values("host", "cuda:0"), [](const auto& info) {
    std::string name = info.param;
    std::erase(name, ':');
    return name;
});

TEST_P(Reuse, AfterRemoval) {
    for (int round = 0; round < 20; ++round) {
        EXPECT_EQ(in_child(
                      [&] {
                          auto client = connect();
                          for (uint64_t size : kSizes) {
                              if (!take(client.get(), "x", size, child_flags(round))) return 1;
                              if (gshm_unlink(client.get(), "x") != 0) return 2;
                          }
                          return 0;
                      },
                      user(round)),
                  0)
            << "round " << round;
    }
}

TEST_P(Reuse, AfterItsOwnerWasKilled) {
    for (int round = 0; round < 30; ++round) {
        EXPECT_EQ(in_child(
                      [&] {
                          auto client = connect();
                          Object held[3];
                          for (int i = 0; i < 3; ++i) {
                              held[i] = take(client.get(), ("x" + std::to_string(i)).c_str(),
                                             kSizes[(round + 2 * i) % 7], child_flags(round));
                              if (!held[i]) return 1;
                          }
                          ::kill(getpid(), SIGKILL);
                          return 2;
                      },
                      user(round)),
                  128 + SIGKILL)
            << "round " << round;
    }
}

TEST_P(Reuse, AfterItWasReplaced) {
    for (uint64_t size : kSizes) {
        for (int round = 0; round < 12; ++round) {
            auto object = take(client_.get(), "w", size, GSHM_UNNAMED);
            ASSERT_TRUE(object) << size << " bytes, round " << round << ": " << gshm_last_error();
            ASSERT_EQ(gshm_replace(object.get(), "w"), 0) << gshm_last_error();
        }
    }
}

// Neighbours in one extent come and go, and the remaining ones keep their bytes.
TEST_P(Reuse, BetweenNeighbours) {
    std::vector<Object> objects(40);
    for (int round = 0; round < 600; ++round) {
        auto& slot = objects[static_cast<size_t>(round * 7919 % 40)];
        if (slot) {
            std::vector<uint8_t> bytes(gshm_size(slot.get()));
            ASSERT_EQ(gshm_copy_out(slot.get(), 0, bytes.data(), bytes.size()), 0);
            ASSERT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0xEE; }));
            slot.reset();
        }
        slot = take(client_.get(), "n", kSizes[round % 4] + static_cast<uint64_t>(round), GSHM_UNNAMED);
        ASSERT_TRUE(slot) << "round " << round << ": " << gshm_last_error();
    }
}

// Freed memory is given to the next object without the driver: here the driver refuses all allocations.
class FreedMemory : public LibraryTest {
protected:
    static constexpr uint64_t kBytes = uint64_t{4} << 20;

    void SetUp() override { start_all(); }
    void refuse_new_memory() {
        const std::string path = scratch() + "/faults";
        std::ofstream(path + ".new") << "cuMemCreate:*:2";
        std::filesystem::rename(path + ".new", path);
    }
    int make(gshm_client* client, const char* name, uint32_t flags = 0) {
        auto wanted = spec(name, kBytes, "cuda:0", flags);
        wanted.mode = 0666;
        gshm_object* made = nullptr;
        const int code = gshm_create(client, &wanted, &made);
        if (code != 0) return code;
        Object object(made);
        std::vector<uint8_t> bytes(kBytes);
        EXPECT_EQ(gshm_copy_out(made, 0, bytes.data(), kBytes), 0);
        EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0; }));
        EXPECT_EQ(gshm_fill(made, 0, kBytes, 0xEE), 0);
        return 0;
    }
    void make_and_free(uint32_t flags, const std::function<void()>& use = {}) {
        ASSERT_EQ(make(client_.get(), "freed", flags | uint32_t{GSHM_KEEP}), 0) << gshm_last_error();
        if (use) use();
        ASSERT_EQ(gshm_unlink(client_.get(), "freed"), 0);
    }
};

TEST_F(FreedMemory, ThatNobodyMappedIsForAnybody) {
    make_and_free(GSHM_NO_MAP);
    refuse_new_memory();
    EXPECT_EQ(make(connect().get(), "next"), 0) << gshm_last_error();
}

TEST_F(FreedMemory, ThatASessionMappedIsForThatSession) {
    make_and_free(0);
    refuse_new_memory();
    EXPECT_EQ(make(client_.get(), "next"), 0) << gshm_last_error();
}

TEST_F(FreedMemory, ThatASessionMappedIsForNoOther) {
    make_and_free(0);
    refuse_new_memory();
    EXPECT_EQ(make(connect().get(), "next"), -ENOSPC);
}

TEST_F(FreedMemory, ThatTwoSessionsMappedIsForNobody) {
    auto other = connect();
    make_and_free(0, [&] { open(other.get(), "freed"); });
    refuse_new_memory();
    EXPECT_EQ(make(client_.get(), "next"), -ENOSPC);
}

TEST_F(FreedMemory, ThatWasExportedIsForNobody) {
    make_and_free(0, [&] {
        Object object = open(client_.get(), "freed", GSHM_WRITE);
        int fd = -1;
        gshm_handle_info info = {};
        info.struct_size = sizeof info;
        ASSERT_EQ(gshm_export_fd(object.get(), &fd, &info), 0) << gshm_last_error();
        close(fd);
    });
    refuse_new_memory();
    EXPECT_EQ(make(client_.get(), "next"), -ENOSPC);
}

TEST_F(FreedMemory, CountsAsFree) {
    make_and_free(GSHM_NO_MAP);
    EXPECT_TRUE(eventually([&] { return device(client_.get(), "cuda:0").used_bytes == 0; }));
}

}  // namespace
}  // namespace gshm::core::test
