// gshm.h: names, stat, listings, waiting.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/limits.h"
#include "client/api.h"
#include "client/batch.h"
#include "client/requests.h"
#include "wire/records.h"

using namespace gshm::core;
using namespace gshm::core::client;

namespace {

struct SortKey {
    uint64_t bytes;  // the first eight bytes after the common prefix
    uint32_t entry;
};

// A radix sort from the lowest byte, so that the cost per key does not grow with their number.
void radix_sort(std::vector<SortKey>& keys) {
    std::vector<SortKey> other(keys.size());
    for (unsigned shift = 0; shift < 64; shift += 8) {
        std::array<size_t, 257> starts = {};
        for (const auto& key : keys) ++starts[(key.bytes >> shift & 0xFF) + 1];
        if (std::find(starts.begin(), starts.end(), keys.size()) != starts.end()) continue;  // same in all keys
        for (size_t i = 1; i < starts.size(); ++i) starts[i] += starts[i - 1];
        for (const auto& key : keys) other[starts[key.bytes >> shift & 0xFF]++] = key;
        keys.swap(other);
    }
}

}  // namespace

// Sorts by the eight bytes after the common prefix of all names, and by the whole name if those are equal.
void gshm_listing::sort() {
    if (entries.empty()) return;
    std::string_view common = name(entries[0]);
    for (const auto& entry : entries) {
        const char* text = name(entry);
        size_t same = 0;
        while (same < common.size() && text[same] == common[same]) ++same;
        common = common.substr(0, same);
    }
    std::vector<SortKey> keys(entries.size());
    for (uint32_t i = 0; i < entries.size(); ++i) {
        uint64_t bytes = 0;
        const auto* text = reinterpret_cast<const unsigned char*>(name(entries[i])) + common.size();
        for (int count = 0; count < 8; ++count) {
            bytes = bytes << 8 | *text;
            if (*text != 0) ++text;
        }
        keys[i] = {bytes, i};
    }
    radix_sort(keys);
    for (auto first = keys.begin(); first != keys.end();) {
        auto last = std::find_if(first, keys.end(), [&](const auto& key) { return key.bytes != first->bytes; });
        std::sort(first, last, [this](const auto& a, const auto& b) {
            return strcmp(name(entries[a.entry]), name(entries[b.entry])) < 0;
        });
        first = last;
    }
    order.reserve(keys.size());
    for (const auto& key : keys) order.push_back(key.entry);
}

namespace {

Result<gshm_stat_info> stat_info_of(const std::vector<RemoteDevice>& devices, const wire::NodeRecord& record) {
    gshm_stat_info info = {};
    info.struct_size = sizeof info;
    info.kind = record.kind();
    info.state = record.state();
    info.mode = record.mode();
    info.uid = record.uid();
    info.gid = record.gid();
    info.id = record.id();
    info.size_bytes = record.size_bytes();
    info.allocation_bytes = record.extent_bytes();
    info.extent = record.extent();
    info.extent_offset = record.offset();
    info.created_ns = record.created_ns();
    info.modified_ns = record.modified_ns();
    info.leases = record.leases();
    info.flags = record.flags();
    info.ttl_ms = record.ttl_ms();
    info.expires_ns = record.expires_ns();
    size_t index = record.device();
    if (info.kind == GSHM_KIND_DIRECTORY && index-- == 0) return info;
    if (info.kind != GSHM_KIND_OBJECT && info.kind != GSHM_KIND_DIRECTORY) return info;
    if (index >= devices.size()) return fail(EPROTO, "gshmd named a device it does not have");
    const std::string& device = devices[index].name;
    memcpy(info.device, device.data(), std::min(device.size(), sizeof info.device - 1));
    if (info.kind != GSHM_KIND_OBJECT || record.tier() == 0) return info;
    const bool on_disk = record.tier() == wire::kDiskTier;
    if (!on_disk && record.tier() > devices.size()) return fail(EPROTO, "gshmd named a tier it does not have");
    const std::string& tier = on_disk ? "disk" : devices[record.tier() - 1].name;
    memcpy(info.tier, tier.data(), std::min(tier.size(), sizeof info.tier - 1));
    return info;
}

Status change_tier(Core& core, const char* name, uint32_t flags, bool demote) {
    TRY(check_names({name}));
    TRY(check_flags(flags, 0, demote ? "demote" : "promote"));
    return call_for_status(core, wire::RequestBody::ChangeTier, [&](auto& builder) {
        return wire::CreateChangeTier(builder, builder.CreateString(name), demote).Union();
    });
}

// Of the request Change, besides those of gshm_changes.
constexpr uint32_t kChangeTtl = 8;
constexpr uint32_t kChangePin = 16;
constexpr uint32_t kChangeUnpin = 32;

Status change_lifetime(Core& core, const char* name, uint32_t what, uint64_t ttl_ms = 0, bool ttl_unused = false) {
    return call_for_status(core, wire::RequestBody::Change, [&](auto& builder) {
        auto object = builder.CreateString(name);
        return wire::CreateChange(builder, object, what, 0, 0, 0, ttl_ms, ttl_unused).Union();
    });
}

Status write_stat(const Answer& answer, gshm_stat_info* ret_info) {
    const auto records = wire::records_of(*GSHM_BODY(answer, StatReply));
    if (records.size() != 1) return fail(EPROTO, "gshmd answered for other objects");
    if (answer.reply->error() != 0) {
        return std::unexpected(Error{answer.reply->error(), std::string(wire::view(answer.reply->message()))});
    }
    return write_struct(ret_info, TRY(stat_info_of(*answer.devices, records[0])));
}

Status wait_until_gone(Core& core, const char* name, int timeout_ms, gshm_stat_info* ret_info) {
    // The client remembers the object's id: after a restart of gshmd it waits for the same object.
    auto found = TRY(core.connection().call(
        wire::RequestBody::Stat,
        [&](auto& builder) {
            auto text = builder.CreateString(name);
            return wire::CreateStat(builder, builder.CreateVector(&text, 1)).Union();
        },
        Lost::retry));
    const auto records = wire::records_of(*GSHM_BODY(found, StatReply));
    if (records.size() != 1) return fail(EPROTO, "gshmd answered for other objects");
    const int status = records[0].status();
    if (status == ENOENT || status == ENOTDIR) {
        gshm_stat_info nothing = {};
        return write_struct(ret_info, nothing);
    }
    if (status != 0) return write_stat(found, nullptr);
    const uint64_t id = records[0].id();
    TRY(core.connection().call(
        wire::RequestBody::Wait,
        [&](auto& builder) {
            return wire::CreateWait(builder, builder.CreateString(name), false, timeout_ms, true, id).Union();
        },
        Lost::retry));
    return write_stat(found, ret_info);
}

Status stat_range(Core& core, const char* const* names, size_t begin, size_t end, gshm_stat_info* ret_infos,
                  int* ret_status, std::optional<Error>& first) {
    auto answer = TRY(core.connection().call(
        wire::RequestBody::Stat,
        [&](auto& builder) {
            std::vector<flatbuffers::Offset<flatbuffers::String>> strings;
            for (size_t i = begin; i < end; ++i)
                strings.push_back(builder.CreateString(names[i], sent_length(names[i])));
            return wire::CreateStat(builder, builder.CreateVector(strings)).Union();
        },
        Lost::retry));
    const auto records = wire::records_of(*GSHM_BODY(answer, StatReply));
    if (records.size() != end - begin) return fail(EPROTO, "gshmd answered for other objects");
    const uint32_t size = ret_infos[0].struct_size;
    TRY(check_struct_size<gshm_stat_info>(size));
    for (size_t i = begin; i < end; ++i) {
        const wire::NodeRecord record = records[i - begin];
        ret_status[i] = -record.status();
        if (record.status() != 0) {
            if (!first) first = Error{record.status(), std::string(wire::view(answer.reply->message()))};
            continue;
        }
        TRY(write_struct(element(ret_infos, i), size, TRY(stat_info_of(*answer.devices, record))));
    }
    return {};
}

// One after the other, since a later name may be the directory of an earlier one.
void unlink_part(Core& core, std::span<const char* const> names, int* ret_status, std::optional<Error>& first) {
    auto answer = core.connection().call(
        wire::RequestBody::Unlink,
        [&](auto& builder) {
            std::vector<flatbuffers::Offset<flatbuffers::String>> strings;
            for (const char* name : names) strings.push_back(builder.CreateString(name, sent_length(name)));
            return wire::CreateUnlink(builder, builder.CreateVector(strings)).Union();
        },
        Lost::report);
    const auto* reply = answer ? answer->reply->body_as_StatusReply() : nullptr;
    const bool is_whole = reply != nullptr && reply->statuses()->size() == names.size();
    if (!is_whole) {
        const auto error = answer ? Error{EPROTO, "gshmd answered for other names"} : answer.error();
        std::fill_n(ret_status, names.size(), -error.code);
        if (!first) first = error;
        return;
    }
    for (unsigned i = 0; i < names.size(); ++i) ret_status[i] = -reply->statuses()->Get(i);
    if (answer->reply->error() != 0 && !first) {
        first = Error{answer->reply->error(), std::string(wire::view(answer->reply->message()))};
    }
}

// Lists `path`, with `prefix` before each name.
Status list_into(Core& core, const std::string& path, const std::string& prefix, bool recursive,
                 gshm_listing& listing) {
    std::vector<std::string> directories;
    uint64_t cookie = 0;
    do {
        auto answer = TRY(core.connection().call(
            wire::RequestBody::List,
            [&](auto& builder) { return wire::CreateList(builder, builder.CreateString(path), cookie).Union(); },
            Lost::retry));
        const auto* body = GSHM_BODY(answer, ListReply);
        const auto records = wire::records_of(*body);
        if (body->names()->size() != records.size()) return fail(EPROTO, "gshmd sent half a listing");
        // Reserves for all entries at once. The bound limits the damage by an untrusted daemon.
        if (cookie == 0) listing.expect(std::min<size_t>(body->total(), 1 << 24));
        for (unsigned i = 0; i < body->names()->size(); ++i) {
            const wire::NodeRecord record = records[i];
            auto name = wire::view(body->names()->Get(i));
            if (recursive && record.kind() == GSHM_KIND_DIRECTORY) directories.emplace_back(name);
            else listing.add(prefix, name, record);
        }
        listing.devices = answer.devices;
        cookie = body->cookie();
    } while (cookie != 0);
    for (const auto& name : directories) {
        auto listed = list_into(core, path.empty() ? name : path + "/" + name, prefix + name + "/", true, listing);
        // A directory that is removed meanwhile has no entries.
        if (!listed && listed.error().code != ENOENT) return listed;
    }
    return {};
}

// For a path that names an object: the listing is this single entry.
Status list_object(Core& core, const char* path, gshm_listing& listing) {
    auto answer = TRY(core.connection().call(
        wire::RequestBody::Stat,
        [&](auto& builder) {
            auto text = builder.CreateString(path);
            return wire::CreateStat(builder, builder.CreateVector(&text, 1)).Union();
        },
        Lost::retry));
    TRY(write_stat(answer, nullptr));
    listing.add("", path, wire::records_of(*answer.reply->body_as_StatReply())[0]);
    listing.devices = answer.devices;
    return {};
}

}  // namespace

extern "C" {

int gshm_seal_name(gshm_client* client, const char* name) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name}));
        return call_for_status(core, wire::RequestBody::Seal, [&](auto& builder) {
            auto text = builder.CreateString(name);
            return wire::CreateSeal(builder, builder.CreateVector(&text, 1)).Union();
        });
    });
}

int gshm_unlink(gshm_client* client, const char* name) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name}));
        return call_for_status(core, wire::RequestBody::Unlink, [&](auto& builder) {
            auto text = builder.CreateString(name);
            return wire::CreateUnlink(builder, builder.CreateVector(&text, 1)).Union();
        });
    });
}

int gshm_unlink_batch(gshm_client* client, const char* const* names, size_t count, int* ret_status) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_argument((names != nullptr && ret_status != nullptr) || count == 0, "names or ret_status is NULL"));
        for (size_t i = 0; i < count; ++i) TRY(check_argument(names[i] != nullptr, "a name is NULL"));
        std::optional<Error> first;
        for (auto [begin, end] :
             split(count, limits::kBatchItems, [&](size_t i) { return sent_length(names[i]) + 16; })) {
            unlink_part(core, {names + begin, end - begin}, ret_status + begin, first);
        }
        if (first) return std::unexpected(std::move(*first));
        return {};
    });
}

int gshm_rename(gshm_client* client, const char* from, const char* to, uint32_t flags) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({from, to}));
        TRY(check_flags(flags, GSHM_RENAME_REPLACE, "rename"));
        return call_for_status(core, wire::RequestBody::Rename, [&](auto& builder) {
            auto source = builder.CreateString(from);
            auto target = builder.CreateString(to);
            return wire::CreateRename(builder, source, target, (flags & GSHM_RENAME_REPLACE) != 0).Union();
        });
    });
}

int gshm_move(gshm_client* client, const char* name, const char* device, uint32_t flags) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name}));
        TRY(check_argument(device != nullptr && device[0] != '\0', "device is NULL or empty"));
        TRY(check_flags(flags, GSHM_MOVE_KEEP_HOLDERS, "move"));
        return call_for_status(core, wire::RequestBody::Move, [&](auto& builder) {
            auto object = builder.CreateString(name);
            auto target = builder.CreateString(device);
            return wire::CreateMove(builder, object, target, (flags & GSHM_MOVE_KEEP_HOLDERS) != 0).Union();
        });
    });
}

int gshm_demote(gshm_client* client, const char* name, uint32_t flags) noexcept {
    return with_client(client, [&](Core& core) { return change_tier(core, name, flags, true); });
}

int gshm_promote(gshm_client* client, const char* name, uint32_t flags) noexcept {
    return with_client(client, [&](Core& core) { return change_tier(core, name, flags, false); });
}

int gshm_stat(gshm_client* client, const char* name, gshm_stat_info* ret_info) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name}));
        TRY(check_argument(ret_info != nullptr, "ret_info is NULL"));
        auto answer = TRY(core.connection().call(
            wire::RequestBody::Stat,
            [&](auto& builder) {
                auto text = builder.CreateString(name);
                return wire::CreateStat(builder, builder.CreateVector(&text, 1)).Union();
            },
            Lost::retry));
        return write_stat(answer, ret_info);
    });
}

int gshm_stat_batch(gshm_client* client, const char* const* names, size_t count, gshm_stat_info* ret_infos,
                    int* ret_status) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        if (count == 0) return {};
        TRY(check_argument(names != nullptr && ret_infos != nullptr && ret_status != nullptr,
                           "names, ret_infos or ret_status is NULL"));
        std::optional<Error> first;
        size_t begin = 0;
        size_t bytes = 0;
        for (size_t i = 0; i < count; ++i) {
            TRY(check_argument(names[i] != nullptr, "a name is NULL"));
            size_t more = sent_length(names[i]) + 16;
            if (i > begin && (i - begin == limits::kBatchItems || bytes + more > limits::kMessageBytes / 2)) {
                TRY(stat_range(core, names, begin, i, ret_infos, ret_status, first));
                begin = i;
                bytes = 0;
            }
            bytes += more;
        }
        TRY(stat_range(core, names, begin, count, ret_infos, ret_status, first));
        if (first) return std::unexpected(std::move(*first));
        return {};
    });
}

int gshm_stat_object(gshm_object* object, gshm_stat_info* ret_info) noexcept {
    return with_object(object, [&](gshm_object& one) -> Status {
        TRY(check_argument(ret_info != nullptr, "ret_info is NULL"));
        TRY(check_argument(one.core != nullptr, "memory without a daemon has no name to ask about"));
        auto answer = TRY(one.core->connection().call_on(
            one.key.epoch, wire::RequestBody::Stat,
            [&](auto& builder) { return wire::CreateStat(builder, 0, builder.CreateVector(&one.id, 1)).Union(); },
            Lost::retry));
        return write_stat(answer, ret_info);
    });
}

int gshm_list(gshm_client* client, const char* path, uint32_t flags, gshm_listing** ret_listing) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({path}));
        TRY(check_argument(ret_listing != nullptr, "ret_listing is NULL"));
        TRY(check_flags(flags, GSHM_LIST_RECURSIVE, "list"));
        auto listing = std::make_unique<gshm_listing>();
        auto listed = list_into(core, path, "", (flags & GSHM_LIST_RECURSIVE) != 0, *listing);
        if (!listed && listed.error().code == ENOTDIR) listed = list_object(core, path, *listing);
        TRY(std::move(listed));
        listing->sort();
        *ret_listing = listing.release();
        return {};
    });
}

size_t gshm_listing_count(const gshm_listing* listing) noexcept {
    return listing == nullptr ? 0 : listing->entries.size();
}

const char* gshm_listing_name(const gshm_listing* listing, size_t index) noexcept {
    if (listing == nullptr || index >= listing->entries.size()) return nullptr;
    return listing->name(listing->entries[listing->order[index]]);
}

int gshm_listing_stat(const gshm_listing* listing, size_t index, gshm_stat_info* ret_info) noexcept {
    return guarded([&]() -> Status {
        TRY(check_argument(listing != nullptr && ret_info != nullptr, "listing or ret_info is NULL"));
        TRY(check_argument(index < listing->entries.size(), "index is past the listing's end"));
        const auto& record = listing->entries[listing->order[index]].record;
        return write_struct(ret_info, TRY(stat_info_of(*listing->devices, record)));
    });
}

void gshm_listing_free(gshm_listing* listing) noexcept {
    delete listing;
}

int gshm_make(gshm_client* client, const gshm_make_spec* spec) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_argument(spec != nullptr, "spec is NULL"));
        const auto chosen = TRY(read_struct(spec));
        TRY(check_flags(chosen.flags, GSHM_MAKE_KEEP | GSHM_MAKE_OWNER, "make"));
        TRY(check_names({chosen.name}));
        if (chosen.kind != GSHM_KIND_DIRECTORY && chosen.kind != GSHM_KIND_SYMLINK) {
            return fail(EINVAL, "unknown kind {}", chosen.kind);
        }
        TRY(check_argument(chosen.kind != GSHM_KIND_SYMLINK || chosen.target != nullptr, "the spec's target is NULL"));
        if (chosen.target != nullptr) TRY(check_name_argument(chosen.target));
        return call_for_status(core, wire::RequestBody::Make, [&](auto& builder) {
            auto name = builder.CreateString(chosen.name);
            auto target = chosen.target != nullptr ? builder.CreateString(chosen.target) : 0;
            auto device = chosen.device != nullptr ? builder.CreateString(chosen.device) : 0;
            return wire::CreateMake(builder, name, static_cast<uint8_t>(chosen.kind), target, device, chosen.mode,
                                    chosen.flags, chosen.uid, chosen.gid)
                .Union();
        });
    });
}

int gshm_read_link(gshm_client* client, const char* name, char* ret_target, size_t capacity,
                   size_t* ret_bytes) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name}));
        TRY(check_argument(ret_bytes != nullptr && (ret_target != nullptr || capacity == 0),
                           "ret_bytes or ret_target is NULL"));
        auto answer = TRY(core.connection().call(
            wire::RequestBody::ReadLink,
            [&](auto& builder) { return wire::CreateReadLink(builder, builder.CreateString(name)).Union(); },
            Lost::retry));
        return write_bytes(answer, ret_target, capacity, ret_bytes);
    });
}

int gshm_link(gshm_client* client, const char* name, const char* new_name) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name, new_name}));
        return call_for_status(core, wire::RequestBody::AddName, [&](auto& builder) {
            auto object = builder.CreateString(name);
            return wire::CreateAddName(builder, object, builder.CreateString(new_name)).Union();
        });
    });
}

int gshm_change(gshm_client* client, const char* name, const gshm_changes* changes) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name}));
        TRY(check_argument(changes != nullptr, "changes is NULL"));
        const auto chosen = TRY(read_struct(changes));
        TRY(check_flags(chosen.what, GSHM_CHANGE_MODE | GSHM_CHANGE_OWNER | GSHM_CHANGE_KEEP, "change"));
        return call_for_status(core, wire::RequestBody::Change, [&](auto& builder) {
            auto object = builder.CreateString(name);
            return wire::CreateChange(builder, object, chosen.what, chosen.mode, chosen.uid, chosen.gid).Union();
        });
    });
}

int gshm_set_ttl(gshm_client* client, const char* name, uint64_t ttl_ms, uint32_t flags) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name}));
        TRY(check_flags(flags, GSHM_TTL_UNUSED, "ttl"));
        return change_lifetime(core, name, kChangeTtl, ttl_ms, flags != 0);
    });
}

int gshm_pin(gshm_client* client, const char* name) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name}));
        return change_lifetime(core, name, kChangePin);
    });
}

int gshm_unpin(gshm_client* client, const char* name) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name}));
        return change_lifetime(core, name, kChangeUnpin);
    });
}

int gshm_wait(gshm_client* client, const char* name, int condition, int timeout_ms, gshm_stat_info* ret_info) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name}));
        TRY(check_output(ret_info));
        if (condition == GSHM_WAIT_GONE) return wait_until_gone(core, name, timeout_ms, ret_info);
        if (condition != GSHM_WAIT_EXISTS && condition != GSHM_WAIT_SEALED) {
            return fail(EINVAL, "unknown condition {}", condition);
        }
        auto answer = TRY(core.connection().call(
            wire::RequestBody::Wait,
            [&](auto& builder) {
                auto text = builder.CreateString(name);
                return wire::CreateWait(builder, text, condition == GSHM_WAIT_SEALED, timeout_ms).Union();
            },
            Lost::retry));
        return write_stat(answer, ret_info);
    });
}

}  // extern "C"
