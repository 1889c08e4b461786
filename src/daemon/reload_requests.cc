// The request to read the configuration again, by root and the daemon's own user.
#include "daemon/server.h"

namespace gshm::core {

void Session::reload(uint64_t request) {
    const Credentials& who = server_.store().credentials(id_);
    if (!who.is_root() && who.uid != server_.owner().uid) {
        return reply_error(request, {EPERM, "only root and the user who runs gshmd may reload its configuration"});
    }
    auto& out = builder();
    const std::vector<flatbuffers::Offset<wire::OptionChange>> none;
    auto body = wire::CreateOptionChanges(out, out.CreateVector(none));
    reply(request, wire::ReplyBody::OptionChanges, body.Union());
}

}  // namespace gshm::core
