// gshm.h: attributes, one or many at a time.
#include <algorithm>

#include "client/api.h"
#include "client/requests.h"

using namespace gshm::core;
using namespace gshm::core::client;

struct gshm_attribute_list {
    struct Item {
        std::string name;
        std::string value;
    };
    std::vector<Item> items;
    std::vector<gshm_attribute> views;  // of the items
};

namespace {

Status check_value(const gshm_attribute& attribute) {
    TRY(check_names({attribute.name}));
    TRY(check_argument(attribute.value != nullptr || attribute.value_bytes == 0, "value is NULL"));
    if (attribute.value_bytes > limits::kAttributeValueBytes) {
        return fail(E2BIG, "an attribute's value has at most {} bytes", limits::kAttributeValueBytes);
    }
    return {};
}

DaemonConnection::Build build_set(const char* name, const gshm_attribute& attribute) {
    return [name, &attribute](auto& builder) {
        auto object = builder.CreateString(name);
        auto key = builder.CreateString(attribute.name);
        auto bytes = builder.CreateVector(static_cast<const uint8_t*>(attribute.value), attribute.value_bytes);
        return wire::CreateSetAttribute(builder, object, key, bytes).Union();
    };
}

DaemonConnection::Build build_get(const char* name, const char* attribute) {
    return [name, attribute](auto& builder) {
        auto object = builder.CreateString(name);
        return wire::CreateGetAttribute(builder, object, builder.CreateString(attribute)).Union();
    };
}

// All names, each ended by NUL.
Result<std::string> list_names(Core& core, const char* name) {
    std::string names;
    for (bool more = true; more;) {
        // The last known name, without its NUL.
        const size_t begin = names.empty() ? 0 : names.rfind('\0', names.size() - 2) + 1;
        const auto after = names.empty() ? std::string() : names.substr(begin, names.size() - 1 - begin);
        auto answer = TRY(core.connection().call(
            wire::RequestBody::ListAttributes,
            [&](auto& builder) {
                auto object = builder.CreateString(name);
                return wire::CreateListAttributes(builder, object, builder.CreateString(after)).Union();
            },
            Lost::retry));
        const auto* body = GSHM_BODY(answer, BytesReply);
        const auto page = wire::view(body->bytes());
        names += page;
        more = body->more() && !page.empty();
    }
    return names;
}

Result<std::vector<std::string>> sorted_names(Core& core, const char* name) {
    const std::string packed = TRY(list_names(core, name));
    std::vector<std::string> names;
    for (size_t begin = 0; begin < packed.size(); begin += names.back().size() + 1) {
        names.emplace_back(packed.c_str() + begin);
    }
    std::ranges::sort(names);
    return names;
}

// The error of a request, if the answer is one.
std::optional<Error> failure_of(const Result<Answer>& answer) {
    if (!answer) return answer.error();
    if (answer->reply->error() == 0) return std::nullopt;
    return Error{answer->reply->error(), std::string(wire::view(answer->reply->message()))};
}

}  // namespace

extern "C" {

int gshm_set_attribute(gshm_client* client, const char* name, const char* attribute, const void* value,
                       size_t value_bytes) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name}));
        const gshm_attribute one = {attribute, value, value_bytes};
        TRY(check_value(one));
        return call_for_status(core, wire::RequestBody::SetAttribute, build_set(name, one));
    });
}

int gshm_get_attribute(gshm_client* client, const char* name, const char* attribute, void* ret_value, size_t capacity,
                       size_t* ret_bytes) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name, attribute}));
        TRY(check_argument(ret_bytes != nullptr && (ret_value != nullptr || capacity == 0),
                           "ret_bytes or ret_value is NULL"));
        auto answer =
            TRY(core.connection().call(wire::RequestBody::GetAttribute, build_get(name, attribute), Lost::retry));
        return write_bytes(answer, ret_value, capacity, ret_bytes);
    });
}

int gshm_remove_attribute(gshm_client* client, const char* name, const char* attribute) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name, attribute}));
        return call_for_status(core, wire::RequestBody::RemoveAttribute, [&](auto& builder) {
            auto object = builder.CreateString(name);
            return wire::CreateRemoveAttribute(builder, object, builder.CreateString(attribute)).Union();
        });
    });
}

int gshm_list_attributes(gshm_client* client, const char* name, char* ret_names, size_t capacity,
                         size_t* ret_bytes) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name}));
        TRY(check_argument(ret_bytes != nullptr && (ret_names != nullptr || capacity == 0),
                           "ret_bytes or ret_names is NULL"));
        const std::string names = TRY(list_names(core, name));
        return write_bytes(names, ret_names, capacity, ret_bytes);
    });
}

int gshm_set_attributes(gshm_client* client, const char* name, const gshm_attribute* attributes, size_t count,
                        int* ret_status) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name}));
        TRY(check_argument((attributes != nullptr && ret_status != nullptr) || count == 0,
                           "attributes or ret_status is NULL"));
        for (size_t i = 0; i < count; ++i) {
            TRY(check_argument(attributes[i].name != nullptr &&
                                   (attributes[i].value != nullptr || attributes[i].value_bytes == 0),
                               "an attribute's name or value is NULL"));
        }
        std::vector<DaemonConnection::Build> builds;
        std::vector<size_t> sent;  // the index of each request
        std::vector<std::optional<Error>> outcomes(count);
        for (size_t i = 0; i < count; ++i) {
            if (auto good = check_value(attributes[i]); !good) {
                outcomes[i] = good.error();
                continue;
            }
            builds.push_back(build_set(name, attributes[i]));
            sent.push_back(i);
        }
        core.connection().call_all(wire::RequestBody::SetAttribute, builds, Lost::retry, Access::read,
                                   [&](size_t i, Result<Answer> answer) { outcomes[sent[i]] = failure_of(answer); });
        for (size_t i = 0; i < count; ++i) ret_status[i] = outcomes[i] ? -outcomes[i]->code : 0;
        const auto first = std::ranges::find_if(outcomes, [](const auto& outcome) { return outcome.has_value(); });
        if (first != outcomes.end()) return std::unexpected(std::move(**first));
        return {};
    });
}

int gshm_get_attributes(gshm_client* client, const char* name, const char* const* attributes, size_t count,
                        gshm_attribute_list** ret_list) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_names({name}));
        TRY(check_argument(ret_list != nullptr, "ret_list is NULL"));
        TRY(check_argument(attributes != nullptr || count == 0, "attributes is NULL"));
        std::vector<std::string> keys;
        if (attributes == nullptr) keys = TRY(sorted_names(core, name));
        for (size_t i = 0; i < count; ++i) {
            TRY(check_names({attributes[i]}));
            keys.emplace_back(attributes[i]);
        }
        std::vector<DaemonConnection::Build> builds;
        for (const auto& key : keys) builds.push_back(build_get(name, key.c_str()));
        auto list = std::make_unique<gshm_attribute_list>();
        std::optional<Error> first;
        core.connection().call_all(wire::RequestBody::GetAttribute, builds, Lost::retry, Access::read,
                                   [&](size_t i, Result<Answer> answer) {
                                       auto error = failure_of(answer);
                                       const auto* body = error ? nullptr : answer->reply->body_as_BytesReply();
                                       if (!error && body == nullptr)
                                           error = Error{EPROTO, "gshmd answered something else than BytesReply"};
                                       if (!error)
                                           list->items.push_back({keys[i], std::string(wire::view(body->bytes()))});
                                       else if (error->code != ENODATA && !first) first = std::move(error);
                                   });
        if (first) return std::unexpected(std::move(*first));
        for (const auto& item : list->items) {
            list->views.push_back({item.name.c_str(), item.value.data(), item.value.size()});
        }
        *ret_list = list.release();
        return {};
    });
}

size_t gshm_attribute_list_count(const gshm_attribute_list* list) noexcept {
    return list == nullptr ? 0 : list->views.size();
}

const gshm_attribute* gshm_attribute_list_item(const gshm_attribute_list* list, size_t index) noexcept {
    return list == nullptr || index >= list->views.size() ? nullptr : &list->views[index];
}

void gshm_attribute_list_free(gshm_attribute_list* list) noexcept {
    delete list;
}

}  // extern "C"
