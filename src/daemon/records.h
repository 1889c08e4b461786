// Nodes and devices as records of the protocol.
#pragma once

#include "daemon/device_set.h"
#include "store/store.h"
#include "wire/message.h"

namespace gshm::core {

// The clock is that of the store.
wire::NodeRecord to_record(const Node& node, const Clock& clock);
// EINVAL: more than limits::kTtlMs.
Result<int64_t> ttl_ns_of(uint64_t ttl_ms);
wire::NodeRecord failed_node_record(const Error& error);
// As in gshm_list_unlinked(): the size is that of the memory, and a flag marks former memory.
wire::NodeRecord to_record(const Unlinked& unlinked);
wire::OpenRecord to_open_record(const Object& object, int descriptor);
wire::OpenRecord failed_open_record(const Error& error);
flatbuffers::Offset<wire::DeviceRecord> to_record(flatbuffers::FlatBufferBuilder& builder, const DeviceSet& devices,
                                                  const Store& store, DeviceIndex index, const DeviceSet::Space& space)
    REQUIRES(store_lock);

}  // namespace gshm::core
