// The request to read the configuration again, by root and the daemon's own user.
#include "daemon/server.h"

namespace gshm::core {

void Session::reload(uint64_t request) {
    const Credentials& who = server_.store().credentials(id_);
    if (!who.is_root() && who.uid != server_.owner().uid) {
        return reply_error(request, {EPERM, "only root and the user who runs gshmd may reload its configuration"});
    }
    server_.reload(fmt::format("uid {}", who.uid), [request, self = weak_from_this()](Server::Reloaded reloaded) {
        store_lock.assert_held();
        auto session = self.lock();
        if (!session) return;
        if (!reloaded) return session->reply_error(request, reloaded.error());
        auto& out = session->builder();
        std::vector<flatbuffers::Offset<wire::OptionChange>> changes;
        for (const auto& change : *reloaded) {
            const auto option = out.CreateString(change.key);
            const auto former = out.CreateString(change.former);
            const auto value = out.CreateString(change.value);
            changes.push_back(wire::CreateOptionChange(out, option, former, value, change.needs_restart));
        }
        auto body = wire::CreateOptionChanges(out, out.CreateVector(changes));
        session->reply(request, wire::ReplyBody::OptionChanges, body.Union());
    });
}

}  // namespace gshm::core
