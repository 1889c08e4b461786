#include "daemon/records.h"

#include "base/limits.h"
#include "store/lifetimes.h"
#include "wire/records.h"

namespace gshm::core {
namespace {

// Id and size of the extent; zeros for an empty file.
std::pair<uint64_t, uint64_t> extent_of(const Object& object) {
    if (object.extent == nullptr || object.size_bytes == 0) return {0, 0};
    return {object.extent->id, object.extent->size_bytes};
}

// GSHM_STAT_ACL, GSHM_STAT_DEFAULT_ACL
uint32_t acl_flags(const Node& node) {
    constexpr uint32_t kAcl = 1u << 24;
    constexpr uint32_t kDefaultAcl = 1u << 25;
    const bool inherited = node.kind == NodeKind::directory && static_cast<const Directory&>(node).default_acl;
    return (node.acl ? kAcl : 0u) | (inherited ? kDefaultAcl : 0u);
}

// NodeRecord::tier
uint32_t tier_of(const Object& object) {
    if (object.stored != 0) return wire::kDiskTier;
    return object.is_evicted() ? object.device + 1 : 0;
}

uint64_t ttl_ms_of(const Object& object) {
    constexpr int64_t kMillisecondNs = 1'000'000;
    return object.lifetime == nullptr ? 0 : static_cast<uint64_t>(object.lifetime->ttl_ns / kMillisecondNs);
}

}  // namespace

Result<int64_t> ttl_ns_of(uint64_t ttl_ms) {
    if (ttl_ms > limits::kTtlMs) return fail(EINVAL, "a ttl has at most {} ms, which are 100 years", limits::kTtlMs);
    return static_cast<int64_t>(ttl_ms * 1'000'000);
}

wire::NodeRecord to_record(const Node& node, const Clock& clock) {
    if (node.kind == NodeKind::directory) {
        const auto& directory = static_cast<const Directory&>(node);
        uint32_t flags = (directory.implicit ? 0 : uint32_t{kCreateKeep}) | acl_flags(node);
        auto device = static_cast<uint16_t>(directory.device ? *directory.device + 1 : 0);
        return {node.id,
                directory.children.size(),
                0,
                0,
                0,
                node.created_ns,
                node.modified_ns,
                node.uid,
                node.gid,
                node.mode,
                flags,
                0,
                0,
                device,
                static_cast<uint8_t>(node.kind),
                0,
                0,
                0,
                0};
    }
    if (node.kind != NodeKind::object) {
        uint64_t size = node.kind == NodeKind::symlink ? static_cast<const Symlink&>(node).target.size() : 0;
        return {node.id,
                size,
                0,
                0,
                0,
                node.created_ns,
                node.modified_ns,
                node.uid,
                node.gid,
                node.mode,
                acl_flags(node),
                0,
                0,
                0,
                static_cast<uint8_t>(node.kind),
                0,
                0,
                0,
                0};
    }
    const auto& object = static_cast<const Object&>(node);
    auto [extent, extent_bytes] = extent_of(object);
    return {node.id,
            object.size_bytes,
            extent,
            extent_bytes,
            object.offset,
            node.created_ns,
            node.modified_ns,
            node.uid,
            node.gid,
            node.mode,
            (object.flags & ~kUnreportedFlags) | acl_flags(node),
            object.leases,
            0,
            static_cast<uint16_t>(object.home()),
            static_cast<uint8_t>(node.kind),
            static_cast<uint8_t>(object.state),
            tier_of(object),
            expires_ns(object, clock),
            ttl_ms_of(object)};
}

wire::NodeRecord to_record(const Unlinked& unlinked) {
    constexpr uint32_t kFormer = 1u << 13;  // GSHM_FORMER
    const Object& object = *unlinked.object;
    auto [extent, extent_bytes] = unlinked.former ? std::pair<uint64_t, uint64_t>{} : extent_of(object);
    uint32_t leases = 0;
    for (const auto& holder : unlinked.holders) leases += holder.leases;
    return {object.id,
            unlinked.size_bytes,
            extent,
            extent_bytes,
            unlinked.former ? 0 : object.offset,
            object.created_ns,
            object.modified_ns,
            object.uid,
            object.gid,
            object.mode,
            (object.flags & ~kUnreportedFlags) | (unlinked.former ? kFormer : 0),
            leases,
            0,
            static_cast<uint16_t>(object.home()),
            static_cast<uint8_t>(object.kind),
            static_cast<uint8_t>(object.state),
            unlinked.former ? 0 : tier_of(object),
            0,
            unlinked.former ? 0 : ttl_ms_of(object)};
}

wire::NodeRecord failed_node_record(const Error& error) {
    return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, error.code, 0, 0, 0, 0, 0, 0};
}

wire::OpenRecord to_open_record(const Object& object, int descriptor) {
    auto [extent, extent_bytes] = extent_of(object);
    return {object.id,
            object.size_bytes,
            extent,
            extent_bytes,
            object.offset,
            0,
            static_cast<uint16_t>(object.device),
            static_cast<int16_t>(descriptor)};
}

wire::OpenRecord failed_open_record(const Error& error) {
    return {0, 0, 0, 0, 0, error.code, 0, -1};
}

flatbuffers::Offset<wire::DeviceRecord> to_record(flatbuffers::FlatBufferBuilder& builder, const DeviceSet& devices,
                                                  const Store& store, DeviceIndex index,
                                                  const DeviceSet::Space& space) {
    const DeviceInfo& info = devices.info(index);
    const Account& use = store.use(index);
    const uint64_t capacity = std::min(info.capacity_bytes, space.used_bytes + space.available_bytes);
    return wire::CreateDeviceRecord(builder, builder.CreateString(info.name), builder.CreateString(info.uuid),
                                    builder.CreateString(info.model), builder.CreateString(devices.failure(index)),
                                    capacity, space.used_bytes, use.object_bytes, use.unlinked_bytes,
                                    info.granularity_bytes, info.handle_kinds, info.compressible, use.evictable_bytes,
                                    use.evicted_bytes, use.evicted_objects);
}

}  // namespace gshm::core
