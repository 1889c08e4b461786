// gshm.h: tensors of DLPack, and private copies. A tensor holds its object, so the lease ends with the last of both.
#include "client/dlpack.h"

#include <charconv>

#include "base/size.h"
#include "client/api.h"
#include "client/tensor_places.h"

using namespace gshm::core;
using namespace gshm::core::client;

namespace {

constexpr int32_t kMostDimensions = 64;

// The struct that the consumer sees, with everything it points to.
template <typename Tensor>
struct Managed {
    Tensor tensor = {};
    uint64_t generation = fork_count();
    gshm_object* object = nullptr;  // held; may be gone in a forked child
    std::vector<int64_t> numbers;   // the shape, then the strides

    // The consumer may call this in any thread, and while the process exits.
    static void destroy(Tensor* tensor) {
        if (tensor == nullptr) return;
        guarded([&]() -> Status {
            std::unique_ptr<Managed> gone(static_cast<Managed*>(tensor->manager_ctx));
            TRY(check_fork_count(gone->generation));
            if (gone->object->core) TensorPlaces::instance().remove(*gone->object);
            let_go_of_object(gone->object);
            return {};
        });
    }
};

Result<DLDevice> device_of(const gshm_object& object) {
    if (object.local == nullptr) {
        if (object.device == "host" && object.size_bytes == 0) return DLDevice{kDLCPU, 0};  // an empty object
        return fail(EOPNOTSUPP, "the object was opened with GSHM_NO_MAP: it has no address in this process");
    }
    constexpr std::string_view kCuda = "cuda:";
    const std::string& name = object.local->info().name;  // with the ordinal in this process
    if (name.starts_with(kCuda)) {
        int32_t ordinal = 0;
        const char* end = name.data() + name.size();
        if (std::from_chars(name.data() + kCuda.size(), end, ordinal).ptr == end) return DLDevice{kDLCUDA, ordinal};
    }
    if (object.extent() == nullptr || object.extent()->is_host_memory()) return DLDevice{kDLCPU, 0};
    return fail(EOPNOTSUPP, "DLPack does not know the device {}", name);
}

// Row-major without gaps. A dimension of 0 counts as 1, so that every stride is positive.
Status fill_strides(std::span<const int64_t> shape, std::span<int64_t> strides) {
    int64_t stride = 1;
    for (size_t i = shape.size(); i-- > 0;) {
        strides[i] = stride;
        if (__builtin_mul_overflow(stride, std::max<int64_t>(shape[i], 1), &stride)) {
            return fail(EINVAL, "the shape has too many elements");
        }
    }
    return {};
}

// The bytes from the first element to the end of the last; 0: the tensor is empty.
Result<uint64_t> extent_bytes(const gshm_tensor_spec& spec, std::span<const int64_t> shape,
                              std::span<const int64_t> strides) {
    const uint64_t bits = uint64_t{spec.type_bits} * spec.type_lanes;
    TRY(check_argument(bits > 0, "the type has no bits"));
    unsigned __int128 last = 0;
    bool empty = false;
    for (size_t i = 0; i < shape.size(); ++i) {
        TRY(check_argument(shape[i] >= 0 && strides[i] >= 0, "a negative number in the shape or the strides"));
        if (shape[i] == 0) empty = true;
        else last += static_cast<unsigned __int128>(shape[i] - 1) * static_cast<uint64_t>(strides[i]);
        TRY(check_argument(last <= limits::kObjectBytes * 8, "the tensor is larger than any object"));
    }
    if (empty) return 0;
    const unsigned __int128 bytes = ((last + 1) * bits + 7) / 8;
    TRY(check_argument(bytes <= limits::kObjectBytes, "the tensor is larger than any object"));
    return static_cast<uint64_t>(bytes);
}

Status fill_tensor(gshm_object& object, const gshm_tensor_spec& spec, std::vector<int64_t>& numbers, DLTensor& tensor) {
    TRY(check_argument(spec.dimensions >= 0 && spec.dimensions <= kMostDimensions, "dimensions are 0 to 64"));
    TRY(check_argument(spec.shape != nullptr || spec.dimensions == 0, "shape is NULL"));
    const auto count = static_cast<size_t>(spec.dimensions);
    numbers.resize(2 * count);
    const std::span shape = std::span(numbers).first(count);
    const std::span strides = std::span(numbers).last(count);
    std::copy_n(spec.shape, count, shape.begin());
    if (spec.strides != nullptr) std::copy_n(spec.strides, count, strides.begin());
    else TRY(fill_strides(shape, strides));
    const uint64_t bytes = TRY(extent_bytes(spec, shape, strides));
    TRY(check_range(object, spec.offset, bytes));
    tensor.device = TRY(device_of(object));
    auto* data = static_cast<char*>(gshm_data(&object));
    tensor.data = bytes == 0 ? nullptr : data + spec.offset;
    tensor.ndim = spec.dimensions;
    tensor.dtype = {spec.type_code, spec.type_bits, spec.type_lanes};
    tensor.shape = shape.data();
    tensor.strides = strides.data();
    return {};
}

DLTensor& tensor_in(DLManagedTensor& managed) {
    return managed.dl_tensor;
}
DLTensor& tensor_in(DLManagedTensorVersioned& managed) {
    return managed.dl_tensor;
}

template <typename Tensor>
Result<std::unique_ptr<Managed<Tensor>>> make_tensor(gshm_object& object, const gshm_tensor_spec& spec) {
    TRY(check_flags(spec.flags, GSHM_TENSOR_READ_ONLY | GSHM_TENSOR_COPIED, "tensor"));
    auto made = std::make_unique<Managed<Tensor>>();
    TRY(fill_tensor(object, spec, made->numbers, tensor_in(made->tensor)));
    made->object = &object;
    made->tensor.manager_ctx = made.get();
    made->tensor.deleter = Managed<Tensor>::destroy;
    if (object.core) TensorPlaces::instance().add(object);
    hold_object(object);
    return made;
}

// The functions of the interpreter. There is one in a process.
std::atomic<int (*)(void*, const char*)> capsule_is_valid = nullptr;
std::atomic<void* (*)(void*, const char*)> capsule_pointer = nullptr;

// A consumer renames a capsule when it takes the tensor.
void destroy_capsule(void* capsule) {
    if (capsule_is_valid.load()(capsule, "dltensor") != 0) {
        Managed<DLManagedTensor>::destroy(static_cast<DLManagedTensor*>(capsule_pointer.load()(capsule, "dltensor")));
    } else if (capsule_is_valid.load()(capsule, "dltensor_versioned") != 0) {
        Managed<DLManagedTensorVersioned>::destroy(
            static_cast<DLManagedTensorVersioned*>(capsule_pointer.load()(capsule, "dltensor_versioned")));
    }
}

}  // namespace

extern "C" {

int gshm_dlpack(gshm_object* object, const gshm_tensor_spec* spec, DLManagedTensor** ret_tensor) noexcept {
    return with_object(object, [&](gshm_object& of) -> Status {
        TRY(check_argument(spec != nullptr && ret_tensor != nullptr, "spec or ret_tensor is NULL"));
        *ret_tensor = &TRY(make_tensor<DLManagedTensor>(of, TRY(read_struct(spec)))).release()->tensor;
        return {};
    });
}

int gshm_dlpack_versioned(gshm_object* object, const gshm_tensor_spec* spec,
                          DLManagedTensorVersioned** ret_tensor) noexcept {
    return with_object(object, [&](gshm_object& of) -> Status {
        TRY(check_argument(spec != nullptr && ret_tensor != nullptr, "spec or ret_tensor is NULL"));
        const auto known = TRY(read_struct(spec));
        auto& tensor = TRY(make_tensor<DLManagedTensorVersioned>(of, known)).release()->tensor;
        const bool writable = !of.sealed && of.access == Access::write;
        tensor.version = {1, 1};
        if (!writable || (known.flags & GSHM_TENSOR_READ_ONLY) != 0) tensor.flags |= kDLReadOnly;
        if ((known.flags & GSHM_TENSOR_COPIED) != 0) tensor.flags |= kDLIsCopied;
        *ret_tensor = &tensor;
        return {};
    });
}

int gshm_dlpack_device(gshm_object* object, int32_t* ret_type, int32_t* ret_id) noexcept {
    return with_object(object, [&](gshm_object& of) -> Status {
        TRY(check_argument(ret_type != nullptr && ret_id != nullptr, "ret_type or ret_id is NULL"));
        const DLDevice device = TRY(device_of(of));
        *ret_type = device.device_type;
        *ret_id = device.device_id;
        return {};
    });
}

gshm_capsule_destructor gshm_dlpack_capsule(int (*is_valid)(void*, const char*),
                                            void* (*get_pointer)(void*, const char*)) noexcept {
    if (is_valid == nullptr || get_pointer == nullptr) return nullptr;
    capsule_is_valid = is_valid;
    capsule_pointer = get_pointer;
    return destroy_capsule;
}

int gshm_clone(gshm_object* object, uint64_t offset, uint64_t bytes, gshm_object** ret_object) noexcept {
    return with_object(object, [&](gshm_object& from) -> Status {
        TRY(check_argument(ret_object != nullptr, "ret_object is NULL"));
        TRY(check_range(from, offset, bytes));
        TRY(check_argument(bytes > 0, "a copy must have at least one byte"));
        TRY(check_argument(from.extent() != nullptr, "the object was opened with GSHM_NO_MAP"));
        auto copy = std::make_unique<gshm_object>();
        copy->own = TRY(from.local->allocate(round_up(bytes, from.local->info().granularity_bytes), {}));
        copy->local = from.local;
        copy->access = Access::write;
        copy->size_bytes = bytes;
        copy->device = from.local->info().name;
        TRY(from.extent()->sync());
        TRY(copy->own->copy_from(0, *from.extent(), from.offset + offset, bytes));
        *ret_object = copy.release();
        return {};
    });
}

}  // extern "C"
