// gshm.h: names, stat, listings, attributes, waiting.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/limits.h"
#include "client/api.h"
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

Status check_names(std::initializer_list<const char*> names) {
    for (const char* name : names) TRY(check_name_argument(name));
    return {};
}

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
    size_t index = record.device();
    if (info.kind == GSHM_KIND_DIRECTORY && index-- == 0) return info;
    if (info.kind != GSHM_KIND_OBJECT && info.kind != GSHM_KIND_DIRECTORY) return info;
    if (index >= devices.size()) return fail(EPROTO, "gshmd named a device it does not have");
    const std::string& device = devices[index].name;
    memcpy(info.device, device.data(), std::min(device.size(), sizeof info.device - 1));
    return info;
}

Status write_stat(const Answer& answer, gshm_stat_info* ret_info) {
    const auto records = wire::records_of(*GSHM_BODY(answer, StatReply));
    if (records.size() != 1) return fail(EPROTO, "gshmd answered for other objects");
    if (answer.reply->error() != 0) {
        return std::unexpected(Error{answer.reply->error(), std::string(wire::view(answer.reply->message()))});
    }
    if (ret_info == nullptr) return {};
    return copy_struct(ret_info, TRY(stat_info_of(*answer.devices, records[0])));
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
        return ret_info == nullptr ? Status{} : copy_struct(ret_info, nothing);
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
    uint32_t stride = ret_infos[0].struct_size;
    for (size_t i = begin; i < end; ++i) {
        const wire::NodeRecord record = records[i - begin];
        ret_status[i] = -record.status();
        if (record.status() != 0) {
            if (!first) first = Error{record.status(), std::string(wire::view(answer.reply->message()))};
            continue;
        }
        auto* info = reinterpret_cast<gshm_stat_info*>(reinterpret_cast<char*>(ret_infos) + i * stride);
        info->struct_size = stride;
        TRY(copy_struct(info, TRY(stat_info_of(*answer.devices, record))));
    }
    return {};
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
        if (cookie == 0) listing.entries.reserve(listing.entries.size() + std::min<size_t>(body->total(), 1 << 24));
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

Status write_bytes(std::string_view bytes, void* ret_bytes, size_t capacity, size_t* ret_count) {
    *ret_count = bytes.size();
    if (capacity == 0) return {};
    if (bytes.size() > capacity) return fail(ERANGE, "{} bytes do not fit the {} given", bytes.size(), capacity);
    if (!bytes.empty()) memcpy(ret_bytes, bytes.data(), bytes.size());
    return {};
}

Status write_bytes(const Answer& answer, void* ret_bytes, size_t capacity, size_t* ret_count) {
    return write_bytes(wire::view(GSHM_BODY(answer, BytesReply)->bytes()), ret_bytes, capacity, ret_count);
}

// Seal and unlink return one status for one name.
Status call_for_status(Core& core, wire::RequestBody kind, const DaemonConnection::Build& build) {
    // Idempotent requests are sent again.
    bool again =
        kind == wire::RequestBody::Seal || kind == wire::RequestBody::SetAttribute || kind == wire::RequestBody::Move;
    auto answer = TRY(core.connection().call(kind, build, again ? Lost::retry : Lost::report));
    if (answer.reply->error() == 0) return {};
    return std::unexpected(Error{answer.reply->error(), std::string(wire::view(answer.reply->message()))});
}

}  // namespace

extern "C" {

int gshm_seal_name(gshm_client* client, const char* name) {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name}));
        return call_for_status(core, wire::RequestBody::Seal, [&](auto& builder) {
            auto text = builder.CreateString(name);
            return wire::CreateSeal(builder, builder.CreateVector(&text, 1)).Union();
        });
    });
}

int gshm_unlink(gshm_client* client, const char* name) {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name}));
        return call_for_status(core, wire::RequestBody::Unlink, [&](auto& builder) {
            auto text = builder.CreateString(name);
            return wire::CreateUnlink(builder, builder.CreateVector(&text, 1)).Union();
        });
    });
}

int gshm_rename(gshm_client* client, const char* from, const char* to, uint32_t flags) {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({from, to}));
        if ((flags & ~static_cast<uint32_t>(GSHM_REPLACE)) != 0)
            return fail(EINVAL, "unknown rename flags {:#x}", flags);
        return call_for_status(core, wire::RequestBody::Rename, [&](auto& builder) {
            auto source = builder.CreateString(from);
            auto target = builder.CreateString(to);
            return wire::CreateRename(builder, source, target, (flags & GSHM_REPLACE) != 0).Union();
        });
    });
}

int gshm_move(gshm_client* client, const char* name, const char* device, uint32_t flags) {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name}));
        TRY(check_argument(device != nullptr && device[0] != '\0', "device is NULL or empty"));
        if ((flags & ~static_cast<uint32_t>(GSHM_MOVE_KEEP_HOLDERS)) != 0)
            return fail(EINVAL, "unknown move flags {:#x}", flags);
        return call_for_status(core, wire::RequestBody::Move, [&](auto& builder) {
            auto object = builder.CreateString(name);
            auto target = builder.CreateString(device);
            return wire::CreateMove(builder, object, target, (flags & GSHM_MOVE_KEEP_HOLDERS) != 0).Union();
        });
    });
}

int gshm_stat(gshm_client* client, const char* name, gshm_stat_info* ret_info) {
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
                    int* ret_status) {
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

int gshm_stat_object(gshm_object* object, gshm_stat_info* ret_info) {
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

int gshm_list(gshm_client* client, const char* path, uint32_t flags, gshm_listing** ret_listing) {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({path}));
        TRY(check_argument(ret_listing != nullptr, "ret_listing is NULL"));
        if ((flags & ~static_cast<uint32_t>(GSHM_RECURSIVE)) != 0)
            return fail(EINVAL, "unknown list flags {:#x}", flags);
        auto listing = std::make_unique<gshm_listing>();
        auto listed = list_into(core, path, "", (flags & GSHM_RECURSIVE) != 0, *listing);
        if (!listed && listed.error().code == ENOTDIR) listed = list_object(core, path, *listing);
        TRY(std::move(listed));
        listing->sort();
        *ret_listing = listing.release();
        return {};
    });
}

size_t gshm_listing_count(const gshm_listing* listing) {
    return listing == nullptr ? 0 : listing->entries.size();
}

const char* gshm_listing_name(const gshm_listing* listing, size_t index) {
    if (listing == nullptr || index >= listing->entries.size()) return nullptr;
    return listing->name(listing->entries[listing->order[index]]);
}

int gshm_listing_stat(const gshm_listing* listing, size_t index, gshm_stat_info* ret_info) {
    return guarded([&]() -> Status {
        TRY(check_argument(listing != nullptr && ret_info != nullptr, "listing or ret_info is NULL"));
        TRY(check_argument(index < listing->entries.size(), "index is past the listing's end"));
        const auto& record = listing->entries[listing->order[index]].record;
        return copy_struct(ret_info, TRY(stat_info_of(*listing->devices, record)));
    });
}

void gshm_listing_free(gshm_listing* listing) {
    delete listing;
}

int gshm_make(gshm_client* client, const gshm_make_spec* spec) {
    return with_client(client, [&](Core& core) -> Status {
        gshm_make_spec chosen = GSHM_MAKE_SPEC_INIT;
        TRY(check_argument(spec != nullptr, "spec is NULL"));
        TRY(check_argument(spec->struct_size >= 16 && spec->struct_size <= sizeof chosen,
                           "struct_size of the spec is wrong: use GSHM_MAKE_SPEC_INIT"));
        memcpy(&chosen, spec, spec->struct_size);
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

int gshm_read_link(gshm_client* client, const char* name, char* ret_target, size_t capacity, size_t* ret_bytes) {
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

int gshm_link(gshm_client* client, const char* name, const char* new_name) {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name, new_name}));
        return call_for_status(core, wire::RequestBody::AddName, [&](auto& builder) {
            auto object = builder.CreateString(name);
            return wire::CreateAddName(builder, object, builder.CreateString(new_name)).Union();
        });
    });
}

int gshm_change(gshm_client* client, const char* name, const gshm_changes* changes) {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name}));
        gshm_changes chosen = {};
        TRY(check_argument(changes != nullptr, "changes is NULL"));
        TRY(check_argument(changes->struct_size >= 8 && changes->struct_size <= sizeof chosen,
                           "struct_size of the changes is wrong: set it to sizeof before the call"));
        memcpy(&chosen, changes, changes->struct_size);
        return call_for_status(core, wire::RequestBody::Change, [&](auto& builder) {
            auto object = builder.CreateString(name);
            return wire::CreateChange(builder, object, chosen.what, chosen.mode, chosen.uid, chosen.gid).Union();
        });
    });
}

int gshm_wait(gshm_client* client, const char* name, int condition, int timeout_ms, gshm_stat_info* ret_info) {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name}));
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

int gshm_set_attribute(gshm_client* client, const char* name, const char* attribute, const void* value,
                       size_t value_bytes) {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name, attribute}));
        TRY(check_argument(value != nullptr || value_bytes == 0, "value is NULL"));
        if (value_bytes > limits::kAttributeValueBytes) {
            return fail(E2BIG, "an attribute's value has at most {} bytes", limits::kAttributeValueBytes);
        }
        return call_for_status(core, wire::RequestBody::SetAttribute, [&](auto& builder) {
            auto object = builder.CreateString(name);
            auto key = builder.CreateString(attribute);
            auto bytes = builder.CreateVector(static_cast<const uint8_t*>(value), value_bytes);
            return wire::CreateSetAttribute(builder, object, key, bytes).Union();
        });
    });
}

int gshm_get_attribute(gshm_client* client, const char* name, const char* attribute, void* ret_value, size_t capacity,
                       size_t* ret_bytes) {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name, attribute}));
        TRY(check_argument(ret_bytes != nullptr && (ret_value != nullptr || capacity == 0),
                           "ret_bytes or ret_value is NULL"));
        auto answer = TRY(core.connection().call(
            wire::RequestBody::GetAttribute,
            [&](auto& builder) {
                auto object = builder.CreateString(name);
                return wire::CreateGetAttribute(builder, object, builder.CreateString(attribute)).Union();
            },
            Lost::retry));
        return write_bytes(answer, ret_value, capacity, ret_bytes);
    });
}

int gshm_remove_attribute(gshm_client* client, const char* name, const char* attribute) {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name, attribute}));
        return call_for_status(core, wire::RequestBody::RemoveAttribute, [&](auto& builder) {
            auto object = builder.CreateString(name);
            return wire::CreateRemoveAttribute(builder, object, builder.CreateString(attribute)).Union();
        });
    });
}

int gshm_list_attributes(gshm_client* client, const char* name, char* ret_names, size_t capacity, size_t* ret_bytes) {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name}));
        TRY(check_argument(ret_bytes != nullptr && (ret_names != nullptr || capacity == 0),
                           "ret_bytes or ret_names is NULL"));
        std::string names;
        for (bool more = true; more;) {
            // The last known name, without its NUL.
            const size_t begin = names.empty() ? 0 : names.rfind('\0', names.size() - 2) + 1;
            const auto after = names.empty() ? std::string() : names.substr(begin, names.size() - 1 - begin);
            auto answer = TRY(core.connection().call(
                wire::RequestBody::ListAttributes,
                [&](auto& builder) {
                    auto object = builder.CreateString(name);
                    return wire::CreateListAttributes(builder, object, builder.CreateString(after)).Union();
                },
                Lost::retry));
            const auto* body = GSHM_BODY(answer, BytesReply);
            const auto page = wire::view(body->bytes());
            names += page;
            more = body->more() && !page.empty();
        }
        return write_bytes(names, ret_names, capacity, ret_bytes);
    });
}

}  // extern "C"
