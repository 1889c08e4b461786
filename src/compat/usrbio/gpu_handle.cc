#include "gpu_handle.h"

#include <cstring>

#include "devices.h"

namespace gshm::usrbio {
namespace {

constexpr char kMagic[8] = {'g', 's', 'h', 'm', 'o', 'b', 'j', '1'};
constexpr unsigned kNumberBits = 6;
constexpr unsigned kOffsetShift = kNumberBits + kFingerprintBits;

struct Packed {
    union {
        struct {
            char magic[8];
            uint64_t instance;
            uint64_t object;
            uint8_t id[16];
            uint8_t zero[24];
        } object;
        uint8_t cuda[GSHM_IPC_HANDLE_BYTES];
    };
    uint64_t size;
    uint64_t device;
};
static_assert(sizeof(Packed) == sizeof(hf3fs_gpu_ipc_handle_t) && offsetof(Packed, size) == 64);

constexpr uint64_t low_bits(uint64_t value, unsigned bits) {
    return value & ((uint64_t{1} << bits) - 1);
}

}  // namespace

Result<hf3fs_gpu_ipc_handle_t> pack(const GpuHandle& handle) {
    Packed packed = {};
    packed.size = handle.size;
    packed.device = static_cast<uint64_t>(handle.gpu);
    if (const auto* object = std::get_if<ObjectHandle>(&handle.memory)) {
        memcpy(packed.object.magic, kMagic, sizeof kMagic);
        packed.object.instance = object->instance;
        packed.object.object = object->object;
        memcpy(packed.object.id, object->id.data(), object->id.size());
    } else {
        const auto& cuda = std::get<CudaHandle>(handle.memory);
        const bool fits = handle.gpu < 1 << kNumberBits && cuda.offset >> (64 - kOffsetShift) == 0;
        if (!fits) return Error{ENOTSUP, "the offset of the memory in its allocation is too large for a handle"};
        memcpy(packed.cuda, cuda.handle.data(), cuda.handle.size());
        packed.device |= cuda.fingerprint << kNumberBits | cuda.offset << kOffsetShift;
    }
    hf3fs_gpu_ipc_handle_t result = {};
    memcpy(result.data, &packed, sizeof packed);
    return result;
}

Result<GpuHandle> unpack(const hf3fs_gpu_ipc_handle_t& handle) {
    Packed packed = {};
    memcpy(&packed, handle.data, sizeof packed);
    GpuHandle result;
    result.size = packed.size;
    TRY(check_argument(packed.size > 0, "this is no handle: its size is 0"));
    if (memcmp(packed.object.magic, kMagic, sizeof kMagic) == 0) {
        TRY(check_argument(packed.device <= INT_MAX, "this is no handle: no GPU has that number"));
        result.gpu = static_cast<int>(packed.device);
        result.memory = ObjectHandle{packed.object.instance, packed.object.object, to_id(packed.object.id)};
        return result;
    }
    CudaHandle cuda;
    memcpy(cuda.handle.data(), packed.cuda, sizeof packed.cuda);
    result.gpu = static_cast<int>(low_bits(packed.device, kNumberBits));
    cuda.fingerprint = low_bits(packed.device >> kNumberBits, kFingerprintBits);
    cuda.offset = packed.device >> kOffsetShift;
    result.memory = cuda;
    return result;
}

}  // namespace gshm::usrbio
