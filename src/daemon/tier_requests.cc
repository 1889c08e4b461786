// Requests for tiers: docs/tiers.md.
#include "daemon/server.h"
#include "daemon/session.h"

namespace gshm::core {

void Session::change_tier(uint64_t request, const wire::ChangeTier& change) {
    auto object = server_.store().find_movable(id_, wire::view(change.name()));
    if (!object) return reply_error(request, object.error());
    reply_error(request, {EOPNOTSUPP, "gshmd was started without a tier (`--tier`)"});
}

}  // namespace gshm::core
