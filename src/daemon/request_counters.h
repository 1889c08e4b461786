// Counts the requests of clients, by kind and result, and their durations. For the metrics.
#pragma once

#include <string>
#include <vector>

#include "base/durations.h"
#include "wire/message.h"

namespace gshm::core {

class RequestCounters {
public:
    // From any thread. error: 0 or an errno.
    static void note(wire::RequestBody kind, int error, uint64_t ns);

    // Requests without one count when they are done.
    static bool has_reply(wire::RequestBody kind) {
        using wire::RequestBody;
        return kind != RequestBody::Release && kind != RequestBody::RingRelease && kind != RequestBody::Reconcile;
    }

    struct Kind {
        wire::RequestBody kind = wire::RequestBody::NONE;
        std::vector<std::pair<std::string, uint64_t>> results;  // "ok", always; "ENOENT", ... that have occurred
        Durations durations;
    };
    // Of all kinds that have occurred.
    static std::vector<Kind> kinds();
    // Refusals because of a limit or a budget of the user, by all kinds: EDQUOT.
    static uint64_t refusals_of_limits();
};

}  // namespace gshm::core
