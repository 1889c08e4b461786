// fakecuda, a test double of NVIDIA's driver: the two kernels of examples/kernels.cu and the other calls of
// examples/test_client. Nothing is compiled: the names are recognised in the image, and a launch does the kernel's work
// on the CPU. It is complete when the call returns, after earlier work on the stream.
#include <algorithm>
#include <cstring>
#include <unistd.h>

#include "address.h"
#include "allocation.h"
#include "call.h"
#include "config.h"
#include "stream.h"

namespace fakecuda {
namespace {

constexpr const char* kNames[] = {"fill_pattern", "check_pattern"};  // in the order of enum Kernel
constexpr size_t kChunkWords = size_t{1} << 18;
constexpr int kPointerAttributeDeviceOrdinal = 9;

uint32_t pattern_at(uint64_t index) {  // as in examples/pattern.h
    return (static_cast<uint32_t>(index) * 2 + 1337) ^ 0xDEADBEEF;
}

bool has_entry(const char* ptx, const char* name) {
    const std::string entry = std::string(".entry ") + name + "(";
    return strstr(ptx, entry.c_str()) != nullptr;
}

CUmod_st* find_module(CUmodule module) {
    auto found = state().modules.find(module);
    return found == state().modules.end() ? nullptr : found->second.get();
}

CUfunc_st* find_function(CUfunction function) {
    for (auto& [key, module] : state().modules) {
        for (CUfunc_st& known : module->functions) {
            if (&known == function && known.present) return &known;
        }
    }
    return nullptr;
}

// Memory as a kernel in the call's context sees it. False: some of it is not mapped, or not for that.
class View {
public:
    View(Call& call, int wanted) : call_(call), wanted_(wanted) {}

    bool read(CUdeviceptr pointer, void* to, size_t bytes) {
        return walk(pointer, bytes, [&](int fd, off_t offset, size_t done, size_t left) {
            return pread(fd, static_cast<char*>(to) + done, left, offset);
        });
    }
    bool write(CUdeviceptr pointer, const void* from, size_t bytes) {
        return walk(pointer, bytes, [&](int fd, off_t offset, size_t done, size_t left) {
            return pwrite(fd, static_cast<const char*>(from) + done, left, offset);
        });
    }

private:
    template <typename Step>
    bool walk(CUdeviceptr pointer, size_t bytes, Step&& step) {
        for (size_t done = 0; done < bytes;) {
            CUdeviceptr start = 0;
            Mapping* mapping = call_.mapping(pointer + done, &start);
            if (mapping == nullptr) return false;
            auto access = mapping->access.find(call_.context_device().physical);
            if (access == mapping->access.end() || (access->second & wanted_) != wanted_) return false;
            const size_t skipped = pointer + done - start;
            const size_t left = std::min(bytes - done, mapping->size - skipped);
            ssize_t moved = step(mapping->memory->fd, static_cast<off_t>(mapping->offset + skipped), done, left);
            if (moved <= 0) return false;
            done += static_cast<size_t>(moved);
        }
        return true;
    }

    Call& call_;
    const int wanted_;
};

template <typename T>
T argument(void** parameters, size_t index) {
    T value;
    memcpy(&value, parameters[index], sizeof value);
    return value;
}

// Calls function(words, first index) for a stretch of the array after the other until one is false.
template <typename Function>
bool for_chunks(uint64_t count, Function&& function) {
    std::vector<uint32_t> words;
    for (uint64_t first = 0; first < count; first += words.size()) {
        words.resize(std::min<uint64_t>(kChunkWords, count - first));
        if (!function(words, first)) return false;
    }
    return true;
}

bool fill_pattern(Call& call, void** parameters) {
    const auto pointer = argument<CUdeviceptr>(parameters, 0);
    View memory(call, kMemAccessProtReadWrite);
    return for_chunks(argument<uint64_t>(parameters, 1), [&](std::vector<uint32_t>& words, uint64_t first) {
        for (size_t i = 0; i < words.size(); ++i) words[i] = pattern_at(first + i);
        return memory.write(pointer + first * sizeof(uint32_t), words.data(), words.size() * sizeof(uint32_t));
    });
}

bool check_pattern(Call& call, void** parameters) {
    const auto pointer = argument<CUdeviceptr>(parameters, 0);
    const auto counter = argument<CUdeviceptr>(parameters, 2);
    uint64_t wrong = 0;
    View memory(call, kMemAccessProtRead);
    const bool seen = for_chunks(argument<uint64_t>(parameters, 1), [&](std::vector<uint32_t>& words, uint64_t first) {
        if (!memory.read(pointer + first * sizeof(uint32_t), words.data(), words.size() * sizeof(uint32_t)))
            return false;
        for (size_t i = 0; i < words.size(); ++i) wrong += words[i] != pattern_at(first + i) ? 1 : 0;
        return true;
    });
    if (!seen || wrong == 0) return seen;
    uint64_t before = 0;
    View target(call, kMemAccessProtReadWrite);
    if (!target.read(counter, &before, sizeof before)) return false;
    before += wrong;
    return target.write(counter, &before, sizeof before);
}

}  // namespace

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
    Call call(Symbol::cuModuleLoadData, Scope::context);
    if (CUresult refused = call.refusal()) return refused;
    if (module == nullptr || image == nullptr) return kErrorInvalidValue;
    const char* ptx = static_cast<const char*>(image);
    if (strstr(ptx, ".version") == nullptr || strstr(ptx, ".target") == nullptr) return kErrorInvalidImage;
    auto made = std::make_unique<CUmod_st>();
    made->context = &call.context_device().context;
    for (size_t i = 0; i < std::size(kNames); ++i) {
        made->functions[i] = {static_cast<Kernel>(i), has_entry(ptx, kNames[i]), made.get()};
    }
    *module = made.get();
    state().modules[*module] = std::move(made);
    return kSuccess;
}

CUresult cuModuleUnload(CUmodule module) {
    Call call(Symbol::cuModuleUnload, Scope::context);
    if (CUresult refused = call.refusal()) return refused;
    return state().modules.erase(module) == 1 ? kSuccess : kErrorInvalidHandle;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
    Call call(Symbol::cuModuleGetFunction, Scope::context);
    if (CUresult refused = call.refusal()) return refused;
    if (function == nullptr || name == nullptr) return kErrorInvalidValue;
    CUmod_st* found = find_module(module);
    if (found == nullptr) return kErrorInvalidHandle;
    for (CUfunc_st& known : found->functions) {
        if (!known.present || strcmp(name, kNames[static_cast<size_t>(known.kernel)]) != 0) continue;
        *function = &known;
        return kSuccess;
    }
    return kErrorNotFound;
}

// A kernel's bad address is no error of the launch: the context is lost, and the next call in it says so.
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned, CUstream stream, void** parameters,
                        void** extra) {
    constexpr uint64_t kMaxThreads = 1024;
    Call call(Symbol::cuLaunchKernel, Scope::context);
    const bool known_stream = call.use_stream(stream);
    if (CUresult refused = call.refusal()) return refused;
    CUfunc_st* found = find_function(function);
    if (found == nullptr || !known_stream) return kErrorInvalidHandle;
    const uint64_t blocks = uint64_t{grid_x} * grid_y * grid_z;
    const uint64_t threads = uint64_t{block_x} * block_y * block_z;
    if (blocks == 0 || threads == 0 || threads > kMaxThreads || parameters == nullptr || extra != nullptr) {
        return kErrorInvalidValue;
    }
    if (found->module->context != &call.context_device().context) return kErrorInvalidHandle;
    Device& device = call.context_device();
    wait_for_turn(call, stream);
    if (argument<CUdeviceptr>(parameters, 0) % sizeof(uint32_t) != 0) {
        device.lost = kErrorMisalignedAddress;
    } else if (!(found->kernel == Kernel::fill_pattern ? fill_pattern : check_pattern)(call, parameters)) {
        device.lost = kErrorIllegalAddress;
    }
    return kSuccess;
}

// In whole large pages; undone by cuMemFree.
CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t size) {
    Call call(Symbol::cuMemAlloc_v2, Scope::context);
    if (CUresult refused = call.refusal()) return refused;
    Device& device = call.context_device();
    const size_t total = config().memory_bytes - others_bytes();
    if (pointer == nullptr || size == 0) return kErrorInvalidValue;
    if (device.used_bytes > total || size > total - device.used_bytes) return kErrorOutOfMemory;
    const size_t rounded = (size + kGranularity - 1) / kGranularity * kGranularity;
    auto memory = create_allocation(device, CUmemAllocationProp{}, rounded);
    const CUdeviceptr start = memory == nullptr ? 0 : reserve_addresses(rounded, kGranularity);
    if (start == 0) return kErrorOutOfMemory;
    Reservation& made = state().reservations[start];
    made.size = rounded;
    made.external = true;
    made.mappings[start] = {std::move(memory), 0, rounded, {{device.physical, kMemAccessProtReadWrite}}};
    *pointer = start;
    return kSuccess;
}

CUresult cuPointerGetAttribute(void* value, int attribute, CUdeviceptr pointer) {
    Call call(Symbol::cuPointerGetAttribute, Scope::memory);
    Mapping* found = call.mapping(pointer);
    if (CUresult refused = call.refusal()) return refused;
    if (value == nullptr || attribute != kPointerAttributeDeviceOrdinal || found == nullptr) return kErrorInvalidValue;
    int ordinal = 0;
    while (state().device(ordinal) != &found->memory->device) ++ordinal;
    memcpy(value, &ordinal, sizeof ordinal);
    return kSuccess;
}

}  // namespace fakecuda
