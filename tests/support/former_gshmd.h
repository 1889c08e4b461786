// The runtime folder of a killed gshmd of an older version: stored files, and a keeper with the memory.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/spawn.h"
#include "catalog/sqlite.h"
#include "integration/daemon_fixture.h"
#include "keeper/message.h"
#include "wire/message.h"

namespace gshm::core::test {

// Sends a message to the keeper of that folder, and waits until it is processed.
inline void tell_keeper(const std::string& dir, keeper::Kind kind, uint64_t key, int fd = -1) {
    auto socket = wire::connect_to(dir + "/keeper.sock");
    ASSERT_TRUE(socket) << socket.error().message;
    auto send = [&](const keeper::Message& message, std::span<const int> descriptors) {
        auto sent = wire::send_packet(socket->get(), {reinterpret_cast<const uint8_t*>(&message), bytes_of(message)},
                                      descriptors, true);
        ASSERT_TRUE(sent) << sent.error().message;
    };
    send({kind, 1, {key}}, fd < 0 ? std::span<const int>() : std::span<const int>(&fd, 1));
    send({keeper::Kind::sync, 0, {}}, {});
    std::vector<uint8_t> bytes(sizeof(keeper::Message));
    ASSERT_TRUE(wire::receive_packet(socket->get(), bytes, true));
}

class FormerGshmd {
public:
    // With a catalog of version 1, and its ledger in a file.
    static constexpr const char* kVersion1 = GSHM_SOURCE_DIR "/tests/unit/catalog/stored/version-1";
    static constexpr const char* k01 = GSHM_SOURCE_DIR "/tests/regress/stored/state-0.1";

    // Bytes of an extent.
    static std::string bytes_of_extent(uint64_t key, size_t bytes) {
        return std::string(bytes, static_cast<char>('a' + key));
    }

    static void leave_version_1(const std::string& dir) {
        ASSERT_NO_FATAL_FAILURE(copy_catalog(kVersion1, dir));
        std::filesystem::copy_file(std::string(kVersion1) + "/gshm.leases", dir + "/gshm.leases",
                                   std::filesystem::copy_options::overwrite_existing);
        {
            // There is no mount to continue.
            auto database = Database::open(dir + "/gshm.db");
            ASSERT_TRUE(database && database->execute("DELETE FROM meta WHERE key = CAST('mountpoint' AS BLOB)"));
        }
        // The sizes at the kill: files have grown since their creation.
        start_keeper(dir, {{1, 2097152}, {2, 3000000}, {3, 2097152}, {4, 4096}, {5, 6}, {6, 0}, {7, 100000}, {8, 10}});
    }

    static void leave_0_1(const std::string& dir) {
        ASSERT_NO_FATAL_FAILURE(copy_catalog(k01, dir));
        start_keeper(dir, {{1, 2097152}, {2, 5000000}, {3, 2097152}, {4, 4096}, {5, 6000}});
        // The layout of the memory for gshmd itself, format 3.
        constexpr off_t kJournal = 4096;
        constexpr off_t kLedger = kJournal + (off_t{4} << 20);
        constexpr off_t kAll = kLedger + (off_t{256} << 10);
        auto memory = UniqueFd::adopt(memfd_create("gshm-ledger", MFD_CLOEXEC));
        ASSERT_EQ(ftruncate(memory.get(), kAll), 0);
        for (auto [name, at] :
             {std::pair("/head", off_t{0}), std::pair("/journal", kJournal), std::pair("/ledger", kLedger)}) {
            std::ifstream file(std::string(k01) + name, std::ios::binary);
            const std::string bytes(std::istreambuf_iterator<char>(file), {});
            ASSERT_FALSE(bytes.empty()) << name;
            ASSERT_EQ(pwrite(memory.get(), bytes.data(), bytes.size(), at), static_cast<ssize_t>(bytes.size()));
        }
        tell_keeper(dir, keeper::Kind::put, uint64_t{1} << 63 | 4, memory.get());
    }

private:
    static void copy_catalog(const std::string& from, const std::string& dir) {
        std::filesystem::create_directories(dir);
        chmod(dir.c_str(), 0755);
        for (const char* suffix : {"-wal", "-shm"}) std::filesystem::remove(dir + "/gshm.db" + suffix);
        std::filesystem::copy_file(from + "/gshm.db", dir + "/gshm.db",
                                   std::filesystem::copy_options::overwrite_existing);
        chmod((dir + "/gshm.db").c_str(), 0600);
    }
    static void start_keeper(const std::string& dir, const std::map<uint64_t, size_t>& extents) {
        unlink((dir + "/keeper.sock").c_str());
        auto listener = wire::listen_at(dir + "/keeper.sock");
        ASSERT_TRUE(listener) << listener.error().message;
        const int descriptors[] = {listener->get()};
        ASSERT_TRUE(spawn_apart(DaemonFixture::bin("gshm-keeper"), {"gshm-keeper"}, descriptors));
        listener->reset();
        uint64_t instance = 0;
        {
            auto database = Database::open(dir + "/gshm.db", Database::Mode::existing);
            ASSERT_TRUE(database);
            auto read = database->prepare("SELECT value FROM meta WHERE key = CAST('instance' AS BLOB)");
            ASSERT_TRUE(read && read->each([&] { instance = std::stoull(std::string(read->blob(0))); }));
        }
        tell_keeper(dir, keeper::Kind::begin, instance);
        for (auto [key, bytes] : extents) {
            auto memory = UniqueFd::adopt(memfd_create("extent", MFD_CLOEXEC));
            const std::string content = bytes_of_extent(key, bytes);
            ASSERT_EQ(write(memory.get(), content.data(), bytes), static_cast<ssize_t>(bytes));
            tell_keeper(dir, keeper::Kind::put, key, memory.get());
        }
    }
};

}  // namespace gshm::core::test
