// Extended attributes: user.NAME is the library's NAME. Some are computed instead of stored, and some of those have an
// effect when they are set. ACLs are the two names of system.posix_acl_. Computed ones are not listed, so that tools which copy all attributes (cp -a, rsync -X, tar
// --xattrs, mv) neither try to set them nor leave them on copies, where they would be wrong.
#include <linux/xattr.h>
#include <shared_mutex>
#include <thread>

#include "base/limits.h"
#include "base/log.h"
#include "base/size.h"
#include "fuse/work.h"
#include "store/acl.h"
#include "store/gate.h"

namespace gshm::core::fuse {
namespace {

constexpr std::string_view kPrefix = "user.";
constexpr std::string_view kAllocationSize = "allocation_size";
constexpr std::string_view kFabricHandle = "fabric_handle";
constexpr std::string_view kDevice = "device";
constexpr std::string_view kId = "id";
constexpr std::string_view kState = "state";
constexpr std::string_view kTier = "tier";
// Leads the library from a path to the daemon.
constexpr std::string_view kRuntimeDir = "gshm.dir";

bool is_read_only(std::string_view name) {
    return name == kAllocationSize || name == kFabricHandle || name == kId || name == kTier || name == kRuntimeDir;
}
bool is_computed(std::string_view name) {
    return is_read_only(name) || name == kDevice || name == kState;
}

std::unexpected<Error> refuse(int code) {
    return std::unexpected(Error{code, {}});
}

// "user.x" gives "x". The kernel's own namespaces are empty here.
Result<std::string_view> strip_prefix(std::string_view name, int otherwise) {
    if (!name.starts_with(kPrefix)) {
        bool of_kernel = name.starts_with("security.") || name.starts_with("trusted.");
        return refuse(of_kernel ? otherwise : EOPNOTSUPP);
    }
    name.remove_prefix(kPrefix.size());
    if (name.empty()) return refuse(EINVAL);
    return name;
}

// The size of the memory behind a handle of the object. A file may have any size, a mapping has whole pages.
uint64_t physical_bytes(const Object& object, uint64_t granularity) {
    // An importer of its handle maps memory of its own.
    if (object.extent->unmapped) return round_up(object.size_bytes, granularity);
    return round_up(object.extent->size_bytes, granularity);
}

// The caller has room for `space` bytes; 0: the caller asks for the length.
void reply_sized(Call& call, uint32_t space, std::string_view value) {
    if (space == 0) {
        fuse_getxattr_out out = {};
        out.size = static_cast<uint32_t>(value.size());
        return call.reply(out);
    }
    if (value.size() > space) return call.fail(ERANGE);
    call.reply_text(value);
}

}  // namespace

bool FileSystem::closes_soon(StoreLock& lock, const std::function<bool()>& closed) {
    for (int i = 0; i < 50 && !closed(); ++i) {
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        lock.lock();
    }
    return closed();
}

void FileSystem::set_attribute(Call& call) {
    struct SetIn {
        uint32_t size;
        uint32_t flags;
    };
    // With FUSE_SETXATTR_EXT.
    struct SetInMore : SetIn {
        uint32_t acl_flags;
        uint32_t padding;
    };
    SetInMore in = {};
    if (features_.acls) {
        auto more = call.part<SetInMore>();
        if (!more) return call.fail(EINVAL);
        in = **more;
    } else {
        auto less = call.part<SetIn>();
        if (!less) return call.fail(EINVAL);
        in.size = (*less)->size;
        in.flags = (*less)->flags;
    }
    auto full = call.text();
    if (!full || call.rest().size() < in.size) return call.fail(EINVAL);
    std::string_view value(reinterpret_cast<const char*>(call.rest().data()), in.size);
    if (auto kind = acl_kind(*full)) {
        const bool drops = (in.acl_flags & FUSE_SETXATTR_ACL_KILL_SGID) != 0;
        return call.finish(set_acl(call.node(), *kind, value, drops));
    }
    auto name = strip_prefix(*full, EOPNOTSUPP);
    if (!name) return call.fail(name.error());
    if (is_read_only(*name)) return call.fail(EPERM);
    if (*name == kDevice) return call.finish(set_device(call.node(), value));
    if (*name == kState) return call.finish(set_state(call.node(), value));
    StoreLock lock(backend_.store_mutex());
    auto node = find(call.node());
    if (!node) return call.fail(node.error());
    call.finish(backend_.files().set_attribute(**node, *name, value, in.flags));
}

std::optional<AclKind> FileSystem::acl_kind(std::string_view name) {
    if (name == XATTR_NAME_POSIX_ACL_ACCESS) return AclKind::access;
    if (name == XATTR_NAME_POSIX_ACL_DEFAULT) return AclKind::inherited;
    return std::nullopt;
}

// The kernel has checked that the caller is the owner or root.
Status FileSystem::set_acl(NodeId id, AclKind kind, std::string_view value, bool drop_set_group) {
    auto entries = TRY(decode_acl(value));
    StoreLock lock(backend_.store_mutex());
    return backend_.files().set_acl(*TRY(find(id)), kind, std::move(entries), drop_set_group);
}

Result<std::string> FileSystem::acl_value(NodeId id, AclKind kind) {
    StoreLock lock(backend_.store_mutex());
    Node* node = TRY(find(id));
    auto* directory = as_directory(node);
    if (kind == AclKind::access && node->acl) return encode_acl(node->acl->entries());
    if (kind == AclKind::inherited && directory != nullptr && directory->default_acl) {
        return encode_acl(directory->default_acl->entries());
    }
    return refuse(ENODATA);
}

Status FileSystem::remove_acl(NodeId id, AclKind kind) {
    TRY(acl_value(id, kind));
    return set_acl(id, kind, encode_acl({}), false);
}

Status FileSystem::set_device(NodeId id, std::string_view name) {
    StoreLock lock(backend_.store_mutex());
    Node* node = TRY(find(id));
    DeviceIndex device = 0;
    const auto& devices = backend_.files().store().devices();
    while (device < devices.size() && devices[device].name != name) ++device;
    if (device == devices.size()) return refuse(ENODEV);
    if (auto* directory = as_directory(node)) {
        directory->device = device;
        backend_.files().changed(*node);
    } else if (auto* object = as_object(node)) {
        if (object->home() == device) return {};
        if (object->state == ObjectState::sealed) return refuse(EPERM);
        TRY(backend_.check(device));
        Work work(backend_, object, Work::kPin);
        // Only an empty, closed object changes its device: bytes are not moved, and the kernel uses the memory of an
        // open file. One lease is that of `work`.
        bool closed = closes_soon(lock, [&] { return object->size_bytes > 0 || object->leases == 1; });
        lock.unlock();
        if (closed) TRY(drop_empty(work));
        lock.lock();
        Store& store = backend_.files().store();
        const bool free = closed && object->extent == nullptr && object->leases == 1;
        Status changed = free ? store.limits().check_device(*object, device, false) : Status(refuse(EBUSY));
        if (changed) store.set_device(object, device);
        lock.unlock();
        return changed;
    } else {
        return refuse(EPERM);
    }
    backend_.files().change(*node, {});
    return {};
}

Status FileSystem::set_state(NodeId id, std::string_view state) {
    StoreLock lock(backend_.store_mutex());
    Object* object = TRY(find_object(id));
    bool sealed = object->state == ObjectState::sealed;
    if (state == "open") return sealed ? Status(refuse(EPERM)) : Status{};
    if (state != "sealed") return refuse(EINVAL);
    if (!closes_soon(lock, [&] {
            store_lock.assert_held();
            auto* now = backend_.files().find(id);  // it may have been freed meanwhile
            return now == nullptr || as_object(now)->write_leases == 0;
        })) {
        return refuse(EBUSY);
    }
    object = TRY(find_object(id));
    return backend_.files().seal(*object);
}

void FileSystem::get_attribute(Call& call) {
    auto in = call.part<fuse_getxattr_in>();
    auto full = call.text();
    if (!in || !full) return call.fail(EINVAL);
    if (auto kind = acl_kind(*full)) {
        auto acl = acl_value(call.node(), *kind);
        return acl ? reply_sized(call, (*in)->size, *acl) : call.fail(acl.error());
    }
    auto name = strip_prefix(*full, ENODATA);
    if (!name) return call.fail(name.error());
    auto value = *name == kFabricHandle ? fabric_handle(call.node()) : attribute_value(call.node(), *name);
    if (!value) return call.fail(value.error());
    reply_sized(call, (*in)->size, *value);
}

Result<std::string> FileSystem::attribute_value(NodeId id, std::string_view name) {
    StoreLock lock(backend_.store_mutex());
    Node* node = TRY(find(id));
    auto* object = as_object(node);
    if (name == kRuntimeDir) return backend_.runtime_dir();
    if (name == kId) return std::to_string(node->id);
    const auto& devices = backend_.files().store().devices();
    if (name == kDevice) {
        if (object != nullptr) return devices[object->home()].name;
        auto* directory = as_directory(node);
        if (directory != nullptr && directory->device) return devices[*directory->device].name;
        return refuse(ENODATA);
    }
    if (object != nullptr) {
        backend_.files().refresh(*object);
        if (name == kState) return object->state == ObjectState::sealed ? "sealed" : "open";
        // Of a resident object "", as gshm_stat_info::tier.
        if (name == kTier && object->stored != 0) return "disk";
        if (name == kTier) return object->is_evicted() ? devices[object->device].name : "";
        if (name == kAllocationSize && object->stored != 0) {
            return std::to_string(round_up(object->size_bytes, devices[object->home()].granularity_bytes));
        }
        if (name == kAllocationSize && object->extent != nullptr && object->size_bytes > 0) {
            return std::to_string(physical_bytes(*object, devices[object->device].granularity_bytes));
        }
    }
    if (is_computed(name)) return refuse(ENODATA);
    auto found = Operations::attribute(*node, name);
    if (!found) return refuse(ENODATA);
    return std::string(*found);
}

Result<std::string> FileSystem::fabric_handle(NodeId id) {
    StoreLock lock(backend_.store_mutex());
    Object* object = TRY(find_object(id));
    TRY(bring_back(lock, object));
    object = TRY(find_object(id));
    if (object->extent == nullptr || object->size_bytes == 0) return refuse(ENODATA);
    if ((backend_.device(object->device).info().handle_kinds & kHandleFabric) == 0) return refuse(EOPNOTSUPP);
    TRY(backend_.check(object->device));
    // The object would have to leave its slab, and processes that map it there, or may, would keep the old memory.
    const bool used = (!Files::is_unshared(*object) && !object->extent->unmapped) || object->extent->handle_given;
    if (object->extent->slab_group != nullptr && used) return refuse(EBUSY);
    Work work(backend_, object, Work::kPin);
    lock.unlock();
    // A handle stands for a whole extent, without an offset.
    TRY(make_dedicated(work));
    TRY(make_exportable(work));
    std::shared_lock gate_lock(work.gate->mutex);
    if (!work.gate->memory) return refuse(ENODATA);
    if (work.gate->in_slab) return refuse(EBUSY);  // a process has opened it meanwhile
    auto handle = work.gate->memory->export_fabric();
    if (!handle) {
        log_warning("user.fabric_handle of node {}: {}. If no process uses the old handle any more, `setfattr -x "
                    "user.fabric_handle` says so, and the next one gets new memory",
                    id, handle.error().message);
        backend_.report(work.device(), handle.error());
        return std::unexpected(handle.error());
    }
    {
        StoreLock again(backend_.store_mutex());
        if (work.object->extent != nullptr) backend_.files().store().extents().give_handle(work.object->extent);
    }
    TRY(backend_.record());
    return std::string(reinterpret_cast<const char*>(handle->data()), handle->size());
}

void FileSystem::list_attributes(Call& call) {
    auto in = call.part<fuse_getxattr_in>();
    if (!in) return call.fail(EINVAL);
    StoreLock lock(backend_.store_mutex());
    auto node = find(call.node());
    if (!node) return call.fail(node.error());
    std::string names;
    auto add = [&](std::string_view name) { (names += kPrefix).append(name) += '\0'; };
    auto add_acl = [&](std::string_view name) { names.append(name) += '\0'; };
    if ((*node)->acl) add_acl(XATTR_NAME_POSIX_ACL_ACCESS);
    if (auto* directory = as_directory(*node); directory != nullptr && directory->default_acl) {
        add_acl(XATTR_NAME_POSIX_ACL_DEFAULT);
    }
    // A setting of a directory, which a copy should have too.
    if (auto* directory = as_directory(*node); directory != nullptr && directory->device) add(kDevice);
    if ((*node)->attributes) {
        for (const auto& [name, value] : *(*node)->attributes) {
            if (!is_computed(name)) add(name);
        }
    }
    reply_sized(call, (*in)->size, names);
}

void FileSystem::remove_attribute(Call& call) {
    auto full = call.text();
    if (!full) return call.fail(EINVAL);
    if (auto kind = acl_kind(*full)) return call.finish(remove_acl(call.node(), *kind));
    auto name = strip_prefix(*full, EOPNOTSUPP);
    if (!name) return call.fail(name.error());
    StoreLock lock(backend_.store_mutex());
    auto node = find(call.node());
    if (!node) return call.fail(node.error());
    if (*name == kDevice) {
        auto* directory = as_directory(*node);
        if (directory == nullptr) return call.fail(EPERM);
        if (!directory->device) return call.fail(ENODATA);
        directory->device.reset();
        backend_.files().change(**node, {});
        return call.succeed();
    }
    auto* object = as_object(*node);
    // Only a handle that has ended: one that can still be imported cannot be revoked.
    if (*name == kFabricHandle && object != nullptr && object->extent != nullptr && object->extent->handle_given) {
        if (object->extent->memory->has_fabric_handle()) return call.fail(EPERM);
        backend_.files().store().extents().forget_handle(object->extent);
        backend_.files().change(**node, {});
        return call.succeed();
    }
    if (is_computed(*name)) return call.fail(EPERM);
    call.finish(backend_.files().remove_attribute(**node, *name));
}

}  // namespace gshm::core::fuse
