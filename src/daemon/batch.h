// Requests about several objects at once.
#pragma once

#include <string>

#include "base/limits.h"
#include "daemon/session.h"
#include "store/store.h"
#include "wire/message.h"

namespace gshm::core {

// The first failure of a batch; its message goes into the reply. The messages of all are in the log.
struct FirstError {
    FirstError(const Session& session, std::string_view operation) : session(session), operation(operation) {}
    void note(const Error& error) {
        session.note_failure(operation, error);
        if (code == 0) {
            code = error.code;
            message = error.message;
        }
    }
    const Session& session;
    const std::string_view operation;
    int code = 0;
    std::string message;
};

// Applies `by_name` to every name and `by_id` to every id, or until one returns false. The nodes of the next few names
// are prefetched: with 100,000 objects cache misses dominate a lookup.
template <typename Message, typename ByName, typename ById>
Status for_each_item(const auto& store, const Message& message, ByName&& by_name, ById&& by_id) {
    constexpr unsigned kSlotsAhead = 8;
    constexpr unsigned kNodesAhead = 4;
    auto goes_on = [](auto&& call, auto item) {
        if constexpr (std::is_void_v<decltype(call(item))>) return call(item), true;
        else return call(item);
    };
    if (wire::count(message.names()) + wire::count(message.ids()) > limits::kBatchItems) {
        return fail(E2BIG, "a batch has at most {} elements", limits::kBatchItems);
    }
    if (message.names() != nullptr) {
        const auto& names = *message.names();
        for (unsigned i = 0; i < names.size(); ++i) {
            if (i + kSlotsAhead < names.size()) store.fetch(wire::view(names.Get(i + kSlotsAhead)), false);
            if (i + kNodesAhead < names.size()) store.fetch(wire::view(names.Get(i + kNodesAhead)), true);
            if (!goes_on(by_name, wire::view(names.Get(i)))) return {};
        }
    }
    if (message.ids() != nullptr) {
        for (uint64_t id : *message.ids()) {
            if (!goes_on(by_id, id)) return {};
        }
    }
    return {};
}

}  // namespace gshm::core
