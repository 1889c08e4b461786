#include "cli/snapshot/restore_object.h"

#include <cerrno>
#include <vector>

#include <fmt/core.h>

#include "cli/support/failure.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

constexpr size_t kNameBytes = 4095;                 // that the library takes
constexpr size_t kAttributesAtOnceBytes = 64 << 10;  // that are sure to fit the message that makes an object

std::string directory_of(const std::string& name) {
    return name.substr(0, name.rfind('/') + 1);
}

// In the same directory, so that nobody reaches it who could not reach it there; in the root directory if a name in its
// own would be too long. Always the same, so that a later run finds what a killed one left in the moment before the
// renaming.
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
    // The threads open it for writing, which its owner may not if the mode says so; so it is with attributes that are set
    // later; and 0 would mean the default.
    if (has_many_writers() || at_once_ < saved_.attributes.size() || first_mode_ == 0) first_mode_ |= 0600;
    // A small object that changes its rights would close an extent that others share.
    if (first_mode_ != saved_.mode) place_.flags |= GSHM_DEDICATED;
}

bool RestoreObject::is_there(ObjectReader& reader) const {
    const auto& name = saved_.name();
    auto info = sized<gshm_stat_info>();
    const int status = gshm_stat(reader.client(), name.c_str(), &info);
    if (status == -ENOENT) return false;
    check(status, name);
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

int RestoreObject::try_create(gshm_client* client) {
    std::vector<gshm_attribute> attributes;
    for (const auto& [key, value] : std::span(saved_.attributes).first(at_once_))
        attributes.push_back({key.c_str(), value.data(), value.size()});
    gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
    spec.name = temporary_.c_str();
    spec.size_bytes = saved_.size_bytes();
    spec.mode = first_mode_;
    spec.device = place_.device.c_str();
    spec.flags = place_.flags | GSHM_NO_MAP | (spec.size_bytes == 0 ? uint32_t{GSHM_EMPTY} : 0) |
                 (place_.owned ? uint32_t{GSHM_OWNER} : 0);
    spec.attributes = attributes.data();
    spec.attribute_count = attributes.size();
    spec.uid = saved_.uid;
    spec.gid = saved_.gid;
    gshm_object* object = nullptr;
    const int status = gshm_create(client, &spec, &object);
    if (status == 0) object_.reset(object);
    return status;
}

void RestoreObject::remove_stale(gshm_client* client) const {
    auto info = sized<gshm_stat_info>();
    if (gshm_stat(client, temporary_.c_str(), &info) == 0 && info.leases > 0)
        throw Failure(EBUSY, printable(saved_.name()) + " is being restored by another gshm");
    check(gshm_unlink(client, temporary_.c_str()), temporary_);
}

void RestoreObject::make(gshm_client* client) {
    const std::lock_guard lock(mutex_);
    if (object_) return;
    int status = try_create(client);
    if (status == -EEXIST) {
        remove_stale(client);
        status = try_create(client);
    }
    check(status, saved_.name());
    set_attributes(client);
    memory_ = HostMemory::of(object_.get());
}

void RestoreObject::set_attributes(gshm_client* client) const {
    for (const auto& [key, value] : std::span(saved_.attributes).subspan(at_once_))
        check(gshm_set_attribute(client, temporary_.c_str(), key.c_str(), value.data(), value.size()), saved_.name());
}

void RestoreObject::write(gshm_client* client, uint64_t offset, std::span<const std::byte> bytes) {
    make(client);
    if (memory_) return memory_->write(offset, bytes);
    if (!has_many_writers()) return check(gshm_copy_in(object_.get(), offset, bytes.data(), bytes.size()), saved_.name());
    // Each connection has staging memory of its own; through one alone the threads would wait for each other.
    gshm_object* handle = nullptr;
    check(gshm_open_id(client, gshm_id(object_.get()), GSHM_NO_MAP | GSHM_WRITE, &handle), saved_.name());
    Object mine(handle);
    check(gshm_copy_in(handle, offset, bytes.data(), bytes.size()), saved_.name());
    mine.reset();
    // What is closed is told without an answer; after this one it has arrived, and the object can be sealed.
    check(gshm_ping(client), saved_.name());
}

void RestoreObject::finish(gshm_client* client) {
    make(client);  // an empty one is made here
    memory_.reset();
    if (saved_.sealed) check(gshm_seal(object_.get()), saved_.name());
    const uint32_t mode = first_mode_ != saved_.mode ? uint32_t{GSHM_CHANGE_MODE} : 0;
    const uint32_t keep = !saved_.sealed || (saved_.flags & GSHM_KEEP) != 0 ? uint32_t{GSHM_CHANGE_KEEP} : 0;
    change(client, temporary_, keep | (elsewhere_ ? 0 : mode));
    const uint32_t flags = place_.replace ? uint32_t{GSHM_REPLACE} : 0;
    check(gshm_rename(client, temporary_.c_str(), saved_.name().c_str(), flags), saved_.name());
    if (elsewhere_) change(client, saved_.name(), mode);
    object_.reset();
}

void RestoreObject::change(gshm_client* client, const std::string& name, uint32_t what) const {
    if (what == 0) return;
    auto changes = sized<gshm_changes>();
    changes.what = what;
    changes.mode = saved_.mode;
    check(gshm_change(client, name.c_str(), &changes), saved_.name());
}

void RestoreObject::drop(gshm_client* client) {
    memory_.reset();
    if (!object_) return;
    (void)gshm_unlink(client, temporary_.c_str());
    object_.reset();
}

}  // namespace gshm::cli
