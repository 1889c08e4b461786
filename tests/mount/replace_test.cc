// Versions that replace each other while files are read, and memory reused from another user.
#include <algorithm>
#include <grp.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "mount/client_fixture.h"
#include "support/workers.h"

namespace gshm::core::test {
namespace {

constexpr size_t kMiB = 1 << 20;

class MountReplace : public MountClientTest {
protected:
    static bool is_one_version(const std::string& bytes) {
        return !bytes.empty() && std::all_of(bytes.begin(), bytes.end(), [&](char byte) { return byte == bytes[0]; });
    }
    // The whole file by one open; "" and errno on failure.
    static std::string read_once(const std::string& path) {
        int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) return {};
        std::string bytes;
        char block[65536];
        for (ssize_t got = 0; (got = ::read(fd, block, sizeof block)) > 0;)
            bytes.append(block, static_cast<size_t>(got));
        ::close(fd);
        return bytes;
    }
    std::string replace_version(const Client& client, size_t size, int version) {
        auto made = client.create({.name = "w", .size_bytes = size, .mode = 0644, .map = false, .unnamed = true});
        if (!made) return "create: " + made.error().message;
        if (auto filled = made->fill(static_cast<uint8_t>('a' + version % 26)); !filled) return filled.error().message;
        if (auto replaced = made->replace("w"); !replaced) return "replace: " + replaced.error().message;
        return {};
    }
    // Reads until the worker is stopped; "" on success.
    std::string read_on(Workers::Self& self, uid_t user, size_t size, bool mapped) {
        if (user != 0 && (setgroups(0, nullptr) != 0 || setgid(user) != 0 || setuid(user) != 0)) return "setuid";
        for (int reads = 0; self.goes_on(); ++reads) {
            errno = 0;
            std::string bytes;
            if (mapped) {
                auto object = gshm::Object::open_path(at("w"), {.map = false});
                if (!object) return "open_path: " + object.error().message;
                bytes.resize(object->size());
                if (auto copied = object->copy_out(bytes); !copied) return copied.error().message;
            } else {
                bytes = read_once(at("w"));
            }
            if (bytes.size() != size || !is_one_version(bytes)) {
                return "read " + std::to_string(reads) + ": " + std::to_string(bytes.size()) + " bytes, errno " +
                       std::to_string(errno);
            }
        }
        return {};
    }
};
INSTANTIATE_TEST_SUITE_P(Ways, MountReplace, ::testing::Values(Way::passthrough, Way::through, Way::user, Way::cuda),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(MountReplace, ReadersOfTheFileSeeOneVersionOrTheOther) {
    constexpr size_t kSize = 200'000;
    constexpr int kVersions = 1000;
    const uid_t reader = mount_user();
    ASSERT_EQ(run_as(reader, [&] { return replace_version(*Client::connect({.dir = dir()}), kSize, 0); }), "");
    Workers readers;
    for (int r = 0; r < 3; ++r) {
        readers.add([this, r, reader](Workers::Self& self) { return read_on(self, reader, kSize, r == 2); });
    }
    ASSERT_TRUE(readers.wait_for_rounds(1)) << readers.finish();
    // Replaced by the library, and as shells do it: a new file is renamed over the old one.
    EXPECT_EQ(run_as(reader,
                     [&]() -> std::string {
                         auto client = Client::connect({.dir = dir()});
                         for (int version = 1; version <= kVersions; ++version) {
                             if (version % 4 != 0) {
                                 if (auto failed = replace_version(*client, kSize, version); !failed.empty())
                                     return failed;
                                 continue;
                             }
                             if (!write_file(at("next"), std::string(kSize, static_cast<char>('a' + version % 26))))
                                 return "write";
                             if (rename(at("next").c_str(), at("w").c_str()) != 0) return "rename";
                         }
                         return {};
                     }),
              "");
    EXPECT_EQ(readers.finish(), "");
    // Memory of nodes that the kernel still knows is freed later.
    for (int i = 0; i < 6000 && (*client_.devices())[0].object_bytes != kSize; ++i) usleep(10'000);
    EXPECT_EQ((*client_.devices())[0].object_bytes, kSize);
    EXPECT_EQ((*client_.devices())[0].unlinked_bytes, 0u);
}

TEST_P(MountReplace, WhoHasTheOldFileOpenKeepsItAndIsListed) {
    const uid_t user = mount_user();
    EXPECT_EQ(run_as(user,
                     [&]() -> std::string {
                         auto client = Client::connect({.dir = dir()});
                         if (auto failed = replace_version(*client, 3 * kMiB, 0); !failed.empty()) return failed;
                         int fd = ::open(at("w").c_str(), O_RDONLY | O_CLOEXEC);
                         if (fd < 0) return "open";
                         if (auto failed = replace_version(*client, 1000, 1); !failed.empty()) return failed;
                         auto entries = client->unlinked();
                         if (!entries || entries->size() != 1) return "not listed";
                         const auto& entry = (*entries)[0];
                         if (entry.name != "w" || entry.info.size_bytes != 3 * kMiB) return "listed as " + entry.name;
                         if (entry.holders.size() != 1 || entry.holders[0].pid != getpid()) return "held by another";
                         std::string bytes(3 * kMiB, '?');
                         if (pread(fd, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
                             return "short";
                         if (bytes != std::string(3 * kMiB, 'a')) return "changed";
                         if (read_once(at("w")) != std::string(1000, 'b')) return "not the new one";
                         ::close(fd);
                         return {};
                     }),
              "");
    for (int i = 0; i < 12'000 && (*client_.devices())[0].unlinked_bytes != 0; ++i) usleep(10'000);
    EXPECT_EQ((*client_.devices())[0].unlinked_bytes, 0u);
    EXPECT_EQ((*client_.devices())[0].object_bytes, 1000u);
}

TEST_P(MountReplace, MemoryOfAFileBeforeItGrewIsListed) {
    if (GetParam() != Way::cuda) GTEST_SKIP() << "on host a file grows in place";
    ASSERT_TRUE(write_file(at("f"), std::string(2 * kMiB, 'x')));
    auto holder = client_.open("f", {.map = false});
    ASSERT_TRUE(holder) << holder.error().message;
    ASSERT_TRUE(write_file(at("f"), std::string(4 * kMiB, 'y'), O_APPEND));
    auto entries = client_.unlinked();
    ASSERT_TRUE(entries) << entries.error().message;
    uint64_t bytes = 0;
    for (const auto& entry : *entries) {
        EXPECT_TRUE(entry.former());
        EXPECT_EQ(entry.name, "f");
        ASSERT_EQ(entry.holders.size(), 1u);
        EXPECT_EQ(entry.holders[0].pid, getpid());
        bytes += entry.info.size_bytes;
    }
    EXPECT_EQ(entries->size(), 1u);
    EXPECT_EQ(bytes, (*client_.devices())[0].unlinked_bytes);
    const auto table = run_cli({"holders"});
    EXPECT_NE(table.out.find("f (before it was resized)"), std::string::npos) << table.out << table.err;
    ASSERT_EQ(unlink(at("f").c_str()), 0);
    entries = client_.unlinked();
    ASSERT_TRUE(entries);
    EXPECT_EQ(entries->size(), 2u);  // its former and its later memory
    holder->close();
    ASSERT_TRUE(client_.ping());
    EXPECT_EQ(client_.unlinked()->size(), 0u);
}

TEST_P(MountReplace, ReusedMemoryShowsNothingOfItsFormerOwner) {
    const uid_t user = mount_user();
    EXPECT_EQ(run_as(user,
                     [&]() -> std::string {
                         auto client = Client::connect({.dir = dir()});
                         const auto all_zero = [](const std::string& bytes) {
                             return bytes.find_first_not_of('\0') == bytes.npos;
                         };
                         for (int round = 0; round < 12; ++round) {
                             for (size_t size : {size_t{100}, size_t{70'000}, 3 * kMiB}) {
                                 // Truncated and extended again, within its last page and beyond it.
                                 if (!write_file(at("f"), std::string(size, 'S'))) return "write";
                                 if (truncate(at("f").c_str(), static_cast<off_t>(size / 2 + 1)) != 0)
                                     return "truncate";
                                 if (truncate(at("f").c_str(), static_cast<off_t>(2 * size)) != 0) return "grow";
                                 const auto grown = read_once(at("f"));
                                 if (grown.size() != 2 * size || !all_zero(grown.substr(size / 2 + 1)))
                                     return "grown: not zero";
                                 if (!write_file(at("f"), std::string(2 * size, 'S'))) return "write again";
                                 if (unlink(at("f").c_str()) != 0) return "unlink";
                                 // New memory as a file, and as an object.
                                 if (!write_file(at("g"), "") ||
                                     truncate(at("g").c_str(), static_cast<off_t>(size)) != 0)
                                     return "new";
                                 if (!all_zero(read_once(at("g")))) return "new file: not zero";
                                 if (!write_file(at("g"), std::string(size, 'S'))) return "write new";
                                 auto object = client->create({.name = "o", .size_bytes = size, .map = false});
                                 if (!object) return "create: " + object.error().message;
                                 std::string bytes(size, '?');
                                 if (!object->copy_out(bytes) || !all_zero(bytes)) return "new object: not zero";
                                 if (!object->fill('S')) return "fill";
                                 object->close();
                                 if (!client->unlink("o") || unlink(at("g").c_str()) != 0) return "remove";
                             }
                         }
                         return {};
                     }),
              "");
}

}  // namespace
}  // namespace gshm::core::test
