// gshm.h: watching.
#include "client/api.h"

#include "client/watch/watch.h"

using namespace gshm::core;
using namespace gshm::core::client;

extern "C" {

int gshm_watch_create(gshm_client* client, const char* prefix, uint32_t flags, gshm_watch** ret_watch) {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_argument(ret_watch != nullptr, "ret_watch is NULL"));
        TRY(check_argument((flags & ~uint32_t{GSHM_WATCH_EXISTING}) == 0, "unknown flags"));
        TRY(check_name_argument(prefix));
        auto watch = TRY(Watch::create(core.connection().dir(), core.connection().timeout_ms(), prefix,
                                       (flags & GSHM_WATCH_EXISTING) != 0));
        *ret_watch = new gshm_watch{std::move(watch)};
        return {};
    });
}

int gshm_watch_next(gshm_watch* watch, gshm_event* ret_event, int timeout_ms) {
    return guarded([&]() -> Status {
        TRY(check_argument(watch != nullptr, "watch is NULL"));
        TRY(check_argument(ret_event != nullptr, "ret_event is NULL"));
        // Checked before an event is taken, which would otherwise be lost.
        TRY(check_argument(ret_event->struct_size >= 8 && ret_event->struct_size <= sizeof *ret_event,
                           "struct_size of the event is wrong: set it to sizeof before the call"));
        TRY(watch->watch->check_fork());
        return copy_struct(ret_event, TRY(watch->watch->next(timeout_ms)));
    });
}

int gshm_watch_fd(const gshm_watch* watch) {
    return watch == nullptr || !watch->watch->check_fork() ? -1 : watch->watch->fd();
}

void gshm_watch_destroy(gshm_watch* watch) {
    if (watch == nullptr) return;
    // In a forked child the lock may be held forever.
    if (watch->watch->check_fork()) watch->watch->cancel();
    delete watch;
}

}  // extern "C"
