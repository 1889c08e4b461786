#include "client/core.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/limits.h"
#include "client/object.h"
#include "client/ring/ring.h"

namespace gshm::core::client {

Result<std::shared_ptr<Core>> Core::create(const std::string& dir, int timeout_ms) {
    auto connection = TRY(DaemonConnection::create(dir, timeout_ms));
    std::shared_ptr<Core> core(new Core(std::move(connection)));
    auto* self = core.get();
    core->connection_->set_count_held([self](uint64_t epoch, HeldObjects& held) { self->count_held(epoch, held); });
    return core;
}

Core::Core(std::unique_ptr<DaemonConnection> connection)
    : connection_(std::move(connection)), generation_(fork_count()) {}

std::unique_ptr<Ring> Core::take_ring(uint32_t entries) {
    MutexLock lock(rings_mutex_);
    auto found = std::ranges::find_if(idle_rings_, [&](const auto& ring) { return ring->entries() == entries; });
    if (found == idle_rings_.end()) return nullptr;
    auto ring = std::move(*found);
    idle_rings_.erase(found);
    return ring;
}

bool Core::keep_ring(std::unique_ptr<Ring>& ring) {
    MutexLock lock(rings_mutex_);
    if (idle_rings_.size() >= kIdleRings) return false;
    idle_rings_.push_back(std::move(ring));
    return true;
}

void Core::add(gshm_object* object) {
    MutexLock lock(objects_mutex_);
    object->next = objects_;
    if (objects_ != nullptr) objects_->previous = object;
    objects_ = object;
}

uint64_t Core::remove(gshm_object* object) {
    MutexLock lock(objects_mutex_);
    if (object->next != nullptr) object->next->previous = object->previous;
    if (object->previous != nullptr) object->previous->next = object->next;
    if (objects_ == object) objects_ = object->next;
    return counted_;
}

void Core::count_held(uint64_t epoch, HeldObjects& held) {
    MutexLock lock(objects_mutex_);
    ++counted_;
    for (const gshm_object* object = objects_; object != nullptr; object = object->next) {
        if (object->key.epoch != epoch) continue;
        ++(object->access == Access::write ? held[object->id].writers : held[object->id].readers);
    }
}

Core::~Core() {
    if (check_fork()) {
        connection_->set_count_held({});
        return;
    }
    // A forked child must not call the driver. The mappings end with the process.
    for (auto& [key, mapped] : extents_) (void)mapped.extent.release();
}

Result<MappedExtent*> Core::map(const ExtentKey& key, const wire::OpenRecord& record, const RemoteDevice& remote,
                                UniqueFd descriptor) {
    MutexLock lock(extents_mutex_);
    auto found = extents_.find(key);
    if (found == extents_.end()) {
        Device* device = TRY(LocalDevices::instance().by_uuid(remote.uuid, remote.name));
        if (!descriptor) {
            // gshmd sent the descriptor before, to a thread that has not mapped it yet or has just unmapped it.
            auto answer = TRY(connection_->call_on(
                key.epoch, wire::RequestBody::Export,
                [&](auto& builder) {
                    return wire::CreateExport(builder, record.id(), kHandlePosixFd, key.access == Access::write)
                        .Union();
                },
                Lost::retry));
            if (answer.descriptors.empty()) return fail(EPROTO, "gshmd sent no descriptor");
            descriptor = std::move(answer.descriptors[0]);
        }
        auto extent = TRY(device->import_fd(descriptor.get(), record.extent_bytes(), key.access));
        found = extents_.emplace(key, MappedExtent{std::move(extent), device, 0}).first;
    }
    ++found->second.users;
    return &found->second;
}

bool Core::unmap(const ExtentKey& key) {
    std::unique_ptr<Extent> last;  // destroyed after the lock: unmapping takes a while
    MutexLock lock(extents_mutex_);
    auto found = extents_.find(key);
    if (found == extents_.end() || --found->second.users > 0) return false;
    last = std::move(found->second.extent);
    extents_.erase(found);
    return true;
}

Status Core::make_staging() {
    auto file = UniqueFd::adopt(memfd_create("gshm-staging", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file || ftruncate(file.get(), limits::kStagingBytes) != 0 ||
        fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        return fail_errno("cannot make staging memory");
    }
    auto mapping = TRY(Mapping::create(file.get(), limits::kStagingBytes, true));
    staging_ = {0, std::move(file), std::move(mapping)};
    return {};
}

Status Core::ensure_staging(uint64_t epoch) {
    if (!staging_.file) TRY(make_staging());
    uint64_t connection = connection_->number();
    if (staging_.connection == connection) return {};
    const int descriptors[] = {staging_.file.get()};
    TRY(connection_->call_on(
        epoch, wire::RequestBody::AttachStaging,
        [](auto& builder) { return wire::CreateAttachStaging(builder, limits::kStagingBytes).Union(); }, Lost::report,
        descriptors));
    staging_.connection = connection;
    return {};
}

// A copy can be repeated. A new connection needs the staging memory attached first.
Status Core::copy_piece(uint64_t id, uint64_t epoch, uint64_t offset, uint64_t bytes, bool into_object) {
    for (int attempt = 0;; ++attempt) {
        auto copied = ensure_staging(epoch);
        if (copied) {
            auto answer = connection_->call_on(epoch, wire::RequestBody::Copy, [&](auto& builder) {
                return wire::CreateCopy(builder, id, offset, bytes, into_object).Union();
            });
            if (answer) return {};
            copied = std::unexpected(answer.error());
        }
        // EINVAL: the staging memory was attached to one connection, and the copy was sent over the next.
        bool lost = copied.error().code == ECONNRESET || connection_->number() != staging_.connection;
        if (!lost || attempt == DaemonConnection::kAttempts) return copied;
    }
}

Status Core::copy_in(uint64_t id, uint64_t epoch, uint64_t offset, std::span<const std::byte> source) {
    MutexLock lock(staging_mutex_);
    if (!staging_.file) TRY(make_staging());
    while (!source.empty()) {
        auto piece = source.first(std::min(source.size(), limits::kStagingBytes));
        memcpy(staging_.mapping.data(), piece.data(), piece.size());
        TRY(copy_piece(id, epoch, offset, piece.size(), true));
        offset += piece.size();
        source = source.subspan(piece.size());
    }
    return {};
}

Status Core::copy_out(uint64_t id, uint64_t epoch, uint64_t offset, std::span<std::byte> destination) {
    MutexLock lock(staging_mutex_);
    if (!staging_.file) TRY(make_staging());
    while (!destination.empty()) {
        auto piece = destination.first(std::min(destination.size(), limits::kStagingBytes));
        TRY(copy_piece(id, epoch, offset, piece.size(), false));
        memcpy(piece.data(), staging_.mapping.data(), piece.size());
        offset += piece.size();
        destination = destination.subspan(piece.size());
    }
    return {};
}

}  // namespace gshm::core::client
