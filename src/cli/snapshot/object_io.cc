#include "cli/snapshot/object_io.h"

#include <cerrno>
#include <cstring>
#include <unistd.h>

#include "cli/support/failure.h"

namespace gshm::cli {
namespace {

// What is smaller may share its extent, and is one round trip either way.
constexpr uint64_t kOwnMemoryBytes = uint64_t{1} << 20;

}  // namespace

std::unique_ptr<const HostMemory> HostMemory::of(gshm_object* object) {
    if (std::string_view(gshm_device(object)) != "host" || gshm_size(object) <= kOwnMemoryBytes) return nullptr;
    int fd = -1;
    auto info = sized<gshm_handle_info>();
    // Whatever keeps gshmd from handing it out, it still copies.
    if (gshm_export_fd(object, &fd, &info) < 0) return nullptr;
    return std::unique_ptr<const HostMemory>(new HostMemory{FileDescriptor(fd), info.offset});
}

bool HostMemory::read(uint64_t offset, std::span<std::byte> ret_bytes) const {
    while (!ret_bytes.empty()) {
        const ssize_t count =
            ::pread(file.get(), ret_bytes.data(), ret_bytes.size(), static_cast<off_t>(begin + offset));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) throw Failure::of_errno("memory of the host");
        if (count == 0) return false;
        offset += static_cast<uint64_t>(count);
        ret_bytes = ret_bytes.subspan(static_cast<size_t>(count));
    }
    return true;
}

void HostMemory::write(uint64_t offset, std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
        const ssize_t count = ::pwrite(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(begin + offset));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) throw Failure::of_errno("memory of the host");
        offset += static_cast<uint64_t>(count);
        bytes = bytes.subspan(static_cast<size_t>(count));
    }
}

void ObjectReader::open(uint64_t id, const std::string& name) {
    if (object_ && id_ == id) return;
    close();
    gshm_object* object = nullptr;
    check(gshm_open_id(client_.get(), id, GSHM_NO_MAP, &object), name);
    object_.reset(object);
    memory_ = HostMemory::of(object);
    id_ = id;
    name_ = name;
}

void ObjectReader::close() {
    memory_.reset();
    object_.reset();
}

bool ObjectReader::read(uint64_t offset, std::span<std::byte> ret_bytes) {
    if (offset + ret_bytes.size() > gshm_size(object_.get())) return false;
    if (memory_) return memory_->read(offset, ret_bytes);
    const int status = gshm_copy_out(object_.get(), offset, ret_bytes.data(), ret_bytes.size());
    if (status == -EINVAL || status == -ENODATA) return false;  // out of its range by now
    check(status, name_);
    return true;
}

gshm_stat_info ObjectReader::stat(uint64_t id, const std::string& name) {
    // Opening makes gshmd look at the memory's own size and time.
    gshm_object* object = nullptr;
    check(gshm_open_id(client_.get(), id, GSHM_NO_MAP, &object), name);
    const Object fresh(object);
    auto info = sized<gshm_stat_info>();
    check(gshm_stat_object(object, &info), name);
    return info;
}

}  // namespace gshm::cli
