// Compares our declarations with NVIDIA's cuda.h, if the machine has it. The static_asserts are the test.
#if __has_include(<cuda.h>)
#include <cuda.h>
#define GSHM_HAS_CUDA_H 1
#elif __has_include("/usr/local/cuda/include/cuda.h")
#include "/usr/local/cuda/include/cuda.h"
#define GSHM_HAS_CUDA_H 1
#endif

#include <cstddef>

#include <gtest/gtest.h>

#include "cuda/api.h"

#ifdef GSHM_HAS_CUDA_H

namespace ours = gshm::core::cuda;

#define SAME_SIZE(type, theirs) static_assert(sizeof(ours::type) == sizeof(theirs))
#define SAME_FIELD(type, theirs, field) static_assert(offsetof(ours::type, field) == offsetof(theirs, field))
#define SAME_VALUE(constant, theirs) static_assert(static_cast<int>(ours::constant) == static_cast<int>(theirs))

SAME_SIZE(CUdeviceptr, CUdeviceptr);
SAME_SIZE(CUmemGenericAllocationHandle, CUmemGenericAllocationHandle);
SAME_SIZE(CUuuid, CUuuid);
SAME_SIZE(CUmemLocation, CUmemLocation);
SAME_SIZE(CUmemAllocationProp, CUmemAllocationProp);
SAME_FIELD(CUmemAllocationProp, CUmemAllocationProp, type);
SAME_FIELD(CUmemAllocationProp, CUmemAllocationProp, requestedHandleTypes);
SAME_FIELD(CUmemAllocationProp, CUmemAllocationProp, location);
SAME_FIELD(CUmemAllocationProp, CUmemAllocationProp, win32HandleMetaData);
SAME_FIELD(CUmemAllocationProp, CUmemAllocationProp, allocFlags.compressionType);
SAME_FIELD(CUmemAllocationProp, CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
SAME_FIELD(CUmemAllocationProp, CUmemAllocationProp, allocFlags.usage);
SAME_SIZE(CUmemAccessDesc, CUmemAccessDesc);
SAME_FIELD(CUmemAccessDesc, CUmemAccessDesc, flags);
SAME_SIZE(CUmemFabricHandle, CUmemFabricHandle);
SAME_SIZE(CUipcMemHandle, CUipcMemHandle);
SAME_SIZE(CUexternalMemoryHandleDesc, CUDA_EXTERNAL_MEMORY_HANDLE_DESC);
SAME_FIELD(CUexternalMemoryHandleDesc, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, type);
SAME_FIELD(CUexternalMemoryHandleDesc, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, handle.fd);
SAME_FIELD(CUexternalMemoryHandleDesc, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size);
SAME_FIELD(CUexternalMemoryHandleDesc, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, flags);
SAME_SIZE(CUexternalMemoryBufferDesc, CUDA_EXTERNAL_MEMORY_BUFFER_DESC);
SAME_FIELD(CUexternalMemoryBufferDesc, CUDA_EXTERNAL_MEMORY_BUFFER_DESC, offset);
SAME_FIELD(CUexternalMemoryBufferDesc, CUDA_EXTERNAL_MEMORY_BUFFER_DESC, size);
SAME_FIELD(CUexternalMemoryBufferDesc, CUDA_EXTERNAL_MEMORY_BUFFER_DESC, flags);

SAME_VALUE(kSuccess, CUDA_SUCCESS);
SAME_VALUE(kErrorInvalidValue, CUDA_ERROR_INVALID_VALUE);
SAME_VALUE(kErrorOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
SAME_VALUE(kErrorNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
SAME_VALUE(kErrorDeinitialized, CUDA_ERROR_DEINITIALIZED);
SAME_VALUE(kErrorNoDevice, CUDA_ERROR_NO_DEVICE);
SAME_VALUE(kErrorInvalidDevice, CUDA_ERROR_INVALID_DEVICE);
SAME_VALUE(kErrorInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
SAME_VALUE(kErrorEccUncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE);
SAME_VALUE(kErrorNvlinkUncorrectable, CUDA_ERROR_NVLINK_UNCORRECTABLE);
SAME_VALUE(kErrorInvalidHandle, CUDA_ERROR_INVALID_HANDLE);
SAME_VALUE(kErrorNotReady, CUDA_ERROR_NOT_READY);
SAME_VALUE(kMemHostRegisterDeviceMap, CU_MEMHOSTREGISTER_DEVICEMAP);
SAME_VALUE(kStreamWaitValueAtLeast, CU_STREAM_WAIT_VALUE_GEQ);
SAME_VALUE(kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
SAME_VALUE(kEventBlockingSync, CU_EVENT_BLOCKING_SYNC);
SAME_VALUE(kEventDisableTiming, CU_EVENT_DISABLE_TIMING);
SAME_VALUE(kErrorIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME_VALUE(kErrorLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
SAME_VALUE(kErrorNotPermitted, CUDA_ERROR_NOT_PERMITTED);
SAME_VALUE(kErrorNotSupported, CUDA_ERROR_NOT_SUPPORTED);
SAME_VALUE(kErrorUnknown, CUDA_ERROR_UNKNOWN);
SAME_VALUE(kMemAllocationTypePinned, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME_VALUE(kMemLocationTypeDevice, CU_MEM_LOCATION_TYPE_DEVICE);
SAME_VALUE(kMemHandleTypePosixFd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME_VALUE(kMemHandleTypeFabric, CU_MEM_HANDLE_TYPE_FABRIC);
SAME_VALUE(kMemAccessProtRead, CU_MEM_ACCESS_FLAGS_PROT_READ);
SAME_VALUE(kMemAccessProtReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME_VALUE(kMemGranularityMinimum, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME_VALUE(kMemCompressionGeneric, CU_MEM_ALLOCATION_COMP_GENERIC);
SAME_VALUE(kMemRangeHandleTypeDmaBufFd, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
SAME_VALUE(kMemoryTypeHost, CU_MEMORYTYPE_HOST);
SAME_VALUE(kMemoryTypeDevice, CU_MEMORYTYPE_DEVICE);
SAME_VALUE(kPointerContext, CU_POINTER_ATTRIBUTE_CONTEXT);
SAME_VALUE(kPointerMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME_VALUE(kPointerDeviceOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME_VALUE(kIpcLazyEnablePeerAccess, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
SAME_VALUE(kAttributeVmmSupported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME_VALUE(kAttributePosixFdSupported, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
SAME_VALUE(kAttributeGenericCompression, CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED);
SAME_VALUE(kAttributeGpuDirectRdmaWithVmm, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
SAME_VALUE(kAttributeDmaBufSupported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
SAME_VALUE(kAttributeFabricSupported, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
#if CUDA_VERSION >= 13000
SAME_VALUE(kExternalMemoryDmaBufFd, CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD);
#endif

TEST(CudaApi, DeclarationsMatchCudaH) {
    SUCCEED() << "checked by the compiler against CUDA " << CUDA_VERSION;
}

#else

TEST(CudaApi, DeclarationsMatchCudaH) {
    GTEST_SKIP() << "this machine has no cuda.h";
}

#endif
