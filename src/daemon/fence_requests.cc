// Requests about fences. Publishing and waiting need no gshmd: see fence/page.h.
#include "daemon/fences.h"
#include "daemon/server.h"
#include "daemon/session.h"

namespace gshm::core {

void Session::open_fence(uint64_t request, const wire::OpenFence& open) {
    auto page = [&]() -> Result<int> {
        store_lock.assert_held();
        Object* object = TRY(object_range(open.id(), 0, 0, open.write() ? Access::write : Access::read));
        // The GPU's driver does not register read-only memory.
        const bool queues = server_.devices().info(object->device).streams;
        return server_.fences().open(*object, id_, server_.store().credentials(id_), open.write(),
                                     queues || open.write() ? Access::write : Access::read);
    }();
    if (!page) return reply_error(request, page.error());
    reply(request, wire::ReplyBody::NONE, 0, {&*page, 1});
}

}  // namespace gshm::core
