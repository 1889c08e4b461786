// gshm.h: rings.
#include "client/api.h"

#include "client/ring/shared_ring.h"

using namespace gshm::core;
using namespace gshm::core::client;

struct gshm_ring {
    std::unique_ptr<Ring> ring;
    std::unique_ptr<SharedRing> shared;  // with GSHM_RING_SHARED
};

namespace {

Status check_ring(const gshm_ring* ring) {
    TRY(check_argument(ring != nullptr, "ring is NULL"));
    return ring->ring->check_use();
}

template <typename Body>
int with_ring(gshm_ring* ring, Body&& body) {
    return guarded([&]() -> Status {
        TRY(check_ring(ring));
        return ring->shared ? ring->shared->run(body) : body(*ring->ring);
    });
}

// Runs a body that returns a count. Returns the count or -errno.
template <typename Body>
int counted(gshm_ring* ring, Body&& body) {
    size_t count = 0;
    const int code = guarded([&]() -> Status {
        TRY(check_ring(ring));
        count = TRY(body());
        return {};
    });
    return code < 0 ? code : static_cast<int>(count);
}

}  // namespace

extern "C" {

int gshm_ring_create(gshm_client* client, const gshm_ring_options* options, gshm_ring** ret_ring) noexcept {
    return guarded([&]() -> Status {
        TRY(check_argument(ret_ring != nullptr, "ret_ring is NULL"));
        const auto wanted = TRY(read_options(options));
        TRY(check_flags(wanted.flags, GSHM_RING_SHARED, "ring"));
        TRY(check_argument(wanted.reserved == 0, "a reserved field is not zero"));
        if (client != nullptr) TRY(client->core->check_fork());
        auto made = std::make_unique<gshm_ring>();
        made->ring = TRY(Ring::create(client == nullptr ? nullptr : client->core, wanted.entries));
        if ((wanted.flags & GSHM_RING_SHARED) != 0) made->shared = std::make_unique<SharedRing>(*made->ring);
        *ret_ring = made.release();
        return {};
    });
}

void gshm_ring_destroy(gshm_ring* ring) noexcept {
    if (ring == nullptr) return;
    // In a forked child the condition variable may wait for threads of the parent.
    if (!ring->ring->is_here()) (void)ring->shared.release();
    delete ring;
}

size_t gshm_ring_entries(const gshm_ring* ring) noexcept {
    return ring == nullptr ? 0 : ring->ring->entries();
}

int gshm_ring_add_file(gshm_ring* ring, int fd, uint32_t* ret_file) noexcept {
    return with_ring(ring, [&](Ring& one) -> Status {
        TRY(check_argument(ret_file != nullptr, "ret_file is NULL"));
        *ret_file = TRY(one.add_file(fd));
        return {};
    });
}

int gshm_ring_remove_file(gshm_ring* ring, uint32_t file) noexcept {
    return with_ring(ring, [&](Ring& one) { return one.remove_file(file); });
}

int gshm_ring_prepare(gshm_ring* ring, const gshm_io* io) noexcept {
    return with_ring(ring, [&](Ring& one) -> Status {
        TRY(check_argument(io != nullptr, "io is NULL"));
        return one.prepare(TRY(read_struct(io)));
    });
}

int gshm_ring_submit(gshm_ring* ring) noexcept {
    return counted(ring, [&] { return ring->shared ? ring->shared->submit() : ring->ring->submit(); });
}

void gshm_ring_wake(gshm_ring* ring) noexcept {
    if (ring != nullptr) ring->ring->wake();
}

int gshm_ring_wait(gshm_ring* ring, gshm_completion* ret_completions, size_t capacity, size_t least,
                   int timeout_ms) noexcept {
    return counted(ring, [&]() -> Result<size_t> {
        TRY(check_argument(ret_completions != nullptr || capacity == 0, "ret_completions is NULL"));
        const std::span room(ret_completions, std::min<size_t>(capacity, INT32_MAX));
        return ring->shared ? ring->shared->wait(room, least, timeout_ms) : ring->ring->wait(room, least, timeout_ms);
    });
}

}  // extern "C"
