// fakecuda, a test double of NVIDIA's driver: everything it knows in one process, under one lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <sys/types.h>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "calls.h"

namespace fakecuda {

struct Device {
    int physical = 0;
    CUuuid uuid = {};
    size_t used_bytes = 0;     // by this process
    unsigned retained = 0;     // primary context; it exists while this is not 0
    CUresult lost = kSuccess;  // the sticky error, once there was one
    CUctx_st context = {};
};

enum class Kernel { fill_pattern, check_pattern };

// Callers hold pointers to these.
struct CUfunc_st {
    Kernel kernel = Kernel::fill_pattern;
    bool present = false;  // the image has it
    CUmodule module = nullptr;
};
struct CUmod_st {
    CUcontext context = nullptr;
    CUfunc_st functions[2];
};

// Memory of a device: a memfd with the data and one more page that identifies it in other processes. Made and destroyed
// under the lock; the memory itself lives while any process has the memfd.
class Allocation {
public:
    Allocation(int fd, ino_t inode, size_t size, Device& device, int types, bool compressed, bool rdma);
    ~Allocation();
    Allocation(const Allocation&) = delete;
    Allocation& operator=(const Allocation&) = delete;

    const int fd;
    const ino_t inode;
    const size_t size;
    Device& device;
    const int types;  // of handles it can be exported as
    const bool compressed;
    const bool rdma;
};

struct Handle {
    std::shared_ptr<Allocation> memory;
    bool imported = false;  // the driver forgets the handle types: such a handle cannot be exported again
};

struct Mapping {
    std::shared_ptr<Allocation> memory;
    size_t offset = 0;  // in the memory; 0 but for external memory
    size_t size = 0;
    std::map<int, int> access;  // physical device -> flags
};

struct Reservation {
    size_t size = 0;
    bool external = false;  // made by cuExternalMemoryGetMappedBuffer, undone by cuMemFree alone
    unsigned opened = 0;    // so often by cuIpcOpenMemHandle, undone by cuIpcCloseMemHandle alone
    std::map<CUdeviceptr, Mapping> mappings;
};

struct State {
    std::mutex mutex;
    std::atomic<pid_t> pid = 0;  // of the process that called cuInit

    // All below: under the lock.
    std::vector<std::unique_ptr<Device>> devices;  // by physical number
    std::vector<Device*> visible;                  // by ordinal
    std::unordered_map<CUmemGenericAllocationHandle, Handle> handles;
    std::unordered_map<ino_t, std::weak_ptr<Allocation>> allocations;
    std::map<CUdeviceptr, Reservation> reservations;
    std::unordered_set<CUstream> streams;
    std::unordered_set<CUevent> events;
    std::unordered_set<CUexternalMemory> external;
    std::map<const char*, const char*> registered;  // host memory: where each begins and ends
    std::unordered_map<CUmodule, std::unique_ptr<CUmod_st>> modules;
    CUmemGenericAllocationHandle next_handle = 0x10000;

    Device* device(CUdevice ordinal);                               // nullptr: no such device
    Device* device_of(CUcontext context);                           // nullptr: no context of ours
    Device* device_of(const CUuuid& uuid);                          // nullptr: not visible here
    Reservation* reservation_at(CUdeviceptr pointer, size_t size);  // the one that holds all of that range
    Mapping* mapping_at(CUdeviceptr pointer, CUdeviceptr* start);   // the one that holds that address
    bool is_stream(CUstream stream) const;                          // the default streams too
    bool is_registered(const void* memory) const;
    void drop_context(Device& device);  // and its streams, events and modules
};

State& state();

// The stack of current contexts of the calling thread.
std::vector<CUcontext>& context_stack();

}  // namespace fakecuda

// A dma-buf that was imported.
struct gshm::core::cuda::CUextMemory_st {
    std::shared_ptr<fakecuda::Allocation> memory;
    size_t offset = 0;
    size_t size = 0;
    CUcontext context = nullptr;
};
