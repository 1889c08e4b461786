// Clients and daemons that die with transfers under way, and clients that write arbitrary bytes into their ring.
#include <sys/eventfd.h>

#include "integration/ring_fixture.h"
#include "ring/producer.h"
#include "wire/message.h"
#include "wire/version.h"

namespace gshm::core::test {
namespace {

class RingSurvivalTest : public RingTest {
protected:
    size_t daemon_descriptors() {
        size_t count = 0;
        const std::string folder = "/proc/" + std::to_string(daemon_info().pid) + "/fd";
        for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
        return count;
    }
};

TEST_P(RingSurvivalTest, TransfersGoOnWithTheNextDaemon) {
    const std::string bytes = pattern(32 * kMiB, 1);
    const int fd = make_file("f", bytes);
    auto ring = make_ring(64);
    const uint32_t file = add(ring, fd);
    auto object = create(client_.get(), "o", 32 * kMiB, where(), GSHM_NO_MAP);
    for (int round = 0; round < 3; ++round) {
        ASSERT_EQ(gshm_fill(object.get(), 0, 32 * kMiB, 0), 0);
        for (uint64_t i = 0; i < 32; ++i) {
            ASSERT_EQ(prepare(ring, GSHM_IO_READ, file, i * kMiB, {{object.get(), i * kMiB, kMiB}}, i), 0);
        }
        ASSERT_EQ(gshm_ring_submit(ring.get()), 32);
        kill();
        std::thread waiting([&] {
            for (const auto& [index, result] : finish(ring, 32)) EXPECT_EQ(result, static_cast<int64_t>(kMiB)) << index;
        });
        EXPECT_TRUE(again()) << log();
        waiting.join();
        EXPECT_TRUE(holds(object.get(), 1)) << round;
    }
    // Also with a daemon that was replaced while no transfer was under way.
    kill_it();
    EXPECT_EQ(one(ring, GSHM_IO_READ, file, 0, object.get(), 0, 100), 100);
    EXPECT_EQ(gshm_seal(object.get()), 0) << gshm_last_error();
}

TEST_P(RingSurvivalTest, ATakeoverFinishesWhatItHasAndLeavesTheRest) {
    const std::string bytes = pattern(16 * kMiB, 2);
    const int fd = make_file("f", bytes);
    auto ring = make_ring(16);
    const uint32_t file = add(ring, fd);
    auto object = create(client_.get(), "o", 16 * kMiB, where(), GSHM_NO_MAP);
    std::atomic<bool> stop = false;
    std::thread reader([&] {
        while (!stop) {
            for (uint64_t i = 0; i < 16; ++i)
                prepare(ring, GSHM_IO_READ, file, i * kMiB, {{object.get(), i * kMiB, kMiB}}, i);
            for (const auto& [index, result] : finish(ring, 16)) EXPECT_EQ(result, static_cast<int64_t>(kMiB)) << index;
        }
    });
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(take_over({}, daemon_env())) << log();
    stop = true;
    reader.join();
    EXPECT_TRUE(holds(object.get(), 2));
}

TEST_P(RingSurvivalTest, AKilledClientLeavesNothing) {
    make_file("f", pattern(64 * kMiB, 3));
    const size_t descriptors = daemon_descriptors();
    const uint64_t used = device(client_.get(), where()).object_bytes;
    for (int round = 0; round < 5; ++round) {
        const pid_t child = fork();
        if (child == 0) {
            auto client = connect();
            auto ring = make_ring(client.get(), 8);
            const uint32_t file = add(ring, ::open(file_path("f").c_str(), O_RDONLY | O_CLOEXEC));
            auto object = create(client.get(), "gone", 64 * kMiB, where(), GSHM_NO_MAP);
            for (uint64_t i = 0; i < 8; ++i) {
                prepare(ring, GSHM_IO_READ, file, i * 8 * kMiB, {{object.get(), i * 8 * kMiB, 8 * kMiB}}, i);
            }
            gshm_ring_submit(ring.get());
            ::raise(SIGKILL);
        }
        int status = 0;
        waitpid(child, &status, 0);
        ASSERT_TRUE(WIFSIGNALED(status));
        EXPECT_TRUE(eventually([&] { return open_code(client_.get(), "gone") == -ENOENT; }));
        EXPECT_TRUE(eventually([&] { return device(client_.get(), where()).object_bytes == used; }));
    }
    // Engines stay for later rings. They take few descriptors.
    EXPECT_TRUE(eventually([&] { return daemon_descriptors() <= descriptors + 8; })) << daemon_descriptors();
}

// A takeover waits for the transfers of a dead client: under the next daemon its memory may belong to another object.
TEST_P(RingSurvivalTest, ATakeoverWaitsForWhatADeadClientHasLeft) {
    if (std::string(where()) == "host") GTEST_SKIP() << "a copy to the fake GPU can be made slow, a file cannot";
    ASSERT_EQ(stop(), 0);
    auto slow = daemon_env();
    slow.push_back("FAKECUDA_COPY_DELAY_US=300000");
    ASSERT_TRUE(start({"--device", "cuda"}, slow)) << log();
    client_ = connect(kPatience);
    make_file("f", std::string(64 << 10, 'x'));
    auto neighbour = create(client_.get(), "neighbour", 4096, where(), GSHM_NO_MAP | GSHM_KEEP);  // keeps the slab
    for (int round = 0; round < 3; ++round) {
        const pid_t child = fork();
        if (child == 0) {
            auto client = connect();
            auto ring = make_ring(client.get(), 8);
            const uint32_t file = add(ring, ::open(file_path("f").c_str(), O_RDONLY | O_CLOEXEC));
            auto object = create(client.get(), "gone", 64 << 10, where(), GSHM_NO_MAP);
            prepare(ring, GSHM_IO_READ, file, 0, {{object.get(), 0, 64 << 10}});
            gshm_ring_submit(ring.get());
            std::this_thread::sleep_for(50ms);  // the data is read and is being copied to the GPU
            ::raise(SIGKILL);
        }
        waitpid(child, nullptr, 0);
        ASSERT_TRUE(take_over({}, slow)) << log();
        auto fresh = create(client_.get(), ("fresh" + std::to_string(round)).c_str(), 64 << 10, where(), GSHM_NO_MAP);
        std::this_thread::sleep_for(400ms);
        EXPECT_EQ(bytes_of(fresh.get()), std::string(64 << 10, '\0')) << "the dead client's bytes";
    }
}

// A forked child has none of its parent's threads.
TEST_P(RingSurvivalTest, AForkedChildHasRingsOfItsOwn) {
    const int fd = make_file("f", pattern(100'000, 1));
    auto read_it = [&] {
        std::string memory(100'000, '\0');
        gshm_object* wrapped = nullptr;
        if (gshm_wrap(memory.data(), memory.size(), &wrapped) != 0) return 1;
        Object object(wrapped);
        return gshm_read_file(wrapped, 0, fd, 0, memory.size(), nullptr, nullptr) == 0 && memory == pattern(100'000, 1)
                   ? 0
                   : 2;
    };
    EXPECT_EQ(read_it(), 0);
    EXPECT_EQ(in_child(read_it), 0);
}

TEST_P(RingSurvivalTest, AFileThatShrinksMeanwhileIsShort) {
    const uint64_t size = 32 * kMiB;
    const std::string bytes = pattern(size, 4);
    auto ring = make_ring(32);
    const uint32_t file = add(ring, make_file("f", bytes));
    auto object = create(client_.get(), "o", size, where(), GSHM_NO_MAP);
    for (int round = 0; round < 10; ++round) {
        ASSERT_EQ(pwrite(files_[0], bytes.data(), bytes.size(), 0), static_cast<ssize_t>(size));
        ASSERT_EQ(gshm_fill(object.get(), 0, size, 0xee), 0);
        for (uint64_t i = 0; i < 32; ++i) {
            ASSERT_EQ(prepare(ring, GSHM_IO_READ, file, i * kMiB, {{object.get(), i * kMiB, kMiB}}, i), 0);
        }
        ASSERT_EQ(gshm_ring_submit(ring.get()), 32);
        ASSERT_EQ(ftruncate(files_[0], static_cast<off_t>(7 * kMiB + 100 * round)), 0);
        auto results = finish(ring, 32);
        const std::string seen = bytes_of(object.get());
        for (const auto& [index, result] : results) {
            ASSERT_GE(result, 0) << index;
            if (index < 7) {
                EXPECT_EQ(result, static_cast<int64_t>(kMiB));
            }
            // Bytes reported as read are those of the file, or zeros where it was truncated.
            for (uint64_t at = 0; at < static_cast<uint64_t>(result); at += 511) {
                const char byte = seen[index * kMiB + at];
                ASSERT_TRUE(byte == bytes[index * kMiB + at] || byte == 0) << index << " " << at;
            }
        }
    }
}

// A client that uses the protocol directly and writes random bytes all over its ring.
TEST_P(RingSurvivalTest, AHostileRingHarmsNobodyElse) {
    make_file("f", pattern(kMiB, 5));
    auto mine = make("mine", kMiB, where(), 6, false, GSHM_KEEP);
    const pid_t hostile = fork();
    if (hostile == 0) {
        auto socket = wire::connect_to(socket_path()).value();
        flatbuffers::FlatBufferBuilder builder;
        uint64_t id = 1;
        auto ask = [&](wire::RequestBody kind, flatbuffers::Offset<void> body, std::span<const int> descriptors = {}) {
            auto packet = wire::finish_request(builder, id++, kind, body);
            (void)wire::send_packet(socket.get(), packet, descriptors, true);
            std::vector<uint8_t> buffer(128 << 10);
            (void)wire::receive_packet(socket.get(), buffer, true);
            builder.Clear();
        };
        ask(wire::RequestBody::Hello,
            wire::CreateHello(builder, wire::kProtocolHighest, builder.CreateString("x")).Union());
        Random random(static_cast<uint64_t>(getpid()));
        for (uint32_t number = 0; number < 40; ++number) {
            auto producer = ring::Producer::create(16).value();
            auto memory = Mapping::create(producer.memory(), ring::memory_bytes(16), true).value();
            const int pair[] = {producer.memory(), producer.doorbell()};
            ask(wire::RequestBody::RingCreate, wire::CreateRingCreate(builder, number).Union(), pair);
            const int fd = ::open(file_path("f").c_str(), O_RDWR | O_CLOEXEC);
            ask(wire::RequestBody::RingFile, wire::CreateRingFile(builder, number, 0).Union(), {&fd, 1});
            ::close(fd);
            const uint32_t slots[] = {0, 70'000, ~0u};
            const uint64_t ids[] = {gshm_id(mine.get()), 1, ~0ull};  // none of them belongs to this client
            const uint8_t write[] = {1, 1, 1};
            auto slot_list = builder.CreateVector(slots, 3);
            auto id_list = builder.CreateVector(ids, 3);
            ask(wire::RequestBody::RingObjects,
                wire::CreateRingObjects(builder, number, slot_list, id_list, builder.CreateVector(write, 3)).Union());
            for (int step = 0; step < 500; ++step) {
                if (random.below(8) == 0) {
                    const size_t at = 64 + random.below(memory.size() - 64);
                    memory.data()[at] = static_cast<std::byte>(random.next());
                } else {
                    ring::Entry entry;
                    for (size_t i = 0; i < sizeof entry / 8; ++i)
                        reinterpret_cast<uint64_t*>(&entry)[i] = random.next();
                    if (random.below(2) == 0) entry.operation = 1 + random.below(2);
                    if (random.below(2) == 0) entry.file = entry.object = 0;
                    if (random.below(2) == 0) entry.bytes = random.below(1 << 21);
                    producer.push(entry);
                    producer.publish();
                }
                eventfd_write(producer.doorbell(), 1);
                ring::Completion completion;
                (void)producer.take(&completion);
            }
        }
        _exit(0);
    }
    auto ring = make_ring();
    const uint32_t file = add(ring, ::open(file_path("f").c_str(), O_RDONLY | O_CLOEXEC));
    auto object = create(client_.get(), "o", kMiB, where(), GSHM_NO_MAP);
    int status = 0;
    while (waitpid(hostile, &status, WNOHANG) == 0) {
        ASSERT_EQ(one(ring, GSHM_IO_READ, file, 0, object.get(), 0, kMiB), static_cast<int64_t>(kMiB));
    }
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_TRUE(holds(mine.get(), 6)) << "somebody wrote to what is not theirs";
    EXPECT_TRUE(holds(object.get(), 5));
}

INSTANTIATE_TEST_SUITE_P(Devices, RingSurvivalTest, kDevicesAndKinds, ring_of);

}  // namespace
}  // namespace gshm::core::test
