// Requests for the processes that hold objects.
#include <fstream>
#include <unordered_map>

#include "base/limits.h"
#include "daemon/records.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "wire/records.h"

namespace gshm::core {
namespace {

// Maximum number of holders reported for one object.
constexpr size_t kMostHolders = 1000;
// An upper bound for one holder in a message, with the name of its command.
constexpr size_t kHolderBytes = 64;

// Holders and the names of their commands, as records of a message.
class HolderList {
public:
    explicit HolderList(flatbuffers::FlatBufferBuilder& out) : out_(out) {}

    void add(const Holder& holder) {
        records_.emplace_back(holder.who.pid, holder.who.uid, holder.leases, holder.writable);
        // Read once for each process: a process often holds many objects.
        auto [command, first] = known_.try_emplace(holder.who.pid);
        if (first) command->second = out_.CreateString(command_of(holder.who.pid));
        commands_.push_back(command->second);
    }
    size_t size() const { return records_.size(); }
    auto fields(uint32_t protocol) { return wire::add_records<wire::HolderRecord>(out_, protocol, records_); }
    auto commands() { return out_.CreateVector(commands_); }

private:
    static std::string command_of(pid_t pid) {
        std::string command;
        std::ifstream file(fmt::format("/proc/{}/comm", pid));
        std::getline(file, command);
        return command;
    }

    flatbuffers::FlatBufferBuilder& out_;
    std::vector<wire::HolderRecord> records_;
    std::vector<flatbuffers::Offset<flatbuffers::String>> commands_;
    std::unordered_map<pid_t, flatbuffers::Offset<flatbuffers::String>> known_;
};

}  // namespace

void Session::holders(uint64_t request, const wire::Holders& holders) {
    static_assert(kMostHolders * kHolderBytes < limits::kMessageBytes);
    auto found = server_.store().holders(id_, wire::view(holders.name()));
    if (!found) return reply_error(request, found.error());
    if (found->size() > kMostHolders) found->resize(kMostHolders);
    auto& out = builder();
    HolderList list(out);
    for (const auto& holder : *found) list.add(holder);
    const auto fields = list.fields(protocol_);
    auto body = wire::CreateHoldersReply(out, fields.first, list.commands(), fields.sized);
    reply(request, wire::ReplyBody::HoldersReply, body.Union());
}

void Session::unlinked(uint64_t request, const wire::Unlinked& unlinked) {
    // Maximum number of objects in a page. The page also ends when its bytes are used up.
    constexpr size_t kMostObjects = 500;
    constexpr size_t kPageBytes = limits::kMessageBytes - (16 << 10);
    constexpr size_t kRecordBytes = sizeof(wire::NodeRecord) + 32;
    // One object has at most two entries, which must fit a page of their own.
    static_assert(2 * (kRecordBytes + limits::kNameBytes) + kMostHolders * kHolderBytes < kPageBytes);
    const Credentials& who = server_.store().credentials(id_);
    bool all = who.is_root() || who.uid == server_.owner().uid;
    auto found = server_.store().unlinked(id_, all, unlinked.cookie(), kMostObjects);
    auto& out = builder();
    std::vector<flatbuffers::Offset<flatbuffers::String>> names;
    std::vector<wire::NodeRecord> records;
    std::vector<uint32_t> counts;
    HolderList holders(out);
    size_t bytes = 0;
    size_t objects = 0;
    NodeId last = 0;
    bool more = false;
    for (size_t i = 0; i < found.size(); ++i) {
        const Unlinked& entry = found[i];
        bool same_object = entry.object->id == last;
        // An object's second entry shares the room for its holders with the first.
        size_t most = same_object || (i + 1 < found.size() && found[i + 1].object == entry.object) ? kMostHolders / 2
                                                                                                   : kMostHolders;
        size_t named = std::min(entry.holders.size(), most);
        size_t needed = kRecordBytes + entry.name.size() + named * kHolderBytes;
        // A page does not end between two entries of one object: the next page begins after its id.
        more = !same_object && objects > 0 && bytes + needed > kPageBytes / 2;
        if (more) break;
        bytes += needed;
        if (!same_object) ++objects;
        last = entry.object->id;
        // A path in the mount may be longer than the names of the protocol.
        names.push_back(out.CreateString(entry.name.substr(0, limits::kNameBytes)));
        records.push_back(to_record(entry));
        for (size_t h = 0; h < named; ++h) holders.add(entry.holders[h]);
        counts.push_back(static_cast<uint32_t>(named));
    }
    // A full page may be the last one; the next page is then empty.
    if (!more) more = objects == kMostObjects;
    const auto fields = wire::add_records<wire::NodeRecord>(out, protocol_, records);
    const auto holder_fields = holders.fields(protocol_);
    auto body = wire::CreateUnlinkedReply(out, out.CreateVector(names), fields.first, out.CreateVector(counts),
                                          holder_fields.first, holders.commands(), more ? last : 0, fields.sized,
                                          holder_fields.sized);
    reply(request, wire::ReplyBody::UnlinkedReply, body.Union());
}

}  // namespace gshm::core
