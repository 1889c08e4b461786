// The wire decoder: it rejects arbitrary bytes or yields a message whose fields can all be read.
#include <cstdint>
#include <cstdlib>

#include "wire/message.h"
#include "wire/records.h"

namespace {

volatile uint64_t sink;

void touch(std::string_view text) {
    uint64_t sum = 0;
    for (char c : text) sum += static_cast<unsigned char>(c);
    sink = sink + sum;
}

template <typename Vector>
void touch_strings(const Vector* strings) {
    if (strings == nullptr) return;
    for (const auto* text : *strings) touch(gshm::core::wire::view(text));
}

void touch_ids(const flatbuffers::Vector<uint64_t>* ids) {
    if (ids == nullptr) return;
    for (uint64_t id : *ids) sink = sink + id;
}

// All bytes of all records, as a client copies them.
template <typename Record>
void touch_records(const gshm::core::wire::Records<Record>& records) {
    for (size_t i = 0; i < records.size(); ++i) {
        const Record record = records[i];
        touch({reinterpret_cast<const char*>(&record), sizeof record});
    }
}

void touch_entries(const flatbuffers::Vector<const gshm::core::wire::AclRecord*>* entries) {
    if (entries == nullptr) return;
    for (const auto* entry : *entries) sink = sink + entry->tag() + entry->rights() + entry->id();
}

void read_request(const gshm::core::wire::Request& request) {
    using namespace gshm::core::wire;
    if (const auto* create = request.body_as_CreateObjects()) {
        for (const auto* item : *create->items()) {
            touch(view(item->name()));
            touch(view(item->device()));
            if (item->attributes() == nullptr) continue;
            for (const auto* attribute : *item->attributes()) {
                touch(view(attribute->name()));
                touch(view(attribute->value()));
            }
        }
    }
    if (const auto* open = request.body_as_OpenObjects()) {
        touch_strings(open->names());
        touch_ids(open->ids());
    }
    if (const auto* release = request.body_as_Release()) {
        touch_ids(release->read());
        touch_ids(release->write());
        touch_ids(release->unmapped());
    }
    if (const auto* stat = request.body_as_Stat()) touch_strings(stat->names());
    if (const auto* list = request.body_as_List()) touch(view(list->path()));
    if (const auto* seal = request.body_as_Seal()) touch_strings(seal->names());
    if (const auto* unlink = request.body_as_Unlink()) touch_strings(unlink->names());
    if (const auto* rename = request.body_as_Rename()) {
        touch(view(rename->from()));
        touch(view(rename->to()));
    }
    if (const auto* set = request.body_as_SetAttribute()) {
        touch(view(set->name()));
        touch(view(set->attribute()));
        touch(view(set->value()));
    }
    if (const auto* hello = request.body_as_Hello()) touch(view(hello->version()));
    if (const auto* wait = request.body_as_Wait()) touch(view(wait->name()));
    if (const auto* get = request.body_as_GetAcl()) touch(view(get->name()));
    if (const auto* change = request.body_as_ChangeAcl()) {
        touch(view(change->name()));
        touch_entries(change->entries());
    }
    if (const auto* watch = request.body_as_WatchCreate()) touch(view(watch->prefix()));
}

void read_reply(const gshm::core::wire::Reply& reply) {
    using namespace gshm::core::wire;
    touch(view(reply.message()));
    if (const auto* opened = reply.body_as_OpenReply()) {
        touch_records(records_of(*opened));
    }
    if (const auto* stat = reply.body_as_StatReply()) touch_records(records_of(*stat));
    if (const auto* list = reply.body_as_ListReply()) {
        touch_strings(list->names());
        touch_records(records_of(*list));
    }
    if (const auto* devices = reply.body_as_DeviceList()) {
        for (const auto* device : *devices->devices()) {
            touch(view(device->name()));
            touch(view(device->uuid()));
        }
    }
    if (const auto* events = reply.body_as_WatchReply()) {
        touch_strings(events->names());
        touch_strings(events->old_names());
        touch_records(records_of(*events));
    }
    if (const auto* acl = reply.body_as_AclReply()) touch_entries(acl->entries());
    if (const auto* bytes = reply.body_as_BytesReply()) touch(view(bytes->bytes()));
    if (const auto* holders = reply.body_as_HoldersReply()) {
        touch_strings(holders->commands());
        touch_records(records_of(*holders));
    }
    if (const auto* unlinked = reply.body_as_UnlinkedReply()) {
        touch_strings(unlinked->names());
        touch_records(records_of(*unlinked));
        touch_records(holders_of(*unlinked));
        touch_strings(unlinked->commands());
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    // A copy of exactly that size, so that a read beyond it is seen.
    auto* copy = static_cast<uint8_t*>(malloc(size == 0 ? 1 : size));
    for (size_t i = 0; i < size; ++i) copy[i] = data[i];
    if (auto request = gshm::core::wire::decode_request({copy, size})) read_request(**request);
    if (auto reply = gshm::core::wire::decode_reply({copy, size})) read_reply(**reply);
    free(copy);
    return 0;
}
