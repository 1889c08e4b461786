#include "cli/snapshot/restore_object.h"

#include <cerrno>
#include <vector>

#include <fmt/core.h>

#include "cli/support/acls.h"
#include "cli/support/failure.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

constexpr size_t kNameBytes = 4095;                  // the limit of the library
constexpr size_t kAttributesAtOnceBytes = 64 << 10;  // always fit into the create message

std::string directory_of(const std::string& name) {
    return name.substr(0, name.rfind('/') + 1);
}

// In the same directory, so that no other user can reach it; in the root directory if the name would be too long. The
// name depends only on the object's name, so that a later run finds the object of a killed one.
std::string temporary_name(const std::string& name) {
    const auto bytes = std::as_bytes(std::span(name.data(), name.size()));
    const auto last = fmt::format(".gshm-restore-{}", to_hex(checksum_of(bytes)));
    const auto directory = directory_of(name);
    return directory.size() + last.size() <= kNameBytes ? directory + last : last;
}

size_t attributes_at_once(const std::vector<SavedAttribute>& attributes) {
    size_t count = 0;
    for (size_t bytes = 0; count < attributes.size(); ++count) {
        constexpr size_t kOverheadBytes = 64;
        bytes += attributes[count].key.size() + attributes[count].value.size() + kOverheadBytes;
        if (bytes > kAttributesAtOnceBytes) break;
    }
    return count;
}

}  // namespace

RestoreObject::RestoreObject(const SavedObject& saved, RestorePlace place)
    : left(saved.chunks.size()),
      saved_(saved),
      place_(std::move(place)),
      temporary_(temporary_name(saved.name())),
      elsewhere_(directory_of(temporary_) != directory_of(saved.name())),
      at_once_(attributes_at_once(saved.attributes)) {
    first_mode_ = elsewhere_ ? 0600 : saved_.mode & 0777;
    // Several writers open the object for writing, and attributes are set after its creation. Both need write access
    // for the owner, which the final mode may lack. A mode of 0 would mean the default.
    if (has_many_writers() || at_once_ < saved_.attributes.size() || first_mode_ == 0) first_mode_ |= 0600;
    // A change of the rights of a small object would close the shared extent for other objects.
    if (first_mode_ != saved_.mode || !saved_.acl.empty()) place_.flags |= GSHM_DEDICATED;
}

bool RestoreObject::is_there(ObjectReader& reader) const {
    const auto& name = saved_.name();
    auto found = reader.client().stat(name);
    if (!found && found.error().code == ENOENT) return false;
    const auto info = check(std::move(found), name);
    if (info.kind == GSHM_KIND_DIRECTORY) throw Failure(EISDIR, printable(name) + " is a directory here");
    std::string why = "is no object";
    if (info.kind == GSHM_KIND_OBJECT) {
        why = "has other contents";
        const bool sealed = info.state == GSHM_STATE_SEALED;
        bool same = info.size_bytes == saved_.size_bytes();
        if (same && sealed != saved_.sealed) why = sealed ? "is sealed" : "is not sealed";
        same = same && sealed == saved_.sealed;
        std::vector<std::byte> bytes(kSnapshotChunkBytes);
        if (same && info.size_bytes > 0) reader.open(info.id, name);
        for (uint64_t i = 0; same && i < saved_.chunks.size(); ++i) {
            const auto raw = std::span(bytes).first(raw_bytes_of(info.size_bytes, i));
            same = reader.read(i * kSnapshotChunkBytes, raw) && checksum_of(raw) == saved_.chunks[i].checksum;
        }
        reader.close();
        if (same) return true;
    }
    if (place_.replace) return false;
    throw Failure(EEXIST, fmt::format("{} exists and {}", printable(name), why),
                  "--replace puts the snapshot's in its place");
}

Result<Object> RestoreObject::try_create(const Client& client) {
    CreateSpec spec{.name = temporary_,
                    .size_bytes = saved_.size_bytes(),
                    .device = place_.device,
                    .mode = first_mode_,
                    .compressible = (place_.flags & GSHM_COMPRESSIBLE) != 0,
                    .dedicated = (place_.flags & GSHM_DEDICATED) != 0,
                    .map = false,
                    .empty = saved_.size_bytes() == 0};
    for (const auto& [key, value] : std::span(saved_.attributes).first(at_once_))
        spec.attributes.push_back({key, value});
    if (place_.owned) spec.owner = {saved_.uid, saved_.gid};
    return client.create(spec);
}

void RestoreObject::remove_stale(const Client& client) const {
    if (const auto info = client.stat(temporary_); info && info->leases > 0)
        throw Failure(EBUSY, printable(saved_.name()) + " is being restored by another gshm");
    check(client.unlink(temporary_), temporary_);
}

void RestoreObject::make(const Client& client) {
    const std::lock_guard lock(mutex_);
    if (object_) return;
    auto made = try_create(client);
    if (!made && made.error().code == EEXIST) {
        remove_stale(client);
        made = try_create(client);
    }
    object_ = check(std::move(made), saved_.name());
    set_attributes(client);
    memory_ = HostMemory::of(object_);
}

void RestoreObject::set_attributes(const Client& client) const {
    std::vector<Attribute> rest;
    for (const auto& [key, value] : std::span(saved_.attributes).subspan(at_once_)) rest.push_back({key, value});
    for (auto& set : client.set_attributes(temporary_, rest)) check(std::move(set), saved_.name());
}

void RestoreObject::write(const Client& client, uint64_t offset, std::span<const std::byte> bytes) {
    make(client);
    if (memory_) return memory_->write(offset, bytes);
    if (!has_many_writers()) return check(object_.copy_in(bytes, offset), saved_.name());
    // Each connection has its own staging memory. With a single connection, the threads would wait for each other.
    auto mine = check(client.open_id(object_.id(), {.write = true, .map = false}), saved_.name());
    check(mine.copy_in(bytes, offset), saved_.name());
    mine.close();
    // A close has no reply. The reply to this ping shows that the close has arrived, so that the object can be sealed.
    check(client.ping(), saved_.name());
}

void RestoreObject::finish(const Client& client) {
    make(client);  // an empty one is made here
    memory_.reset();
    if (saved_.sealed) check(object_.seal(), saved_.name());
    const uint32_t mode = first_mode_ != saved_.mode ? uint32_t{GSHM_CHANGE_MODE} : 0;
    const uint32_t keep = !saved_.sealed || (saved_.flags & GSHM_KEEP) != 0 ? uint32_t{GSHM_CHANGE_KEEP} : 0;
    change(client, temporary_, keep | (elsewhere_ ? 0 : mode));
    if (!elsewhere_) set_acl(client, temporary_);
    check(client.rename(temporary_, saved_.name(), place_.replace), saved_.name());
    if (saved_.ttl_ms != 0) {
        const auto ttl = std::chrono::milliseconds(saved_.ttl_ms);
        check(client.set_ttl(saved_.name(), ttl, saved_.ttl_unused), saved_.name());
    }
    if (elsewhere_) {
        change(client, saved_.name(), mode);
        set_acl(client, saved_.name());
    }
    object_.close();
}

void RestoreObject::change(const Client& client, const std::string& name, uint32_t what) const {
    if (what == 0) return;
    const gshm_changes changes = {sizeof changes, what, saved_.mode, 0, 0};
    check(gshm_change(client.get(), name.c_str(), &changes), saved_.name());
}

void RestoreObject::set_acl(const Client& client, const std::string& name) const {
    if (!saved_.acl.empty()) {
        check(client.set_acl(name, parse_acl(saved_.acl, saved_.name())), saved_.name());
    } else if (!place_.owned && has_acl(check(client.stat(name), saved_.name()))) {
        // It was inherited from the directory.
        check(client.set_acl(name, {}), saved_.name());
        change(client, name, GSHM_CHANGE_MODE);
    }
}

void RestoreObject::drop(const Client& client) {
    memory_.reset();
    if (!object_) return;
    (void)client.unlink(temporary_);
    object_.close();
}

}  // namespace gshm::cli
