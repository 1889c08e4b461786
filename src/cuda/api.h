// Declarations of the driver types and calls that gshm uses, so that the build needs no CUDA toolkit.
// tests/unit/cuda/api_layout_test.cc compares them with cuda.h if that header is installed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gshm::core::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUmemGenericAllocationHandle = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUexternalMemory = struct CUextMemory_st*;

struct CUuuid {
    char bytes[16];
};

struct CUmemLocation {
    int type;
    int id;
};

struct CUmemAllocationProp {
    int type;
    int requestedHandleTypes;
    CUmemLocation location;
    void* win32HandleMetaData;
    struct {
        unsigned char compressionType;
        unsigned char gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
};

struct CUmemAccessDesc {
    CUmemLocation location;
    int flags;
};

struct CUmemFabricHandle {
    unsigned char data[64];
};

struct CUipcMemHandle {
    char reserved[64];
};

struct CUexternalMemoryHandleDesc {
    int type;
    union {
        int fd;
        struct {
            void* handle;
            const void* name;
        } win32;
        const void* nvSciBufObject;
    } handle;
    unsigned long long size;
    unsigned int flags;
    unsigned int reserved[16];
};

struct CUexternalMemoryBufferDesc {
    unsigned long long offset;
    unsigned long long size;
    unsigned int flags;
    unsigned int reserved[16];
};

inline constexpr CUresult kSuccess = 0;
inline constexpr CUresult kErrorInvalidValue = 1;
inline constexpr CUresult kErrorOutOfMemory = 2;
inline constexpr CUresult kErrorNotInitialized = 3;
inline constexpr CUresult kErrorDeinitialized = 4;
inline constexpr CUresult kErrorNoDevice = 100;
inline constexpr CUresult kErrorInvalidDevice = 101;
inline constexpr CUresult kErrorInvalidContext = 201;
inline constexpr CUresult kErrorEccUncorrectable = 214;
inline constexpr CUresult kErrorNvlinkUncorrectable = 220;
inline constexpr CUresult kErrorContained = 226;
inline constexpr CUresult kErrorInvalidHandle = 400;
inline constexpr CUresult kErrorIllegalState = 401;
inline constexpr CUresult kErrorNotReady = 600;
inline constexpr CUresult kErrorIllegalAddress = 700;
inline constexpr CUresult kErrorHardwareStackError = 714;
inline constexpr CUresult kErrorMisalignedAddress = 716;
inline constexpr CUresult kErrorInvalidAddressSpace = 717;
inline constexpr CUresult kErrorInvalidPc = 718;
inline constexpr CUresult kErrorLaunchFailed = 719;
inline constexpr CUresult kErrorNotPermitted = 800;
inline constexpr CUresult kErrorNotSupported = 801;
inline constexpr CUresult kErrorSystemNotReady = 802;
inline constexpr CUresult kErrorExternalDevice = 911;
inline constexpr CUresult kErrorUnknown = 999;

inline constexpr int kMemAllocationTypePinned = 1;
inline constexpr int kMemLocationTypeDevice = 1;
inline constexpr int kMemHandleTypePosixFd = 1;
inline constexpr int kMemHandleTypeFabric = 8;
inline constexpr int kMemAccessProtRead = 1;
inline constexpr int kMemAccessProtReadWrite = 3;
inline constexpr int kMemGranularityMinimum = 0;
inline constexpr int kMemCompressionGeneric = 1;
inline constexpr int kMemRangeHandleTypeDmaBufFd = 1;
inline constexpr int kExternalMemoryDmaBufFd = 9;
inline constexpr unsigned kMemHostRegisterPortable = 1;
inline constexpr unsigned kMemHostRegisterDeviceMap = 2;
inline constexpr unsigned kStreamWaitValueAtLeast = 0;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventBlockingSync = 1;
inline constexpr unsigned kEventDisableTiming = 2;

inline constexpr unsigned kMemoryTypeHost = 1;
inline constexpr unsigned kMemoryTypeDevice = 2;
inline constexpr int kPointerContext = 1;
inline constexpr int kPointerMemoryType = 2;
inline constexpr int kPointerDeviceOrdinal = 9;
inline constexpr unsigned kIpcLazyEnablePeerAccess = 1;
inline constexpr uintptr_t kStreamLegacy = 1;     // a CUstream; the same as null
inline constexpr uintptr_t kStreamPerThread = 2;  // a CUstream; one per thread

inline constexpr int kAttributeVmmSupported = 102;
inline constexpr int kAttributePosixFdSupported = 103;
inline constexpr int kAttributeGenericCompression = 107;
inline constexpr int kAttributeGpuDirectRdmaWithVmm = 110;
inline constexpr int kAttributeDmaBufSupported = 124;
inline constexpr int kAttributeFabricSupported = 128;

// X(member, exported symbol, signature). The table in driver.h and the fake driver are generated from this list. The
// symbols are the versioned ones to which cuda.h maps the plain names.
#define GSHM_CUDA_CALLS(X)                                                                                             \
    X(init, cuInit, (unsigned flags))                                                                                  \
    X(driver_get_version, cuDriverGetVersion, (int* version))                                                          \
    X(get_error_name, cuGetErrorName, (CUresult error, const char** name))                                             \
    X(get_error_string, cuGetErrorString, (CUresult error, const char** text))                                         \
    X(device_get_count, cuDeviceGetCount, (int* count))                                                                \
    X(device_get, cuDeviceGet, (CUdevice * device, int ordinal))                                                       \
    X(device_get_name, cuDeviceGetName, (char* name, int length, CUdevice device))                                     \
    X(device_get_uuid, cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device))                                           \
    X(device_get_attribute, cuDeviceGetAttribute, (int* value, int attribute, CUdevice device))                        \
    X(device_total_mem, cuDeviceTotalMem_v2, (size_t* bytes, CUdevice device))                                         \
    X(device_can_access_peer, cuDeviceCanAccessPeer, (int* can, CUdevice device, CUdevice peer))                       \
    X(primary_ctx_retain, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                            \
    X(primary_ctx_release, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                            \
    X(primary_ctx_get_state, cuDevicePrimaryCtxGetState, (CUdevice device, unsigned* flags, int* active))              \
    X(ctx_get_current, cuCtxGetCurrent, (CUcontext * context))                                                         \
    X(ctx_push, cuCtxPushCurrent_v2, (CUcontext context))                                                              \
    X(ctx_pop, cuCtxPopCurrent_v2, (CUcontext * context))                                                              \
    X(mem_get_info, cuMemGetInfo_v2, (size_t* free_bytes, size_t* total_bytes))                                        \
    X(mem_granularity, cuMemGetAllocationGranularity,                                                                  \
      (size_t* granularity, const CUmemAllocationProp* properties, int option))                                        \
    X(mem_create, cuMemCreate,                                                                                         \
      (CUmemGenericAllocationHandle * handle, size_t size, const CUmemAllocationProp* properties,                      \
       unsigned long long flags))                                                                                      \
    X(mem_release, cuMemRelease, (CUmemGenericAllocationHandle handle))                                                \
    X(mem_export, cuMemExportToShareableHandle,                                                                        \
      (void* shareable, CUmemGenericAllocationHandle handle, int type, unsigned long long flags))                      \
    X(mem_import, cuMemImportFromShareableHandle, (CUmemGenericAllocationHandle * handle, void* shareable, int type))  \
    X(mem_get_properties, cuMemGetAllocationPropertiesFromHandle,                                                      \
      (CUmemAllocationProp * properties, CUmemGenericAllocationHandle handle))                                         \
    X(mem_address_reserve, cuMemAddressReserve,                                                                        \
      (CUdeviceptr * pointer, size_t size, size_t alignment, CUdeviceptr address, unsigned long long flags))           \
    X(mem_address_free, cuMemAddressFree, (CUdeviceptr pointer, size_t size))                                          \
    X(mem_map, cuMemMap,                                                                                               \
      (CUdeviceptr pointer, size_t size, size_t offset, CUmemGenericAllocationHandle handle,                           \
       unsigned long long flags))                                                                                      \
    X(mem_unmap, cuMemUnmap, (CUdeviceptr pointer, size_t size))                                                       \
    X(mem_set_access, cuMemSetAccess,                                                                                  \
      (CUdeviceptr pointer, size_t size, const CUmemAccessDesc* descriptors, size_t count))                            \
    X(mem_get_range_handle, cuMemGetHandleForAddressRange,                                                             \
      (void* handle, CUdeviceptr pointer, size_t size, int type, unsigned long long flags))                            \
    X(import_external_memory, cuImportExternalMemory,                                                                  \
      (CUexternalMemory * memory, const CUexternalMemoryHandleDesc* descriptor))                                       \
    X(external_memory_map, cuExternalMemoryGetMappedBuffer,                                                            \
      (CUdeviceptr * pointer, CUexternalMemory memory, const CUexternalMemoryBufferDesc* descriptor))                  \
    X(destroy_external_memory, cuDestroyExternalMemory, (CUexternalMemory memory))                                     \
    X(pointer_get_attributes, cuPointerGetAttributes,                                                                  \
      (unsigned count, int* attributes, void** values, CUdeviceptr pointer))                                           \
    X(mem_get_address_range, cuMemGetAddressRange_v2, (CUdeviceptr * base, size_t* size, CUdeviceptr pointer))         \
    X(ipc_get_mem_handle, cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr pointer))                           \
    X(ipc_open_mem_handle, cuIpcOpenMemHandle_v2, (CUdeviceptr * pointer, CUipcMemHandle handle, unsigned flags))      \
    X(ipc_close_mem_handle, cuIpcCloseMemHandle, (CUdeviceptr pointer))                                                \
    X(mem_free, cuMemFree_v2, (CUdeviceptr pointer))                                                                   \
    X(memcpy_htod_async, cuMemcpyHtoDAsync_v2,                                                                         \
      (CUdeviceptr destination, const void* source, size_t bytes, CUstream stream))                                    \
    X(memcpy_dtoh_async, cuMemcpyDtoHAsync_v2, (void* destination, CUdeviceptr source, size_t bytes, CUstream stream)) \
    X(memcpy_dtod_async, cuMemcpyDtoDAsync_v2,                                                                         \
      (CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream))                                    \
    X(mem_host_register, cuMemHostRegister_v2, (void* memory, size_t bytes, unsigned flags))                           \
    X(mem_host_get_device_pointer, cuMemHostGetDevicePointer_v2,                                                       \
      (CUdeviceptr * pointer, void* memory, unsigned flags))                                                           \
    X(stream_wait_value64, cuStreamWaitValue64_v2,                                                                     \
      (CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags))                                          \
    X(stream_write_value64, cuStreamWriteValue64_v2,                                                                   \
      (CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags))                                          \
    X(mem_host_unregister, cuMemHostUnregister, (void* memory))                                                        \
    X(memset_d8_async, cuMemsetD8Async, (CUdeviceptr destination, unsigned char value, size_t bytes, CUstream stream)) \
    X(stream_create, cuStreamCreate, (CUstream * stream, unsigned flags))                                              \
    X(stream_destroy, cuStreamDestroy_v2, (CUstream stream))                                                           \
    X(stream_synchronize, cuStreamSynchronize, (CUstream stream))                                                      \
    X(event_create, cuEventCreate, (CUevent * event, unsigned flags))                                                  \
    X(event_record, cuEventRecord, (CUevent event, CUstream stream))                                                   \
    X(event_synchronize, cuEventSynchronize, (CUevent event))                                                          \
    X(event_query, cuEventQuery, (CUevent event))                                                                      \
    X(event_destroy, cuEventDestroy_v2, (CUevent event))                                                               \
    X(stream_wait_event, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))                          \
    X(stream_get_id, cuStreamGetId, (CUstream stream, unsigned long long* id))                                         \
    X(device_get_pci_bus_id, cuDeviceGetPCIBusId, (char* bus_id, int length, CUdevice device))

}  // namespace gshm::core::cuda
