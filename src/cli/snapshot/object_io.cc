#include "cli/snapshot/object_io.h"

#include <cerrno>
#include <cstring>
#include <unistd.h>

#include "cli/support/failure.h"

namespace gshm::cli {
namespace {

// A smaller object may share its extent, and takes one round trip in any case.
constexpr uint64_t kOwnMemoryBytes = uint64_t{1} << 20;

}  // namespace

std::unique_ptr<const HostMemory> HostMemory::of(const Object& object) {
    if (!object.is_host() || object.size() <= kOwnMemoryBytes) return nullptr;
    auto exported = object.export_fd();
    // If the export fails, gshmd copies the bytes instead.
    if (!exported) return nullptr;
    return std::unique_ptr<const HostMemory>(new HostMemory{std::move(exported->fd), exported->info.offset});
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
    object_ = check(client_.open_id(id, {.map = false}), name);
    memory_ = HostMemory::of(object_);
    id_ = id;
    name_ = name;
}

void ObjectReader::close() {
    memory_.reset();
    object_.close();
}

bool ObjectReader::read(uint64_t offset, std::span<std::byte> ret_bytes) {
    if (offset + ret_bytes.size() > object_.size()) return false;
    if (memory_) return memory_->read(offset, ret_bytes);
    const auto copied = object_.copy_out(ret_bytes, offset);
    const int code = copied ? 0 : copied.error().code;
    if (code == EINVAL || code == ENODATA) return false;  // the object is shorter now
    check(copied, name_);
    return true;
}

StatInfo ObjectReader::stat(uint64_t id, const std::string& name) {
    // Opening makes gshmd refresh the size and the time from the memory file.
    const auto fresh = check(client_.open_id(id, {.map = false}), name);
    return check(fresh.stat(), name);
}

}  // namespace gshm::cli
