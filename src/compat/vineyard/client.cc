#include <cstdlib>
#include <unistd.h>

#include "connection.h"
#include "ids.h"

namespace vineyard {

using detail::BufferState;
using detail::Connection;
using detail::object_name;
using detail::to_status;

namespace {

using Failures = std::vector<std::pair<ObjectID, Status>>;

// Names the id instead of gshm's path, which vineyard programs do not know.
Status about(ObjectID id, const gshm::Error& error, StatusCode busy = StatusCode::kObjectNotSealed) {
    const std::string text = ObjectIDToString(id);
    if (error.code == ENOENT) return Status::ObjectNotExists("there is no buffer " + text);
    if (error.code == EBUSY && busy == StatusCode::kObjectNotSealed) {
        return Status::ObjectNotSealed(text + " is not sealed yet");
    }
    return to_status(gshm::Error{error.code, text + ": " + error.message}, busy);
}

gshm::OpenOptions reading(bool unsafe) {
    return {.sealed_only = !unsafe};
}

// Whether it may be deleted without force.
Status check_finished(const gshm::Client& client, ObjectID id, const gshm::Result<gshm::StatInfo>& info) {
    if (!info) return about(id, info.error());
    if (gshm::is_sealed(*info)) return Status::OK();
    const auto holders = client.holders(object_name(id));
    if (!holders) return about(id, holders.error());
    for (const auto& holder : *holders) {
        if (holder.writable == 0 || holder.pid == getpid()) continue;
        return Status::ObjectNotSealed(ObjectIDToString(id) + " is still being written by process " +
                                       std::to_string(holder.pid) + " (" + holder.command +
                                       "); force deletes it nevertheless");
    }
    return Status::OK();
}

}  // namespace

Client::Client() : state_(std::make_unique<detail::ClientState>()) {}
Client::~Client() = default;

// ---- Connection ----

Status Client::Connect(const std::string& ipc_socket) {
    std::lock_guard lock(state_->mutex);
    if (state_->connection != nullptr) return Status::Invalid("the client is connected already");
    return Connection::open(ipc_socket, state_->connection);
}

Status Client::Connect() {
    const char* socket = getenv("VINEYARD_IPC_SOCKET");
    return Connect(socket != nullptr ? socket : "");
}

bool Client::Connected() const {
    std::shared_ptr<Connection> connection;
    return state_->get(connection).ok() && connection->client().ping().has_value();
}

void Client::Disconnect() {
    std::shared_ptr<Connection> connection;  // ended after the lock is released
    std::lock_guard lock(state_->mutex);
    connection.swap(state_->connection);
}

std::string Client::IPCSocket() const {
    std::lock_guard lock(state_->mutex);
    return state_->connection != nullptr ? state_->connection->ipc_socket() : std::string();
}

// ---- Buffers ----

Status Client::CreateGPUBuffer(const size_t size, ObjectID& id, Payload& payload,
                               std::shared_ptr<MutableBuffer>& buffer, const std::string& device) {
    std::shared_ptr<Connection> connection;
    RETURN_ON_ERROR(state_->get(connection));
    if (size == 0) return Status::Invalid("a buffer has at least one byte");
    gshm::CreateSpec spec;
    spec.size_bytes = size;
    spec.device = device.empty() ? connection->device() : device;
    spec.mode = connection->mode();
    for (;;) {
        const ObjectID chosen = detail::random_id();
        spec.name = object_name(chosen);
        auto object = connection->client().create(spec);
        if (!object) {
            if (object.error().code == EEXIST) continue;
            return to_status(object.error());
        }
        auto state = std::make_shared<BufferState>(chosen, *std::move(object), true, connection->created());
        connection->created()->add(chosen, state);
        std::shared_ptr<MutableBuffer> made(new MutableBuffer(std::move(state)));
        Payload filled;
        filled.object_id = chosen;
        filled.data_size = filled.map_size = made->size();
        filled.ref_cnt = 1;
        filled.pointer = made->mutable_data();
        filled.is_owner = true;
        filled.is_gpu = !made->is_cpu();
        id = chosen;
        payload = filled;
        buffer = std::move(made);
        return Status::OK();
    }
}

Status Client::CreateGPUBuffer(const size_t size, ObjectID& id, Payload& payload,
                               std::shared_ptr<MutableBuffer>& buffer, int device) {
    if (device < 0) return Status::Invalid("there is no GPU " + std::to_string(device));
    return CreateGPUBuffer(size, id, payload, buffer, "cuda:" + std::to_string(device));
}

Status Client::GetGPUBuffer(const ObjectID id, const bool unsafe, std::shared_ptr<Buffer>& buffer) {
    std::shared_ptr<Connection> connection;
    RETURN_ON_ERROR(state_->get(connection));
    auto object = connection->client().open(object_name(id), reading(unsafe));
    if (!object) return about(id, object.error());
    buffer.reset(new Buffer(std::make_shared<BufferState>(id, *std::move(object), false, nullptr)));
    return Status::OK();
}

Status Client::GetGPUBuffers(const std::set<ObjectID>& ids, const bool unsafe,
                             std::map<ObjectID, std::shared_ptr<Buffer>>& buffers) {
    std::shared_ptr<Connection> connection;
    RETURN_ON_ERROR(state_->get(connection));
    std::vector<std::string> names;
    names.reserve(ids.size());
    for (const ObjectID id : ids) names.push_back(object_name(id));
    auto objects = connection->client().open_batch(names, reading(unsafe));
    Failures failures;
    size_t index = 0;
    for (const ObjectID id : ids) {
        auto& object = objects[index++];
        if (object) {
            buffers[id].reset(new Buffer(std::make_shared<BufferState>(id, *std::move(object), false, nullptr)));
        } else {
            failures.emplace_back(id, about(id, object.error()));
        }
    }
    return to_status(failures, ids.size(), "buffers could not be opened");
}

Status Client::Seal(ObjectID const& id) {
    std::shared_ptr<Connection> connection;
    RETURN_ON_ERROR(state_->get(connection));
    // Through the existing handle, so that it rejects writes from now on too.
    if (const auto mine = connection->created()->find(id)) {
        std::lock_guard lock(mine->mutex);
        if (auto sealed = mine->object.seal(); !sealed) return about(id, sealed.error(), StatusCode::kInvalid);
        mine->writable = false;
        return Status::OK();
    }
    if (auto sealed = connection->client().seal(object_name(id)); !sealed) {
        return about(id, sealed.error(), StatusCode::kInvalid);
    }
    return Status::OK();
}

Status Client::DelData(const ObjectID id, const bool force, const bool) {
    std::shared_ptr<Connection> connection;
    RETURN_ON_ERROR(state_->get(connection));
    const gshm::Client& client = connection->client();
    const std::string name = object_name(id);
    if (!force && connection->created()->find(id) == nullptr)
        RETURN_ON_ERROR(check_finished(client, id, client.stat(name)));
    if (auto unlinked = client.unlink(name); !unlinked) return about(id, unlinked.error());
    connection->created()->remove(id);
    return Status::OK();
}

Status Client::DelData(const std::vector<ObjectID>& ids, const bool force, const bool) {
    std::shared_ptr<Connection> connection;
    RETURN_ON_ERROR(state_->get(connection));
    const gshm::Client& client = connection->client();
    const std::set<ObjectID> once(ids.begin(), ids.end());
    std::vector<std::string> names;
    for (const ObjectID id : once) names.push_back(object_name(id));
    const auto infos = force ? std::vector<gshm::Result<gshm::StatInfo>>() : client.stat_batch(names);
    Failures failures;
    std::vector<ObjectID> finished;
    names.clear();
    for (size_t index = 0; const ObjectID id : once) {
        const bool checks = !force && connection->created()->find(id) == nullptr;
        Status good = checks ? check_finished(client, id, infos[index]) : Status::OK();
        ++index;
        if (good.IsConnectionError()) return good;  // the same for all ids
        if (!good.ok()) {
            failures.emplace_back(id, std::move(good));
            continue;
        }
        finished.push_back(id);
        names.push_back(object_name(id));
    }
    const auto unlinked = client.unlink_batch(names);
    for (size_t i = 0; i < finished.size(); ++i) {
        if (unlinked[i]) {
            connection->created()->remove(finished[i]);
            continue;
        }
        Status failed = about(finished[i], unlinked[i].error());
        if (failed.IsConnectionError()) return failed;
        failures.emplace_back(finished[i], std::move(failed));
    }
    return to_status(failures, once.size(), "buffers were not deleted");
}

Status Client::Exists(const ObjectID id, bool& exists) {
    std::shared_ptr<Connection> connection;
    RETURN_ON_ERROR(state_->get(connection));
    const auto info = connection->client().stat(object_name(id));
    if (!info && info.error().code != ENOENT) return about(id, info.error());
    exists = info.has_value();
    return Status::OK();
}

// ---- Names ----

Status Client::PutName(const ObjectID id, const std::string& name) {
    std::shared_ptr<Connection> connection;
    RETURN_ON_ERROR(state_->get(connection));
    if (name.empty()) return Status::Invalid("a name has at least one character");
    const gshm::Client& client = connection->client();
    if (const auto info = client.stat(object_name(id)); !info) return about(id, info.error());
    RETURN_ON_ERROR(connection->make_names_folder());
    const std::string link = detail::name_link(name);
    const std::string target = detail::link_target(id);
    auto made = client.make_symlink(target, link);
    if (made) return Status::OK();
    if (made.error().code != EEXIST) return to_status(made.error());
    // Atomically, so that the name is never missing.
    const std::string next = detail::new_name_link();
    if (made = client.make_symlink(target, next); !made) return to_status(made.error());
    if (auto renamed = client.rename(next, link, true); !renamed) {
        (void)client.unlink(next);
        return to_status(renamed.error());
    }
    return Status::OK();
}

Status Client::GetName(const std::string& name, ObjectID& id, const bool wait) {
    std::shared_ptr<Connection> connection;
    RETURN_ON_ERROR(state_->get(connection));
    if (name.empty()) return Status::Invalid("a name has at least one character");
    const gshm::Client& client = connection->client();
    const std::string link = detail::name_link(name);
    for (;;) {
        if (wait) {
            if (const auto there = client.wait(link, gshm::WaitFor::kExists); !there) return to_status(there.error());
        }
        const auto target = client.read_link(link);
        if (!target) {
            if (target.error().code != ENOENT) return to_status(target.error());
            if (wait) continue;  // dropped again
            return Status::ObjectNotExists("there is no name \"" + name + "\"");
        }
        const auto linked = detail::linked_id(*target);
        if (!linked) return Status::Invalid("\"" + name + "\" is not the name of a buffer but leads to " + *target);
        if (const auto info = client.stat(object_name(*linked)); !info) {
            if (info.error().code != ENOENT) return about(*linked, info.error());
            return Status::ObjectNotExists("\"" + name + "\" is the name of " + ObjectIDToString(*linked) +
                                           ", which is gone");
        }
        id = *linked;
        return Status::OK();
    }
}

Status Client::DropName(const std::string& name) {
    std::shared_ptr<Connection> connection;
    RETURN_ON_ERROR(state_->get(connection));
    if (name.empty()) return Status::Invalid("a name has at least one character");
    if (auto dropped = connection->client().unlink(detail::name_link(name)); !dropped) {
        if (dropped.error().code == ENOENT) return Status::ObjectNotExists("there is no name \"" + name + "\"");
        return to_status(dropped.error());
    }
    return Status::OK();
}

}  // namespace vineyard
