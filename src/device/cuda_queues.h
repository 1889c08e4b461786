// CUDA streams as queues. Marks are events, which are reused.
#pragma once

#include <memory>
#include <vector>

#include "base/mutex.h"
#include "cuda/driver.h"
#include "device/queues.h"

namespace gshm {

class CudaQueues final : public Queues {
public:
    // For streams of this context, which must outlive this object. EOPNOTSUPP: the driver is too old.
    static Result<std::unique_ptr<CudaQueues>> create(const cuda::Driver& driver, cuda::CUcontext context);
    ~CudaQueues() override;

    Result<uint64_t> identify(void* queue) override;
    Result<Mark> record(void* queue) override EXCLUDES(mutex_);
    Status record(void* queue, Mark mark) override;
    bool is_passed(Mark mark) override;
    Status follow(void* queue, Mark mark) override;
    Status wait(Mark mark) override;
    void drop(Mark mark) override EXCLUDES(mutex_);
    Status signal(void* queue, std::atomic<uint64_t>& word, uint64_t value) override;
    Status hold(void* queue, std::atomic<uint64_t>& word, uint64_t value) override;

private:
    CudaQueues(const cuda::Driver& driver, cuda::CUcontext context) : driver_(driver), context_(context) {}

    using ValueCall = cuda::CUresult (*)(cuda::CUstream, cuda::CUdeviceptr, uint64_t, unsigned);
    Status put_on(void* queue, const char* what, ValueCall call, std::atomic<uint64_t>& word, uint64_t value);

    const cuda::Driver& driver_;
    cuda::CUcontext context_;
    Mutex mutex_;  // nothing is called while it is held
    std::vector<cuda::CUevent> unused_ GUARDED_BY(mutex_);
};

}  // namespace gshm
