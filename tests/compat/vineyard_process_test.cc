// Vineyard buffers between processes and users: visibility, lifetime, deletion, and cleanup after a death.
#include <grp.h>
#include <sys/stat.h>

#include "vineyard_fixture.h"

namespace gshm::core::test {
namespace {

class VineyardProcesses : public VineyardTest {
protected:
    // From here on in this process: peers are forked before.
    vy::Client& client() {
        if (!connected_) {
            EXPECT_OK(client_.Connect(dir()));
            connected_ = true;
        }
        return client_;
    }
    static bool become(uid_t user) { return setgroups(0, nullptr) == 0 && setgid(user) == 0 && setuid(user) == 0; }
    static constexpr uid_t kUser = 65534;

private:
    vy::Client client_;
    bool connected_ = false;
};
GSHM_VINEYARD_DEVICES(VineyardProcesses);

TEST_P(VineyardProcesses, ShareOneBuffer) {
    Peer reader([&](Peer& self) {
        vy::Client client;
        ASSERT_OK(client.Connect(dir()));
        const auto id = self.receive<ObjectID>();
        EXPECT_TRUE(get_status(client, id, false).IsObjectNotSealed());
        auto early = get(client, id, true);
        ASSERT_NE(early, nullptr);
        EXPECT_FALSE(early->is_mutable());
        EXPECT_EQ(early->is_cpu(), is_host());
        EXPECT_TRUE(content(*early) == pattern(100'000, 1));
        self.go_on();
        self.wait();
        EXPECT_TRUE(content(*early) == pattern(100'000, 2)) << "the same memory, not a copy";
        auto sealed = get(client, id);
        ASSERT_NE(sealed, nullptr);
        EXPECT_TRUE(content(*sealed) == pattern(100'000, 2));
        EXPECT_OK(client.DelData(id));
        EXPECT_TRUE(content(*sealed) == pattern(100'000, 2));
        ObjectID named = 0;
        EXPECT_TRUE(client.GetName("shared", named).IsObjectNotExists());
    });
    auto made = make(client(), 100'000, 1);
    ASSERT_OK(client().PutName(made.id, "shared"));
    reader.send(made.id);
    reader.wait();
    write(*made.buffer, pattern(100'000, 2));
    ASSERT_OK(client().Seal(made.id));
    reader.go_on();
    EXPECT_EQ(reader.finish(), 0);
    EXPECT_TRUE(content(*made.buffer) == pattern(100'000, 2)) << "deleted while held";
    made.buffer.reset();
    EXPECT_TRUE(eventually([&] { return objects() == 0; }));
}

TEST_P(VineyardProcesses, ThatDieBetweenCreateAndSealLeaveNothing) {
    Peer writer([&](Peer& self) {
        vy::Client client;
        ASSERT_OK(client.Connect(dir()));
        auto sealed = make(client, 1000, 1);
        ASSERT_OK(client.Seal(sealed.id));
        auto large = make(client, 5 << 20, 2);
        auto small = make(client, 1000, 3);
        ASSERT_OK(client.PutName(small.id, "small"));
        for (ObjectID id : {sealed.id, large.id, small.id}) self.send(id);
        self.wait();
    });
    const auto sealed = writer.receive<ObjectID>();
    const auto large = writer.receive<ObjectID>();
    const auto small = writer.receive<ObjectID>();
    auto held = get(client(), small, true);
    ASSERT_NE(held, nullptr);
    EXPECT_GE(device().used_bytes, uint64_t{5} << 20);
    writer.kill();
    EXPECT_EQ(writer.finish(), 128 + SIGKILL);
    EXPECT_TRUE(eventually([&] { return get_status(client(), large, true).IsObjectNotExists(); }));
    EXPECT_TRUE(get_status(client(), small, true).IsObjectNotExists());
    EXPECT_TRUE(client().Seal(small).IsObjectNotExists());
    ObjectID id = 0;
    EXPECT_TRUE(client().GetName("small", id).IsObjectNotExists());
    EXPECT_TRUE(content(*get(client(), sealed)) == pattern(1000, 1)) << "what was sealed stays";
    EXPECT_TRUE(eventually([&] { return device().used_bytes < uint64_t{5} << 20; })) << "the memory is free";
    EXPECT_EQ(held->size(), 1000);
    held.reset();
    EXPECT_TRUE(eventually([&] { return objects() == 1; }));
}

TEST_P(VineyardProcesses, ThatDieInAMirrorHarmNobody) {
    Peer writer([&](Peer& self) {
        vy::Client client;
        ASSERT_OK(client.Connect(dir()));
        auto made = make(client, 1 << 20, 1);
        auto sealed = make(client, 1 << 20, 2);
        ASSERT_OK(client.Seal(sealed.id));
        auto got = get(client, sealed.id);
        vy::CUDABufferMirror reading(*got, true);
        vy::CUDABufferMirror writing(*made.buffer);
        memset(writing.mutable_data(), 9, 1 << 20);
        self.send(made.id);
        self.send(sealed.id);
        self.wait();
    });
    const auto open = writer.receive<ObjectID>();
    const auto sealed = writer.receive<ObjectID>();
    EXPECT_TRUE(is_host() || content(*get(client(), open, true)) == pattern(1 << 20, 1)) << "nothing was flushed";
    writer.kill();
    EXPECT_EQ(writer.finish(), 128 + SIGKILL);
    EXPECT_TRUE(eventually([&] { return get_status(client(), open, true).IsObjectNotExists(); }));
    EXPECT_TRUE(content(*get(client(), sealed)) == pattern(1 << 20, 2));
    EXPECT_OK(client().DelData(sealed));
    EXPECT_TRUE(eventually([&] { return objects() == 0; }));
}

TEST_P(VineyardProcesses, DeleteWhatAnotherWritesByForceOnly) {
    Peer writer([&](Peer& self) {
        vy::Client client;
        ASSERT_OK(client.Connect(dir()));
        auto written = make(client, 5 << 20, 1);
        auto dropped = make(client, 1000, 2);
        dropped.buffer.reset();
        auto sealed = make(client, 1000, 3);
        ASSERT_OK(client.Seal(sealed.id));
        for (ObjectID id : {written.id, dropped.id, sealed.id}) self.send(id);
        self.wait();
        EXPECT_TRUE(content(*written.buffer) == pattern(5 << 20, 1)) << "its memory stays as long as it holds it";
        EXPECT_TRUE(client.DelData(written.id).IsObjectNotExists());
        EXPECT_TRUE(client.DelData(written.id, true).IsObjectNotExists());
        self.go_on();
        self.wait();
    });
    const auto written = writer.receive<ObjectID>();
    const auto dropped = writer.receive<ObjectID>();
    const auto sealed = writer.receive<ObjectID>();
    const auto status = client().DelData(written);
    EXPECT_TRUE(status.IsObjectNotSealed()) << status.ToString();
    EXPECT_NE(status.message().find("is still being written by process"), std::string::npos) << status.ToString();
    const auto both = client().DelData({written, sealed});
    EXPECT_TRUE(both.IsObjectNotSealed());
    EXPECT_EQ(both.message().rfind("1 of 2 ", 0), 0u) << "the other one is gone: " << both.ToString();
    EXPECT_TRUE(get_status(client(), sealed).IsObjectNotExists());
    EXPECT_OK(client().DelData(dropped)) << "not sealed, but nobody writes it";
    EXPECT_EQ(get(client(), written, true)->size(), 5 << 20);
    EXPECT_OK(client().DelData(written, true));
    writer.go_on();
    writer.wait();
    EXPECT_GE(device().used_bytes, uint64_t{5} << 20);
    writer.go_on();
    EXPECT_EQ(writer.finish(), 0);
    EXPECT_TRUE(eventually([&] { return device().used_bytes < uint64_t{5} << 20; }));
}

TEST_P(VineyardProcesses, OfAnotherUserAreKeptOut) {
    if (geteuid() != 0) GTEST_SKIP() << "another user needs root";
    Peer other([&](Peer& self) {
        ASSERT_TRUE(become(kUser));
        const auto open = self.receive<ObjectID>();
        const auto sealed = self.receive<ObjectID>();
        vy::Client client;
        ASSERT_OK(client.Connect(dir()));
        for (ObjectID id : {open, sealed}) {
            for (bool unsafe : {false, true}) {
                const auto status = get_status(client, id, unsafe);
                EXPECT_TRUE(status.IsInvalid()) << status.ToString();
                EXPECT_NE(status.message().find("permission denied"), std::string::npos) << status.ToString();
            }
            EXPECT_TRUE(client.DelData(id, true).IsInvalid());
            EXPECT_TRUE(client.DelData(id).IsInvalid());
        }
        EXPECT_TRUE(client.Seal(open).IsInvalid());
        std::map<ObjectID, std::shared_ptr<vy::Buffer>> buffers;
        auto mine = make(client, 1000, 5);
        ASSERT_OK(client.Seal(mine.id));
        const auto some = client.GetGPUBuffers({open, sealed, mine.id}, true, buffers);
        EXPECT_TRUE(some.IsInvalid()) << some.ToString();
        EXPECT_EQ(buffers.size(), 1u) << "its own";
        // Names are for all to see, and for their owner to change.
        ObjectID id = 0;
        EXPECT_OK(client.GetName("name", id));
        EXPECT_EQ(id, sealed);
        EXPECT_TRUE(client.PutName(mine.id, "name").IsInvalid());
        EXPECT_TRUE(client.DropName("name").IsInvalid());
        EXPECT_OK(client.PutName(mine.id, "other name"));
        self.send(mine.id);
        self.wait();
    });
    auto open = make(client(), 1000, 1);
    auto sealed = make(client(), 1000, 2);
    ASSERT_OK(client().Seal(sealed.id));
    ASSERT_OK(client().PutName(sealed.id, "name"));
    other.send(open.id);
    other.send(sealed.id);
    const auto theirs = other.receive<ObjectID>();
    EXPECT_TRUE(content(*get(client(), theirs)) == pattern(1000, 5)) << "root may";
    EXPECT_TRUE(content(*get(client(), sealed.id)) == pattern(1000, 2));
    ObjectID id = 0;
    EXPECT_OK(client().GetName("name", id));
    EXPECT_EQ(id, sealed.id);
    other.go_on();
    EXPECT_EQ(other.finish(), 0);
}

TEST_P(VineyardProcesses, OfAnotherUserAreLetInByTheMode) {
    if (geteuid() != 0) GTEST_SKIP() << "another user needs root";
    setenv("GSHM_VINEYARD_MODE", "0644", 1);
    Peer other([&](Peer& self) {
        ASSERT_TRUE(become(kUser));
        const auto id = self.receive<ObjectID>();
        vy::Client client;
        ASSERT_OK(client.Connect(dir()));
        auto got = get(client, id);
        ASSERT_NE(got, nullptr);
        EXPECT_TRUE(content(*got) == pattern(1000, 1));
        EXPECT_TRUE(client.DelData(id).IsInvalid()) << "it may be read, and no more";
    });
    auto made = make(client(), 1000, 1);
    ASSERT_OK(client().Seal(made.id));
    other.send(made.id);
    EXPECT_EQ(other.finish(), 0);
    unsetenv("GSHM_VINEYARD_MODE");
}

TEST_P(VineyardProcesses, AnOrdinaryUserMayBeTheFirst) {
    if (geteuid() != 0) GTEST_SKIP() << "another user needs root";
    Peer first([&](Peer& self) {
        ASSERT_TRUE(become(kUser));
        vy::Client client;
        ASSERT_OK(client.Connect(dir()));
        auto made = make(client, 1000, 1);
        ASSERT_OK(client.PutName(made.id, "first"));
        self.go_on();
        self.wait();
    });
    Peer second([&](Peer& self) {
        ASSERT_TRUE(become(kUser - 1));
        self.wait();
        vy::Client client;
        ASSERT_OK(client.Connect(dir()));
        auto made = make(client, 1000, 1);
        EXPECT_OK(client.PutName(made.id, "second"));
        EXPECT_OK(client.DropName("second"));
        EXPECT_OK(client.DelData(made.id));
    });
    first.wait();
    second.go_on();
    EXPECT_EQ(second.finish(), 0);
    first.go_on();
    EXPECT_EQ(first.finish(), 0);
}

TEST_P(VineyardProcesses, AForkedChildConnectsAnew) {
    auto made = make(client(), 1000, 1);
    ASSERT_OK(client().Seal(made.id));
    const pid_t child = fork();
    if (child == 0) {
        Made more;
        bool good = client().CreateGPUBuffer(10, more.id, more.payload, more.buffer).IsConnectionError();
        good = good && client().Seal(made.id).IsConnectionError() && get_status(client(), made.id).IsConnectionError();
        client().Disconnect();
        good = good && client().Connect(dir()).ok();
        bool exists = false;
        good = good && client().Exists(made.id, exists).ok() && exists;
        _exit(good ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(content(*get(client(), made.id)) == pattern(1000, 1)) << "the parent's is as it was";
}

TEST_P(VineyardProcesses, GoOnWhenTheDaemonIsReplaced) {
    auto sealed = make(client(), 1000, 1);
    ASSERT_OK(client().Seal(sealed.id));
    auto open = make(client(), 1000, 2);
    kill();
    ASSERT_TRUE(start_again()) << log();
    EXPECT_TRUE(content(*open.buffer) == pattern(1000, 2));
    EXPECT_OK(client().Seal(open.id));
    EXPECT_TRUE(content(*get(client(), sealed.id)) == pattern(1000, 1));
    EXPECT_TRUE(content(*get(client(), open.id)) == pattern(1000, 2));
    EXPECT_OK(client().DelData({sealed.id, open.id}));
}

// ---- vineyard's own example ----

TEST_P(VineyardProcesses, RunTheExample) {
    std::vector<std::string> env = fake_cuda_env(2);
    env.push_back(std::string("GSHM_VINEYARD_DEVICE=") + GetParam());
    for (const std::string& place : {dir(), socket_path()}) {
        ChildProcess creator;
        const std::string output = scratch() + "/creator.out";
        std::remove(output.c_str());
        ASSERT_TRUE(creator.spawn({bin("vineyard_creator"), place}, env, output));
        std::string id;
        EXPECT_TRUE(eventually([&] { return std::getline(std::ifstream(output), id) && id.size() == 17; }) ||
                    !creator.running());
        ChildProcess reader;
        ASSERT_TRUE(reader.spawn({bin("vineyard_reader"), place, id}, env));
        const auto read = reader.finish();
        EXPECT_EQ(read.exit_code, 0) << read.err;
        EXPECT_EQ(read.out, "CPU data from GPU is: hello world\n");
        creator.close_stdin();
        EXPECT_EQ(creator.wait(60s), 0);
        std::ifstream file(output);
        const std::string printed{std::istreambuf_iterator<char>(file), {}};
        EXPECT_EQ(printed, id + "\nfreed\n");
        EXPECT_EQ(objects(), 0u);
        ASSERT_TRUE(reader.spawn({bin("vineyard_reader"), place, id}, env));
        const auto late = reader.finish();
        EXPECT_EQ(late.exit_code, 1);
        EXPECT_NE(late.err.find("Object not exists"), std::string::npos) << late.err;
    }
}

}  // namespace
}  // namespace gshm::core::test
