#include "device/cuda_queues.h"

#include <atomic>

#include "device/cuda.h"

namespace gshm {
namespace {

cuda::CUstream as_stream(void* queue) {
    return static_cast<cuda::CUstream>(queue);
}

cuda::CUevent as_event(Queues::Mark mark) {
    return static_cast<cuda::CUevent>(mark);
}

// For drivers without stream ids (before CUDA 12): handles, which are reused after a stream is destroyed. The
// per-thread stream has the same handle in all threads.
uint64_t number_of(void* queue) {
    static std::atomic<uint64_t> threads = 0;
    thread_local const uint64_t mine = ++threads;
    const auto handle = reinterpret_cast<uintptr_t>(queue);
    if (handle == cuda::kStreamPerThread) return mine << 2 | 3;  // not an address
    return handle == 0 ? cuda::kStreamLegacy : handle;
}

}  // namespace

Result<std::unique_ptr<CudaQueues>> CudaQueues::create(const cuda::Driver& driver, cuda::CUcontext context) {
    if (driver.stream_wait_event == nullptr || driver.event_create == nullptr || driver.event_query == nullptr) {
        return fail(EOPNOTSUPP, "the CUDA driver is too old: streams cannot wait for each other");
    }
    return std::unique_ptr<CudaQueues>(new CudaQueues(driver, context));
}

CudaQueues::~CudaQueues() {
    MutexLock lock(mutex_);
    for (auto* event : unused_) driver_.event_destroy(event);
}

Result<uint64_t> CudaQueues::identify(void* queue) {
    if (driver_.stream_get_id == nullptr) return number_of(queue);
    cuda::ScopedContext current(driver_, context_);
    TRY(current.status());
    unsigned long long id = 0;
    TRY(driver_.check("cuStreamGetId", driver_.stream_get_id(as_stream(queue), &id)));
    return id;
}

Result<Queues::Mark> CudaQueues::record(void* queue) {
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
    if (auto result = driver_.event_record(event, as_stream(queue)); result != cuda::kSuccess) {
        drop(event);
        return driver_.failure("cuEventRecord", result);
    }
    return event;
}

Status CudaQueues::record(void* queue, Mark mark) {
    cuda::ScopedContext current(driver_, context_);
    TRY(current.status());
    return driver_.check("cuEventRecord", driver_.event_record(as_event(mark), as_stream(queue)));
}

bool CudaQueues::is_passed(Mark mark) {
    return driver_.event_query(as_event(mark)) == cuda::kSuccess;
}

Status CudaQueues::follow(void* queue, Mark mark) {
    cuda::ScopedContext current(driver_, context_);
    TRY(current.status());
    return driver_.check("cuStreamWaitEvent", driver_.stream_wait_event(as_stream(queue), as_event(mark), 0));
}

Status CudaQueues::wait(Mark mark) {
    return driver_.check("cuEventSynchronize", driver_.event_synchronize(as_event(mark)));
}

void CudaQueues::drop(Mark mark) {
    MutexLock lock(mutex_);
    unused_.push_back(as_event(mark));
}

Status CudaQueues::put_on(void* queue, const char* what, ValueCall call, std::atomic<uint64_t>& word, uint64_t value) {
    if (call == nullptr) return fail(EOPNOTSUPP, "this CUDA driver has no {}", what);
    cuda::ScopedContext current(driver_, context_);
    TRY(current.status());
    cuda::CUdeviceptr address = 0;
    TRY(driver_.check("cuMemHostGetDevicePointer", driver_.mem_host_get_device_pointer(&address, &word, 0)));
    return driver_.check(what, call(as_stream(queue), address, value, 0));
}

Status CudaQueues::signal(void* queue, std::atomic<uint64_t>& word, uint64_t value) {
    return put_on(queue, "cuStreamWriteValue64", driver_.stream_write_value64, word, value);
}

Status CudaQueues::hold(void* queue, std::atomic<uint64_t>& word, uint64_t value) {
    static_assert(cuda::kStreamWaitValueAtLeast == 0);
    return put_on(queue, "cuStreamWaitValue64", driver_.stream_wait_value64, word, value);
}

Result<std::unique_ptr<Queues>> CudaDevice::make_queues() {
    auto* owner = TRY(context());
    return TRY(CudaQueues::create(driver_, owner));
}

}  // namespace gshm
