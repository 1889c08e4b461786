#include "gpu.h"

#include <cstring>

#include "devices.h"

namespace gshm::usrbio {
namespace {

// An attribute of an object without memory that represents memory of its creator.
constexpr char kHandleAttribute[] = "usrbio.handle";

Result<Object> open_cuda(const CudaHandle& cuda, uint64_t size, int gpu) {
    HandleInfo info = {};
    info.kind = GSHM_HANDLE_IPC;
    info.extent_bytes = cuda.offset + size;  // the rest of the allocation does not matter
    info.offset = cuda.offset;
    info.size_bytes = size;
    return Object::import_ipc(fmt::format("cuda:{}", gpu), cuda.handle, info, true);
}

Result<std::unique_ptr<Iov>> import_cuda(const CudaHandle& cuda, const GpuHandle& handle) {
    if (gpus_are_host()) return Error{ENOTSUP, "a handle of GPU memory cannot be used with GSHM_USRBIO_DEVICE=host"};
    const int count = gpu_count();
    if (count == 0) return Error{ENOTSUP, "this process sees no GPU"};
    Error last{ENODEV, "the GPU of the handle is not visible in this process: check CUDA_VISIBLE_DEVICES"};
    // The exporter's number first; it may be another GPU here.
    for (int i = -1; i < count; ++i) {
        const int gpu = i < 0 ? handle.gpu : i;
        if (i == handle.gpu || gpu >= count) continue;
        if (cuda.fingerprint == 0 ? i >= 0 : gpu_fingerprint(gpu).value_or(0) != cuda.fingerprint) continue;
        auto opened = open_cuda(cuda, handle.size, gpu);
        if (!opened) {
            last = std::move(opened).error();
            continue;
        }
        auto made = std::make_unique<Iov>();
        made->object = *std::move(opened);
        made->gpu = gpu;
        made->imported = TRY(pack(handle));
        return made;
    }
    return last;
}

Result<std::unique_ptr<Iov>> import_object(const ObjectHandle& object, const GpuHandle& handle,
                                           std::shared_ptr<Daemon> daemon) {
    TRY(check_argument(object.instance == daemon->instance(),
                       "the handle is of another gshmd, or of one that is gone"));
    auto made = std::make_unique<Iov>();
    made->object = TRY(daemon->client().open_id(object.object, {.write = true}));
    TRY(check_argument(made->object.size() == handle.size, "the handle is of another object"));
    made->gpu = TRY(number_here(*daemon, std::string(made->object.device()), handle.gpu));
    made->id = object.id;
    made->daemon = std::move(daemon);
    return made;
}

}  // namespace

Result<hf3fs_gpu_ipc_handle_t> export_iov(Iov& iov) {
    TRY(check_argument(iov.gpu >= 0, "this is host memory"));
    if (iov.imported) return *iov.imported;
    GpuHandle handle;
    handle.size = iov.size;
    handle.gpu = iov.gpu;
    if (iov.object.id() != 0) {
        handle.memory = ObjectHandle{iov.daemon->instance(), iov.object.id(), iov.id};
    } else {
        auto exported = TRY(iov.object.export_ipc());
        handle.memory = CudaHandle{exported.handle, TRY(gpu_fingerprint(iov.gpu)), exported.info.offset};
    }
    return pack(handle);
}

Result<std::unique_ptr<Iov>> import_iov(const hf3fs_gpu_ipc_handle_t& packed, std::shared_ptr<Daemon> daemon) {
    const auto handle = TRY(unpack(packed));
    const auto* object = std::get_if<ObjectHandle>(&handle.memory);
    auto made = object != nullptr ? TRY(import_object(*object, handle, std::move(daemon)))
                                  : TRY(import_cuda(std::get<CudaHandle>(handle.memory), handle));
    made->size = handle.size;
    return made;
}

Result<void> publish(Iov& iov) {
    auto handle = export_iov(iov);
    if (!handle) {
        log_info("this memory cannot be opened by its id elsewhere: {}", handle.error().message);
        return {};
    }
    std::string name = name_of(iov.id);
    const gshm_attribute attribute = {kHandleAttribute, handle->data, sizeof handle->data};
    gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
    spec.name = name.c_str();
    spec.flags = GSHM_EMPTY | GSHM_NO_MAP;
    spec.attributes = &attribute;
    spec.attribute_count = 1;
    iov.publication = TRY(iov.daemon->create(name, [&]() -> Result<Object> {
        gshm_object* made = nullptr;
        if (int code = gshm_create(iov.daemon->client().get(), &spec, &made); code != 0)
            return Error{-code, gshm_last_error()};
        return Object::adopt(made);
    }));
    iov.name = std::move(name);
    return {};
}

Result<std::unique_ptr<Iov>> open_iov(std::shared_ptr<Daemon> daemon, const Id& id, int gpu) {
    const std::string name = name_of(id);
    auto published = daemon->client().attribute(name, kHandleAttribute);
    if (published) {
        hf3fs_gpu_ipc_handle_t handle = {};
        TRY(check_argument(published->size() == sizeof handle.data, "the object with that id is not memory"));
        memcpy(handle.data, published->data(), sizeof handle.data);
        return import_iov(handle, std::move(daemon));
    }
    if (published.error().code != ENODATA) return std::move(published).error();
    auto made = std::make_unique<Iov>();
    made->object = TRY(daemon->client().open(name, {.write = true}));
    made->size = made->object.size();
    TRY(check_argument(made->object.device() == TRY(name_at_daemon(*daemon, gpu)), "it is memory of another device"));
    made->gpu = gpu;
    made->daemon = std::move(daemon);
    return made;
}

}  // namespace gshm::usrbio
