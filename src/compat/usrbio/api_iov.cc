// hf3fs_usrbio.h: host memory.
#include "devices.h"
#include "iov.h"
#include "wraps.h"

using namespace gshm;
using namespace gshm::usrbio;

extern "C" {

int hf3fs_iovcreate(struct hf3fs_iov* iov, const char* hf3fs_mount_point, size_t size, size_t block_size, int numa) {
    return guarded("hf3fs_iovcreate", [&]() -> Result<void> {
        TRY(check_iov_arguments(iov, hf3fs_mount_point, size));
        auto made = TRY(create_iov(TRY(Daemon::find(hf3fs_mount_point)), size, "host"));
        // The policy belongs to the memory, whichever process touches it first.
        if (numa >= 0) prefer_node(made->object.data(), size, numa);
        Iov::hand_over(std::move(made), iov, hf3fs_mount_point, block_size, numa);
        return {};
    });
}

int hf3fs_iovopen(struct hf3fs_iov* iov, const uint8_t id[16], const char* hf3fs_mount_point, size_t size,
                  size_t block_size, int numa) {
    return guarded("hf3fs_iovopen", [&]() -> Result<void> {
        TRY(check_iov_arguments(iov, hf3fs_mount_point, size));
        TRY(check_argument(id != nullptr, "id is NULL"));
        auto made = std::make_unique<Iov>();
        made->id = to_id(id);
        made->daemon = TRY(Daemon::find(hf3fs_mount_point));
        made->object = TRY(made->daemon->client().open(name_of(made->id), {.write = true}));
        made->size = size;
        TRY(check_argument(made->object.is_host(), "this is memory of a GPU: hf3fs_iovopen_gpu opens it"));
        TRY(check_argument(size <= made->object.size(), "it has fewer bytes than that"));
        Iov::hand_over(std::move(made), iov, hf3fs_mount_point, block_size, numa);
        return {};
    });
}

int hf3fs_iovwrap(struct hf3fs_iov* iov, void* base, const uint8_t id[16], const char* hf3fs_mount_point, size_t size,
                  size_t block_size, int numa) {
    return guarded("hf3fs_iovwrap", [&]() -> Result<void> {
        TRY(check_iov_arguments(iov, hf3fs_mount_point, size));
        TRY(check_argument(base != nullptr && id != nullptr, "base or id is NULL"));
        auto made = TRY(Wraps::make(base, size));
        made->id = to_id(id);
        if (numa >= 0 && made->object.is_host()) prefer_node(base, size, numa);
        Iov::hand_over_wrap(std::move(made), iov, hf3fs_mount_point, block_size, numa);
        return {};
    });
}

void hf3fs_iovunlink(struct hf3fs_iov* iov) {
    (void)guarded("hf3fs_iovunlink", [&]() -> Result<void> {
        if (const auto found = Iov::of(iov)) found->unlink();
        return {};
    });
}

void hf3fs_iovdestroy(struct hf3fs_iov* iov) {
    (void)guarded("hf3fs_iovdestroy", [&]() -> Result<void> {
        Iov::destroy(iov);
        return {};
    });
}

}  // extern "C"
