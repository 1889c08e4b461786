// A file on a GPU took at least 2 MiB: /usr/include, 8,920 files with 60 MB, took 17 GiB. Files up to 1 MiB share slabs
// that no process maps, until a process needs the memory of a file.
#include <atomic>
#include <dlfcn.h>
#include <fcntl.h>
#include <map>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "mount/survival_fixture.h"

namespace gshm::core::test {
namespace {

constexpr size_t kKiB = 1 << 10;
constexpr size_t kMiB = 1 << 20;

class SmallGpuFiles : public ::testing::Test, protected MountFixture {
protected:
    void SetUp() override {
        if (auto missing = missing_for(Way::cuda); !missing.empty()) GTEST_SKIP() << missing;
        if (!is_real_gpu()) {
            // The library of this process must find the same driver as the daemon.
            if (dlopen(fakecuda_path().c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) GTEST_SKIP() << "no fake driver";
            setenv("FAKECUDA_DEVICES", "2", 1);
            setenv("FAKECUDA_FABRIC", "1", 1);
        }
        ASSERT_TRUE(start_mounted(Way::cuda)) << log();
    }
    void TearDown() override {
        // No process may wait for ever for a daemon that did not start.
        if (!running()) kill_keeper();
    }
    void restart() {
        kill();
        ASSERT_TRUE(start_again(Way::cuda)) << log();
    }
    static std::string bytes(size_t count, uint64_t seed) {
        std::string made(count, '\0');
        put_pattern(made, seed);
        return made;
    }
    // Memory is freed asynchronously.
    bool comes_to_use_at_most(uint64_t most) {
        for (int i = 0; i < 6000 && used_bytes() > most; ++i) usleep(10'000);
        return used_bytes() <= most;
    }
    gshm::Client connect() {
        auto client = gshm::Client::connect({.dir = dir()});
        EXPECT_TRUE(client) << client.error().message;
        return std::move(*client);
    }
    static uint64_t blocks_of(const std::string& path) {
        struct stat info = {};
        EXPECT_EQ(stat(path.c_str(), &info), 0);
        return static_cast<uint64_t>(info.st_blocks) * 512;
    }
};

TEST_F(SmallGpuFiles, ShareMemory) {
    constexpr int kFiles = 300;
    auto size = [](int i) { return static_cast<size_t>(1 + i * 97 % 20'000); };
    for (int i = 0; i < kFiles; ++i) ASSERT_TRUE(write_file(at("f" + std::to_string(i)), bytes(size(i), i)));
    EXPECT_TRUE(comes_to_use_at_most(16 * kMiB)) << used_bytes();
    ASSERT_NO_FATAL_FAILURE(restart());
    EXPECT_LE(used_bytes(), 16 * kMiB);
    for (int i = 0; i < kFiles; ++i) EXPECT_EQ(read_file(at("f" + std::to_string(i))), bytes(size(i), i)) << i;
    EXPECT_LT(blocks_of(at("f1")), 4 * kKiB);
    for (int i = 0; i < kFiles; ++i) ASSERT_EQ(unlink(at("f" + std::to_string(i)).c_str()), 0);
    EXPECT_TRUE(comes_to_use_at_most(0)) << used_bytes();
}

// A file that is written in pieces, or enlarged in advance, is in a slab when it is closed.
TEST_F(SmallGpuFiles, ShareMemoryHoweverTheyAreWritten) {
    constexpr int kFiles = 20;
    for (int i = 0; i < kFiles; ++i) {
        const std::string all = bytes(50'000, i);
        const std::string pieces = at("pieces" + std::to_string(i)), reserved = at("reserved" + std::to_string(i));
        const int fd = open(pieces.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        for (size_t done = 0; done < all.size(); done += 5000) ASSERT_EQ(write(fd, all.data() + done, 5000), 5000);
        close(fd);
        const int other = open(reserved.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        ASSERT_EQ(fallocate(other, i % 2 == 0 ? 0 : FALLOC_FL_KEEP_SIZE, 0, 50'000), 0);
        ASSERT_EQ(pwrite(other, all.data(), all.size(), 0), 50'000);
        close(other);
        ASSERT_TRUE(write_file(at("cut"), bytes(3 * kMiB, 7)));
        ASSERT_EQ(truncate(at("cut").c_str(), 1000), 0);
        ASSERT_EQ(rename(at("cut").c_str(), at("cut" + std::to_string(i)).c_str()), 0);
    }
    EXPECT_TRUE(comes_to_use_at_most(16 * kMiB)) << used_bytes();
    for (int i = 0; i < kFiles; ++i) {
        EXPECT_EQ(read_file(at("pieces" + std::to_string(i))), bytes(50'000, i));
        EXPECT_EQ(read_file(at("reserved" + std::to_string(i))), bytes(50'000, i));
        EXPECT_EQ(read_file(at("cut" + std::to_string(i))), bytes(1000, 7));
    }
}

// Rights do not matter: no process maps these slabs.
TEST_F(SmallGpuFiles, ShareMemoryAfterChmodAndChown) {
    for (int i = 0; i < 30; ++i) {
        const std::string name = at("f" + std::to_string(i));
        ASSERT_TRUE(write_file(name, bytes(1000, i)));
        ASSERT_EQ(chmod(name.c_str(), i % 2 == 0 ? 0600 : 0644), 0);
        ASSERT_EQ(chown(name.c_str(), i % 3 == 0 ? kNobody : 0, 0), 0);
    }
    EXPECT_TRUE(comes_to_use_at_most(4 * kMiB)) << used_bytes();
    for (int i = 0; i < 30; ++i) EXPECT_EQ(read_file(at("f" + std::to_string(i))), bytes(1000, i));
}

// A process that maps a file, or exports it, would reach the neighbours.
TEST_F(SmallGpuFiles, AMappedFileHasMemoryOfItsOwn) {
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(write_file(at("f" + std::to_string(i)), bytes(5000, i)));
    auto client = connect();
    auto mapped = client.open("f3", {.write = true});
    ASSERT_TRUE(mapped) << mapped.error().message;
    auto exported = mapped->export_fd();
    ASSERT_TRUE(exported) << exported.error().message;
    EXPECT_EQ(exported->info.offset, 0u);
    EXPECT_EQ(exported->info.extent_bytes, 2 * kMiB);
    auto info = exported->info;
    info.size_bytes = info.extent_bytes;
    gshm_object* whole = nullptr;
    ASSERT_EQ(gshm_import_fd("cuda:0", exported->fd.get(), &info, 0, &whole), 0) << gshm_last_error();
    std::string all(2 * kMiB, '?');
    EXPECT_EQ(gshm_copy_out(whole, 0, all.data(), all.size()), 0);
    gshm_close(whole);
    EXPECT_EQ(all, bytes(5000, 3) + std::string(2 * kMiB - 5000, '\0'));
    // It is the file's memory.
    ASSERT_TRUE(mapped->copy_in(std::string("by the library")));
    EXPECT_EQ(read_file(at("f3")).substr(0, 14), "by the library");
    ASSERT_NO_FATAL_FAILURE(restart());
    EXPECT_EQ(read_file(at("f3")).substr(0, 14), "by the library");
    for (int i = 0; i < 8; ++i) {
        if (i != 3) EXPECT_EQ(read_file(at("f" + std::to_string(i))), bytes(5000, i)) << i;
    }
}

TEST_F(SmallGpuFiles, ABatchOfMappedFiles) {
    constexpr int kFiles = 40;
    std::vector<std::string> names;
    for (int i = 0; i < kFiles; ++i) {
        names.push_back("f" + std::to_string(i));
        ASSERT_TRUE(write_file(at(names.back()), bytes(500 + static_cast<size_t>(i), i)));
    }
    auto client = connect();
    for (int round = 0; round < 2; ++round) {
        auto opened = client.open_batch(names);
        for (size_t i = 0; i < opened.size(); ++i) {
            ASSERT_TRUE(opened[i]) << opened[i].error().message;
            std::string read(opened[i]->size(), '?');
            ASSERT_TRUE(opened[i]->copy_out(read));
            EXPECT_EQ(read, bytes(500 + i, i)) << i;
        }
    }
}

// Copies need no memory of its own.
TEST_F(SmallGpuFiles, ACopiedFileStaysInItsSlab) {
    for (int i = 0; i < 20; ++i) {
        const std::string name = "f" + std::to_string(i);
        ASSERT_TRUE(write_file(at(name), bytes(3000, i)));
        EXPECT_EQ(run_cli({"cat", name}).out, bytes(3000, i));
    }
    EXPECT_TRUE(comes_to_use_at_most(4 * kMiB)) << used_bytes();
}

TEST_F(SmallGpuFiles, AHandleIsThatOfTheFileAlone) {
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(write_file(at("f" + std::to_string(i)), bytes(7000, i)));
    EXPECT_EQ(attribute(at("f2"), "user.allocation_size"), std::to_string(2 * kMiB)) << "that of its handle";
    const std::string handle = attribute(at("f2"), "user.fabric_handle");
    if (handle.empty()) GTEST_SKIP() << "no fabric handles here: " << strerror(errno);
    EXPECT_EQ(attribute(at("f2"), "user.allocation_size"), std::to_string(2 * kMiB));
    gshm_handle_info info = GSHM_HANDLE_INFO_INIT;
    info.kind = GSHM_HANDLE_FABRIC;
    info.extent_bytes = info.size_bytes = 2 * kMiB;
    gshm_object* whole = nullptr;
    ASSERT_EQ(gshm_import_fabric("cuda:0", reinterpret_cast<const uint8_t*>(handle.data()), &info, 0, &whole), 0)
        << gshm_last_error();
    std::string all(2 * kMiB, '?');
    EXPECT_EQ(gshm_copy_out(whole, 0, all.data(), all.size()), 0);
    gshm_close(whole);
    EXPECT_EQ(all, bytes(7000, 2) + std::string(2 * kMiB - 7000, '\0'));
    ASSERT_NO_FATAL_FAILURE(restart());
    EXPECT_EQ(attribute(at("f2"), "user.fabric_handle"), handle);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(read_file(at("f" + std::to_string(i))), bytes(7000, i));
}

// Each step is answered, and then gshmd is killed.
TEST_F(SmallGpuFiles, KeepTheirBytesInEveryStep) {
    std::string expected = bytes(900 * kKiB, 1);
    std::string name = at("f");
    const std::string neighbour = bytes(10'000, 2);
    auto check = [&](const char* step) {
        SCOPED_TRACE(step);
        kill();
        ASSERT_TRUE(start_again(Way::cuda)) << log();
        EXPECT_EQ(read_file(name), expected);
        EXPECT_EQ(read_file(at("before")), neighbour);
        EXPECT_EQ(read_file(at("after")), neighbour);
    };
    ASSERT_TRUE(write_file(at("before"), neighbour));
    ASSERT_TRUE(write_file(name, expected));
    ASSERT_TRUE(write_file(at("after"), neighbour));
    check("written");
    const std::string more = bytes(500 * kKiB, 3);
    ASSERT_TRUE(write_file(name, more, O_APPEND));
    expected += more;
    check("grown beyond 1 MiB");
    ASSERT_EQ(truncate(name.c_str(), 700'000), 0);
    expected.resize(700'000);
    check("cut");
    ASSERT_EQ(truncate(name.c_str(), 800'000), 0);
    expected.resize(800'000);
    check("enlarged");
    ASSERT_EQ(truncate(name.c_str(), 3 << 20), 0);
    expected.resize(3 << 20);
    check("enlarged beyond 1 MiB");
    ASSERT_EQ(truncate(name.c_str(), 5000), 0);
    expected.resize(5000);
    ASSERT_EQ(rename(name.c_str(), at("g").c_str()), 0);
    name = at("g");
    check("renamed");
    ASSERT_EQ(chmod(name.c_str(), 0640), 0);
    ASSERT_EQ(chown(name.c_str(), kNobody, kNobody), 0);
    check("with other rights");
    {
        auto client = connect();
        auto mapped = client.open("g", {.write = true});
        ASSERT_TRUE(mapped) << mapped.error().message;
        check("mapped");
        const std::string word = "mapped";
        ASSERT_TRUE(mapped->copy_in(word, 100));
        expected.replace(100, word.size(), word);
        check("written by the library");
    }
    ASSERT_TRUE(write_file(name, "short", O_TRUNC));
    expected = "short";
    check("written anew");
    ASSERT_FALSE(attribute(name, "user.fabric_handle").empty() && errno != EOPNOTSUPP) << strerror(errno);
    check("with a handle");
    ASSERT_EQ(unlink(name.c_str()), 0);
    EXPECT_EQ(read_file(at("before")), neighbour);
}

// gshmd is killed at any point of these steps, which go on with the next one.
TEST_F(SmallGpuFiles, KeepTheirBytesWhileGshmdIsKilled) {
    std::atomic<bool> ends = false;
    std::atomic<int> steps = 0;
    std::string wrong;
    std::thread user([&] {
        Random random(20);
        std::map<int, std::string> expected;
        auto name = [&](int i) { return at("f" + std::to_string(i)); };
        while (!ends && wrong.empty()) {
            const int i = static_cast<int>(random.below(6));
            std::string& text = expected[i];
            const uint64_t seed = random.below(1 << 30);
            bool done = true;
            const uint64_t step = random.below(7);
            switch (step) {
                case 0:
                    text = bytes(1 + random.below(600 * kKiB), seed);
                    done = write_file(name(i), text, O_TRUNC);
                    break;
                case 1: {
                    const std::string more = bytes(1 + random.below(300 * kKiB), seed);
                    if (text.size() > 3 * kMiB) break;
                    done = write_file(name(i), more, O_APPEND);
                    text += more;
                    break;
                }
                case 2:
                    if (text.empty()) break;
                    text.resize(1 + random.below(2 * text.size()));
                    done = truncate(name(i).c_str(), static_cast<off_t>(text.size())) == 0;
                    break;
                case 3:
                    if (text.empty()) break;
                    done = chmod(name(i).c_str(), random.below(2) == 0 ? 0600 : 0644) == 0;
                    break;
                case 4: {
                    const int other = static_cast<int>(random.below(6));
                    if (text.empty() || i == other) break;
                    done = rename(name(i).c_str(), name(other).c_str()) == 0;
                    expected[other] = std::move(text);
                    text.clear();
                    break;
                }
                case 5:
                    if (text.empty()) break;
                    done = unlink(name(i).c_str()) == 0;
                    text.clear();
                    break;
                default: break;
            }
            if (!done) wrong = "step " + std::to_string(step) + " failed: " + strerror(errno);
            for (const auto& [number, content] : expected) {
                if (!content.empty() && read_file(name(number)) != content && wrong.empty())
                    wrong = name(number) + " has other bytes after step " + std::to_string(steps);
            }
            ++steps;
        }
    });
    Random random(21);
    for (int round = 0; round < 25; ++round) {
        const int before = steps;
        // The next kill comes in the middle of a step.
        for (int i = 0; i < 6000 && steps < before + 3; ++i) usleep(1000 + static_cast<useconds_t>(random.below(4000)));
        kill();
        if (!start_again(Way::cuda)) {
            ADD_FAILURE() << log();
            break;
        }
    }
    ends = true;
    if (!running()) kill_keeper();
    user.join();
    EXPECT_EQ(wrong, "") << log();
}

}  // namespace
}  // namespace gshm::core::test
