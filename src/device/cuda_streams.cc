#include "device/cuda_streams.h"

#include <atomic>

#include "device/cuda.h"

namespace gshm::core {
namespace {

cuda::CUstream as_stream(void* stream) {
    return static_cast<cuda::CUstream>(stream);
}

cuda::CUevent as_event(Streams::Mark mark) {
    return static_cast<cuda::CUevent>(mark);
}

// For drivers without stream ids (before CUDA 12): handles, which are reused after a stream is destroyed. The
// per-thread stream has the same handle in all threads.
uint64_t number_of(void* stream) {
    static std::atomic<uint64_t> threads = 0;
    thread_local const uint64_t mine = ++threads;
    const auto handle = reinterpret_cast<uintptr_t>(stream);
    if (handle == cuda::kStreamPerThread) return mine << 2 | 3;  // not an address
    return handle == 0 ? cuda::kStreamLegacy : handle;
}

}  // namespace

Result<std::unique_ptr<CudaStreams>> CudaStreams::create(const cuda::Driver& driver, cuda::CUcontext context) {
    if (driver.stream_wait_event == nullptr || driver.event_create == nullptr || driver.event_query == nullptr) {
        return fail(EOPNOTSUPP, "the CUDA driver is too old: streams cannot wait for each other");
    }
    return std::unique_ptr<CudaStreams>(new CudaStreams(driver, context));
}

CudaStreams::~CudaStreams() {
    MutexLock lock(mutex_);
    for (auto* event : unused_) driver_.event_destroy(event);
}

Result<uint64_t> CudaStreams::identify(void* stream) {
    if (driver_.stream_get_id == nullptr) return number_of(stream);
    const bool is_legacy = stream == nullptr || reinterpret_cast<uintptr_t>(stream) == cuda::kStreamLegacy;
    if (is_legacy && legacy_known_.load(std::memory_order_acquire)) return legacy_id_.load(std::memory_order_relaxed);
    cuda::ScopedContext current(driver_, context_);
    TRY(current.status());
    unsigned long long id = 0;
    TRY(driver_.check("cuStreamGetId", driver_.stream_get_id(as_stream(stream), &id)));
    if (is_legacy) {
        legacy_id_.store(id, std::memory_order_relaxed);
        legacy_known_.store(true, std::memory_order_release);
    }
    return id;
}

Result<Streams::Mark> CudaStreams::record(void* stream) {
    cuda::ScopedContext current(driver_, context_);
    TRY(current.status());
    cuda::CUevent event = nullptr;
    {
        MutexLock lock(mutex_);
        if (!unused_.empty()) {
            event = unused_.back();
            unused_.pop_back();
        }
    }
    if (event == nullptr) {
        TRY(driver_.check("cuEventCreate", driver_.event_create(&event, cuda::kEventDisableTiming)));
    }
    if (auto result = driver_.event_record(event, as_stream(stream)); result != cuda::kSuccess) {
        drop(event);
        return driver_.failure("cuEventRecord", result);
    }
    return event;
}

Status CudaStreams::record(void* stream, Mark mark) {
    cuda::ScopedContext current(driver_, context_);
    TRY(current.status());
    return driver_.check("cuEventRecord", driver_.event_record(as_event(mark), as_stream(stream)));
}

bool CudaStreams::is_passed(Mark mark) {
    return driver_.event_query(as_event(mark)) == cuda::kSuccess;
}

Status CudaStreams::follow(void* stream, Mark mark) {
    cuda::ScopedContext current(driver_, context_);
    TRY(current.status());
    return driver_.check("cuStreamWaitEvent", driver_.stream_wait_event(as_stream(stream), as_event(mark), 0));
}

Status CudaStreams::wait(Mark mark) {
    return driver_.check("cuEventSynchronize", driver_.event_synchronize(as_event(mark)));
}

void CudaStreams::drop(Mark mark) {
    MutexLock lock(mutex_);
    unused_.push_back(as_event(mark));
}

Status CudaStreams::put_on(void* stream, const char* what, ValueCall call, std::atomic<uint64_t>& word,
                           uint64_t value) {
    if (call == nullptr) return fail(EOPNOTSUPP, "this CUDA driver has no {}", what);
    cuda::ScopedContext current(driver_, context_);
    TRY(current.status());
    cuda::CUdeviceptr address = 0;
    TRY(driver_.check("cuMemHostGetDevicePointer", driver_.mem_host_get_device_pointer(&address, &word, 0)));
    return driver_.check(what, call(as_stream(stream), address, value, 0));
}

Status CudaStreams::signal(void* stream, std::atomic<uint64_t>& word, uint64_t value) {
    return put_on(stream, "cuStreamWriteValue64", driver_.stream_write_value64, word, value);
}

Status CudaStreams::hold(void* stream, std::atomic<uint64_t>& word, uint64_t value) {
    static_assert(cuda::kStreamWaitValueAtLeast == 0);
    return put_on(stream, "cuStreamWaitValue64", driver_.stream_wait_value64, word, value);
}

Result<std::unique_ptr<Streams>> CudaDevice::make_streams() {
    auto* owner = TRY(context());
    return TRY(CudaStreams::create(driver_, owner));
}

}  // namespace gshm::core
