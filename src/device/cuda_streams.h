// CUDA streams. Marks are events, which are reused.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "cuda/driver.h"
#include "device/streams.h"

namespace gshm::core {

class CudaStreams final : public Streams {
public:
    // For streams of this context, which must outlive this object. EOPNOTSUPP: the driver is too old.
    static Result<std::unique_ptr<CudaStreams>> create(const cuda::Driver& driver, cuda::CUcontext context);
    ~CudaStreams() override;

    Result<uint64_t> identify(void* stream) override;
    Result<Mark> record(void* stream) override EXCLUDES(mutex_);
    Status record(void* stream, Mark mark) override;
    bool is_passed(Mark mark) override;
    Status follow(void* stream, Mark mark) override;
    Status wait(Mark mark) override;
    void drop(Mark mark) override EXCLUDES(mutex_);
    Status signal(void* stream, std::atomic<uint64_t>& word, uint64_t value) override;
    Status hold(void* stream, std::atomic<uint64_t>& word, uint64_t value) override;

private:
    CudaStreams(const cuda::Driver& driver, cuda::CUcontext context) : driver_(driver), context_(context) {}

    using ValueCall = cuda::CUresult (*)(cuda::CUstream, cuda::CUdeviceptr, uint64_t, unsigned);
    Status put_on(void* stream, const char* what, ValueCall call, std::atomic<uint64_t>& word, uint64_t value);

    const cuda::Driver& driver_;
    cuda::CUcontext context_;
    // The legacy stream, which most programs use, is never another one.
    std::atomic<bool> legacy_known_ = false;
    std::atomic<uint64_t> legacy_id_ = 0;
    Mutex mutex_;  // nothing is called while it is held
    std::vector<cuda::CUevent> unused_ GUARDED_BY(mutex_);
};

}  // namespace gshm::core
