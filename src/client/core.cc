#include "client/core.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/limits.h"

namespace gshm::client {

Result<std::shared_ptr<Core>> Core::create(const std::string& dir, int timeout_ms) {
    auto link = TRY(Link::create(dir, timeout_ms));
    return std::shared_ptr<Core>(new Core(std::move(link)));
}

Core::~Core() {
    // In a forked child the driver must not be touched: let the process's end clean up.
    if (check_fork()) return;
    for (auto& [key, mapped] : extents_) (void)mapped.extent.release();
}

Result<MappedExtent*> Core::map(const ExtentKey& key, const wire::OpenRecord& record, const RemoteDevice& remote,
                                UniqueFd descriptor) {
    MutexLock lock(extents_mutex_);
    auto found = extents_.find(key);
    if (found == extents_.end()) {
        Device* device = TRY(LocalDevices::instance().by_uuid(remote.uuid, remote.name));
        if (!descriptor) {
            // gshmd has sent it before, to another thread that has not mapped it yet or has just unmapped it.
            auto answer = TRY(link_->call_on(key.epoch, wire::RequestBody::Export, [&](auto& builder) {
                return wire::CreateExport(builder, record.id(), kHandlePosixFd, key.access == Access::write).Union();
            }));
            if (answer.descriptors.empty()) return fail(EPROTO, "gshmd sent no descriptor");
            descriptor = std::move(answer.descriptors[0]);
        }
        auto extent = TRY(device->import_fd(descriptor.get(), record.extent_bytes(), key.access));
        found = extents_.emplace(key, MappedExtent{std::move(extent), 0}).first;
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

Status Core::ensure_staging(uint64_t epoch) {
    if (staging_.epoch == epoch) return {};
    auto file = UniqueFd::adopt(memfd_create("gshm-staging", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file || ftruncate(file.get(), limits::kStagingBytes) != 0 ||
        fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        return fail_errno("cannot make staging memory");
    }
    auto mapping = TRY(Mapping::create(file.get(), limits::kStagingBytes, true));
    TRY(link_->call_on(
        epoch, wire::RequestBody::AttachStaging,
        [](auto& builder) { return wire::CreateAttachStaging(builder, limits::kStagingBytes).Union(); }, Lost::report,
        file.get()));
    staging_ = {epoch, std::move(mapping)};
    return {};
}

Status Core::copy_piece(uint64_t id, uint64_t epoch, uint64_t offset, uint64_t bytes, bool into_object) {
    TRY(link_->call_on(epoch, wire::RequestBody::Copy, [&](auto& builder) {
        return wire::CreateCopy(builder, id, offset, bytes, into_object).Union();
    }));
    return {};
}

Status Core::copy_in(uint64_t id, uint64_t epoch, uint64_t offset, std::span<const std::byte> source) {
    MutexLock lock(staging_mutex_);
    TRY(ensure_staging(epoch));
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
    TRY(ensure_staging(epoch));
    while (!destination.empty()) {
        auto piece = destination.first(std::min(destination.size(), limits::kStagingBytes));
        TRY(copy_piece(id, epoch, offset, piece.size(), false));
        memcpy(piece.data(), staging_.mapping.data(), piece.size());
        offset += piece.size();
        destination = destination.subspan(piece.size());
    }
    return {};
}

}  // namespace gshm::client
