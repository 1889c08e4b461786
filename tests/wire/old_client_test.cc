// A client of gshm 0.1 with today's gshmd. It knows protocol 1 only: its requests are the golden messages, or are built
// with the schema of protocol 1 where they must name ids of the dialogue. A verifier of that schema checks all replies.
#include <fcntl.h>
#include <functional>
#include <set>
#include <sys/mman.h>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "base/futex.h"
#include "base/limits.h"
#include "base/mapping.h"
#include "integration/daemon_fixture.h"
#include "protocol-1_generated.h"
#include "ring/producer.h"
#include "wire/golden.h"
#include "wire/message.h"

namespace gshm::core::test {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
using wire1::ReplyBody;
using wire1::RequestBody;

constexpr uint32_t kKeep = 1;
constexpr uint32_t kUnnamed = 16;
constexpr uint64_t kBytes = 1 << 20;

// A reply that the verifier of protocol 1 has accepted.
struct OldReply {
    std::vector<uint8_t> bytes;
    std::vector<UniqueFd> descriptors;
    const wire1::Reply* reply = nullptr;  // null: the connection has ended

    int error() const { return reply == nullptr ? ECONNRESET : reply->error(); }
    template <typename Body>
    const Body& body() const {
        return *reply->body_as<Body>();
    }
};

class OldClient {
public:
    using Build = std::function<Offset<void>(FlatBufferBuilder&)>;

    explicit OldClient(const std::string& socket_path) : socket_(wire::connect_to(socket_path).value()) {}

    void send(std::span<const uint8_t> packet, std::span<const int> descriptors = {}) {
        const auto* request = flatbuffers::GetRoot<wire1::Request>(packet.data());
        asked.insert(request->body_type());
        ASSERT_TRUE(wire::send_packet(socket_.get(), packet, descriptors, true));
    }
    void send(RequestBody kind, const Build& build, std::span<const int> descriptors = {}) {
        FlatBufferBuilder builder;
        const auto body = build(builder);
        builder.Finish(wire1::CreateRequest(builder, ++last_id_, kind, body), "GSHM");
        send({builder.GetBufferPointer(), builder.GetSize()}, descriptors);
    }
    OldReply receive() {
        OldReply answer;
        answer.bytes.resize(limits::kMessageBytes);
        auto received = wire::receive_packet(socket_.get(), answer.bytes, true);
        if (!received || received->end) return answer;
        answer.bytes.resize(received->bytes);
        answer.descriptors = std::move(received->descriptors);
        flatbuffers::Verifier verifier(answer.bytes.data(), answer.bytes.size(), 16, 4096);
        EXPECT_TRUE(verifier.VerifyBuffer<wire1::Reply>("GSHM")) << "not a reply of protocol 1";
        answer.reply = flatbuffers::GetRoot<wire1::Reply>(answer.bytes.data());
        EXPECT_LE(answer.reply->body_type(), ReplyBody::MAX) << "a body that protocol 1 does not have";
        return answer;
    }
    OldReply call(RequestBody kind, const Build& build, std::span<const int> descriptors = {}) {
        send(kind, build, descriptors);
        OldReply answer = receive();
        if (answer.reply != nullptr) {
            EXPECT_EQ(answer.reply->id(), last_id_) << wire1::EnumNameRequestBody(kind);
        }
        return answer;
    }
    OldReply call_golden(const std::string& name, std::span<const int> descriptors = {}) {
        send(golden("request-" + name), descriptors);
        return receive();
    }

    std::set<RequestBody> asked;

private:
    UniqueFd socket_;
    uint64_t last_id_ = 1000;
};

Offset<flatbuffers::Vector<Offset<flatbuffers::String>>> names(FlatBufferBuilder& out,
                                                               const std::vector<std::string>& list) {
    return out.CreateVectorOfStrings(list);
}

class OldClientTest : public ::testing::Test, protected DaemonFixture {
protected:
    void SetUp() override {
        ASSERT_TRUE(start({"--device", "host:64M", "--device", "cuda"}, fake_cuda_env(1))) << log();
    }

    // Greets with the golden Hello, whose secret is that of no session.
    OldClient connect() {
        OldClient client(socket_path());
        const auto hello = client.call_golden("Hello");
        EXPECT_EQ(hello.error(), 0);
        const auto& body = hello.body<wire1::HelloReply>();
        EXPECT_EQ(body.protocol(), 1u);
        EXPECT_FALSE(body.resumed());
        EXPECT_EQ(body.devices()->size(), 2u);
        secret_ = {body.secret_low(), body.secret_high()};
        return client;
    }
    static OldReply create(OldClient& client, const std::string& name, uint32_t flags = 0, bool map = false) {
        return client.call(RequestBody::CreateObjects, [&](auto& o) {
            const auto text = o.CreateString(name);
            const auto device = o.CreateString("host");
            const std::vector items = {wire1::CreateCreateItem(o, text, kBytes, device, 0600, flags)};
            return wire1::CreateCreateObjects(o, o.CreateVector(items), map).Union();
        });
    }
    static uint64_t created(OldClient& client, const std::string& name, uint32_t flags = 0) {
        const auto reply = create(client, name, flags);
        EXPECT_EQ(reply.error(), 0) << name;
        return reply.error() != 0 ? 0 : reply.body<wire1::OpenReply>().records()->Get(0)->id();
    }
    static int stat(OldClient& client, const std::string& name) {
        return client.call(RequestBody::Stat, [&](auto& o) { return wire1::CreateStat(o, names(o, {name})).Union(); })
            .error();
    }

    std::pair<uint64_t, uint64_t> secret_;
};

TEST_F(OldClientTest, PassesEveryCall) {
    OldClient client = connect();

    // ---- gshmd ----
    EXPECT_EQ(client.call_golden("Ping").error(), 0);
    const auto info = client.call_golden("DaemonInfo");
    EXPECT_EQ(info.body<wire1::DaemonInfoReply>().protocol(), 1u);
    EXPECT_EQ(info.body<wire1::DaemonInfoReply>().pid(), pid());
    const auto devices = client.call_golden("Devices");
    EXPECT_EQ(devices.body<wire1::DeviceList>().devices()->Get(1)->name()->str(), "cuda:0");
    EXPECT_EQ(client.call_golden("Unmount").error(), EINVAL) << "nothing is mounted";

    // ---- objects ----
    const auto made = create(client, "a", kKeep, true);
    ASSERT_EQ(made.error(), 0);
    const wire1::OpenRecord& record = *made.body<wire1::OpenReply>().records()->Get(0);
    EXPECT_EQ(record.size_bytes(), kBytes);
    ASSERT_EQ(record.descriptor(), 0);
    ASSERT_EQ(made.descriptors.size(), 1u);
    auto memory = Mapping::create(made.descriptors[0].get(), record.extent_bytes(), true);
    ASSERT_TRUE(memory);
    std::byte* data = memory->data() + record.offset();
    const uint64_t a = record.id();

    auto staging = UniqueFd::adopt(memfd_create("staging", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(staging.get(), 4096), 0);
    ASSERT_EQ(fcntl(staging.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    const int staging_fd = staging.get();
    EXPECT_EQ(client
                  .call(RequestBody::AttachStaging, [](auto& o) { return wire1::CreateAttachStaging(o, 4096).Union(); },
                        {&staging_fd, 1})
                  .error(),
              0);
    ASSERT_EQ(pwrite(staging.get(), "hello", 5, 0), 5);
    EXPECT_EQ(
        client.call(RequestBody::Copy, [&](auto& o) { return wire1::CreateCopy(o, a, 100, 5, true).Union(); }).error(),
        0);
    EXPECT_EQ(memcmp(data + 100, "hello", 5), 0);
    EXPECT_EQ(
        client.call(RequestBody::Fill, [&](auto& o) { return wire1::CreateFill(o, a, 200, 10, 7).Union(); }).error(),
        0);
    EXPECT_EQ(data[209], std::byte{7});
    const auto exported =
        client.call(RequestBody::Export, [&](auto& o) { return wire1::CreateExport(o, a, 1, true).Union(); });
    EXPECT_EQ(exported.body<wire1::ExportReply>().extent_bytes(), record.extent_bytes());
    EXPECT_EQ(exported.descriptors.size(), 1u);
    const auto fence =
        client.call(RequestBody::OpenFence, [&](auto& o) { return wire1::CreateOpenFence(o, a, true).Union(); });
    EXPECT_EQ(fence.error(), 0);
    EXPECT_EQ(fence.descriptors.size(), 1u);

    // ---- rings ----
    const std::string path = scratch() + "/file";
    std::ofstream(path) << "from a file";
    auto producer = ring::Producer::create(16).value();
    const int ends[] = {producer.memory(), producer.doorbell()};
    EXPECT_EQ(client.call(
                        RequestBody::RingCreate, [](auto& o) { return wire1::CreateRingCreate(o, 5).Union(); }, ends)
                  .error(),
              0);
    auto file = UniqueFd::adopt(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    const int file_fd = file.get();
    EXPECT_EQ(
        client
            .call(RequestBody::RingFile, [](auto& o) { return wire1::CreateRingFile(o, 5, 1).Union(); }, {&file_fd, 1})
            .error(),
        0);
    const auto slots = client.call(RequestBody::RingObjects, [&](auto& o) {
        const auto slot_list = o.CreateVector(std::vector<uint32_t>{2});
        const auto ids = o.CreateVector(std::vector<uint64_t>{a});
        return wire1::CreateRingObjects(o, 5, slot_list, ids, o.CreateVector(std::vector<uint8_t>{1})).Union();
    });
    EXPECT_EQ(slots.body<wire1::StatusReply>().statuses()->Get(0), 0);
    ring::Entry entry = {};
    entry.operation = static_cast<uint32_t>(ring::Operation::read);
    entry.token = 9;
    entry.file = 1;
    entry.object = 2;
    entry.object_offset = 300;
    entry.bytes = 11;
    producer.push(entry);
    producer.publish();
    ring::Completion completion = {};
    while (!producer.take(&completion)) {
        producer.announce(1);
        const uint32_t seen = producer.word().load();
        const Awaited completed{&producer.word(), seen};
        if (producer.available() == 0) wait_for_any({&completed, 1}, std::chrono::seconds(1));
        producer.withdraw();
    }
    EXPECT_EQ(completion.result, 11);
    EXPECT_EQ(completion.token, 9u);
    EXPECT_EQ(memcmp(data + 300, "from a file", 11), 0);
    client.send(RequestBody::RingRelease, [](auto& o) {
        return wire1::CreateRingRelease(o, 5, o.CreateVector(std::vector<uint32_t>{2})).Union();
    });
    EXPECT_EQ(
        client.call(RequestBody::RingDestroy, [](auto& o) { return wire1::CreateRingDestroy(o, 5).Union(); }).error(),
        0);

    // ---- names ----
    const auto both = client.call(RequestBody::Stat, [&](auto& o) {
        const auto list = names(o, {"a", "nothing"});
        return wire1::CreateStat(o, list, o.CreateVector(std::vector<uint64_t>{a})).Union();
    });
    EXPECT_EQ(both.error(), ENOENT) << "of the second";
    const auto& found = *both.body<wire1::StatReply>().records();
    ASSERT_EQ(found.size(), 3u);
    EXPECT_EQ(found.Get(0)->id(), a);
    EXPECT_EQ(found.Get(0)->size_bytes(), kBytes);
    EXPECT_EQ(found.Get(0)->mode(), 0600u);
    EXPECT_EQ(found.Get(1)->status(), ENOENT);
    EXPECT_EQ(found.Get(2)->leases(), 1u);
    const auto waited = client.call(
        RequestBody::Wait, [](auto& o) { return wire1::CreateWait(o, o.CreateString("a"), false, 10'000).Union(); });
    EXPECT_EQ(waited.body<wire1::StatReply>().records()->Get(0)->id(), a);
    const auto sealed = client.call(RequestBody::Seal, [&](auto& o) {
        return wire1::CreateSeal(o, 0, o.CreateVector(std::vector<uint64_t>{a})).Union();
    });
    EXPECT_EQ(sealed.body<wire1::StatusReply>().statuses()->Get(0), 0);
    client.send(RequestBody::Release, [&](auto& o) {
        const auto ids = o.CreateVector(std::vector<uint64_t>{a});
        const auto unmapped = o.CreateVector(std::vector<uint64_t>{record.extent() * 2 + 1});
        return wire1::CreateRelease(o, 0, ids, unmapped).Union();
    });
    const auto opened = client.call(RequestBody::OpenObjects, [&](auto& o) {
        const auto list = names(o, {"a"});
        return wire1::CreateOpenObjects(o, list, o.CreateVector(std::vector<uint64_t>{a}), false, true, true).Union();
    });
    EXPECT_EQ(opened.error(), 0);
    ASSERT_EQ(opened.body<wire1::OpenReply>().records()->size(), 2u);
    EXPECT_EQ(opened.body<wire1::OpenReply>().records()->Get(1)->id(), a);
    EXPECT_EQ(opened.body<wire1::OpenReply>().records()->Get(1)->descriptor(), -1) << "sent with the first";
    const auto held =
        client.call(RequestBody::Holders, [](auto& o) { return wire1::CreateHolders(o, o.CreateString("a")).Union(); });
    ASSERT_EQ(held.body<wire1::HoldersReply>().records()->size(), 1u);
    EXPECT_EQ(held.body<wire1::HoldersReply>().records()->Get(0)->pid(), getpid());
    EXPECT_EQ(held.body<wire1::HoldersReply>().records()->Get(0)->leases(), 2u);

    const auto set = client.call(RequestBody::SetAttribute, [](auto& o) {
        const auto name = o.CreateString("a");
        const auto attribute = o.CreateString("user.k");
        return wire1::CreateSetAttribute(o, name, attribute, o.CreateVector(std::vector<uint8_t>{1, 2})).Union();
    });
    EXPECT_EQ(set.error(), 0);
    const auto got = client.call(RequestBody::GetAttribute, [](auto& o) {
        const auto name = o.CreateString("a");
        return wire1::CreateGetAttribute(o, name, o.CreateString("user.k")).Union();
    });
    EXPECT_EQ(got.body<wire1::BytesReply>().bytes()->size(), 2u);
    const auto listed = client.call(RequestBody::ListAttributes, [](auto& o) {
        const auto name = o.CreateString("a");
        return wire1::CreateListAttributes(o, name, o.CreateString("")).Union();
    });
    EXPECT_EQ(listed.body<wire1::BytesReply>().bytes()->size(), sizeof "user.k");
    const auto removed = client.call(RequestBody::RemoveAttribute, [](auto& o) {
        const auto name = o.CreateString("a");
        return wire1::CreateRemoveAttribute(o, name, o.CreateString("user.k")).Union();
    });
    EXPECT_EQ(removed.error(), 0);

    const auto make = [&](const char* name, uint8_t kind, const char* target) {
        return client
            .call(RequestBody::Make,
                  [&](auto& o) {
                      const auto text = o.CreateString(name);
                      const auto to = target == nullptr ? 0 : o.CreateString(target);
                      return wire1::CreateMake(o, text, kind, to, 0, 0755, 0).Union();
                  })
            .error();
    };
    EXPECT_EQ(make("d", 2, nullptr), 0);
    EXPECT_EQ(make("d/link", 3, "target"), 0);
    const auto target = client.call(RequestBody::ReadLink,
                                    [](auto& o) { return wire1::CreateReadLink(o, o.CreateString("d/link")).Union(); });
    EXPECT_EQ(target.body<wire1::BytesReply>().bytes()->size(), 6u);
    const auto two_names = [&](RequestBody kind, const char* from, const char* to) {
        return client
            .call(kind,
                  [&](auto& o) {
                      const auto first = o.CreateString(from);
                      const auto second = o.CreateString(to);
                      if (kind == RequestBody::Rename) return wire1::CreateRename(o, first, second, false).Union();
                      if (kind == RequestBody::Move) return wire1::CreateMove(o, first, second, true).Union();
                      return wire1::CreateAddName(o, first, second).Union();
                  })
            .error();
    };
    EXPECT_EQ(two_names(RequestBody::AddName, "a", "d/b"), 0);
    EXPECT_EQ(two_names(RequestBody::Rename, "d/b", "d/c"), 0);
    const auto change = client.call(
        RequestBody::Change, [](auto& o) { return wire1::CreateChange(o, o.CreateString("d/c"), 1, 0640).Union(); });
    EXPECT_EQ(change.error(), 0);
    const auto list =
        client.call(RequestBody::List, [](auto& o) { return wire1::CreateList(o, o.CreateString("d")).Union(); });
    const auto& entries = list.body<wire1::ListReply>();
    ASSERT_EQ(entries.names()->size(), 2u);
    ASSERT_EQ(entries.records()->size(), 2u);
    EXPECT_EQ(entries.total(), 2u);

    // ---- new versions ----
    const uint64_t first = created(client, "v", kUnnamed);
    const auto given = client.call(
        RequestBody::GiveName, [&](auto& o) { return wire1::CreateGiveName(o, first, o.CreateString("v")).Union(); });
    EXPECT_EQ(given.error(), 0);
    const uint64_t second = created(client, "v", kUnnamed);
    const auto replaced = client.call(
        RequestBody::Replace, [&](auto& o) { return wire1::CreateReplace(o, second, o.CreateString("v")).Union(); });
    EXPECT_EQ(replaced.error(), 0);
    const auto unlinked = client.call(RequestBody::Unlinked, [](auto& o) { return wire1::CreateUnlinked(o).Union(); });
    const auto& former = unlinked.body<wire1::UnlinkedReply>();
    ASSERT_EQ(former.records()->size(), 1u);
    EXPECT_EQ(former.records()->Get(0)->id(), first);
    ASSERT_EQ(former.holders()->size(), 1u);
    EXPECT_EQ(former.holders()->Get(0)->pid(), getpid());
    client.send(RequestBody::Release, [&](auto& o) {
        return wire1::CreateRelease(o, 0, o.CreateVector(std::vector<uint64_t>{first, second})).Union();
    });
    EXPECT_EQ(two_names(RequestBody::Move, "v", "cuda:0"), 0);

    // ---- a watch is a session of its own ----
    OldClient watcher = connect();
    const auto watch = watcher.call(RequestBody::WatchCreate, [](auto& o) {
        return wire1::CreateWatchCreate(o, o.CreateString("w"), false).Union();
    });
    EXPECT_EQ(watch.error(), 0);
    watcher.send(golden("request-WatchNext"));
    const uint64_t seen = created(client, "w");
    const auto events = watcher.receive();
    ASSERT_EQ(events.error(), 0);
    EXPECT_EQ(events.body<wire1::WatchReply>().records()->Get(0)->id(), seen);
    EXPECT_EQ(events.body<wire1::WatchReply>().names()->Get(0)->str(), "w");
    EXPECT_EQ(watcher.call_golden("Goodbye").error(), 0);

    const auto gone = client.call(RequestBody::Unlink,
                                  [](auto& o) { return wire1::CreateUnlink(o, names(o, {"w", "nothing"})).Union(); });
    EXPECT_EQ(gone.error(), ENOENT);
    EXPECT_EQ(gone.body<wire1::StatusReply>().statuses()->Get(0), 0);
    EXPECT_EQ(gone.body<wire1::StatusReply>().statuses()->Get(1), ENOENT);

    std::set<RequestBody> asked = client.asked;
    asked.merge(watcher.asked);
    // All of the union of protocol 1 but those of the other tests.
    const std::set<RequestBody> elsewhere = {RequestBody::Reconcile, RequestBody::Takeover, RequestBody::Shutdown};
    for (auto kind : wire1::EnumValuesRequestBody()) {
        if (kind == RequestBody::NONE || elsewhere.contains(kind)) continue;
        EXPECT_TRUE(asked.contains(kind)) << wire1::EnumNameRequestBody(kind);
    }
}

TEST_F(OldClientTest, GoesOnWithTheNextGshmd) {
    OldClient client = connect();
    const uint64_t id = created(client, "a");
    kill();
    ASSERT_TRUE(start({}, fake_cuda_env(1))) << log();
    OldClient again(socket_path());
    const auto hello = again.call(RequestBody::Hello, [&](auto& o) {
        return wire1::CreateHello(o, 1, o.CreateString("0.1.0"), secret_.first, secret_.second).Union();
    });
    ASSERT_EQ(hello.error(), 0);
    EXPECT_TRUE(hello.body<wire1::HelloReply>().resumed());
    EXPECT_EQ(hello.body<wire1::HelloReply>().protocol(), 1u);
    again.send(RequestBody::Reconcile, [&](auto& o) {
        const auto ids = o.CreateVector(std::vector<uint64_t>{id});
        const auto readers = o.CreateVector(std::vector<uint32_t>{0});
        return wire1::CreateReconcile(o, ids, readers, o.CreateVector(std::vector<uint32_t>{1}), true).Union();
    });
    const auto filled =
        again.call(RequestBody::Fill, [&](auto& o) { return wire1::CreateFill(o, id, 0, 10, 7).Union(); });
    EXPECT_EQ(filled.error(), 0) << "its lease lasts";
}

// All golden requests as they are, ids and names included: gshmd understands them, and protocol 1 its replies.
TEST_F(OldClientTest, EveryGoldenRequestIsAnswered) {
    const std::set<std::string> without_reply = {"Release", "RingRelease"};
    // A second Hello and a Reconcile without a resumed session end the session; the last two end gshmd.
    const std::set<std::string> elsewhere = {"Hello", "Reconcile", "Takeover", "Shutdown"};
    for (const std::string& file : golden_names()) {
        if (!file.starts_with("request-")) continue;
        const std::string name = file.substr(8);
        if (elsewhere.contains(name)) continue;
        OldClient client = connect();
        client.send(golden(file));
        // WatchNext without a watch and Wait for a missing name are answered with an error as well.
        if (!without_reply.contains(name)) {
            const auto reply = client.receive();
            ASSERT_NE(reply.reply, nullptr) << name;
            EXPECT_EQ(reply.reply->id(), 0x0102030405060708u) << name;
            EXPECT_NE(reply.error(), EPROTO) << name;
            EXPECT_NE(reply.error(), EOPNOTSUPP) << name;
        }
        EXPECT_EQ(client.call_golden("Ping").error(), 0) << name << " does not end the session";
    }
}

TEST_F(OldClientTest, TakesOver) {
    OldClient successor = connect();
    const auto reply = successor.call_golden("Takeover");
    EXPECT_EQ(reply.error(), 0);
    EXPECT_EQ(reply.descriptors.size(), 2u) << "the listening socket and the lock";
    EXPECT_EQ(wait_for_end(), 0);
}

TEST_F(OldClientTest, ShutsDown) {
    OldClient client = connect();
    EXPECT_EQ(stat(client, "nothing"), ENOENT);
    EXPECT_EQ(client.call_golden("Shutdown").error(), 0);
    EXPECT_EQ(wait_for_end(), 0);
}

TEST_F(OldClientTest, ANewGshmdWithoutProtocol1SaysWhatToDo) {
    stop();
    auto env = fake_cuda_env(1);
    env.push_back("GSHM_PROTOCOL_RANGE=2-2");
    ASSERT_TRUE(start({"--device", "host:64M"}, env)) << log();
    OldClient client(socket_path());
    const auto refused = client.call_golden("Hello");
    EXPECT_EQ(refused.error(), EPROTO);
    const std::string sentence = refused.reply->message()->str();
    EXPECT_NE(sentence.find("speaks protocol 2,"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("(gshm 0.1.0) speaks protocol 1: upgrade the client"), std::string::npos) << sentence;
    EXPECT_EQ(client.receive().reply, nullptr);
}

}  // namespace
}  // namespace gshm::core::test
