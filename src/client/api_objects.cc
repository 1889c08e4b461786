// gshm.h: creating, opening, closing and sealing objects, one or many at a time.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <linux/magic.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/runtime_dir.h"
#include "client/api.h"
#include "client/batch.h"
#include "client/pool/registry.h"
#include "client/ring/ring.h"
#include "client/tensor_places.h"
#include "wire/records.h"

using namespace gshm::core;
using namespace gshm::core::client;

namespace {

Status copy_path(const std::string& path, char* ret_path, size_t capacity) {
    if (path.size() >= capacity) return fail(ERANGE, "the runtime folder's path has {} bytes", path.size());
    memcpy(ret_path, path.c_str(), path.size() + 1);
    return {};
}

size_t chunk_items(bool map) {
    return map ? limits::kMessageDescriptors : limits::kBatchItems;
}

struct Batch {
    Core& core;
    gshm_client* client;
    bool map;
    Access access;
    gshm_object** ret_objects;
    int* ret_status;
    const gshm_create_spec* created = nullptr;  // the specs of the elements, for a create
    int first = 0;                              // status of the first failure
    std::string first_message = {};

    void fail_at(size_t index, const Error& error) {
        ret_objects[index] = nullptr;
        ret_status[index] = -error.code;
        if (first == 0) {
            first = error.code;
            first_message = error.message;
        }
    }
};

Result<gshm_object*> make_object(Batch& batch, const wire::OpenRecord& record, Answer& answer) {
    auto object = std::make_unique<gshm_object>();
    object->core = batch.client->core;
    object->id = record.id();
    object->key = {answer.epoch, record.extent(), batch.access};
    object->access = batch.access;
    object->size_bytes = record.size_bytes();
    object->offset = record.offset();
    const RemoteDevice* remote = TRY(answer.device(record.device()));
    object->device = remote->name;
    if (batch.map && record.extent() != 0) {  // an empty file of the mount has no extent
        UniqueFd descriptor;
        if (record.descriptor() >= 0 && static_cast<size_t>(record.descriptor()) < answer.descriptors.size()) {
            descriptor = std::move(answer.descriptors[static_cast<size_t>(record.descriptor())]);
        }
        object->mapped = TRY(batch.core.map(object->key, record, *remote, std::move(descriptor)));
        object->local = object->mapped->device;
    }
    batch.core.add(object.get());
    return object.release();
}

void release_lease(Core& core, uint64_t id, Access access, uint64_t epoch) {
    core.connection().post(
        wire::RequestBody::Release,
        [&](auto& builder) {
            auto ids = builder.CreateVector(&id, 1);
            bool write = access == Access::write;
            return wire::CreateRelease(builder, write ? 0 : ids, write ? ids : 0).Union();
        },
        epoch);
}

// Removes a created object that cannot be used here.
void unlink_created(Core& core, const char* name, uint64_t epoch) {
    (void)core.connection().call_on(epoch, wire::RequestBody::Unlink, [&](auto& builder) {
        auto text = builder.CreateString(name);
        return wire::CreateUnlink(builder, builder.CreateVector(&text, 1)).Union();
    });
}

// Turns the answer to one part into handles.
void take_answer(Batch& batch, size_t begin, size_t end, Result<Answer> answer) {
    const wire::OpenReply* reply = answer ? answer->reply->body_as_OpenReply() : nullptr;
    if (reply == nullptr || wire::records_of(*reply).size() != end - begin) {
        Error error = answer ? Error{EPROTO, "gshmd answered something else than OpenReply"} : answer.error();
        for (size_t i = begin; i < end; ++i) batch.fail_at(i, error);
        return;
    }
    const auto records = wire::records_of(*reply);
    std::string message(wire::view(answer->reply->message()));
    for (size_t i = begin; i < end; ++i) {
        const wire::OpenRecord record = records[i - begin];
        if (record.status() != 0) {
            batch.fail_at(i, {record.status(), message});
            continue;
        }
        auto object = make_object(batch, record, *answer);
        if (!object) {
            // An unnamed object has no name to remove: the name in its spec may belong to another object.
            bool named = batch.created != nullptr && (batch.created[i].flags & GSHM_UNNAMED) == 0;
            if (named) unlink_created(batch.core, batch.created[i].name, answer->epoch);
            release_lease(batch.core, record.id(), batch.access, answer->epoch);
            batch.fail_at(i, object.error());
            continue;
        }
        batch.ret_objects[i] = *object;
        batch.ret_status[i] = 0;
    }
}

Status run_batch(Batch& batch, wire::RequestBody kind, const std::vector<std::pair<size_t, size_t>>& parts,
                 const std::vector<DaemonConnection::Build>& builds, Lost lost) {
    // The extents of each answer are mapped, and its descriptors closed, before the next answer is read.
    batch.core.connection().call_all(kind, builds, lost, batch.access, [&](size_t i, Result<Answer> answer) {
        take_answer(batch, parts[i].first, parts[i].second, std::move(answer));
    });
    if (batch.first == 0) return {};
    return std::unexpected(Error{batch.first, batch.first_message});
}

// A checked copy of the spec.
Result<gshm_create_spec> read_spec(const void* spec, uint32_t size) {
    const auto chosen = TRY(read_struct<gshm_create_spec>(spec, size));
    TRY(check_argument(chosen.name != nullptr, "the spec's name is NULL"));
    TRY(check_argument(chosen.attributes != nullptr || chosen.attribute_count == 0, "the spec's attributes are NULL"));
    TRY(check_flags(chosen.flags, kCreateFlags, "create"));
    for (size_t i = 0; i < chosen.attribute_count; ++i) {
        const auto& attribute = chosen.attributes[i];
        TRY(check_argument(attribute.name != nullptr && (attribute.value != nullptr || attribute.value_bytes == 0),
                           "an attribute's name or value is NULL"));
    }
    return chosen;
}

size_t spec_bytes(const gshm_create_spec& spec) {
    size_t bytes = 96 + sent_length(spec.name) + (spec.device != nullptr ? strlen(spec.device) : 0);
    for (size_t i = 0; i < spec.attribute_count; ++i) {
        bytes += 48 + strlen(spec.attributes[i].name) + spec.attributes[i].value_bytes;
    }
    return bytes;
}

flatbuffers::Offset<wire::CreateItem> build_item(flatbuffers::FlatBufferBuilder& builder,
                                                 const gshm_create_spec& spec) {
    std::vector<flatbuffers::Offset<wire::Attribute>> attributes;
    for (size_t i = 0; i < spec.attribute_count; ++i) {
        const auto& attribute = spec.attributes[i];
        auto name = builder.CreateString(attribute.name);
        auto value = builder.CreateVector(static_cast<const uint8_t*>(attribute.value), attribute.value_bytes);
        attributes.push_back(wire::CreateAttribute(builder, name, value));
    }
    auto name = builder.CreateString(spec.name, sent_length(spec.name));
    auto device = spec.device != nullptr ? builder.CreateString(spec.device) : 0;
    auto list = attributes.empty() ? 0 : builder.CreateVector(attributes);
    return wire::CreateCreateItem(builder, name, spec.size_bytes, device, spec.mode == 0 ? 0600 : spec.mode,
                                  spec.flags & ~uint32_t{GSHM_CREATE_NO_MAP}, list, spec.uid, spec.gid, spec.ttl_ms,
                                  spec.mode == 0);
}

Status create_all(gshm_client* client, const gshm_create_spec* specs, size_t count, gshm_object** ret_objects,
                  int* ret_status) {
    std::vector<gshm_create_spec> chosen;
    chosen.reserve(count);
    bool map = true;
    for (size_t i = 0; i < count; ++i) {
        chosen.push_back(TRY(read_spec(element(specs, i), specs[0].struct_size)));
        bool wants = (chosen.back().flags & GSHM_NO_MAP) == 0;
        if (i == 0) map = wants;
        TRY(check_argument(map == wants, "GSHM_NO_MAP must be the same for all of a batch"));
    }
    auto parts = split(count, chunk_items(map), [&](size_t i) { return spec_bytes(chosen[i]); });
    std::vector<DaemonConnection::Build> builds;
    for (auto [begin, end] : parts) {
        builds.push_back([&chosen, begin, end, map](auto& builder) {
            std::vector<flatbuffers::Offset<wire::CreateItem>> items;
            for (size_t i = begin; i < end; ++i) items.push_back(build_item(builder, chosen[i]));
            return wire::CreateCreateObjects(builder, builder.CreateVector(items), map).Union();
        });
    }
    Batch batch{*client->core, client, map, Access::write, ret_objects, ret_status, chosen.data()};
    return run_batch(batch, wire::RequestBody::CreateObjects, parts, builds, Lost::report);
}

constexpr uint32_t kOpenFlags = GSHM_OPEN_WRITE | GSHM_OPEN_NO_MAP | GSHM_OPEN_SEALED_ONLY | GSHM_OPEN_ANY_DEVICE;

Status open_all(gshm_client* client, const char* const* names, const uint64_t* ids, size_t count, uint32_t flags,
                gshm_object** ret_objects, int* ret_status) {
    TRY(check_flags(flags, kOpenFlags, "open"));
    for (size_t i = 0; i < count && names != nullptr; ++i) TRY(check_argument(names[i] != nullptr, "a name is NULL"));
    bool map = (flags & GSHM_NO_MAP) == 0;
    auto parts =
        split(count, chunk_items(map), [&](size_t i) { return names != nullptr ? sent_length(names[i]) + 16 : 8; });
    std::vector<DaemonConnection::Build> builds;
    for (auto [begin, end] : parts) {
        builds.push_back([names, ids, begin, end, flags, map](auto& builder) {
            flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>> by_name;
            flatbuffers::Offset<flatbuffers::Vector<uint64_t>> by_id;
            if (names != nullptr) {
                std::vector<flatbuffers::Offset<flatbuffers::String>> strings;
                strings.reserve(end - begin);
                for (size_t i = begin; i < end; ++i)
                    strings.push_back(builder.CreateString(names[i], sent_length(names[i])));
                by_name = builder.CreateVector(strings);
            } else {
                by_id = builder.CreateVector(ids + begin, end - begin);
            }
            return wire::CreateOpenObjects(builder, by_name, by_id, (flags & GSHM_WRITE) != 0,
                                           (flags & GSHM_SEALED_ONLY) != 0, map, (flags & GSHM_ANY_DEVICE) != 0)
                .Union();
        });
    }
    Access access = (flags & GSHM_WRITE) != 0 ? Access::write : Access::read;
    Batch batch{*client->core, client, map, access, ret_objects, ret_status};
    // Opening again is safe: the leases of a lost connection end with it.
    return run_batch(batch, wire::RequestBody::OpenObjects, parts, builds, Lost::retry);
}

Status check_batch(const void* items, size_t count, gshm_object** ret_objects, int* ret_status) {
    TRY(check_argument(items != nullptr || count == 0, "the batch is NULL"));
    return check_argument((ret_objects != nullptr && ret_status != nullptr) || count == 0,
                          "ret_objects or ret_status is NULL");
}

// The value of an extended attribute of a file in the mount.
Result<std::string> read_file_attribute(const char* path, const char* name) {
    struct statfs kind = {};
    if (statfs(path, &kind) != 0) return fail(errno, "cannot look at {}: {}", path, strerror(errno));
    if (kind.f_type != FUSE_SUPER_MAGIC) return fail(EINVAL, "{} is not a file of a gshm mount", path);
    std::string value(4096, '\0');
    ssize_t length = getxattr(path, name, value.data(), value.size());
    if (length < 0 && (errno == ENODATA || errno == EOPNOTSUPP)) {
        return fail(EINVAL, "{} is not a file of a gshm mount", path);
    }
    if (length < 0) return fail(errno, "cannot look at {}: {}", path, strerror(errno));
    value.resize(static_cast<size_t>(length));
    return value;
}

}  // namespace

namespace gshm::core::client {

void close_objects(std::span<gshm_object* const> objects) {
    // Grouped by connection, since a batch may mix them, and by the `counted` number: after a reconcile the leases of
    // removed objects are already released, and a second release would drop the lease of another handle.
    struct Leases {
        std::shared_ptr<Core> core;
        std::vector<uint64_t> read;
        std::vector<uint64_t> write;
        std::vector<uint64_t> unmapped;
    };
    struct Key {
        Core* core;
        uint64_t epoch;
        uint64_t counted;
        auto operator<=>(const Key&) const = default;
    };
    std::map<Key, Leases> by_link;
    auto flush = [](const Key& key, Leases& leases) {
        leases.core->connection().post(
            wire::RequestBody::Release,
            [&](auto& builder) {
                auto read = builder.CreateVector(leases.read);
                auto write = builder.CreateVector(leases.write);
                auto unmapped = builder.CreateVector(leases.unmapped);
                return wire::CreateRelease(builder, read, write, unmapped).Union();
            },
            key.epoch, key.counted);
        leases.read.clear();
        leases.write.clear();
        leases.unmapped.clear();
    };
    for (gshm_object* object : objects) {
        if (object == nullptr) continue;
        if (!object->check_use()) {
            (void)object->own.release();  // a forked child must not call the driver
            delete object;
            continue;
        }
        // The end of the last transfer calls this function again.
        if (object->transfers.fetch_or(gshm_object::kClosing, std::memory_order_acq_rel) != 0) continue;
        Ring::release(*object);
        if (object->core) {
            const Key key{object->core.get(), object->key.epoch, object->core->remove(object)};
            Leases& leases = by_link[key];
            leases.core = object->core;
            bool write = object->access == Access::write;
            (write ? leases.write : leases.read).push_back(object->id);
            if (object->mapped != nullptr && object->core->unmap(object->key)) {
                leases.unmapped.push_back(object->key.extent << 1 | (write ? 1 : 0));
            }
            if (leases.read.size() + leases.write.size() >= limits::kBatchItems) flush(key, leases);
        }
        delete object;
    }
    for (auto& [key, leases] : by_link) {
        if (!leases.read.empty() || !leases.write.empty()) flush(key, leases);
    }
}

void hold_object(gshm_object& object) {
    object.transfers.fetch_add(1, std::memory_order_relaxed);
}

void let_go_of_object(gshm_object* object) {
    if (object->transfers.fetch_sub(1, std::memory_order_acq_rel) != (gshm_object::kClosing | 1)) return;
    object->transfers = 0;  // the close was deferred to the last transfer
    close_objects({&object, 1});
}

}  // namespace gshm::core::client

extern "C" {

int gshm_create(gshm_client* client, const gshm_create_spec* spec, gshm_object** ret_object) noexcept {
    return with_client(client, [&](Core&) -> Status {
        TRY(check_argument(spec != nullptr && ret_object != nullptr, "spec or ret_object is NULL"));
        gshm_object* object = nullptr;
        int status = 0;
        TRY(create_all(client, spec, 1, &object, &status));
        *ret_object = object;
        return {};
    });
}

int gshm_create_batch(gshm_client* client, const gshm_create_spec* specs, size_t count, gshm_object** ret_objects,
                      int* ret_status) noexcept {
    return with_client(client, [&](Core&) -> Status {
        TRY(check_batch(specs, count, ret_objects, ret_status));
        return create_all(client, specs, count, ret_objects, ret_status);
    });
}

int gshm_open(gshm_client* client, const char* name, uint32_t flags, gshm_object** ret_object) noexcept {
    return with_client(client, [&](Core&) -> Status {
        TRY(check_argument(name != nullptr && ret_object != nullptr, "name or ret_object is NULL"));
        gshm_object* object = nullptr;
        int status = 0;
        TRY(open_all(client, &name, nullptr, 1, flags, &object, &status));
        *ret_object = object;
        return {};
    });
}

int gshm_open_id(gshm_client* client, uint64_t id, uint32_t flags, gshm_object** ret_object) noexcept {
    return with_client(client, [&](Core&) -> Status {
        TRY(check_argument(ret_object != nullptr, "ret_object is NULL"));
        gshm_object* object = nullptr;
        int status = 0;
        TRY(open_all(client, nullptr, &id, 1, flags, &object, &status));
        *ret_object = object;
        return {};
    });
}

int gshm_runtime_dir(char* ret_dir, size_t capacity) noexcept {
    return guarded([&]() -> Status {
        TRY(check_argument(ret_dir != nullptr, "ret_dir is NULL"));
        return copy_path(TRY(default_runtime_dir()), ret_dir, capacity);
    });
}

int gshm_client_dir(gshm_client* client, char* ret_dir, size_t capacity) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_argument(ret_dir != nullptr, "ret_dir is NULL"));
        return copy_path(core.connection().dir(), ret_dir, capacity);
    });
}

int gshm_locate(const void* memory, gshm_location* ret_location, char* ret_dir, size_t capacity) noexcept {
    return guarded([&]() -> Status {
        TRY(check_argument(ret_location != nullptr && ret_dir != nullptr, "ret_location or ret_dir is NULL"));
        std::string dir;
        auto found = PoolRegistry::instance().locate(memory, &dir);
        if (!found && found.error().code == EINVAL) found = TensorPlaces::instance().locate(memory, &dir);
        const gshm_location location = TRY(std::move(found));
        TRY(check_output(ret_location));
        TRY(copy_path(dir, ret_dir, capacity));
        return write_struct(ret_location, location);
    });
}

int gshm_find_daemon(const char* path, char* ret_dir, size_t capacity) noexcept {
    return guarded([&]() -> Status {
        TRY(check_argument(path != nullptr && ret_dir != nullptr, "path or ret_dir is NULL"));
        return copy_path(TRY(read_file_attribute(path, "user.gshm.dir")), ret_dir, capacity);
    });
}

int gshm_open_path(gshm_client* client, const char* path, uint32_t flags, gshm_object** ret_object) noexcept {
    return guarded([&]() -> Status {
        TRY(check_argument(path != nullptr && ret_object != nullptr, "path or ret_object is NULL"));
        std::string dir = TRY(read_file_attribute(path, "user.gshm.dir"));
        // Memory that is mapped for writing changes without the kernel's notice.
        struct statvfs mount = {};
        if ((flags & GSHM_WRITE) != 0 && statvfs(path, &mount) == 0 && (mount.f_flag & ST_RDONLY) != 0)
            return fail(EROFS, "{} is in a mount that is read-only", path);
        gshm_client own;
        if (client == nullptr) {
            own.core = TRY(Core::create(dir, gshm_connect_options GSHM_CONNECT_OPTIONS_INIT.timeout_ms));
            client = &own;
        }
        TRY(client->core->check_fork());
        std::error_code error;
        if (!std::filesystem::equivalent(dir, client->core->connection().dir(), error)) {
            return fail(EXDEV, "{} is in the mount of the gshmd at {}, not of the one at {}", path, dir,
                        client->core->connection().dir());
        }
        for (int attempt = 0;; ++attempt) {
            uint64_t id = std::strtoull(TRY(read_file_attribute(path, "user.id")).c_str(), nullptr, 10);
            gshm_object* object = nullptr;
            int status = 0;
            auto opened = open_all(client, nullptr, &id, 1, flags, &object, &status);
            if (opened) {
                *ret_object = object;
                return {};
            }
            // The name may belong to another object by now, of which the kernel learns a moment later.
            constexpr int kAttempts = 50;
            if (opened.error().code != ENOENT || attempt == kAttempts) return opened;
            usleep(1000);
        }
    });
}

int gshm_open_ids(gshm_client* client, const uint64_t* ids, size_t count, uint32_t flags, gshm_object** ret_objects,
                  int* ret_status) noexcept {
    return with_client(client, [&](Core&) -> Status {
        TRY(check_batch(ids, count, ret_objects, ret_status));
        return open_all(client, nullptr, ids, count, flags, ret_objects, ret_status);
    });
}

int gshm_open_batch(gshm_client* client, const char* const* names, size_t count, uint32_t flags,
                    gshm_object** ret_objects, int* ret_status) noexcept {
    return with_client(client, [&](Core&) -> Status {
        TRY(check_batch(names, count, ret_objects, ret_status));
        return open_all(client, names, nullptr, count, flags, ret_objects, ret_status);
    });
}

void gshm_close(gshm_object* object) noexcept {
    gshm_close_batch(&object, 1);
}

void gshm_close_batch(gshm_object* const* objects, size_t count) noexcept {
    if (objects == nullptr) return;
    guarded([&]() -> Status {
        close_objects({objects, count});
        return {};
    });
}

int gshm_seal(gshm_object* object) noexcept {
    return with_object(object, [&](gshm_object& one) -> Status {
        gshm_object* target = &one;
        int status = 0;
        int code = gshm_seal_batch(&target, 1, &status);
        if (code == 0) return {};
        return std::unexpected(Error{-code, last_error()});
    });
}

int gshm_seal_batch(gshm_object* const* objects, size_t count, int* ret_status) noexcept {
    return guarded([&]() -> Status {
        TRY(check_argument((objects != nullptr && ret_status != nullptr) || count == 0,
                           "objects or ret_status is NULL"));
        std::vector<uint64_t> ids;
        for (size_t i = 0; i < count; ++i) {
            TRY(check_argument(objects[i] != nullptr, "an object is NULL"));
            TRY(objects[i]->check_use());
            TRY(check_argument(objects[i]->core != nullptr, "memory without a daemon cannot be sealed"));
            if (objects[i]->access == Access::read) return fail(EACCES, "the object was opened for reading only");
            TRY(check_argument(objects[i]->core == objects[0]->core && objects[i]->key.epoch == objects[0]->key.epoch,
                               "the objects of a batch must be of one connection"));
            Ring::release(*objects[i]);
            ids.push_back(objects[i]->id);
        }
        if (count == 0) return {};
        DaemonConnection& connection = objects[0]->core->connection();
        auto parts = split(count, limits::kBatchItems, [](size_t) { return 8; });
        std::optional<Error> first;
        for (auto [begin, end] : parts) {
            auto answer = TRY(connection.call_on(
                objects[0]->key.epoch, wire::RequestBody::Seal,
                [&, begin = begin, end = end](auto& builder) {
                    return wire::CreateSeal(builder, 0, builder.CreateVector(&ids[begin], end - begin)).Union();
                },
                Lost::retry));
            const auto* statuses = GSHM_BODY(answer, StatusReply)->statuses();
            if (statuses->size() != end - begin) return fail(EPROTO, "gshmd answered for other objects");
            for (size_t i = begin; i < end; ++i) {
                int status = statuses->Get(static_cast<unsigned>(i - begin));
                ret_status[i] = -status;
                if (status == 0) objects[i]->sealed = true;
                else if (!first) first = Error{status, std::string(wire::view(answer.reply->message()))};
            }
        }
        if (first) return std::unexpected(std::move(*first));
        return {};
    });
}

int gshm_replace(gshm_object* object, const char* name) noexcept {
    return gshm_publish(object, name, GSHM_REPLACE);
}

int gshm_publish(gshm_object* object, const char* name, uint32_t flags) noexcept {
    return with_object(object, [&](gshm_object& one) -> Status {
        TRY(check_name_argument(name));
        TRY(check_flags(flags, GSHM_PUBLISH_REPLACE, "publish"));
        TRY(check_argument(one.core != nullptr, "memory without a daemon cannot have a name"));
        if (one.access == Access::read) return fail(EACCES, "the object was opened for reading only");
        Ring::release(one);
        const bool replace = (flags & GSHM_PUBLISH_REPLACE) != 0;
        const auto kind = replace ? wire::RequestBody::Replace : wire::RequestBody::GiveName;
        TRY(one.core->connection().call_on(one.key.epoch, kind, [&](auto& builder) {
            const auto text = builder.CreateString(name);
            return replace ? wire::CreateReplace(builder, one.id, text).Union()
                           : wire::CreateGiveName(builder, one.id, text).Union();
        }));
        one.sealed = true;
        return {};
    });
}

}  // extern "C"
