// gshm.h: limits on accounts.
#include <deque>

#include "client/api.h"
#include "client/requests.h"

using namespace gshm::core;
using namespace gshm::core::client;

struct gshm_limit_list {
    struct Texts {
        std::string path;
        std::string device;
    };
    std::deque<Texts> texts;  // of the items; they do not move
    std::vector<gshm_limit> items;
};

namespace {

constexpr uint32_t kFields =
    GSHM_LIMIT_BYTES | GSHM_LIMIT_SOFT_BYTES | GSHM_LIMIT_OBJECTS | GSHM_LIMIT_SOFT_OBJECTS | GSHM_LIMIT_GRACE;

Status check_texts(const gshm_limit& limit) {
    if (limit.path != nullptr) TRY(check_name_argument(limit.path));
    if (limit.device != nullptr) TRY(check_name_argument(limit.device));
    return {};
}

template <typename Builder>
flatbuffers::Offset<flatbuffers::String> text_of(Builder& builder, const char* text) {
    return text == nullptr ? 0 : builder.CreateString(text);
}

// A page; the request for the next one begins after it.
struct After {
    uint8_t kind = 0;
    uint64_t id = 0;
};

Result<After> add_page(Core& core, const gshm_limit& which, uint32_t flags, const After& after, gshm_limit_list* list) {
    auto answer = TRY(core.connection().call(
        wire::RequestBody::Limits,
        [&](auto& builder) {
            auto path = text_of(builder, which.path);
            auto device = text_of(builder, which.device);
            return wire::CreateLimits(builder, static_cast<uint8_t>(which.kind), which.id, path, device, flags,
                                      after.kind, after.id)
                .Union();
        },
        Lost::retry));
    const auto* body = GSHM_BODY(answer, LimitList);
    for (const auto* record : *body->limits()) {
        auto& texts = list->texts.emplace_back();
        if (record->path() != nullptr) texts.path = wire::view(record->path());
        if (record->device() != nullptr) texts.device = wire::view(record->device());
        gshm_limit limit = GSHM_LIMIT_INIT;
        limit.kind = record->kind();
        limit.id = record->id();
        limit.path = record->path() == nullptr ? nullptr : texts.path.c_str();
        limit.device = record->device() == nullptr ? nullptr : texts.device.c_str();
        limit.bytes = record->bytes();
        limit.soft_bytes = record->soft_bytes();
        limit.objects = record->objects();
        limit.soft_objects = record->soft_objects();
        limit.grace_s = record->grace_s();
        limit.percent = record->percent();
        limit.used_bytes = record->used_bytes();
        limit.used_objects = record->used_objects();
        limit.unlinked_bytes = record->unlinked_bytes();
        limit.bytes_until_ns = record->bytes_until_ns();
        limit.objects_until_ns = record->objects_until_ns();
        list->items.push_back(limit);
    }
    return After{body->after_kind(), body->after_id()};
}

}  // namespace

extern "C" {

int gshm_limit_set(gshm_client* client, const gshm_limit* given) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_argument(given != nullptr, "limit is NULL"));
        const gshm_limit limit = TRY(read_struct(given));
        TRY(check_texts(limit));
        TRY(check_argument(limit.kind >= GSHM_LIMIT_USER && limit.kind <= GSHM_LIMIT_RESERVE, "unknown kind of limit"));
        TRY(check_flags(limit.fields, kFields, "limit"));
        TRY(check_argument(limit.fields != 0, "no field of the limit is to be changed"));
        TRY(check_argument(limit.kind != GSHM_LIMIT_DIRECTORY || limit.path != nullptr, "path is NULL"));
        return call_for_status(core, wire::RequestBody::SetLimit, [&](auto& builder) {
            auto path = text_of(builder, limit.path);
            auto device = text_of(builder, limit.device);
            auto record = wire::CreateLimitRecord(builder, static_cast<uint8_t>(limit.kind), limit.id, path, device,
                                                  limit.bytes, limit.soft_bytes, limit.objects, limit.soft_objects,
                                                  limit.grace_s, limit.percent);
            return wire::CreateSetLimit(builder, record, limit.fields).Union();
        });
    });
}

int gshm_limits(gshm_client* client, const gshm_limit* which, uint32_t flags, gshm_limit_list** ret_list) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_argument(ret_list != nullptr, "ret_list is NULL"));
        const gshm_limit wanted = TRY(read_options(which));
        TRY(check_texts(wanted));
        TRY(check_argument(wanted.kind <= GSHM_LIMIT_RESERVE, "unknown kind of limit"));
        TRY(check_flags(flags, GSHM_LIMITS_USED | GSHM_LIMITS_ID | GSHM_LIMITS_OWN, "limits"));
        auto list = std::make_unique<gshm_limit_list>();
        After after;
        do {
            after = TRY(add_page(core, wanted, flags, after, list.get()));
        } while (after.kind != 0);
        *ret_list = list.release();
        return {};
    });
}

size_t gshm_limit_list_count(const gshm_limit_list* list) noexcept {
    return list == nullptr ? 0 : list->items.size();
}

const gshm_limit* gshm_limit_list_item(const gshm_limit_list* list, size_t index) noexcept {
    return list == nullptr || index >= list->items.size() ? nullptr : &list->items[index];
}

void gshm_limit_list_free(gshm_limit_list* list) noexcept {
    delete list;
}

}  // extern "C"
