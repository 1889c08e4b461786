// hf3fs_usrbio_gdr.h: GPU memory, and its later spelling in hf3fs_usrbio.h.
#include "devices.h"
#include "gpu.h"

using namespace gshm;
using namespace gshm::usrbio;

namespace {

// These calls report a full GPU as ENOMEM.
template <typename Body>
int guarded_gpu(const char* call, Body&& body) {
    const int code = guarded(call, std::forward<Body>(body));
    return code == -ENOSPC ? -ENOMEM : code;
}

int create_gpu(const char* call, hf3fs_iov* iov, const char* mount_point, size_t size, size_t block_size, int gpu) {
    return guarded_gpu(call, [&]() -> Result<void> {
        TRY(check_iov_arguments(iov, mount_point, size));
        TRY(check_gpu(gpu));
        auto daemon = TRY(Daemon::find(mount_point));
        std::string device = TRY(name_at_daemon(*daemon, gpu));
        auto made = TRY(create_iov(std::move(daemon), size, device));
        made->gpu = gpu;
        Iov::hand_over(std::move(made), iov, mount_point, block_size, -1);
        return {};
    });
}

int open_gpu(const char* call, hf3fs_iov* iov, const uint8_t id[16], const char* mount_point, size_t size,
             size_t block_size, int gpu) {
    return guarded_gpu(call, [&]() -> Result<void> {
        TRY(check_iov_arguments(iov, mount_point, size));
        TRY(check_argument(id != nullptr, "id is NULL"));
        TRY(check_gpu(gpu));
        auto made = TRY(open_iov(TRY(Daemon::find(mount_point)), to_id(id), gpu));
        TRY(check_argument(made->size == size, "it has another size"));
        TRY(check_argument(made->gpu == gpu, "it is memory of another GPU"));
        made->id = to_id(id);
        Iov::hand_over(std::move(made), iov, mount_point, block_size, -1);
        return {};
    });
}

int wrap_gpu(const char* call, hf3fs_iov* iov, void* pointer, const uint8_t id[16], const char* mount_point,
             size_t size, size_t block_size, int gpu) {
    return guarded_gpu(call, [&]() -> Result<void> {
        TRY(check_iov_arguments(iov, mount_point, size));
        TRY(check_argument(pointer != nullptr && id != nullptr, "the pointer or the id is NULL"));
        TRY(check_gpu(gpu));
        auto made = std::make_unique<Iov>();
        made->daemon = TRY(Daemon::find(mount_point));
        made->object = TRY(Object::wrap(pointer, size));
        TRY(check_argument(gpus_are_host() || gpu_number(made->object.device()) == gpu,
                           "this is no memory of that GPU"));
        made->id = to_id(id);
        made->size = size;
        made->gpu = gpu;
        TRY(publish(*made));
        Iov::hand_over(std::move(made), iov, mount_point, block_size, -1);
        return {};
    });
}

int sync_iov(const char* call, const hf3fs_iov* iov, int direction, bool host_too) {
    return guarded_gpu(call, [&]() -> Result<void> {
        const auto found = Iov::of(iov);
        TRY(check_argument(found != nullptr && (host_too || found->gpu >= 0), "this is no iov of GPU memory"));
        TRY(check_argument(direction == 0 || direction == 1, "the direction is neither 0 nor 1"));
        // All bytes of a completed transfer are visible to later GPU work: no wait is needed.
        if (direction == 1) return {};
        return found->object.sync();
    });
}

}  // namespace

extern "C" {

bool hf3fs_gdr_available(void) {
    return hf3fs_gdr_device_count() > 0;
}

int hf3fs_gdr_device_count(void) {
    int count = 0;
    (void)guarded("hf3fs_gdr_device_count", [&]() -> Result<void> {
        count = gpu_count();
        return {};
    });
    return count;
}

int hf3fs_iovcreate_gpu(struct hf3fs_iov* iov, const char* hf3fs_mount_point, size_t size, size_t block_size,
                        int gpu_device_id) {
    return create_gpu("hf3fs_iovcreate_gpu", iov, hf3fs_mount_point, size, block_size, gpu_device_id);
}

int hf3fs_iovcreate_device(struct hf3fs_iov* iov, const char* hf3fs_mount_point, size_t size, size_t block_size,
                           int device_id) {
    return create_gpu("hf3fs_iovcreate_device", iov, hf3fs_mount_point, size, block_size, device_id);
}

int hf3fs_iovopen_gpu(struct hf3fs_iov* iov, const uint8_t id[16], const char* hf3fs_mount_point, size_t size,
                      size_t block_size, int gpu_device_id) {
    return open_gpu("hf3fs_iovopen_gpu", iov, id, hf3fs_mount_point, size, block_size, gpu_device_id);
}

int hf3fs_iovopen_device(struct hf3fs_iov* iov, const uint8_t id[16], const char* hf3fs_mount_point, size_t size,
                         size_t block_size, int device_id) {
    return open_gpu("hf3fs_iovopen_device", iov, id, hf3fs_mount_point, size, block_size, device_id);
}

int hf3fs_iovwrap_gpu(struct hf3fs_iov* iov, void* gpu_ptr, const uint8_t id[16], const char* hf3fs_mount_point,
                      size_t size, size_t block_size, int gpu_device_id) {
    return wrap_gpu("hf3fs_iovwrap_gpu", iov, gpu_ptr, id, hf3fs_mount_point, size, block_size, gpu_device_id);
}

int hf3fs_iovwrap_device(struct hf3fs_iov* iov, void* device_ptr, const uint8_t id[16], const char* hf3fs_mount_point,
                         size_t size, size_t block_size, int device_id) {
    return wrap_gpu("hf3fs_iovwrap_device", iov, device_ptr, id, hf3fs_mount_point, size, block_size, device_id);
}

void hf3fs_iovunlink_gpu(struct hf3fs_iov* iov) {
    hf3fs_iovunlink(iov);
}

void hf3fs_iovdestroy_gpu(struct hf3fs_iov* iov) {
    hf3fs_iovdestroy(iov);
}

bool hf3fs_iov_is_gpu(const struct hf3fs_iov* iov) {
    return hf3fs_iov_gpu_device(iov) >= 0;
}

int hf3fs_iov_gpu_device(const struct hf3fs_iov* iov) {
    const auto found = Iov::of(iov);
    return found != nullptr ? found->gpu : -1;
}

enum hf3fs_mem_type hf3fs_iov_mem_type(const struct hf3fs_iov* iov) {
    return hf3fs_iov_is_gpu(iov) ? HF3FS_MEM_DEVICE : HF3FS_MEM_HOST;
}

int hf3fs_iov_device_id(const struct hf3fs_iov* iov) {
    return hf3fs_iov_gpu_device(iov);
}

int hf3fs_iovsync_gpu(const struct hf3fs_iov* iov, int direction) {
    return sync_iov("hf3fs_iovsync_gpu", iov, direction, false);
}

int hf3fs_iovsync(const struct hf3fs_iov* iov, int direction) {
    return sync_iov("hf3fs_iovsync", iov, direction, true);
}

int hf3fs_iov_export_gpu(const struct hf3fs_iov* iov, hf3fs_gpu_ipc_handle_t* handle) {
    return guarded_gpu("hf3fs_iov_export_gpu", [&]() -> Result<void> {
        const auto found = Iov::of(iov);
        TRY(check_argument(found != nullptr && handle != nullptr, "iov or handle is NULL"));
        *handle = TRY(export_iov(*found));
        return {};
    });
}

int hf3fs_iov_import_gpu(struct hf3fs_iov* iov, const hf3fs_gpu_ipc_handle_t* handle, const char* hf3fs_mount_point) {
    return guarded_gpu("hf3fs_iov_import_gpu", [&]() -> Result<void> {
        TRY(check_iov_arguments(iov, hf3fs_mount_point, 1));
        TRY(check_argument(handle != nullptr, "handle is NULL"));
        auto made = TRY(import_iov(*handle, TRY(Daemon::find(hf3fs_mount_point))));
        if (made->id == Id{}) made->id = make_id();
        Iov::hand_over(std::move(made), iov, hf3fs_mount_point, 0, -1);
        return {};
    });
}

}  // extern "C"
