// Several threads serve clients (docs/adr/0016). A release has no reply: the client that sends it may tell another client,
// whose request is then read first. Such a request is not refused because of the lease that is on its way out.
#include <poll.h>

#include "base/fd.h"
#include "base/limits.h"
#include "integration/library_fixture.h"
#include "store/store.h"
#include "support/stopped_thread.h"
#include "wire/message.h"
#include "wire/records.h"
#include "wire/version.h"

namespace gshm::core::test {
namespace {

using wire::RequestBody;
using Builder = flatbuffers::FlatBufferBuilder;
using Build = std::function<flatbuffers::Offset<void>(Builder&)>;

struct Reply {
    uint64_t id = 0;
    int error = -1;
    std::string message;
    uint64_t object = 0;  // of the first record
    size_t descriptors = 0;
};

// A connection whose packets are sent one by one, and the loop of gshmd that serves it.
class Peer {
public:
    Peer(pid_t daemon, const std::string& socket_path) {
        std::map<int, std::set<EpollSet::Entry>> before;
        for (const auto& set : EpollSet::of(daemon)) before[set.number()] = set.entries();
        greet(socket_path);
        EXPECT_EQ(receive().error, 0);
        for (const auto& set : EpollSet::of(daemon)) {
            for (const auto& entry : set.entries()) {
                if (!before[set.number()].contains(entry)) loop_ = set;
            }
        }
    }
    // Does not wait for the reply to its Hello.
    explicit Peer(const std::string& socket_path) { greet(socket_path); }
    const EpollSet& loop() const { return loop_; }

    uint64_t send(RequestBody kind, const Build& build) {
        Builder builder;
        auto packet = wire::finish_request(builder, ++last_, kind, build(builder));
        EXPECT_TRUE(wire::send_packet(socket_.get(), packet, {}, true));
        return last_;
    }
    bool has_reply() const {
        pollfd ready = {socket_.get(), POLLIN, 0};
        return poll(&ready, 1, 0) == 1;
    }
    Reply receive() {
        std::vector<uint8_t> buffer(limits::kMessageBytes);
        auto received = wire::receive_packet(socket_.get(), buffer, true);
        if (!received || received->end) return {};
        auto decoded = wire::decode_reply({buffer.data(), received->bytes});
        if (!decoded) return {};
        Reply reply{(*decoded)->id(), (*decoded)->error(), std::string(wire::view((*decoded)->message())), 0,
                    received->descriptors.size()};
        const auto* opened = (*decoded)->body_as_OpenReply();
        if (opened != nullptr && wire::records_of(*opened).size() > 0) reply.object = wire::records_of(*opened)[0].id();
        return reply;
    }
    Reply ask(RequestBody kind, const Build& build) {
        const uint64_t id = send(kind, build);
        Reply reply = receive();
        EXPECT_EQ(reply.id, id);
        return reply;
    }

private:
    void greet(const std::string& socket_path) {
        socket_ = std::move(*wire::connect_to(socket_path));
        send(RequestBody::Hello, [](Builder& builder) {
            return wire::CreateHello(builder, wire::kProtocolHighest, builder.CreateString("test")).Union();
        });
    }

    UniqueFd socket_;
    uint64_t last_ = 0;
    EpollSet loop_;
};

Build create_of(const std::string& name, uint64_t bytes, const std::string& device, uint32_t flags, bool map = false) {
    return [=](Builder& builder) {
        std::vector items = {wire::CreateCreateItem(builder, builder.CreateString(name), bytes,
                                                    builder.CreateString(device), 0600, flags)};
        return wire::CreateCreateObjects(builder, builder.CreateVector(items), map).Union();
    };
}

Build open_of(uint64_t id) {
    return [=](Builder& builder) {
        return wire::CreateOpenObjects(builder, 0, builder.CreateVector(std::vector{id}), true).Union();
    };
}

Build ping() {
    return [](Builder& builder) { return wire::CreatePing(builder).Union(); };
}

Build rename_of(const std::string& from, const std::string& to) {
    return [=](Builder& builder) {
        return wire::CreateRename(builder, builder.CreateString(from), builder.CreateString(to)).Union();
    };
}

Build unlink_of(const std::string& name) {
    return [=](Builder& builder) {
        return wire::CreateUnlink(builder, builder.CreateVectorOfStrings(std::vector{name})).Union();
    };
}

Build release_of(uint64_t id) {
    return [=](Builder& builder) {
        return wire::CreateRelease(builder, 0, builder.CreateVector(std::vector{id})).Union();
    };
}

class ClientThreads : public LibraryTest {
protected:
    void SetUp() override {
        ASSERT_TRUE(fake_loaded);
        ASSERT_TRUE(start({"--device", "host:64M", "--device", "cuda", "--threads", "2"}, daemon_env())) << log();
        // Each loop serves every other connection.
        do {
            asks_ = std::make_unique<Peer>(pid(), socket_path());
            releases_ = std::make_unique<Peer>(pid(), socket_path());
        } while (asks_->loop().number() == releases_->loop().number());
        StoppedThread tried(releases_->loop().thread());
        if (tried.has_failed()) GTEST_SKIP() << "a thread of gshmd cannot be stopped: " << tried.error();
    }
    // The release is sent, but its loop does not read it until the request has been refused once.
    Reply ask_before_release_is_read(uint64_t released, RequestBody kind, const Build& build) {
        StoppedThread stopped(releases_->loop().thread());
        releases_->send(RequestBody::Release, release_of(released));
        const uint64_t id = asks_->send(kind, build);
        while (!asks_->has_reply() && !releases_->loop().has_posted()) {}
        EXPECT_FALSE(asks_->has_reply()) << "before the release was read";
        stopped.resume();
        Reply reply = asks_->receive();
        EXPECT_EQ(reply.id, id);
        return reply;
    }
    // Made by the client that asks, and open for writing by the other one.
    uint64_t shared_object(const std::string& name, uint32_t flags) {
        const Reply made = asks_->ask(RequestBody::CreateObjects, create_of(name, 100, "host", flags));
        EXPECT_EQ(made.error, 0) << made.message;
        const Reply opened = releases_->ask(RequestBody::OpenObjects, open_of(made.object));
        EXPECT_EQ(opened.error, 0) << opened.message;
        return made.object;
    }
    void unlink(const std::string& name) {
        const Reply reply = asks_->ask(RequestBody::Unlink, unlink_of(name));
        EXPECT_EQ(reply.error, 0) << reply.message;
    }
    bool has_posted() const {
        return std::ranges::any_of(EpollSet::of(pid()), [](const EpollSet& set) { return set.has_posted(); });
    }
    // Its thread then sleeps without a timeout.
    void wait_until_catalog_is_written() const {
        for (;;) {
            for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid()) + "/task")) {
                std::string name;
                std::getline(std::ifstream(task.path() / "comm"), name);
                const auto call = SleepingCall::of(pid(), atoi(task.path().filename().c_str()));
                if (name == "catalog" && call.is_futex() && !call.is_timed) return;
            }
        }
    }
    std::unique_ptr<Peer> asks_;
    std::unique_ptr<Peer> releases_;
};

TEST_F(ClientThreads, SealAfterAReleaseThatIsNotReadYet) {
    const uint64_t object = shared_object("name", kCreateKeep);
    const Reply reply = ask_before_release_is_read(object, RequestBody::Seal, [](Builder& builder) {
        return wire::CreateSeal(builder, builder.CreateVectorOfStrings(std::vector<std::string>{"name"})).Union();
    });
    EXPECT_EQ(reply.error, 0) << reply.message;
}

TEST_F(ClientThreads, GiveNameAfterAReleaseThatIsNotReadYet) {
    const uint64_t object = shared_object("former", 0);
    unlink("former");
    const Reply reply = ask_before_release_is_read(object, RequestBody::GiveName, [&](Builder& builder) {
        return wire::CreateGiveName(builder, object, builder.CreateString("name")).Union();
    });
    EXPECT_EQ(reply.error, 0) << reply.message;
}

TEST_F(ClientThreads, ReplaceAfterAReleaseThatIsNotReadYet) {
    const uint64_t object = shared_object("former", 0);
    unlink("former");
    const Reply reply = ask_before_release_is_read(object, RequestBody::Replace, [&](Builder& builder) {
        return wire::CreateReplace(builder, object, builder.CreateString("name")).Union();
    });
    EXPECT_EQ(reply.error, 0) << reply.message;
}

TEST_F(ClientThreads, MoveAfterAReleaseThatIsNotReadYet) {
    const uint64_t object = shared_object("name", kCreateKeep);
    asks_->send(RequestBody::Release, release_of(object));
    const Reply reply = ask_before_release_is_read(object, RequestBody::Move, [](Builder& builder) {
        return wire::CreateMove(builder, builder.CreateString("name"), builder.CreateString("cuda:0")).Union();
    });
    EXPECT_EQ(reply.error, 0) << reply.message;
}

// A lease that is not released is an error all the same, and the request is not tried for ever.
TEST_F(ClientThreads, SealOfAnObjectThatIsHeldIsRefused) {
    shared_object("name", kCreateKeep);
    const Reply reply = asks_->ask(RequestBody::Seal, [](Builder& builder) {
        return wire::CreateSeal(builder, builder.CreateVectorOfStrings(std::vector<std::string>{"name"})).Union();
    });
    EXPECT_EQ(reply.error, EBUSY) << reply.message;
}

TEST_F(ClientThreads, CreateAfterAReleaseThatIsNotReadYet) {
    constexpr uint64_t kMost = 48 << 20;
    const Reply large = releases_->ask(RequestBody::CreateObjects, create_of("large", kMost, "host", kCreateKeep));
    ASSERT_EQ(large.error, 0) << large.message;
    unlink("large");
    const Reply reply = ask_before_release_is_read(large.object, RequestBody::CreateObjects,
                                                   create_of("next", kMost, "host", kCreateKeep));
    EXPECT_EQ(reply.error, 0) << reply.message;
}

// A reply with a descriptor is sent without the store lock. A later reply to the same client, from another thread, may rely
// on the descriptor and must not overtake it.
TEST_F(ClientThreads, NoReplyOvertakesADescriptor) {
    // A slab that the asking client does not have yet: its next create is answered at once, with the descriptor.
    ASSERT_EQ(releases_->ask(RequestBody::CreateObjects, create_of("slab", 100, "host", kCreateKeep)).error, 0);
    const uint64_t wait = asks_->send(RequestBody::Wait, [](Builder& builder) {
        return wire::CreateWait(builder, builder.CreateString("awaited"), false, -1).Union();
    });
    ASSERT_EQ(asks_->ask(RequestBody::Ping, ping()).error, 0);
    const pid_t other = releases_->loop().thread();
    wait_until_catalog_is_written();
    StoppedThread sender(asks_->loop().thread());
    const uint64_t create = asks_->send(RequestBody::CreateObjects, create_of("first", 100, "host", kCreateKeep, true));
    // Stopped where it wakes the thread that writes the catalog, with the store lock.
    ASSERT_TRUE(sender.run_until_call(SYS_futex));
    releases_->send(RequestBody::CreateObjects, create_of("awaited", 100, "host", kCreateKeep));
    while (!SleepingCall::of(pid(), other).is_futex()) {}
    // Stopped when it has given the lock away, before it sends.
    ASSERT_TRUE(sender.run_through_call(SYS_futex));
    ASSERT_EQ(releases_->receive().error, 0);
    // The main thread has answered the wait.
    while (has_posted() || !SleepingCall::of(pid(), pid()).is_epoll()) {}
    EXPECT_FALSE(asks_->has_reply()) << "before the descriptor";
    sender.resume();
    const Reply first = asks_->receive();
    EXPECT_EQ(first.id, create);
    EXPECT_EQ(first.error, 0) << first.message;
    EXPECT_EQ(first.descriptors, 1u);
    const Reply second = asks_->receive();
    EXPECT_EQ(second.id, wait);
    EXPECT_EQ(second.error, 0) << second.message;
}

// The successor of a process that was killed must not see its predecessor's last requests take effect.
TEST_F(ClientThreads, RequestsOfAnEndedClientComeBeforeThoseOfALaterOne) {
    ASSERT_EQ(asks_->ask(RequestBody::CreateObjects, create_of("name", 100, "host", kCreateKeep)).error, 0);
    const EpollSet loop = releases_->loop();
    StoppedThread stopped(loop.thread());
    releases_->send(RequestBody::Unlink, unlink_of("name"));
    releases_.reset();
    // One of them is served by the loop that runs.
    Peer later[] = {Peer(socket_path()), Peer(socket_path())};
    uint64_t renames[2] = {};
    for (int i = 0; i < 2; ++i) renames[i] = later[i].send(RequestBody::Rename, rename_of("name", "other"));
    while (!loop.has_posted() && !later[0].has_reply() && !later[1].has_reply()) {}
    for (int i = 0; i < 100; ++i) EXPECT_EQ(asks_->ask(RequestBody::Ping, ping()).error, 0);
    stopped.resume();
    for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(later[i].receive().error, 0);
        const Reply reply = later[i].receive();
        EXPECT_EQ(reply.id, renames[i]);
        EXPECT_EQ(reply.error, ENOENT) << reply.message;
    }
}

}  // namespace
}  // namespace gshm::core::test
