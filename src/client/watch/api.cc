// gshm.h: watching.
#include "client/api.h"

#include "client/watch/watch.h"

using namespace gshm::core;
using namespace gshm::core::client;

extern "C" {

int gshm_watch_create(gshm_client* client, const char* prefix, uint32_t flags, gshm_watch** ret_watch) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_argument(ret_watch != nullptr, "ret_watch is NULL"));
        TRY(check_flags(flags, GSHM_WATCH_EXISTING, "watch"));
        TRY(check_name_argument(prefix));
        auto watch = TRY(Watch::create(core.connection().dir(), core.connection().timeout_ms(), prefix,
                                       (flags & GSHM_WATCH_EXISTING) != 0));
        *ret_watch = new gshm_watch{std::move(watch)};
        return {};
    });
}

int gshm_watch_next(gshm_watch* watch, gshm_event* ret_event, int timeout_ms) noexcept {
    return guarded([&]() -> Status {
        TRY(check_argument(watch != nullptr, "watch is NULL"));
        TRY(check_argument(ret_event != nullptr, "ret_event is NULL"));
        // Checked before an event is taken, which would otherwise be lost.
        TRY(check_output(ret_event));
        TRY(watch->watch->check_fork());
        return write_struct(ret_event, TRY(watch->watch->next(timeout_ms)));
    });
}

int gshm_watch_fd(const gshm_watch* watch) noexcept {
    return watch == nullptr || !watch->watch->is_here() ? -1 : watch->watch->fd();
}

void gshm_watch_destroy(gshm_watch* watch) noexcept {
    if (watch == nullptr) return;
    // In a forked child the lock may be held forever.
    if (watch->watch->is_here()) watch->watch->cancel();
    delete watch;
}

}  // extern "C"
