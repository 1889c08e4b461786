#include "client/pool/torch_error.h"

#include <cerrno>
#include <cxxabi.h>
#include <dlfcn.h>
#include <memory>
#include <new>
#include <stdexcept>

namespace gshm::core::client {
namespace {

// A library that the process has loaded already; null: it has not.
class Loaded {
public:
    explicit Loaded(const char* name) : handle_(dlopen(name, RTLD_LAZY | RTLD_NOLOAD | RTLD_LOCAL)) {}
    Loaded(const Loaded&) = delete;
    Loaded& operator=(const Loaded&) = delete;
    ~Loaded() {
        if (handle_ != nullptr) dlclose(handle_);
    }
    void* find(const char* symbol) const { return handle_ != nullptr ? dlsym(handle_, symbol) : nullptr; }

private:
    void* handle_;
};

// torch calls gshm_malloc() for every tensor: torch::cuda::CUDAPluggableAllocator::getCurrentAllocator() is set by
// change_current_allocator() alone.
bool is_current_allocator_of_torch() {
    for (const char* library : {"libtorch_cuda.so", "libtorch_python.so"}) {
        void* symbol = Loaded(library).find("_ZN5torch4cuda22CUDAPluggableAllocator19getCurrentAllocatorEv");
        if (symbol == nullptr) continue;
        auto get = reinterpret_cast<std::shared_ptr<void> (*)()>(symbol);
        return get() != nullptr;
    }
    return false;
}

// The parts of c10::OutOfMemoryError, a c10::Error without further members. Null if this torch has others (before 2.6 its
// strings are of another ABI).
struct OutOfMemoryError {
    struct SourceLocation {
        const char* function;
        const char* file;
        uint32_t line;
    };
    using Construct = void (*)(void* place, SourceLocation where, std::string message);  // of c10::Error

    Construct construct = nullptr;
    std::type_info* type = nullptr;
    void** vtable = nullptr;

    static OutOfMemoryError find() {
        const Loaded base("libc10.so");
        const Loaded cuda("libc10_cuda.so");
        OutOfMemoryError found;
        found.construct =
            reinterpret_cast<Construct>(base.find("_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_"
                                                  "stringIcSt11char_traitsIcESaIcEEE"));
        found.type = static_cast<std::type_info*>(cuda.find("_ZTIN3c1016OutOfMemoryErrorE"));
        found.vtable = static_cast<void**>(cuda.find("_ZTVN3c1016OutOfMemoryErrorE"));
        return found;
    }
    bool is_complete() const { return construct != nullptr && type != nullptr && vtable != nullptr; }

    [[noreturn]] void raise(const std::string& message) const {
        constexpr size_t kBytes = 1024;  // 128 in torch 2.11; the exact size is not known here
        void* exception = abi::__cxa_allocate_exception(kBytes);
        construct(exception, {"gshm_malloc", "libgshm", 0}, message);
        *static_cast<void***>(exception) = vtable + 2;  // after the offset to the top and the type
        abi::__cxa_throw(exception, type, [](void* thrown) { static_cast<std::exception*>(thrown)->~exception(); });
    }
};

class OutOfMemory final : public std::bad_alloc {
public:
    explicit OutOfMemory(std::string message) : message_(std::move(message)) {}
    const char* what() const noexcept override { return message_.c_str(); }

private:
    std::string message_;
};

}  // namespace

void throw_if_torch_expects_it(const Error& error) {
    if (!is_current_allocator_of_torch()) return;
    if (error.code != ENOMEM && error.code != ENOSPC) throw std::runtime_error("gshm: " + error.message);
    // "out of memory" is what programs look for that catch RuntimeError.
    const std::string message = "CUDA out of memory: gshm: " + error.message;
    if (const auto torchs = OutOfMemoryError::find(); torchs.is_complete()) torchs.raise(message);
    throw OutOfMemory(message);
}

}  // namespace gshm::core::client
