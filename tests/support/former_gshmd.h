// The runtime folder of a killed gshmd with a catalog of version 1: the stored catalog and ledger, and a keeper with the
// memory. The protocol of the keeper has not changed since.
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
    static constexpr const char* kStored = GSHM_SOURCE_DIR "/tests/unit/catalog/stored/version-1";

    // Bytes of an extent of the stored catalog.
    static std::string bytes_of_extent(uint64_t key, size_t bytes) {
        return std::string(bytes, static_cast<char>('a' + key));
    }

    static void leave(const std::string& dir) {
        std::filesystem::create_directories(dir);
        chmod(dir.c_str(), 0755);
        for (const char* file : {"/gshm.db", "/gshm.leases"}) {
            std::filesystem::copy_file(std::string(kStored) + file, dir + file,
                                       std::filesystem::copy_options::overwrite_existing);
        }
        std::filesystem::remove(dir + "/gshm.db-wal");
        chmod((dir + "/gshm.db").c_str(), 0600);
        // There is no mount to continue.
        auto database = Database::open(dir + "/gshm.db");
        ASSERT_TRUE(database && database->execute("DELETE FROM meta WHERE key = CAST('mountpoint' AS BLOB)"));
        unlink((dir + "/keeper.sock").c_str());
        auto listener = wire::listen_at(dir + "/keeper.sock");
        ASSERT_TRUE(listener) << listener.error().message;
        const int descriptors[] = {listener->get()};
        ASSERT_TRUE(spawn_apart(DaemonFixture::bin("gshm-keeper"), {"gshm-keeper"}, descriptors));
        listener->reset();
        uint64_t instance = 0;
        auto read = database->prepare("SELECT value FROM meta WHERE key = CAST('instance' AS BLOB)");
        ASSERT_TRUE(read && read->each([&] { instance = std::stoull(std::string(read->blob(0))); }));
        tell_keeper(dir, keeper::Kind::begin, instance);
        // The sizes at the kill: files have grown since their creation.
        for (auto [key, bytes] : std::map<uint64_t, size_t>{
                 {1, 2097152}, {2, 3000000}, {3, 2097152}, {4, 4096}, {5, 6}, {6, 0}, {7, 100000}, {8, 10}}) {
            auto memory = UniqueFd::adopt(memfd_create("extent", MFD_CLOEXEC));
            const std::string content = bytes_of_extent(key, bytes);
            ASSERT_EQ(write(memory.get(), content.data(), bytes), static_cast<ssize_t>(bytes));
            tell_keeper(dir, keeper::Kind::put, key, memory.get());
        }
    }
};

}  // namespace gshm::core::test
