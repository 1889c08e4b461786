// Buffers of vineyard's: made, sealed, got and deleted, within one process.
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "vineyard_fixture.h"

namespace {
std::atomic<int> messages = 0;
}  // namespace
// Stands in for the C library's in the whole process: how often libgshm speaks to gshmd.
extern "C" __attribute__((visibility("default"))) ssize_t sendmsg(int fd, const msghdr* message, int flags) {
    ++messages;
    return syscall(SYS_sendmsg, fd, message, flags);
}

namespace gshm::core::test {
namespace {

class VineyardBuffers : public VineyardTest {
protected:
    void SetUp() override {
        VineyardTest::SetUp();
        ASSERT_OK(client_.Connect(dir()));
    }
    static int messages_of(const std::function<void()>& call) {
        const int before = messages;
        call();
        return messages - before;
    }
    vy::Client client_;
};
GSHM_VINEYARD_DEVICES(VineyardBuffers);

TEST_P(VineyardBuffers, AreMadeSealedAndGot) {
    for (size_t size : {size_t{1}, size_t{100}, size_t{64} << 10, (size_t{3} << 20) + 5}) {
        Made made;
        ASSERT_OK(client_.CreateGPUBuffer(size, made.id, made.payload, made.buffer));
        EXPECT_TRUE(vy::IsBlob(made.id));
        EXPECT_EQ(made.buffer->is_cpu(), is_host());
        EXPECT_EQ(made.buffer->device(), GetParam());
        EXPECT_TRUE(made.buffer->is_mutable());
        EXPECT_EQ(made.buffer->id(), made.id);
        EXPECT_EQ(made.buffer->size(), static_cast<int64_t>(size));
        EXPECT_GE(made.buffer->capacity(), made.buffer->size());
        EXPECT_NE(made.buffer->data(), nullptr);
        EXPECT_EQ(made.buffer->mutable_data(), made.buffer->data());
        EXPECT_EQ(made.buffer->address(), reinterpret_cast<uintptr_t>(made.buffer->data()));
        EXPECT_TRUE(content(*made.buffer) == std::string(size, '\0'));
        EXPECT_EQ(made.payload.object_id, made.id);
        EXPECT_EQ(made.payload.data_size, made.buffer->size());
        EXPECT_GE(made.payload.map_size, made.payload.data_size);
        EXPECT_EQ(made.payload.pointer + made.payload.data_offset, made.buffer->data());
        EXPECT_EQ(made.payload.is_gpu, !is_host());
        EXPECT_FALSE(made.payload.is_sealed);
        EXPECT_TRUE(made.payload.is_owner);
        EXPECT_FALSE(made.payload.is_spilled);
        write(*made.buffer, pattern(size));

        EXPECT_TRUE(get_status(client_, made.id, false).IsObjectNotSealed());
        auto early = get(client_, made.id, true);
        ASSERT_NE(early, nullptr);
        EXPECT_TRUE(content(*early) == pattern(size));
        ASSERT_OK(client_.Seal(made.id));
        EXPECT_FALSE(made.buffer->is_mutable()) << "its Client has sealed it";
        EXPECT_EQ(made.buffer->mutable_data(), nullptr);
        EXPECT_OK(client_.Seal(made.id)) << "again";
        for (bool unsafe : {false, true}) {
            auto got = get(client_, made.id, unsafe);
            ASSERT_NE(got, nullptr);
            EXPECT_FALSE(got->is_mutable());
            EXPECT_EQ(got->mutable_data(), nullptr);
            EXPECT_EQ(got->is_cpu(), is_host());
            EXPECT_EQ(got->id(), made.id);
            EXPECT_TRUE(content(*got) == pattern(size));
        }
    }
}

TEST_P(VineyardBuffers, CostOneMessageEach) {
    Made made;
    std::shared_ptr<vy::Buffer> got;
    Made first = make(client_, 64 << 10);  // its extent is mapped from now on
    auto held = get(client_, first.id, true);
    EXPECT_EQ(messages_of([&] { ASSERT_OK(client_.CreateGPUBuffer(64 << 10, made.id, made.payload, made.buffer)); }),
              1);
    EXPECT_EQ(messages_of([&] { ASSERT_OK(client_.GetGPUBuffer(made.id, true, got)); }), 1);
    EXPECT_EQ(messages_of([&] { ASSERT_OK(client_.Seal(made.id)); }), 1);
    EXPECT_EQ(messages_of([&] { ASSERT_OK(client_.DelData(made.id)); }), 1);
    std::set<ObjectID> ids;
    std::vector<Made> all;
    for (int i = 0; i < 100; ++i) ids.insert(all.emplace_back(make(client_, 100)).id);
    std::map<ObjectID, std::shared_ptr<vy::Buffer>> buffers;
    EXPECT_EQ(messages_of([&] { ASSERT_OK(client_.GetGPUBuffers(ids, true, buffers)); }), 1);
    EXPECT_EQ(messages_of([&] { ASSERT_OK(client_.DelData(std::vector(ids.begin(), ids.end()), true)); }), 1);
}

TEST_P(VineyardBuffers, OfWrongIdsAreReported) {
    auto made = make(client_, 100);
    for (ObjectID id : {ObjectID{0}, ObjectID{1}, vy::InvalidObjectID(), made.id ^ 1, made.id & ~(ObjectID{1} << 63)}) {
        std::shared_ptr<vy::Buffer> kept = made.buffer;
        bool exists = true;
        for (bool unsafe : {false, true}) {
            EXPECT_TRUE(client_.GetGPUBuffer(id, unsafe, kept).IsObjectNotExists());
            EXPECT_EQ(kept, made.buffer) << "not written on failure";
        }
        EXPECT_TRUE(client_.Seal(id).IsObjectNotExists());
        for (bool force : {false, true}) {
            for (bool deep : {false, true}) {
                EXPECT_TRUE(client_.DelData(id, force, deep).IsObjectNotExists());
                EXPECT_TRUE(client_.DelData(std::vector<ObjectID>{id}, force, deep).IsObjectNotExists());
            }
        }
        EXPECT_TRUE(client_.PutName(id, "name").IsObjectNotExists());
        EXPECT_OK(client_.Exists(id, exists));
        EXPECT_FALSE(exists);
        const auto status = get_status(client_, id, true);
        EXPECT_NE(status.ToString().find(vy::ObjectIDToString(id)), std::string::npos) << status.ToString();
    }
    bool exists = false;
    EXPECT_OK(client_.Exists(made.id, exists));
    EXPECT_TRUE(exists);
    EXPECT_TRUE(content(*made.buffer) == pattern(100));
}

TEST_P(VineyardBuffers, OfBadSizesAndDevicesAreRefused) {
    Made made;
    made.id = 77;
    EXPECT_TRUE(client_.CreateGPUBuffer(0, made.id, made.payload, made.buffer).IsInvalid());
    EXPECT_TRUE(client_.CreateGPUBuffer(1, made.id, made.payload, made.buffer, -1).IsInvalid());
    for (const char* device : {"cuda:7", "nonsense", "cuda:x"}) {
        const auto status = client_.CreateGPUBuffer(1, made.id, made.payload, made.buffer, device);
        EXPECT_TRUE(status.IsInvalid()) << device << ": " << status.ToString();
        EXPECT_NE(status.message().find(device), std::string::npos) << status.ToString();
    }
    EXPECT_TRUE(client_.CreateGPUBuffer(SIZE_MAX, made.id, made.payload, made.buffer).IsInvalid() ||
                client_.CreateGPUBuffer(SIZE_MAX, made.id, made.payload, made.buffer).IsNotEnoughMemory());
    EXPECT_EQ(made.id, 77u);
    EXPECT_EQ(made.buffer, nullptr);
    EXPECT_EQ(objects(), 0u);
}

TEST_P(VineyardBuffers, AreOnTheDeviceThatIsNamed) {
    auto first = make(client_, 3 << 20, 1, "cuda:0");
    auto second = make(client_, 3 << 20, 2, "cuda:1");
    auto host = make(client_, 3 << 20, 3, "host");
    Made by_number;
    ASSERT_OK(client_.CreateGPUBuffer(100, by_number.id, by_number.payload, by_number.buffer, 1));
    EXPECT_EQ(first.buffer->device(), "cuda:0");
    EXPECT_EQ(second.buffer->device(), "cuda:1");
    EXPECT_EQ(by_number.buffer->device(), "cuda:1");
    EXPECT_TRUE(host.buffer->is_cpu());
    EXPECT_FALSE(second.buffer->is_cpu());
    for (const char* name : {"cuda:0", "cuda:1", "host"}) EXPECT_GE(device(name).used_bytes, uint64_t{3} << 20) << name;
    unsigned seed = 1;
    for (const Made* made : {&first, &second, &host}) {
        ASSERT_OK(client_.Seal(made->id));
        auto got = get(client_, made->id);
        EXPECT_EQ(got->device(), made->buffer->device());
        EXPECT_TRUE(content(*got) == pattern(3 << 20, seed++));
    }
}

TEST_P(VineyardBuffers, GoToTheFirstGpuIfNobodySays) {
    unsetenv("GSHM_VINEYARD_DEVICE");
    vy::Client client;
    ASSERT_OK(client.Connect(dir()));
    EXPECT_EQ(make(client, 100).buffer->device(), "cuda:0") << "though host is the daemon's first device";
}

TEST_P(VineyardBuffers, AreLimitedByTheDevice) {
    std::vector<Made> all;
    Made made;
    vy::Status status;
    while ((status = client_.CreateGPUBuffer(8 << 20, made.id, made.payload, made.buffer)).ok()) {
        all.push_back(made);
        ASSERT_LE(all.size(), 8u) << "64 MiB";
    }
    EXPECT_TRUE(status.IsNotEnoughMemory()) << status.ToString();
    EXPECT_GE(all.size(), 7u);
    const ObjectID gone = all.back().id;
    made = {};
    all.pop_back();
    ASSERT_OK(client_.DelData(gone));
    EXPECT_TRUE(eventually([&] { return client_.CreateGPUBuffer(8 << 20, made.id, made.payload, made.buffer).ok(); }));
}

TEST_P(VineyardBuffers, ManyAreGotAtOnceAndMissingOnesNamed) {
    std::map<ObjectID, unsigned> seeds;
    std::vector<Made> held;
    std::set<ObjectID> ids;
    for (unsigned i = 0; i < 500; ++i) {
        held.push_back(make(client_, 1000 + i, i));
        ASSERT_OK(client_.Seal(held.back().id));
        seeds[held.back().id] = i;
        ids.insert(held.back().id);
    }
    std::map<ObjectID, std::shared_ptr<vy::Buffer>> buffers;
    ASSERT_OK(client_.GetGPUBuffers({}, false, buffers));
    EXPECT_TRUE(buffers.empty());
    ASSERT_OK(client_.GetGPUBuffers(ids, false, buffers));
    ASSERT_EQ(buffers.size(), 500u);
    for (const auto& [id, buffer] : buffers) {
        EXPECT_EQ(buffer->id(), id);
        EXPECT_TRUE(content(*buffer) == pattern(1000 + seeds[id], seeds[id]));
    }

    const auto unsealed = make(client_, 10);
    const ObjectID missing[] = {12, 0x8000000000000013u};
    std::set<ObjectID> some = {*ids.begin(), missing[0], missing[1], unsealed.id};
    buffers.clear();
    auto status = client_.GetGPUBuffers(some, false, buffers);
    EXPECT_TRUE(status.IsObjectNotExists()) << status.ToString();
    for (ObjectID id : {missing[0], missing[1], unsealed.id}) {
        EXPECT_NE(status.message().find(vy::ObjectIDToString(id)), std::string::npos) << status.ToString();
        EXPECT_EQ(buffers.count(id), 0u);
    }
    EXPECT_EQ(status.message().find(vy::ObjectIDToString(*ids.begin())), std::string::npos);
    EXPECT_EQ(status.message().rfind("3 of 4 ", 0), 0u) << status.ToString();
    ASSERT_EQ(buffers.size(), 1u) << "what is there is handed out";
    EXPECT_EQ(buffers.begin()->first, *ids.begin());

    buffers.clear();
    status = client_.GetGPUBuffers(some, true, buffers);
    EXPECT_EQ(status.message().rfind("2 of 4 ", 0), 0u) << status.ToString();
    EXPECT_EQ(buffers.size(), 2u) << "unsafe, the unsealed one too";
    EXPECT_TRUE(client_.GetGPUBuffers({unsealed.id}, false, buffers).IsObjectNotSealed());
}

TEST_P(VineyardBuffers, DeletedOnesAreFreed) {
    const uint64_t before = device().used_bytes;
    for (bool force : {false, true}) {
        auto made = make(client_, 5 << 20);
        ASSERT_OK(client_.Seal(made.id));
        auto got = get(client_, made.id);
        EXPECT_GE(device().used_bytes, before + (5 << 20));
        ASSERT_OK(client_.DelData(made.id, force));
        bool exists = true;
        EXPECT_OK(client_.Exists(made.id, exists));
        EXPECT_FALSE(exists);
        EXPECT_TRUE(get_status(client_, made.id, true).IsObjectNotExists());
        EXPECT_TRUE(client_.Seal(made.id).IsObjectNotExists());
        for (bool again : {false, true}) EXPECT_TRUE(client_.DelData(made.id, again).IsObjectNotExists());

        EXPECT_TRUE(content(*got) == pattern(5 << 20)) << "who holds it keeps it";
        EXPECT_TRUE(content(*made.buffer) == pattern(5 << 20));
        EXPECT_EQ(device().unlinked_bytes, uint64_t{5} << 20);
        made.buffer.reset();
        EXPECT_TRUE(content(*got) == pattern(5 << 20));
        got.reset();
        EXPECT_TRUE(eventually([&] { return device().used_bytes == before; })) << device().used_bytes;
        EXPECT_EQ(objects(), 0u);
    }
}

TEST_P(VineyardBuffers, ManyAreDeletedAtOnceAndEveryFailureNamed) {
    std::vector<ObjectID> ids;
    std::vector<Made> held;
    for (int i = 0; i < 20; ++i) ids.push_back(held.emplace_back(make(client_, 100)).id);
    ids.insert(ids.begin() + 3, ids[7]);  // twice is once
    ids.insert(ids.begin() + 5, 99);
    ids.push_back(98);
    const auto status = client_.DelData(ids);
    EXPECT_TRUE(status.IsObjectNotExists()) << status.ToString();
    EXPECT_EQ(status.message().rfind("2 of 22 ", 0), 0u) << status.ToString();
    for (ObjectID id : {98, 99}) EXPECT_NE(status.message().find(vy::ObjectIDToString(id)), std::string::npos);
    for (const auto& made : held) EXPECT_TRUE(get_status(client_, made.id, true).IsObjectNotExists());
    ASSERT_OK(client_.DelData(std::vector<ObjectID>{}));
    auto one = make(client_, 100);
    ASSERT_OK(client_.DelData({one.id, make(client_, 10).id}, true, false));
}

TEST_P(VineyardBuffers, CanBeSealedAndDeletedByTheirIdAlone) {
    auto made = make(client_, 1000);
    made.buffer.reset();
    EXPECT_TRUE(get_status(client_, made.id).IsObjectNotSealed());
    ASSERT_OK(client_.Seal(made.id)) << "though the buffer has gone";
    EXPECT_TRUE(content(*get(client_, made.id)) == pattern(1000));

    vy::Client other;
    ASSERT_OK(other.Connect(dir()));
    auto second = make(client_, 1000, 2);
    EXPECT_TRUE(other.Seal(second.id).IsInvalid()) << "it is open for writing elsewhere";
    EXPECT_TRUE(second.buffer->is_mutable());
    second.buffer.reset();
    ASSERT_TRUE(eventually([&] { return other.Seal(second.id).ok(); }));
    client_.Disconnect();
    EXPECT_TRUE(content(*get(other, second.id)) == pattern(1000, 2)) << "sealed, it outlives its maker";
    EXPECT_OK(other.DelData({made.id, second.id}));
    EXPECT_EQ(objects(), 0u);
}

TEST_P(VineyardBuffers, OutliveTheirClient) {
    auto sealed = make(client_, 1000, 1);
    ASSERT_OK(client_.Seal(sealed.id));
    auto open = make(client_, 1000, 2);
    auto dropped = make(client_, 1000, 3);
    dropped.buffer.reset();
    auto got = get(client_, sealed.id);
    client_.Disconnect();
    EXPECT_FALSE(client_.Connected());
    EXPECT_TRUE(client_.Seal(open.id).IsConnectionError());
    EXPECT_TRUE(content(*got) == pattern(1000, 1));
    EXPECT_TRUE(content(*open.buffer) == pattern(1000, 2));
    write(*open.buffer, pattern(1000, 4));
    EXPECT_TRUE(content(*open.buffer) == pattern(1000, 4));
    open.buffer.reset();
    got.reset();
    sealed.buffer.reset();
    EXPECT_TRUE(eventually([&] { return objects() == 1; })) << "unsealed ones are reclaimed: " << objects();
    ASSERT_OK(client_.Connect(dir()));
    EXPECT_TRUE(content(*get(client_, sealed.id)) == pattern(1000, 1));
    EXPECT_TRUE(get_status(client_, open.id, true).IsObjectNotExists());
    EXPECT_TRUE(get_status(client_, dropped.id, true).IsObjectNotExists());
}

TEST_P(VineyardBuffers, AreMadeByManyThreadsOfOneClient) {
    std::atomic<int> failed = 0;
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            for (unsigned i = 0; i < 50; ++i) {
                Made made;
                std::shared_ptr<vy::Buffer> got;
                if (!client_.CreateGPUBuffer(1000 + i, made.id, made.payload, made.buffer).ok()) ++failed;
                {
                    vy::CUDABufferMirror mirror(*made.buffer);
                    memset(mirror.mutable_data(), static_cast<int>(t * 50 + i), 1000 + i);
                }
                if (!client_.Seal(made.id).ok() || !client_.GetGPUBuffer(made.id, false, got).ok()) ++failed;
                if (content(*got) != std::string(1000 + i, static_cast<char>(t * 50 + i))) ++failed;
                if (!client_.DelData(made.id).ok()) ++failed;
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(failed, 0);
    EXPECT_TRUE(eventually([&] { return objects() == 0; }));
}

TEST(VineyardMacros, EndTheProgramOnlyIfTheyMust) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    CHECK(1 + 1 == 2) << "is so";
    EXPECT_DEATH(CHECK(1 + 1 == 3) << "more words",
                 "vineyard_buffer_test.cc:[0-9]+: Check failed: 1 \\+ 1 == 3 more words");
    EXPECT_DEATH(LOG(FATAL) << "the end", "the end");
    testing::internal::CaptureStderr();
    LOG(WARNING) << "careful: " << 7;
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("vineyard warning: "), std::string::npos) << said;
    EXPECT_NE(said.find(": careful: 7\n"), std::string::npos) << said;
}

// ---- Connecting ----

TEST_P(VineyardBuffers, ConnectByWhateverLeadsToTheDaemon) {
    EXPECT_TRUE(client_.Connect(dir()).IsInvalid()) << "already";
    EXPECT_EQ(client_.IPCSocket(), dir());
    const std::string link = scratch() + "/vineyard.sock";
    ASSERT_EQ(symlink(socket_path().c_str(), link.c_str()), 0);
    for (const std::string& path : {dir(), dir() + "/", socket_path(), link}) {
        vy::Client client;
        EXPECT_FALSE(client.Connected());
        ASSERT_OK(client.Connect(path)) << path;
        EXPECT_TRUE(client.Connected());
        client.Disconnect();
        EXPECT_FALSE(client.Connected());
        ASSERT_OK(client.Connect(path)) << "again";
    }
    vy::Client client;
    setenv("GSHM_DIR", dir().c_str(), 1);
    EXPECT_OK(client.Connect(""));
    client.Disconnect();
    setenv("VINEYARD_IPC_SOCKET", link.c_str(), 1);
    unsetenv("GSHM_DIR");
    EXPECT_OK(client.Connect());
    unsetenv("VINEYARD_IPC_SOCKET");
}

TEST_P(VineyardBuffers, ConnectSaysWhatIsWrong) {
    const int other = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    const std::string path = scratch() + "/vineyard.sock";
    strcpy(address.sun_path, path.c_str());
    ASSERT_EQ(::bind(other, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    mkdir((scratch() + "/empty").c_str(), 0755);
    std::ofstream(scratch() + "/file") << "text";
    const std::pair<std::string, std::string> wrong[] = {{"/nonexistent", "No such file"},
                                                         {path, "not a gshmd's socket"},
                                                         {scratch() + "/empty", "neither"},
                                                         {scratch() + "/file", "neither"}};
    for (const auto& [argument, why] : wrong) {
        vy::Client client;
        const auto status = client.Connect(argument);
        EXPECT_TRUE(status.IsConnectionFailed()) << argument;
        EXPECT_NE(status.message().find(why), std::string::npos) << status.ToString();
        EXPECT_FALSE(client.Connected());
        EXPECT_TRUE(get_status(client, 1).IsConnectionError());
    }
    ::close(other);
    for (const char* mode : {"rw", "0999", "-600", "0400", "010000", "06 44"}) {
        setenv("GSHM_VINEYARD_MODE", mode, 1);
        vy::Client client;
        const auto status = client.Connect(dir());
        EXPECT_TRUE(status.IsInvalid()) << mode;
        EXPECT_NE(status.message().find(mode), std::string::npos) << status.ToString();
    }
    unsetenv("GSHM_VINEYARD_MODE");
    stop();
    vy::Client client;
    EXPECT_TRUE(client.Connect(dir()).IsConnectionFailed());
}

TEST_P(VineyardBuffers, OfADaemonThatHasGoneAreConnectionErrors) {
    auto made = make(client_, 1000);
    stop();
    Made more;
    bool exists = false;
    EXPECT_FALSE(client_.Connected());
    EXPECT_TRUE(client_.CreateGPUBuffer(10, more.id, more.payload, more.buffer).IsConnectionError());
    EXPECT_TRUE(client_.Exists(made.id, exists).IsConnectionError());
    const auto status = client_.DelData({made.id, 1}, true);
    EXPECT_TRUE(status.IsConnectionError()) << status.ToString();
}

}  // namespace
}  // namespace gshm::core::test
