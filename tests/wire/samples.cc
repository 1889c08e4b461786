#include "wire/samples.h"

#include <cerrno>
#include <functional>

#include "wire/records.h"
#include "wire/version.h"

namespace gshm::core::test {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
using wire::ReplyBody;
using wire::RequestBody;

const std::vector<std::string> kNames = {"models/a", "models/b"};
const std::vector<uint64_t> kIds = {0x1122334455667788, 7};
const std::vector<uint32_t> kCounts = {2, 3};
const std::vector<uint8_t> kBytes = {0, 1, 0xfe, 0xff};

wire::NodeRecord node_record(uint64_t id) {
    return {id, 1001, 1002, 1003, 1004, -1005, 1006, 1007, 1008, 0640, 1010, 1011, 0, 1, 2, 1, 0, 1012, 1013};
}
wire::OpenRecord open_record(uint64_t id, int16_t descriptor) {
    return {id, 2001, 2002, 2003, 2004, 0, 1, descriptor};
}
const std::vector<wire::NodeRecord> kNodes = {node_record(11),
                                              {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ENOENT, 0, 0, 0, 0, 0, 0}};
const std::vector<wire::OpenRecord> kOpened = {open_record(21, 0), open_record(22, -1), {0, 0, 0, 0, 0, EACCES, 0, -1}};
const std::vector<wire::HolderRecord> kHolders = {{31, 32, 33, true}, {34, 35, 36, false}};
const std::vector<wire::EventRecord> kEvents = {{41, 42, 43, -44, 1, 3, 1, 1}, {45, 0, 0, 46, 0, 2, 2, 0}};

// The order of the parts of a message is explicit here, since the bytes depend on it.
auto devices(FlatBufferBuilder& out) {
    std::vector<Offset<wire::DeviceRecord>> records;
    for (const char* name : {"host", "cuda:0"}) {
        const auto name_text = out.CreateString(name);
        const auto uuid = out.CreateString("GPU-uuid");
        const auto model = out.CreateString("a model");
        const auto failure = out.CreateString("a failure");
        records.push_back(wire::CreateDeviceRecord(out, name_text, uuid, model, failure, 51, 52, 53, 54, 55, 56, true));
    }
    return out.CreateVector(records);
}

auto items(FlatBufferBuilder& out) {
    std::vector<Offset<wire::CreateItem>> made;
    for (const auto& name : kNames) {
        const auto attribute = out.CreateString("user.shape");
        const auto value = out.CreateVector(kBytes);
        const auto attributes = out.CreateVector(std::vector{wire::CreateAttribute(out, attribute, value)});
        const auto name_text = out.CreateString(name);
        const auto device = out.CreateString("host");
        made.push_back(wire::CreateCreateItem(out, name_text, 61, device, 0600, 62, attributes, 63, 64));
    }
    return out.CreateVector(made);
}

class Samples {
public:
    using Build = std::function<Offset<void>(FlatBufferBuilder&)>;
    explicit Samples(uint32_t protocol) : protocol_(protocol) {}

    void request(RequestBody kind, const Build& build, const char* descriptors = "") {
        FlatBufferBuilder out;
        const auto packet = wire::finish_request(out, 0x0102030405060708, kind, build(out));
        add(std::string("request-") + wire::EnumNameRequestBody(kind), true, descriptors, packet);
    }
    void reply(ReplyBody kind, const Build& build, const char* descriptors = "") {
        FlatBufferBuilder out;
        const auto packet = wire::finish_reply(out, 0x0102030405060708, kind, build(out), 0);
        add(std::string("reply-") + wire::EnumNameReplyBody(kind), false, descriptors, packet);
    }
    template <typename Record>
    auto records(FlatBufferBuilder& out, const std::vector<Record>& values) const {
        return wire::add_records<Record>(out, protocol_, values);
    }
    uint32_t protocol() const { return protocol_; }
    const char* version() const { return protocol_ == 1 ? "0.1.0" : wire::kProductVersion; }
    void reply_without_body(const char* name, uint64_t id, int error, const char* message,
                            const char* descriptors = "") {
        FlatBufferBuilder out;
        add(name, false, descriptors, wire::finish_reply(out, id, ReplyBody::NONE, 0, error, message));
    }
    std::vector<Sample> take() { return std::move(samples_); }

private:
    void add(std::string name, bool is_request, const char* descriptors, wire::Bytes packet) {
        samples_.push_back({std::move(name), is_request, descriptors, {packet.begin(), packet.end()}});
    }
    uint32_t protocol_;
    std::vector<Sample> samples_;
};

void add_requests(Samples& all) {
    using enum RequestBody;
    auto text = [](FlatBufferBuilder& out, const char* value) { return out.CreateString(value); };
    all.request(Hello, [&](auto& o) {
        const uint32_t highest = all.protocol() == 1 ? 0 : all.protocol();
        return wire::CreateHello(o, 1, text(o, all.version()), 71, 72, highest).Union();
    });
    all.request(Ping, [](auto& o) { return wire::CreatePing(o).Union(); });
    all.request(DaemonInfo, [](auto& o) { return wire::CreateDaemonInfo(o).Union(); });
    all.request(Devices, [](auto& o) { return wire::CreateDevices(o).Union(); });
    all.request(Shutdown, [](auto& o) { return wire::CreateShutdown(o, true).Union(); });
    all.request(CreateObjects, [](auto& o) { return wire::CreateCreateObjects(o, items(o), true).Union(); });
    all.request(OpenObjects, [](auto& o) {
        const auto names = o.CreateVectorOfStrings(kNames);
        return wire::CreateOpenObjects(o, names, o.CreateVector(kIds), true, true, true).Union();
    });
    all.request(Release, [](auto& o) {
        const auto read = o.CreateVector(kIds);
        const auto write = o.CreateVector(kIds);
        return wire::CreateRelease(o, read, write, o.CreateVector(kIds)).Union();
    });
    all.request(Stat, [](auto& o) {
        const auto names = o.CreateVectorOfStrings(kNames);
        return wire::CreateStat(o, names, o.CreateVector(kIds)).Union();
    });
    all.request(List, [&](auto& o) { return wire::CreateList(o, text(o, "models"), 73).Union(); });
    all.request(Seal, [](auto& o) {
        const auto names = o.CreateVectorOfStrings(kNames);
        return wire::CreateSeal(o, names, o.CreateVector(kIds)).Union();
    });
    all.request(Unlink, [](auto& o) { return wire::CreateUnlink(o, o.CreateVectorOfStrings(kNames)).Union(); });
    all.request(Rename, [&](auto& o) {
        const auto from = text(o, "from");
        return wire::CreateRename(o, from, text(o, "to"), true).Union();
    });
    all.request(SetAttribute, [&](auto& o) {
        const auto name = text(o, "models/a");
        const auto attribute = text(o, "user.shape");
        return wire::CreateSetAttribute(o, name, attribute, o.CreateVector(kBytes)).Union();
    });
    all.request(GetAttribute, [&](auto& o) {
        const auto name = text(o, "models/a");
        return wire::CreateGetAttribute(o, name, text(o, "user.shape")).Union();
    });
    all.request(RemoveAttribute, [&](auto& o) {
        const auto name = text(o, "models/a");
        return wire::CreateRemoveAttribute(o, name, text(o, "user.shape")).Union();
    });
    all.request(ListAttributes, [&](auto& o) {
        const auto name = text(o, "models/a");
        return wire::CreateListAttributes(o, name, text(o, "user.a")).Union();
    });
    all.request(Wait, [&](auto& o) { return wire::CreateWait(o, text(o, "models/a"), true, -1, true, 74).Union(); });
    all.request(Holders, [&](auto& o) { return wire::CreateHolders(o, text(o, "models/a")).Union(); });
    all.request(
        AttachStaging, [](auto& o) { return wire::CreateAttachStaging(o, 75).Union(); },
        "a memfd, sealed against shrinking");
    all.request(Copy, [](auto& o) { return wire::CreateCopy(o, 76, 77, 78, true).Union(); });
    all.request(Fill, [](auto& o) { return wire::CreateFill(o, 79, 80, 81, 82).Union(); });
    all.request(Export, [](auto& o) { return wire::CreateExport(o, 83, 1, true).Union(); });
    all.request(Unmount, [](auto& o) { return wire::CreateUnmount(o, true).Union(); });
    all.request(Reconcile, [](auto& o) {
        const auto ids = o.CreateVector(kIds);
        const auto readers = o.CreateVector(kCounts);
        return wire::CreateReconcile(o, ids, readers, o.CreateVector(kCounts), true).Union();
    });
    all.request(Takeover, [](auto& o) { return wire::CreateTakeover(o).Union(); });
    all.request(Replace, [&](auto& o) { return wire::CreateReplace(o, 84, text(o, "models/a")).Union(); });
    all.request(Unlinked, [](auto& o) { return wire::CreateUnlinked(o, 85).Union(); });
    all.request(Make, [&](auto& o) {
        const auto name = text(o, "models/link");
        const auto target = text(o, "a");
        return wire::CreateMake(o, name, 3, target, text(o, "host"), 0755, 86, 87, 88).Union();
    });
    all.request(ReadLink, [&](auto& o) { return wire::CreateReadLink(o, text(o, "models/link")).Union(); });
    all.request(AddName, [&](auto& o) {
        const auto name = text(o, "models/a");
        return wire::CreateAddName(o, name, text(o, "models/c")).Union();
    });
    all.request(Change, [&](auto& o) { return wire::CreateChange(o, text(o, "models/a"), 7, 0600, 89, 90).Union(); });
    all.request(Goodbye, [](auto& o) { return wire::CreateGoodbye(o).Union(); });
    all.request(
        RingCreate, [](auto& o) { return wire::CreateRingCreate(o, 91).Union(); },
        "the memory of the ring, its doorbell");
    all.request(RingDestroy, [](auto& o) { return wire::CreateRingDestroy(o, 91).Union(); });
    all.request(
        RingFile, [](auto& o) { return wire::CreateRingFile(o, 91, 92).Union(); }, "the file; none empties the slot");
    all.request(RingObjects, [](auto& o) {
        const auto slots = o.CreateVector(kCounts);
        const auto ids = o.CreateVector(kIds);
        return wire::CreateRingObjects(o, 91, slots, ids, o.CreateVector(std::vector<uint8_t>{1, 0})).Union();
    });
    all.request(RingRelease, [](auto& o) { return wire::CreateRingRelease(o, 91, o.CreateVector(kCounts)).Union(); });
    all.request(GiveName, [&](auto& o) { return wire::CreateGiveName(o, 93, text(o, "models/a")).Union(); });
    all.request(OpenFence, [](auto& o) { return wire::CreateOpenFence(o, 94, true).Union(); });
    all.request(WatchCreate, [&](auto& o) { return wire::CreateWatchCreate(o, text(o, "models/"), true).Union(); });
    all.request(WatchNext, [](auto& o) { return wire::CreateWatchNext(o).Union(); });
    all.request(Move, [&](auto& o) {
        const auto name = text(o, "models/a");
        return wire::CreateMove(o, name, text(o, "cuda:0"), true).Union();
    });
    all.request(Mount, [&](auto& o) {
        const auto path = text(o, "/mnt/gshm");
        const auto subdirectory = text(o, "models");
        return wire::CreateMount(o, path, true, subdirectory, text(o, "gshm")).Union();
    });
    all.request(Mounts, [](auto& o) { return wire::CreateMounts(o).Union(); });
    all.request(GetAcl, [&](auto& o) { return wire::CreateGetAcl(o, text(o, "models"), true).Union(); });
    all.request(ChangeAcl, [&](auto& o) {
        const auto name = text(o, "models");
        const std::vector<wire::AclRecord> entries{{2, 4, 1001}, {8, 6, 2000}};
        return wire::CreateChangeAcl(o, name, true, 2, o.CreateVectorOfStructs(entries)).Union();
    });
    all.request(Reload, [](auto& o) { return wire::CreateReload(o).Union(); });
    all.request(SetLimit, [](auto& o) {
        const auto path = o.CreateString("models/team");
        const auto device = o.CreateString("cuda:0");
        const auto limit = wire::CreateLimitRecord(o, 3, 0, path, device, 100, 90, 80, 70, 60);
        return wire::CreateSetLimit(o, limit, 31).Union();
    });
    all.request(Limits, [](auto& o) {
        const auto device = o.CreateString("host");
        return wire::CreateLimits(o, 1, 1000, 0, device, 3, 1, 7).Union();
    });
    all.request(ChangeTier, [&](auto& o) { return wire::CreateChangeTier(o, text(o, "models/a"), true).Union(); });
}

void add_replies(Samples& all) {
    using enum ReplyBody;
    all.reply(HelloReply, [&](auto& o) {
        return wire::CreateHelloReply(o, all.protocol(), 101, devices(o), 102, 103, true).Union();
    });
    all.reply(DaemonInfoReply, [&](auto& o) {
        const auto version = o.CreateString(all.version());
        const auto mountpoint = o.CreateString("/mnt/gshm");
        return wire::CreateDaemonInfoReply(o, all.protocol(), version, 104, 105, 106, 107, 108, mountpoint, 109)
            .Union();
    });
    all.reply(DeviceList, [](auto& o) { return wire::CreateDeviceList(o, devices(o)).Union(); });
    all.reply(
        OpenReply,
        [&](auto& o) {
            const auto records = all.records(o, kOpened);
            return wire::CreateOpenReply(o, records.first, records.sized).Union();
        },
        "the extents that the records name by index");
    all.reply(StatReply, [&](auto& o) {
        const auto records = all.records(o, kNodes);
        return wire::CreateStatReply(o, records.first, records.sized).Union();
    });
    all.reply(ListReply, [&](auto& o) {
        const auto names = o.CreateVectorOfStrings(kNames);
        const auto records = all.records(o, kNodes);
        return wire::CreateListReply(o, names, records.first, 110, 111, records.sized).Union();
    });
    all.reply(StatusReply, [](auto& o) {
        return wire::CreateStatusReply(o, o.CreateVector(std::vector<int32_t>{0, ENOENT, -1})).Union();
    });
    all.reply(BytesReply, [](auto& o) { return wire::CreateBytesReply(o, o.CreateVector(kBytes), true).Union(); });
    all.reply(
        ExportReply, [](auto& o) { return wire::CreateExportReply(o, 112, 113, o.CreateVector(kBytes)).Union(); },
        "the extent, if a descriptor was requested");
    all.reply(HoldersReply, [&](auto& o) {
        const auto records = all.records(o, kHolders);
        const auto commands = o.CreateVectorOfStrings({"python3", "cat"});
        return wire::CreateHoldersReply(o, records.first, commands, records.sized).Union();
    });
    all.reply(UnlinkedReply, [&](auto& o) {
        const auto names = o.CreateVectorOfStrings(kNames);
        const auto records = all.records(o, kNodes);
        const auto counts = o.CreateVector(std::vector<uint32_t>{2, 0});
        const auto holders = all.records(o, kHolders);
        const auto commands = o.CreateVectorOfStrings({"python3", "cat"});
        return wire::CreateUnlinkedReply(o, names, records.first, counts, holders.first, commands, 114, records.sized,
                                         holders.sized)
            .Union();
    });
    all.reply(WatchReply, [&](auto& o) {
        const auto records = all.records(o, kEvents);
        const auto names = o.CreateVectorOfStrings(kNames);
        const auto old_names = o.CreateVectorOfStrings({"models/old", ""});
        return wire::CreateWatchReply(o, records.first, names, old_names, records.sized).Union();
    });
    all.reply(MountList, [](auto& o) {
        const auto path = o.CreateString("/mnt/gshm");
        const auto subdirectory = o.CreateString("models");
        const auto source = o.CreateString("gshm");
        const auto record = wire::CreateMountRecord(o, path, true, subdirectory, source);
        return wire::CreateMountList(o, o.CreateVector(std::vector{record})).Union();
    });
    all.reply(AclReply, [](auto& o) {
        const std::vector<wire::AclRecord> entries{{1, 6, 0}, {2, 4, 1001}, {4, 0, 0}, {16, 4, 0}, {32, 0, 0}};
        return wire::CreateAclReply(o, o.CreateVectorOfStructs(entries)).Union();
    });
    all.reply(LimitList, [](auto& o) {
        const auto device = o.CreateString("cuda:0");
        const auto limit = wire::CreateLimitRecord(o, 1, 1000, 0, device, 100, 90, 80, 70, 60, 0, 50, 5, 10, 1234, 0);
        return wire::CreateLimitList(o, o.CreateVector(std::vector{limit}), 1, 1000).Union();
    });
    all.reply(OptionChanges, [](auto& o) {
        const auto option = o.CreateString("user-share");
        const auto former = o.CreateString("50");
        const auto value = o.CreateString("40");
        const auto change = wire::CreateOptionChange(o, option, former, value, true);
        return wire::CreateOptionChanges(o, o.CreateVector(std::vector{change})).Union();
    });
    all.reply_without_body("reply-ok", 115, 0, "");
    all.reply_without_body("reply-ok-takeover", 115, 0, "", "the listening socket, the lock of the runtime folder");
    all.reply_without_body("reply-ok-OpenFence", 115, 0, "", "the page of the fence");
    all.reply_without_body("reply-error", 116, ENOENT, "there is no \"models/a\"");
    all.reply_without_body("reply-session", 0, ERESTART, "gshmd is being replaced");
}

}  // namespace

std::vector<Sample> make_samples(uint32_t protocol) {
    Samples all(protocol);
    add_requests(all);
    add_replies(all);
    return all.take();
}

}  // namespace gshm::core::test
