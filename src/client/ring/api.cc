// gshm.h: rings.
#include "client/api.h"

#include "client/ring/ring.h"

using namespace gshm::core;
using namespace gshm::core::client;

struct gshm_ring {
    std::unique_ptr<Ring> ring;
};

namespace {

// Runs a body that returns a count. Returns the count or -errno.
template <typename Body>
int counted(gshm_ring* ring, Body&& body) {
    size_t count = 0;
    const int code = guarded([&]() -> Status {
        TRY(check_argument(ring != nullptr, "ring is NULL"));
        TRY(ring->ring->check_use());
        count = TRY(body(*ring->ring));
        return {};
    });
    return code < 0 ? code : static_cast<int>(count);
}

}  // namespace

extern "C" {

int gshm_ring_create(gshm_client* client, const gshm_ring_options* options, gshm_ring** ret_ring) {
    return guarded([&]() -> Status {
        TRY(check_argument(ret_ring != nullptr, "ret_ring is NULL"));
        gshm_ring_options wanted = GSHM_RING_OPTIONS_INIT;
        if (options != nullptr) {
            TRY(check_argument(options->struct_size == sizeof wanted, "struct_size of the options is wrong"));
            wanted = *options;
        }
        if (client != nullptr) TRY(client->core->check_fork());
        auto made = std::make_unique<gshm_ring>();
        made->ring = TRY(Ring::create(client == nullptr ? nullptr : client->core, wanted.entries));
        *ret_ring = made.release();
        return {};
    });
}

void gshm_ring_destroy(gshm_ring* ring) {
    delete ring;
}

size_t gshm_ring_entries(const gshm_ring* ring) {
    return ring == nullptr ? 0 : ring->ring->entries();
}

int gshm_ring_add_file(gshm_ring* ring, int fd, uint32_t* ret_file) {
    const int code = counted(ring, [&](Ring& one) -> Result<size_t> {
        TRY(check_argument(ret_file != nullptr, "ret_file is NULL"));
        *ret_file = TRY(one.add_file(fd));
        return 0;
    });
    return code;
}

int gshm_ring_remove_file(gshm_ring* ring, uint32_t file) {
    return counted(ring, [&](Ring& one) -> Result<size_t> {
        TRY(one.remove_file(file));
        return 0;
    });
}

int gshm_ring_prepare(gshm_ring* ring, const gshm_io* io) {
    return counted(ring, [&](Ring& one) -> Result<size_t> {
        TRY(check_argument(io != nullptr && io->struct_size == sizeof *io, "io is NULL, or its struct_size is wrong"));
        TRY(one.prepare(*io));
        return 0;
    });
}

int gshm_ring_submit(gshm_ring* ring) {
    return counted(ring, [&](Ring& one) { return one.submit(); });
}

void gshm_ring_wake(gshm_ring* ring) {
    if (ring != nullptr) ring->ring->wake();
}

int gshm_ring_wait(gshm_ring* ring, gshm_completion* ret_completions, size_t capacity, size_t least, int timeout_ms) {
    return counted(ring, [&](Ring& one) -> Result<size_t> {
        TRY(check_argument(ret_completions != nullptr || capacity == 0, "ret_completions is NULL"));
        return one.wait({ret_completions, std::min<size_t>(capacity, INT32_MAX)}, least, timeout_ms);
    });
}

}  // extern "C"
