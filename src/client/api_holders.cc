// gshm.h: holders of objects, with and without a name.
#include <algorithm>
#include <cstring>

#include "client/api.h"
#include "wire/records.h"

using namespace gshm::core;
using namespace gshm::core::client;

namespace {

gshm_holder to_holder(const wire::HolderRecord& record, const flatbuffers::String& command) {
    gshm_holder holder = {};
    holder.struct_size = sizeof holder;
    holder.pid = record.pid();
    holder.uid = record.uid();
    holder.leases = record.leases();
    holder.writable = record.writable() ? 1 : 0;
    snprintf(holder.command, sizeof holder.command, "%s", command.c_str());
    return holder;
}

Status write_holders(std::span<const gshm_holder> holders, gshm_holder* ret_holders, size_t capacity,
                     size_t* ret_count) {
    TRY(write_structs(holders, ret_holders, capacity));
    *ret_count = holders.size();
    return {};
}

Status check_room(const gshm_holder* ret_holders, size_t capacity, const size_t* ret_count) {
    return check_argument(ret_count != nullptr && (ret_holders != nullptr || capacity == 0),
                          "ret_count or ret_holders is NULL");
}

// Adds one page to the listing. Returns the cookie of the next page, or 0.
Result<uint64_t> take_page(const Answer& answer, gshm_listing& listing) {
    const auto* body = GSHM_BODY(answer, UnlinkedReply);
    const auto records = wire::records_of(*body);
    const auto holders = wire::holders_of(*body);
    bool whole = body->names()->size() == records.size() && body->holder_counts()->size() == records.size() &&
                 body->commands()->size() == holders.size();
    unsigned next = 0;
    for (unsigned i = 0; whole && i < records.size(); ++i) {
        uint32_t count = body->holder_counts()->Get(i);
        whole = count <= holders.size() - next;
        if (!whole) break;
        listing.order.push_back(static_cast<uint32_t>(listing.entries.size()));
        listing.add("", wire::view(body->names()->Get(i)), records[i]);
        for (unsigned end = next + count; next < end; ++next) {
            listing.holders.push_back(to_holder(holders[next], *body->commands()->Get(next)));
        }
        listing.holders_end.push_back(listing.holders.size());
    }
    if (!whole) return fail(EPROTO, "gshmd sent half a list");
    listing.devices = answer.devices;
    return body->cookie();
}

}  // namespace

extern "C" {

int gshm_holders(gshm_client* client, const char* name, gshm_holder* ret_holders, size_t capacity,
                 size_t* ret_count) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_name_argument(name));
        TRY(check_room(ret_holders, capacity, ret_count));
        auto answer = TRY(core.connection().call(
            wire::RequestBody::Holders,
            [&](auto& builder) { return wire::CreateHolders(builder, builder.CreateString(name)).Union(); },
            Lost::retry));
        const auto* body = GSHM_BODY(answer, HoldersReply);
        const auto records = wire::records_of(*body);
        if (body->commands()->size() != records.size()) return fail(EPROTO, "gshmd sent half a list");
        std::vector<gshm_holder> holders;
        for (unsigned i = 0; i < records.size(); ++i) {
            holders.push_back(to_holder(records[i], *body->commands()->Get(i)));
        }
        return write_holders(holders, ret_holders, capacity, ret_count);
    });
}

int gshm_list_unlinked(gshm_client* client, gshm_listing** ret_listing) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_argument(ret_listing != nullptr, "ret_listing is NULL"));
        auto listing = std::make_unique<gshm_listing>();
        uint64_t cookie = 0;
        do {
            auto answer = TRY(core.connection().call(
                wire::RequestBody::Unlinked,
                [&](auto& builder) { return wire::CreateUnlinked(builder, cookie).Union(); }, Lost::retry));
            uint64_t next = TRY(take_page(answer, *listing));
            if (next != 0 && next <= cookie) return fail(EPROTO, "gshmd sent a list without an end");
            cookie = next;
        } while (cookie != 0);
        *ret_listing = listing.release();
        return {};
    });
}

int gshm_listing_holders(const gshm_listing* listing, size_t index, gshm_holder* ret_holders, size_t capacity,
                         size_t* ret_count) noexcept {
    return guarded([&]() -> Status {
        TRY(check_argument(listing != nullptr, "listing is NULL"));
        TRY(check_room(ret_holders, capacity, ret_count));
        TRY(check_argument(index < listing->entries.size(), "index is past the listing's end"));
        if (listing->holders_end.empty()) return write_holders({}, ret_holders, capacity, ret_count);
        size_t begin = index == 0 ? 0 : listing->holders_end[index - 1];
        size_t count = listing->holders_end[index] - begin;
        return write_holders(std::span(listing->holders).subspan(begin, count), ret_holders, capacity, ret_count);
    });
}

}  // extern "C"
